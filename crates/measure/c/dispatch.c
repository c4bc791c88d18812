// Which variant runs here: what was compiled in, and what processor and operating system offer.
#include "dispatch.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#ifndef HWCAP_SVE
#define HWCAP_SVE (1UL << 22)
#endif
#endif

int np_isa_works(enum np_isa isa) {
    switch (isa) {
    case NP_PORTABLE: return 1;
#if defined(__x86_64__)
    // GCC and Clang both ask CPUID and, through XGETBV, whether the operating system saves the registers.
    case NP_AVX2: __builtin_cpu_init(); return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case NP_AVX512: __builtin_cpu_init(); return __builtin_cpu_supports("avx512f");
#endif
#if defined(__aarch64__)
    case NP_NEON: return 1;
#if defined(NP_WITH_SVE)
    case NP_SVE: return (getauxval(AT_HWCAP) & HWCAP_SVE) != 0;
#endif
#endif
    default: return 0;
    }
}

double np_run_kernel(enum np_isa isa, enum np_kernel kernel, double *a, double *b, double *c, size_t count, double q) {
    switch (isa) {
#if defined(__x86_64__)
    case NP_AVX2: return np_kernels_avx2(kernel, a, b, c, count, q);
    case NP_AVX512: return np_kernels_avx512(kernel, a, b, c, count, q);
#endif
#if defined(__aarch64__)
    case NP_NEON: return np_kernels_neon(kernel, a, b, c, count, q);
#if defined(NP_WITH_SVE)
    case NP_SVE: return np_kernels_sve(kernel, a, b, c, count, q);
#endif
#endif
    default: return np_kernels_portable(kernel, a, b, c, count, q);
    }
}
