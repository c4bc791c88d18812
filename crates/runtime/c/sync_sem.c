/* sync_sem.c: clocks at POSIX semaphores. Each token carries the clock of its post, first in first out; whoever takes it leaves no
 * earlier. Tokens that sem_init laid in carry none.
 */
#define _GNU_SOURCE
#include "vtime.h"

#include <semaphore.h>

NP_EXPORT int sem_init(sem_t *semaphore, int shared, unsigned value) {
    int result = NP_REAL(sem_init)(semaphore, shared, value);
    struct np_slot *slot = result == 0 ? np_vtime_caller() : NULL;
    if (slot != NULL) np_sem_reset(slot, (uintptr_t)semaphore, value);
    return result;
}

NP_EXPORT int sem_post(sem_t *semaphore) {
    struct np_slot *slot = np_vtime_caller();
    if (slot != NULL) np_sem_posted(slot, (uintptr_t)semaphore);
    return NP_REAL(sem_post)(semaphore);
}

static void taken(struct np_slot *slot, sem_t *semaphore) {
    int saved = errno;
    uint64_t clock = np_sem_taken(slot, (uintptr_t)semaphore);
    np_clock_wait_until(slot, clock, NP_SYNC_SEM, (uintptr_t)semaphore);
    np_clock_advance(slot, NP_LOCK_CYCLES);
    errno = saved;
}

/* Tries first, so that a wait that does not block costs no state change. */
static bool taken_at_once(struct np_slot *slot, sem_t *semaphore) {
    np_throttle(slot);
    int saved = errno;
    if (NP_REAL(sem_trywait)(semaphore) == 0) {
        taken(slot, semaphore);
        return true;
    }
    errno = saved;
    return false;
}

/* `timed`: NULL for a wait that ends by a token only. */
static int finish(struct np_slot *slot, sem_t *semaphore, int result, struct np_timed *timed) {
    int saved = errno;
    uint64_t wake = np_sem_waited(slot, (uintptr_t)semaphore);
    if (result == 0) taken(slot, semaphore);
    else if (saved == ETIMEDOUT && timed != NULL) np_timed_out(timed, NP_SYNC_SEM, (uintptr_t)semaphore);
    np_block_end(slot);
    if (wake != 0) np_vtime_birth_done(wake);
    errno = saved;
    return result;
}

NP_EXPORT int sem_wait(sem_t *semaphore) {
    struct np_slot *slot = np_vtime_caller();
    if (slot == NULL) return NP_REAL(sem_wait)(semaphore);
    if (taken_at_once(slot, semaphore)) return 0;
    np_sem_waits(slot, (uintptr_t)semaphore);
    np_block_begin(slot);
    return finish(slot, semaphore, NP_REAL(sem_wait)(semaphore), NULL);
}

NP_EXPORT int sem_trywait(sem_t *semaphore) {
    struct np_slot *slot = np_vtime_caller();
    if (slot == NULL) return NP_REAL(sem_trywait)(semaphore);
    np_throttle(slot);
    int result = NP_REAL(sem_trywait)(semaphore);
    if (result == 0) taken(slot, semaphore);
    else np_clock_advance(slot, NP_LOCK_CYCLES);
    return result;
}

NP_EXPORT int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict deadline) {
    struct np_slot *slot = np_vtime_caller();
    if (slot == NULL) return NP_REAL(sem_timedwait)(semaphore, deadline);
    np_throttle(slot); /* not tried first: a bad deadline is an error even if a token is there */
    int before = errno; /* what a token leaves there, in whichever part of the wait it comes */
    struct np_timed timed = np_timed_until(slot, CLOCK_REALTIME, deadline);
    np_sem_waits(slot, (uintptr_t)semaphore);
    np_block_begin(slot);
    int result = NP_REAL(sem_timedwait)(semaphore, deadline);
    while (result != 0 && errno == ETIMEDOUT && np_timed_goes_on(&timed, CLOCK_REALTIME)) {
        errno = before;
        result = NP_REAL(sem_timedwait)(semaphore, &timed.until);
    }
    return finish(slot, semaphore, result, &timed);
}

NP_EXPORT int sem_clockwait(sem_t *restrict semaphore, clockid_t clock_id, const struct timespec *restrict deadline) {
    struct np_slot *slot = np_vtime_caller();
    if (slot == NULL) return NP_REAL(sem_clockwait)(semaphore, clock_id, deadline);
    np_throttle(slot); /* not tried first: a bad deadline is an error even if a token is there */
    int before = errno; /* what a token leaves there, in whichever part of the wait it comes */
    struct np_timed timed = np_timed_until(slot, clock_id, deadline);
    np_sem_waits(slot, (uintptr_t)semaphore);
    np_block_begin(slot);
    int result = NP_REAL(sem_clockwait)(semaphore, clock_id, deadline);
    while (result != 0 && errno == ETIMEDOUT && np_timed_goes_on(&timed, clock_id)) {
        errno = before;
        result = NP_REAL(sem_clockwait)(semaphore, clock_id, &timed.until);
    }
    return finish(slot, semaphore, result, &timed);
}
