/* sync_futex.c: clocks at futexes that a program reaches through libc's syscall() (syscall.c): std::atomic::wait and what is built on it, Rust's std, and
 * hand-written locks. A waiter that was woken leaves at the clock of the last wake of its address; a wait that timed out, at its deadline.
 */
#define _GNU_SOURCE
#include "syscalls.h"
#include "vtime.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What a wait that timed out passed. Its time-out is read only after the kernel did: the pointer may be bad. */
static uint64_t timeout_cycles(int operation, const struct timespec *timeout, uint64_t began_ns) {
    if ((operation & FUTEX_CMD_MASK) == FUTEX_WAIT)
        return np_cycles_of_ns((uint64_t)timeout->tv_sec * 1000000000ull + (uint64_t)timeout->tv_nsec);
    return np_cycles_of_ns(np_monotonic_ns() - began_ns);
}

static long wait_on(struct np_slot *slot, np_syscall_function real, uintptr_t address, long operation, long value, long timeout, long address2,
                    long value3) {
    np_throttle(slot);
    uint64_t began_ns = timeout != 0 ? np_monotonic_ns() : 0;
    np_block_begin(slot);
    long result = real(SYS_futex, address, operation, value, timeout, address2, value3);
    int saved = errno;
    if (result == 0) np_clock_wait_until(slot, np_event_get(slot, NP_OBJECT_FUTEX, address), NP_SYNC_FUTEX, address);
    else if (saved == ETIMEDOUT) np_clock_sleep(slot, timeout_cycles((int)operation, (const struct timespec *)timeout, began_ns), NP_SYNC_FUTEX, address);
    np_block_end(slot);
    errno = saved;
    return result;
}

long np_syscall_futex(np_syscall_function real, uintptr_t address, long operation, long value, long timeout, long address2, long value3) {
    struct np_slot *slot = np_vtime_caller();
    if (slot != NULL) {
        switch (operation & FUTEX_CMD_MASK) {
        case FUTEX_WAIT:
        case FUTEX_WAIT_BITSET:
        case FUTEX_LOCK_PI:
        case FUTEX_WAIT_REQUEUE_PI: return wait_on(slot, real, address, operation, value, timeout, address2, value3);
        case FUTEX_WAKE_OP:
        case FUTEX_REQUEUE:
        case FUTEX_CMP_REQUEUE:
        case FUTEX_CMP_REQUEUE_PI:
            np_event_set(slot, NP_OBJECT_FUTEX, (uintptr_t)address2, np_clock_of(slot));
            __attribute__((fallthrough));
        case FUTEX_WAKE:
        case FUTEX_WAKE_BITSET:
        case FUTEX_UNLOCK_PI:
            np_share_charge(slot);
            np_event_set(slot, NP_OBJECT_FUTEX, address, np_clock_of(slot));
            break;
        default: break;
        }
    }
    return real(SYS_futex, address, operation, value, timeout, address2, value3);
}
