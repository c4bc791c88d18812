/* vtime.h: what the files of virtual time share (vtime.c, cpus.c, sync_*.c, blocking*.c). np.h has what others call.
 *
 * docs/virtual-time.md states the rules that these files implement.
 */
#ifndef NUMAPILOT_VTIME_H
#define NUMAPILOT_VTIME_H

#include "np.h"

#include <errno.h>
#include <time.h>

#pragma GCC visibility push(hidden)

/* Program cost of an uncontended lock operation, of an atomic's hand-over and of a yield: small, so that loops made only of
 * them still move in program time. */
#define NP_LOCK_CYCLES 20
#define NP_YIELD_CYCLES 1000
/* Waits shorter than this move the clock and are counted, but get no NP_REC_SYNC of their own. */
#define NP_SYNC_RECORD_MIN_CYCLES 200

/* This module's part of np_slot.scratch. Only the owner writes, except where said. */
struct np_vtime_slot {
    uint32_t block_depth;      /* np_block_begin calls that are open */
    uint32_t throttle_futex;   /* bumped and woken by whoever lets this thread go on (shared) */
    uint32_t throttled;        /* 1 while it sleeps for the window (read by others) */
    uint32_t on_cpu;           /* CPU + 1 in whose arena.cpu_load it is counted; 0: in none (taken to 0 by others, too) */
    uint32_t lock_wait;        /* 1: the open block is a wait for a lock (read by others) */
    uint32_t locks_held;
    uint32_t wide;             /* 1: next_throttle was set while a lock was held, so for twice the window */
    uint64_t block_sp;         /* stack pointer of the outermost open np_block_begin */
    uint64_t share_clock;      /* clock up to which sharing of the virtual CPU has been charged */
    uint64_t stalled_clock;    /* not 0: others found no progress at this clock; ignored while it stays there (written by others) */
    uint64_t seen_clock;       /* what the last watcher saw, and when (written by others) */
    uint64_t seen_ns;
    uint64_t seen_cpu_ns;
    uint64_t acquire_address;  /* last atomic load, to distinguish polling from reading */
    uint64_t acquire_clock;
    uint64_t wait_object;      /* condition or semaphore at which this thread counts as waiting, with its kind and ticket */
    uint64_t wait_ticket;
    uint32_t wait_kind;
    uint32_t sleeping;         /* 1: counted in arena.epoch_waiters */
    uint64_t goes_on_at;       /* not 0: in a wait that ends by itself at this clock, as long as it is blocked (read by others) */
    uint64_t kept_back;        /* signals that a wait of this thread, in blocking.c, keeps back between its parts */
    uint64_t timed_out_ns;     /* host time for which waits went on whose time-outs had passed there, and that timed out all the same */
    uint64_t started;          /* 1: np_vtime_thread_start ran for this slot's thread (others take it to 0 when that is about to end) */
};
_Static_assert(sizeof(struct np_vtime_slot) <= 256, "fits its part of scratch");

static inline struct np_vtime_slot *np_vt(const struct np_slot *slot) {
    return (struct np_vtime_slot *)(uintptr_t)(slot->scratch + NP_SCRATCH_VTIME);
}

/* True when clocks are virtual. */
static inline bool np_vtime_on(void) {
    return np_load(np_arena) != NULL && np_arena->config.mode == NP_MODE_INSTRUMENT;
}
/* The thread left its open block by cancellation; it is taken out of it. */
bool np_block_escaped(struct np_slot *slot);
/* The caller's slot in a synchronisation hook; NULL: pass straight through. */
static inline struct np_slot *np_vtime_self(void) {
    return np_likely(np_vtime_on()) ? np_self() : NULL;
}
/* The same, NULL also inside an open wait: a library that waits by means of other waits (libomp's pool) counts once. */
static inline struct np_slot *np_vtime_caller(void) {
    struct np_slot *slot = np_vtime_self();
    return slot == NULL || np_likely(np_vt(slot)->block_depth == 0) || np_block_escaped(slot) ? slot : NULL;
}
static inline struct np_slot *np_vtime_self_live(void) {
    return np_likely(np_vtime_on()) ? np_self_if_live() : NULL;
}

