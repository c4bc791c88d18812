//! Numbers of the perf ABI, by the kernel's names without their prefixes (`include/uapi/linux/perf_event.h`, and for the records that the perf
//! tool adds `tools/lib/perf/include/perf/event.h`).

#![allow(missing_docs)] // Named and documented there.

/// Whether an address is in the kernel's half of the address space. On x86-64 and arm64 alike the upper half is the kernel's, however many bits addresses have:
/// the machine that was recorded may be another than this one.
#[must_use]
pub const fn is_kernel_address(address: u64) -> bool {
    address >> 63 != 0
}

/// Bits of `perf_event_attr.sample_type`, in the order in which the fields were added (not that of the record).
pub mod sample {
    pub const IP: u64 = 1;
    pub const TID: u64 = 1 << 1;
    pub const TIME: u64 = 1 << 2;
    pub const ADDR: u64 = 1 << 3;
    pub const READ: u64 = 1 << 4;
    pub const CALLCHAIN: u64 = 1 << 5;
    pub const ID: u64 = 1 << 6;
    pub const CPU: u64 = 1 << 7;
    pub const PERIOD: u64 = 1 << 8;
    pub const STREAM_ID: u64 = 1 << 9;
    pub const RAW: u64 = 1 << 10;
    pub const BRANCH_STACK: u64 = 1 << 11;
    pub const REGS_USER: u64 = 1 << 12;
    pub const STACK_USER: u64 = 1 << 13;
    pub const WEIGHT: u64 = 1 << 14;
    pub const DATA_SRC: u64 = 1 << 15;
    pub const IDENTIFIER: u64 = 1 << 16;
    pub const TRANSACTION: u64 = 1 << 17;
    pub const REGS_INTR: u64 = 1 << 18;
    pub const PHYS_ADDR: u64 = 1 << 19;
    pub const AUX: u64 = 1 << 20;
    pub const CGROUP: u64 = 1 << 21;
    pub const DATA_PAGE_SIZE: u64 = 1 << 22;
    pub const CODE_PAGE_SIZE: u64 = 1 << 23;
    pub const WEIGHT_STRUCT: u64 = 1 << 24;
    /// All bits that this version decodes.
    pub const KNOWN: u64 = (1 << 25) - 1;
}

/// Bits of `perf_event_attr.read_format`.
pub mod read_format {
    pub const TOTAL_TIME_ENABLED: u64 = 1;
    pub const TOTAL_TIME_RUNNING: u64 = 1 << 1;
    pub const ID: u64 = 1 << 2;
    pub const GROUP: u64 = 1 << 3;
    pub const LOST: u64 = 1 << 4;
}

/// Bits of `perf_event_attr.branch_sample_type` that change the record.
pub mod branch_sample {
    pub const HW_INDEX: u64 = 1 << 17;
    pub const COUNTERS: u64 = 1 << 19;
}

/// Bit numbers of the flags of `perf_event_attr`.
pub mod attr_flag {
    pub const DISABLED: u32 = 0;
    pub const INHERIT: u32 = 1;
    pub const EXCLUDE_USER: u32 = 4;
    pub const EXCLUDE_KERNEL: u32 = 5;
    pub const EXCLUDE_HV: u32 = 6;
    pub const MMAP: u32 = 8;
    pub const COMM: u32 = 9;
    pub const FREQ: u32 = 10;
    pub const ENABLE_ON_EXEC: u32 = 12;
    pub const TASK: u32 = 13;
    pub const WATERMARK: u32 = 14;
    /// First of the two bits of `precise_ip`.
    pub const PRECISE_IP: u32 = 15;
    pub const MMAP_DATA: u32 = 17;
    pub const SAMPLE_ID_ALL: u32 = 18;
    pub const EXCLUDE_GUEST: u32 = 20;
    pub const EXCLUDE_CALLCHAIN_KERNEL: u32 = 21;
    pub const MMAP2: u32 = 23;
    pub const COMM_EXEC: u32 = 24;
    pub const USE_CLOCKID: u32 = 25;
    pub const CONTEXT_SWITCH: u32 = 26;
    pub const AUX_OUTPUT: u32 = 31;
    /// `build_id` (since Linux 5.12).
    pub const BUILD_ID: u32 = 34;
}

/// `perf_event_attr.type`; larger numbers are dynamic and stand in `/sys/bus/event_source/devices/*/type`.
pub mod event_type {
    pub const HARDWARE: u32 = 0;
    pub const SOFTWARE: u32 = 1;
    pub const TRACEPOINT: u32 = 2;
    pub const HW_CACHE: u32 = 3;
    pub const RAW: u32 = 4;
    pub const BREAKPOINT: u32 = 5;
}

