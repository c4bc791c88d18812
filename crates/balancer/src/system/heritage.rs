//! What a process inherits from the one that starts it, also where that one has ended before this program hears of the new one: a daemon starts so, by a
//! process between that ends at once, and a shell's `(command &)`.

use std::collections::BTreeMap;
use std::sync::Arc;

use numapilot_host::Pid;

use super::bound::Bound;

/// Former processes that are remembered of one look: more than ordinarily end within an interval.
const FORMER_MAX: usize = 4096;
/// Lists of bindings that processes are compared with, to keep each list once: a mask is 1 KiB.
const SHARED_MAX: usize = 16;

/// What a process that is started inherits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Heritage {
    /// The process that counts as the one that started it: the nearest one that is managed, or was.
    pub parent: Option<Pid>,
    /// Bindings that its threads may have inherited.
    pub bindings: Arc<[Bound]>,
    /// The user who added the first of these processes, to whom a limit on managed processes applies; `None`: no limit.
    pub guest_of: Option<u32>,
    /// Whether it is managed, because its parent is. If its parent is not, or no longer, it only loses the bindings that it inherited.
    pub is_joined: bool,
}

/// The heritages of processes that are managed no longer, or ended before they could be: for two looks. The kernel's records of their children have arrived
/// by then. A record of a new process with such a number removes its heritage ([`Former::forget`]); otherwise the system does not use the number again so soon.
#[derive(Debug, Default)]
pub(super) struct Former {
    /// Heritages that were remembered at the latest look, by process id.
    latest: BTreeMap<Pid, Heritage>,
    /// Those of the look before.
    earlier: BTreeMap<Pid, Heritage>,
    /// Bindings that were remembered at this look: most processes of a program have the same.
    shared: Vec<Arc<[Bound]>>,
    /// Number of processes that were not remembered, because there were too many.
    pub dropped: u64,
}

impl Former {
    /// Begins a look: what was remembered two looks ago is forgotten.
    pub fn next_look(&mut self) {
        self.earlier = std::mem::take(&mut self.latest);
        self.shared.clear();
    }

    /// Remembers what the children of a process inherit.
    pub fn remember(&mut self, pid: Pid, heritage: Heritage) {
        if self.latest.len() >= FORMER_MAX && !self.latest.contains_key(&pid) {
            self.dropped += 1;
            return;
        }
        let known = self.shared.iter().find(|shared| **shared == heritage.bindings).cloned();
        if known.is_none() && self.shared.len() < SHARED_MAX {
            self.shared.push(Arc::clone(&heritage.bindings));
        }
        let bindings = known.unwrap_or_else(|| Arc::clone(&heritage.bindings));
        self.latest.insert(pid, Heritage { bindings, ..heritage });
    }

    /// Forgets a process whose number another one has by now.
    pub fn forget(&mut self, pid: Pid) {
        self.latest.remove(&pid);
        self.earlier.remove(&pid);
    }

    /// What the children of a process inherit, if it is remembered.
    pub fn get(&self, pid: Pid) -> Option<&Heritage> {
        self.latest.get(&pid).or_else(|| self.earlier.get(&pid))
    }

    /// Whether any of them had a binding.
    pub fn has_bindings(&self) -> bool {
        self.latest.values().chain(self.earlier.values()).any(|heritage| !heritage.bindings.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(parent: u32) -> Heritage {
        Heritage { parent: Some(Pid(parent)), is_joined: true, ..Heritage::default() }
    }

    #[test]
    fn a_former_process_is_known_for_two_looks_or_until_its_number_is_used_again() {
        let mut former = Former::default();
        former.remember(Pid(7), of(1));
        former.remember(Pid(8), of(2));
        former.next_look();
        former.remember(Pid(9), of(7));
        former.forget(Pid(8));
        assert_eq!([7, 8, 9].map(|pid| former.get(Pid(pid)).cloned()), [Some(of(1)), None, Some(of(7))]);
        former.next_look();
        assert_eq!([7, 9].map(|pid| former.get(Pid(pid)).cloned()), [None, Some(of(7))]);
        former.next_look();
        assert_eq!(former.get(Pid(9)), None);
    }

    #[test]
    fn a_storm_of_processes_is_bounded_and_what_is_dropped_is_counted() {
        let mut former = Former::default();
        let most = FORMER_MAX as u32;
        (1..=most + 5).for_each(|pid| former.remember(Pid(pid), of(1)));
        former.remember(Pid(3), of(2));
        assert_eq!((former.get(Pid(3)), former.get(Pid(most + 1)), former.dropped), (Some(&of(2)), None, 5));
        assert_eq!(former.shared.len(), 1, "what all inherit is kept once");
    }
}
