//! The trace being written: assigns the numbers of threads and processes, and writes records to a ring per thread in the raw form, or passes them on.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use numapilot_trace::chunk::{ChunkWriter, RingId};
use numapilot_trace::ids::{ModuleId, Order, ProcessIndex, StackId, ThreadIndex, VirtAddr};
use numapilot_trace::record::{Event, Record, Stamp};
use numapilot_trace::wire::{Clock, Encoder};

use crate::arena::Arena;
use crate::error::SourceError;

/// Bytes of a ring that are handed on at once.
const RING_BYTES: usize = 64 << 10;
/// Rings here are numbered from this on, beyond the slots of any arena.
const FIRST_SLOT: u32 = 1 << 16;

/// The trace's chunk files, which several threads of the recorder may write to.
#[derive(Clone)]
pub(crate) struct SharedWriter(Arc<Mutex<ChunkWriter>>);

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
    encoder: Encoder,
    bytes: Vec<u8>,
}

/// Source of the numbers of threads, processes and binaries.
enum Numbers {
    /// Nobody else hands any out. In order: process, module, stack.
    Own(u32, u32, u32),
    /// The tracker in the program does too.
    Arena(Arc<Arena>),
}

/// Destination of the records.
enum Destination {
    /// A raw trace: records are written to chunks.
    Chunks(SharedWriter, Vec<Option<Ring>>),
    /// A buffer in memory, from which the caller takes the records.
    Records(Vec<Record>),
}

/// Writes records to a trace or to memory.
pub(crate) struct Output {
    to: Destination,
    clock: Clock,
    numbers: Numbers,
    threads: u32,
    /// Records written, and accesses among them.
    records: u64,
    samples: u64,
}

impl Output {
    /// Stamps are ticks of `clock`. With an arena numbers are drawn from it.
    pub fn new(writer: SharedWriter, clock: Clock, arena: Option<Arc<Arena>>) -> Output {
        let numbers = arena.map_or(Numbers::Own(0, 1, 1), Numbers::Arena);
        Output { to: Destination::Chunks(writer, Vec::new()), clock, numbers, threads: 0, records: 0, samples: 0 }
    }

    /// Keeps records until they are [taken](Output::take).
    pub fn kept(clock: Clock) -> Output {
        let numbers = Numbers::Own(0, 1, 1);
        Output { to: Destination::Records(Vec::new()), clock, numbers, threads: 0, records: 0, samples: 0 }
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
    pub fn sort(&mut self, from: usize) {
        if let Destination::Records(waiting) = &mut self.to {
            waiting[from..].sort_by_key(|record| record.stamp.order);
        }
    }

    /// A new thread's number.
    pub fn new_thread(&mut self) -> ThreadIndex {
        let index = match &self.numbers {
            Numbers::Own(..) => post_increment(&mut self.threads),
            Numbers::Arena(arena) => arena.new_thread(),
        };
        if let Destination::Chunks(_, rings) = &mut self.to
            && let Some(ring) = place(rings, index)
        {
            *ring = Some(Ring { encoder: Encoder::new(self.clock), bytes: Vec::new() });
        }
        ThreadIndex(index)
    }

    /// A new process image's number.
    pub fn new_process(&mut self) -> ProcessIndex {
        ProcessIndex(match &mut self.numbers {
            Numbers::Own(next, ..) => post_increment(next),
            Numbers::Arena(arena) => arena.new_process(),
        })
    }

    /// A new binary's number.
    pub fn new_module(&mut self) -> ModuleId {
        ModuleId(match &mut self.numbers {
            Numbers::Own(_, next, _) => post_increment(next),
            Numbers::Arena(arena) => arena.new_module(),
        })
    }

    /// Writes a new stack; its number.
    pub fn new_stack(&mut self, thread: ThreadIndex, order: u64, frames: &[u64]) -> Result<StackId, SourceError> {
        let id = StackId(match &mut self.numbers {
            Numbers::Own(_, _, next) => post_increment(next),
            Numbers::Arena(arena) => arena.new_stack(),
        });
        let frames = frames.iter().map(|&frame| VirtAddr(frame)).collect();
        self.put(thread, order, Event::Stack { id, frames, truncated: false, failed: false })?;
        Ok(id)
    }

    /// Writes an event of a thread. Stamps before the recording's start count as the start.
    pub fn put(&mut self, thread: ThreadIndex, order: u64, event: Event) -> Result<(), SourceError> {
        let order = order.max(self.clock.origin_cycles);
        let stamp = Stamp { order: Order(order), time: self.clock.time(order) };
        self.records += 1;
        self.samples += u64::from(matches!(event, Event::Access(_)));
        let record = Record { stamp, thread, event };
        let (writer, rings) = match &mut self.to {
            Destination::Records(waiting) => {
                waiting.push(record);
                return Ok(());
            }
            Destination::Chunks(writer, rings) => (writer, rings),
        };
        let id = RingId { slot: FIRST_SLOT.saturating_add(thread.0), generation: 0 };
        let Some(place) = place(rings, thread.0) else { return Ok(()) };
        // The tracker's threads have announced themselves in their own rings.
        let ring = place.get_or_insert_with(|| {
            writer.lock().open_ring(id, thread);
            Ring { encoder: Encoder::new(self.clock), bytes: Vec::new() }
        });
        ring.encoder.encode(&record, &mut ring.bytes);
        if ring.bytes.len() >= RING_BYTES {
            writer.lock().append(id, &ring.bytes)?;
            ring.bytes.clear();
        }
        Ok(())
    }

    /// Hands everything on, so that it survives this process's death.
    pub fn flush(&mut self) -> Result<(), SourceError> {
        let Destination::Chunks(writer, rings) = &mut self.to else { return Ok(()) };
        let mut writer = writer.lock();
        for (thread, ring) in (0_u32..).zip(rings) {
            let Some(ring) = ring.as_mut().filter(|ring| !ring.bytes.is_empty()) else { continue };
            let id = RingId { slot: FIRST_SLOT.saturating_add(thread), generation: 0 };
            writer.append(id, &ring.bytes)?;
            writer.flush_ring(id)?;
            // Most threads of a recorded machine have ended, or are idle.
            ring.bytes = Vec::new();
        }
        Ok(())
    }

    /// Bytes of the trace's files so far.
    pub fn disk_bytes(&self) -> u64 {
        if let Destination::Chunks(writer, _) = &self.to { writer.lock().bytes_written() } else { 0 }
    }

    /// Records written so far, and accesses among them.
    pub fn written(&self) -> (u64, u64) {
        (self.records, self.samples)
    }
}

/// Where a thread's ring is kept; `None` for a number that the program must have scribbled over.
fn place(rings: &mut Vec<Option<Ring>>, thread: u32) -> Option<&mut Option<Ring>> {
    const THREADS_MAX: usize = 1 << 22;
    let at = thread as usize;
    if at >= THREADS_MAX {
        return None;
    }
    if at >= rings.len() {
        rings.resize_with(at + 1, || None);
    }
    rings.get_mut(at)
}

fn post_increment(next: &mut u32) -> u32 {
    *next += 1;
    *next - 1
}
