//! Layout of the arena and numbers of the records: a mirror of `wire.h`, which `tests/wire_layout.rs` compares with it.

#![allow(missing_docs)] // Field by field documented in wire.h; repeating it here would only drift.

pub const ARENA_MAGIC: u64 = 0x3141_4e45_5241_5049;
pub const ARENA_VERSION: u32 = 3;
pub const MAX_NODES: usize = 64;
pub const MAX_CPUS: usize = 1024;
pub const PATH_MAX: usize = 256;
/// Of the pages in records, which are of 4 KiB whatever pages the kernel has.
pub const PAGE_SHIFT: u32 = numapilot_host::PageNumber::SHIFT;
pub const LINE_SHIFT: u32 = 6;
/// Addresses in records are below this: all that x86-64 and arm64 give to programs unless these ask for more (a hint of mmap, with page tables of 5 levels
/// or 52 bits).
pub const ADDRESS_END: u64 = 1 << 48;
/// "None" in a 16-bit field.
pub const NONE16: u16 = 0xffff;
/// "None" in a 32-bit field.
pub const NONE32: u32 = 0xffff_ffff;
/// The upper 16 bits of a frame of a stack that is a place in an interpreter's function.
pub const CODE_FRAME: u64 = 0x7f8d << 48;
/// The same of a place in a Java method.
pub const JAVA_FRAME: u64 = 0x7f8e << 48;
/// Bits of such frames below the function's number.
pub const CODE_SHIFT: u32 = 20;
/// A function's version of Python 3 where it is a Java method.
pub const CODE_JAVA: u16 = 0;

/// `struct np_config`: set before the program starts, constant afterwards.
#[repr(C)]
#[derive(Clone, Debug)]
pub struct Config {
    pub mode: u32,
    pub bind: u32,
    pub placement: u32,
    pub node_count: u32,
    pub cpu_count: u32,
    pub clock_khz: u32,
    pub seed: u64,
    pub sample_period: u64,
    pub sample_rate_hz: u32,
    pub window_cycles: u32,
    pub cycles_per_access_q8: u32,
    pub l1_lines: u32,
    pub l2_sets: u32,
    pub l2_ways: u32,
    pub l3_sets: u32,
    pub l3_ways: u32,
    pub l3_count: u32,
    pub l2_cycles: u32,
    pub l3_cycles: u32,
    pub dir_entries_log2: u32,
    pub max_stack_depth: u32,
    pub core_window: u32,
    pub core_misses: u32,
    pub line_sampling: u32,
    pub memory_latency_cycles: [[u16; MAX_NODES]; MAX_NODES],
    pub node_has_memory: [u8; MAX_NODES],
    pub node_order: [[u8; MAX_NODES]; MAX_NODES],
    pub cpu_order: [u16; MAX_CPUS],
    pub cpu_node: [u16; MAX_CPUS],
    pub cpu_l3: [u16; MAX_CPUS],
    pub node_distance: [[u8; MAX_NODES]; MAX_NODES],
    pub node_memory_bytes: [u64; MAX_NODES],
    pub machine_files: [u8; PATH_MAX],
}

/// Aligns its content to a cache line, as `_Alignas(64)` does in C: the content starts a line and nothing follows it in that line.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default)]
pub struct Line<T>(pub T);

