/* plan_wire.h: a plan as the planner library reads it: compiled by numapilot, mapped shared by every process of a run.
 *
 * crates/apply/src/image.rs writes it, with the numbers of layout.rs there; tests of both compile this header and compare. Everything is
 * little-endian and naturally aligned. The counters at the end of each rule are the library's: numapilot reads them when the program has ended.
 */
#ifndef NUMAPILOT_PLAN_WIRE_H
#define NUMAPILOT_PLAN_WIRE_H

#include <stdint.h>

#define NP_PLAN_MAGIC 0x314e414c5041554eull
#define NP_PLAN_VERSION 1u
#define NP_PLAN_NODES 64
#define NP_PLAN_CPU_WORDS 16 /* 1,024 CPUs */
#define NP_PLAN_RANGES 8
#define NP_PLAN_NAME 128
#define NP_PLAN_TEXT 512

enum np_plan_kind { NP_PLAN_DYNAMIC = 0, NP_PLAN_STATIC = 1, NP_PLAN_FILE = 2 };
enum np_plan_policy {
    NP_PLAN_NODE = 1,
    NP_PLAN_INTERLEAVE = 2,
    NP_PLAN_WEIGHTED = 3,
    NP_PLAN_LOCAL = 4,
    NP_PLAN_FIRST_USE = 5,
    NP_PLAN_SPLIT = 6,
    NP_PLAN_REPLICATE = 7,
    NP_PLAN_HAND_OVER = 8,
};
enum np_plan_flags { NP_PLAN_STRICT = 1, NP_PLAN_HUGE = 2, NP_PLAN_NO_HUGE = 4, NP_PLAN_OWN_WEIGHTS = 8 };
/* TWINS: blocks lie within pages and cache sets as those of the program's own allocator. For measurements: twice the addresses. EMULATED: the program's
 * processor is emulated, and the emulator keeps a table of all pages that are mapped, reserved ones too. */
enum np_plan_image_flags { NP_PLAN_TWINS = 1, NP_PLAN_EMULATED = 2 };
#define NP_PLAN_NO_PATTERN 0xffffffffu
#define NP_PLAN_SPREAD 1u

struct np_plan_range {
    uint64_t first, last; /* both in */
};

struct np_plan_rule {
    uint32_t kind;
    uint32_t policy;
    uint32_t flags;
    uint32_t range_count;   /* of `instances`; 0: all */
    uint64_t nodes;         /* bit per node: of NODE, INTERLEAVE, WEIGHTED, SPLIT */
    uint64_t min_size, max_size;
    uint64_t patterns;      /* bit per frame pattern: all must be found in the stack. 0: any stack */
    uint32_t to_pattern;    /* HAND_OVER: start functions that match; NP_PLAN_NO_PATTERN: none */
    uint32_t reserved;
    struct np_plan_range instances[NP_PLAN_RANGES];
    uint8_t weights[NP_PLAN_NODES]; /* with NP_PLAN_OWN_WEIGHTS */
    char process[NP_PLAN_NAME];     /* pattern; empty: any */
    char text[NP_PLAN_TEXT];        /* FILE: pattern of the path; HAND_OVER: pattern of the thread's name */
    /* counters */
    uint64_t placed;        /* objects */
    uint64_t placed_bytes;
    uint64_t passed;        /* objects that matched and were not placed: no memory, or the kernel refused */
    uint64_t failures;      /* refused calls */
    uint64_t last_errno;
    uint64_t moved;         /* hand-overs done */
};

struct np_plan_place {
    char name[NP_PLAN_NAME];    /* thread rules: pattern of its name; empty: any */
    char process[NP_PLAN_NAME]; /* pattern of the program's file name; empty: any */
    uint32_t start_pattern;     /* thread rules: its start function lies in this frame pattern; NP_PLAN_NO_PATTERN: any */
    uint32_t range_count;       /* of `order`; 0: any */
    uint32_t layout;            /* NP_PLAN_SPREAD or 0 */
    uint32_t by_node;           /* spread over nodes, not CPUs */
    struct np_plan_range order[NP_PLAN_RANGES];
    uint64_t nodes;             /* by_node */
    uint64_t cpus[NP_PLAN_CPU_WORDS]; /* all that the rule names */
    /* counters */
    uint64_t seen;              /* process rules: processes that match but for `order` */
    uint64_t taken;             /* matched, in this order */
    uint64_t placed;            /* pinned */
    uint64_t failures;
    uint64_t last_errno;
};

struct np_plan_module {
    uint64_t device, inode; /* of the file */
};

/* Addresses as the module's own headers count (without load bias); `last` is in. Code ranges of a module do not overlap, and are sorted. */
struct np_plan_code {
    uint32_t module, reserved;
    uint64_t first, last;
    uint64_t patterns;
};
struct np_plan_static {
    uint32_t module, rule;
    uint64_t first, last;
};

struct np_plan {
    uint64_t magic;
    uint32_t version;
    uint32_t flags;        /* np_plan_image_flags */
    uint64_t bytes;
    uint64_t memory_nodes; /* bit per node */
    uint32_t rule_count, thread_count, process_count, module_count, code_count, static_count;
    /* offsets from the start, in bytes */
    uint64_t rules, threads, processes, modules, code, statics;
    uint64_t min_size, max_size; /* of the dynamic rules; min above max: there is none */
    uint64_t node_cpus[NP_PLAN_NODES][NP_PLAN_CPU_WORDS];
    /* counters */
    uint64_t attached;      /* processes that the library was loaded into */
    uint64_t no_memory;     /* processes in which it could not reserve addresses: no dynamic rule holds there */
    uint64_t unplaced_programs; /* programs started that run without the library, because they cannot load it (exec_target.c) */
    uint64_t whole_objects; /* objects that went to one node as a whole where they should have been cut: too many mappings */
};

/* Behind the plan, from the next multiple of 8 on, where the file is that long: NP_PLAN_NUMBERED of these, at first all zeroes. A process that is forked and
 * then executes a program is met twice; its numbers stay. */
#define NP_PLAN_NUMBERED 4096u
struct np_plan_numbered {
    uint64_t process;       /* when it began, in clock ticks, << 22 | pid; 0: free */
    uint64_t rule;          /* process rule + 1; 0: that the process was counted */
    uint64_t order, number; /* among `seen` and `taken` of the rule; `number` + 1, 0: not taken */
};

#endif
