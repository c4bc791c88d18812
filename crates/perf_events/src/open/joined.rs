//! Events of processes that joined a recording, by process: they are closed when the process has ended, so that their number does not grow for ever. Events
//! that own a ring are not among them.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use numapilot_host::Pid;

use crate::syscall::lost_by;

/// The events, and what those had lost that are closed.
#[derive(Debug, Default)]
pub(super) struct Joined {
    by_process: HashMap<Pid, Vec<OwnedFd>>,
    /// Records that found no room, as the closed events' own counts said.
    pub lost: u64,
}

impl Joined {
    /// Keeps the events that were opened for a process.
    pub fn keep(&mut self, pid: Pid, events: Vec<OwnedFd>) {
        if !events.is_empty() {
            self.by_process.entry(pid).or_default().extend(events);
        }
    }

    /// All events.
    pub fn fds(&self) -> impl Iterator<Item = &OwnedFd> {
        self.by_process.values().flatten()
    }

    /// Takes out the events of these processes, which are closed when they are dropped, and keeps what they lost.
    pub fn take(&mut self, pids: &[Pid]) -> Vec<OwnedFd> {
        let taken: Vec<OwnedFd> = pids.iter().filter_map(|pid| self.by_process.remove(pid)).flatten().collect();
        self.lost = taken.iter().filter_map(lost_by).fold(self.lost, u64::saturating_add);
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::process::Child;
    use std::process::Command;
    use std::time::Duration;

    use numapilot_host::Pid;

    use crate::event::EventRequest;
    use crate::open::EventSet;
    use crate::open::RingSize;
    use crate::open::Scope;

    fn start() -> Child {
        Command::new("sleep").arg("1000").spawn().unwrap()
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn processes_that_join_and_end_leave_no_events_behind() {
        let first = start();
        let scope = Scope::Processes(vec![Pid::of_child(&first)]);
        let opened = EventSet::open(&[EventRequest::page_faults(true, 16)], &scope, RingSize { bytes: 64 << 10 });
        let mut set = match opened {
            Ok(set) => set,
            Err(error) => {
                end(first);
                return numapilot_not_run::not_run!(PageFaultEvents, "{error}");
            }
        };
        let (count, side_band, ids) = (set.count(), set.side_band.len(), set.origins.len());
        for _ in 0..5 {
            let joined = start();
            let pid = Pid::of_child(&joined);
            assert!(set.add(pid).unwrap());
            assert!(set.count() > count && set.side_band.len() > side_band, "it is sampled");
            end(joined);
            set.leave(&[pid]);
            assert_eq!((set.count(), set.side_band.len()), (count, side_band), "its events are closed");
            assert!(set.origins.len() > ids, "its last records may wait in the rings");
            set.forget_closed(Duration::ZERO);
            assert_eq!(set.origins.len(), ids);
        }
        end(first);
    }
}
