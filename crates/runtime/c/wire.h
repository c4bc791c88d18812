/* wire.h: what the runtime inside a recorded program shares with the recorder.
 *
 * Two things: the *arena* (one memfd per recording, mapped by every process of it) and the *records* that threads
 * write into their rings in it. `crates/trace/src/wire/` is the Rust side; a test there compiles this header and
 * compares every size, offset and constant.
 *
 * Conventions: little-endian, all fields naturally aligned, offsets in bytes from the arena's start. "Order" stamps are
 * the host's time-stamp counter (they order events of different threads as they really happened on this machine);
 * "clock" stamps are the thread's program time in cycles of the simulated machine (of the host's TSC where no machine is
 * simulated).
 */
#ifndef NUMAPILOT_WIRE_H
#define NUMAPILOT_WIRE_H

#include <stdint.h>

#define NP_ARENA_MAGIC 0x31414e4552415049ull /* "IPARENA1" */
#define NP_ARENA_VERSION 3u

#define NP_MAX_NODES 64
#define NP_MAX_CPUS 1024
#define NP_PATH_MAX 256
#define NP_PAGE_SHIFT 12
#define NP_LINE_SHIFT 6
/* User-space addresses are below this: with page tables of 4 levels (x86-64), with 48 bits (arm64). Kernels with larger address spaces give what lies beyond
 * only to who asks for it (a hint of mmap). */
#ifndef NP_ADDRESS_BITS
#if defined(__aarch64__)
#define NP_ADDRESS_BITS 48
#else
#define NP_ADDRESS_BITS 47
#endif
#endif
#define NP_ADDRESS_END (1ull << NP_ADDRESS_BITS)
#define NP_FILTER_OFFSET 4096u /* np_arena.filter_offset: fixed, because the call-outs' inline filter has it as a constant */

/* How much the runtime records (np_config.mode). */
enum np_mode {
    NP_MODE_TRACK = 1,      /* lifecycles only; clock = TSC */
    NP_MODE_INSTRUMENT = 2, /* lifecycles, every access, a simulated machine, virtual time */
};

enum np_bind {
    NP_BIND_SPREAD = 0, /* thread k on cpu_order[k % cpu_count]; the recorder wrote an order that alternates nodes */
    NP_BIND_PACK = 1,   /* the same rule, over an order that fills one node after the other */
    NP_BIND_NONE = 2,   /* idlest CPU at start, and again at each wake-up when its own CPU is taken */
};

enum np_placement {
    NP_PLACE_FIRST_TOUCH = 0,
    NP_PLACE_INTERLEAVE = 1, /* page number modulo nodes with memory, as MPOL_INTERLEAVE over all nodes */
};

/* Where order stamps come from (np_arena.order_source); order.h has the reasons. */
enum np_order_source {
    NP_ORDER_COUNTER = 0,   /* the processor's counter: LFENCE, RDTSC on x86-64; DSB, ISB, CNTVCT_EL0 on Arm */
    NP_ORDER_COUNTER_P = 1, /* the same by RDTSCP, where LFENCE is not known to wait for earlier instructions */
    NP_ORDER_SEQUENCE = 2,  /* np_arena.order_sequence: the counters of different CPUs cannot be compared */
};

