//! Whether the events of whole CPUs still count: those of a CPU that goes offline end with it, and stay so when it comes back, perhaps before anybody looks at
//! which CPUs are online. The time for which an event was enabled then stands still.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::time::Duration;
use std::time::Instant;

use numapilot_machine::CpuId;

/// Least time between two looks that are compared.
const BEAT: Duration = Duration::from_millis(50);

/// An event's time of each CPU, from look to look.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    at: Option<Instant>,
    enabled_ns: BTreeMap<CpuId, u64>,
}

impl Pulse {
    /// Whether enough time has passed for a comparison.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.at.is_none_or(|at| now.saturating_duration_since(at) >= BEAT)
    }

    /// CPUs whose event was enabled no longer than at the look before. `enabled_ns`: for how long it was, by CPU.
    pub(super) fn stopped(&mut self, now: Instant, enabled_ns: BTreeMap<CpuId, u64>) -> BTreeSet<CpuId> {
        let stopped = enabled_ns.iter().filter(|(cpu, ns)| self.enabled_ns.get(*cpu) == Some(*ns));
        let stopped = stopped.map(|(cpu, _)| *cpu).collect();
        (self.at, self.enabled_ns) = (Some(now), enabled_ns);
        stopped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_whose_time_stands_still_has_ended() {
        let mut pulse = Pulse::default();
        let begun = Instant::now();
        let times = |times: [u64; 3]| (0..).map(CpuId).zip(times).collect::<BTreeMap<_, _>>();
        assert!(pulse.is_due(begun) && pulse.stopped(begun, times([1, 2, 3])).is_empty());
        assert!(!pulse.is_due(begun + BEAT / 2) && pulse.is_due(begun + BEAT));
        assert_eq!(pulse.stopped(begun + BEAT, times([5, 2, 4])), BTreeSet::from([CpuId(1)]));
        // It was opened anew.
        assert!(pulse.stopped(begun + 2 * BEAT, times([9, 1, 8])).is_empty());
    }
}
