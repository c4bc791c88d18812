//! A time budget: an initial advance, and from then on a share of the elapsed time. Pure.

use std::time::Duration;

/// A time budget.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    left_ns: f64,
    most_ns: f64,
    share: f64,
}

impl Allowance {
    /// Makes a budget that holds `advance` and grows by `share` of the elapsed time, such as 0.01. Unused time accumulates up to the advance.
    #[must_use]
    pub fn new(advance: Duration, share: f64) -> Allowance {
        let most_ns = advance.as_nanos() as f64;
        Allowance { left_ns: most_ns, most_ns, share }
    }

    /// Adds the share of elapsed time to the budget.
    pub fn passed(&mut self, time: Duration) {
        self.left_ns = (self.left_ns + self.share * time.as_nanos() as f64).min(self.most_ns);
    }

    /// Subtracts time that was used; the budget may become negative.
    pub fn spent(&mut self, time: Duration) {
        self.left_ns -= time.as_nanos() as f64;
    }

    /// Whether time is left in the budget.
    #[must_use]
    pub fn is_left(&self) -> bool {
        self.left_ns > 0.0
    }
}

#[cfg(test)]
mod tests {
    //! A long time.

    use super::*;

    #[test]
    fn no_more_is_taken_than_the_advance_and_the_share() {
        let (advance, step, piece) =
            (Duration::from_millis(200), Duration::from_millis(100), Duration::from_millis(30));
        let (mut allowance, mut taken) = (Allowance::new(advance, 0.005), Duration::ZERO);
        for _ in 0..10_000 {
            allowance.passed(step);
            if allowance.is_left() {
                allowance.spent(piece);
                taken += piece;
            }
        }
        let most = advance + (step * 10_000).mul_f64(0.005);
        assert!(taken <= most + piece && taken >= most.mul_f64(0.9), "{taken:?} of {most:?}");
    }
}