/* Set by the recorder before the program starts; constant afterwards. */
struct np_config {
    uint32_t mode;
    uint32_t bind;
    uint32_t placement;
    uint32_t node_count;
    uint32_t cpu_count;           /* CPUs of the simulated machine that threads may use */
    uint32_t clock_khz;           /* of the simulated CPU: converts clock stamps to time */
    uint64_t seed;                /* sampling intervals and random replacement draw from it */
    uint64_t sample_period;       /* memory accesses per sample; 0: adapt to sample_rate_hz */
    uint32_t sample_rate_hz;      /* target, samples per second of program time, whole program (default 10,000) */
    uint32_t window_cycles;       /* how far a thread's clock may run ahead of the slowest running thread's */
    uint32_t cycles_per_access_q8; /* work charged per instrumented access, in 1/256 cycle */
    uint32_t l1_lines;            /* power of two: first-stage filter, direct mapped */
    uint32_t l2_sets;             /* power of two */
    uint32_t l2_ways;             /* <= 16; l2 = L1 and L2 together */
    uint32_t l3_sets;             /* power of two, per node (per L3); 0: no L3 */
    uint32_t l3_ways;             /* <= 16 */
    uint32_t l3_count;            /* L3 caches on the machine */
    uint32_t l2_cycles;           /* load-to-use latencies */
    uint32_t l3_cycles;
    uint32_t dir_entries_log2;    /* coherence directory, entries */
    uint32_t max_stack_depth;     /* frames kept per stack, <= 128 */
    uint32_t core_window;         /* accesses that a core of the simulated machine looks ahead while it waits for memory */
    uint32_t core_misses;         /* misses that it keeps outstanding, at most; at least 1 */
    uint32_t line_sampling;       /* one cache line in this many is simulated (a power of two up to 64; 1: all). The geometries below hold for the
                                     simulated lines alone, and so do the counts in slots; records hold the scaled ones */
    uint16_t memory_latency_cycles[NP_MAX_NODES][NP_MAX_NODES]; /* [from][to], idle */
    uint8_t node_has_memory[NP_MAX_NODES];
    uint8_t node_order[NP_MAX_NODES][NP_MAX_NODES]; /* fallback order of nodes seen from each node, nearest first */
    uint16_t cpu_order[NP_MAX_CPUS]; /* model CPU ids in the order in which threads take them */
    uint16_t cpu_node[NP_MAX_CPUS];  /* indexed by model CPU id */
    uint16_t cpu_l3[NP_MAX_CPUS];    /* which L3 a model CPU shares */
    uint8_t node_distance[NP_MAX_NODES][NP_MAX_NODES]; /* as firmware would state them, 10: local; 0: not known */
    uint64_t node_memory_bytes[NP_MAX_NODES]; /* installed; 0: none, or not known */
    char machine_files[NP_PATH_MAX]; /* folder that holds the simulated machine's /sys and /proc, ends with a zero; empty: there is none */
};

/* At arena offset 0. Each group of fields that different parties write has a cache line of its own. */
struct np_arena {
    uint64_t magic;
    uint32_t version;
    uint32_t header_bytes;   /* sizeof(struct np_arena) rounded up to a page */
    uint64_t arena_bytes;
    uint64_t slots_offset;
    uint32_t slot_count;
    uint32_t slot_bytes;     /* one slot: header page, private filter, ring */
    uint32_t filter_offset;  /* from the slot's start */
    uint32_t filter_bytes;
    uint32_t ring_offset;    /* from the slot's start */
    uint32_t ring_bytes;     /* power of two */
    uint64_t l3_offset;      /* l3_count arrays of l3_sets * l3_ways uint32_t tags */
    uint64_t dir_offset;     /* 1 << dir_entries_log2 uint64_t */
    uint64_t sync_offset;    /* sync-clock table: 1 << 16 entries of 16 bytes {uint64_t key, uint64_t clock} */
    uint64_t start_order;    /* order stamp when the recorder made the arena */
    uint64_t start_ns;       /* CLOCK_MONOTONIC at the same moment */
    uint32_t recorder_pid;
    uint32_t emulated;       /* 1: programs run under an emulator, whose plugin sees their accesses (emulator.h) */
    uint32_t order_source;   /* enum np_order_source */
    uint32_t pid_namespace;  /* of the recorder: inode of its namespace of process numbers; 0: not known */
    struct np_config config;

    _Alignas(64) uint32_t state;  /* enum np_state, written by the recorder, read by all processes */
    uint32_t drain_futex;         /* recorder sleeps here; a producer whose ring is half full wakes it */
    uint32_t fault_futex;         /* counts questions of threads (ask_state); who answers them sleeps here */
    uint32_t fault_events;        /* enum np_fault_events, written by the recorder before the program starts */

