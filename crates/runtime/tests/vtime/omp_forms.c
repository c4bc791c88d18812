/* omp_forms.c: forms of OpenMP that are rarer: each must compute what it computes alone, and regions must still overlap in program time. For
 * gcc and clang. Prints `elapsed` of a nested region and a reduction, and `wrong` for everything that is not as it should be. */
#include "work.h"

#include <omp.h>

#define N 8
static long wrong;

static void expect(long actual, long expected, const char *what) {
    if (actual == expected) return;
    wrong++;
    printf("# %s: %ld, not %ld\n", what, actual, expected);
}

static uint64_t nested(void) {
    long sum = 0;
    uint64_t begin = clock_now();
    omp_set_max_active_levels(2);
#pragma omp parallel num_threads(4) reduction(+ : sum)
    {
        long inner = 0;
#pragma omp parallel num_threads(4) reduction(+ : inner)
        {
            for (int i = 0; i < 20; i++) work(50000);
            inner += omp_get_ancestor_thread_num(1) * 4 + omp_get_thread_num();
        }
        sum += inner;
    }
    expect(sum, 120, "nested");
    return clock_now() - begin;
}

static uint64_t task_reduction(void) {
    long sum = 0;
    uint64_t begin = clock_now();
#pragma omp parallel num_threads(N) reduction(task, + : sum)
    {
        for (int i = 0; i < 20; i++) work(50000);
#pragma omp master
        for (int i = 0; i < 64; i++) {
#pragma omp task in_reduction(+ : sum)
            sum += i;
        }
    }
    expect(sum, 2016, "reduction by tasks of a region");
    uint64_t elapsed = clock_now() - begin;
#pragma omp parallel num_threads(N)
#pragma omp single
#pragma omp taskgroup task_reduction(+ : sum)
    for (int i = 0; i < 64; i++) {
#pragma omp task in_reduction(+ : sum)
        sum++;
    }
    expect(sum, 2080, "reduction by tasks of a group");
#pragma omp parallel num_threads(N)
#pragma omp single
#pragma omp taskloop reduction(+ : sum) grainsize(4)
    for (int i = 0; i < 100; i++) sum++;
    expect(sum, 2180, "reduction by a taskloop");
    return elapsed;
}

static void dependences(void) {
    int value = 0, copy = 0;
#pragma omp parallel num_threads(N)
#pragma omp single
    {
        for (int i = 0; i < 20; i++) {
#pragma omp task depend(inout : value) shared(value)
            value = value * 3 % 1000 + 1;
        }
#pragma omp task depend(in : value) depend(out : copy) shared(value, copy)
        copy = value;
#pragma omp taskwait depend(in : copy)
        value = copy;
    }
    int expected = 0;
    for (int i = 0; i < 20; i++) expected = expected * 3 % 1000 + 1;
    expect(copy, expected, "dependences");
}

static void loops(void) {
    static int order[50];
    int next = 0, sections = 0, grid[10][10] = {{0}};
    long firsts = 0;
#pragma omp parallel num_threads(N)
    {
#pragma omp for ordered schedule(dynamic, 1)
        for (int i = 0; i < 50; i++) {
#pragma omp ordered
            order[next++] = i;
        }
#pragma omp sections
        {
#pragma omp section
#pragma omp atomic
            sections += 1;
#pragma omp section
#pragma omp atomic
            sections += 2;
        }
        int drawn;
#pragma omp single copyprivate(drawn)
        drawn = 17;
#pragma omp critical
        firsts += drawn;
#pragma omp for ordered(2)
        for (int i = 1; i < 10; i++)
            for (int k = 1; k < 10; k++) {
#pragma omp ordered depend(sink : i - 1, k) depend(sink : i, k - 1)
                grid[i][k] = grid[i - 1][k] + grid[i][k - 1] + 1;
#pragma omp ordered depend(source)
            }
    }
    for (int i = 0; i < 50; i++) expect(order[i], i, "ordered");
    expect(sections, 3, "sections");
    expect(firsts, 17 * N, "copyprivate");
    expect(grid[9][9], 48619, "doacross");
}

static void locks(void) {
    omp_lock_t lock;
    omp_nest_lock_t nest;
    int count = 0, nested_count = 0; /* each under its own lock */
    omp_init_lock(&lock);
    omp_init_nest_lock(&nest);
#pragma omp parallel num_threads(N)
    {
        omp_set_lock(&lock);
        count++;
        omp_unset_lock(&lock);
        while (!omp_test_lock(&lock)) {
        }
        count++;
        omp_unset_lock(&lock);
        omp_set_nest_lock(&nest);
        omp_test_nest_lock(&nest);
        nested_count++;
        omp_unset_nest_lock(&nest);
        omp_unset_nest_lock(&nest);
    }
    expect(count, 2 * N, "locks");
    expect(nested_count, N, "nested locks");
}

static void detached(void) {
    int done = 0;
#pragma omp parallel num_threads(N)
#pragma omp single
    {
        omp_event_handle_t event;
#pragma omp task detach(event) shared(done)
        done++;
        omp_fulfill_event(event);
#pragma omp taskwait
    }
    expect(done, 1, "detach");
}

/* What compilers before GCC 4.9 made of a parallel region. */
extern void GOMP_parallel_start(void (*function)(void *), void *data, unsigned threads) __attribute__((weak));
extern void GOMP_parallel_end(void) __attribute__((weak));

static void old_member(void *data) {
    for (int i = 0; i < 10; i++) work(50000);
#pragma omp atomic
    *(long *)data += omp_get_thread_num();
}

static void old_region(void) {
    long sum = 0;
    if (GOMP_parallel_start == NULL) return;
    uint64_t begin = clock_now();
    GOMP_parallel_start(old_member, &sum, N);
    old_member(&sum);
    GOMP_parallel_end();
    expect(sum, 28, "a region of an old compiler");
    printf("old %lu ", clock_now() - begin);
}

int main(void) {
    uint64_t nest = nested(), reduction = task_reduction(); /* old_region prints its own time */
    dependences();
    loops();
    locks();
    detached();
    old_region();
    printf("nested %lu reduction %lu wrong %ld\n", nest, reduction, wrong);
    return 0;
}
