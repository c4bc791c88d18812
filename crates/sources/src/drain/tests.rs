//! The drainer against producers in this process: every byte arrives once and in order, whatever the ring's size, and
//! scribbles on shared memory harm their own slot only.

use std::collections::HashMap;
use std::sync::Mutex;

use super::*;
use crate::arena::Layout;
use crate::clock::HostInstant;
use crate::clock::order_now;
use crate::order::OrderSource;

/// Keeps what it gets, by ring.
#[derive(Default)]
struct Memory {
    rings: HashMap<(u32, u64), Vec<u8>>,
    closed: Vec<(u32, u64)>,
    fail_after: Option<usize>,
}

impl Sink for &Mutex<Memory> {
    type Error = String;

    fn append(&mut self, ring: RingId, piece: &[u8]) -> Result<PieceCounts, String> {
        let mut memory = self.lock().unwrap();
        let walked = crate::walk::walk(piece);
        if memory.fail_after.is_some_and(|most| memory.rings.values().map(Vec::len).sum::<usize>() >= most) {
            return Err("disk full".to_owned());
        }
        memory.rings.entry((ring.slot, ring.generation)).or_default().extend(&piece[..walked.good_bytes]);
        let bad_bytes = (piece.len() - walked.good_bytes) as u64;
        Ok(PieceCounts {
            records: walked.records,
            samples: walked.samples,
            bad_bytes,
            disk_bytes: piece.len() as u64,
            thread: walked.thread,
            is_ended: walked.is_ended,
        })
    }

    fn close(&mut self, ring: RingId) -> Result<(), String> {
        self.lock().unwrap().closed.push((ring.slot, ring.generation));
        Ok(())
    }
}

const RING_BYTES: u32 = 1 << 16;

fn config() -> wire::Config {
    // SAFETY: all-zero bytes are a value of np_config.
    let mut config: wire::Config = unsafe { std::mem::zeroed() };
    config.l1_lines = 16;
    config.dir_entries_log2 = 4;
    config.mode = wire::MODE_INSTRUMENT;
    config.cycles_per_access_q8 = 512;
    config.line_sampling = 4;
    config.node_count = 3;
    config
}

fn arena(slots: u32) -> Arena {
    let config = config();
    Arena::create(&config, Layout::new(&config, slots, RING_BYTES), HostInstant::now(), OrderSource::Counter).unwrap()
}

/// A thread of the program, as ring.c behaves.
struct Producer<'a> {
    slot: Slot<'a>,
    head: u64,
}

impl<'a> Producer<'a> {
    fn claim(arena: &'a Arena, index: u32) -> Producer<'a> {
        let slot = arena.slot(index);
        while slot.state() != wire::SLOT_FREE {
            std::thread::yield_now();
        }
        slot.test_claim(std::process::id());
        arena.test_raise_slots_used(index + 1);
        Producer { slot, head: 0 }
    }

    /// Writes a record of `words` words that carries `value`; waits while the ring is full.
    fn put(&mut self, words: u64, value: u64) {
        let ring = u64::from(RING_BYTES);
        let left = ring - (self.head & (ring - 1));
        if left < words * 8 {
            self.push(&[u64::from(wire::REC_PAD) | left << 16], left);
        }
        let mut record = vec![u64::from(wire::REC_MARK) | words << 8; 1];
        record.extend((1..words).map(|_| value));
        self.push(&record, words * 8);
    }

    fn push(&mut self, record: &[u64], bytes: u64) {
        while self.head + bytes - self.slot.test_tail() > u64::from(RING_BYTES) {
            std::thread::yield_now();
        }
        self.slot.test_write(self.head, record);
        self.head += bytes;
        self.slot.test_set_head(self.head);
    }
}

/// Values of the marks in a ring's bytes, in order.
fn values(bytes: &[u8]) -> Vec<u64> {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let mut values = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let first = word(at);
        if first as u8 == wire::REC_PAD as u8 {
            at += usize::try_from(first >> 16).unwrap();
        } else {
            let words = usize::try_from(first >> 8 & 0xff).unwrap();
            assert!((1..words).all(|i| word(at + 8 * i) == word(at + 8)), "a record was torn");
            values.push(word(at + 8));
            at += words * 8;
        }
    }
    values
}

fn drain_while(arena: &Arena, memory: &Mutex<Memory>, totals: &Totals, produce: impl FnOnce()) -> Option<String> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let drainer = Drainer::new(arena, memory, totals, Accounting::new(&config()));
        let handle = scope.spawn(|| drainer.run(&done));
        produce();
        done.store(true, Ordering::Release);
        arena.wake();
        handle.join().unwrap().1
    })
}

