/* lifecycle.c: cycles per malloc+free pair under a ten-deep call stack, in 16 places, in 1 thread or more.
 *
 *   gcc -O2 -pthread benches-c/lifecycle.c -o lifecycle && ./lifecycle [PAIRS [THREADS]]
 *
 * Run it bare, under `numapilot record` and under heaptrack: the differences of the printed figures are what each adds to a pair.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NOINLINE __attribute__((noinline))

static NOINLINE void *make(unsigned kind) {
    void *block;
    switch (kind % 4) {
    case 0: block = malloc(24); break;
    case 1: block = malloc(100); break;
    case 2: block = malloc(320); break;
    default: block = malloc(64); break;
    }
    __asm__ volatile("" : "+r"(block) : : "memory");
    return block;
}

#define LEVEL(n, next)                              \
    static NOINLINE void *level##n(unsigned kind) { \
        void *block = next(kind);                   \
        __asm__ volatile("" : "+r"(block));         \
        return block;                               \
    }
LEVEL(1, make)
LEVEL(2, level1)
LEVEL(3, level2)
LEVEL(4, level3)
LEVEL(5, level4)
LEVEL(6, level5)
LEVEL(7, level6)

static uint64_t cycles(void) {
    return __builtin_ia32_rdtsc();
}

struct work { unsigned long pairs; uint64_t cycles; double seconds; };

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void *run(void *argument) {
    struct work *work = argument;
    double start = seconds();
    uint64_t begin = cycles();
    for (unsigned long i = 0; i < work->pairs; i += 4) {
        free(level7(0));
        free(level7(1));
        free(level7(2));
        free(level7(3));
    }
    work->cycles = cycles() - begin;
    work->seconds = seconds() - start;
    return NULL;
}

int main(int count, char **arguments) {
    unsigned long pairs = count > 1 ? strtoul(arguments[1], NULL, 10) : 2000000;
    unsigned threads = count > 2 ? (unsigned)atoi(arguments[2]) : 1;
    static struct work works[256];
    static pthread_t ids[256];
    if (threads == 0 || threads > 256) return 2;
    for (unsigned i = 0; i < threads; i++) {
        works[i].pairs = pairs;
        if (pthread_create(&ids[i], NULL, run, &works[i]) != 0) return 1;
    }
    double total = 0, wall = 0;
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        total += works[i].seconds;
        wall += (double)works[i].cycles;
    }
    printf("ns_cpu_per_pair %.1f cycles_per_pair %.0f\n", total * 1e9 / (double)(pairs * threads), wall / (double)(pairs * threads));
    return 0;
}
