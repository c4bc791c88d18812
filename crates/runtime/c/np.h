/* np.h: what the parts of the in-process runtime offer each other. wire.h has what they share with the recorder.
 *
 * The runtime is two binaries. The *tracker* (libnumapilot-track.so, preloaded) holds everything but the first-stage
 * filter. The *call-outs* (libnumapilot-callouts.a, linked into instrumented programs by `numapilot cc`) hold the `__tsan_*`
 * entry points and that filter, and reach the rest through struct np_callouts_abi, which the tracker fills in. Without the tracker
 * (the program run by itself) the call-outs do nothing.
 *
 * Rules inside: no malloc, no locks that a signal handler or a forked child could find held, errno is preserved by every hook,
 * thread-local storage is initial-exec (gated by a test), and every loss is counted.
 */
#ifndef NUMAPILOT_NP_H
#define NUMAPILOT_NP_H

#include "order.h"
#include "wire.h"

#include <stdbool.h>
#include <stddef.h>

#define NP_HIDDEN __attribute__((visibility("hidden")))
/* An emulator's plugin is built from some of the tracker's files (crates/emulator), and must not offer their hooks to the emulator's process. */
#ifdef NP_PLUGIN
#define NP_EXPORT NP_HIDDEN
#else
#define NP_EXPORT __attribute__((visibility("default")))
#endif
#define NP_TLS static _Thread_local __attribute__((tls_model("initial-exec")))
#define NP_COLD __attribute__((cold, noinline))
/* A word that one thread writes and others look at: relaxed, because what they conclude from it is checked again or only steers. Where an order is
 * needed, the stronger access says with what it pairs. */
#define np_load(word) __atomic_load_n(&(word), __ATOMIC_RELAXED)
#define np_store(word, value) __atomic_store_n(&(word), (value), __ATOMIC_RELAXED)
/* The writer's own read needs no atomic read-modify-write. */
#define np_add(word, more) np_store(word, np_load(word) + (more))
#define np_likely(x) __builtin_expect(!!(x), 1)
#define np_unlikely(x) __builtin_expect(!!(x), 0)

#pragma GCC visibility push(hidden)

/* ---- core.c: attachment ---- */
extern struct np_arena *np_arena; /* NULL: not recording */
static inline struct np_slot *np_slot_at(uint64_t index) {
    return (struct np_slot *)(void *)((char *)np_arena + np_arena->slots_offset + index * np_arena->slot_bytes);
}
/* This thread's slot, claimed at the first call. NULL: not recording, no slot left (counted), or inside a hook of ours already. */
struct np_slot *np_self(void);
/* The same without claiming: NULL before the thread's first hook. */
struct np_slot *np_self_if_live(void);
/* Everything that must happen at most once per process image or after fork. */
void np_attach_process(void);
/* Real function `name` behind our interposer; never NULL for libc's own functions. */
void *np_real(const char *name);
/* Where such a function is kept once it is found, and how it is found. */
typedef void *__attribute__((may_alias)) np_any_function;
struct np_real_place {
    np_any_function *place;
    const char *name;
    void *(*find)(const char *name);
};
/* Lists one in a section, by its address, so that nothing lies between them. For file scope, or a block. */
#define NP_LISTED_IN(section_name, place, name, find)                                                             \
    static const struct np_real_place listed_ = {(np_any_function *)(void *)&(place), name, find};                 \
    static const struct np_real_place *listing_ __attribute__((section(section_name), used)) = &listed_
/* What np_reals_find looks for. Only what every C library has: a lookup that fails leaves a message in the program's heap. */
#ifdef NP_PLUGIN /* an emulator's own functions are none of its guest's */
#define NP_REAL_LISTED(place, name, find) _Static_assert(true, "")
#else
#define NP_REAL_LISTED(place, name, find) NP_LISTED_IN("np_reals", place, name, find)
#endif
/* What is kept at `place`, a pointer; looked up where that is still NULL. Whoever races finds the same. */
#define NP_KEPT(place, look_up)                                        \
    ({                                                                 \
        __typeof__(place) kept_ = np_load(place);                      \
        if (np_unlikely(kept_ == NULL)) {                              \
            kept_ = (__typeof__(place))(look_up);                      \
            np_store(place, kept_);                                    \
        }                                                              \
        kept_;                                                         \
    })