    _Alignas(64) uint32_t next_stack_id;   /* fetch_add; ids start at 1, unique in the recording */
    uint32_t next_thread_index;            /* fetch_add; creation order, from 0 */
    uint32_t next_process_index;           /* fetch_add, from 0 */
    uint32_t next_module_id;               /* fetch_add, from 1 */
    uint32_t next_code_id;                 /* fetch_add, from 1 */

    _Alignas(64) uint32_t epoch_futex;     /* virtual time: waiters for slower threads sleep here */
    uint32_t epoch_waiters;
    uint64_t slots_high;                   /* number of slots ever used (scan bound) */

    _Alignas(64) uint64_t lost_no_slot;    /* records lost because a thread found no slot (counted, shown) */
    uint64_t lost_full;                    /* records lost because a ring stayed full */
    uint64_t lost_stopped;                 /* records not written because recording had stopped */
    uint64_t failed_unwinds;               /* stacks that ended early */
    uint64_t lost_after_end;               /* records of threads whose slot had already gone to another */
    uint64_t early_timeouts;               /* no loss: waits that timed out in host time while another thread was behind that in program time */

    _Alignas(64) uint32_t limited_processes; /* that have a limit on addresses of which this arena would take too much (core.c) */
    /* By reason, in the order of enum np_exec_fit from NP_EXEC_STATIC on (exec_target.h): */
    uint32_t unrecorded_programs[3];       /* executions of programs that run without the tracker */
    uint32_t unrecorded_named[3];          /* 2: unrecorded_name is whole */
    char unrecorded_name[3][244];          /* path of the first of those programs, ends with a zero */
    uint32_t java_machines;                /* Java virtual machines that have loaded the agent (java.h) */
    uint32_t java_troubles;                /* enum np_java_trouble, or-ed */
    uint64_t java_dropped;                 /* objects that were not followed because too many were already */
    uint64_t last_map_order;               /* stamp of the last mapping, in whichever process */

    _Alignas(64) uint64_t order_sequence; /* the last stamp taken (NP_ORDER_SEQUENCE) */

    _Alignas(64) uint16_t cpu_load[NP_MAX_CPUS]; /* running threads per model CPU (NP_BIND_NONE) */
};

enum np_state {
    NP_STATE_RUN = 1,
    NP_STATE_STOPPED = 2, /* the recorder cannot keep up with its disk, or is gone: write nothing any more */
};

/* What the recorder knows of page faults; it answers threads that ask for the first toucher of a page. */
enum np_fault_events {
    NP_FAULTS_NONE = 0, /* nothing: the kernel refuses such events, or no process reads them */
    NP_FAULTS_USER = 1, /* those of user code; not those that the kernel had on its behalf */
    NP_FAULTS_ALL = 2,
};

enum np_ask_state { NP_ASK_NONE = 0, NP_ASK_ASKED = 1, NP_ASK_ANSWERED = 2 };

/* What the first-stage filter is asked for an address: its line, where that is simulated, else its page (whose home must be known all the same, so
 * the page's first touch has to be seen). */
#define NP_PAGE_KEY (1ull << 44)
#define NP_LINE_HASH 0x9e3779b97f4a7c15ull
static inline uint64_t np_key_of(uint64_t address, uint32_t line_mask, uint32_t line_pick) {
    uint64_t line = address >> NP_LINE_SHIFT, page = address >> NP_PAGE_SHIFT | NP_PAGE_KEY;
    uint64_t other = -(uint64_t)(((uint32_t)((line * NP_LINE_HASH) >> 40) & line_mask) != line_pick);
    return line ^ ((line ^ page) & other);
}

enum np_slot_state {
    NP_SLOT_FREE = 0,
    NP_SLOT_CLAIMED = 1,
    NP_SLOT_LIVE = 2,
    NP_SLOT_CLOSED = 3, /* its thread wrote its end. What the thread's last steps in the C library free, it adds (back to LIVE meanwhile); when the
                           system knows the thread no more, the recorder takes the slot (CLAIMED), drains what is left, and sets FREE */
};

