/* sys.h: system calls that no interposer sees and that leave errno alone, and the pause of a spinning thread. One wrapper for the whole runtime. */
#ifndef NUMAPILOT_SYS_H
#define NUMAPILOT_SYS_H

#include <stdbool.h>
#include <sys/syscall.h>

/* The program has put itself under a seccomp filter, or is about to: a system call that it does not make itself may be its end. From then on none is made here
 * that can be left out; what it would have told is unknown. A filter from before the program's start is no such sign: the loader, which has just
 * opened files and mapped memory under it, would not have come through a narrow one, and in containers there always is one. */
#ifdef NP_PLUGIN
#define np_is_confined false /* an emulator's own calls are none of its guest's */
#else
#pragma GCC visibility push(hidden)
extern bool np_confined, np_child_confined; /* through the following alone */
#pragma GCC visibility pop
/* Relaxed: the thread that sets a filter sees its own store, and a thread that is in a call of ours meanwhile is as far as any thread of the program. */
#define np_is_confined (__atomic_load_n(&np_confined, __ATOMIC_RELAXED))
/* By a filter of a child that runs in this memory (vfork), see confined.h. */
#define np_child_is_confined (__atomic_load_n(&np_child_confined, __ATOMIC_RELAXED))
static inline void np_set_confined(bool is_confined, bool child_is) {
    __atomic_store_n(&np_child_confined, child_is, __ATOMIC_RELAXED);
    __atomic_store_n(&np_confined, is_confined, __ATOMIC_RELAXED);
}
#endif

/* A negative result is -errno. */
static inline long np_sys(long number, long a, long b, long c, long d, long e, long f) {
#if defined(__x86_64__)
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
#else
#error "numapilot's runtime knows the system calls of x86-64 and aarch64 only"
#endif
}
#define NP_SYS0(n) np_sys(n, 0, 0, 0, 0, 0, 0)
#define NP_SYS1(n, a) np_sys(n, (long)(a), 0, 0, 0, 0, 0)
#define NP_SYS2(n, a, b) np_sys(n, (long)(a), (long)(b), 0, 0, 0, 0)
#define NP_SYS3(n, a, b, c) np_sys(n, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define NP_SYS4(n, a, b, c, d) np_sys(n, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define NP_SYS6(n, a, b, c, d, e, f) np_sys(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

/* Inside a loop that waits for another thread. */
static inline void np_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#else
#error "numapilot's runtime knows how to pause on x86-64 and aarch64 only"
#endif
}

#endif
