//! Whose events a set of them is: the processes that it was opened for, and what they started, which inherits its events.

use std::collections::HashSet;

use numapilot_perf_events::open::Scope;

/// Processes that a set of events is about; `None`: everybody.
#[derive(Debug)]
pub(super) struct Family(Option<HashSet<u32>>);

impl Family {
    /// Everybody, whoever comes.
    pub fn everybody() -> Family {
        Family(None)
    }

    /// Those that events of this scope are about.
    pub fn of(scope: &Scope) -> Family {
        Family(match scope {
            Scope::System => None,
            Scope::Processes(pids) => Some(pids.iter().copied().collect()),
            // Turned on by the child's exec; never for this thread.
            Scope::Children => Some(HashSet::new()),
        })
    }

    /// Whether this process is of it.
    pub fn has(&self, pid: u32) -> bool {
        self.0.as_ref().is_none_or(|pids| pids.contains(&pid))
    }

    /// A process was started by one of it, or (without a parent) by this thread.
    pub fn inherits(&mut self, pid: u32, parent: Option<u32>) {
        if let Some(pids) = &mut self.0
            && parent.map_or(pids.is_empty(), |parent| pids.contains(&parent))
        {
            pids.insert(pid);
        }
    }

    /// Whether any of it runs.
    pub fn runs(&self, runs: impl Fn(u32) -> bool) -> bool {
        self.0.as_ref().is_none_or(|pids| pids.iter().any(|pid| runs(*pid)))
    }
}