enum np_run_state {
    NP_RUN_RUNNING = 0,
    NP_RUN_BLOCKED = 1, /* waits for another thread, sleeps, or idles in a pool: others need not wait for its clock */
};

/* Head of each slot, one per live thread. Filter arrays follow at filter_offset: first l1_lines uint64_t entries (key << 1 | writable, 0 empty; np_key_of),
 * then l2_sets * l2_ways uint32_t tags. The ring follows at ring_offset. */
struct np_slot {
    /* -- line 0: the owner's hot fields -- */
    uint64_t accesses;      /* instrumented accesses so far */
    uint64_t stall_cycles;  /* everything else that moved the clock: clock = stall + accesses * cycles_per_access_q8 / 256 */
    uint32_t l1_mask;       /* l1_lines - 1 */
    uint32_t node;          /* of the model CPU that it runs on */
    uint64_t sample_left;   /* memory accesses until the next sample */
    uint64_t sample_weight; /* mean period in force when sample_left was drawn: the weight of that sample */
    uint32_t cpu;           /* model CPU */
    uint32_t thread_index;
    uint32_t l3_index;
    uint32_t in_hook;       /* re-entrancy guard */
    uint32_t line_mask;     /* line_sampling - 1 */
    uint32_t line_pick;     /* lines whose hash under the mask is this are simulated */

    /* -- line 1: ring producer -- */
    _Alignas(64) uint64_t head; /* bytes ever written; release store after the record is whole */
    uint64_t tail_seen;
    uint64_t last_order;        /* stamps of the last record, base of the 32-bit deltas */
    uint64_t last_clock;
    uint64_t rng;
    uint64_t next_throttle;     /* clock at which the window is checked again */
    uint64_t hook_frame;        /* where the guard was taken (in_hook): frame of that function, and the return address in it (np.h) */
    uint64_t hook_return;

    /* -- line 2: ring consumer -- */
    _Alignas(64) uint64_t tail; /* bytes ever drained, written by the recorder */

    /* -- line 3: identity and states -- */
    _Alignas(64) uint32_t state;     /* enum np_slot_state */
    uint32_t run_state;              /* enum np_run_state */
    uint32_t pid;
    uint32_t tid;
    uint32_t process_index;
    uint32_t parent_thread;
    uint64_t stack_lo, stack_hi;
    uint64_t generation;             /* counts re-uses of the slot */
    uint32_t pid_namespace;          /* in which pid and tid are numbered, as np_arena.pid_namespace; 0: not known */
    uint32_t reserved;

    /* -- exact counts, read by the recorder at any time; written to the ring as NP_REC_COUNTERS -- */
    _Alignas(64) uint64_t l2_lookups;     /* accesses that left the first-stage filter */
    uint64_t l3_lookups;                  /* accesses that left the private filter */
    uint64_t memory_accesses;             /* accesses that left the L3 filter: memory or another node's cache */
    uint64_t cache_transfers;             /* of these, answered by another thread's cache */
    uint64_t memory_writes;               /* of memory_accesses, stores */
    uint64_t next_counters;               /* clock of the next NP_REC_COUNTERS */
    uint64_t wait_cycles;                 /* clock spent waiting for other threads */
    uint64_t memory_cycles;               /* clock charged for memory_accesses: idle latencies over those that are outstanding at a time */
    uint64_t by_home[NP_MAX_NODES];       /* memory_accesses by home node */
    uint64_t by_home_written[NP_MAX_NODES]; /* values in the last NP_REC_COUNTERS */
    uint64_t memory_streamed;             /* of memory_accesses, continued a stream that the hardware prefetches; counted like l2_lookups */
    uint64_t ask_page;                    /* page whose last fault this thread asks for */
    uint32_t ask_state;                   /* enum np_ask_state; the thread sleeps here */
    uint32_t answer_tid;                  /* thread that faulted, as the kernel numbers it; 0: no such fault is known; UINT32_MAX: any of several */
    uint32_t answer_pages;                /* so many pages from ask_page on were faulted last by that thread */
    uint32_t ask_failures;                /* questions that were not answered in time */
    uint64_t memory_dependent;            /* of memory_accesses, continued no stream, and another's address came from their line; an estimate (overlap.c) */
    uint8_t scratch[984];                 /* private to the runtime's parts, see np.h */
};

