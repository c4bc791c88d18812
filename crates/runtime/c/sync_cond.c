/* sync_cond.c: clocks at condition variables (pthread and C11).
 *
 * The waiter gives the mutex back at the start and takes it again at the end, in program time as in the real one; in between it is
 * blocked, and leaves at the clock of the signal that woke it. A wait without a signal (spurious) leaves at its own clock;
 * one that timed out, at its deadline (sync_timed.c).
 */
#define _GNU_SOURCE
#include "vtime.h"

#include <dlfcn.h>
#include <pthread.h>
#include <threads.h>

/* x86-64's glibc has two generations of these functions under one name, and plain dlsym may find the one without clocks. */
static void *real_cond(const char *name) {
#if defined(__x86_64__)
    void *found = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");
    if (found != NULL) return found;
#endif
    return np_real(name);
}
#define NP_REAL_COND(name)                                                                    \
    ({                                                                                        \
        static __typeof__(&name) real_;                                                       \
        NP_REAL_LISTED(real_, #name, real_cond);                                              \
        NP_KEPT(real_, real_cond(#name));                                                     \
    })

/* Nine years: what programs mean by never, as far ahead as time allows, is no more than that. Its cycles still fit, behind any clock. */
#define FAR_NS (1ll << 58)

uint64_t np_cycles_until(clockid_t clock_id, const struct timespec *absolute) {
    struct timespec now;
    int saved = errno;
    if (absolute == NULL || clock_gettime(clock_id, &now) != 0) {
        errno = saved;
        return 0;
    }
    __int128 ns = ((__int128)absolute->tv_sec - now.tv_sec) * 1000000000 + absolute->tv_nsec - now.tv_nsec;
    return ns > 0 ? np_cycles_of_ns(ns < FAR_NS ? (uint64_t)ns : FAR_NS) : 0;
}

struct wait {
    struct np_slot *slot;
    uintptr_t condition, mutex;
    uint64_t ticket, notices;
    bool has_other_processes; /* whose signals are not seen here */
    struct np_timed timed;
};

static struct wait begin(struct np_slot *slot, pthread_cond_t *condition, void *mutex, clockid_t clock_id, const struct timespec *deadline) {
    struct wait wait = {.slot = slot, .condition = (uintptr_t)condition, .mutex = (uintptr_t)mutex};
    np_lock_releasing(slot, wait.mutex, NP_SYNC_MUTEX);
    wait.timed = np_timed_until(slot, clock_id, deadline);
    wait.has_other_processes = (condition->__data.__wrefs & 1) != 0;
    wait.ticket = np_cond_begin(slot, wait.condition, &wait.notices);
    np_block_begin(slot);
    return wait;
}

/* Between two parts the thread has the mutex, but whoever signals need not: such a signal may have found nobody, and ends the wait. Asked last, for as little
 * time as can be until the next part. Not looked at: the condition, which may be gone by then (a broadcast allows it). */
static bool goes_on(struct wait *wait, clockid_t clock_id) {
    uint64_t due_ns = wait->timed.due_ns;
    if (!np_timed_goes_on(&wait->timed, clock_id) || wait->has_other_processes || wait->ticket == UINT64_MAX) return false;
    return !np_cond_may_have_missed(wait->slot, wait->condition, due_ns, &wait->notices);
}

static int end(struct wait *wait, int result) {
    struct np_slot *slot = wait->slot;
    uint64_t wake, clock = np_cond_end(slot, wait->condition, wait->ticket, result == 0, &wake);
    np_clock_wait_until(slot, clock, NP_SYNC_COND, wait->condition);
    if (result == ETIMEDOUT) np_timed_out(&wait->timed, NP_SYNC_COND, wait->condition);
    np_block_end(slot);
    if (wake != 0) np_vtime_birth_done(wake);
    np_lock_acquired(slot, wait->mutex, NP_SYNC_MUTEX);
    return result;
}

NP_EXPORT int pthread_cond_wait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex) {
    struct np_slot *slot = np_vtime_caller();
    if (slot == NULL) return NP_REAL_COND(pthread_cond_wait)(condition, mutex);
    struct wait wait = begin(slot, condition, mutex, CLOCK_REALTIME, NULL);
    return end(&wait, NP_REAL_COND(pthread_cond_wait)(condition, mutex));
}

NP_EXPORT int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                                     const struct timespec *restrict deadline) {
    struct np_slot *slot = np_vtime_caller();
    if (slot == NULL) return NP_REAL_COND(pthread_cond_timedwait)(condition, mutex, deadline);
    /* Which clock the deadline is on is an attribute, which glibc keeps as bit 1 of this word. */
    clockid_t clock_id = (condition->__data.__wrefs & 2) != 0 ? CLOCK_MONOTONIC : CLOCK_REALTIME;
    struct wait wait = begin(slot, condition, mutex, clock_id, deadline);
    int result = NP_REAL_COND(pthread_cond_timedwait)(condition, mutex, deadline);
    while (result == ETIMEDOUT && goes_on(&wait, clock_id))
        result = NP_REAL_COND(pthread_cond_timedwait)(condition, mutex, &wait.timed.until);
    return end(&wait, result);
}

NP_EXPORT int pthread_cond_clockwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex, clockid_t clock_id,
                                     const struct timespec *restrict deadline) {
    struct np_slot *slot = np_vtime_caller();
    if (slot == NULL) return NP_REAL(pthread_cond_clockwait)(condition, mutex, clock_id, deadline);
    struct wait wait = begin(slot, condition, mutex, clock_id, deadline);
    int result = NP_REAL(pthread_cond_clockwait)(condition, mutex, clock_id, deadline);
    while (result == ETIMEDOUT && goes_on(&wait, clock_id))
        result = NP_REAL(pthread_cond_clockwait)(condition, mutex, clock_id, &wait.timed.until);
    return end(&wait, result);
}

NP_EXPORT int pthread_cond_signal(pthread_cond_t *condition) {
    struct np_slot *slot = np_vtime_caller();
    if (slot != NULL) np_cond_notify(slot, (uintptr_t)condition, false);
    return NP_REAL_COND(pthread_cond_signal)(condition);
}

NP_EXPORT int pthread_cond_broadcast(pthread_cond_t *condition) {
    struct np_slot *slot = np_vtime_caller();
    if (slot != NULL) np_cond_notify(slot, (uintptr_t)condition, true);
    return NP_REAL_COND(pthread_cond_broadcast)(condition);
}

/* glibc's C11 condition variables are its pthread ones, called inside the library where no hook sees it. */
NP_EXPORT int cnd_wait(cnd_t *condition, mtx_t *mutex) {
    return pthread_cond_wait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex) == 0 ? thrd_success : thrd_error;
}

NP_EXPORT int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict deadline) {
    int result = pthread_cond_timedwait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex, deadline);
    return result == 0 ? thrd_success : result == ETIMEDOUT ? thrd_timedout : thrd_error;
}

NP_EXPORT int cnd_signal(cnd_t *condition) {
    return pthread_cond_signal((pthread_cond_t *)condition) == 0 ? thrd_success : thrd_error;
}

NP_EXPORT int cnd_broadcast(cnd_t *condition) {
    return pthread_cond_broadcast((pthread_cond_t *)condition) == 0 ? thrd_success : thrd_error;
}
