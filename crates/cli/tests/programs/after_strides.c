/* after_strides.c: loops whose accesses advance by various distances, forward and backward, several of them together, and which end anywhere in a line. Prints
 * how many accesses they make (after_optimisation.rs). With an argument, in a thread of its own. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Each loop of each round has memory of its own, which nobody has touched. */
enum { REGION = 1 << 16, LOOPS = 7, ROUNDS = 40 };

struct three { int32_t a, b, c; };
struct large { int64_t a, b, c, d, e; };

static long made;

/* Adds up every element of a type, from one to another. */
#define SUM(name, type, value)                                                                     \
    __attribute__((noinline)) static int64_t name(const type *from, const type *to) {              \
        int64_t sum = 0;                                                                           \
        for (const type *at = from; at != to; at++) sum += (value);                                \
        return sum;                                                                                \
    }
SUM(bytes, int8_t, *at)
SUM(words, int32_t, *at)
SUM(longs, int64_t, *at)
SUM(threes, struct three, at->a)
SUM(larges, struct large, at->b)

__attribute__((noinline)) static int64_t backward(const int64_t *from, const int64_t *to) {
    int64_t sum = 0;
    for (const int64_t *at = to; at != from;) sum += *--at;
    return sum;
}

/* Three streams of different steps, and one place that the data tells. */
__attribute__((noinline)) static void mixed(int64_t *out, const int32_t *index, const int64_t *from, long count) {
    for (long i = 0; i < count; i++) out[i] = from[index[i] & 7];
}

__attribute__((noinline)) static void *work(void *memory) {
    char *region = memory;
    int64_t sum = 0;
    for (long round = 0; round < ROUNDS; round++) {
        /* Of one element and more, from any element of a line. */
        long first = round * 7 % 61, count = round < ROUNDS / 2 ? round + 1 : 999 + 13 * (round - ROUNDS / 2);
        int8_t *b = (int8_t *)region + first;
        int32_t *w = (int32_t *)(region + REGION) + first;
        int64_t *l = (int64_t *)(region + 2 * REGION) + first, *down = (int64_t *)(region + 3 * REGION) + first;
        struct three *t = (struct three *)(region + 4 * REGION) + first;
        struct large *g = (struct large *)(region + 5 * REGION) + first;
        sum += bytes(b, b + count) + words(w, w + count) + longs(l, l + count) + backward(down, down + count);
        sum += threes(t, t + count) + larges(g, g + count);
        mixed((int64_t *)(region + 6 * REGION) + first, w, l, count);
        made += 6 * count + 3 * count;
        region += LOOPS * REGION;
    }
    return (void *)(sum & 63);
}

int main(int count, char **words_) {
    char *memory = calloc(ROUNDS * LOOPS, REGION);
    void *sum = NULL;
    if (count > 1) {
        pthread_t thread;
        pthread_create(&thread, NULL, work, memory);
        pthread_join(thread, &sum);
    } else {
        sum = work(memory);
    }
    printf("%ld %ld\n", made, (long)sum);
    (void)words_;
    return 0;
}
