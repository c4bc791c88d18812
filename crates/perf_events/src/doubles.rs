//! Finds samples that were recorded twice: a thread that was born while events were being opened may have events of its own and inherit its parent's, and what
//! it starts inherits both.
//!
//! Mostly the event's id says whose event it is. Since Linux 6.3 the records of one page fault all bear the id and the time of the first of its events
//! (`numapilot_perf::Session`), so that ids do not tell them apart; but then their times are equal. The records of one fault follow each other in a CPU's ring.

use std::collections::HashMap;

use numapilot_host::Tid;
use numapilot_machine::CpuId;
use numapilot_perf::Sample;
use numapilot_perf::abi::event_type;

use crate::open::EventSet;

/// The last page fault (or other software event) in a CPU's ring.
#[derive(Clone, Copy, Debug, Default)]
struct LastFault {
    tid: Tid,
    address: u64,
    time: u64,
    /// Event id of the record of it that counts; `None`: there was none yet.
    counted: Option<u64>,
}

/// What was seen of each CPU's ring so far.
#[derive(Debug, Default)]
pub struct Doubles {
    last: HashMap<CpuId, LastFault>,
}

impl Doubles {
    /// Whether a sample says what another one has said or will say, so that it does not count. Samples of a CPU must come in the order of its ring. `event`:
    /// number of its event in the set's session.
    pub fn is_double(&mut self, set: &EventSet, event: usize, sample: &Sample<'_>) -> bool {
        if set.tasks.is_empty() {
            return false;
        }
        let is_inherited = set.is_inherited_beside_own(sample);
        let is_software = set.session.events().get(event).is_some_and(|attr| attr.kind == event_type::SOFTWARE);
        let at = sample.pid_tid.zip(sample.addr).zip(sample.time.zip(sample.cpu)).filter(|_| is_software);
        let Some((((_, tid), address), (time, cpu))) = at else { return is_inherited };
        let id = sample.identifier.unwrap_or(0);
        let last = self.last.entry(cpu).or_default();
        let is_same_page = last.tid == tid && last.address == address;
        let is_double = match last.counted {
            Some(counted) if is_same_page && (last.time == time || counted != id) => return true,
            None if is_same_page && last.time == time => false,
            _ => is_inherited,
        };
        *last = LastFault { tid, address, time, counted: (!is_double).then_some(id) };
        is_double
    }
}

#[cfg(test)]
mod tests {
    //! Thread 8 has events of its own (id 80) and inherits those of thread 7 (id 70), which inherits those of thread 6 (id 60).

    use std::process::Command;
    use std::process::Stdio;

    use numapilot_host::Pid;
    use numapilot_perf::EventAttr;
    use numapilot_perf::Record;
    use numapilot_perf::abi::software;

    use super::*;
    use crate::error::EventsError;
    use crate::event::EventRequest;
    use crate::open::Origin;
    use crate::open::RingSize;
    use crate::open::Scope;
    use crate::ring::Records;

    fn set() -> EventSet {
        let mut set = EventSet::default();
        let ids = [60, 70, 80];
        let attr = EventAttr { kind: event_type::SOFTWARE, config: software::PAGE_FAULTS, ..EventAttr::default() };
        set.session.add(attr, ids);
        set.tasks.extend([6, 7, 8].map(Tid));
        for (id, task) in ids.into_iter().zip([6, 7, 8]) {
            set.origins.insert(id, Origin { request: 0, cpu: CpuId(0), task: Some(Tid(task)) });
        }
        set
    }

    /// Which of the samples of a ring count: event id, thread, address, time.
    fn counted(samples: &[(u64, u32, u64, u64)]) -> Vec<bool> {
        let (set, mut doubles) = (set(), Doubles::default());
        let mut is_counted = |&(id, tid, address, time): &(u64, u32, u64, u64)| {
            let sample = Sample {
                identifier: Some(id),
                pid_tid: Some((Pid(6), Tid(tid))),
                addr: Some(address),
                time: Some(time),
                cpu: Some(CpuId(0)),
                ..Sample::default()
            };
            !doubles.is_double(&set, 0, &sample)
        };
        samples.iter().map(&mut is_counted).collect()
    }

