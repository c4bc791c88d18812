//! The moments of repeated readings.

use std::time::Duration;

/// The first moment after `elapsed` of a schedule that has one at `at` and others every `interval`. Those that went by meanwhile, because this program was
/// stopped or a reading took long, are left out: nothing can be said of what came between two of them.
pub fn next(at: Duration, interval: Duration, elapsed: Duration) -> Duration {
    let every = interval.as_nanos().max(1);
    let gone_by = elapsed.saturating_sub(at).as_nanos() / every;
    let later = u64::try_from((gone_by + 1).saturating_mul(every)).unwrap_or(u64::MAX);
    at.saturating_add(Duration::from_nanos(later))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_that_went_by_are_left_out_and_the_schedule_is_kept() {
        let next = |at: u64, elapsed: u64| {
            next(Duration::from_millis(at), Duration::from_millis(100), Duration::from_millis(elapsed)).as_millis()
        };
        assert_eq!((next(100, 100), next(100, 103), next(100, 199)), (200, 200, 200));
        assert_eq!((next(100, 200), next(100, 90)), (300, 200));
        // Stopped for an hour (Ctrl-Z), then continued.
        assert_eq!(next(100, 3_600_150), 3_600_200);
    }

    #[test]
    fn no_interval_is_too_long() {
        let longest = super::next(Duration::MAX, Duration::MAX, Duration::MAX);
        assert_eq!(longest, Duration::MAX);
        assert!(super::next(Duration::ZERO, Duration::MAX, Duration::ZERO) > Duration::from_secs(1 << 33));
    }
}
