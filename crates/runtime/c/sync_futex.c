/* sync_futex.c: clocks at futexes that a program reaches through libc's syscall(): std::atomic::wait and what is built on it, Rust's std, and
 * hand-written locks. A waiter that was woken leaves at the clock of the last wake of its address; a wait that timed out, at its deadline.
 *
 * All other system calls go on without a frame of ours: on x86-64 the entry is a jump, so that even calls that return twice work.
 */
#define _GNU_SOURCE
#include "vtime.h"

#include <dlfcn.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef long (*syscall_function)(long number, ...);

/* What a wait that timed out passed. Its time-out is read only after the kernel did: the pointer may be bad. */
static uint64_t timeout_cycles(int operation, const struct timespec *timeout, uint64_t began_ns) {
    if ((operation & FUTEX_CMD_MASK) == FUTEX_WAIT)
        return np_cycles_of_ns((uint64_t)timeout->tv_sec * 1000000000ull + (uint64_t)timeout->tv_nsec);
    return np_cycles_of_ns(np_monotonic_ns() - began_ns);
}

static long wait_on(struct np_slot *slot, syscall_function real, uintptr_t address, long operation, long value, long timeout, long address2,
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

NP_HIDDEN long np_syscall_futex(syscall_function real, uintptr_t address, long operation, long value, long timeout, long address2, long value3) {
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

/* The real entry; looked up at the first call, which may come before any constructor. */
NP_HIDDEN syscall_function np_syscall_real;
NP_HIDDEN void np_syscall_find(void) {
    int saved = errno;
    __atomic_store_n(&np_syscall_real, (syscall_function)np_real("syscall"), __ATOMIC_RELEASE);
    errno = saved;
}

#if defined(__x86_64__)
/* syscall(number, a1 .. a5 in registers, a6 on the stack). */
__asm__(".text\n"
        ".globl syscall\n"
        ".type syscall, @function\n"
        "syscall:\n"
        ".cfi_startproc\n"
        "    movq np_syscall_real(%rip), %rax\n"
        "    testq %rax, %rax\n"
        "    je 2f\n"
        "1:  cmpq $202, %rdi\n" /* SYS_futex */
        "    je 3f\n"
        "    jmpq *%rax\n"
        "2:  pushq %rdi\n .cfi_adjust_cfa_offset 8\n"
        "    pushq %rsi\n .cfi_adjust_cfa_offset 8\n"
        "    pushq %rdx\n .cfi_adjust_cfa_offset 8\n"
        "    pushq %rcx\n .cfi_adjust_cfa_offset 8\n"
        "    pushq %r8\n .cfi_adjust_cfa_offset 8\n"
        "    pushq %r9\n .cfi_adjust_cfa_offset 8\n"
        "    subq $8, %rsp\n .cfi_adjust_cfa_offset 8\n"
        "    call np_syscall_find\n"
        "    addq $8, %rsp\n .cfi_adjust_cfa_offset -8\n"
        "    popq %r9\n .cfi_adjust_cfa_offset -8\n"
        "    popq %r8\n .cfi_adjust_cfa_offset -8\n"
        "    popq %rcx\n .cfi_adjust_cfa_offset -8\n"
        "    popq %rdx\n .cfi_adjust_cfa_offset -8\n"
        "    popq %rsi\n .cfi_adjust_cfa_offset -8\n"
        "    popq %rdi\n .cfi_adjust_cfa_offset -8\n"
        "    movq np_syscall_real(%rip), %rax\n"
        "    jmp 1b\n"
        /* futex: (real, address, operation, value, timeout, address2, value3 on the stack) */
        "3:  movq %rax, %rdi\n"
        "    movq 8(%rsp), %rax\n"
        "    pushq %rax\n .cfi_adjust_cfa_offset 8\n" /* and the stack is aligned for the call */
        "    call np_syscall_futex\n"
        "    addq $8, %rsp\n .cfi_adjust_cfa_offset -8\n"
        "    ret\n"
        ".cfi_endproc\n"
        ".size syscall, .-syscall\n");
_Static_assert(SYS_futex == 202, "the entry above compares with this number");
#else
NP_EXPORT long syscall(long number, ...) {
    va_list list;
    va_start(list, number);
    long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long);
    long d = va_arg(list, long), e = va_arg(list, long), f = va_arg(list, long);
    va_end(list);
    if (np_syscall_real == NULL) np_syscall_find();
    if (number == SYS_futex) return np_syscall_futex(np_syscall_real, (uintptr_t)a, b, c, d, e, f);
    return np_syscall_real(number, a, b, c, d, e, f);
}
#endif
