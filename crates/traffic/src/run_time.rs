//! Predicted run time of a load with a given amount of work.

use crate::error::TrafficError;
use crate::load::Load;
use crate::solution::worse_residual;
use crate::solver::Solver;
use crate::system::MemorySystem;

/// Predicted finish times, and how well the loads on the way to them were solved.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishTimes {
    /// When each class will have made its accesses, in seconds from now.
    pub times_s: Vec<f64>,
    /// Largest relative change in the last iteration of any load that did not converge; 0 where all did. Above that the times are near the model's at best, and
    /// whoever shows them says so.
    pub residual: f64,
}

/// When each class will have made its `accesses` (all its threads together), in seconds from now. Classes that are done leave, and the
/// others go on with what that frees, until all are done. A class without threads never finishes work that it has: its time is infinite.
pub fn finish_times_s(
    system: &MemorySystem,
    solver: &mut Solver,
    load: &Load,
    accesses: &[f64],
) -> Result<FinishTimes, TrafficError> {
    finish(load, accesses, &mut |load| {
        let solution = solver.without_marginal(system, load)?;
        Ok((solution.throughput_per_s.clone(), solution.unsettled()))
    })
}

/// The throughput of each class, in accesses per second, and the residual of the solution: 0 where it converged.
type Solved = Result<(Vec<f64>, f64), TrafficError>;

/// [`finish_times_s`] with the throughputs that `solve` gives.
fn finish(load: &Load, accesses: &[f64], solve: &mut dyn FnMut(&Load) -> Solved) -> Result<FinishTimes, TrafficError> {
    if accesses.len() != load.classes.len() || accesses.iter().any(|a| !(a.is_finite() && *a >= 0.0)) {
        let what = format!(
            "{} amounts for {} classes, or an amount that is negative or not a number",
            accesses.len(),
            load.classes.len()
        );
        let remedy = "give each class its number of accesses, from 0".to_owned();
        return Err(TrafficError::Work { what, remedy });
    }
    let mut load = load.clone();
    let mut left = accesses.to_vec();
    let mut times_s: Vec<f64> = left.iter().map(|left| if *left > 0.0 { f64::INFINITY } else { 0.0 }).collect();
    let mut now_s = 0.0;
    let mut worst: f64 = 0.0;
    for (class, _) in load.classes.iter_mut().zip(&left).filter(|(_, left)| **left <= 0.0) {
        class.threads = 0.0;
    }
    loop {
        let (per_s, residual) = solve(&load)?;
        let wait_s = |class: usize| left[class] / per_s[class];
        let active = || (0..left.len()).filter(|&class| left[class] > 0.0 && per_s[class] > 0.0);
        let Some(first) = active().min_by(|&a, &b| wait_s(a).total_cmp(&wait_s(b))) else {
            return Ok(FinishTimes { times_s, residual: worst });
        };
        worst = worse_residual(worst, residual);
        let step_s = wait_s(first);
        now_s += step_s;
        for class in active().collect::<Vec<_>>() {
            let rest = left[class] - per_s[class] * step_s;
            // Classes that end together end now, and not a rounding error later.
            left[class] = if class == first || rest <= 1e-9 * accesses[class] { 0.0 } else { rest };
            if left[class] == 0.0 {
                times_s[class] = now_s;
                load.classes[class].threads = 0.0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Class;

    /// Times of loads that were not solved looked like any others.
    #[test]
    fn a_load_that_did_not_converge_is_told_though_the_others_did() {
        let class =
            Class { from: 0, threads: 1.0, outstanding: 1.0, think_ns: 0.0, reads: vec![1.0], writes: vec![0.0] };
        let load = Load { classes: vec![class.clone(), class], background: Vec::new() };
        let times = |residuals: [f64; 3]| {
            let mut residuals = residuals.into_iter();
            finish(&load, &[1e6, 3e6], &mut |_| Ok((vec![1e6, 1e6], residuals.next().expect("three loads"))))
                .expect("sound")
        };
        assert_eq!(times([0.0, 0.0, 0.0]), FinishTimes { times_s: vec![1.0, 3.0], residual: 0.0 });
        assert_eq!(times([0.0, 0.03, 0.0]), FinishTimes { times_s: vec![1.0, 3.0], residual: 0.03 });
        assert_eq!(times([0.0, 0.0, 0.03]).residual, 0.0, "nobody is left whom the last one could delay");
        assert_eq!(times([f64::INFINITY, 0.03, 0.0]).residual, f64::INFINITY);
        assert_eq!(times([f64::NAN, 0.03, 0.0]).residual, f64::INFINITY, "no number is no convergence");
    }
}
