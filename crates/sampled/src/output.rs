//! The trace being written: assigns the numbers of threads and processes, and writes records to a ring per thread in the raw form, or passes them on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use numapilot_host::VirtAddr;
use numapilot_trace::chunk::{ChunkError, ChunkWriter, RingId};
use numapilot_trace::ids::{ModuleId, Order, ProcessIndex, StackId, ThreadIndex};
use numapilot_trace::record::{Event, Record, Stamp};
use numapilot_trace::wire::{Clock, Encoder};

/// Bytes of a ring that are handed on at once.
const RING_BYTES: usize = 64 << 10;
/// Rings here are numbered from this on, beyond the slots of any arena.
const FIRST_SLOT: u32 = 1 << 16;
/// Threads of which a trace can hold records (`INDEX_MAX` of the join). A number beyond is one that the program must have scribbled over, or the recording is
/// one of days.
const THREADS_MAX: u32 = 1 << 22;

/// The trace's chunk files, which several threads of the recorder may write to.
#[derive(Clone)]
pub struct SharedWriter(Arc<Mutex<ChunkWriter>>);

impl SharedWriter {
    /// Wraps a writer, so that several threads can write to it.
    pub fn new(writer: ChunkWriter) -> SharedWriter {
        SharedWriter(Arc::new(Mutex::new(writer)))
    }