/* ---- records ----
 * Every record starts with two words:
 *   word 0: bits 0-7 type, bits 8-15 length in 8-byte words (whole record; 0: more than 255 words, the length follows from the record's own counts of
 *           frames or bytes), bits 16-63 an address or other 48-bit value
 *   word 1: bits 0-31 order delta, bits 32-63 clock delta since the previous record in this ring
 * Addresses are user-space addresses, below NP_ADDRESS_END. A delta that does not fit is preceded by NP_REC_TIME, which sets both bases.
 * Records never wrap: NP_REC_PAD fills the ring's end. A thread's ring begins with NP_REC_TIME and NP_REC_THREAD_START.
 * Strings are bytes with their length given, padded with zeros to 8.
 * Where a word holds several fields ("a | b"), they are listed from bit 0 upwards; 32 bits each unless a width is given.
 * "None" or "unknown" (parent, CPU, node, home) is all ones in the field's width. */
#define NP_NONE16 0xffffu
#define NP_NONE32 0xffffffffu
enum np_record {
    NP_REC_PAD = 1,          /* only word 0; the 48-bit value is the number of bytes to skip, word included */
    NP_REC_TIME = 2,         /* value 0; word 1 = 0; word 2 order; word 3 clock */
    NP_REC_ALLOC = 3,        /* value address; word 2: stack id (32) | size (32) */
    NP_REC_ALLOC_BIG = 4,    /* value address; word 2: stack id (32) | alloc kind (32); word 3: size */
    NP_REC_FREE = 5,         /* value address. Stamped before the block is given back */
    NP_REC_MAP = 6,          /* value address; word 2: stack id | map flags (32, np_map_flags); word 3: length; word 4: file offset; word 5: path
                             bytes (32) | 0;
                                path follows (empty: anonymous) */
    NP_REC_UNMAP = 7,        /* value address; word 2: length. Stamped before the system call */
    NP_REC_STACK = 8,        /* value stack id; word 2: frames (32) | flags (32; 1: cut at max depth, 2: unwinding failed); then one word per return
                             address, innermost first */
    NP_REC_THREAD_START = 9, /* value thread index; word 2: pid | tid; word 3: parent thread index | process index; word 4: cpu | node;
                                word 5, 6: stack low, high; word 7: start routine; word 8: creating stack id */
    NP_REC_THREAD_END = 10,  /* value thread index */
    NP_REC_THREAD_NAME = 11, /* value byte count; name follows from word 2 */
    NP_REC_PROCESS_START = 12, /* value process index; word 2: pid | parent pid; word 3: exe bytes | command-line bytes (arguments joined by NUL);
                             word 4: parent process
                                index | 1 if by exec; exe, then command line, each padded */
    NP_REC_PROCESS_END = 13, /* value process index; word 2: exit kind (32; 0 exit, 1 exec) | code (32) */
    NP_REC_MODULE = 14,      /* value module id; word 2: lowest address; word 3: length; word 4: load bias; word 5: path bytes | build-id bytes;
                             path, then build id, each padded */
    NP_REC_MODULE_END = 15,  /* value module id (dlclose) */
    NP_REC_ACCESS = 16,      /* value address; word 2: np_access_bits (16) | instruction pointer (48); word 3: stack id | weight (32); word 4: home
                             node (16) | cpu (16) | latency cycles (32, 0 unknown) */
    NP_REC_PLACE = 17,       /* value address of first page; word 2: pages (32) | node (16) | cause (16, np_place_cause); word 3, where
                                another thread than the ring's was the first toucher: its index */
    NP_REC_CPU = 18,         /* this thread now runs on: value cpu; word 2: node */
    NP_REC_SYNC = 19,        /* value address of the object (or thread index for join/create); word 2: np_sync_kind (32) | 0; word 3: clock at which
                             the wait began (its end is this
                                record's clock) */
    NP_REC_COUNTERS = 20,    /* value thread index; word 2 accesses; 3 l2_lookups; 4 l3_lookups; 5 memory_accesses; 6 cache_transfers; 7
                             memory_writes; 8 wait_cycles; 9 node count n;
                                then n words: memory accesses by home; then memory_cycles; memory_streamed; memory_dependent. Totals since thread start */
    NP_REC_LOST = 21,        /* value count; word 2: np_loss */
    NP_REC_ALLOC_KIND = 22,  /* value address; word 2: stack id | size (32); as NP_REC_ALLOC, with word 3 alloc kind: used for every kind but malloc */
    NP_REC_MARK = 23,        /* value byte count; text follows: a mark that the program set (phase names) */
    NP_REC_CODE = 24,        /* value code id: an interpreter's function; word 2: name bytes | file bytes; word 3: bytes of its table of lines | first
                                line (0: no table, for its length); word 4: minor version of Python 3, which says how the table is written, or
                                NP_CODE_JAVA: pairs of an index of bytecode and a line (16 bits each), in any order; name, file and table follow, each
                                padded */
    NP_REC_POOL = 25,        /* value number of a pool that the program carries itself, in its process; word 2: name bytes | np_pool_event; name follows.
                                All but the first event end the pool's blocks, and are stamped before they are given back */
    NP_REC_POOL_ALLOC = 26,  /* value address, in memory that other records tell of; word 2: stack id | pool; word 3: size; word 4, where another
                                thread than the ring's allocated it: its index (all ones: the ring's, where word 5 follows); word 5, where only a
                                sample of such blocks is recorded: mean bytes that a thread allocates from one sample to the next (32, 0: each
                                block is one) | np_pool_sample. Stamped after it was made */
    NP_REC_POOL_FREE = 27,   /* value address; word 2: pool. Stamped before the block is given back */
    NP_REC_FILE = 28,        /* a file whose pages processes may share. Value address of the mapping of it of which this ring's next NP_REC_MAP tells; 0: none.
                                Word 2: device; word 3: inode; word 4: when it was made, ns since 1970 (0: not known, of memory, whose inode numbers are not
                                used again); word 5, 6: the first byte and number of those that the thread has just given memory (0: none); word 7: the
                                node of that (NP_NONE16: unknown) */
};

