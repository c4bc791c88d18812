//! Whether the events of whole CPUs still run. Those of a CPU that goes offline end with it, and stay so when it comes back (`__perf_event_exit_context` in
//! kernel/events/core.c), perhaps before anybody looks at which CPUs are online: a suspension of the machine stops the events' reader before it takes the CPUs
//! offline. The time for which an event was enabled then stands still.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::time::Duration;
use std::time::Instant;

use numapilot_machine::CpuId;

/// Least time between two looks that are compared.
const BEAT: Duration = Duration::from_millis(50);

/// For how many nanoseconds an event of each CPU was enabled; `None`: the event does not tell.
pub type EnabledTimes = BTreeMap<CpuId, Option<u64>>;

/// An event's time of each CPU, from look to look.
#[derive(Debug, Default)]
pub struct Pulse {
    at: Option<Instant>,
    enabled: EnabledTimes,
}

impl Pulse {
    /// Whether enough time has passed for a comparison.
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        self.at.is_none_or(|at| now.saturating_duration_since(at) >= BEAT)
    }

    /// CPUs whose event [has ended](stopped_between) since the look before.
    pub fn stopped(&mut self, now: Instant, enabled: EnabledTimes) -> BTreeSet<CpuId> {
        let stopped = stopped_between(&self.enabled, &enabled);
        (self.at, self.enabled) = (Some(now), enabled);
        stopped
    }
}

/// CPUs whose event was enabled no longer at the second look than at the first, or tells nothing then; those that the first look had not are left out.
#[must_use]
pub fn stopped_between(before: &EnabledTimes, now: &EnabledTimes) -> BTreeSet<CpuId> {
    let is_stopped = |cpu: &CpuId, now: &Option<u64>| {
        let before = before.get(cpu);
        before.is_some_and(|before| now.is_none() || before == now)
    };
    now.iter().filter(|(cpu, now)| is_stopped(cpu, now)).map(|(cpu, _)| *cpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(times: [Option<u64>; 3]) -> EnabledTimes {
        (0..).map(CpuId).zip(times).collect()
    }

    #[test]
    fn an_event_whose_time_stands_still_has_ended() {
        let mut pulse = Pulse::default();
        let begun = Instant::now();
        assert!(pulse.is_due(begun) && pulse.stopped(begun, times([1, 2, 3].map(Some))).is_empty());
        assert!(!pulse.is_due(begun + BEAT / 2) && pulse.is_due(begun + BEAT));
        assert_eq!(pulse.stopped(begun + BEAT, times([5, 2, 4].map(Some))), BTreeSet::from([CpuId(1)]));
        // It was opened anew.
        assert!(pulse.stopped(begun + 2 * BEAT, times([9, 1, 8].map(Some))).is_empty());
    }

    /// `stat` and `top` took an event that told nothing any more for one that runs.
    #[test]
    fn an_event_that_tells_nothing_any_more_has_ended() {
        let (before, now) = (times([Some(1), Some(2), None]), times([Some(5), None, None]));
        assert_eq!(stopped_between(&before, &now), BTreeSet::from([CpuId(1), CpuId(2)]));
        assert!(stopped_between(&EnabledTimes::new(), &now).is_empty(), "nothing is known of before");
        assert!(stopped_between(&before, &times([Some(2), Some(3), Some(1)])).is_empty());
    }
}
