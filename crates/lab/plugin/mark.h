/* mark.h: messages of a guest to the system-mode plugin: a `cpuid` instruction with NP_MARK in eax and a command in ecx. Any program may execute it, without
 * rights or devices; where no plugin listens it is a question about a leaf that no processor has, and does nothing. */
#ifndef NUMAPILOT_MARK_H
#define NUMAPILOT_MARK_H

#include <stdint.h>

#define NP_MARK 0x4e504d4bu /* "NPMK" */

enum np_mark {
    /* A region of interest begins: from here on, accesses are counted. A region that is open already ends. */
    NP_MARK_BEGIN = 1,
    /* It ends, and the file is written. */
    NP_MARK_END = 2,
    /* Only the caller's address space is counted, in this region and later ones. */
    NP_MARK_ONLY_ME = 3,
    /* The caller's address space is not counted. */
    NP_MARK_NOT_ME = 4,
    /* rbx: address of a struct np_mark_kernel. */
    NP_MARK_KERNEL = 5,
};

/* How to find the running task: from kallsyms and BTF. */
struct np_mark_kernel {
    uint64_t current;  /* offset of the pointer to the running task in a CPU's own data */
    uint32_t tid, pid; /* offsets of `pid` (the thread's) and `tgid` (the process's) in struct task_struct */
};

static inline void np_mark(enum np_mark command, const void *argument) {
    uint32_t a = NP_MARK, c = (uint32_t)command, d;
    __asm__ volatile("cpuid" : "+a"(a), "+c"(c), "=d"(d), "+b"(argument) : : "memory");
}

#endif