/// `perf_event_attr.config` of software events.
pub mod software {
    pub const CPU_CLOCK: u64 = 0;
    pub const TASK_CLOCK: u64 = 1;
    pub const PAGE_FAULTS: u64 = 2;
    pub const PAGE_FAULTS_MIN: u64 = 5;
    pub const PAGE_FAULTS_MAJ: u64 = 6;
    pub const DUMMY: u64 = 9;
}

/// Bits of `perf_event_header.misc`.
pub mod misc {
    pub const CPUMODE_MASK: u16 = 7;
    pub const KERNEL: u16 = 1;
    pub const USER: u16 = 2;
    pub const HYPERVISOR: u16 = 3;
    pub const GUEST_KERNEL: u16 = 4;
    pub const GUEST_USER: u16 = 5;
    pub const MMAP_DATA: u16 = 1 << 13;
    pub const COMM_EXEC: u16 = 1 << 13;
    pub const SWITCH_OUT: u16 = 1 << 13;
    pub const EXACT_IP: u16 = 1 << 14;
    pub const MMAP_BUILD_ID: u16 = 1 << 14;
    pub const SWITCH_OUT_PREEMPT: u16 = 1 << 14;
    /// perf's: a BPF filter dropped the samples.
    pub const LOST_SAMPLES_BPF: u16 = 1 << 15;
}

/// Entries of a call chain from here up are no addresses but say whose the next ones are.
pub const CONTEXT_MAX: u64 = -4095i64 as u64;
pub const CONTEXT_KERNEL: u64 = -128i64 as u64;
pub const CONTEXT_USER: u64 = -512i64 as u64;
/// The user part comes in a record of its own (CALLCHAIN_DEFERRED, Linux 6.19); a number that both have follows.
pub const CONTEXT_USER_DEFERRED: u64 = -640i64 as u64;

/// Flags of an AUX record.
pub mod aux_flag {
    pub const TRUNCATED: u64 = 1;
    pub const OVERWRITE: u64 = 2;
    pub const PARTIAL: u64 = 4;
    pub const COLLISION: u64 = 8;
    /// Something is missing. (Bits 8 to 15 name a format: `PERF_AUX_FLAG_PMU_FORMAT_TYPE_MASK`.)
    pub const INCOMPLETE: u64 = TRUNCATED | PARTIAL | COLLISION;
}

/// Defines the record types and their names.
macro_rules! kinds {
    ($($name:ident = $number:literal;)*) => {
        /// Record types: below 64 the kernel's, from 64 on the perf tool's.
        pub mod kind {
            $(pub const $name: u32 = $number;)*
        }

        /// Name of a record type; `None` for numbers that nobody has defined yet.
        #[must_use]
        pub fn kind_name(kind: u32) -> Option<&'static str> {
            match kind {
                $($number => Some(stringify!($name)),)*
                _ => None,
            }
        }
    };
}

kinds! {
    MMAP = 1;
    LOST = 2;
    COMM = 3;
    EXIT = 4;
    THROTTLE = 5;
    UNTHROTTLE = 6;
    FORK = 7;
    READ = 8;
    SAMPLE = 9;
    MMAP2 = 10;
    AUX = 11;
    ITRACE_START = 12;
    LOST_SAMPLES = 13;
    SWITCH = 14;
    SWITCH_CPU_WIDE = 15;
    NAMESPACES = 16;
    KSYMBOL = 17;
    BPF_EVENT = 18;
    CGROUP = 19;
    TEXT_POKE = 20;
    AUX_OUTPUT_HW_ID = 21;
    CALLCHAIN_DEFERRED = 22;
    HEADER_ATTR = 64;
    HEADER_EVENT_TYPE = 65;
    HEADER_TRACING_DATA = 66;
    HEADER_BUILD_ID = 67;
    FINISHED_ROUND = 68;
    ID_INDEX = 69;
    AUXTRACE_INFO = 70;
    AUXTRACE = 71;
    AUXTRACE_ERROR = 72;
    THREAD_MAP = 73;
    CPU_MAP = 74;
    STAT_CONFIG = 75;
    STAT = 76;
    STAT_ROUND = 77;
    EVENT_UPDATE = 78;
    TIME_CONV = 79;
    HEADER_FEATURE = 80;
    COMPRESSED = 81;
    FINISHED_INIT = 82;
    COMPRESSED2 = 83;
    BPF_METADATA = 84;
    SCHEDSTAT_CPU = 85;
    SCHEDSTAT_DOMAIN = 86;
}
