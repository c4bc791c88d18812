/* plan.h: what the parts of the planner library share.
 *
 * The planner (libnumapilot-plan.so, preloaded by `numapilot run --plan` and `record --plan`) puts a program's objects and threads where a plan says.
 * It records nothing. Objects that no rule takes stay with the program's own allocator, at the cost of a comparison of their size. Its own
 * blocks lie in one reserved range of addresses, so that free() recognises them by one comparison.
 *
 * Calls that place (mbind, sched_setaffinity, sched_getcpu, madvise) go by the symbols that the program sees: under `record` on a simulated machine
 * those are the tracker's, and the plan is carried out there.
 *
 * Rules inside: no malloc, errno is kept, initial-exec thread-local storage, every failure leaves the program running and is counted.
 */
#ifndef NUMAPILOT_PLAN_H
#define NUMAPILOT_PLAN_H

#include "plan_wire.h"
#include "track.h"

#include <sched.h>

#pragma GCC visibility push(hidden)

#define NP_GRANULE_SHIFT 16
#define NP_GRANULE (1ul << NP_GRANULE_SHIFT)
#define NP_SMALL_MAX 16384u
#define NP_CLASSES 36u
#define NP_MAX_ARENAS 1024u
#define NP_CACHED_ARENAS 64u /* arenas with thread caches */
#define NP_ANY_NODE NP_PLAN_NODES

/* -- plan_start.c -- */
extern struct np_plan *np_plan; /* NULL: no plan, everything passes through */
extern struct np_plan_numbered *np_plan_numbered; /* NP_PLAN_NUMBERED of them; NULL: the plan's file has none */
extern char np_plan_command[NP_PLAN_NAME]; /* the file name of this process's program */
extern char np_plan_environment[4096];     /* "NUMAPILOT_PLAN=...", for programs that this one starts; empty: there is no plan */
/* With the release in np_plan_attach: after this the plan and what was found with it can be read plainly. For what a thread may reach before its first block by
 * a rule; that gate (plan_alloc.c, plan_map.c) comes after the plan's. */
static inline bool np_plan_is_there(void) { return __atomic_load_n(&np_plan, __ATOMIC_ACQUIRE) != NULL; }
static inline struct np_plan_rule *np_plan_rules(void) { return (void *)((char *)np_plan + np_plan->rules); }
static inline struct np_plan_place *np_plan_threads(void) { return (void *)((char *)np_plan + np_plan->threads); }
static inline struct np_plan_place *np_plan_processes(void) { return (void *)((char *)np_plan + np_plan->processes); }
/* Maps the plan and finds the real functions, once; from the first hook or the constructor. */
void np_plan_attach(void);
struct stat;
/* Device and inode of a module's file, by its name in the loader's list; without a name: of the program. */
bool np_plan_facts_of(const char *path, struct stat *status);
/* A mapping that the tracker has made for the program: the rules about anonymous mappings and files. */
void np_plan_mapped(void *address, size_t bytes, int protection, int flags, int fd, struct np_regs caller);
/* A mapping found no memory, perhaps for what the planner has reserved. True: some of that may be free now, also for another thread's sake: try again. */
bool np_plan_gives_way(void);
/* This thread is busy, or was: a signal handler jumped out of the planner's part in a mmap, and left it so. Then it is not any more. `own`: a frame of the
 * present call's. */
bool np_plan_was_left(const void *own);
/* Before a thread is made, or a library loaded: once, all functions behind hooks are found (startup.c). */
void np_plan_before_threads(void);
bool np_plan_glob(const char *pattern, const char *text);
static inline bool np_plan_in_ranges(const struct np_plan_range *ranges, uint32_t count, uint64_t value) {
    for (uint32_t i = 0; i < count && i < NP_PLAN_RANGES; i++)
        if (value >= ranges[i].first && value <= ranges[i].last) return true;
    return count == 0;
}
static inline void np_plan_count(uint64_t *counter, uint64_t count) { __atomic_fetch_add(counter, count, __ATOMIC_RELAXED); }

