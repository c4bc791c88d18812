/* A library whose constructor runs a parallel region: while it waits for the region's other threads, its thread holds the loader's lock. */
#include <unistd.h>

static int total, alone, tasks;

__attribute__((constructor)) static void early(void) {
#pragma omp parallel num_threads(4) reduction(+ : total)
    {
#pragma omp barrier
#pragma omp critical
        alone++;
#pragma omp for schedule(dynamic)
        for (int i = 0; i < 100; i++) {
            total++;
            usleep(100);
        }
#pragma omp single
        alone++;
#pragma omp task
#pragma omp atomic
        tasks++;
#pragma omp taskwait
    }
}

int early_answer(void) { return total == 100 && alone == 5 && tasks == 4 ? 42 : 0; }
