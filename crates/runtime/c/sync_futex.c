/* sync_futex.c: clocks at futexes that a program reaches through libc's syscall() (syscall.c): std::atomic::wait and what is built on it, Rust's std, and
 * hand-written locks. A waiter that was woken leaves at the clock of the last wake of its address; a wait that timed out, at its deadline (sync_timed.c).
 */
#define _GNU_SOURCE
#include "syscalls.h"
#include "vtime.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What a wait that timed out passed. Its time-out is read only after the kernel did: the pointer may be bad. */
static uint64_t timeout_cycles(int operation, const struct timespec *timeout, uint64_t began_ns) {
    if (operation == FUTEX_WAIT) return np_cycles_of_ns((uint64_t)timeout->tv_sec * 1000000000ull + (uint64_t)timeout->tv_nsec);
    return np_cycles_of_ns(np_monotonic_ns() - began_ns);
}

static long wait_on(struct np_slot *slot, np_syscall_function real, uintptr_t address, long operation, long value, long timeout, long address2,
                    long value3) {
    np_throttle(slot);
    int before = errno;
    uint64_t began_ns = timeout != 0 ? np_monotonic_ns() : 0;
    np_block_begin(slot);
    long result = real(SYS_futex, address, operation, value, timeout, address2, value3);
    int saved = errno;
    bool timed_out = result != 0 && saved == ETIMEDOUT;
    struct np_timed timed = {.slot = slot};
    if (timed_out) {
        int command = (int)operation & FUTEX_CMD_MASK;
        timed = np_timed_since(slot, began_ns, timeout_cycles(command, (const struct timespec *)timeout, began_ns));
        clockid_t clock_id = (operation & FUTEX_CLOCK_REALTIME) != 0 ? CLOCK_REALTIME : CLOCK_MONOTONIC;
        /* Between two parts of it the word may change: then the kernel says so, as to whoever comes late. */
        while (timed_out && (command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET) && np_timed_goes_on(&timed, clock_id)) {
            errno = before; /* of a wait that ends well */
            result = real(SYS_futex, address, operation, value, (long)(command == FUTEX_WAIT ? &timed.part : &timed.until), address2, value3);
            saved = errno;
            timed_out = result != 0 && saved == ETIMEDOUT;
        }
    }
    bool woken = result == 0 || (timed.deadline != 0 && saved == EAGAIN);
    if (timed_out) np_timed_out(&timed, NP_SYNC_FUTEX, address);
    else if (woken) np_clock_wait_until(slot, np_event_get(slot, NP_OBJECT_FUTEX, address), NP_SYNC_FUTEX, address);
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
