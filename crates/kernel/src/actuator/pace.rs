//! A rate limit in bytes per second, as a function of time: the clock is the caller's.

/// Seconds' worth of bytes that may go at once after a pause.
const BURST_S: f64 = 0.05;

/// Limits a rate to a number of bytes per second, on average over a twentieth of a second.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    bytes_per_s: f64,
    /// When what was let through so far would have been finished at the rate, in nanoseconds of the caller's clock.
    paid_until_ns: f64,
}

impl Pace {
    /// At most `bytes_per_s`; `None`: any number.
    #[must_use]
    pub fn new(bytes_per_s: Option<u64>) -> Pace {
        Pace { bytes_per_s: bytes_per_s.map_or(f64::INFINITY, |rate| rate.max(1) as f64), paid_until_ns: 0.0 }
    }

    /// Nanoseconds to wait, from `now_ns` on, until the next bytes may go; 0: at once.
    #[must_use]
    pub fn wait_ns(&self, now_ns: u64) -> u64 {
        (self.paid_until_ns - BURST_S * 1e9 - now_ns as f64).max(0.0).ceil() as u64
    }

    /// Notes that `bytes` went at `now_ns`.
    pub fn spend(&mut self, now_ns: u64, bytes: u64) {
        self.paid_until_ns = self.paid_until_ns.max(now_ns as f64) + bytes as f64 / self.bytes_per_s * 1e9;
    }
}

#[cfg(test)]
mod tests {
    //! Any sequence of batches stays below the rate.

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_more_goes_than_the_rate_allows(
            rate in 1_000_u64..10_000_000_000,
            batches in prop::collection::vec((1_u64..4_000_000, 0_u64..10_000_000), 1..100),
        ) {
            let mut pace = Pace::new(Some(rate));
            let (mut now, mut sent, mut last) = (0_u64, 0_u64, 0_u64);
            for (bytes, idle) in batches {
                now += idle + pace.wait_ns(now + idle);
                prop_assert_eq!(pace.wait_ns(now), 0);
                pace.spend(now, bytes);
                sent += bytes;
                last = bytes;
            }
            // The last batch may go before it is paid for.
            let allowed = (now as f64 / 1e9 + BURST_S) * rate as f64 + last as f64;
            prop_assert!(sent as f64 <= allowed * (1.0 + 1e-9) + 1.0, "{} > {}", sent, allowed);
        }
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        let mut pace = Pace::new(None);
        pace.spend(5, u64::MAX);
        assert_eq!(pace.wait_ns(5), 0);
    }
}
