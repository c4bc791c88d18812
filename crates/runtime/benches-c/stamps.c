/* stamps.c: what an order stamp costs, in nanoseconds, from each source, beside a read of the counter that nothing orders.
 *
 *   gcc -O2 -I c benches-c/stamps.c -o stamps && ./stamps
 *
 * One thread, nothing else in flight. What a fence waits for in a program is not in here: tools/bench has that as the tracker's whole cost. */
#include "order.h"

#include <stdio.h>
#include <stdlib.h>

#define STAMPS 4000000
#define RUNS 7

struct np_arena *np_arena;

static uint64_t bare(void) {
#if defined(__x86_64__)
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high) : : "memory");
    return (uint64_t)high << 32 | low;
#else
    uint64_t value;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(value) : : "memory");
    return value;
#endif
}

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static double cost(uint64_t (*stamp)(void)) {
    double start = now_ns();
    for (int i = 0; i < STAMPS; i++) stamp();
    return (now_ns() - start) / STAMPS;
}

static uint64_t taken(void) { return np_order(); }

static int by_value(const void *a, const void *b) { return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b); }

int main(void) {
    static double costs[4][RUNS];
    np_arena = calloc(1, sizeof *np_arena);
    if (np_arena == NULL) return 1;
    for (int run = 0; run < RUNS; run++) {
        costs[0][run] = cost(bare);
        for (uint32_t source = NP_ORDER_COUNTER; source <= NP_ORDER_SEQUENCE; source++) {
            np_arena->order_source = source;
            costs[1 + source][run] = cost(taken);
        }
    }
    for (int i = 0; i < 4; i++) qsort(costs[i], RUNS, sizeof costs[i][0], by_value);
    printf("bare %.2f counter %.2f counter_p %.2f sequence %.2f\n", costs[0][RUNS / 2], costs[1][RUNS / 2], costs[2][RUNS / 2], costs[3][RUNS / 2]);
    return 0;
}