enum np_pool_event { NP_POOL_CREATED = 0, NP_POOL_RESET = 1, NP_POOL_DESTROYED = 2 };
/* A sampled block: where it was allocated, or a later place of it. */
enum np_pool_sample { NP_POOL_SAMPLED = 1, NP_POOL_MOVED = 2 };

/* A frame of NP_REC_STACK that is no return address but a place in an interpreter's function: these upper 16 bits, 28 of the code id, and the number of the
 * instruction. No address of a program or kernel looks like it, nor does text that a kernel's walk along frame pointers took for an address. */
#define NP_CODE_FRAME (0x7f8dull << 48)
/* The same of a Java method; the instruction's number is its index in the bytecode. */
#define NP_JAVA_FRAME (0x7f8eull << 48)
#define NP_CODE_JAVA 0
#define NP_CODE_SHIFT 20
#define NP_CODE_IDS (1u << 28)
#define NP_CODE_UNITS (1 << NP_CODE_SHIFT)

/* Why objects of a Java virtual machine are not followed, or not all. */
enum np_java_trouble {
    NP_JAVA_NO_EVENTS = 1,  /* before Java 11, or another agent has the events */
    NP_JAVA_OTHER = 2,      /* no HotSpot */
    NP_JAVA_COLLECTOR = 4,  /* a collector that moves objects while the program runs, or one that is not known */
    NP_JAVA_LAYOUT = 8,     /* references are not laid out as expected */
    NP_JAVA_FULL = 16,      /* more objects than are followed */
};