struct np_plan_thread;
struct np_plan_tls {
    struct np_plan_thread *thread;
    uint32_t busy;  /* in the planner: not 0 */
    uint32_t ended;
    uint64_t order; /* 0: unknown */
    uint32_t tag;   /* of this thread in locks, even; 0: none yet */
    uint32_t forks; /* it is in so many forks, one in another's handlers: all locks are its own */
    void *later;    /* blocks that its signal handlers gave back while it was busy; a list */
    uintptr_t map_frame, map_return; /* where it is busy for a mapping of the program's, and where that function returns to; frame 0: it is not */
    uint32_t reading;    /* it has a view of the modules in hand (plan_match.c) */
};
extern _Thread_local struct np_plan_tls np_plan_tls __attribute__((tls_model("initial-exec")));

/* -- locks: a futex, in a process --
 *
 * A signal handler may map memory, fork, execute a program or leave the process in the middle of anything, and must not wait then for the thread that it
 * interrupted. So a thread is busy from before it takes a lock until after it let go: its handlers' calls pass the planner by. What a handler has to do
 * all the same waits for a bounded time (np_plan_lock_soon): the lock may also be held by a thread that was stopped in a handler of its own until this one is
 * done, as garbage collectors stop all threads. What was not done then is done later, or left out. A fork waits for the locks that other threads have, as
 * the C library's own does, and leaves those alone that the interrupted code has. */
