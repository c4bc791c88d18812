//! Emptying the rings: copy whole records out of shared memory and hand them to a sink, which checks and keeps them.
//!
//! A ring is drained once it holds enough for a chunk of its own, or has waited long enough: what stays in it meanwhile
//! costs nothing and survives the program. Shared memory is not trusted: a head outside its bounds, or bytes
//! that are not records, put the slot in quarantine until its owner ends, which is counted and shown.
//!
//! If a thread ended without writing its end record, the drainer writes it, with the exact totals ([`ending`]). A thread that outlives the
//! recording gets its totals without an end; its ring is not drained after that, because stamps there build on earlier stamps.

mod ending;
mod owner;

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_trace::chunk::RingId;
use numapilot_trace::wire::layout as wire;

use crate::arena::Arena;
use crate::arena::Slot;
use crate::namespaces::Foreign;
use crate::namespaces::Namespaces;
pub use ending::Accounting;
use ending::EndCertainty;
use owner::Closed;
use owner::Owner;

/// A ring is worth draining from this many bytes on (or an eighth of it, where that is less) ...
const WORTH_BYTES: u64 = 128 << 10;
/// ... or when its oldest bytes have waited this long. A recorder that is killed loses no more than that.
const WORTH_AGE: Duration = Duration::from_millis(100);
const SLEEP_MIN: Duration = Duration::from_millis(1);
const SLEEP_MAX: Duration = Duration::from_millis(20);
/// How often owners are checked for being alive. Two checks in a row must fail, and the ring be still.
const DEATH_CHECK: Duration = Duration::from_millis(250);

/// What a sink found in a piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PieceCounts {
    /// Number of whole records.
    pub records: u64,
    /// Number of these records that are sampled accesses.
    pub samples: u64,
    /// Bytes that are no records, at the piece's end.
    pub bad_bytes: u64,
    /// Bytes that went to disk for it.
    pub disk_bytes: u64,
    /// The thread whose start record is in it.
    pub thread: Option<u32>,
    /// Whether a thread's end is in it.
    pub is_ended: bool,
}

/// What takes the pieces of rings that were drained: chunks on disk, or a test's memory.
pub trait Sink {
    /// Why the sink cannot accept more.
    type Error;
    /// Appends `piece` to the earlier pieces of `ring`.
    fn append(&mut self, ring: RingId, piece: &[u8]) -> Result<PieceCounts, Self::Error>;
    /// The ring's owner has ended: no more pieces will follow.
    fn close(&mut self, ring: RingId) -> Result<(), Self::Error>;
}

/// Running totals, read by other threads while draining goes on.
#[derive(Debug, Default)]
pub struct Totals {
    /// Bytes taken from rings and kept.
    pub bytes: AtomicU64,
    /// Bytes written to disk.
    pub disk_bytes: AtomicU64,
    /// Records written to the trace.
    pub records: AtomicU64,
    /// Number of these records that are sampled accesses.
    pub samples: AtomicU64,
    /// Slots that were put in quarantine.
    pub quarantined: AtomicU64,
    /// Bytes thrown away: of quarantined slots, and after the sink failed.
    pub discarded_bytes: AtomicU64,
    /// Owners that went, while recording went on, before they could close their slots.
    pub dead_owners: AtomicU64,
    /// Number of threads that are alive.
    pub live_threads: AtomicU32,
    /// Number of threads seen so far.
    pub threads: AtomicU64,
    /// Greatest clock stamp so far, in cycles.
    pub clock_cycles: AtomicU64,
    /// Processes of other namespaces of process numbers.
    pub foreign: Mutex<Foreign>,
}

fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

#[derive(Clone, Debug, Default)]
struct Ring {
    tail: u64,
    generation: u64,
    seen: bool,
    waiting_since: Option<Instant>,
    quarantined: bool,
    head_at_check: u64,
    missed_checks: u8,
    /// Owner of the ring, from its first record.
    thread: Option<u32>,
    /// Whether the thread's end record has been drained.
    ended: bool,
    /// Who owns the slot, from when it was first seen in use.
    owner: Option<Owner>,
    /// Since when the slot is seen closed.
    closed: Option<Closed>,
}

/// Drains the rings of an arena into a sink, and counts what it took and what was lost.
pub struct Drainer<'a, S: Sink> {
    arena: &'a Arena,
    sink: S,
    totals: &'a Totals,
    rings: Vec<Ring>,
    piece: Vec<u8>,
    worth_bytes: u64,
    accounting: Accounting,
    namespaces: Namespaces,
    /// Recording has stopped: every ring has had its last record.
    sealed: bool,
    last_check: Instant,
    /// Set once the sink failed: from then on rings are emptied without keeping anything.
    failure: Option<S::Error>,
}

