//! Learns the numbers of threads in the trace from the tracker's records while its rings are drained, so that the kernel's samples of a thread get
//! the same number.
//!
//! A process's first thread is announced only once its process's memory has been described (binaries and mappings that were there before), because samples
//! are joined to what is known at their moment.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;
use std::time::Instant;

use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_sampled::Announcement;
use numapilot_trace::chunk::RingId;
use numapilot_trace::ids::ProcessIndex;
use numapilot_trace::ids::ThreadIndex;
use numapilot_trace::wire::RecordHead;
use numapilot_trace::wire::layout as wire;
use numapilot_trace::wire::record_head;

use crate::clock::order_now;

/// A description that goes on for longer than this has ended: the program just does nothing that the tracker records.
const DESCRIPTION_TIME: Duration = Duration::from_millis(100);

/// One ring of the tracker.
#[derive(Debug, Default)]
struct Ring {
    order: u64,
    /// The announcement that waits for the end of the description.
    waiting: Option<(Announcement, Instant)>,
}

#[derive(Debug, Default)]
struct State {
    rings: HashMap<RingId, Ring>,
    ready: Vec<Announcement>,
}

/// Shared by the thread that drains the tracker's rings and the one that reads the kernel's.
#[derive(Debug, Default)]
pub struct News(Mutex<State>);

impl News {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens to a piece of a ring: whole records, following on those before.
    pub fn piece(&self, id: RingId, piece: &[u8]) {
        let mut state = self.state();
        let State { rings, ready } = &mut *state;
        let ring = rings.entry(id).or_default();
        let mut rest = piece;
        while let Some(head) = record_head(rest) {
            ring.record(&rest[..head.bytes], head, ready);
            rest = &rest[head.bytes..];
        }
    }

    /// The ring's thread has ended.
    pub fn closed(&self, id: RingId) {
        let mut state = self.state();
        let waiting = state.rings.remove(&id).and_then(|ring| ring.waiting);
        state.ready.extend(waiting.map(|(announcement, _)| seen_now(announcement)));
    }

    /// Takes the announcements so far; with `all` also those of threads whose processes are still being described.
    pub fn take(&self, all: bool, out: &mut Vec<Announcement>) {
        let mut state = self.state();
        let State { rings, ready } = &mut *state;
        for ring in rings.values_mut() {
            if let Some((announcement, _)) =
                ring.waiting.take_if(|(_, since)| all || since.elapsed() > DESCRIPTION_TIME)
            {
                ready.push(seen_now(announcement));
            }
        }
        out.append(ready);
    }
}

fn seen_now(announcement: Announcement) -> Announcement {
    Announcement { seen: order_now(), ..announcement }
}

/// Word `index` of a record.
fn word(bytes: &[u8], index: usize) -> Option<u64> {
    let slice = bytes.get(index * 8..index * 8 + 8)?;
    Some(u64::from_le_bytes([slice[0], slice[1], slice[2], slice[3], slice[4], slice[5], slice[6], slice[7]]))
}

impl Ring {
    fn record(&mut self, record: &[u8], head: RecordHead, ready: &mut Vec<Announcement>) {
        let at = |index| word(record, index).unwrap_or(0);
        let low = |value: u64| value as u32;
        let high = |value: u64| (value >> 32) as u32;
        match head.kind {
            wire::REC_PAD => return,
            wire::REC_TIME => {
                self.order = at(2);
                return;
            }
            _ => self.order = self.order.wrapping_add(u64::from(low(at(1)))),
        }
        if head.kind == wire::REC_THREAD_START {
            let announcement = Announcement {
                pid: Pid(low(at(2))),
                tid: Tid(high(at(2))),
                thread: ThreadIndex(low(head.value)),
                process: ProcessIndex(high(at(3))),
                ready: self.order,
                seen: 0,
            };
            if low(at(3)) == wire::NONE32 {
                self.waiting = Some((announcement, Instant::now()));
            } else {
                ready.push(seen_now(announcement));
            }
        }
        let Some((announcement, _)) = &mut self.waiting else { return };
        let is_description = match head.kind {
            wire::REC_MAP => high(at(2)) & wire::MAP_INITIAL != 0,
            wire::REC_THREAD_START | wire::REC_THREAD_NAME | wire::REC_PROCESS_START => true,
            wire::REC_MODULE | wire::REC_STACK | wire::REC_CPU => true,
            _ => false,
        };
        if is_description {
            announcement.ready = announcement.ready.max(self.order + 1);
        } else if let Some((announcement, _)) = self.waiting.take() {
            ready.push(seen_now(announcement));
        }
    }
}

#[cfg(test)]
mod tests {
    //! Rings as the tracker writes them.

    use numapilot_host::VirtAddr;
    use numapilot_trace::ids::Order;
    use numapilot_trace::ids::TimeNs;
    use numapilot_trace::record::Event;
    use numapilot_trace::record::Record;
    use numapilot_trace::record::Stamp;
    use numapilot_trace::wire::Clock;
    use numapilot_trace::wire::Encoder;

    use super::*;

    fn start(parent: Option<u32>) -> Event {
        Event::ThreadStart {
            index: ThreadIndex(7),
            pid: Pid(100),
            tid: Tid(101),
            parent: parent.map(ThreadIndex),
            process: ProcessIndex(3),
            cpu: None,
            node: None,
            stack_low: VirtAddr(0),
            stack_high: VirtAddr(0),
            start_routine: VirtAddr(0),
            created_at: Default::default(),
        }
    }

    fn map(flags: u32) -> Event {
        let (address, path) = (VirtAddr(0x1000), String::new());
        Event::Map { address, bytes: 4096, flags, file_offset: 0, path, stack: Default::default() }
    }

    fn bytes(events: Vec<(u64, Event)>) -> Vec<u8> {
        let mut encoder = Encoder::new(Clock::NANOSECONDS);
        let mut out = Vec::new();
        for (order, event) in events {
            let stamp = Stamp { order: Order(order), time: TimeNs(order) };
            encoder.encode(&Record { stamp, thread: ThreadIndex(7), event }, &mut out);
        }
        out
    }

    fn taken(news: &News, all: bool) -> Vec<(u32, u32, u32, u32, u64)> {
        let mut out = Vec::new();
        news.take(all, &mut out);
        out.iter().map(|a| (a.pid.0, a.tid.0, a.thread.0, a.process.0, a.ready)).collect()
    }

    const RING: RingId = RingId { slot: 1, generation: 0 };

    #[test]
    fn a_thread_is_announced_at_once_and_a_process_after_its_description() {
        let news = News::default();
        news.piece(RING, &bytes(vec![(50, start(Some(2)))]));
        assert_eq!(taken(&news, false), [(100, 101, 7, 3, 50)]);
        news.piece(RING, &bytes(vec![(60, start(None)), (65, map(wire::MAP_INITIAL))]));
        assert_eq!(taken(&news, false), []);
        news.piece(RING, &bytes(vec![(80, map(wire::MAP_INITIAL)), (90, map(0))]));
        assert_eq!(taken(&news, false), [(100, 101, 7, 3, 81)]);
        assert_eq!(taken(&news, true), []);
    }

    #[test]
    fn a_process_that_does_nothing_more_is_announced_too() {
        let news = News::default();
        news.piece(RING, &bytes(vec![(60, start(None))]));
        assert_eq!(taken(&news, true), [(100, 101, 7, 3, 61)]);
        news.piece(RING, &bytes(vec![(70, start(None))]));
        news.closed(RING);
        assert_eq!(taken(&news, false), [(100, 101, 7, 3, 71)]);
    }
}
