/* track.h: what the tracker's own files (core, ring, alloc, map, thread, process, modules, stack, unwind) share with each
 * other and with nobody else: thread-local state, system calls that leave errno alone, and the real functions behind the hooks.
 */
#ifndef NUMAPILOT_TRACK_H
#define NUMAPILOT_TRACK_H

#include "np.h"

#include <errno.h>
#include <pthread.h>
#include <sys/types.h>

#pragma GCC visibility push(hidden)

enum np_phase {
    NP_PHASE_NEW = 0,   /* no hook has run in this thread yet */
    NP_PHASE_LIVE = 1,
    NP_PHASE_BUSY = 2,  /* claiming a slot: hooks reached from there do nothing */
    NP_PHASE_ENDED = 3, /* the slot is closed; only what is still freed in this thread is added to it (thread.c) */
    NP_PHASE_NO_SLOT = 4, /* all slots were taken: what happens in this thread is counted as lost */
};

/* Small on purpose: thread-local storage of a preloaded library is carved out of every thread's stack. */
struct np_tls {
    struct np_slot *slot;
    struct np_stack_cache *stacks;
    uint32_t phase;
    uint32_t in_alloc;     /* inside the real allocator on behalf of a hook */
    uintptr_t alloc_frame, alloc_return; /* the frame of that hook, and its return address; 0: not of one */
    uint32_t nested;       /* blocks made by allocation hooks reached from there */
    void *nested_last;     /* the last of those blocks */
    size_t nested_bytes;   /* and its size */
    void *outer_block;     /* the block that the outermost hook gives back */
    uintptr_t python_state; /* of the Python interpreter, when the thread was last seen there (python.h) */
    uint32_t end_rounds;   /* rounds of key destructors seen */
    uint32_t forked_pid;   /* the child process that this thread has already been made anew in */
    uint64_t fork_order;   /* stamp before the fork under way */
    struct np_slot *ended_slot; /* the slot that the thread closed, and its generation */
    uint64_t ended_generation;
    char name[16];         /* as last written to the ring */
    uint64_t new_name[2];  /* given by another thread, by words; written when this one ends */
    bool has_new_name;
};
#define NP_STACK_CACHE_BYTES 118784u
extern _Thread_local struct np_tls np_tls __attribute__((tls_model("initial-exec")));

/* The tracker's part of slot->scratch. */
struct np_scratch {
    uint64_t wake_head;    /* ring head when the recorder was last woken */
    uint64_t full_tail;    /* ring tail when a wait for room last failed; no further waits until it moves */
    uint32_t has_waited;
    uint32_t lost_reentrant; /* pending NP_REC_LOST */
    uint64_t born;         /* stamp of the thread's start; no record of it is earlier, also none whose stamp was taken before the hook found a new thread */
    uint64_t launched;     /* when the thread was last about to start a program, in its own process or another; 0: never */
};
static inline struct np_scratch *np_scratch(struct np_slot *slot) {
    _Static_assert(NP_SCRATCH_TRACKER + sizeof(struct np_scratch) <= sizeof slot->scratch, "outgrew its part of scratch");
    return (struct np_scratch *)(void *)(slot->scratch + NP_SCRATCH_TRACKER);
}

extern uint32_t np_pid_namespace;     /* of this process, by inode; 0: not known */
extern bool np_track_only;            /* mode is NP_MODE_TRACK: the clock is the order stamp. To be loaded by np_load where there may be no slot yet */
extern uint32_t np_process_index;
extern uint32_t *np_fork_canary;      /* 1; 0 in a forked child that did not pass our fork handler (MADV_WIPEONFORK) */
extern uint64_t np_raw_fork_order;    /* in a child that passed no fork handler: stamp before the fork, where an emulator took one; else 0 */
extern bool np_tls_is_shared;         /* a clone() without thread-local storage of its own lives */
struct np_own {
    uintptr_t lo, hi;                          /* our own image: frames in it never appear in stacks */
    uintptr_t trampolines_lo, trampolines_hi;  /* in it: frames that end every stack of a thread */
};
extern struct np_own np_own;
extern char np_own_path[4096];        /* this library, for LD_PRELOAD of children */
extern char np_arena_env[256];        /* NUMAPILOT_ARENA=... */

