/* syscalls.h: what libc's syscall() is passed on to. */
#ifndef NUMAPILOT_SYSCALLS_H
#define NUMAPILOT_SYSCALLS_H

#include "np.h"

#include <sched.h>
#include <sys/syscall.h>

#ifndef SYS_process_madvise
#define SYS_process_madvise 440 /* from Linux 5.10 on */
#endif

/* The calls that are not passed on as they are, besides futex, execve, seccomp, prctl, userfaultfd and ioctl: of placement and affinity, which
 * np_syscall_numa() takes, and of memory, which np_syscall_memory() takes. The entry asks for the numbers in this order. Each group is an enumeration, too, so
 * that the compiler names a call that the switch over it lacks. */
#define NP_NUMA_CALLS(CALL) \
    CALL(sched_setaffinity) CALL(sched_getaffinity) CALL(mbind) CALL(set_mempolicy) CALL(get_mempolicy) CALL(move_pages) CALL(getcpu)
#ifdef SYS_open
#define NP_OPEN_CALLS(CALL) CALL(open) CALL(creat) CALL(openat)
#else /* newer architectures have this one alone */
#define NP_OPEN_CALLS(CALL) CALL(openat)
#endif
#define NP_MEMORY_CALLS(CALL) \
    CALL(mmap) CALL(munmap) CALL(brk) CALL(mremap) CALL(madvise) CALL(shmat) CALL(shmdt) CALL(ftruncate) CALL(fallocate) \
    CALL(truncate) CALL(process_madvise) CALL(remap_file_pages) NP_OPEN_CALLS(CALL)
#define NP_CALL_IN_ENUM(name) NP_CALL_##name = SYS_##name,
enum np_numa_call { NP_NUMA_CALLS(NP_CALL_IN_ENUM) };
enum np_memory_call { NP_MEMORY_CALLS(NP_CALL_IN_ENUM) };

typedef long (*np_syscall_function)(long number, ...);

extern NP_HIDDEN np_syscall_function np_syscall_real; /* found at the first call */
NP_HIDDEN long np_syscall_seccomp(long number, long a, long b, long c, long d, long e, long f);
NP_HIDDEN long np_syscall_prctl(long number, long option, long a, long b, long c, long d); /* thread.c */
NP_HIDDEN long np_syscall_userfault(long number, long a, long b, long c, long d, long e, long f); /* userfault.c: userfaultfd and ioctl */
NP_HIDDEN long np_syscall_memory(long number, long a, long b, long c, long d, long e, long f); /* map.c */
NP_HIDDEN long np_syscall_exec(long number, long a, long b, long c, long d, long e); /* process.c */
NP_HIDDEN long np_syscall_futex(np_syscall_function real, uintptr_t address, long operation, long value, long timeout, long address2, long value3);

/* The hooks by names that nobody can come before. */
NP_HIDDEN int np_own_sched_setaffinity(pid_t pid, size_t bytes, const cpu_set_t *set);
NP_HIDDEN int np_own_getcpu(unsigned *cpu, unsigned *node);
NP_HIDDEN long np_own_mbind(void *start, unsigned long bytes, int mode, const unsigned long *mask, unsigned long bits, unsigned flags);
NP_HIDDEN long np_own_set_mempolicy(int mode, const unsigned long *mask, unsigned long bits);
NP_HIDDEN long np_own_get_mempolicy(int *mode, unsigned long *mask, unsigned long bits, void *address, unsigned flags);
NP_HIDDEN long np_own_move_pages(int pid, unsigned long count, void **pages, const int *nodes, int *status, int flags);

/* An alias of a hook under its own name. */
#define NP_OWN(name) extern __typeof__(name) np_own_##name __attribute__((alias(#name), visibility("hidden"), nothrow, leaf))

#endif
