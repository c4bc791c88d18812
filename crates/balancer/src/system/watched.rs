//! Sets of perf events, each with the processes that have its events: what the samplers of page faults and of accesses share.

use numapilot_host::Pid;

use super::family::Family;

/// Sets of events of one kind.
#[derive(Debug)]
pub(crate) struct WatchedSets<E> {
    sets: Vec<Watched<E>>,
    /// Samples that a set has lost so far, by its own count.
    lost_of: fn(&E) -> u64,
    /// Losses of closed sets that [`WatchedSets::take_lost`] has not returned yet.
    lost_in_closed: u64,
}

/// A set of events with its processes.
#[derive(Debug)]
struct Watched<E> {
    events: E,
    family: Family,
    /// Losses that were returned.
    told_lost: u64,
}

impl<E> WatchedSets<E> {
    /// An empty list. `lost_of` returns how many records the events of one set have lost since they were opened.
    pub(super) fn new(lost_of: fn(&E) -> u64) -> WatchedSets<E> {
        WatchedSets { sets: Vec::new(), lost_of, lost_in_closed: 0 }
    }

    /// Adds the opened events of a family of processes.
    pub(super) fn add(&mut self, events: E, family: Family) {
        self.sets.push(Watched { events, family, told_lost: 0 });
    }

    /// The events of each set.
    pub(super) fn events(&self) -> impl Iterator<Item = &E> {
        self.sets.iter().map(|watched| &watched.events)
    }

    /// The events of each set, to be read.
    pub(super) fn events_mut(&mut self) -> impl Iterator<Item = &mut E> {
        self.sets.iter_mut().map(|watched| &mut watched.events)
    }

    /// Whether a process is sampled. `start_ticks`: when it started, in clock ticks since boot; `None`: not known.
    pub(super) fn has(&self, pid: Pid, start_ticks: Option<u64>) -> bool {
        self.sets.iter().any(|watched| watched.family.has(pid, start_ticks))
    }

    /// Adds a process that was started by a sampled one (or, without a parent, by this thread) and inherited its events. `start_ticks` as in
    /// [`WatchedSets::has`].
    pub(crate) fn inherits(&mut self, pid: Pid, parent: Option<Pid>, start_ticks: Option<u64>) {
        self.sets.iter_mut().for_each(|watched| watched.family.inherits(pid, parent, start_ticks));
    }

    /// Forgets processes that have ended, by two readings of all that run. `start_of`: when one of them started.
    pub(crate) fn prune(&mut self, start_of: impl Fn(Pid) -> Option<u64>) {
        self.sets.iter_mut().for_each(|watched| watched.family.prune(&start_of));
    }

    /// Closes the events of processes that are all managed no longer. `start_of`: when a managed one started.
    pub(crate) fn close_ended(&mut self, start_of: impl Fn(Pid) -> Option<u64>) {
        let (lost_of, lost_in_closed) = (self.lost_of, &mut self.lost_in_closed);
        self.sets.retain(|watched| {
            let runs = watched.family.runs(&start_of);
            if !runs {
                *lost_in_closed += lost_of(&watched.events).saturating_sub(watched.told_lost);
            }
            runs
        });
    }

    /// Samples lost since the previous call.
    pub(super) fn take_lost(&mut self) -> u64 {
        let mut lost = std::mem::take(&mut self.lost_in_closed);
        for watched in &mut self.sets {
            let now = (self.lost_of)(&watched.events);
            lost += now.saturating_sub(watched.told_lost);
            watched.told_lost = now;
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use numapilot_perf_events::open::Scope;

    use super::*;

    /// Two sets that have lost 3 and 5 samples, of processes 7 and 9.
    fn two() -> WatchedSets<u64> {
        let mut sets = WatchedSets::new(|lost: &u64| *lost);
        for (lost, pid) in [(3, Pid(7)), (5, Pid(9))] {
            sets.add(lost, Family::of(&Scope::Processes(vec![pid]), |pid| Some(u64::from(pid.0) * 10)));
        }
        sets
    }

    #[test]
    fn a_set_stays_while_one_of_its_processes_runs() {
        let mut sets = two();
        sets.inherits(Pid(8), Some(Pid(7)), Some(80));
        assert!(sets.has(Pid(8), Some(80)) && !sets.has(Pid(8), Some(81)));
        let only_child = |pid: Pid| (pid == Pid(8)).then_some(80);
        sets.close_ended(only_child);
        assert!(sets.events().eq(&[3_u64]));
        sets.prune(only_child);
        sets.prune(only_child);
        assert!(sets.has(Pid(8), None) && !sets.has(Pid(7), None) && !sets.has(Pid(9), None));
    }

    /// When a set was closed, what the others had lost since the previous observation was not counted, nor what it had lost itself.
    #[test]
    fn losses_are_counted_once_also_of_sets_that_are_closed() {
        let mut sets = two();
        assert_eq!((sets.take_lost(), sets.take_lost()), (8, 0));
        sets.events_mut().for_each(|lost| *lost += 10);
        sets.close_ended(|pid| (pid == Pid(7)).then_some(70));
        assert!(sets.events().eq(&[13_u64]));
        assert_eq!((sets.take_lost(), sets.take_lost()), (20, 0));
    }
}
