/* syscall.c: libc's syscall(), by which programs and libraries (libnuma) make system calls by number. Waits and wake-ups at futexes keep the clocks
 * (sync_futex.c), placement and affinity act on the simulated machine, and mappings (map.c) and programs that are executed (process.c) are recorded as those by
 * name.
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
    switch (number) {
    case SYS_sched_setaffinity: return np_own_sched_setaffinity((pid_t)a, (size_t)b, (const cpu_set_t *)c);
    case SYS_sched_getaffinity: return returned(np_numa_get_affinity((pid_t)a, (size_t)b, (void *)c));
    case SYS_getcpu: return np_own_getcpu((unsigned *)a, (unsigned *)b);
    case SYS_mbind: return np_own_mbind((void *)a, (unsigned long)b, (int)c, (const unsigned long *)d, (unsigned long)e, (unsigned)f);
    case SYS_set_mempolicy: return np_own_set_mempolicy((int)a, (const unsigned long *)b, (unsigned long)c);
    case SYS_get_mempolicy: return np_own_get_mempolicy((int *)a, (unsigned long *)b, (unsigned long)c, (void *)d, (unsigned)e);
    default: return np_own_move_pages((int)a, (unsigned long)b, (void **)c, (const int *)d, (int *)e, (int)f);
    }
}

#if defined(__x86_64__)
#define NUMA_CALL(number) "    cmpq $" #number ", %rdi\n    je 4f\n"
#define EXEC_CALL(number) "    cmpq $" #number ", %rdi\n    je 7f\n"
#define MEMORY_CALL(number) "    cmpq $" #number ", %rdi\n    je 6f\n"
/* syscall(number, a1 .. a5 in registers, a6 on the stack). */
__asm__(".text\n"
        ".globl syscall\n"
        ".type syscall, @function\n"
        "syscall:\n"
        ".cfi_startproc\n"
        "    movq np_syscall_real(%rip), %rax\n"
        "    testq %rax, %rax\n"
        "    je 2f\n"
        "1:  cmpq $202, %rdi\n"
        "    je 3f\n"
        NUMA_CALL(203) NUMA_CALL(204) NUMA_CALL(237) NUMA_CALL(238) NUMA_CALL(239) NUMA_CALL(279) NUMA_CALL(309)
        MEMORY_CALL(9) MEMORY_CALL(11) MEMORY_CALL(12) MEMORY_CALL(25) MEMORY_CALL(28)
        MEMORY_CALL(30) MEMORY_CALL(67) MEMORY_CALL(77) MEMORY_CALL(285)
        MEMORY_CALL(2) MEMORY_CALL(76) MEMORY_CALL(85) MEMORY_CALL(216) MEMORY_CALL(257) MEMORY_CALL(440)
        EXEC_CALL(59) EXEC_CALL(322)
        "    cmpq $317, %rdi\n"
        "    je 5f\n"
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
        ".cfi_endproc\n"
        ".size syscall, .-syscall\n");
_Static_assert(SYS_futex == 202 && SYS_sched_setaffinity == 203 && SYS_sched_getaffinity == 204 && SYS_mbind == 237 && SYS_set_mempolicy == 238
                   && SYS_get_mempolicy == 239 && SYS_move_pages == 279 && SYS_getcpu == 309
                   && SYS_seccomp == 317 && SYS_execve == 59 && SYS_execveat == 322,
               "the entry above compares with these numbers");
_Static_assert(SYS_mmap == 9 && SYS_munmap == 11 && SYS_brk == 12 && SYS_mremap == 25 && SYS_madvise == 28 && SYS_shmat == 30 && SYS_shmdt == 67
                   && SYS_ftruncate == 77 && SYS_fallocate == 285 && SYS_open == 2 && SYS_truncate == 76 && SYS_creat == 85
                   && SYS_remap_file_pages == 216 && SYS_openat == 257 && SYS_process_madvise == 440,
               "and with these");
#else
static bool is_memory_call(long number) {
    return number == SYS_mmap || number == SYS_munmap || number == SYS_brk || number == SYS_mremap || number == SYS_madvise || number == SYS_shmat
           || number == SYS_shmdt || number == SYS_ftruncate || number == SYS_fallocate || number == SYS_truncate || number == SYS_remap_file_pages
           || number == SYS_openat || number == SYS_process_madvise;
}

static bool is_numa_call(long number) {
    return number == SYS_sched_setaffinity || number == SYS_sched_getaffinity || number == SYS_mbind || number == SYS_set_mempolicy
           || number == SYS_get_mempolicy || number == SYS_move_pages || number == SYS_getcpu;
}

NP_EXPORT long syscall(long number, ...) {
    va_list list;
    va_start(list, number);
    long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long);
    long d = va_arg(list, long), e = va_arg(list, long), f = va_arg(list, long);
    va_end(list);
    if (np_syscall_real == NULL) np_syscall_find();
    if (number == SYS_futex) return np_syscall_futex(np_syscall_real, (uintptr_t)a, b, c, d, e, f);
    if (number == SYS_seccomp) return np_syscall_seccomp(number, a, b, c, d, e, f);
    if (is_numa_call(number)) return np_syscall_numa(number, a, b, c, d, e, f);
    if (number == SYS_execve || number == SYS_execveat) return np_syscall_exec(number, a, b, c, d, e);
    if (is_memory_call(number)) return np_syscall_memory(number, a, b, c, d, e, f);
    return np_syscall_real(number, a, b, c, d, e, f);
}
#endif
