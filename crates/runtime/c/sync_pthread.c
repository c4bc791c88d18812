/* sync_pthread.c: clocks at mutexes, reader-writer and spin locks, barriers, once and join (pthread and C11). sync_cond.c has the
 * condition variables, sync_sem.c the semaphores. The C++ classes come through these.
 *
 * Each hook passes straight through when nothing is recorded or no time is simulated, calls the real function exactly once with the same effect
 * (a lock may be tried first; a time-out may pass in parts, see sync_timed.c), and returns what it returned. Waits in host time say nothing about program
 * time: what moves the clock is documented in sync_clock.c.
 */
#define _GNU_SOURCE
#include "vtime.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <threads.h>

/* ---- mutexes ---- */

static inline bool got(int result) {
    return result == 0 || result == EOWNERDEAD;
}

/* Robust mutexes and those with a priority protocol (these bits of the kind) are never tried first: glibc's trylock of a robust mutex that
 * cannot be recovered keeps it, and the lock after it would wait for ever. */
static inline bool may_try(const pthread_mutex_t *mutex) {
    return (__atomic_load_n(&mutex->__data.__kind, __ATOMIC_RELAXED) & 0x70) == 0;
}

NP_EXPORT int pthread_mutex_lock(pthread_mutex_t *mutex) {
    struct np_slot *slot = np_vtime_caller();
    if (slot == NULL) return NP_REAL(pthread_mutex_lock)(mutex);
    np_throttle(slot);
    int result = may_try(mutex) ? NP_REAL(pthread_mutex_trylock)(mutex) : EBUSY;
    if (!got(result)) {
        np_lock_wait_begin(slot);
        result = NP_REAL(pthread_mutex_lock)(mutex);
        np_block_end(slot);
    }
    if (got(result)) np_lock_acquired(slot, (uintptr_t)mutex, NP_SYNC_MUTEX);
    return result;
}

NP_EXPORT int pthread_mutex_trylock(pthread_mutex_t *mutex) {
    struct np_slot *slot = np_vtime_caller();
    if (slot == NULL) return NP_REAL(pthread_mutex_trylock)(mutex);
    np_throttle(slot);
    int result = NP_REAL(pthread_mutex_trylock)(mutex);
    if (got(result)) np_lock_acquired(slot, (uintptr_t)mutex, NP_SYNC_MUTEX);
    else np_clock_advance(slot, NP_LOCK_CYCLES); /* so that a loop of attempts passes time */
    return result;
}

/* Waits until the caller's `deadline` on the clock; `again` is `call` until timed.until. What ends such a wait is a state that stays, so that none is missed
 * between its parts. */
#define NP_UNTIL(kind, object, clock_id, call, again)                                                  \
    ({                                                                                                 \
        struct np_timed timed = np_timed_until(slot, clock_id, deadline);                              \
        np_block_begin(slot);                                                                          \
        int timed_result_ = call;                                                                      \
        while (timed_result_ == ETIMEDOUT && np_timed_goes_on(&timed, clock_id)) timed_result_ = again; \
        if (timed_result_ == ETIMEDOUT) np_timed_out(&timed, kind, object);                            \
        np_block_end(slot);                                                                            \
        timed_result_;                                                                                 \
    })

NP_EXPORT int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict deadline) {
    struct np_slot *slot = np_vtime_caller();
    if (slot == NULL) return NP_REAL(pthread_mutex_timedlock)(mutex, deadline);
    np_throttle(slot);
    int result = NP_UNTIL(NP_SYNC_MUTEX, (uintptr_t)mutex, CLOCK_REALTIME, NP_REAL(pthread_mutex_timedlock)(mutex, deadline),
                          NP_REAL(pthread_mutex_timedlock)(mutex, &timed.until));
    if (got(result)) np_lock_acquired(slot, (uintptr_t)mutex, NP_SYNC_MUTEX);
    return result;
}

NP_EXPORT int pthread_mutex_clocklock(pthread_mutex_t *restrict mutex, clockid_t clock_id, const struct timespec *restrict deadline) {
    struct np_slot *slot = np_vtime_caller();
    if (slot == NULL) return NP_REAL(pthread_mutex_clocklock)(mutex, clock_id, deadline);
    np_throttle(slot);
    int result = NP_UNTIL(NP_SYNC_MUTEX, (uintptr_t)mutex, clock_id, NP_REAL(pthread_mutex_clocklock)(mutex, clock_id, deadline),
                          NP_REAL(pthread_mutex_clocklock)(mutex, clock_id, &timed.until));
    if (got(result)) np_lock_acquired(slot, (uintptr_t)mutex, NP_SYNC_MUTEX);
    return result;
}

