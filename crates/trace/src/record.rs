//! The record type that all engines share: one event of the recorded program, independent of any file format.
//!
//! `wire` decodes the runtime's rings into these records; the other engines (PMU, page faults, import) produce the same. A field
//! that is not known is `None` or `Unknown`, never a guess.

use numapilot_host::VirtAddr;
use numapilot_machine::{CpuId, NodeId};

use crate::ids::{ModuleId, Order, Pid, ProcessIndex, StackId, ThreadIndex, Tid, TimeNs};

/// Two stamps of one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// Order in which events really happened on the recording machine; the join uses it.
    pub order: Order,
    /// Program time, ns; reports show it.
    pub time: TimeNs,
}

/// An event with its stamps and the thread that reported it.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Order stamp and program time of the event.
    pub stamp: Stamp,
    /// Thread in whose ring the record was written, or on whose behalf.
    pub thread: ThreadIndex,
    /// The event itself.
    pub event: Event,
}

/// What no two files have in common, whichever name or process they are known by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// Number of the device.
    pub device: u64,
    /// Number of the file on it.
    pub inode: u64,
    /// When it was made, ns since 1970: a disk may use a file's number again. 0: not known, of memory, where numbers are not used again.
    pub born: u64,
}

/// The level of the memory hierarchy that served an access.
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
    /// Another core's cache, which held the line modified: the line was transferred between caches.
    PeerCache = 5,
    /// The line-fill buffer: the line was already being fetched for an earlier access. Its source is not known.
    LineFill = 6,
}

/// What is known of the page of a page fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultedPage {
    /// Whether a page was there before the fault (a NUMA hinting fault, a first write to a shared page); `None`: not known.
    pub was_present: Option<bool>,
    /// Binary logarithm of the size in bytes of the page that was there or, where none was, of the one that the fault mapped; 0: not known.
    pub size_log2: u8,
}

impl FaultedPage {
    /// A page of `bytes`, a power of two; another number: its size is not known.
    #[must_use]
    pub fn new(was_present: Option<bool>, bytes: u64) -> FaultedPage {
        let size_log2 = if bytes.is_power_of_two() { bytes.trailing_zeros() as u8 } else { 0 };
        FaultedPage { was_present, size_log2 }
    }

    /// Size of the page in bytes, where it is known.
    #[must_use]
    pub fn bytes(self) -> Option<u64> {
        (self.size_log2 > 0).then(|| 1 << (self.size_log2 & 63))
    }
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
    /// Home node of the page at that time, if the engine recorded it.
    pub home: Option<NodeId>,
    /// Store (a read-modify-write counts as a store).
    pub is_write: bool,
    /// Atomic operation.
    pub is_atomic: bool,
    /// Part of a ranged operation (memcpy, read(2)).
    pub is_range: bool,
    /// Level that served it.
    pub level: Level,
    /// Latency in cycles; `None` if the engine does not measure it.
    pub latency_cycles: Option<u32>,
    /// Address of the instruction (or the return address after it, see `ip_is_return_address` in the wire format).
    pub ip: VirtAddr,
    /// Call stack.
    pub stack: StackId,
    /// How many memory accesses this record stands for.
    pub weight: u32,
    /// The page of a page fault.
    pub page: FaultedPage,
}

/// The call that allocated a block.
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

/// What happened to a pool: memory from which the program serves its own allocations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolEvent {
    /// It was created, with this name.
    Created(String),
    /// All its blocks ended; it lives on.
    Reset,
    /// It ended, with all its blocks.
    Destroyed,
}

/// How a block was chosen, where only some of a heap's blocks are recorded (objects of Java).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSample {
    /// Bytes that a thread allocates from one sample to the next, on average, when this one was drawn: distances are exponentially distributed. 0: each block
    /// is a sample.
    pub interval_bytes: u32,
    /// Whether this is a later place of a block that was sampled elsewhere, and was moved. Its own allocation is no further one.
    pub is_moved: bool,
}

