//! How many standard errors a 95 % interval reaches from an estimate: quantiles of the distributions of random errors.

/// Two-sided 95 % quantile of the normal distribution.
pub const Z: f64 = 1.959_963_984_540_054;
/// Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// Half of a 95 % interval, in standard errors that were estimated with so many degrees of freedom: Student's t, and [`Z`] for more than 30. 0 counts as 1.
#[must_use]
pub fn student(freedom: usize) -> f64 {
    STUDENT.get(freedom.saturating_sub(1)).copied().unwrap_or(Z)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Integral of a function from 0 to `end`, by Simpson's rule.
    fn integral(of: impl Fn(f64) -> f64, end: f64) -> f64 {
        let step = end / 200.0;
        let weight = |at: i32| if at == 0 || at == 200 { 1.0 } else { 2.0 * f64::from(1 + at % 2) };
        (0..=200).map(|at| weight(at) * of(step * f64::from(at))).sum::<f64>() * step / 3.0
    }

    /// With x = sqrt(n) tan a, the density of Student's t is that of the angle, which is proportional to cos(a) to the power n - 1.
    #[test]
    fn students_quantiles_hold_95_percent() {
        for freedom in 1..=30_i32 {
            let density = |angle: f64| angle.cos().powi(freedom - 1);
            let end = (student(freedom as usize) / f64::from(freedom).sqrt()).atan();
            let share = integral(density, end) / integral(density, std::f64::consts::FRAC_PI_2);
            // Three decimals leave an error of 0.0005, at a density of up to 0.1.
            assert!((share - 0.95).abs() < 6e-5, "{freedom}: {share}");
        }
        // The density of one degree of freedom is so small there that its share tells little.
        assert!((student(1) - (0.475 * std::f64::consts::PI).tan()).abs() < 5e-4);
    }

    #[test]
    fn without_a_degree_of_freedom_it_is_that_of_one_and_of_many_that_of_the_normal_distribution() {
        assert_eq!((student(0), student(31), student(usize::MAX)), (student(1), Z, Z));
    }
}