/* -- core.c -- */
/* To be called before a thread is made, and before the loader loads a library: once, all functions behind hooks are found (startup.c). */
extern bool np_reals_are_found;
void np_find_reals(void);
/* Looks functions up by the loader, by `find`, which says whether it found all. */
void np_look_up(bool (*find)(void));
static inline void np_before_threads(void) {
    if (np_unlikely(!np_load(np_reals_are_found))) np_find_reals();
}
struct np_slot *np_self_slow(void);
struct np_slot *np_slot_claim(void);
/* This thread's slot even inside a hook; claims one at first use. NULL: not recording. */
static inline struct np_slot *np_slot_here(void) {
    struct np_tls *tls = &np_tls;
    if (np_likely(tls->slot != NULL && *np_fork_canary && !np_load(np_tls_is_shared))) return tls->slot;
    return np_self_slow();
}
void np_set_callouts_slot(struct np_slot *slot);
/* Of the above what the call-outs in this process see, without the emulator. NULL before a fork, and the slot again in the parent: instrumented code that a
 * child runs before our handler would go on in its parent's slot. */
void np_tell_callouts(struct np_slot *slot);
/* In a thread that was made through our hooks, once it has its slot: a plan may send it elsewhere. */
void np_planner_thread_began(uintptr_t start);
void np_thread_meet_planner(struct np_planner_abi *planner);
/* Before the program is given a function that it asks for by name: a plan may have to look at what was loaded since (plan_bind.c). */
void np_planner_before_lookup(void);
/* The program has mapped memory, which a plan may place. */
void np_planner_mapped(void *address, size_t bytes, int protection, int flags, int fd, struct np_regs caller);
/* The kernel has no memory for a mapping of the program's. True: a plan's planner has let go of some that it had reserved; try again. */
bool np_planner_gives_way(void);
/* The process is about to end, or to execute another program. */
void np_planner_ends(void);
/* Adds what a program that this one starts needs for the plan, if there is one. */
struct np_exec_needs;
void np_planner_needs(struct np_exec_needs *needs);

/* A lock that is held for a few hundred instructions, never while anything else is waited for; given up on rather than waited for without end, because a
 * signal handler may have come in between. A forked child starts with it free. */