/* ---- vtime.c ---- */
/* What all threads of a process share, besides the arena. An emulator's plugin uses that of the process which it emulates. */
#define NP_BIRTHS 128
struct np_vtime_process {
    struct {
        uint64_t clock;    /* of a thread that was created, or woken, and has not run yet, + 1; 0: free */
        uint64_t until_ns; /* forgotten then */
    } births[NP_BIRTHS];
    uint32_t births_open;
    uint32_t host_cpus;
};
extern struct np_vtime_process *np_vtime_process;
uint64_t np_monotonic_ns(void);
uint64_t np_cycles_of_ns(uint64_t ns);
/* After a wait outside the program (I/O): not further behind the running threads than the window. */
void np_block_catch_up(struct np_slot *slot);
/* As np_clock_wait_until, for time that passes by itself (sleeps, time-outs): not counted as waiting for others. */
void np_clock_sleep(struct np_slot *slot, uint64_t cycles, enum np_sync_kind kind, uint64_t object);
/* The lowest clock at which another thread runs, or goes on by itself at the end of a time-out; UINT64_MAX: all others wait, or are out of sight. */
uint64_t np_clock_of_others(const struct np_slot *slot);
/* Takes the thread out of all its open blocks (a pool thread gets work inside one), and back into them. */
uint32_t np_block_suspend(struct np_slot *slot);
void np_block_resume(struct np_slot *slot, uint32_t depth);
/* np_block_begin for waits inside an OpenMP library, which may go on in frames above the one that opened them, and which nothing leaves by a jump. */
void np_library_block_begin(struct np_slot *slot);
/* Charges the virtual CPU's other threads to this one's clock, for the work since the last call. */
void np_share_charge(struct np_slot *slot);

/* np_block_begin for a wait for a lock: whoever holds no lock still respects this clock, so that a thread which takes and gives back a lock
 * in a loop cannot run away from those that the host has not woken yet. */
void np_lock_wait_begin(struct np_slot *slot);
/* Wake-ups in flight: `count` threads will go on at `clock`, which counts until each called np_vtime_birth_done with that clock. */
void np_wakes_begin(uint64_t clock, uint32_t count);

/* Whether the slot's last thread still counts: on a CPU, or among those that sleep for the window. */
static inline bool np_vtime_counts(const struct np_slot *slot) {
    return np_load(np_vt(slot)->on_cpu) != 0 || np_load(np_vt(slot)->sleeping) != 0;
}

/* ---- cpus.c ---- */
void np_cpu_start(struct np_slot *slot);
void np_cpu_wake(struct np_slot *slot);
void np_cpu_leave(struct np_slot *slot);

static inline uint32_t np_cpu_count(void) {
    uint32_t count = np_arena->config.cpu_count;
    return count < NP_MAX_CPUS ? count : NP_MAX_CPUS;
}

static inline bool np_in_cpu_set(const uint64_t *set, uint32_t cpu) { return cpu < NP_MAX_CPUS && (set[cpu / 64] >> (cpu % 64) & 1); }

/* The CPU of a set (NULL: any) with the fewest running threads, the first of the layout order among equals; `own`, where it is in the set,
 * before all equals, since caches are warm there. NP_MAX_CPUS: the machine has none of the set. */
uint32_t np_cpu_idlest(const uint64_t *set, uint32_t own);
/* Puts a thread on a CPU; `move` writes a CPU record as well. By the thread itself, which counts on the new CPU if it did on the old one. */
void np_cpu_put(struct np_slot *slot, uint32_t cpu);
void np_cpu_move(struct np_slot *slot, uint32_t cpu);
/* A running thread that shares its CPU goes to one with fewer threads, if it may. */
void np_cpu_balance(struct np_slot *slot);

/* ---- sync_clock.c: clocks of synchronisation objects, private to the process ---- */
enum np_object_kind { NP_OBJECT_LOCK = 1, NP_OBJECT_READERS, NP_OBJECT_COND, NP_OBJECT_SEM, NP_OBJECT_BARRIER, NP_OBJECT_EVENT, NP_OBJECT_FUTEX };

/* A lock was obtained (waits until no thread holds it in program time) / is about to be given back. Recursive holds nest. */
void np_lock_acquired(struct np_slot *slot, uintptr_t address, enum np_sync_kind kind);
void np_lock_releasing(struct np_slot *slot, uintptr_t address, enum np_sync_kind kind);
bool np_lock_is_mine(struct np_slot *slot, uintptr_t address);
void np_read_lock_acquired(struct np_slot *slot, uintptr_t address);
void np_read_lock_releasing(struct np_slot *slot, uintptr_t address);

