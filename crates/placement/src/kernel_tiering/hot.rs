//! Which pages of slow memory are hot enough to be promoted to a node: by the time from unmapping to the fault, against a threshold that follows the rate limit
//! (`should_numa_migrate_memory`, `numa_promotion_adjust_threshold` and `numa_promotion_rate_limit` in `kernel/sched/fair.c`, the same in Linux 6.1 and 6.12).

/// The threshold changes in steps of this part of twice the default (`NUMA_MIGRATION_ADJUST_STEPS`).
const ADJUST_STEPS: u64 = 16;
/// Milliseconds over which the rate limit counts (`MSEC_PER_SEC`).
const RATE_MS: u64 = 1000;

/// The kernel's settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct HotLimits {
    /// Default of the threshold, milliseconds (`sysctl_numa_balancing_hot_threshold`).
    pub threshold_ms: u64,
    /// Candidates per second, pages of 4 KiB (`sysctl_numa_balancing_promote_rate_limit`).
    pub pages_per_s: u64,
    /// Time between two changes of the threshold, milliseconds (`sysctl_numa_balancing_scan_period_max`).
    pub adjust_ms: u64,
}

/// What became of a page that faulted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It may be promoted.
    Hot,
    /// It took too long to be accessed.
    Cold,
    /// It is hot, but enough pages were candidates in this second.
    BeyondRate,
}

/// The state of a node to which pages are promoted (`nbp_*` of `pg_data_t`).
#[derive(Clone, Debug, Default)]
pub(super) struct HotPages {
    /// 0: the default (`nbp_threshold`).
    threshold_ms: u64,
    adjusted_ms: u64,
    adjusted_candidates: u64,
    rate_began_ms: u64,
    rate_candidates: u64,
    /// Pages of 4 KiB that were hot enough since the start (`PGPROMOTE_CANDIDATE`).
    candidates: u64,
}

impl HotPages {
    /// There is much free memory on the node: every page is promoted, and the threshold begins anew.
    pub fn reset(&mut self) {
        self.threshold_ms = 0;
    }

    /// The threshold in force, milliseconds.
    pub fn threshold_ms(&self, limits: &HotLimits) -> u64 {
        if self.threshold_ms == 0 { limits.threshold_ms } else { self.threshold_ms }
    }

    /// A fault at a time, so long after the page was unmapped.
    pub fn fault(&mut self, now_ms: u64, latency_ms: u64, pages: u64, limits: &HotLimits) -> Verdict {
        self.adjust(now_ms, limits);
        if latency_ms >= self.threshold_ms(limits) {
            return Verdict::Cold;
        }
        self.candidates += pages;
        if now_ms.saturating_sub(self.rate_began_ms) > RATE_MS {
            self.rate_began_ms = now_ms;
            self.rate_candidates = self.candidates;
        }
        if self.candidates - self.rate_candidates >= limits.pages_per_s { Verdict::BeyondRate } else { Verdict::Hot }
    }

    /// A lower threshold where a tenth more pages were candidates than the rate limit lets through, a higher one where a tenth fewer were.
    fn adjust(&mut self, now_ms: u64, limits: &HotLimits) {
        if now_ms.saturating_sub(self.adjusted_ms) <= limits.adjust_ms {
            return;
        }
        self.adjusted_ms = now_ms;
        let aim = limits.pages_per_s * limits.adjust_ms / RATE_MS;
        let were = self.candidates - self.adjusted_candidates;
        self.adjusted_candidates = self.candidates;
        let step = limits.threshold_ms * 2 / ADJUST_STEPS;
        let threshold = self.threshold_ms(limits);
        self.threshold_ms = if were > aim * 11 / 10 {
            threshold.saturating_sub(step).max(step)
        } else if were < aim * 9 / 10 {
            (threshold + step).min(limits.threshold_ms * 2)
        } else {
            threshold
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: HotLimits = HotLimits { threshold_ms: 1000, pages_per_s: 100, adjust_ms: 10_000 };

    #[test]
    fn a_page_is_hot_below_the_threshold_and_the_rate() {
        let mut node = HotPages::default();
        assert_eq!(node.fault(5, 999, 1, &LIMITS), Verdict::Hot);
        assert_eq!(node.fault(5, 1000, 1, &LIMITS), Verdict::Cold);
        for _ in 0..98 {
            assert_eq!(node.fault(6, 0, 1, &LIMITS), Verdict::Hot);
        }
        assert_eq!(node.fault(7, 0, 1, &LIMITS), Verdict::BeyondRate, "the hundredth in the second");
        assert_eq!(node.fault(1002, 0, 1, &LIMITS), Verdict::Hot, "the next second has begun");
    }

    #[test]
    fn much_free_memory_sets_the_threshold_back() {
        let mut node = HotPages::default();
        node.fault(10_001, 0, 1, &LIMITS);
        assert_eq!(node.threshold_ms(&LIMITS), 1125, "hardly a candidate");
        node.reset();
        assert_eq!(node.threshold_ms(&LIMITS), 1000);
    }

    proptest! {
        /// Pages fault at a constant rate, with latencies spread evenly to twice the default threshold: as many as the rate limit lets through end below
        /// the threshold, to within its tenth and one step, whatever the rate is; it never leaves its bounds.
        #[test]
        fn the_threshold_follows_the_rate_limit(faults_per_s in 20u64..2000) {
            let mut node = HotPages::default();
            let mut candidates = 0;
            for second in 0..400u64 {
                for fault in 0..faults_per_s {
                    let now_ms = second * 1000 + fault * 1000 / faults_per_s;
                    // An even spread without a pattern that agrees with the seconds.
                    let latency_ms = (second * faults_per_s + fault) * 7919 % 2000;
                    let verdict = node.fault(now_ms, latency_ms, 1, &LIMITS);
                    candidates += u64::from(second >= 300 && verdict != Verdict::Cold);
                }
                let threshold = node.threshold_ms(&LIMITS);
                prop_assert!((125..=2000).contains(&threshold) && threshold % 125 == 0, "{threshold}");
            }
            let rate = candidates as f64 / 100.0;
            let step = faults_per_s as f64 * 125.0 / 2000.0;
            let least = (faults_per_s as f64).min(90.0) - step;
            let most = (110.0 + step).max(step * 2.0);
            prop_assert!(rate >= least && rate <= most, "{rate} candidates per second at {faults_per_s} faults");
        }
    }
}