#[test]
fn every_record_arrives_once_and_in_order_through_reused_slots() {
    let arena = arena(3);
    let memory = Mutex::new(Memory::default());
    let totals = Totals::default();
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let gone = child.id();
    let failure = drain_while(&arena, &memory, &totals, || {
        std::thread::scope(|scope| {
            for index in 0..3_u32 {
                let arena = &arena;
                scope.spawn(move || {
                    for life in 0..3_u64 {
                        let mut producer = Producer::claim(arena, index);
                        for value in 0..20_000 {
                            producer.put(2 + (value * 7 + life) % 9, value);
                        }
                        producer.slot.test_set_owner(gone);
                        producer.slot.test_set_state(wire::SLOT_CLOSED);
                    }
                });
            }
        });
    });
    assert_eq!(failure, None);
    let memory = memory.into_inner().unwrap();
    assert_eq!(memory.rings.len(), 9);
    let expected: Vec<u64> = (0..20_000).collect();
    for (ring, bytes) in &memory.rings {
        assert!(values(bytes) == expected, "ring {ring:?} has other records than were written");
    }
    assert_eq!(memory.closed.len(), 9);
    assert_eq!(totals.records.load(Ordering::Relaxed), 9 * 20_000);
    assert_eq!(totals.threads.load(Ordering::Relaxed), 9);
    assert_eq!(totals.discarded_bytes.load(Ordering::Relaxed), 0);
}

