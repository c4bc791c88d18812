// The peer that `numapilot measure` is held against in bandwidth: STREAM as its rules define it (McCalpin, "Memory Bandwidth and Machine Balance in
// Current High Performance Computers", 1995): four loops over three static arrays of doubles, each repetition timed as a whole, the best counts, bytes of
// both directions added up, results checked. Written for this comparison from that definition; no code of STREAM's is in it.
//
// cc -O3 -march=native -fopenmp -mcmodel=medium -DELEMENTS=44739243 stream_peer.c -o stream_peer && OMP_NUM_THREADS=2 ./stream_peer REPETITIONS
// Prints a line per kernel: name, best bytes per second, median.
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef ELEMENTS
#error "define the number of elements with -DELEMENTS=..., so that the three arrays hold at least four times the last-level caches"
#endif
enum { KERNELS = 4, REPETITIONS_MAX = 1000 };

static double a[ELEMENTS], b[ELEMENTS], c[ELEMENTS];
static double seconds[KERNELS][REPETITIONS_MAX];
static const char *const names[KERNELS] = {"copy", "scale", "add", "triad"};
static const double arrays[KERNELS] = {2, 2, 3, 3};

static int by_size(const void *left, const void *right) {
    double x = *(const double *)left, y = *(const double *)right;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    int repetitions = argc > 1 ? atoi(argv[1]) : 10;
    if (repetitions < 2 || repetitions > REPETITIONS_MAX) return fprintf(stderr, "stream_peer: 2 to %d repetitions\n", REPETITIONS_MAX), 2;
    const double q = 3.0;
    double start;
#pragma omp parallel for
    for (long i = 0; i < ELEMENTS; i++) a[i] = 1.0, b[i] = 2.0, c[i] = 0.0;
    for (int k = 0; k < repetitions; k++) {
        start = omp_get_wtime();
#pragma omp parallel for
        for (long i = 0; i < ELEMENTS; i++) c[i] = a[i];
        seconds[0][k] = omp_get_wtime() - start;
        start = omp_get_wtime();
#pragma omp parallel for
        for (long i = 0; i < ELEMENTS; i++) b[i] = q * c[i];
        seconds[1][k] = omp_get_wtime() - start;
        start = omp_get_wtime();
#pragma omp parallel for
        for (long i = 0; i < ELEMENTS; i++) c[i] = a[i] + b[i];
        seconds[2][k] = omp_get_wtime() - start;
        start = omp_get_wtime();
#pragma omp parallel for
        for (long i = 0; i < ELEMENTS; i++) a[i] = b[i] + q * c[i];
        seconds[3][k] = omp_get_wtime() - start;
    }
    double x = 1.0, y = 2.0, z = 0.0;
    for (int k = 0; k < repetitions; k++) z = x, y = q * z, z = x + y, x = y + q * z;
    for (long i = 0; i < ELEMENTS; i++) {
        if (fabs(a[i] / x - 1.0) > 1e-12 || fabs(b[i] / y - 1.0) > 1e-12 || fabs(c[i] / z - 1.0) > 1e-12) {
            return fprintf(stderr, "stream_peer: wrong result at %ld\n", i), 1;
        }
    }
    for (int kernel = 0; kernel < KERNELS; kernel++) {
        // The first repetition is not counted.
        qsort(seconds[kernel] + 1, (size_t)repetitions - 1, sizeof seconds[0][0], by_size);
        double bytes = arrays[kernel] * sizeof(double) * (double)ELEMENTS;
        printf("%s %.0f %.0f\n", names[kernel], bytes / seconds[kernel][1], bytes / seconds[kernel][1 + (repetitions - 1) / 2]);
    }
    return 0;
}