enum np_alloc_kind {
    NP_ALLOC_MALLOC = 0, NP_ALLOC_CALLOC = 1, NP_ALLOC_REALLOC = 2, NP_ALLOC_ALIGNED = 3, NP_ALLOC_NEW = 4, NP_ALLOC_NEW_ARRAY = 5,
    NP_ALLOC_NUMA = 6, /* numa_alloc_*: whole pages */
    NP_ALLOC_BRK = 7,
    NP_ALLOC_SHM = 8,
};

enum np_map_flags {
    NP_MAP_ANONYMOUS = 1, NP_MAP_SHARED = 2, NP_MAP_EXEC = 4, NP_MAP_WRITE = 8,
    NP_MAP_STACK = 16,     /* a thread's stack */
    NP_MAP_ALLOCATOR = 32, /* made inside an allocation call: an allocator's own arena, shown only where no block covers it */
    NP_MAP_INITIAL = 64,   /* was there when recording of the process began */
    NP_MAP_HUGE = 128,
    NP_MAP_BRK = 256,
    NP_MAP_SHM = 512,
    NP_MAP_RENEWED = 1024, /* no new mapping: of what is mapped there, a part was mapped again, nobody knows which; its pages are new */
};

enum np_access_bits { /* low 16 bits beside the instruction pointer */
    NP_ACCESS_WRITE = 1, NP_ACCESS_ATOMIC = 2, NP_ACCESS_RANGE = 4,
    /* bits 4-7: level that answered (np_level) */
    NP_ACCESS_LEVEL_SHIFT = 4,
    /* Of a page fault, bits 8-13: binary logarithm of the size of the page that was there before or, where none was, of the one that came; 0: not known.
     * Neither of the next two: whether a page was there is not known. 0 in accesses. */
    NP_ACCESS_PAGE_SHIFT = 8, NP_ACCESS_ABSENT = 1 << 14, NP_ACCESS_PRESENT = 1 << 15,
};

enum np_level { NP_LEVEL_UNKNOWN = 0, NP_LEVEL_L1 = 1, NP_LEVEL_L2 = 2, NP_LEVEL_L3 = 3, NP_LEVEL_MEMORY = 4, NP_LEVEL_PEER_CACHE = 5,
                NP_LEVEL_LINE_FILL = 6 };

enum np_place_cause { NP_PLACED_FIRST_TOUCH = 0, NP_PLACED_POLICY = 1, NP_PLACED_MOVED = 2,
                      NP_PLACED_FOUND = 3, /* was there when recording of the process began */
                      NP_PLACED_UNKNOWN = 4 /* unrecorded code touched it first: first toucher and home are unknown; node: of the first recorded access */ };

enum np_sync_kind {
    NP_SYNC_CREATE = 1, NP_SYNC_JOIN = 2, NP_SYNC_MUTEX = 3, NP_SYNC_RWLOCK = 4, NP_SYNC_COND = 5, NP_SYNC_BARRIER = 6, NP_SYNC_SEM = 7,
    NP_SYNC_ONCE = 8, NP_SYNC_TEAM_START = 9, NP_SYNC_TEAM_END = 10, NP_SYNC_OMP_BARRIER = 11, NP_SYNC_ATOMIC = 12, NP_SYNC_FUTEX = 13, NP_SYNC_SLEEP = 14,
    NP_SYNC_WINDOW = 15, /* never written: waits for slower threads cost no program time */
    NP_SYNC_IO = 16,
};

enum np_loss {
    NP_LOST_RING_FULL = 1, NP_LOST_NO_SLOT = 2, NP_LOST_STOPPED = 3, NP_LOST_STACK_TABLE = 4,
    NP_LOST_REENTRANT = 5, /* a signal handler came into the middle of a record, or of the allocator */
    NP_LOST_AFTER_END = 6, /* of a thread that had ended */
};

#endif