#[test]
fn scribbles_cost_their_own_slot_only() {
    let arena = arena(5);
    let memory = Mutex::new(Memory::default());
    let totals = Totals::default();
    drain_while(&arena, &memory, &totals, || {
        let mut sound = Producer::claim(&arena, 0);
        let wild: Vec<Producer<'_>> = (1..5).map(|index| Producer::claim(&arena, index)).collect();
        wild[0].slot.test_set_head(u64::MAX - 7);
        wild[1].slot.test_set_head(13);
        wild[2].slot.test_set_state(0xdead_beef);
        wild[3].slot.test_write(0, &[0xffff_ffff_ffff_ffff; 4]);
        wild[3].slot.test_set_head(32);
        arena.test_raise_slots_used(u64::MAX as u32);
        for value in 0..50_000 {
            sound.put(3, value);
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        let is_seen = || wild[3].slot.test_tail() == 32 && totals.quarantined.load(Ordering::Relaxed) == 4;
        while !is_seen() && Instant::now() < deadline {
            std::thread::sleep(WORTH_AGE);
        }
        assert_eq!(wild[3].slot.test_tail(), 32, "a producer in quarantine is not kept waiting");
    });
    assert_eq!(totals.quarantined.load(Ordering::Relaxed), 4);
    assert!(totals.discarded_bytes.load(Ordering::Relaxed) > 0);
    let memory = memory.into_inner().unwrap();
    assert_eq!(values(&memory.rings[&(0, 0)]).len(), 50_000);
    assert!(memory.rings.iter().all(|(ring, bytes)| ring.0 == 0 || bytes.is_empty()));
}

#[test]
fn a_failed_sink_stops_the_recording_and_not_the_producers() {
    let arena = arena(1);
    let memory = Mutex::new(Memory { fail_after: Some(100_000), ..Memory::default() });
    let totals = Totals::default();
    let failure = drain_while(&arena, &memory, &totals, || {
        let mut producer = Producer::claim(&arena, 0);
        for value in 0..100_000 {
            producer.put(4, value);
        }
        assert!(arena.is_stopped());
    });
    assert_eq!(failure.as_deref(), Some("disk full"));
    let kept = totals.bytes.load(Ordering::Relaxed);
    let discarded = totals.discarded_bytes.load(Ordering::Relaxed);
    assert!(kept >= 100_000 && discarded > 0, "{kept} kept, {discarded} discarded");
}

#[test]
fn a_killed_owner_is_noticed_and_its_last_records_are_kept() {
    let arena = arena(2);
    let memory = Mutex::new(Memory::default());
    let totals = Totals::default();
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    drain_while(&arena, &memory, &totals, || {
        let mut producer = Producer::claim(&arena, 0);
        producer.put(2, 7);
        arena.slot(0).test_set_owner(child.id());
        let deadline = Instant::now() + Duration::from_secs(60);
        while arena.slot(0).state() != wire::SLOT_FREE && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(arena.slot(0).state(), wire::SLOT_FREE, "the slot was not freed");
    });
    assert_eq!(totals.dead_owners.load(Ordering::Relaxed), 1);
    assert_eq!(values(&memory.lock().unwrap().rings[&(0, 0)]), [7]);
}

/// Make sure that the numbers of another namespace, which are nobody's here, are not taken for those of a thread that has gone.
#[test]
fn an_owner_of_another_namespace_keeps_its_slot() {
    let arena = arena(2);
    let memory = Mutex::new(Memory::default());
    let totals = Totals::default();
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    drain_while(&arena, &memory, &totals, || {
        let mut producer = Producer::claim(&arena, 0);
        producer.slot.test_set_namespace(1);
        producer.slot.test_set_owner(child.id());
        producer.put(2, 7);
        std::thread::sleep(5 * DEATH_CHECK);
        assert_eq!(producer.slot.state(), wire::SLOT_LIVE, "the slot went to others");
        producer.put(2, 8);
    });
    assert_eq!(totals.dead_owners.load(Ordering::Relaxed), 0);
    let foreign = totals.foreign.lock().unwrap();
    assert!(!foreign.is_empty() && foreign.values().all(Option::is_none), "{foreign:?}");
    assert_eq!(values(&memory.lock().unwrap().rings[&(0, 0)]), [7, 8]);
}

/// Make sure that a thread which has written its end can still add to its ring while it lives, and that the slot then goes to the next.
#[test]
fn a_closed_slot_is_its_threads_until_that_is_gone() {
    let arena = arena(1);
    let memory = Mutex::new(Memory::default());
    let totals = Totals::default();
    let mut owner = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    drain_while(&arena, &memory, &totals, || {
        let mut producer = Producer::claim(&arena, 0);
        producer.slot.test_set_owner(owner.id());
        producer.put(2, 1);
        producer.slot.test_set_state(wire::SLOT_CLOSED);
        while producer.slot.test_tail() != producer.head {
            std::thread::yield_now();
        }
        assert_eq!(producer.slot.state(), wire::SLOT_CLOSED, "the owner lives");
        producer.put(2, 2);
        owner.kill().unwrap();
        owner.wait().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while producer.slot.state() != wire::SLOT_FREE && Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert_eq!(producer.slot.state(), wire::SLOT_FREE, "the slot was not freed");
    });
    assert_eq!(values(&memory.lock().unwrap().rings[&(0, 0)]), [1, 2]);
    assert_eq!(totals.dead_owners.load(Ordering::Relaxed), 0, "it closed its slot by itself");
}

/// The words of a ring's bytes from the byte `from` on.
fn words(bytes: &[u8], from: usize) -> Vec<u64> {
    bytes[from..].chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
}

/// A thread's first record, in words and bytes.
const START: ([u64; 9], usize) = ([wire::REC_THREAD_START as u64 | 9 << 8 | 41 << 16, 0, 0, 0, 0, 0, 0, 0, 0], 72);
const END: [u64; 2] = [wire::REC_THREAD_END as u64 | 2 << 8 | 41 << 16, 0];

#[test]
fn threads_that_could_not_end_their_rings_have_it_done_for_them() {
    let arena = arena(5);
    let memory = Mutex::new(Memory::default());
    let totals = Totals::default();
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let before = order_now();
    drain_while(&arena, &memory, &totals, || {
        // 0: gone; 1: alive; 2: gone, with counts that cannot be; 3: wrote its end; 4: gone before its first record.
        for index in 0..5 {
            let mut producer = Producer::claim(&arena, index);
            if index != 4 {
                producer.push(&START.0, 72);
            }
            producer.slot.test_set_counts(1000, 70, if index == 2 { u64::MAX / 8 } else { 100 });
            if index == 3 {
                producer.push(&END, 16);
                producer.slot.test_set_state(wire::SLOT_CLOSED);
            } else if index != 1 {
                producer.slot.test_set_owner(child.id());
            } else {
                // SAFETY: a plain getter of this thread's id.
                producer.slot.test_set_thread(u32::try_from(unsafe { libc::gettid() }).unwrap());
            }
        }
    });
    let memory = memory.into_inner().unwrap();
    let ring = |slot: u32| memory.rings.get(&(slot, 0)).map_or(Vec::new(), |bytes| words(bytes, START.1));
    let counters = [
        [u64::from(wire::REC_COUNTERS) | 16 << 8 | 41 << 16, 0].as_slice(),
        &[1000, 400, 400, 400, 0, 0, 0, 3, 400, 404, 408, 0, 0, 0],
    ]
    .concat();
    for (slot, end) in [(0, &END[..]), (1, &[])] {
        let got = ring(slot);
        assert_eq!((got[0], got[1], got[3]), (u64::from(wire::REC_TIME) | 4 << 8, 0, 70 + 1000 * 2), "slot {slot}");
        assert!((before..=order_now()).contains(&got[2]), "slot {slot}: order {}", got[2]);
        assert_eq!(got[4..], [&counters[..], end].concat(), "slot {slot}");
    }
    assert_eq!((ring(2), ring(3), memory.rings.get(&(4, 0))), (Vec::new(), END.to_vec(), None));
    assert_eq!(totals.quarantined.load(Ordering::Relaxed), 1);
}
