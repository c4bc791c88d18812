//! Generates recordings with a known result: every access is noted with the instance to which the join must assign it.
//!
//! One clock drives everything: order stamp = program time = a counter, so an instance is identified by its birth time. Addresses are
//! allocated last-freed-first, so that most of them are reused many times.

#![allow(dead_code)]

use std::path::Path;

use numapilot_host::VirtAddr;
use numapilot_machine::{CpuId, NodeId};
use numapilot_random::Random;
use numapilot_trace::chunk::{ChunkWriter, RingId, SessionEnd, SessionStart, WriterOptions};
use numapilot_trace::engine::Engine;
use numapilot_trace::ids::{Order, Pid, ProcessIndex, StackId, ThreadIndex, Tid, TimeNs};
use numapilot_trace::record::{Access, AllocKind, Event, Level, Record, Stamp};
use numapilot_trace::wire::{Clock, Encoder};

/// An index of a list of this length.
fn below(random: &mut Random, limit: usize) -> usize {
    random.remainder(limit as u64) as usize
}

/// The instance to which an access must be assigned, by its birth time, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    pub time: u64,
    pub birth: Option<u64>,
}

#[derive(Clone, Copy)]
struct Block {
    address: u64,
    bytes: u64,
    class: usize,
    birth: u64,
}

/// A process's heap.
#[derive(Clone, Default)]
struct Heap {
    live: Vec<Block>,
    free: Vec<Vec<u64>>,
    top: u64,
}

const CLASSES: [u64; 8] = [16, 48, 112, 512, 2000, 5000, 70_000, 3 << 20];

pub struct Program {
    writer: ChunkWriter,
    rings: Vec<(RingId, Encoder, Vec<u8>, usize)>,
    heaps: Vec<Heap>,
    pub random: Random,
    now: u64,
    pub expected: Vec<Expected>,
    pub allocations: u64,
    /// Code addresses that accesses come from.
    pub code: Vec<u64>,
}

pub fn session() -> SessionStart {
    SessionStart {
        engine: Engine::Instrument.into(),
        command: vec!["generated".into()],
        clock_khz: Clock::NANOSECONDS.khz,
        order_khz: 1_000_000,
        simulated: true,
        ..SessionStart::default()
    }
}

impl Program {
    pub fn new(trace: &Path, seed: u64, options: WriterOptions) -> Program {
        let writer = ChunkWriter::create(trace, &session(), options).expect("the trace can be created");
        Program {
            writer,
            rings: Vec::new(),
            heaps: Vec::new(),
            random: Random::new(seed),
            now: 1,
            expected: Vec::new(),
            allocations: 0,
            code: vec![0x40_1000],
        }
    }

    pub fn emit(&mut self, thread: usize, event: Event) -> u64 {
        self.now += 1 + self.random.bits() % 3;
        let stamp = Stamp { order: Order(self.now), time: TimeNs(self.now) };
        let (ring, encoder, bytes, _) = &mut self.rings[thread];
        encoder.encode(&Record { stamp, thread: ThreadIndex(thread as u32), event }, bytes);
        if bytes.len() > 32 << 10 {
            self.writer.append(*ring, bytes).expect("the chunk can be written");
            bytes.clear();
        }
        self.now
    }

    /// Starts a thread, and returns its number.
    pub fn thread(&mut self, process: usize) -> usize {
        self.thread_by(process, None)
    }

    fn thread_by(&mut self, process: usize, parent: Option<ThreadIndex>) -> usize {
        let thread = self.rings.len();
        let ring = RingId { slot: thread as u32, generation: 1 };
        self.rings.push((ring, Encoder::new(Clock::NANOSECONDS), Vec::new(), process));
        let stack = 0x7f00_0000_0000 + thread as u64 * 0x10_0000;
        let node = NodeId(thread as u16 % 4);
        self.emit(
            thread,
            Event::ThreadStart {
                index: ThreadIndex(thread as u32),
                pid: Pid(100 + process as u32),
                tid: Tid(1000 + thread as u32),
                parent,
                process: ProcessIndex(process as u32),
                cpu: Some(CpuId(thread as u32)),
                node: Some(node),
                stack_low: VirtAddr(stack),
                stack_high: VirtAddr(stack + 0x8_0000),
                start_routine: VirtAddr(0),
                created_at: StackId(0),
            },
        );
        thread
    }

    /// Starts a process with one thread, forked from another one or new, and returns its thread.
    pub fn process(&mut self, parent: Option<usize>) -> usize {
        let process = self.heaps.len();
        let heap = parent.map_or_else(
            || Heap { free: vec![Vec::new(); CLASSES.len()], top: 0x1000_0000, ..Heap::default() },
            |parent| self.heaps[parent].clone(),
        );
        self.heaps.push(heap);
        let creator = parent.and_then(|parent| self.rings.iter().position(|ring| ring.3 == parent));
        let thread = self.thread_by(process, creator.map(|creator| ThreadIndex(creator as u32)));
        self.emit(
            thread,
            Event::ProcessStart {
                index: ProcessIndex(process as u32),
                pid: Pid(100 + process as u32),
                parent_pid: Pid(1),
                parent: parent.map(|parent| ProcessIndex(parent as u32)),
                by_exec: false,
                exe: "/generated".into(),
                arguments: Vec::new(),
            },
        );
        thread
    }

    fn process_of(&self, thread: usize) -> usize {
        self.rings[thread].3
    }

