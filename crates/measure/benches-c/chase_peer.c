// The peer that `numapilot measure` is held against in latency: lmbench's lat_mem_rd by its description (McVoy and Staelin, "lmbench: Portable Tools for
// Performance Analysis", USENIX 1996): a ring of pointers from the end of an array to its beginning, `stride` bytes apart, or, as its option for a random
// order, shuffled; a hundred loads to a turn of the loop, the least of several timings. Written for this comparison; no code of lmbench's is in it.
//
// cc -O2 chase_peer.c -o chase_peer && taskset -c 0 ./chase_peer BYTES STRIDE|random TIMINGS
// Prints nanoseconds per load: least and median.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define ONE p = (char **)*p;
#define TEN ONE ONE ONE ONE ONE ONE ONE ONE ONE ONE
#define HUNDRED TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN
enum { LINE = 64, TIMINGS_MAX = 10000 };

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_size(const void *left, const void *right) {
    double x = *(const double *)left, y = *(const double *)right;
    return (x > y) - (x < y);
}

// Every line once: Sattolo's shuffle gives one cycle.
static void lay_random(char *memory, size_t lines) {
    unsigned *next = malloc(lines * sizeof *next);
    if (!next) exit(1);
    for (size_t i = 0; i < lines; i++) next[i] = (unsigned)i;
    unsigned long long state = 88172645463325252ULL;
    for (size_t i = lines - 1; i > 0; i--) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        size_t j = state % i;
        unsigned kept = next[i];
        next[i] = next[j], next[j] = kept;
    }
    for (size_t i = 0; i < lines; i++) *(char **)(memory + i * LINE) = memory + (size_t)next[i] * LINE;
    free(next);
}

int main(int argc, char **argv) {
    if (argc != 4) return fprintf(stderr, "usage: chase_peer BYTES STRIDE|random TIMINGS\n"), 2;
    size_t bytes = strtoull(argv[1], NULL, 10);
    int is_random = strcmp(argv[2], "random") == 0, timings = atoi(argv[3]);
    size_t stride = is_random ? LINE : strtoull(argv[2], NULL, 10);
    if (stride < sizeof(char *) || bytes < 2 * stride || timings < 1 || timings > TIMINGS_MAX) return fprintf(stderr, "chase_peer: out of range\n"), 2;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return perror("chase_peer"), 1;
    madvise(memory, bytes, MADV_NOHUGEPAGE);
    memset(memory, 0, bytes);
    size_t count = bytes / stride;
    if (is_random) {
        lay_random(memory, count);
    } else {
        for (size_t i = 1; i < count; i++) *(char **)(memory + i * stride) = memory + (i - 1) * stride;
        *(char **)memory = memory + (count - 1) * stride;
    }
    char **p = (char **)memory;
    // To the caches what they hold.
    size_t warm = count < (1u << 21) ? count : 1u << 21;
    for (size_t i = 0; i < warm; i += 100) { HUNDRED }
    double start = now_ns();
    for (int i = 0; i < 40; i++) { HUNDRED }
    double each = (now_ns() - start) / 4000;
    size_t turns = (size_t)(5e6 / each / 100) + 1;
    static double found[TIMINGS_MAX];
    for (int k = 0; k < timings; k++) {
        start = now_ns();
        for (size_t i = 0; i < turns; i++) { HUNDRED }
        found[k] = (now_ns() - start) / (double)(turns * 100);
    }
    qsort(found, (size_t)timings, sizeof found[0], by_size);
    printf("%.4f %.4f\n", found[0], found[timings / 2]);
    return p == NULL;
}