NP_EXPORT int pthread_mutex_unlock(pthread_mutex_t *mutex) {
    struct np_slot *slot = np_vtime_caller();
    if (slot != NULL) np_lock_releasing(slot, (uintptr_t)mutex, NP_SYNC_MUTEX);
    return NP_REAL(pthread_mutex_unlock)(mutex);
}

/* glibc's C11 mutexes are its pthread mutexes, called inside the library where no hook sees it. */
NP_EXPORT int mtx_lock(mtx_t *mutex) {
    return pthread_mutex_lock((pthread_mutex_t *)mutex) == 0 ? thrd_success : thrd_error;
}

NP_EXPORT int mtx_trylock(mtx_t *mutex) {
    int result = pthread_mutex_trylock((pthread_mutex_t *)mutex);
    return result == 0 ? thrd_success : result == EBUSY ? thrd_busy : thrd_error;
}

NP_EXPORT int mtx_timedlock(mtx_t *restrict mutex, const struct timespec *restrict deadline) {
    int result = pthread_mutex_timedlock((pthread_mutex_t *)mutex, deadline);
    return result == 0 ? thrd_success : result == ETIMEDOUT ? thrd_timedout : thrd_error;
}

NP_EXPORT int mtx_unlock(mtx_t *mutex) {
    return pthread_mutex_unlock((pthread_mutex_t *)mutex) == 0 ? thrd_success : thrd_error;
}

/* ---- spin locks: the waiting thread is left out of the window, as for a mutex ---- */