struct np_plan_lock {
    uint32_t word;  /* 0: free; else the tag of the thread that has it, + 1 where others wait */
    uint32_t forks; /* of that thread, that found it taken */
};
uint32_t np_plan_new_tag(void);
void np_plan_lock_slow(struct np_plan_lock *lock);
void np_plan_wake(struct np_plan_lock *lock);
/* For what handlers may reach. False: the code that was interrupted has it, or another thread for long. */
bool np_plan_lock_soon(struct np_plan_lock *lock);
/* `phase` as of np_region_fork. */
void np_plan_lock_fork(struct np_plan_lock *lock, int phase);
static inline bool np_plan_try(struct np_plan_lock *lock) {
    uint32_t free = 0, tag = np_plan_tls.tag;
    return np_likely(tag != 0) && __atomic_compare_exchange_n(&lock->word, &free, tag, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}
/* Only this thread writes its tag, and its handlers are done before it goes on: the answer holds. */
static inline bool np_plan_holds(const struct np_plan_lock *lock) {
    return np_plan_tls.tag != 0 && (__atomic_load_n(&lock->word, __ATOMIC_RELAXED) & ~1u) == np_plan_tls.tag;
}
static inline void np_plan_lock(struct np_plan_lock *lock) {
    np_plan_tls.busy++;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (np_likely(np_plan_tls.forks == 0) && !np_plan_try(lock)) np_plan_lock_slow(lock);
}
static inline void np_plan_let_go(struct np_plan_lock *lock) {
    if (__atomic_exchange_n(&lock->word, 0, __ATOMIC_RELEASE) & 1) np_plan_wake(lock);
}
/* The code that took it, if this thread has it, was left for good. */
static inline void np_plan_lock_left(struct np_plan_lock *lock) {
    if (np_plan_holds(lock)) np_plan_let_go(lock);
}
static inline void np_plan_unlock(struct np_plan_lock *lock) {
    if (np_likely(np_plan_tls.forks == 0)) np_plan_let_go(lock);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    np_plan_tls.busy--;
}

/* -- plan_region.c: the reserved addresses -- */
enum np_span_kind { NP_SPAN_FREE, NP_SPAN_SMALL, NP_SPAN_LARGE, NP_SPAN_CACHED, NP_SPAN_WINDOW, NP_SPAN_TWIN };
struct np_plan_arena;
struct np_span {
    /* Read of a neighbour, whose arena may be another or none by then: atomic, relaxed. A span goes to and from FREE under the region's lock alone. */
    struct np_plan_arena *arena;
    uint32_t kind;
    /* Of whoever has the span: the region, an arena, or the block's owner. */
    uint32_t size_class;
    uintptr_t base;
    uint64_t granules;
    struct np_span *next, *previous;         /* in the region's free list, or a size class's list of spans with room, or the cached ones */
    struct np_span *arena_next, *arena_previous; /* all spans of an arena */
    void *free;                              /* SMALL: blocks given back */
    uint32_t block_bytes, used, bumped, capacity; /* SMALL; bumped: blocks ever handed out */
    uintptr_t twin;                          /* WINDOW, TWIN: which address of the program's allocator `base` stands for */
    bool zeroed;                             /* it was not written since it came from the kernel */
    bool refused;                            /* the kernel did not take its policy: what lies here is not placed */
    bool listed;                             /* SMALL: in its class's list */
    bool advised;                            /* about huge pages: its next mapping must not inherit that */
    bool has_open, has_closed;               /* FREE: some of it may be written; some of it may not */
    uint32_t mappings;                       /* that its placement took (plan_place.c) */
};
extern uintptr_t np_region, np_region_bytes;
/* Relaxed: a block of ours came from a hook, which had found the region, and its owner has it from there. Addresses that go later served no block. */
static inline bool np_is_ours(const void *block) { return (uintptr_t)block - np_load(np_region) < np_load(np_region_bytes); }
/* Without a plan: only what serves the loader. False: there are no addresses for a plan's blocks. */
bool np_region_make(const struct np_plan *plan);
/* The process has a limit on its addresses, or on memory that may be written. */
extern bool np_region_is_limited;
/* Lets go of what counts against that and serves no block, because the program needs some. False: there never is any. */
bool np_region_shrink(void);
/* The program is about to limit its addresses: those that serve no block go. */
void np_region_limit(void);
/* NULL: none left. `alignment`: a power of two. */
struct np_span *np_region_take(uint64_t granules, uint64_t alignment);
/* The span takes what lies right behind it, which reads as zeroes, too. False: that serves others. */
bool np_region_extend(struct np_span *span, uint64_t more);
struct np_span *np_region_split(struct np_span *span);
void np_region_give(struct np_span *span);
struct np_span *np_span_of(const void *block);
void *np_region_bootstrap(size_t bytes);
/* 0: before a fork; 1: after it, in parent and child alike. */
void np_region_fork(int phase);

/* -- plan_place.c: what the kernel is asked -- */
struct np_place {
    uint32_t node; /* for LOCAL */
    bool move;     /* pages that are there, too */
    bool joins;    /* it needs no mapping of its own: what lies beside it has the same policy, or the program has just made it */
    bool is_run;   /* of small objects: in pieces of no less than a granule */
    uint64_t page; /* of huge pages (hugetlb): the kernel refuses parts of them. 0: of the kernel's pages */
};
/* The policy of `rule` for these pages (whole pages); true: the kernel took it. *mappings (or NULL): what it took of the mappings that a process may have. */
bool np_place_range(struct np_plan_rule *rule, struct np_place place, uintptr_t address, uint64_t bytes, uint32_t *mappings);
/* The range serves nobody any more. */
void np_place_give_back(uintptr_t address, uint64_t bytes, uint32_t mappings);
/* All pages of the range to one node. */
bool np_place_move(struct np_plan_rule *rule, uintptr_t address, uint64_t bytes, uint32_t node);
void np_place_init(void);
uint32_t np_place_node(void); /* node on which this thread runs; 0 if unknown */
uint32_t np_place_node_of(int cpu);
void np_place_fork(int phase);
void np_place_left(void); /* as np_plan_was_left found */

/* -- plan_arena.c: blocks -- */
void *np_arena_alloc(struct np_plan_thread *thread, uint32_t rule, size_t bytes, size_t alignment, bool zero);
/* With room to grow: whoever grows in steps shall not copy at each of them. NULL: too few addresses are left for that, as may be where they are limited. The
 * program's own allocator has better means then. */
void *np_arena_alloc_growing(struct np_plan_thread *thread, uint32_t rule, size_t bytes);
/* A block of more bytes in place of `old`, whose bytes it has: itself, grown, or another one, after which `old` is given back. NULL: no memory; `old` stays. */
void *np_arena_regrow(struct np_plan_thread *thread, uint32_t rule, void *old, size_t bytes);
/* Copies what fits. Pages of a large block that is about to be given back go as soon as they are copied, so that there are hardly ever two of each. */
void np_arena_copy(void *to, void *old, size_t bytes);
void np_arena_free(struct np_plan_thread *thread, void *block);
size_t np_arena_size(const void *block);
/* Hand-over: every block of the rule to the node of the calling thread. */
void np_arena_hand_over(uint32_t rule, uint32_t node);
void np_arena_flush(struct np_plan_thread *thread);
void np_arena_fork(int phase);

/* -- plan_alloc.c: what this thread's signal handlers gave back while it was busy; the thread is busy -- */
void np_plan_give_late(void);

/* -- plan_twin.c: blocks that lie as the program's own allocator would have them -- */
static inline bool np_plan_has_twins(void) { return (np_plan->flags & NP_PLAN_TWINS) != 0; }
/* `twin`: a block of the program's allocator with `usable` bytes, of this block's own until np_twin_free. NULL: no memory. */
void *np_twin_alloc(struct np_plan_thread *thread, uint32_t rule, size_t bytes, bool zero, const void *twin, size_t usable);
/* NULL: it has none. */
void *np_twin_of(const void *block);
/* Lets go of the block; the twin is the caller's to give back, afterwards. */
void np_twin_free(void *block);

/* -- plan_match.c: which rule takes a call -- */
/* The first dynamic rule that takes a block of this size from this caller; negative: none. */
int np_match(struct np_plan_thread *thread, size_t bytes, struct np_regs caller);
/* Frame patterns that an address lies in. */
uint64_t np_match_address(uintptr_t address);
void np_match_init(void);
void np_match_modules_changed(void);
void np_match_forked(void); /* in the child */
void np_match_fork(int phase);
void np_match_left(void);

/* -- plan_bind.c -- */
void np_bind_init(void);
/* What the program loaded since is bound: before it asks for a function by its name, and while what that takes is allowed still (seccomp). */
void np_bind_loaded(void);

/* -- plan_thread.c -- */
#define NP_PLAN_MEMOS_LOG2 6
struct np_plan_memo { struct np_memo walk; uint64_t found; }; /* patterns in the stack */
struct np_bin { void *head; uint32_t count, limit; };
struct np_told { uint64_t all, told; }; /* what the thread has counted, and how much of that the plan's counter has */
struct np_plan_thread {
    struct np_slot walker;          /* only its stack bounds and numbers, for the unwinder */
    struct np_plan_thread *next;
    pthread_t self;
    uint64_t order;                 /* UINT64_MAX: unknown */
    uintptr_t start;
    uint32_t node_left;             /* allocations until the node is asked again */
    uint32_t node;
    uint32_t rule;                  /* thread rule in force + 1 */
    uint64_t pinned[NP_PLAN_CPU_WORDS]; /* the CPUs that it gave the thread */
    struct np_plan_memo memos[1u << NP_PLAN_MEMOS_LOG2];
    struct np_told blocks[256];     /* placed, by rule */
    struct np_told bytes[256];
    struct np_told refused[256];    /* in pages whose placement the kernel refused; not among `blocks` */
    struct np_bin bins[NP_CACHED_ARENAS][NP_CLASSES];
};
/* This thread's state, made now if need be. NULL: no memory, or the thread is ending. */
struct np_plan_thread *np_plan_thread_here(void);
void np_plan_thread_counted(struct np_plan_thread *thread);
/* The process is about to end, or to execute another program: the plan gets what its threads have counted. Called from signal handlers, too. */
void np_plan_all_counted(void);
static inline void np_plan_block_counted(struct np_plan_thread *thread, uint32_t rule, size_t bytes, bool is_refused) {
    if (np_unlikely(is_refused)) {
        np_add(thread->refused[rule].all, 1);
        return;
    }
    np_add(thread->blocks[rule].all, 1);
    np_add(thread->bytes[rule].all, bytes);
}
void np_plan_threads_init(void);
void np_plan_threads_left(void);
void np_plan_process_began(void);
/* The calling thread has this name now. */
void np_plan_renamed(const char *name);

#pragma GCC visibility pop
#endif