/// Exact per-thread totals since the thread's start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Instrumented accesses.
    pub accesses: u64,
    /// Accesses that missed the first-stage filter.
    pub l2_lookups: u64,
    /// Accesses that missed the filter of the private caches.
    pub l3_lookups: u64,
    /// Accesses that missed the L3 filter.
    pub memory_accesses: u64,
    /// Of these, served by another cache.
    pub cache_transfers: u64,
    /// Of `memory_accesses`, stores.
    pub memory_writes: u64,
    /// Program time spent waiting for other threads, in cycles of the simulated machine.
    pub wait_cycles: u64,
    /// `memory_accesses` by home node: one total per node number.
    pub by_home: Vec<u64>,
    /// Program time charged for `memory_accesses`: idle latencies over the accesses that are outstanding at a time, in cycles; `None` in traces before format
    /// 1.1.
    pub memory_cycles: Option<u64>,
    /// Of `memory_accesses`, those that continued a stream that the hardware prefetches; `None` in traces before format 1.1.
    pub memory_streamed: Option<u64>,
    /// Of `memory_accesses`, an estimate of those that continued no stream and whose value another access needed for its address; `None` in traces before
    /// format 1.2.
    pub memory_dependent: Option<u64>,
}

/// A function of an interpreter in the recorded program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Code {
    /// Its number, unique in the recording, below 2^28.
    pub id: u64,
    /// Minor version of the Python 3 that it belongs to; `wire::CODE_JAVA`: it is a Java method.
    pub minor: u16,
    /// Its qualified name; below Python 3.11 its plain name.
    pub name: String,
    /// Its source file, as the interpreter has it.
    pub file: String,
    /// The line at which it is defined; 0 where the table was too long for a record.
    pub first_line: u32,
    /// Its table of lines, as that version writes it; of a Java method pairs of 16 bits, an index of bytecode and the line from there on.
    pub table: Vec<u8>,
}

/// An event of the recorded program.
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
    /// Frames are return addresses or places in an interpreter's functions (`wire::CODE_FRAME`, `wire::JAVA_FRAME`), innermost first.
    Stack {
        id: StackId,
        frames: Vec<VirtAddr>,
        truncated: bool,
        failed: bool,
    },
    ThreadStart {
        index: ThreadIndex,
        pid: Pid,
        tid: Tid,
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
        pid: Pid,
        parent_pid: Pid,
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
    /// On its own in memory: it is twice as large as what most records hold, and rare.
    Counters(Box<Counters>),
    Lost {
        count: u64,
        cause: u32,
    },
    Mark {
        text: String,
    },
    /// A function of an interpreter, which frames of stacks name by its id (`wire::CODE_FRAME`, `wire::JAVA_FRAME`).
    Code(Code),
    /// `pool`: a number, unique in its process and those that it forks.
    Pool {
        pool: u32,
        what: PoolEvent,
    },
    /// A block of a pool was made, in memory whose own birth other events tell. `thread`: that allocated it, where that is another than the record's.
    /// `sample`: where only some of such blocks are recorded.
    PoolAlloc {
        address: VirtAddr,
        bytes: u64,
        pool: u32,
        stack: StackId,
        thread: Option<ThreadIndex>,
        sample: Option<BlockSample>,
    },
    PoolFree {
        address: VirtAddr,
        pool: u32,
    },
    /// A file whose pages processes may share. `address`: of the mapping of it of which the thread's next [`Event::Map`] tells; 0: of none. `bytes` from
    /// `offset` on have just been given memory, on `node`.
    File {
        address: VirtAddr,
        file: FileIdentity,
        offset: u64,
        bytes: u64,
        node: Option<NodeId>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An access is moved as a record from the decoder to the join, several times. What is larger than this is moved by calls of `memcpy`, which took nearly
    /// half of the time of the thread that merges rings.
    #[test]
    fn records_are_small_enough_to_be_moved_in_registers() {
        assert!(size_of::<Record>() <= 128, "{} bytes", size_of::<Record>());
    }
}