NP_EXPORT int pthread_spin_lock(pthread_spinlock_t *lock) {
    struct np_slot *slot = np_vtime_caller();
    if (slot == NULL) return NP_REAL(pthread_spin_lock)(lock);
    np_throttle(slot);
    int result = NP_REAL(pthread_spin_trylock)(lock);
    if (result != 0) {
        np_lock_wait_begin(slot);
        /* Its holder may be asleep for the window: sixteen threads that really spin would keep it from the host's two CPUs. */
        for (unsigned attempt = 0; (result = NP_REAL(pthread_spin_trylock)(lock)) == EBUSY; attempt++) {
            struct timespec pause = {0, 50000};
            if (np_is_confined) np_pause();
            else if (attempt >= 20) np_sys(SYS_nanosleep, (long)&pause, 0, 0, 0, 0, 0);
            else if (attempt >= 10) np_sys(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
        }
        np_block_end(slot);
    }
    if (result == 0) np_lock_acquired(slot, (uintptr_t)lock, NP_SYNC_MUTEX);
    return result;
}

NP_EXPORT int pthread_spin_trylock(pthread_spinlock_t *lock) {
    struct np_slot *slot = np_vtime_caller();
    if (slot == NULL) return NP_REAL(pthread_spin_trylock)(lock);
    np_throttle(slot);
    int result = NP_REAL(pthread_spin_trylock)(lock);
    if (result == 0) np_lock_acquired(slot, (uintptr_t)lock, NP_SYNC_MUTEX);
    else np_clock_advance(slot, NP_LOCK_CYCLES);
    return result;
}

NP_EXPORT int pthread_spin_unlock(pthread_spinlock_t *lock) {
    struct np_slot *slot = np_vtime_caller();
    if (slot != NULL) np_lock_releasing(slot, (uintptr_t)lock, NP_SYNC_MUTEX);
    return NP_REAL(pthread_spin_unlock)(lock);
}

/* ---- reader-writer locks ---- */

static void rwlock_got(struct np_slot *slot, pthread_rwlock_t *lock, bool write) {
    if (write) np_lock_acquired(slot, (uintptr_t)lock, NP_SYNC_RWLOCK);
    else np_read_lock_acquired(slot, (uintptr_t)lock);
}

#define NP_RWLOCK(kind, write)                                                                                              \
    NP_EXPORT int pthread_rwlock_##kind##lock(pthread_rwlock_t *lock) {                                                     \
        struct np_slot *slot = np_vtime_caller();                                                                             \
        if (slot == NULL) return NP_REAL(pthread_rwlock_##kind##lock)(lock);                                                \
        np_throttle(slot);                                                                                                  \
        int result = NP_REAL(pthread_rwlock_try##kind##lock)(lock);                                                         \
        if (result != 0) {                                                                                                  \
            np_lock_wait_begin(slot);                                                                                       \
            result = NP_REAL(pthread_rwlock_##kind##lock)(lock);                                                            \
            np_block_end(slot);                                                                                             \
        }                                                                                                                   \
        if (result == 0) rwlock_got(slot, lock, write);                                                                     \
        return result;                                                                                                      \
    }                                                                                                                       \
    NP_EXPORT int pthread_rwlock_try##kind##lock(pthread_rwlock_t *lock) {                                                  \
        struct np_slot *slot = np_vtime_caller();                                                                             \
        if (slot == NULL) return NP_REAL(pthread_rwlock_try##kind##lock)(lock);                                             \
        np_throttle(slot);                                                                                                  \
        int result = NP_REAL(pthread_rwlock_try##kind##lock)(lock);                                                         \
        if (result == 0) rwlock_got(slot, lock, write);                                                                     \
        else np_clock_advance(slot, NP_LOCK_CYCLES);                                                                        \
        return result;                                                                                                      \
    }                                                                                                                       \
    NP_EXPORT int pthread_rwlock_timed##kind##lock(pthread_rwlock_t *restrict lock, const struct timespec *restrict deadline) { \
        struct np_slot *slot = np_vtime_caller();                                                                             \
        if (slot == NULL) return NP_REAL(pthread_rwlock_timed##kind##lock)(lock, deadline);                                 \
        np_throttle(slot);                                                                                                  \
        int result = NP_UNTIL(NP_SYNC_RWLOCK, (uintptr_t)lock, CLOCK_REALTIME, NP_REAL(pthread_rwlock_timed##kind##lock)(lock, deadline), \
                              NP_REAL(pthread_rwlock_timed##kind##lock)(lock, &timed.until));                               \
        if (result == 0) rwlock_got(slot, lock, write);                                                                     \
        return result;                                                                                                      \
    }                                                                                                                       \
    NP_EXPORT int pthread_rwlock_clock##kind##lock(pthread_rwlock_t *restrict lock, clockid_t clock_id,                     \
                                                   const struct timespec *restrict deadline) {                              \
        struct np_slot *slot = np_vtime_caller();                                                                             \
        if (slot == NULL) return NP_REAL(pthread_rwlock_clock##kind##lock)(lock, clock_id, deadline);                       \
        np_throttle(slot);                                                                                                  \
        int result = NP_UNTIL(NP_SYNC_RWLOCK, (uintptr_t)lock, clock_id, NP_REAL(pthread_rwlock_clock##kind##lock)(lock, clock_id, deadline), \
                              NP_REAL(pthread_rwlock_clock##kind##lock)(lock, clock_id, &timed.until));                     \
        if (result == 0) rwlock_got(slot, lock, write);                                                                     \
        return result;                                                                                                      \
    }
NP_RWLOCK(rd, false)
NP_RWLOCK(wr, true)

NP_EXPORT int pthread_rwlock_unlock(pthread_rwlock_t *lock) {
    struct np_slot *slot = np_vtime_caller();
    if (slot != NULL) {
        if (np_lock_is_mine(slot, (uintptr_t)lock)) np_lock_releasing(slot, (uintptr_t)lock, NP_SYNC_RWLOCK);
        else np_read_lock_releasing(slot, (uintptr_t)lock);
    }
    return NP_REAL(pthread_rwlock_unlock)(lock);
}

/* ---- barriers ---- */

NP_EXPORT int pthread_barrier_init(pthread_barrier_t *restrict barrier, const pthread_barrierattr_t *restrict attributes, unsigned count) {
    int result = NP_REAL(pthread_barrier_init)(barrier, attributes, count);
    struct np_slot *slot = result == 0 ? np_vtime_caller() : NULL;
    if (slot != NULL) np_barrier_reset(slot, (uintptr_t)barrier, count);
    return result;
}

NP_EXPORT int pthread_barrier_wait(pthread_barrier_t *barrier) {
    struct np_slot *slot = np_vtime_caller();
    if (slot == NULL) return NP_REAL(pthread_barrier_wait)(barrier);
    np_throttle(slot);
    uint64_t round = np_barrier_arrive(slot, (uintptr_t)barrier);
    np_block_begin(slot);
    int result = NP_REAL(pthread_barrier_wait)(barrier);
    uint64_t latest = np_barrier_leave(slot, (uintptr_t)barrier, round);
    np_clock_wait_until(slot, latest, NP_SYNC_BARRIER, (uintptr_t)barrier);
    np_block_end(slot);
    np_vtime_birth_done(latest);
    return result;
}

/* ---- once ---- */

struct once {
    void (*routine)(void);
    struct np_slot *slot;
    uint32_t blocked; /* open blocks, suspended while the routine runs */
    bool ran;
};
NP_TLS struct once *once_now;

/* Runs the routine with the thread counted as running; an exception passes through and leaves the block to be found stale. */
static void run_once(void) {
    struct once *once = once_now;
    once->blocked = np_block_suspend(once->slot);
    once->routine();
    once->ran = true;
    np_share_charge(once->slot);
    np_block_resume(once->slot, once->blocked);
}

NP_EXPORT int pthread_once(pthread_once_t *control, void (*routine)(void)) {
    struct np_slot *slot = np_vtime_caller();
    if (slot == NULL) return NP_REAL(pthread_once)(control, routine);
    if (__atomic_load_n((int *)control, __ATOMIC_ACQUIRE) & 2) { /* done, in glibc's coding */
        np_clock_wait_until(slot, np_event_get(slot, NP_OBJECT_EVENT, (uintptr_t)control), NP_SYNC_ONCE, (uintptr_t)control);
        return 0;
    }
    struct once *outer = once_now, once = {routine, slot, 0, false};
    once_now = &once;
    np_block_begin(slot);
    int result = NP_REAL(pthread_once)(control, run_once);
    once_now = outer;
    if (once.ran) np_event_set(slot, NP_OBJECT_EVENT, (uintptr_t)control, np_clock_of(slot));
    else np_clock_wait_until(slot, np_event_get(slot, NP_OBJECT_EVENT, (uintptr_t)control), NP_SYNC_ONCE, (uintptr_t)control);
    np_block_end(slot);
    return result;
}

NP_EXPORT void call_once(once_flag *flag, void (*routine)(void)) {
    pthread_once((pthread_once_t *)flag, routine);
}

/* ---- join ---- */

static void joined(struct np_slot *slot, pthread_t thread) {
    uint64_t clock;
    uint32_t index;
    if (np_thread_end_clock(thread, &clock, &index)) np_clock_wait_until(slot, clock, NP_SYNC_JOIN, index);
}

#define NP_JOINED(slot, thread, call)               \
    ({                                              \
        int joined_result_ = call;                  \
        if (joined_result_ == 0) joined(slot, thread); \
        joined_result_;                             \
    })
#define NP_JOIN(slot, thread, call)                   \
    ({                                                \
        np_block_begin(slot);                         \
        int result_ = NP_JOINED(slot, thread, call);  \
        np_block_end(slot);                           \
        result_;                                      \
    })

NP_EXPORT int pthread_join(pthread_t thread, void **value) {
    struct np_slot *slot = np_vtime_caller();
    if (slot == NULL) return NP_REAL(pthread_join)(thread, value);
    return NP_JOIN(slot, thread, NP_REAL(pthread_join)(thread, value));
}

NP_EXPORT int pthread_tryjoin_np(pthread_t thread, void **value) {
    struct np_slot *slot = np_vtime_caller();
    if (slot == NULL) return NP_REAL(pthread_tryjoin_np)(thread, value);
    np_clock_advance(slot, NP_LOCK_CYCLES);
    np_throttle(slot);
    return NP_JOIN(slot, thread, NP_REAL(pthread_tryjoin_np)(thread, value));
}

NP_EXPORT int pthread_timedjoin_np(pthread_t thread, void **value, const struct timespec *deadline) {
    struct np_slot *slot = np_vtime_caller();
    if (slot == NULL) return NP_REAL(pthread_timedjoin_np)(thread, value, deadline);
    return NP_UNTIL(NP_SYNC_JOIN, thread, CLOCK_REALTIME, NP_JOINED(slot, thread, NP_REAL(pthread_timedjoin_np)(thread, value, deadline)),
                    NP_JOINED(slot, thread, NP_REAL(pthread_timedjoin_np)(thread, value, &timed.until)));
}

NP_EXPORT int pthread_clockjoin_np(pthread_t thread, void **value, clockid_t clock_id, const struct timespec *deadline) {
    struct np_slot *slot = np_vtime_caller();
    if (slot == NULL) return NP_REAL(pthread_clockjoin_np)(thread, value, clock_id, deadline);
    return NP_UNTIL(NP_SYNC_JOIN, thread, clock_id, NP_JOINED(slot, thread, NP_REAL(pthread_clockjoin_np)(thread, value, clock_id, deadline)),
                    NP_JOINED(slot, thread, NP_REAL(pthread_clockjoin_np)(thread, value, clock_id, &timed.until)));
}

NP_EXPORT int thrd_join(thrd_t thread, int *value) {
    struct np_slot *slot = np_vtime_caller();
    if (slot == NULL) return NP_REAL(thrd_join)(thread, value);
    np_block_begin(slot);
    int result = NP_REAL(thrd_join)(thread, value);
    if (result == thrd_success) joined(slot, thread);
    np_block_end(slot);
    return result;
}