    pub fn alloc(&mut self, thread: usize, kind: AllocKind, stack: u32) {
        // Large blocks are rare, as in programs.
        let class =
            if below(&mut self.random, 200) == 0 { 6 + below(&mut self.random, 2) } else { below(&mut self.random, 6) };
        let process = self.process_of(thread);
        let bytes = CLASSES[class] - self.random.bits() % (CLASSES[class] / 2);
        let heap = &mut self.heaps[process];
        let address = heap.free[class].pop().unwrap_or_else(|| {
            heap.top += CLASSES[class];
            heap.top - CLASSES[class]
        });
        let event = Event::Alloc { address: VirtAddr(address), bytes, kind, stack: StackId(stack) };
        let birth = self.emit(thread, event);
        self.heaps[process].live.push(Block { address, bytes, class, birth });
        self.allocations += 1;
    }

    pub fn free(&mut self, thread: usize) {
        let process = self.process_of(thread);
        if self.heaps[process].live.is_empty() {
            return;
        }
        let index = below(&mut self.random, self.heaps[process].live.len());
        let block = self.heaps[process].live.swap_remove(index);
        self.emit(thread, Event::Free { address: VirtAddr(block.address) });
        self.heaps[process].free[block.class].push(block.address);
    }

    /// `realloc`: in place (a free and an allocation at the same address, or none in between), or moved.
    pub fn realloc(&mut self, thread: usize) {
        let process = self.process_of(thread);
        if self.heaps[process].live.is_empty() {
            return;
        }
        let index = below(&mut self.random, self.heaps[process].live.len());
        match below(&mut self.random, 3) {
            0 => {
                self.free(thread);
                self.alloc(thread, AllocKind::Realloc, 2);
            }
            way => {
                let block = self.heaps[process].live[index];
                let address = VirtAddr(block.address);
                if way == 1 {
                    self.emit(thread, Event::Free { address });
                }
                let bytes = 1 + self.random.bits() % CLASSES[block.class];
                let event = Event::Alloc { address, bytes, kind: AllocKind::Realloc, stack: StackId(2) };
                let birth = self.emit(thread, event);
                self.heaps[process].live[index] = Block { bytes, birth, ..block };
                self.allocations += 1;
            }
        }
    }

    pub fn access(&mut self, thread: usize) {
        let process = self.process_of(thread);
        let (address, birth) = match below(&mut self.random, 40) {
            // One past a block's size, in the gap that its size class leaves, or nowhere.
            0 => (0x500 + self.random.bits() % 100, None),
            _ if self.heaps[process].live.is_empty() => (0x600, None),
            _ => {
                let index = below(&mut self.random, self.heaps[process].live.len());
                let block = self.heaps[process].live[index];
                let offset = match below(&mut self.random, 4) {
                    0 => 0,
                    1 => block.bytes - 1,
                    _ => self.random.bits() % block.bytes,
                };
                (block.address + offset, Some(block.birth))
            }
        };
        let ip = self.code[below(&mut self.random, self.code.len())];
        let node = NodeId(thread as u16 % 4);
        let access = Access {
            address: VirtAddr(address),
            cpu: Some(CpuId(thread as u32)),
            node: Some(node),
            home: Some(NodeId((address >> 12) as u16 % 4)),
            is_write: below(&mut self.random, 3) == 0,
            level: Level::Memory,
            latency_cycles: Some(200),
            ip: VirtAddr(ip),
            stack: StackId(1),
            weight: 100,
            ..Access::default()
        };
        let time = self.emit(thread, Event::Access(access));
        self.expected.push(Expected { time, birth });
    }

    /// Writes the recording, and returns the expected instance of each access.
    pub fn finish(mut self) -> Vec<Expected> {
        for (ring, _, bytes, _) in &self.rings {
            self.writer.append(*ring, bytes).expect("the chunk can be written");
        }
        self.writer.finish(&SessionEnd::default(), false).expect("the recording can be finished");
        self.expected
    }
}

/// A program of `threads` threads in several processes (forked at different moments) that makes `allocations` allocations and
/// `accesses_each` accesses per step.
pub fn generate(trace: &Path, seed: u64, threads: usize, allocations: u64, accesses_each: usize) -> Vec<Expected> {
    let options = WriterOptions { chunk_bytes: 64 << 10, ..WriterOptions::default() };
    let mut program = Program::new(trace, seed, options);
    program.process(None);
    while program.rings.len() < threads / 2 {
        program.thread(0);
    }
    let mut forks = 0;
    while program.allocations < allocations {
        let thread = below(&mut program.random, program.rings.len());
        match below(&mut program.random, 10) {
            0..5 => program.alloc(thread, AllocKind::Malloc, 1),
            5..8 => program.free(thread),
            8 => program.realloc(thread),
            _ => {}
        }
        for _ in 0..accesses_each {
            let thread = below(&mut program.random, program.rings.len());
            program.access(thread);
        }
        if forks < 3 && program.allocations > allocations / 5 * (forks + 1) {
            let parent = below(&mut program.random, program.heaps.len());
            program.process(Some(parent));
            forks += 1;
            let process = program.heaps.len() - 1;
            while program.rings.len() < threads / 2 + (threads / 8 + 1) * forks as usize
                && program.rings.len() < threads
            {
                program.thread(process);
            }
        }
    }
    program.finish()
}
