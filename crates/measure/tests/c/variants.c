// Every variant of the kernels that works here against plain loops, on one processor after another: run natively, and for 64-bit Arm in an emulator, where
// vectors of SVE can have any length. Prints the variants that were compared; fails at the first element that differs.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch.h"

enum { COUNT = 6 * NP_CHUNK, ARRAYS = 3 };
static const char *const names[NP_ISAS] = {"portable", "avx2", "avx512", "neon", "sve"};

static double plain(enum np_kernel kernel, double *a, double *b, double *c, double q) {
    double sum = 0;
    for (size_t i = 0; i < COUNT; i++) {
        double x = a[i], y = b[i], z = c[i];
        switch (kernel) {
        case NP_COPY: case NP_COPY_NT: c[i] = x; break;
        case NP_SCALE: case NP_SCALE_NT: b[i] = q * z; break;
        case NP_ADD: case NP_ADD_NT: c[i] = x + y; break;
        case NP_TRIAD: case NP_TRIAD_NT: a[i] = y + q * z; break;
        case NP_READ: sum += x; break;
        case NP_WRITE: case NP_WRITE_NT: a[i] = q; break;
        case NP_MIX_1_1: a[i] = q - x; break;
        case NP_MIX_2_1: a[i] = q - x, sum += y; break;
        case NP_MIX_3_1: a[i] = q - x, sum += y + z; break;
        case NP_KERNELS: break;
        }
    }
    return sum;
}

static void fill(double *memory[ARRAYS]) {
    // Whole numbers, so that sums are exact in any order.
    for (size_t k = 0; k < ARRAYS; k++)
        for (size_t i = 0; i < COUNT; i++) memory[k][i] = (double)((i * 2654435761u + k * 40503u) % 65521);
}

int main(void) {
    double *ours[ARRAYS], *theirs[ARRAYS];
    for (int k = 0; k < ARRAYS; k++) {
        ours[k] = aligned_alloc(64, COUNT * sizeof(double));
        theirs[k] = aligned_alloc(64, COUNT * sizeof(double));
        if (!ours[k] || !theirs[k]) return 2;
    }
    for (int isa = 0; isa < NP_ISAS; isa++) {
        if (!np_isa_works((enum np_isa)isa)) continue;
        for (int kernel = 0; kernel < NP_KERNELS; kernel++) {
            fill(ours), fill(theirs);
            double found = np_run_kernel((enum np_isa)isa, (enum np_kernel)kernel, ours[0], ours[1], ours[2], COUNT, 3.0);
            double expected = plain((enum np_kernel)kernel, theirs[0], theirs[1], theirs[2], 3.0);
            for (int k = 0; k < ARRAYS; k++) {
                if (memcmp(ours[k], theirs[k], COUNT * sizeof(double)) == 0) continue;
                return fprintf(stderr, "%s, kernel %d: array %d differs\n", names[isa], kernel, k), 1;
            }
            if (found != expected) return fprintf(stderr, "%s, kernel %d: sum %f, not %f\n", names[isa], kernel, found, expected), 1;
        }
        printf("%s ", names[isa]);
    }
    printf("\n");
    return 0;
}
