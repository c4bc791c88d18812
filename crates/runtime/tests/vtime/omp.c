/* omp.c: OpenMP programs whose program-time course is known. `omp CASE`; for gcc and clang. */
#include "work.h"

#include <omp.h>
#include <string.h>

#define N 16
static uint64_t ends[N], counts[N];

static void report(uint64_t begin, uint64_t end) {
    printf("elapsed %lu\n", end - begin);
    for (int i = 0; i < N; i++) printf("thread %d begin 0 end %lu count %lu\n", i, ends[i] - begin, counts[i]);
}

static void tasks(int depth) {
    if (depth == 0) {
        work(100000);
        counts[omp_get_thread_num()]++;
        return;
    }
    for (int i = 0; i < 2; i++) {
#pragma omp task
        tasks(depth - 1);
    }
#pragma omp taskwait
}

/* What Fortran programs call. */
extern void omp_set_lock_(omp_lock_t *), omp_unset_lock_(omp_lock_t *), omp_set_nest_lock_(void *), omp_unset_nest_lock_(void *), omp_init_nest_lock_(void *);
extern int omp_test_lock_(omp_lock_t *), omp_test_nest_lock_(void *);

static void fortran_locks(int tried) {
    static omp_lock_t lock;
    static void *nested;
    omp_init_lock(&lock);
    omp_init_nest_lock_(&nested);
#pragma omp parallel num_threads(N)
    for (int i = 0; i < 100; i++) {
        if (i % 2 == 0 && tried) while (!omp_test_lock_(&lock)) work(10);
        else if (i % 2 == 0) omp_set_lock_(&lock);
        else if (tried) while (omp_test_nest_lock_(&nested) == 0) work(10);
        else omp_set_nest_lock_(&nested);
        work(2000);
        if (i % 2 == 0) omp_unset_lock_(&lock);
        else omp_unset_nest_lock_(&nested);
        work(2000);
    }
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    uint64_t begin = clock_now(), wrong = 0, last = 0;
    if (!strcmp(name, "static")) {
#pragma omp parallel num_threads(N)
        {
#pragma omp for schedule(static) nowait
            for (int i = 0; i < 1600; i++) {
                work(20000);
                counts[omp_get_thread_num()]++;
            }
            ends[omp_get_thread_num()] = clock_now();
        }
    } else if (!strcmp(name, "dynamic")) {
#pragma omp parallel num_threads(N)
        {
#pragma omp for schedule(dynamic, 1) nowait
            for (int i = 0; i < 8000; i++) {
                work(20000);
                counts[omp_get_thread_num()]++;
            }
            ends[omp_get_thread_num()] = clock_now();
        }
    } else if (!strcmp(name, "regions")) {
        for (int round = 0; round < 50; round++) {
#pragma omp parallel for num_threads(N) schedule(static, 1)
            for (int i = 0; i < N; i++) {
                work(10000 + (uint64_t)((i + round) % N) * 1000);
                ends[i] = clock_now();
            }
            for (int i = 0; i < N; i++) wrong += ends[i] > clock_now();
            last = clock_now();
        }
        printf("wrong %lu\n", wrong);
    } else if (!strcmp(name, "barrier")) {
        static uint64_t left[N];
#pragma omp parallel num_threads(N)
        for (int round = 0; round < 50; round++) {
            work(1000 + (uint64_t)((omp_get_thread_num() * 7 + round) % N) * 2000);
#pragma omp barrier
            left[omp_get_thread_num()] = ends[omp_get_thread_num()] = clock_now();
#pragma omp barrier
#pragma omp single
            for (int i = 1; i < N; i++) wrong += left[i] > left[0] + 500 || left[0] > left[i] + 500;
        }
        printf("wrong %lu\n", wrong);
    } else if (!strcmp(name, "tasks")) {
#pragma omp parallel num_threads(N)
#pragma omp single
        tasks(9);
    } else if (!strcmp(name, "critical")) {
#pragma omp parallel num_threads(N)
        for (int i = 0; i < 100; i++) {
#pragma omp critical
            {
                work(2000);
                last++;
            }
            work(2000);
        }
    } else if (!strcmp(name, "fortran-locks")) {
        fortran_locks(0);
    } else if (!strcmp(name, "fortran-tests")) {
        fortran_locks(1);
    } else {
        return 2;
    }
    report(begin, clock_now());
    return 0;
}
