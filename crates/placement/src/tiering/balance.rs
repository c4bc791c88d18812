//! The share of the accesses that memory of nodes with CPUs should serve: where its loaded latency equals that of other memory. Found by halving the range in
//! which that share is, as Colloid does (Vuppalapati and Agarwal, "Tiered Memory Management: Access Latency is the Key!", SOSP 2024).

/// Least width of the range. Once it is narrower and the latencies still differ, the load has changed, and the end that is in the way is given up.
const NARROW: f64 = 0.02;

/// What is known of the share at which both latencies are equal.
#[derive(Clone, Debug)]
pub(super) struct Balance {
    /// The last share at which near memory was faster, 0 to 1.
    low: f64,
    /// The last share at which it was slower, 0 to 1.
    high: f64,
    /// Whether it ever was slower.
    has_saturated: bool,
}

impl Balance {
    /// Nothing is known.
    pub fn new() -> Balance {
        Balance { low: 0.0, high: 1.0, has_saturated: false }
    }

    /// The share that near memory should serve next, where it serves `share` at a latency of `near_ns`, and other memory the rest at `apart_ns`. The same share
    /// if these differ by no more than a part of `tolerance`. All of it, as long as near memory was never seen to be the slower one.
    pub fn wanted(&mut self, share: f64, near_ns: f64, apart_ns: f64, tolerance: f64) -> f64 {
        if (near_ns - apart_ns).abs() <= tolerance * near_ns {
            return share;
        }
        if share < self.low {
            self.low = 0.0;
        }
        if share > self.high {
            self.high = 1.0;
        }
        if near_ns < apart_ns {
            self.low = share;
            if self.high - share < NARROW {
                self.high = 1.0;
            }
            return if self.has_saturated { (share + self.high) / 2.0 } else { 1.0 };
        }
        (self.high, self.has_saturated) = (share, true);
        if share - self.low < NARROW {
            self.low = 0.0;
        }
        (share + self.low) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_wanted_near_until_that_is_slower() {
        let mut balance = Balance::new();
        assert_eq!(balance.wanted(0.25, 100.0, 200.0, 0.05), 1.0);
        assert_eq!(balance.wanted(0.5, 196.0, 200.0, 0.05), 0.5, "they are equal enough");
        assert_eq!(
            balance.wanted(1.0, 300.0, 200.0, 0.05),
            0.625,
            "half of what is above the last share that was good"
        );
        assert_eq!(balance.wanted(0.625, 150.0, 200.0, 0.05), 0.8125);
        assert_eq!(balance.wanted(0.8125, 250.0, 200.0, 0.05), 0.71875);
    }

    /// The latencies of near memory: 100 ns up to a share of `knee`, then ever more.
    fn found(balance: &mut Balance, knee: f64, mut share: f64) -> f64 {
        for _ in 0..40 {
            let near_ns = 100.0 + 2000.0 * (share - knee).max(0.0);
            share = balance.wanted(share, near_ns, 200.0, 0.02);
        }
        share
    }

    #[test]
    fn the_share_with_equal_latencies_is_found_again_when_the_load_changes() {
        let mut balance = Balance::new();
        for knee in [0.5, 0.2, 0.8, 0.4] {
            let share = found(&mut balance, knee, 0.9);
            assert!((share - knee - 0.05).abs() < 0.01, "{share} for a knee at {knee}");
        }
        // Where near memory never saturates, all is served there.
        assert_eq!(found(&mut Balance::new(), 1.0, 0.0), 1.0);
    }
}
