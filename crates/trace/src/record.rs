//! The one record type of all engines: what a source says happened, in the terms of the design and not of any format.
//!
//! `wire` decodes the runtime's rings into these; later engines (perf, page faults, import) produce the same. Unknown is a value:
//! no field is ever filled by a guess.

use numapilot_machine::{CpuId, NodeId};

use crate::ids::{ModuleId, Order, ProcessIndex, StackId, ThreadIndex, TimeNs, VirtAddr};

/// Two stamps of one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// Real order on the recording machine: what the join goes by.
    pub order: Order,
    /// Program time: what people are shown.
    pub time: TimeNs,
}

/// An event with its stamps and the thread that reported it.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// When.
    pub stamp: Stamp,
    /// Who: the thread in whose ring (or on whose behalf) it was written.
    pub thread: ThreadIndex,
    /// What.
    pub event: Event,
}

/// Which level answered an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Level {
    #[default]
    Unknown = 0,
    L1 = 1,
    L2 = 2,
    L3 = 3,
    Memory = 4,
    /// Another thread's cache, dirty: the line travelled between caches.
    PeerCache = 5,
    /// A line fill that was under way for an earlier access: whence is not known.
    LineFill = 6,
}

/// One (sampled) memory access.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Access {
    /// Virtual address accessed.
    pub address: VirtAddr,
    /// CPU that executed it.
    pub cpu: Option<CpuId>,
    /// Node of that CPU.
    pub node: Option<NodeId>,
    /// Home node of the page at that time, when the source saw it.
    pub home: Option<NodeId>,
    /// Store (a read-modify-write counts as a store).
    pub is_write: bool,
    /// Atomic operation.
    pub is_atomic: bool,
    /// Part of a ranged operation (memcpy, read(2)).
    pub is_range: bool,
    /// Level that answered.
    pub level: Level,
    /// Cycles; `None` where the engine cannot know.
    pub latency_cycles: Option<u32>,
    /// Address of the instruction (or the return address after it, see `ip_is_return_address` in the wire format).
    pub ip: VirtAddr,
    /// Call stack.
    pub stack: StackId,
    /// How many memory accesses this record stands for.
    pub weight: u32,
}

/// How a heap block came to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum AllocKind {
    #[default]
    Malloc = 0,
    Calloc = 1,
    Realloc = 2,
    Aligned = 3,
    New = 4,
    NewArray = 5,
    Numa = 6,
    Brk = 7,
    Shm = 8,
}

/// Exact per-thread totals since the thread's start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Instrumented accesses.
    pub accesses: u64,
    /// Those that left the first-stage filter.
    pub l2_lookups: u64,
    /// Those that left the private filter.
    pub l3_lookups: u64,
    /// Those that left the L3 filter.
    pub memory_accesses: u64,
    /// Of these, answered by another cache.
    pub cache_transfers: u64,
    /// Of `memory_accesses`, stores.
    pub memory_writes: u64,
    /// Program time spent waiting for other threads, in cycles of the simulated machine.
    pub wait_cycles: u64,
    /// `memory_accesses` by home node.
    pub by_home: Vec<u64>,
    /// Program time charged for `memory_accesses`: idle latencies over the accesses that are outstanding at a time, in cycles; `None` in traces before format
    /// 1.1.
    pub memory_cycles: Option<u64>,
    /// Of `memory_accesses`, those that continued a stream that the hardware prefetches; `None` in traces before format 1.1.
    pub memory_streamed: Option<u64>,
    /// Of `memory_accesses`, those that continued no stream and for which another waited, whose address came from what they read, an estimate; `None` in
    /// traces before format 1.2.
    pub memory_dependent: Option<u64>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Event {
    Access(Access),
    Alloc {
        address: VirtAddr,
        bytes: u64,
        kind: AllocKind,
        stack: StackId,
    },
    Free {
        address: VirtAddr,
    },
    /// `flags` as `np_map_flags` in the wire format. `path` is empty for anonymous memory.
    Map {
        address: VirtAddr,
        bytes: u64,
        flags: u32,
        file_offset: u64,
        path: String,
        stack: StackId,
    },
    Unmap {
        address: VirtAddr,
        bytes: u64,
    },
    /// Frames are return addresses, innermost first.
    Stack {
        id: StackId,
        frames: Vec<VirtAddr>,
        truncated: bool,
        failed: bool,
    },
    ThreadStart {
        index: ThreadIndex,
        pid: u32,
        tid: u32,
        parent: Option<ThreadIndex>,
        process: ProcessIndex,
        cpu: Option<CpuId>,
        node: Option<NodeId>,
        stack_low: VirtAddr,
        stack_high: VirtAddr,
        start_routine: VirtAddr,
        created_at: StackId,
    },
    ThreadEnd {
        index: ThreadIndex,
    },
    ThreadName {
        name: String,
    },
    ProcessStart {
        index: ProcessIndex,
        pid: u32,
        parent_pid: u32,
        parent: Option<ProcessIndex>,
        by_exec: bool,
        exe: String,
        arguments: Vec<String>,
    },
    /// `by_exec`: replaced by a new image. `code`: exit status where known.
    ProcessEnd {
        index: ProcessIndex,
        by_exec: bool,
        code: i32,
    },
    Module {
        id: ModuleId,
        address: VirtAddr,
        bytes: u64,
        bias: u64,
        path: String,
        build_id: Vec<u8>,
    },
    ModuleEnd {
        id: ModuleId,
    },
    /// `cause` as `np_place_cause`. `toucher`: the first toucher, where that is another thread than the record's.
    Place {
        address: VirtAddr,
        pages: u32,
        node: NodeId,
        cause: u8,
        toucher: Option<ThreadIndex>,
    },
    /// The thread now runs on this CPU.
    Cpu {
        cpu: CpuId,
        node: NodeId,
    },
    /// A wait; it ended at the record's stamp. `kind` as `np_sync_kind`.
    Sync {
        kind: u32,
        object: u64,
        began: TimeNs,
    },
    Counters(Counters),
    Lost {
        count: u64,
        cause: u32,
    },
    Mark {
        text: String,
    },
}
