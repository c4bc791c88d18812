/* Start of an OpenMP program: a team of exactly the threads asked for. Included only by programs built with -fopenmp. */
#ifndef WORKLOADS_OPENMP_H
#define WORKLOADS_OPENMP_H

#include "options.h"

#include <inttypes.h>
#include <omp.h>

/* Makes parallel regions of `threads` threads the default. Ends the program if the runtime grants fewer: static work sharing would differ. */
static inline void openmp_start(uint64_t threads) {
    int size = 0;
    omp_set_dynamic(0);
    omp_set_num_threads((int)threads);
#pragma omp parallel
#pragma omp master
    size = omp_get_num_threads();
    if ((uint64_t)size != threads) {
        fail(EXIT_SYSTEM, "OpenMP gives %d threads, not %" PRIu64 "; see OMP_THREAD_LIMIT", size, threads);
    }
}

#endif
