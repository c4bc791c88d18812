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

    /// Sets another rate at `now_ns`. What went before it is paid for still, at the new rate.
    pub fn set_rate(&mut self, now_ns: u64, bytes_per_s: Option<u64>) {
        let owed_ns = (self.paid_until_ns - now_ns as f64).max(0.0);
        // Nothing is owed at an unlimited rate.
        let owed_bytes = if owed_ns > 0.0 { owed_ns / 1e9 * self.bytes_per_s } else { 0.0 };
        *self = Pace::new(bytes_per_s);
        self.paid_until_ns = now_ns as f64 + owed_bytes / self.bytes_per_s * 1e9;
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

    /// A new limit began with nothing owed: whoever set the same one again and again sent as much as they liked.
    #[test]
    fn another_rate_does_not_forgive_what_went_before() {
        let mut pace = Pace::new(Some(1_000));
        pace.spend(0, 10_000);
        let owed_ns = |pace: &Pace| pace.wait_ns(2_000_000_000) + 50_000_000;
        pace.set_rate(2_000_000_000, Some(1_000));
        assert_eq!(owed_ns(&pace), 8_000_000_000, "8,000 bytes at 1,000 a second");
        pace.set_rate(2_000_000_000, Some(4_000));
        assert_eq!(owed_ns(&pace), 2_000_000_000);
        pace.set_rate(2_000_000_000, None);
        assert_eq!(pace.wait_ns(2_000_000_000), 0);
        pace.set_rate(3_000_000_000, Some(1));
        assert_eq!(pace.wait_ns(3_000_000_000), 0, "nothing is owed");
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        let mut pace = Pace::new(None);
        pace.spend(5, u64::MAX);
        assert_eq!(pace.wait_ns(5), 0);
    }
}