/* The same, looked up once per call site: NP_REAL(malloc)(size). */
#define NP_REAL(name)                                                  \
    ({                                                                 \
        static __typeof__(&name) real_;                                \
        NP_REAL_LISTED(real_, #name, np_real);                         \
        NP_KEPT(real_, np_real(#name));                                \
    })

/* The guard is set, and yet nobody holds it: a signal handler came into a hook and jumped out of it (siglongjmp, an exception), which is legal where the
 * program only computed. The guard is given back, and a loss counted. To be called from a hook, in which it stands (jumped.c). */
bool np_hook_was_left(struct np_slot *slot);

/* Takes the guard, and notes in which frame: that function gives it back (np_leave), or never does. In all that take it, this is inlined. */
static inline __attribute__((always_inline)) void np_guard(struct np_slot *slot) {
#ifndef NP_PLUGIN /* an emulator's own frames are left by nobody */
    const uintptr_t *frame = __builtin_frame_address(0);
    slot->hook_frame = (uintptr_t)frame;
    slot->hook_return = frame[1];
#endif
    slot->in_hook = 1;
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* a signal handler of this thread sees the guard before anything that it guards */
}
/* The thread ends: nobody gives it back, and nobody has left it. */
static inline void np_guard_for_good(struct np_slot *slot) {
    slot->hook_frame = 0;
    slot->in_hook |= 1;
}
static inline bool np_is_guarded(struct np_slot *slot) {
#ifdef NP_PLUGIN
    return slot->in_hook != 0;
#else
    return np_unlikely(slot->in_hook != 0) && !np_hook_was_left(slot);
#endif
}

/* Hooks that call into libc functions which we interpose too hold this, so that the inner call is not recorded. */
static inline __attribute__((always_inline)) bool np_enter(struct np_slot *slot) {
    if (np_is_guarded(slot)) return false;
    np_guard(slot);
    return true;
}
static inline void np_leave(struct np_slot *slot) {
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    slot->in_hook = 0;
}

/* ---- ring.c: records ---- */
/* Room for `words` 8-byte words with word 0 and 1 filled in (type, value48, deltas), NULL when the record is lost (counted). Fill words 2.., then commit. */
uint64_t *np_begin(struct np_slot *slot, enum np_record type, uint64_t value48, unsigned words, uint64_t order);
void np_commit(struct np_slot *slot, unsigned words);
/* A mark that the report shows at its time. */
void np_put_mark(struct np_slot *slot, const char *text, size_t bytes);

/* ---- stack.c, unwind.c: call stacks ---- */
struct np_regs { uintptr_t pc, sp, fp; };
/* Where the caller's stack pointer stood at its call. GCC puts the frame's record at the lower end of a frame on arm64, all others at the upper. */
#if defined(__aarch64__) && !defined(__clang__)
#define NP_CALLER_SP() ((uintptr_t)__builtin_dwarf_cfa())
#else
#define NP_CALLER_SP() ((uintptr_t)__builtin_frame_address(0) + 16)
#endif
/* Registers of the caller of the interposer in which this stands (the function is compiled with a frame pointer). */
#define NP_CALLER_REGS() \
    ((struct np_regs){(uintptr_t)__builtin_return_address(0), NP_CALLER_SP(), *(uintptr_t *)__builtin_frame_address(0)})
/* Id of the stack that starts at `regs`; a new one is written to the ring first. 0: unknown. */
uint32_t np_stack_id(struct np_slot *slot, struct np_regs regs);
/* The same of frames that are known; flags as in NP_REC_STACK. */
uint32_t np_stack_of(struct np_slot *slot, const uintptr_t *frames, unsigned count, uint32_t flags);
/* Modules came or went: forget cached unwinding rules. */
void np_unwind_modules_changed(void);

/* ---- thread.c, process.c, modules.c, alloc.c, map.c: the tracker's hooks (interposed functions) ---- */
/* A block was made (call after it was) or is about to be given back (call before), outside of malloc's family: numa_alloc_*. NULL is ignored. errno
 * is kept. */
void np_record_alloc(void *block, size_t bytes, enum np_alloc_kind kind, struct np_regs caller);
void np_record_free(void *block);
/* Final clock and index of a thread that has ended, for whoever joined it. False: unknown (not started through our hooks, or not recorded). */
bool np_thread_end_clock(unsigned long thread, uint64_t *clock, uint32_t *index);

/* Who owns which part of np_slot.scratch (offsets in bytes; zeroed when a slot is claimed). */
#define NP_SCRATCH_VTIME 0     /* 256 bytes: vtime.c */
#define NP_SCRATCH_MEMORY 256  /* 512 bytes: the simulated memory system */
#define NP_SCRATCH_TRACKER 768 /* 216 bytes: the lifecycle tracker */

/* ---- vtime.c: program time ---- */
extern uint32_t np_cycles_per_access_q8;
static inline uint64_t np_clock_of(const struct np_slot *slot) {
    return np_load(slot->stall_cycles) + ((np_load(slot->accesses) * np_load(np_cycles_per_access_q8)) >> 8);
}
/* The clock stamp for a record of this thread: np_clock_of in instrument mode, the TSC in track mode. */
uint64_t np_stamp_clock(const struct np_slot *slot);
void np_clock_advance(struct np_slot *slot, uint64_t cycles);
/* The thread waited for something that happened at `clock`: its own clock becomes at least that. Writes NP_REC_SYNC when it moved. */
void np_clock_wait_until(struct np_slot *slot, uint64_t clock, enum np_sync_kind kind, uint64_t object);
/* Around a wait for other threads (or a sleep, or I/O): others no longer wait for this clock. They nest. */
void np_block_begin(struct np_slot *slot);
void np_block_end(struct np_slot *slot);
/* Sleeps (in host time, not in program time) while this thread is more than the window ahead of the slowest running one. Cheap when it is not. */
void np_throttle(struct np_slot *slot);
/* Called by thread.c: in the new thread before its start routine / at its end; gives the thread its model CPU (slot->cpu, node, l3_index). */
void np_vtime_thread_start(struct np_slot *slot, uint64_t creator_clock);
void np_vtime_thread_end(struct np_slot *slot);
/* The slot's thread is gone, or about to be, without an end of its own: it counts no more on its CPU, nor among sleepers. */
void np_vtime_abandoned(struct np_slot *slot);
/* By the creator, before the thread exists: its clock counts from here, until np_vtime_thread_start, or np_vtime_birth_done if it failed. */
void np_vtime_birth(uint64_t creator_clock);
void np_vtime_birth_done(uint64_t creator_clock);
/* Clock at which a thread ended, for whoever joins it: np_thread_end_clock above. */

/* ---- filter.c, pages.c, sample.c: the simulated memory system ---- */
/* An access that left the first-stage filter: private filter, coherence, L3, memory; charges the clock, counts, samples, throttles. */
#define NP_ACC_WRITE 1u
#define NP_ACC_ATOMIC 2u
#define NP_ACC_RANGE 4u
void np_access_miss(struct np_slot *slot, uintptr_t address, uint32_t bits, struct np_regs caller);
/* Every line of [address, address + bytes): for memcpy, memset, and buffers that the kernel fills (read, recv). */
void np_access_range(struct np_slot *slot, uintptr_t address, size_t bytes, uint32_t bits, struct np_regs caller);
/* Pages are gone or empty again (munmap, MADV_DONTNEED, brk down): their next touch gives them a new home. */
void np_pages_forget(uintptr_t address, size_t bytes);
/* A new life begins in the range: homes of pages behind which the kernel has nothing any more are forgotten. What it still holds keeps its home. */
void np_pages_settle(uintptr_t address, size_t bytes);
/* The same after MADV_DONTNEED and its like: the mappings are what they were, and keep their policies. */
void np_pages_discarded(uintptr_t address, size_t bytes);
/* The same for all of the aligned `window` around a block that was given back, if the block's own page or the last one known there is gone: an allocator
 * gives its heaps back from the end. */
void np_pages_given_back(uintptr_t block, size_t window);
/* An allocator has just made a block around `address`: where that page is there, without a home, and the next one is not, this thread touched it. */
void np_pages_frontier(struct np_slot *slot, uintptr_t address);
/* Pages were moved from one address to another, homes and all (mremap). Of the old range only what is not mapped any more counts as moved, unless it `stays`
 * mapped, without its pages. */
void np_pages_remap(uintptr_t old, uintptr_t new, size_t bytes, bool stays);
/* The file of this descriptor has lost all its pages (O_TRUNC). */
void np_file_emptied(int fd);
/* This thread is about to touch the range by way of the kernel: pages that are there already and have no home were touched by code that nobody saw, and do not
 * become this thread's. */
void np_pages_to_fill(struct np_slot *slot, uintptr_t address, size_t bytes);
/* The same before a call of the program's, by its thread's slot, if it has one. The range is the program's own affair: nothing of it is read here. */
void np_to_fill(uintptr_t address, size_t bytes);
/* Whether others may touch this process's pages: else they are the calling thread's. */
bool np_pages_are_contested(void);
/* This thread has just touched the range by way of the kernel (a filled buffer, MAP_POPULATE): pages without a home get theirs. */
void np_pages_touched(struct np_slot *slot, uintptr_t address, size_t bytes);
/* The process is about to have its second thread: whatever is there now without a home, the first one has touched, seen or not. */
void np_pages_before_threads(struct np_slot *slot);
/* toucher.c: a thread ends; pages that it touched unseen are still asked for. */
void np_toucher_ended(const struct np_slot *slot);
/* Memory of which the kernel has just given this process all pages anew: theirs are the calling thread's. */
void np_pages_made(struct np_slot *slot, uintptr_t address, size_t bytes);
/* The thread has provided these pages, which nobody had, also to another one that is about to touch them (userfault.c). */
void np_pages_provided(struct np_slot *slot, uintptr_t address, size_t bytes);
/* Memory was mapped that other processes may have used, or a file that the page cache may have: pages that are there already (with `is_full`, all of them) have
 * homes that are not known here. */
void np_pages_of_others(struct np_slot *slot, uintptr_t address, size_t bytes, bool is_full);
/* The node that memory gets which the kernel is to provide for the calling thread at once, whatever its policy; NP_NONE16: by turns. */
uint32_t np_pages_node(struct np_slot *slot);
/* This process has mapped memory that others may have mapped, too. */
void np_pages_shared(void);
/* This process forks, or was forked. */
void np_pages_forked(void);
/* It has, in both: a page that both have is copied for who writes it first. */
void np_pages_inherited(void);
/* Home of pages by an explicit policy of the program (mbind, numa_alloc_*, set_mempolicy on the simulated machine). */
void np_pages_policy(uintptr_t address, size_t bytes, int mode, const uint64_t *nodemask, unsigned mask_words);
void np_thread_policy(struct np_slot *slot, int mode, const uint64_t *nodemask, unsigned mask_words);
/* Fork child: page homes are inherited (copy on write), filters start empty. */
void np_filter_thread_start(struct np_slot *slot);
/* Another thread's next instrumented access takes the slow path (and there np_throttle), even if it would hit its first-stage filter: for
 * threads that run ahead of the window in a loop that never misses. */
void np_filter_poke(struct np_slot *slot);
/* The next write to each line takes the slow path, and to each page: the kernel has made them read-only (fork). */
void np_filter_hold_for_reading(struct np_slot *slot);
/* In the new thread, once it has its first CPU: the affinity and memory policy of its creator (`heir_of`; NULL: the thread that the slot names) hold for
 * it too, or the affinity that its attributes ask for (NULL: none). */
void np_numa_thread_start(struct np_slot *slot, const struct np_slot *heir_of, const uint64_t *affinity);
/* The affinity that attributes ask for, to be taken when the thread is made: one set of attributes may serve for many threads, as OpenMP libraries do. */
bool np_attr_affinity(const void *attributes, uint64_t affinity[NP_MAX_CPUS / 64]);
/* Writes NP_REC_COUNTERS if due (or if `force`). */
void np_counters(struct np_slot *slot, bool force);

/* ---- sync_*.c (interposed pthread, OpenMP, sleep functions) and the atomics' clocks ---- */
void np_acquire(struct np_slot *slot, uintptr_t address); /* a load-acquire saw this address */
void np_release(struct np_slot *slot, uintptr_t address); /* before a store-release to it */
/* A read-modify-write (any order): publishes the clock to waiting loads, takes none over, and checks the window. Call this
 * instead of np_acquire + np_release. */
void np_rmw(struct np_slot *slot, uintptr_t address);

#pragma GCC visibility pop

/* ---- the seam between the tracker and the call-outs ---- */
#define NP_CALLOUTS_ABI 1u
struct np_callouts_abi {
    uint32_t version;
    uint32_t reserved;
    /* Given by the call-outs: where this thread's slot pointer lives (NULL: do nothing). The tracker sets it when a thread attaches and clears it
     * when it ends. */
    struct np_slot **(*slot_location)(void);
    /* Given by the tracker before main: */
    struct np_slot *(*attach)(void);
    void (*miss)(struct np_slot *slot, uintptr_t address, uint32_t bits, struct np_regs caller);
    void (*range)(struct np_slot *slot, uintptr_t address, size_t bytes, uint32_t bits, struct np_regs caller);
    void (*acquire)(struct np_slot *slot, uintptr_t address);
    void (*release)(struct np_slot *slot, uintptr_t address);
    void (*rmw)(struct np_slot *slot, uintptr_t address); /* instead of acquire + release, for read-modify-writes */
};
/* Memory of ours in the program's process. */
struct np_own_range { uintptr_t lo, hi; };
/* The seam between the tracker and the planner (plan.h), which stands behind it when a recording has a plan: exported by the planner as
 * `numapilot_planner`. Threads begin in the tracker, which reports them. */
struct np_planner_abi {
    uint32_t version;
    uint32_t is_tracked;           /* set by the tracker, and the routines with it */
    void *(*begin_pthread)(void *); /* where the threads begin that it reports; it has no part in others, for want of a slot */
    int (*begin_c11)(void *);
    void (*thread_began)(uintptr_t start);
    const struct np_own_range *ranges; /* NP_OWN_RANGES of them (track.h) */
    void (*before_lookup)(void); /* the program asks for a function by its name: the tracker's search goes past the planner's hook of dlsym */
    /* The program has mapped memory: the tracker asks the kernel itself, past the planner's hook of mmap. */
    void (*mapped)(void *address, size_t bytes, int protection, int flags, int fd, struct np_regs caller);
    bool (*gives_way)(void); /* such a call found no memory: whether it is to be tried again, because the planner has let go of addresses or memory */
    void (*ends)(void);      /* the process is about to end, or to execute another program, past the planner's hooks of that */
    const char *path;  /* the planner's file; empty: unknown */
    char *environment; /* "NUMAPILOT_PLAN=...", as programs that this one starts need it; empty: there is no plan */
};
#define NP_PLANNER_ABI 8u
/* Exported by the call-outs under this name; the tracker looks it up with dlsym. */
#define NP_CALLOUTS_SYMBOL "numapilot_callouts"
/* The same table of the tracker's own, for the call-outs of a library that is loaded later into a program without any: no table of theirs was there
 * when the tracker looked, and one in a library that may be unloaded again is none to keep. Its slot_location stays NULL: these call-outs ask for the
 * slot each time. */
#define NP_TRACKER_SYMBOL "numapilot_tracker_callouts"

#endif
