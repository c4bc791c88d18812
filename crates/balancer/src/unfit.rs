//! Processes of the machine that cannot be managed: kernel threads, what another numapilot manages, more than there is room for. A large machine has thousands
//! of them. They are looked at again now and then, not at each listing: a look costs several system calls, and whoever joins the managed processes makes the
//! balancing loop ask for fresh evidence.

use std::collections::BTreeSet;

use numapilot_host::Pid;

/// Listings between two looks at such a process.
const AGAIN: u64 = 32;

/// The processes that cannot be managed, by their ids.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unfit {
    pids: BTreeSet<Pid>,
}

impl Unfit {
    /// Forgets those that have ended. `listed`: ids of all processes, ascending.
    pub(crate) fn keep_listed(&mut self, listed: &[Pid]) {
        self.pids.retain(|pid| listed.binary_search(pid).is_ok());
    }

    /// Whether a process is left out at this listing. They take turns, so that a process that has got the id of another one is not left out for long.
    pub(crate) fn is_left_out(&self, pid: Pid, listing: u64) -> bool {
        self.pids.contains(&pid) && !(u64::from(pid.0) + listing).is_multiple_of(AGAIN)
    }

    /// Notes what a look at a process showed.
    pub(crate) fn found(&mut self, pid: Pid, is_fit: bool) {
        if is_fit {
            self.pids.remove(&pid);
        } else {
            self.pids.insert(pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of a machine's thousands of kernel threads was looked at every second, at more than a percent of a processor.
    #[test]
    fn who_is_unfit_is_looked_at_in_turns_until_it_ends_or_fits() {
        let mut unfit = Unfit::default();
        (1..=3200).map(Pid).for_each(|pid| unfit.found(pid, false));
        for listing in 0..AGAIN {
            assert_eq!((1..=3200).map(Pid).filter(|pid| !unfit.is_left_out(*pid, listing)).count(), 100);
        }
        assert_eq!((0..AGAIN).filter(|listing| !unfit.is_left_out(Pid(7), *listing)).count(), 1, "each has its turn");
        assert!((0..AGAIN).all(|listing| !unfit.is_left_out(Pid(4000), listing)), "a new process is looked at");
        unfit.found(Pid(7), true);
        unfit.keep_listed(&[7, 8, 9].map(Pid));
        assert!((0..AGAIN).all(|listing| !unfit.is_left_out(Pid(7), listing) && !unfit.is_left_out(Pid(10), listing)));
        assert!((0..AGAIN).any(|listing| unfit.is_left_out(Pid(8), listing)));
    }
}