    #[test]
    fn a_fault_with_one_id_for_all_its_events_counts_once() {
        for id in [80, 70, 99] {
            let twice = |time| [(id, 8, 0x1000, time), (id, 8, 0x1000, time)];
            let faults = [twice(10), twice(20), twice(30)].concat();
            let is_counted = counted(&faults);
            for pair in is_counted.as_chunks::<2>().0 {
                assert_ne!(pair[0], pair[1], "id {id}: {is_counted:?}");
            }
        }
        let thrice = [(70, 8, 0x1000, 10); 3];
        assert_eq!(counted(&thrice), [false, true, false]);
    }

    #[test]
    fn a_fault_with_each_events_id_counts_once() {
        let own_last = [(70, 8, 0x1000, 10), (80, 8, 0x1000, 11), (70, 8, 0x1000, 20), (80, 8, 0x1000, 21)];
        assert_eq!(counted(&own_last), [false, true, false, true]);
        let own_first = [(80, 8, 0x1000, 10), (70, 8, 0x1000, 11), (80, 8, 0x1000, 20), (70, 8, 0x1000, 21)];
        assert_eq!(counted(&own_first), [true, false, true, false]);
        // Thread 9 has none of its own.
        let inherits_both = [(70, 9, 0x1000, 10), (60, 9, 0x1000, 11), (70, 9, 0x1000, 20), (60, 9, 0x1000, 21)];
        assert_eq!(counted(&inherits_both), [true, false, true, false]);
    }

    #[test]
    fn different_faults_all_count() {
        let faults = [(80, 8, 0x1000, 10), (80, 8, 0x1000, 20), (80, 8, 0x2000, 20), (70, 7, 0x2000, 30)];
        assert_eq!(counted(&faults), [true; 4]);
    }

    /// Thread numbers are used again: a child of thread 7 that has the number of thread 8, which has ended, has no events of its own.
    #[test]
    fn a_thread_with_the_number_of_one_that_has_ended_counts() {
        let (mut set, mut doubles) = (set(), Doubles::default());
        let sample = |time| Sample {
            identifier: Some(70),
            pid_tid: Some((Pid(6), Tid(8))),
            addr: Some(0x1000 * time),
            time: Some(time),
            cpu: Some(CpuId(0)),
            ..Sample::default()
        };
        assert!(doubles.is_double(&set, 0, &sample(10)));
        set.thread_ended(Tid(8));
        assert!(!doubles.is_double(&set, 0, &sample(20)));
    }

    /// Number of samples in a set's rings; all must be decodable.
    fn samples_in(set: &mut EventSet) -> usize {
        let mut count = 0;
        for ring in &mut set.rings {
            let mut bytes = Vec::new();
            ring.ring.take(&mut bytes);
            for (header, body) in Records::new(&bytes) {
                if let Record::Sample(event, _) = set.session.decode(header, body, 0).unwrap() {
                    assert_eq!(EventSet::request_of(event), Some(0));
                    count += 1;
                }
            }
        }
        count
    }

    /// Since Linux 6.3 the samples of both bear the ids of one of them.
    #[test]
    fn two_samplers_of_one_process_both_see_its_page_faults() {
        let script = "read x; for i in 1 2 3 4; do /bin/true; done";
        let mut child = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap();
        let scope = Scope::Processes(vec![Pid::of_child(&child)]);
        let open = || EventSet::open(&[EventRequest::page_faults(true, 16)], &scope, RingSize { bytes: 256 << 10 });
        let opened: Result<Vec<EventSet>, EventsError> = [open(), open()].into_iter().collect();
        let mut sets = match opened {
            Ok(sets) => sets,
            Err(error) => {
                child.kill().unwrap();
                child.wait().unwrap();
                return numapilot_not_run::not_run!(PageFaultEvents, "{error}");
            }
        };
        sets.iter().for_each(EventSet::enable);
        drop(child.stdin.take());
        child.wait().unwrap();
        let counts: Vec<usize> = sets.iter_mut().map(samples_in).collect();
        assert!(counts.iter().all(|&count| count > 20), "{counts:?}");
    }
}
