/* lock.h: the agent's one lock. The collector's thread takes it while every Java thread is stopped, so who holds it calls nothing of the virtual machine: a
 * thread that did could wait for the pause to end, and the pause for it. Without the C library, whose mutexes the recorder follows.
 */
#ifndef NUMAPILOT_JAVA_LOCK_H
#define NUMAPILOT_JAVA_LOCK_H

#include "../c/sys.h"

#include <linux/futex.h>
#include <stddef.h>
#include <stdint.h>

/* 0 free, 1 held, 2 held and awaited. */
static inline void np_agent_lock(uint32_t *lock) {
    uint32_t seen = 0;
    if (__atomic_compare_exchange_n(lock, &seen, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return;
    while (__atomic_exchange_n(lock, 2, __ATOMIC_ACQUIRE) != 0) NP_SYS4(SYS_futex, lock, FUTEX_WAIT_PRIVATE, 2, NULL);
}

static inline void np_agent_unlock(uint32_t *lock) {
    if (__atomic_exchange_n(lock, 0, __ATOMIC_RELEASE) == 2) NP_SYS3(SYS_futex, lock, FUTEX_WAKE_PRIVATE, 1);
}

#endif