    /// The writer, for this caller alone. (A thread that panicked with it left whole chunks behind: they are appended at once.)
    pub fn lock(&self) -> MutexGuard<'_, ChunkWriter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The writer itself, if no other thread shares it.
    pub fn into_inner(self) -> Option<ChunkWriter> {
        Some(Arc::into_inner(self.0)?.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

struct Ring {
    id: RingId,
    encoder: Encoder,
    bytes: Vec<u8>,
}

impl Ring {
    /// `generation`: no earlier ring of the thread had it.
    fn new(thread: u32, generation: u64, clock: Clock) -> Ring {
        let id = RingId { slot: FIRST_SLOT.saturating_add(thread), generation };
        Ring { id, encoder: Encoder::new(clock), bytes: Vec::new() }
    }
}

/// Assigns numbers where the tracker in the program assigns some of the same kind. No number is assigned twice.
pub trait Numbering: Send + Sync {
    /// A number for a thread.
    fn new_thread(&self) -> u32;

    /// A number for a process image.
    fn new_process(&self) -> u32;

    /// A number for a binary.
    fn new_module(&self) -> u32;

    /// A number for a call stack.
    fn new_stack(&self) -> u32;
}

/// Source of the numbers of threads, processes and binaries.
enum Numbers {
    /// Nobody else assigns any. In order: process, module, stack.
    Own(u32, u32, u32),
    /// Others do too.
    Shared(Arc<dyn Numbering>),
}

/// Destination of the records.
enum Destination {
    /// A raw trace: records are written to chunks, by rings of the threads that have not ended.
    Chunks(SharedWriter, BTreeMap<u32, Ring>),
    /// A buffer in memory, from which the caller takes the records.
    Records(Vec<Record>),
}

/// Writes records to a trace or to memory.
pub struct Output {
    to: Destination,
    clock: Clock,
    numbers: Numbers,
    threads: u32,
    /// Threads that have ended since everything was handed on last.
    ended: Vec<u32>,
    /// Number of rings whose threads have ended.
    closed: u64,
    /// Records written, and accesses among them.
    records: u64,
    samples: u64,
    /// Records of threads beyond those that a trace can hold.
    left_out: u64,
}

impl Output {
    /// Stamps are ticks of `clock`. Numbers are drawn from `numbering`, where others need some as well.
    pub fn new(writer: SharedWriter, clock: Clock, numbering: Option<Arc<dyn Numbering>>) -> Output {
        let numbers = numbering.map_or(Numbers::Own(0, 1, 1), Numbers::Shared);
        Output::with(Destination::Chunks(writer, BTreeMap::new()), clock, numbers)
    }

    /// Keeps records until they are [taken](Output::take).
    pub fn kept(clock: Clock) -> Output {
        Output::with(Destination::Records(Vec::new()), clock, Numbers::Own(0, 1, 1))
    }

    fn with(to: Destination, clock: Clock, numbers: Numbers) -> Output {
        Output { to, clock, numbers, threads: 0, ended: Vec::new(), closed: 0, records: 0, samples: 0, left_out: 0 }
    }

    /// Number of buffered records.
    pub fn waiting(&self) -> usize {
        if let Destination::Records(waiting) = &self.to { waiting.len() } else { 0 }
    }

    /// Moves the records that are kept to the end of `out`.
    pub fn take(&mut self, out: &mut Vec<Record>) {
        if let Destination::Records(waiting) = &mut self.to {
            if out.is_empty() {
                std::mem::swap(waiting, out);
            } else {
                out.append(waiting);
            }
        }
    }

    /// Puts what is kept from the `from`th record on in order of its stamps.
    pub(crate) fn sort(&mut self, from: usize) {
        if let Destination::Records(waiting) = &mut self.to {
            waiting[from..].sort_by_key(|record| record.stamp.order);
        }
    }

    /// A new thread's number.
    pub(crate) fn new_thread(&mut self) -> ThreadIndex {
        let index = match &self.numbers {
            Numbers::Own(..) => post_increment(&mut self.threads),
            Numbers::Shared(others) => others.new_thread(),
        };
        if let Destination::Chunks(_, rings) = &mut self.to
            && index < THREADS_MAX
        {
            rings.insert(index, Ring::new(index, 0, self.clock));
        }
        ThreadIndex(index)
    }

    /// A new process image's number.
    pub(crate) fn new_process(&mut self) -> ProcessIndex {
        ProcessIndex(match &mut self.numbers {
            Numbers::Own(next, ..) => post_increment(next),
            Numbers::Shared(others) => others.new_process(),
        })
    }

    /// A new binary's number.
    pub(crate) fn new_module(&mut self) -> ModuleId {
        ModuleId(match &mut self.numbers {
            Numbers::Own(_, next, _) => post_increment(next),
            Numbers::Shared(others) => others.new_module(),
        })
    }

    /// Writes a new stack; its number.
    pub(crate) fn new_stack(&mut self, thread: ThreadIndex, order: u64, frames: &[u64]) -> Result<StackId, ChunkError> {
        let id = StackId(match &mut self.numbers {
            Numbers::Own(_, _, next) => post_increment(next),
            Numbers::Shared(others) => others.new_stack(),
        });
        let frames = frames.iter().map(|&frame| VirtAddr(frame)).collect();
        self.put(thread, order, Event::Stack { id, frames, truncated: false, failed: false })?;
        Ok(id)
    }

    /// Writes an event of a thread. Stamps before the recording's start count as the start.
    pub(crate) fn put(&mut self, thread: ThreadIndex, order: u64, event: Event) -> Result<(), ChunkError> {
        let order = order.max(self.clock.origin_cycles);
        let stamp = Stamp { order: Order(order), time: self.clock.time(order) };
        let (is_sample, is_end) = (matches!(event, Event::Access(_)), matches!(event, Event::ThreadEnd { .. }));
        let record = Record { stamp, thread, event };
        let (writer, rings) = match &mut self.to {
            Destination::Records(waiting) => {
                waiting.push(record);
                self.records += 1;
                self.samples += u64::from(is_sample);
                return Ok(());
            }
            Destination::Chunks(writer, rings) => (writer, rings),
        };
        if thread.0 >= THREADS_MAX {
            self.left_out += 1;
            return Ok(());
        }
        self.records += 1;
        self.samples += u64::from(is_sample);
        self.ended.extend(is_end.then_some(thread.0));
        // The tracker's threads have announced themselves in their own rings, and those that had ended in one that is closed.
        let ring = rings.entry(thread.0).or_insert_with(|| {
            let ring = Ring::new(thread.0, self.closed, self.clock);
            writer.lock().open_ring(ring.id, thread);
            ring
        });
        ring.encoder.encode(&record, &mut ring.bytes);
        if ring.bytes.len() >= RING_BYTES {
            writer.lock().append(ring.id, &ring.bytes)?;
            ring.bytes.clear();
        }
        Ok(())
    }

    /// A thread has ended, and hardly anything more comes of it.
    pub(crate) fn ended(&mut self, thread: ThreadIndex) {
        if let Destination::Chunks(..) = &self.to {
            self.ended.push(thread.0);
        }
    }

    /// Hands everything on, so that it survives this process's death.
    ///
    /// # Errors
    /// The trace's files cannot be written.
    pub fn flush(&mut self) -> Result<(), ChunkError> {
        let Destination::Chunks(writer, rings) = &mut self.to else { return Ok(()) };
        let mut writer = writer.lock();
        for ring in rings.values_mut().filter(|ring| !ring.bytes.is_empty()) {
            writer.append(ring.id, &ring.bytes)?;
            writer.flush_ring(ring.id)?;
            // Most threads of a recorded machine are idle.
            ring.bytes = Vec::new();
        }
        // Of a machine that builds programs, thousands of threads end in a minute.
        for thread in self.ended.drain(..) {
            if let Some(ring) = rings.remove(&thread) {
                writer.close_ring(ring.id)?;
                self.closed += 1;
            }
        }
        Ok(())
    }

    /// Bytes of the trace's files so far.
    pub fn disk_bytes(&self) -> u64 {
        if let Destination::Chunks(writer, _) = &self.to { writer.lock().bytes_written() } else { 0 }
    }

    /// Records that are left out, because their threads came after those that a trace can hold.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Rings of threads that have not ended.
    #[cfg(test)]
    pub(crate) fn open_rings(&self) -> usize {
        if let Destination::Chunks(_, rings) = &self.to { rings.len() } else { 0 }
    }

    /// Records written so far, and accesses among them.
    pub fn written(&self) -> (u64, u64) {
        (self.records, self.samples)
    }
}

fn post_increment(next: &mut u32) -> u32 {
    *next += 1;
    *next - 1
}