static inline uint32_t np_lock_tag(void) { return (uint32_t)((uintptr_t)&np_tls >> 4) | 1u; } /* of the thread */
static inline bool np_lock(uint32_t *lock) {
    for (int tries = 0; tries < 2000; tries++) {
        uint32_t free = 0;
        if (__atomic_compare_exchange_n(lock, &free, np_lock_tag(), false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return true;
        if (tries > 100 && !np_is_confined) NP_SYS0(SYS_sched_yield);
        else np_pause();
    }
    return false;
}
static inline void np_unlock(uint32_t *lock) { __atomic_store_n(lock, 0, __ATOMIC_RELEASE); }
/* The calling thread jumped out of a hook that may have held it. */
static inline void np_unlock_left(uint32_t *lock) {
    uint32_t own = np_lock_tag();
    __atomic_compare_exchange_n(lock, &own, 0, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

/* -- ring.c -- */
void np_count_lost(enum np_loss reason, uint64_t count);
/* A hook was reached while a record of the same thread was being made: from a signal handler. */
void np_lost_reentrant(struct np_slot *slot, uint32_t count);
#define NP_WRITING 0x100u /* in slot->in_hook: between np_begin and np_commit */
#define NP_WORDS_MAX 255u
/* Copies `bytes` of text into words, zero-padded. */
void np_put_bytes(uint64_t *words, const char *text, size_t bytes);
static inline unsigned np_words_for(size_t bytes) { return (unsigned)((bytes + 7) / 8); }

/* -- confined.c -- */
/* The program is about to put itself under a filter. */
void np_confinement_begins(void);

/* -- thread.c -- */
struct np_birth {
    uint32_t parent_thread; /* UINT32_MAX: unknown or none */
    uint32_t stack_id;
    uint64_t creator_clock;
    uint64_t order;         /* 0: now */
    uintptr_t start;
    char name[16];          /* that a new thread has of its creator; empty: to be asked for */
    const struct np_slot *heir_of; /* not NULL: whose affinity and memory policy it begins with, as parent_thread is unknown */
    bool has_affinity;      /* the creation's attributes ask for one: this, as it was then (np_attr_affinity) */
    uint64_t affinity[NP_MAX_CPUS / 64];
};
/* Gives the calling thread a slot and writes the records that begin its ring. NULL: no slot. */
struct np_slot *np_thread_begin(const struct np_birth *birth);
/* `goes_on`: others of the process do. */
void np_thread_end(bool goes_on);
void np_thread_init(void);
/* The kernel's number of the calling thread, also where the kernel may not be asked. */
uint32_t np_own_tid(void);
/* A block is freed in a thread that has ended: written to the slot that it closed, if that is still its own; else counted as lost. */
void np_thread_freed_after_end(void *block, uint64_t order);
void np_thread_after_fork(void);
/* A runtime's name for the calling thread, longer than the kernel's names. The kernel's, which is cut, may come afterwards: flows keep the longer one. */
void np_thread_called(const char *name);

/* -- process.c -- */
void np_process_init(void);
/* np_pid_namespace: at the start, and in a forked child, which may be the first process of a new one. */
void np_find_pid_namespace(void);
void np_process_start(struct np_slot *slot, uint64_t order, uint32_t parent_index, bool by_exec);
/* What an image that has just been loaded begins with: clock, affinity and memory policy of what it replaces, else of what started it. */
void np_process_heritage(struct np_birth *birth);
/* The same for an image that has just been loaded: finds out whether it replaced another, and who started it. */
void np_process_begin_image(struct np_slot *slot);
/* In a forked child, at the latest at its first hook. */
void np_process_after_fork(void);

/* -- limit.c: the program is about to become another; and did not -- */
void np_limit_before_exec(void);
void np_limit_exec_failed(void);
void np_limit_after_fork(void);
void np_limit_jumped(void);

/* -- modules.c, map.c -- */
struct np_module {
    uintptr_t lo, hi;       /* lo 0: free */
    const void *eh_frame;   /* .eh_frame_hdr */
    uint32_t id;
    uint32_t seen;          /* number of the last scan that met it */
};
struct np_modules {
    struct np_module *list;
    const uint32_t *used;   /* only grows */
};
/* The known module around pc: its .eh_frame_hdr, or NULL. */
static inline const void *np_known_eh_frame(struct np_modules modules, uintptr_t pc) {
    uint32_t used = __atomic_load_n(modules.used, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < used; i++) {
        uintptr_t lo = __atomic_load_n(&modules.list[i].lo, __ATOMIC_ACQUIRE); /* with the release in announce: the rest is this module's, or a later one's */
        if (lo != 0 && pc >= lo && pc < np_load(modules.list[i].hi)) return np_load(modules.list[i].eh_frame);
    }
    return NULL;
}
struct np_modules np_modules(void);
void np_modules_init(struct np_slot *slot);
void np_maps_init(struct np_slot *slot);
/* The first thread's stack has grown by this, beyond what was known of it. */
void np_map_stack_grown(struct np_slot *slot, uintptr_t address, uint64_t bytes);
/* -- map_record.c -- */
struct np_mapping {
    uintptr_t address;
    uint64_t bytes, offset;
    uint32_t flags, stack;
    const char *path;
    size_t path_bytes;
};
/* Path of an open file, not terminated; its bytes, 0 for none. */
#define NP_MAP_PATH_BYTES 1024u
size_t np_path_of_fd(int fd, char *path);
static inline uint64_t np_whole_pages(uint64_t bytes) { return (bytes + 4095) & ~4095ull; }
/* Room of the calling thread's for a path, NP_MAP_PATH_BYTES; NULL: there is none (stack.c). */
char *np_stack_path(void);
void np_put_map(struct np_slot *slot, const struct np_mapping *map, uint64_t order);
/* A file of which processes may share pages. */
struct np_file {
    uint64_t device, inode, born;
    uint64_t offset, bytes; /* that the thread has just given memory; 0: none */
    uint32_t node;          /* where that is */
    bool is_memory;         /* it is on no disk */
    bool is_full;           /* all of its pages are in memory */
};
/* False: what the file is cannot be told from others. */
bool np_file_of_fd(int fd, struct np_file *file);
/* `address`: of the mapping of it whose record is the next one of a mapping; 0: none. */
void np_put_file(struct np_slot *slot, const struct np_file *file, uintptr_t address, uint64_t order);
void np_put_unmap(struct np_slot *slot, uintptr_t address, uint64_t bytes, uint64_t order);
/* For what the allocator got for itself unseen; no stack is its. */
void np_map_of_allocator(struct np_slot *slot, uintptr_t address, uint64_t bytes, uint32_t flags);
/* -- heap.c: a block was made; what the allocator got for it unseen is recorded first -- */
/* What is known of such memory in this process. */
#define NP_ARENAS_KNOWN 1024u /* more arenas are known by their first blocks only as part of what lies beneath */
struct np_heap {
    uintptr_t break_known, break_bound; /* the heap as recorded ends here; it cannot reach an address where something else was seen */
    uintptr_t regions[NP_ARENAS_KNOWN]; /* numbers of regions of 64 MiB that were looked at; 0: free. Open addressing, never emptied */
};
extern struct np_heap *np_heap;
void np_heap_init(void);
/* The program itself moved the break. True: what it got was recorded already. */
bool np_heap_moved(uintptr_t end);
/* The break is at `end` now: records what was not known of the heap. */
void np_heap_reaches(struct np_slot *slot, uintptr_t end);
/* An arena's memory at `start` need not be looked for any more. False: that was known, or there is no room to note it. */
bool np_heap_note_arena(uintptr_t start);
void np_heap_block(struct np_slot *slot, uintptr_t block, size_t bytes);
/* -- modules.c -- */
void np_modules_after_fork(void);
/* The calling thread jumped out of a hook: locks that it left held are opened. */
void np_modules_jumped(void);
/* Announces modules that came, and ends those that went. Takes the loader's lock: only where the program itself could. */
void np_modules_scan(struct np_slot *slot);
/* The module around pc, announced if it was not yet: its .eh_frame_hdr, or NULL. */
const void *np_module_eh_frame(struct np_slot *slot, uintptr_t pc);

/* -- alloc.c, alloc_new.c -- */
/* The record of a block that was just made. */
static inline void np_put_alloc(struct np_slot *slot, uintptr_t block, size_t bytes, enum np_alloc_kind kind, uint32_t stack) {
    uint64_t order = np_order();
    if (np_unlikely(bytes >> 32 != 0)) {
        uint64_t *words = np_begin(slot, NP_REC_ALLOC_BIG, block, 4, order);
        if (words == NULL) return;
        words[2] = stack | (uint64_t)kind << 32;
        words[3] = bytes;
        np_commit(slot, 4);
        return;
    }
    unsigned count = kind == NP_ALLOC_MALLOC ? 3 : 4;
    uint64_t *words = np_begin(slot, kind == NP_ALLOC_MALLOC ? NP_REC_ALLOC : NP_REC_ALLOC_KIND, block, count, order);
    if (np_unlikely(words == NULL)) return;
    words[2] = stack | (uint64_t)bytes << 32;
    if (kind != NP_ALLOC_MALLOC) words[3] = kind;
    np_commit(slot, count);
}
void np_alloc_init(struct np_slot *slot);
/* False while the real functions are being looked up (the loader itself allocates): serve from bootstrap memory. */
bool np_alloc_ready(void);
/* After the real call: the block just made belongs to the caller of the hook. Returns it. */
void *np_alloc_made(void *block, size_t bytes, enum np_alloc_kind kind, struct np_regs caller);
/* A hook is about to call the real allocator. In all that do, this is inlined. */
static inline __attribute__((always_inline)) void np_alloc_enter(void) {
    const uintptr_t *frame = __builtin_frame_address(0);
    np_tls.alloc_frame = (uintptr_t)frame;
    np_tls.alloc_return = frame[1];
    np_tls.in_alloc = 1;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}
static inline void np_alloc_leave(void) {
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    np_tls.in_alloc = 0;
}
/* The mark stands, and yet that hook is gone: a signal handler jumped out of the allocator, which is the program's own fault, and mostly goes well. The mark
 * is taken back, and a loss counted (jumped.c). To be called from a hook. */
bool np_alloc_was_left(void);
static inline __attribute__((always_inline)) bool np_alloc_is_inside(void) {
    if (np_likely(!np_tls.in_alloc)) return false;
    /* Mostly this is a little below it: what lies in the page that we stand in can be read. */
    uintptr_t own = (uintptr_t)__builtin_frame_address(0), frame = np_tls.alloc_frame;
    if (np_likely(own < frame && (own ^ frame) < 4096 && ((const uintptr_t *)frame)[1] == np_tls.alloc_return)) return true;
    return !np_alloc_was_left();
}
/* Reached inside the real allocator: the outer hook records. Returns the block. */
void *np_alloc_nested(void *block, size_t bytes);
/* An exception leaves the real allocator. What was made in there is the exception itself, which lives on. */
void np_alloc_thrown(struct np_regs caller);
void np_alloc_freed(void *block, uint64_t order);
void np_alloc_nested_free(void *block);
/* Of the counter, for how long a call took: not ordered with anything. */
static inline uint64_t np_ticks(void) {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t value;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
    return value;
#else
#error "numapilot's runtime knows the counters of x86-64 and aarch64 only"
#endif
}
/* When a real call that gives a block back begins, for np_alloc_gone. Without homes of pages it is not used. */
static inline uint64_t np_alloc_going(void) { return np_load(np_track_only) ? 0 : np_ticks(); }
/* After the real call, begun at `began`, gave the block back: pages may have gone with it. */
void np_alloc_gone(const void *block, uint64_t began);
bool np_alloc_is_bootstrap(const void *block);

/* -- unwind_cfi.c, unwind_rule_*.c, unwind.c -- */
enum np_rule_kind {
    NP_RULE_FAIL = 0,        /* cannot be followed */
    NP_RULE_SP = 1,          /* frame = sp + cfa */
    NP_RULE_FP = 2,          /* frame = fp + cfa */
    NP_RULE_FP_INDIRECT = 3, /* frame = *(fp + cfa): realigned stacks */
    NP_RULE_END = 4,         /* outermost frame */
    NP_RULE_SIGNAL = 5,      /* the kernel's signal frame */
    NP_RULE_GUESS = 6,       /* no unwinding data: by frame pointer */
};
enum np_fp_rule { NP_FP_SAME = 0, NP_FP_AT_CFA = 1, NP_FP_AT_FP = 2, NP_FP_LOST = 3 };
struct np_rule {
    uint8_t kind, fp_rule;
    int32_t cfa, fp;
#if defined(__aarch64__)
    /* The return address: in the link register, or this many words above `fp` from the frame's address on. Signed: by pointer authentication. */
    bool ra_in_register, ra_is_signed;
    int8_t ra_words;
#endif
};
/* The rule at pc by .eh_frame_hdr (NULL: none). */
struct np_rule np_cfi_rule(const void *eh_frame_hdr, uintptr_t pc);
#if defined(__aarch64__)
/* pc is where the kernel lets a signal handler return to. */
bool np_cfi_is_signal_trampoline(uintptr_t pc);
#endif
/* What a walk read, and where: the same registers and the same words at the same places make the same stack. */
#define NP_MEMO_LOADS 40u
struct np_memo {
    struct np_regs regs;
    uint64_t generation;
    uint32_t id;    /* of the stack; 0: not usable */
    uint32_t loads; /* more than NP_MEMO_LOADS: not usable */
    struct { uintptr_t address, value; } load[NP_MEMO_LOADS];
    uint64_t native_hash; /* of the return addresses */
    bool may_interrupt;   /* the walk went through a signal's frame, or was on another stack: a handler stands in the middle of anything */
    bool is_python;       /* the thread may be in Python functions, which have no native frames (python.c) */
};
/* The hash of a stack, with one more value in it. */
#define NP_HASH_FACTOR 0x9e3779b97f4a7c15ull
static inline uint64_t np_hash_step(uint64_t hash, uint64_t value) {
    unsigned __int128 product = (unsigned __int128)(hash ^ value) * NP_HASH_FACTOR;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}
/* Return addresses from `regs` outwards, ours left out; flags as in NP_REC_STACK. Also their hash. Fills memo, but for its id. */
void np_stack_growing(struct np_slot *slot, bool grows, uintptr_t below);
unsigned np_unwind(struct np_slot *slot, struct np_memo *memo, uintptr_t *frames, unsigned max, uint32_t *flags, uint64_t *hash);
extern uint64_t *np_unwind_generation; /* of this process */
/* The memo is of a walk from these registers, and what it read is still there. */
static inline bool np_memo_holds(const struct np_memo *memo, struct np_regs regs) {
    if (memo->id == 0 || memo->regs.pc != regs.pc || memo->regs.sp != regs.sp || memo->regs.fp != regs.fp) return false;
    if (memo->generation != __atomic_load_n(np_unwind_generation, __ATOMIC_RELAXED)) return false;
    uintptr_t difference = 0;
    for (uint32_t i = 0; i < memo->loads; i++) difference |= *(const uintptr_t *)memo->load[i].address ^ memo->load[i].value;
    return difference == 0;
}

/* -- startup.c: shared with the planner -- */
/* The value behind `prefix` (NAME=) in the environment as the kernel gave it, from the initial stack: libc's own `environ` may not be set yet.
 * NULL: not set. */
const char *np_initial_environment(const char *prefix);
/* This library's image and file. */
void np_find_ourselves(void);
/* The real function behind the hooks of dlsym, which np_real itself goes through. */
typedef void *(*np_dlsym_function)(void *handle, const char *name);
np_dlsym_function np_real_dlsym(void);
/* What _dl_find_object tells of the module around an address: as glibc 2.35 declares it for x86-64 and aarch64; older ones do without. No lock, safe in signal
 * handlers. */
struct np_found_object {
    unsigned long long flags;
    void *map_start, *map_end;
    struct link_map *link_map;
    void *eh_frame;
    unsigned long long reserved[7];
};
typedef int (*np_find_object_function)(void *pc, struct np_found_object *found);
/* Finds all listed functions that are not found yet (NP_REAL_LISTED). False: one is in no library. */
bool np_reals_find(void);
/* -- memory.c: anonymous zeroed memory of our own, never recorded. NULL when there is none. -- */
void *np_pages_new(size_t bytes);
/* The same, only to be read (zeroes) until mprotect allows more: the kernel charges what may be written as if it were (vm.overcommit_memory=2, ulimit -d). */
void *np_pages_reserve(size_t bytes);
void np_pages_free(void *pages, size_t bytes);
/* Of the kernel's pages, by which mbind and mprotect go: 4 KiB, on arm64 also 16 or 64. Simulated machines have pages of 4 KiB (NP_PAGE_SHIFT). */
uintptr_t np_page_bytes(void);
/* The number with which a file of the kernel's begins. 0: none, or it cannot be read. */
uint64_t np_number_in(const char *path);
/* Bytes of address space that the process has, as the kernel counts them. 0: unknown. */
uint64_t np_bytes_mapped(void);
/* Large memory of our own, which must not be locked with the program's (lock_all.c); lo 0: free. */
#define NP_OWN_RANGES 16u
extern struct np_own_range np_own_ranges[NP_OWN_RANGES];
extern const struct np_own_range *np_other_ranges;
/* Where it was noted; NULL: there is no room. */
struct np_own_range *np_own_range_add(uintptr_t lo, uintptr_t hi);

/* -- maps_file.c: one line of /proc/self/maps at a time -- */
struct np_maps_line { uintptr_t lo, hi; char perms[4]; uint64_t offset, inode; const char *path; size_t path_bytes; };
/* Calls visit for each mapping until it returns false. */
void np_maps_each(bool (*visit)(const struct np_maps_line *line, void *context), void *context);

#pragma GCC visibility pop
#endif