/* Condition variables: `begin` before the wait gives a ticket that `end` turns into the clock of the wake-up (0: none known). `wake`: the
 * wake-up in flight that this was (0: none), to be given to np_vtime_birth_done once the thread counts as running. `notices`: for the last of these. */
uint64_t np_cond_begin(struct np_slot *slot, uintptr_t address, uint64_t *notices);
uint64_t np_cond_end(struct np_slot *slot, uintptr_t address, uint64_t ticket, bool woken, uint64_t *wake);
void np_cond_notify(struct np_slot *slot, uintptr_t address, bool all);
/* Whether a waiter that timed out may have missed a signal: one since its time-out was due in host time, or, of those that were for it alone or for all, one
 * since `notices` was last set. */
bool np_cond_may_have_missed(struct np_slot *slot, uintptr_t address, uint64_t due_ns, uint64_t *notices);

/* Semaphores: tokens carry the clock of their post, first in, first out. */
void np_sem_reset(struct np_slot *slot, uintptr_t address, uint32_t initial);
void np_sem_posted(struct np_slot *slot, uintptr_t address);
uint64_t np_sem_taken(struct np_slot *slot, uintptr_t address);
void np_sem_waits(struct np_slot *slot, uintptr_t address);
/* Gives the wake-up in flight that this was, as np_cond_end. */
uint64_t np_sem_waited(struct np_slot *slot, uintptr_t address);
/* The thread left such a wait otherwise (cancelled, jumped out of): it no longer counts there. */
void np_wait_abandoned(struct np_slot *slot);

/* Barriers: `arrive` gives the round, `leave` the latest arrival of that round. */
void np_barrier_reset(struct np_slot *slot, uintptr_t address, uint32_t count);
uint64_t np_barrier_arrive(struct np_slot *slot, uintptr_t address);
uint64_t np_barrier_leave(struct np_slot *slot, uintptr_t address, uint64_t round);

/* One clock under an address (0: none): end of a once routine, last wake of a futex. */
void np_event_set(struct np_slot *slot, enum np_object_kind kind, uintptr_t address, uint64_t clock);
uint64_t np_event_get(struct np_slot *slot, enum np_object_kind kind, uintptr_t address);

/* The same in the arena, seen by every process of the recording. Keys are below 2^48 and tell their own name space. */
#define NP_SHARED_PIPE 0x1000000000000000ull
#define NP_SHARED_PROCESS 0x2000000000000000ull
/* Raises the clock under `key`; never lowers it, whoever races. */
void np_shared_set(uint64_t key, uint64_t clock);
uint64_t np_shared_get(uint64_t key);

/* ---- sync_timed.c: waits that end by themselves after some time ---- */
struct np_timed {
    struct np_slot *slot;
    uint64_t deadline;              /* clock; 0: none, or passed from the start */
    uint64_t began_ns, due_ns;      /* in host time: the wait's begin, and the end of its present part */
    uint64_t passed_ns, limit_ns;   /* when its time-out had passed there (0: not yet), and until when it may go on all the same */
    uint64_t reached;               /* clock of the others, where they were behind at the last look */
    uint32_t calm;                  /* looks in a row at which none was behind */
    bool is_early;                  /* at the last look, one was */
    struct timespec part, until;    /* the next part: how long, and until when on the program's clock */
};
/* A wait that ends by itself (without a deadline: it does not), before np_block_begin. */
struct np_timed np_timed_until(struct np_slot *slot, clockid_t clock_id, const struct timespec *absolute);
/* One that has timed out in host time, where its time-out could not be read before: it began then, at the thread's present clock, for so many cycles. */
struct np_timed np_timed_since(struct np_slot *slot, uint64_t began_ns, uint64_t cycles);
/* The wait has timed out in host time: whether it is to be called again, with `part` or `until` as its time-out. */
bool np_timed_goes_on(struct np_timed *timed, clockid_t clock_id);
/* It has timed out for good: passes its program time. */
void np_timed_out(struct np_timed *timed, enum np_sync_kind kind, uint64_t object);

/* Deadline `absolute` on `clock_id`, in cycles from now; 0 if it has passed. */
uint64_t np_cycles_until(clockid_t clock_id, const struct timespec *absolute);

static inline void np_atomic_max(uint64_t *where, uint64_t value) {
    uint64_t seen = __atomic_load_n(where, __ATOMIC_RELAXED);
    while (seen < value && !__atomic_compare_exchange_n(where, &seen, value, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
    }
}

#pragma GCC visibility pop
#endif
