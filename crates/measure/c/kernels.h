// The bandwidth kernels, as Rust calls them. Each variant (portable, AVX2, AVX-512, NEON, SVE) is one file that says what a vector is and includes
// kernels.inc; np_run_kernel (dispatch.c) calls the one for an instruction set, of which np_isa_works says whether processor and kernel allow it.
#ifndef NUMAPILOT_MEASURE_KERNELS_H
#define NUMAPILOT_MEASURE_KERNELS_H

#include <stddef.h>

// Order is the wire between C and Rust (src/kernels.rs has the same).
enum np_kernel {
    NP_COPY,      // c = a
    NP_SCALE,     // b = q c
    NP_ADD,       // c = a + b
    NP_TRIAD,     // a = b + q c
    NP_COPY_NT,   // the same four with stores that pass the caches by
    NP_SCALE_NT,
    NP_ADD_NT,
    NP_TRIAD_NT,
    NP_READ,      // sum of a
    NP_WRITE,     // a = q
    NP_WRITE_NT,
    NP_MIX_1_1,   // a = q - a: one line read, one written
    NP_MIX_2_1,   // the same, and the sum of b
    NP_MIX_3_1,   // the same, and the sums of b and c
    NP_KERNELS,
};

enum np_isa { NP_PORTABLE, NP_AVX2, NP_AVX512, NP_NEON, NP_SVE, NP_ISAS };

// Runs a kernel over `count` doubles of each array (a multiple of NP_CHUNK; arrays aligned to 64 bytes); the sum of what it reads, where it sums.
typedef double np_kernel_fn(enum np_kernel kernel, double *a, double *b, double *c, size_t count, double q);

// Doubles per step of the longest vectors, four times unrolled (SVE: 2048 bits).
enum { NP_CHUNK = 128 };

np_kernel_fn np_kernels_portable;
np_kernel_fn np_kernels_avx2;
np_kernel_fn np_kernels_avx512;
np_kernel_fn np_kernels_neon;
np_kernel_fn np_kernels_sve;

#endif