/// How much a pass should drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Take {
    /// Slots with enough data to be worth a write.
    Worthy,
    /// All data of all slots.
    Everything,
}

impl<'a, S: Sink> Drainer<'a, S> {
    /// A drainer at the beginning of a recording.
    pub fn new(arena: &'a Arena, sink: S, totals: &'a Totals, accounting: Accounting) -> Drainer<'a, S> {
        let layout = arena.layout();
        Drainer {
            arena,
            sink,
            totals,
            rings: vec![Ring::default(); layout.slot_count as usize],
            piece: Vec::with_capacity(layout.ring_bytes as usize),
            worth_bytes: WORTH_BYTES.min(u64::from(layout.ring_bytes) / 8),
            accounting,
            namespaces: Namespaces::default(),
            sealed: false,
            last_check: Instant::now(),
            failure: None,
        }
    }

    /// Drains until `done` is set, then takes what is left. Gives back the sink, and its error if it failed on the way (the
    /// program was then told to stop recording at once).
    pub fn run(mut self, done: &AtomicBool) -> (S, Option<S::Error>) {
        let mut sleep = SLEEP_MIN;
        while !done.load(Ordering::Acquire) {
            let seen = self.arena.wake_count();
            if !self.sealed && self.arena.is_stopped() {
                self.seal();
            }
            let busiest = self.pass(Take::Worthy);
            if busiest >= u64::from(self.arena.layout().ring_bytes) / 4 {
                sleep = SLEEP_MIN;
                continue;
            }
            sleep = if busiest > 0 { SLEEP_MIN } else { (sleep * 2).min(SLEEP_MAX) };
            self.arena.sleep(seen, sleep);
        }
        // Producers that were in the middle of a record when the last pass came by: they have all ended, or recording stopped.
        self.seal();
        (self.sink, self.failure)
    }

    /// Takes all there is, and adds what threads could not write themselves. What comes later is counted only.
    fn seal(&mut self) {
        self.pass(Take::Everything);
        self.sealed = true;
    }

    /// One look at every slot. Returns the most bytes that any ring gave.
    fn pass(&mut self, take: Take) -> u64 {
        let now = Instant::now();
        let check = now.duration_since(self.last_check) >= DEATH_CHECK;
        if check {
            self.last_check = now;
        }
        let mut busiest = 0;
        let mut live = 0;
        for index in 0..self.arena.slots_used() {
            let slot = self.arena.slot(index);
            match slot.state() {
                wire::SLOT_FREE => {}
                wire::SLOT_CLAIMED => self.look_for_death(index, &slot, check),
                wire::SLOT_LIVE => {
                    live += 1;
                    self.owner(index, &slot);
                    busiest = busiest.max(self.drain(index, &slot, take, now));
                    if take == Take::Everything {
                        let is_gone = self.owner(index, &slot).is_gone();
                        let certainty = if is_gone { EndCertainty::Gone } else { EndCertainty::Alive };
                        self.conclude(index, &slot, certainty);
                    }
                    self.look_for_death(index, &slot, check);
                }
                wire::SLOT_CLOSED => {
                    busiest = busiest.max(self.drain(index, &slot, Take::Everything, now));
                    // What the thread frees on its last steps in the C library still goes into its ring.
                    let owner = self.owner(index, &slot);
                    let closed = self.rings[index as usize].closed.get_or_insert_with(|| Closed::seen(now));
                    if closed.is_over(owner, now) && slot.take_closed() {
                        busiest = busiest.max(self.drain(index, &slot, Take::Everything, now));
                        self.finish(index, &slot);
                    }
                }
                _ => self.quarantine(index),
            }
        }
        self.totals.live_threads.store(live, Ordering::Relaxed);
        busiest
    }

    /// Takes what is in a ring, if it is worth it. Returns how many bytes were there.
    fn drain(&mut self, index: u32, slot: &Slot<'_>, take: Take, now: Instant) -> u64 {
        let head = slot.head();
        self.note_clock(slot);
        let ring_bytes = u64::from(self.arena.layout().ring_bytes);
        let ring = &mut self.rings[index as usize];
        if !ring.seen {
            ring.seen = true;
            add(&self.totals.threads, 1);
        }
        let pending = head.wrapping_sub(ring.tail);
        if pending == 0 {
            ring.waiting_since = None;
            return 0;
        }
        if pending > ring_bytes || !head.is_multiple_of(8) {
            self.quarantine(index);
        }
        let ring = &mut self.rings[index as usize];
        if ring.quarantined || self.sealed {
            add(&self.totals.discarded_bytes, pending.min(ring_bytes));
            ring.tail = head;
            slot.set_tail(head);
            return 0;
        }
        let since = *ring.waiting_since.get_or_insert(now);
        if take == Take::Worthy && pending < self.worth_bytes && now.duration_since(since) < WORTH_AGE {
            return 0;
        }
        ring.waiting_since = None;
        let tail = ring.tail;
        self.piece.clear();
        slot.copy(tail, head, &mut self.piece);
        // The bytes are ours now: the producer may go on while we work on them.
        ring.tail = head;
        slot.set_tail(head);
        let id = RingId { slot: index, generation: ring.generation };
        self.keep(id);
        pending
    }

    fn note_clock(&self, slot: &Slot<'_>) {
        if let Some(clock) = self.accounting.clock_cycles(slot) {
            self.totals.clock_cycles.fetch_max(clock, Ordering::Relaxed);
        }
    }

    fn keep(&mut self, id: RingId) {
        let bytes = self.piece.len() as u64;
        if self.failure.is_some() {
            add(&self.totals.discarded_bytes, bytes);
            return;
        }
        match self.sink.append(id, &self.piece) {
            Ok(counts) => {
                add(&self.totals.bytes, bytes - counts.bad_bytes);
                add(&self.totals.disk_bytes, counts.disk_bytes);
                add(&self.totals.records, counts.records);
                add(&self.totals.samples, counts.samples);
                let ring = &mut self.rings[id.slot as usize];
                ring.thread = ring.thread.or(counts.thread);
                ring.ended |= counts.is_ended;
                if counts.bad_bytes > 0 {
                    add(&self.totals.discarded_bytes, counts.bad_bytes);
                    self.quarantine(id.slot);
                }
            }
            Err(error) => {
                add(&self.totals.discarded_bytes, bytes);
                self.fail(error);
            }
        }
    }

    fn fail(&mut self, error: S::Error) {
        self.arena.stop();
        self.failure.get_or_insert(error);
    }

    fn quarantine(&mut self, index: u32) {
        let ring = &mut self.rings[index as usize];
        if !ring.quarantined {
            ring.quarantined = true;
            add(&self.totals.quarantined, 1);
        }
    }

    /// Adds a thread's totals and end to its ring, unless it did so itself. The ring must have been emptied.
    fn conclude(&mut self, index: u32, slot: &Slot<'_>, certainty: EndCertainty) {
        let ring = &self.rings[index as usize];
        if self.sealed || self.failure.is_some() || ring.quarantined || ring.ended {
            return;
        }
        let Some(thread) = ring.thread else { return };
        let id = RingId { slot: index, generation: ring.generation };
        if self.accounting.conclude(slot, thread, certainty, &mut self.piece) {
            self.keep(id);
        } else {
            self.quarantine(index);
        }
    }

    /// A slot whose owner is gone goes to the next thread.
    fn finish(&mut self, index: u32, slot: &Slot<'_>) {
        self.conclude(index, slot, EndCertainty::Gone);
        let ring = &mut self.rings[index as usize];
        let id = RingId { slot: index, generation: ring.generation };
        *ring = Ring { generation: ring.generation.wrapping_add(1), ..Ring::default() };
        if self.failure.is_none()
            && let Err(error) = self.sink.close(id)
        {
            self.fail(error);
        }
        slot.free();
    }

    /// The slot's owner. One in another namespace is looked up when it is first seen: later its process may have gone, and with it what tells its numbers.
    fn owner(&mut self, index: u32, slot: &Slot<'_>) -> Owner {
        // Not there yet: the slot is being prepared.
        if slot.is_of_our_namespace() || slot.pid() == 0 || slot.tid() == 0 {
            return Owner::Known(Pid(slot.pid()), Tid(slot.tid()));
        }
        if let Some(owner) = self.rings[index as usize].owner {
            return owner;
        }
        let owner = Owner::of(slot, &mut self.namespaces);
        if slot.state() != wire::SLOT_CLAIMED {
            self.rings[index as usize].owner = Some(owner);
            let mut foreign = self.totals.foreign.lock().unwrap_or_else(PoisonError::into_inner);
            let ours = foreign.entry(Pid(slot.pid())).or_default();
            if let Owner::Known(pid, _) = owner {
                *ours = Some(pid);
            }
        }
        owner
    }

    /// Owners that were killed close nothing: notice it, take what they wrote, free the slot.
    fn look_for_death(&mut self, index: u32, slot: &Slot<'_>, check: bool) {
        if !check {
            return;
        }
        let head = slot.head();
        let ring = &mut self.rings[index as usize];
        let still = ring.head_at_check == head;
        ring.head_at_check = head;
        let owner = self.owner(index, slot);
        let ring = &mut self.rings[index as usize];
        if !still || !owner.is_gone() {
            ring.missed_checks = 0;
            return;
        }
        ring.missed_checks += 1;
        if ring.missed_checks >= 2 {
            add(&self.totals.dead_owners, 1);
            self.drain(index, slot, Take::Everything, Instant::now());
            self.finish(index, slot);
        }
    }
}

#[cfg(test)]
mod tests;
