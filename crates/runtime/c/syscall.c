/* syscall.c: libc's syscall(), by which programs and libraries (libnuma) make system calls by number. Waits and wake-ups at futexes keep the clocks
 * (sync_futex.c), placement and affinity act on the simulated machine, and mappings (map.c), programs that are executed (process.c), threads' names (thread.c)
 * and filters of system calls (confined.c) are taken as those by name.
 *
 * All other system calls go on without a frame of ours: on x86-64 the entry is a jump, so that even calls that return twice work.
 */
#define _GNU_SOURCE
#include "syscalls.h"

#include "memsim.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The real entry; looked up at the first call, which may come before any constructor. */
NP_HIDDEN np_syscall_function np_syscall_real;
NP_REAL_LISTED(np_syscall_real, "syscall", np_real);
NP_HIDDEN void np_syscall_find(void) {
    int saved = errno;
    __atomic_store_n(&np_syscall_real, (np_syscall_function)np_real("syscall"), __ATOMIC_RELEASE);
    errno = saved;
}

static long returned(long result) {
    if (result >= 0) return result;
    errno = (int)-result;
    return -1;
}

/* Where a program may run must agree with the CPUs that it finds in files: LLVM's OpenMP library ends the program where it does not. */
static bool is_of_cpus(long number) { return number == SYS_sched_setaffinity || number == SYS_sched_getaffinity || number == SYS_getcpu; }
static bool is_shown(void) { return np_arena->config.machine_files[0] != 0; }

/* Placement and affinity on the simulated machine: the hooks of the functions that have these calls' names, never somebody else's function of that name, which
 * may be what called. A thread without a slot has no place on that machine, and neither have other processes' pages. */
NP_HIDDEN long np_syscall_numa(long number, long a, long b, long c, long d, long e, long f) {
    struct np_slot *slot = np_is_simulated() ? np_self() : NULL;
    bool is_ours = slot != NULL && (!is_of_cpus(number) || is_shown()) && (number != SYS_move_pages || a == 0 || a == (long)slot->pid);
    if (!is_ours) return np_syscall_real(number, a, b, c, d, e, f);
    switch ((enum np_numa_call)number) {
    case SYS_sched_setaffinity: return np_own_sched_setaffinity((pid_t)a, (size_t)b, (const cpu_set_t *)c);
    case SYS_sched_getaffinity: return returned(np_numa_get_affinity((pid_t)a, (size_t)b, (void *)c));
    case SYS_getcpu: return np_own_getcpu((unsigned *)a, (unsigned *)b);
    case SYS_mbind: return np_own_mbind((void *)a, (unsigned long)b, (int)c, (const unsigned long *)d, (unsigned long)e, (unsigned)f);
    case SYS_set_mempolicy: return np_own_set_mempolicy((int)a, (const unsigned long *)b, (unsigned long)c);
    case SYS_get_mempolicy: return np_own_get_mempolicy((int *)a, (unsigned long *)b, (unsigned long)c, (void *)d, (unsigned)e);
    case SYS_move_pages: return np_own_move_pages((int)a, (unsigned long)b, (void **)c, (const int *)d, (int *)e, (int)f);
    }
    return np_syscall_real(number, a, b, c, d, e, f);
}

#if defined(__x86_64__)
#define TEXT_OF(number) #number
#define IF_CALL(number, label) "    cmpq $" TEXT_OF(number) ", %rdi\n    je " #label "\n"
#define NUMA_CALL(name) IF_CALL(SYS_##name, 4f)
#define MEMORY_CALL(name) IF_CALL(SYS_##name, 6f)
/* syscall(number, a1 .. a5 in registers, a6 on the stack). */
__asm__(".text\n"
        ".globl syscall\n"
        ".type syscall, @function\n"
        "syscall:\n"
        ".cfi_startproc\n"
        "    movq np_syscall_real(%rip), %rax\n"
        "    testq %rax, %rax\n"
        "    je 2f\n"
        "1:\n"
        IF_CALL(SYS_futex, 3f)
        NP_NUMA_CALLS(NUMA_CALL)
        NP_MEMORY_CALLS(MEMORY_CALL)
        IF_CALL(SYS_execve, 7f)
        IF_CALL(SYS_execveat, 7f)
        IF_CALL(SYS_seccomp, 5f)
        IF_CALL(SYS_prctl, 8f)
        IF_CALL(SYS_userfaultfd, 9f)
        IF_CALL(SYS_ioctl, 9f)
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
        "4:  jmp np_syscall_numa\n" /* the same arguments */
        "5:  jmp np_syscall_seccomp\n"
        "6:  jmp np_syscall_memory\n"
        "7:  jmp np_syscall_exec\n"
        "8:  jmp np_syscall_prctl\n"
        "9:  jmp np_syscall_userfault\n"
        ".cfi_endproc\n"
        ".size syscall, .-syscall\n");
#else
#define OR_CALL(name) || number == SYS_##name
static bool is_memory_call(long number) { return false NP_MEMORY_CALLS(OR_CALL); }
static bool is_numa_call(long number) { return false NP_NUMA_CALLS(OR_CALL); }

NP_EXPORT long syscall(long number, ...) {
    va_list list;
    va_start(list, number);
    long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long);
    long d = va_arg(list, long), e = va_arg(list, long), f = va_arg(list, long);
    va_end(list);
    if (np_syscall_real == NULL) np_syscall_find();
    if (number == SYS_futex) return np_syscall_futex(np_syscall_real, (uintptr_t)a, b, c, d, e, f);
    if (number == SYS_seccomp) return np_syscall_seccomp(number, a, b, c, d, e, f);
    if (number == SYS_prctl) return np_syscall_prctl(number, a, b, c, d, e);
    if (number == SYS_userfaultfd || number == SYS_ioctl) return np_syscall_userfault(number, a, b, c, d, e, f);
    if (is_numa_call(number)) return np_syscall_numa(number, a, b, c, d, e, f);
    if (number == SYS_execve || number == SYS_execveat) return np_syscall_exec(number, a, b, c, d, e);
    if (is_memory_call(number)) return np_syscall_memory(number, a, b, c, d, e, f);
    return np_syscall_real(number, a, b, c, d, e, f);
}
#endif
