//! The processes of a set of events: those for which it was opened, and their descendants, which inherit its events.
//!
//! The system uses numbers of processes again. Where a process's start time is known, it distinguishes the process from a later one with its number. Processes
//! that have ended are removed ([`Family::prune`]), because a process that gets such a number later would be taken for one that is sampled.

use std::collections::HashMap;

use numapilot_host::Pid;
use numapilot_perf_events::open::Scope;

/// Processes of a set of events; `None`: all processes.
#[derive(Debug)]
pub(super) struct Family(Option<HashMap<Pid, Relative>>);

/// A process of a set.
#[derive(Clone, Copy, Debug, Default)]
struct Relative {
    /// Start time in clock ticks since boot; `None`: not known.
    start_ticks: Option<u64>,
    /// Whether it was not among the processes at the last reading.
    is_missed: bool,
}

impl Relative {
    fn since(start_ticks: Option<u64>) -> Relative {
        Relative { start_ticks, is_missed: false }
    }

    /// Whether a process that has its number and this start time may be it.
    fn may_be(&self, start_ticks: u64) -> bool {
        self.start_ticks.is_none_or(|known| known == start_ticks)
    }
}

impl Family {
    /// All processes, present and future.
    pub fn everybody() -> Family {
        Family(None)
    }

    /// The processes of events of this scope. `start_of`: the start time of a process; `None`: not known.
    pub fn of(scope: &Scope, start_of: impl Fn(Pid) -> Option<u64>) -> Family {
        Family(match scope {
            Scope::System => None,
            Scope::Processes(pids) => Some(pids.iter().map(|pid| (*pid, Relative::since(start_of(*pid)))).collect()),
            // Enabled by the child's exec; never for this thread.
            Scope::Children => Some(HashMap::new()),
        })
    }

    /// Whether the process of this number belongs to the set. `start_ticks`: its start time; `None`: not known.
    pub fn has(&self, pid: Pid, start_ticks: Option<u64>) -> bool {
        let is_it = |relative: &Relative| start_ticks.is_none_or(|start| relative.may_be(start));
        self.0.as_ref().is_none_or(|pids| pids.get(&pid).is_some_and(is_it))
    }

    /// Adds a process that was started by one in the set, or (without a parent) by this thread. `start_ticks`: its start time; `None`: not known.
    pub fn inherits(&mut self, pid: Pid, parent: Option<Pid>, start_ticks: Option<u64>) {
        if let Some(pids) = &mut self.0
            && parent.map_or(pids.is_empty(), |parent| pids.contains_key(&parent))
        {
            pids.insert(pid, Relative::since(start_ticks));
        }
    }

    /// Whether any process of the set runs. `start_of`: the start time of a process that does.
    pub fn runs(&self, start_of: impl Fn(Pid) -> Option<u64>) -> bool {
        let runs = |(pid, relative): (&Pid, &Relative)| start_of(*pid).is_some_and(|start| relative.may_be(start));
        self.0.as_ref().is_none_or(|pids| pids.iter().any(runs))
    }

    /// Forgets processes whose numbers others have by now, and those that two readings in succession did not show: of one that has just ended, children may
    /// still be told. `start_of`: the start time of a process that is there at this reading.
    pub fn prune(&mut self, start_of: impl Fn(Pid) -> Option<u64>) {
        let Some(pids) = &mut self.0 else { return };
        pids.retain(|pid, relative| match start_of(*pid) {
            Some(start) => {
                relative.is_missed = false;
                relative.may_be(start)
            }
            None => !std::mem::replace(&mut relative.is_missed, true),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(_: Pid) -> Option<u64> {
        None
    }

    /// All that had ever been started stayed in the set, and whoever got one of their numbers was taken for a process that is sampled, and never was.
    #[test]
    fn what_two_readings_do_not_show_is_forgotten() {
        let mut family = Family::of(&Scope::Processes(vec![Pid(7)]), none);
        family.inherits(Pid(8), Some(Pid(7)), Some(80));
        family.inherits(Pid(9), Some(Pid(4711)), None);
        assert!(!family.has(Pid(9), None), "a stranger's child");
        let shown = |pids: &'static [u32]| move |pid: Pid| pids.contains(&pid.0).then_some(80_u64);
        family.prune(shown(&[7]));
        assert!(family.has(Pid(8), None));
        family.inherits(Pid(9), Some(Pid(8)), None);
        family.prune(shown(&[7, 8, 9]));
        family.prune(shown(&[7, 9]));
        assert!(family.has(Pid(8), None), "not twice in succession");
        family.prune(shown(&[7, 9]));
        assert!(!family.has(Pid(8), None) && family.has(Pid(7), None) && family.has(Pid(9), None));
    }

    #[test]
    fn a_number_that_is_used_again_is_another_process() {
        let mut family = Family::of(&Scope::Processes(vec![Pid(7)]), |_| Some(70));
        family.inherits(Pid(8), Some(Pid(7)), None);
        assert!(family.has(Pid(7), Some(70)) && family.has(Pid(7), None) && !family.has(Pid(7), Some(71)));
        assert!(family.has(Pid(8), Some(80)), "not known since when");
        assert!(family.runs(|pid| (pid == Pid(7)).then_some(70)));
        assert!(!family.runs(|pid| (pid == Pid(7)).then_some(71)) && !family.runs(none));
        family.prune(|_| Some(71));
        assert!(!family.has(Pid(7), None) && family.has(Pid(8), None));
        let mut all = Family::everybody();
        all.prune(none);
        assert!(all.has(Pid(7), Some(1)) && all.runs(none));
    }
}
