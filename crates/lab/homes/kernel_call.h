/* System calls that reach the kernel whatever the tracker makes of the C library's syscall(): on the simulated machine that asks for placement there. */
#ifndef NUMAPILOT_KERNEL_CALL_H
#define NUMAPILOT_KERNEL_CALL_H

#include <errno.h>

static inline long kernel_call(long number, long a, long b, long c, long d, long e, long f) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    if (result >= 0 || result < -4095) return result;
    errno = (int)-result;
    return -1;
}

#endif
