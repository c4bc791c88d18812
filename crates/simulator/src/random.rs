//! Seeded randomness: the draws that the simulator needs. Same seed, same run, on every machine.

use numapilot_random::{Xoshiro, below_of, hashed, unit_of};

/// A seeded generator of pseudo-random numbers.
#[derive(Clone, Debug)]
pub struct Random(Xoshiro);

/// Mixes a number into 64 evenly distributed bits.
pub(crate) fn scramble(number: u64) -> u64 {
    hashed(number.wrapping_mul(2).wrapping_add(1))
}

impl Random {
    /// A generator with this seed.
    pub(crate) fn new(seed: u64) -> Random {
        Random(Xoshiro::new(seed))
    }

    /// Evenly in [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        unit_of(self.0.bits())
    }

    /// Evenly among 0 to `count` - 1; `count` is at least 1.
    pub(crate) fn below(&mut self, count: u64) -> u64 {
        below_of(self.0.bits(), count)
    }

    /// Time until the first event at rate 1.
    pub(crate) fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// Number of events where `mean` are expected: by waiting times up to 32, above that by the rounded normal approximation.
    pub(crate) fn poisson(&mut self, mean: f64) -> u64 {
        if mean > 32.0 {
            let normal = (-2.0 * (1.0 - self.unit()).ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos();
            return (mean + mean.sqrt() * normal).round().max(0.0) as u64;
        }
        let mut left = mean - self.exponential();
        let mut count = 0;
        while left > 0.0 {
            count += 1;
            left -= self.exponential();
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_their_means() {
        let mut random = Random::new(7);
        let draws = 20_000;
        for mean in [0.3, 4.0, 100.0] {
            let sum: u64 = (0..draws).map(|_| random.poisson(mean)).sum();
            let error = (sum as f64 / f64::from(draws) - mean).abs();
            assert!(error < 4.0 * (mean / f64::from(draws)).sqrt(), "poisson({mean}) is off by {error}");
        }
        let sum: f64 = (0..draws).map(|_| random.exponential()).sum();
        assert!((sum / f64::from(draws) - 1.0).abs() < 0.03);
        assert!((0..1000).all(|_| random.below(3) < 3));
    }
}
