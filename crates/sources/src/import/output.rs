//! The trace being written: numbers are handed out here, and records go to a ring per thread.

use numapilot_trace::chunk::{ChunkWriter, RingId, SessionEnd};
use numapilot_trace::ids::{ModuleId, Order, ProcessIndex, StackId, ThreadIndex, TimeNs, VirtAddr};
use numapilot_trace::record::{Event, Record, Stamp};
use numapilot_trace::wire::{Clock, Encoder};

use crate::error::SourceError;

/// Bytes of a ring that are handed on at once.
const RING_BYTES: usize = 64 << 10;

struct Ring {
    encoder: Encoder,
    bytes: Vec<u8>,
}

/// Writes records.
pub(super) struct Output {
    writer: ChunkWriter,
    origin: u64,
    rings: Vec<Ring>,
    next_process: u32,
    next_module: u32,
    next_stack: u32,
}

impl Output {
    /// `origin`: time of the recording's start on its own clock.
    pub fn new(writer: ChunkWriter, origin: u64) -> Output {
        Output { writer, origin, rings: Vec::new(), next_process: 0, next_module: 1, next_stack: 1 }
    }

    /// A new thread's number.
    pub fn new_thread(&mut self) -> ThreadIndex {
        let clock = Clock { khz: 1_000_000, origin_cycles: self.origin };
        self.rings.push(Ring { encoder: Encoder::new(clock), bytes: Vec::new() });
        ThreadIndex(self.rings.len() as u32 - 1)
    }

    /// A new process image's number.
    pub fn new_process(&mut self) -> ProcessIndex {
        self.next_process += 1;
        ProcessIndex(self.next_process - 1)
    }

    /// A new binary's number.
    pub fn new_module(&mut self) -> ModuleId {
        self.next_module += 1;
        ModuleId(self.next_module - 1)
    }

    /// Writes a new stack; its number.
    pub fn new_stack(&mut self, thread: ThreadIndex, time: u64, frames: &[u64]) -> Result<StackId, SourceError> {
        let id = StackId(self.next_stack);
        self.next_stack += 1;
        let frames = frames.iter().map(|&frame| VirtAddr(frame)).collect();
        self.put(thread, time, Event::Stack { id, frames, truncated: false, failed: false })?;
        Ok(id)
    }

    /// Writes an event of a thread. Times before the recording's start count as the start.
    pub fn put(&mut self, thread: ThreadIndex, time: u64, event: Event) -> Result<(), SourceError> {
        let time = time.max(self.origin);
        let stamp = Stamp { order: Order(time), time: TimeNs(time - self.origin) };
        let Some(ring) = self.rings.get_mut(thread.0 as usize) else { return Ok(()) };
        ring.encoder.encode(&Record { stamp, thread, event }, &mut ring.bytes);
        if ring.bytes.len() >= RING_BYTES {
            self.writer.append(RingId { slot: thread.0, generation: 0 }, &ring.bytes)?;
            ring.bytes.clear();
        }
        Ok(())
    }

    /// Writes everything out.
    pub fn finish(mut self, end: &SessionEnd) -> Result<(), SourceError> {
        for (slot, ring) in (0..).zip(&self.rings) {
            self.writer.append(RingId { slot, generation: 0 }, &ring.bytes)?;
        }
        self.writer.finish(end, true)?;
        Ok(())
    }
}