impl<T> std::ops::Deref for Line<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> std::ops::DerefMut for Line<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ArenaState {
    pub state: u32,
    pub drain_futex: u32,
    pub fault_futex: u32,
    pub fault_events: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ArenaIds {
    pub next_stack_id: u32,
    pub next_thread_index: u32,
    pub next_process_index: u32,
    pub next_module_id: u32,
    pub next_code_id: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ArenaEpoch {
    pub epoch_futex: u32,
    pub epoch_waiters: u32,
    pub slots_high: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ArenaLosses {
    pub lost_no_slot: u64,
    pub lost_full: u64,
    pub lost_stopped: u64,
    pub failed_unwinds: u64,
    pub lost_after_end: u64,
    pub early_timeouts: u64,
}

/// Why programs run without the tracker, as indices of the arrays of [`ArenaUnrecorded`].
pub const UNRECORDED_STATIC: usize = 0;
pub const UNRECORDED_FOREIGN: usize = 1;
pub const UNRECORDED_CLOSED: usize = 2;
const UNRECORDED_REASONS: usize = 3;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ArenaUnrecorded {
    pub limited_processes: u32,
    pub unrecorded_programs: [u32; UNRECORDED_REASONS],
    pub unrecorded_named: [u32; UNRECORDED_REASONS],
    pub unrecorded_name: [[u8; 244]; UNRECORDED_REASONS],
    pub java_machines: u32,
    pub java_troubles: u32,
    pub java_dropped: u64,
    pub last_map_order: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ArenaOrder {
    pub order_sequence: u64,
}

/// `struct np_arena`, at offset 0 of the arena.
#[repr(C)]
#[derive(Clone, Debug)]
pub struct ArenaHeader {
    pub magic: u64,
    pub version: u32,
    pub header_bytes: u32,
    pub arena_bytes: u64,
    pub slots_offset: u64,
    pub slot_count: u32,
    pub slot_bytes: u32,
    pub filter_offset: u32,
    pub filter_bytes: u32,
    pub ring_offset: u32,
    pub ring_bytes: u32,
    pub l3_offset: u64,
    pub dir_offset: u64,
    pub sync_offset: u64,
    pub start_order: u64,
    pub start_ns: u64,
    pub recorder_pid: u32,
    pub emulated: u32,
    pub order_source: u32,
    pub pid_namespace: u32,
    pub config: Config,
    pub state: Line<ArenaState>,
    pub ids: Line<ArenaIds>,
    pub epoch: Line<ArenaEpoch>,
    pub losses: Line<ArenaLosses>,
    pub unrecorded: Line<ArenaUnrecorded>,
    pub order: Line<ArenaOrder>,
    pub cpu_load: Line<[u16; MAX_CPUS_LOAD]>,
}

/// Number of entries of [`ArenaHeader::cpu_load`].
pub const MAX_CPUS_LOAD: usize = MAX_CPUS;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SlotHot {
    pub accesses: u64,
    pub stall_cycles: u64,
    pub l1_mask: u32,
    pub node: u32,
    pub sample_left: u64,
    pub sample_weight: u64,
    pub cpu: u32,
    pub thread_index: u32,
    pub l3_index: u32,
    pub in_hook: u32,
    pub line_mask: u32,
    pub line_pick: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SlotProducer {
    pub head: u64,
    pub tail_seen: u64,
    pub last_order: u64,
    pub last_clock: u64,
    pub rng: u64,
    pub next_throttle: u64,
    pub hook_frame: u64,
    pub hook_return: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SlotConsumer {
    pub tail: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SlotIdentity {
    pub state: u32,
    pub run_state: u32,
    pub pid: u32,
    pub tid: u32,
    pub process_index: u32,
    pub parent_thread: u32,
    pub stack_lo: u64,
    pub stack_hi: u64,
    pub generation: u64,
    pub pid_namespace: u32,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SlotCounts {
    pub l2_lookups: u64,
    pub l3_lookups: u64,
    pub memory_accesses: u64,
    pub cache_transfers: u64,
    pub memory_writes: u64,
    pub next_counters: u64,
    pub wait_cycles: u64,
    pub memory_cycles: u64,
    pub by_home: [u64; MAX_NODES],
    pub by_home_written: [u64; MAX_NODES],
    pub memory_streamed: u64,
    pub ask_page: u64,
    pub ask_state: u32,
    pub answer_tid: u32,
    pub answer_pages: u32,
    pub ask_failures: u32,
    pub memory_dependent: u64,
    pub scratch: [u8; 984],
}

/// `struct np_slot`: the head of each slot. The recorder reads it while the program writes it: go through atomics or
/// volatile reads at [`offset_of`](std::mem::offset_of) positions, never through a reference.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub hot: Line<SlotHot>,
    pub producer: Line<SlotProducer>,
    pub consumer: Line<SlotConsumer>,
    pub identity: Line<SlotIdentity>,
    pub counts: Line<SlotCounts>,
}

/// Defines `u32` constants and a list of (C name, value) for the test against `wire.h`.
macro_rules! constants {
    ($($(#[$doc:meta])* $name:ident = $c:ident = $value:expr;)*) => {
        $($(#[$doc])* pub const $name: u32 = $value;)*
        /// Every constant with its name in `wire.h`.
        pub const CONSTANTS: &[(&str, u64)] = &[$((stringify!($c), $value)),*];
    };
}

constants! {
    MODE_TRACK = NP_MODE_TRACK = 1;
    MODE_INSTRUMENT = NP_MODE_INSTRUMENT = 2;
    BIND_SPREAD = NP_BIND_SPREAD = 0;
    BIND_PACK = NP_BIND_PACK = 1;
    BIND_NONE = NP_BIND_NONE = 2;
    PLACE_FIRST_TOUCH = NP_PLACE_FIRST_TOUCH = 0;
    PLACE_INTERLEAVE = NP_PLACE_INTERLEAVE = 1;
    ORDER_COUNTER = NP_ORDER_COUNTER = 0;
    ORDER_COUNTER_P = NP_ORDER_COUNTER_P = 1;
    ORDER_SEQUENCE = NP_ORDER_SEQUENCE = 2;
    STATE_RUN = NP_STATE_RUN = 1;
    STATE_STOPPED = NP_STATE_STOPPED = 2;
    SLOT_FREE = NP_SLOT_FREE = 0;
    SLOT_CLAIMED = NP_SLOT_CLAIMED = 1;
    SLOT_LIVE = NP_SLOT_LIVE = 2;
    SLOT_CLOSED = NP_SLOT_CLOSED = 3;
    RUN_RUNNING = NP_RUN_RUNNING = 0;
    RUN_BLOCKED = NP_RUN_BLOCKED = 1;
    REC_PAD = NP_REC_PAD = 1;
    REC_TIME = NP_REC_TIME = 2;
    REC_ALLOC = NP_REC_ALLOC = 3;
    REC_ALLOC_BIG = NP_REC_ALLOC_BIG = 4;
    REC_FREE = NP_REC_FREE = 5;
    REC_MAP = NP_REC_MAP = 6;
    REC_UNMAP = NP_REC_UNMAP = 7;
    REC_STACK = NP_REC_STACK = 8;
    REC_THREAD_START = NP_REC_THREAD_START = 9;
    REC_THREAD_END = NP_REC_THREAD_END = 10;
    REC_THREAD_NAME = NP_REC_THREAD_NAME = 11;
    REC_PROCESS_START = NP_REC_PROCESS_START = 12;
    REC_PROCESS_END = NP_REC_PROCESS_END = 13;
    REC_MODULE = NP_REC_MODULE = 14;
    REC_MODULE_END = NP_REC_MODULE_END = 15;
    REC_ACCESS = NP_REC_ACCESS = 16;
    REC_PLACE = NP_REC_PLACE = 17;
    REC_CPU = NP_REC_CPU = 18;
    REC_SYNC = NP_REC_SYNC = 19;
    REC_COUNTERS = NP_REC_COUNTERS = 20;
    REC_LOST = NP_REC_LOST = 21;
    REC_ALLOC_KIND = NP_REC_ALLOC_KIND = 22;
    REC_MARK = NP_REC_MARK = 23;
    REC_CODE = NP_REC_CODE = 24;
    REC_POOL = NP_REC_POOL = 25;
    REC_POOL_ALLOC = NP_REC_POOL_ALLOC = 26;
    REC_POOL_FREE = NP_REC_POOL_FREE = 27;
    REC_FILE = NP_REC_FILE = 28;
    POOL_CREATED = NP_POOL_CREATED = 0;
    POOL_RESET = NP_POOL_RESET = 1;
    POOL_DESTROYED = NP_POOL_DESTROYED = 2;
    POOL_SAMPLED = NP_POOL_SAMPLED = 1;
    POOL_MOVED = NP_POOL_MOVED = 2;
    JAVA_NO_EVENTS = NP_JAVA_NO_EVENTS = 1;
    JAVA_OTHER = NP_JAVA_OTHER = 2;
    JAVA_COLLECTOR = NP_JAVA_COLLECTOR = 4;
    JAVA_LAYOUT = NP_JAVA_LAYOUT = 8;
    JAVA_FULL = NP_JAVA_FULL = 16;
    ALLOC_MALLOC = NP_ALLOC_MALLOC = 0;
    ALLOC_CALLOC = NP_ALLOC_CALLOC = 1;
    ALLOC_REALLOC = NP_ALLOC_REALLOC = 2;
    ALLOC_ALIGNED = NP_ALLOC_ALIGNED = 3;
    ALLOC_NEW = NP_ALLOC_NEW = 4;
    ALLOC_NEW_ARRAY = NP_ALLOC_NEW_ARRAY = 5;
    ALLOC_NUMA = NP_ALLOC_NUMA = 6;
    ALLOC_BRK = NP_ALLOC_BRK = 7;
    ALLOC_SHM = NP_ALLOC_SHM = 8;
    MAP_ANONYMOUS = NP_MAP_ANONYMOUS = 1;
    MAP_SHARED = NP_MAP_SHARED = 2;
    MAP_EXEC = NP_MAP_EXEC = 4;
    MAP_WRITE = NP_MAP_WRITE = 8;
    MAP_STACK = NP_MAP_STACK = 16;
    MAP_ALLOCATOR = NP_MAP_ALLOCATOR = 32;
    MAP_INITIAL = NP_MAP_INITIAL = 64;
    MAP_HUGE = NP_MAP_HUGE = 128;
    MAP_BRK = NP_MAP_BRK = 256;
    MAP_SHM = NP_MAP_SHM = 512;
    MAP_RENEWED = NP_MAP_RENEWED = 1024;
    ACCESS_WRITE = NP_ACCESS_WRITE = 1;
    ACCESS_ATOMIC = NP_ACCESS_ATOMIC = 2;
    ACCESS_RANGE = NP_ACCESS_RANGE = 4;
    ACCESS_LEVEL_SHIFT = NP_ACCESS_LEVEL_SHIFT = 4;
    ACCESS_PAGE_SHIFT = NP_ACCESS_PAGE_SHIFT = 8;
    ACCESS_ABSENT = NP_ACCESS_ABSENT = 0x4000;
    ACCESS_PRESENT = NP_ACCESS_PRESENT = 0x8000;
    LEVEL_UNKNOWN = NP_LEVEL_UNKNOWN = 0;
    LEVEL_L1 = NP_LEVEL_L1 = 1;
    LEVEL_L2 = NP_LEVEL_L2 = 2;
    LEVEL_L3 = NP_LEVEL_L3 = 3;
    LEVEL_MEMORY = NP_LEVEL_MEMORY = 4;
    LEVEL_PEER_CACHE = NP_LEVEL_PEER_CACHE = 5;
    LEVEL_LINE_FILL = NP_LEVEL_LINE_FILL = 6;
    PLACED_FIRST_TOUCH = NP_PLACED_FIRST_TOUCH = 0;
    PLACED_POLICY = NP_PLACED_POLICY = 1;
    PLACED_MOVED = NP_PLACED_MOVED = 2;
    PLACED_FOUND = NP_PLACED_FOUND = 3;
    PLACED_UNKNOWN = NP_PLACED_UNKNOWN = 4;
    FAULTS_NONE = NP_FAULTS_NONE = 0;
    FAULTS_USER = NP_FAULTS_USER = 1;
    FAULTS_ALL = NP_FAULTS_ALL = 2;
    ASK_NONE = NP_ASK_NONE = 0;
    ASK_ASKED = NP_ASK_ASKED = 1;
    ASK_ANSWERED = NP_ASK_ANSWERED = 2;
    SYNC_CREATE = NP_SYNC_CREATE = 1;
    SYNC_JOIN = NP_SYNC_JOIN = 2;
    SYNC_MUTEX = NP_SYNC_MUTEX = 3;
    SYNC_RWLOCK = NP_SYNC_RWLOCK = 4;
    SYNC_COND = NP_SYNC_COND = 5;
    SYNC_BARRIER = NP_SYNC_BARRIER = 6;
    SYNC_SEM = NP_SYNC_SEM = 7;
    SYNC_ONCE = NP_SYNC_ONCE = 8;
    SYNC_TEAM_START = NP_SYNC_TEAM_START = 9;
    SYNC_TEAM_END = NP_SYNC_TEAM_END = 10;
    SYNC_OMP_BARRIER = NP_SYNC_OMP_BARRIER = 11;
    SYNC_ATOMIC = NP_SYNC_ATOMIC = 12;
    SYNC_FUTEX = NP_SYNC_FUTEX = 13;
    SYNC_SLEEP = NP_SYNC_SLEEP = 14;
    SYNC_WINDOW = NP_SYNC_WINDOW = 15;
    SYNC_IO = NP_SYNC_IO = 16;
    LOST_RING_FULL = NP_LOST_RING_FULL = 1;
    LOST_NO_SLOT = NP_LOST_NO_SLOT = 2;
    LOST_STOPPED = NP_LOST_STOPPED = 3;
    LOST_STACK_TABLE = NP_LOST_STACK_TABLE = 4;
    LOST_REENTRANT = NP_LOST_REENTRANT = 5;
    LOST_AFTER_END = NP_LOST_AFTER_END = 6;
}

/// The type of record with the greatest number.
pub const REC_LAST: u32 = REC_FILE;

/// Name of an `np_sync_kind`, as tables and reports show it.
#[must_use]
pub fn sync_kind_name(kind: u32) -> &'static str {
    const NAMES: [&str; 17] = [
        "unknown",
        "create",
        "join",
        "mutex",
        "rwlock",
        "cond",
        "barrier",
        "sem",
        "once",
        "team_start",
        "team_end",
        "omp_barrier",
        "atomic",
        "futex",
        "sleep",
        "window",
        "io",
    ];
    NAMES.get(kind as usize).copied().unwrap_or("unknown")
}

/// Name of an `np_loss` (cause of lost records), as the table `losses` has it; "unknown" for another number.
#[must_use]
pub fn loss_name(cause: u32) -> &'static str {
    match cause {
        LOST_RING_FULL => "ring_full",
        LOST_NO_SLOT => "no_slot",
        LOST_STOPPED => "stopped",
        LOST_STACK_TABLE => "stack_table",
        LOST_REENTRANT => "reentrant",
        LOST_AFTER_END => "after_end",
        _ => "unknown",
    }
}

/// Name of an `np_place_cause` (why pages got their home), as the table `placements` has it; "unknown" for another number.
#[must_use]
pub fn place_cause_name(cause: u8) -> &'static str {
    match u32::from(cause) {
        PLACED_FIRST_TOUCH => "first_touch",
        PLACED_POLICY => "policy",
        PLACED_MOVED => "moved",
        PLACED_FOUND => "found",
        PLACED_UNKNOWN => "unknown_toucher",
        _ => "unknown",
    }
}
