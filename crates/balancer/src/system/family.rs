//! The processes of a set of events: those for which it was opened, and their descendants, which inherit its events.

use std::collections::HashSet;

use numapilot_host::Pid;
use numapilot_perf_events::open::Scope;

/// Processes of a set of events; `None`: all processes.
#[derive(Debug)]
pub(super) struct Family(Option<HashSet<Pid>>);

impl Family {
    /// All processes, present and future.
    pub fn everybody() -> Family {
        Family(None)
    }

    /// The processes of events of this scope.
    pub fn of(scope: &Scope) -> Family {
        Family(match scope {
            Scope::System => None,
            Scope::Processes(pids) => Some(pids.iter().copied().collect()),
            // Enabled by the child's exec; never for this thread.
            Scope::Children => Some(HashSet::new()),
        })
    }

    /// Whether this process belongs to the set.
    pub fn has(&self, pid: Pid) -> bool {
        self.0.as_ref().is_none_or(|pids| pids.contains(&pid))
    }

    /// Adds a process that was started by one in the set, or (without a parent) by this thread.
    pub fn inherits(&mut self, pid: Pid, parent: Option<Pid>) {
        if let Some(pids) = &mut self.0
            && parent.map_or(pids.is_empty(), |parent| pids.contains(&parent))
        {
            pids.insert(pid);
        }
    }

    /// Whether any process of the set runs.
    pub fn runs(&self, runs: impl Fn(Pid) -> bool) -> bool {
        self.0.as_ref().is_none_or(|pids| pids.iter().any(|pid| runs(*pid)))
    }
}
