/* after.c: code of many shapes, whose results must not depend on call-outs (after_optimisation.rs). Prints checksums; ends with status 7. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 1000

struct mixed {
    char letter;
    short half;
    unsigned bits : 5, more : 11;
    long long whole;
    float single;
    double both[2];
    struct mixed *next;
};

static int table[COUNT];
static _Thread_local unsigned per_thread = 3;
static atomic_long shared_sum;
static volatile int opaque = 1;
static unsigned char bytes[COUNT + 7];
static jmp_buf back;

static long hash(long sum, long value) { return (sum * 31 + value) % 1000000007; }

static long vectors(void) {
    long sum = 0;
    short halves[COUNT];
    for (int i = 0; i < COUNT; i++) table[i] = i * 7 % 101, bytes[i] = (unsigned char)(i * 3), halves[i] = (short)(i - 500);
    for (int i = 0; i < COUNT; i++) sum += table[i];
    for (int i = 0; i < COUNT; i++) sum += bytes[i + 7] ^ halves[i];
    for (int i = COUNT - 1; i > 0; i--) table[i] += table[i - 1] > 50 ? 1 : table[i];
    for (int i = 0; i < COUNT; i += 17) sum = hash(sum, table[i]);
    return sum;
}

static double floats(int turns) {
    double a[64], total = 0;
    float b[64];
    long double wide = 1;
    for (int i = 0; i < 64; i++) a[i] = i * 0.5, b[i] = (float)(64 - i);
    for (int turn = 0; turn < turns; turn++) {
        for (int i = 0; i < 64; i++) a[i] += b[i] * 0.25, b[i] = (float)(int)a[i];
        wide = wide * 1.0625L + a[turn & 63];
        total += a[(turn * 5) & 63] > 20 ? a[turn & 63] : -1;
    }
    return total + (double)wide;
}

static struct mixed *list(int count) {
    struct mixed *head = NULL;
    for (int i = 0; i < count; i++) {
        struct mixed *node = calloc(1, sizeof *node);
        struct mixed copy = {(char)i, (short)(i * 3), i & 31u, i & 2047u, i * 1234567LL, i * 0.5f, {i, -i}, head};
        *node = copy;
        head = node;
    }
    return head;
}

static long walk(const struct mixed *node) {
    long sum = 0;
    for (; node != NULL; node = node->next) {
        sum = hash(sum, node->letter + node->half + node->bits + node->more + node->whole % 1000 + (long)node->single + (long)node->both[1]);
    }
    return sum;
}

static long chosen(int kind, long value) {
    switch (kind) {
    case 0: return value + table[1];
    case 1: return value * 3;
    case 2: return value ^ 0x55;
    case 3: return value / 3;
    case 4: return value % 7;
    case 5: return (long)((unsigned __int128)(unsigned long)value * 0x123456789abcdefUL >> 60);
    case 6: return __builtin_popcountl((unsigned long)value) + __builtin_ctzl((unsigned long)value | 8);
    default: return -value;
    }
}

static long several(int count, ...) {
    va_list list;
    long sum = 0;
    va_start(list, count);
    for (int i = 0; i < count; i++) sum = i & 1 ? sum + (long)va_arg(list, double) : sum * 2 + va_arg(list, int);
    va_end(list);
    return sum;
}

static int compare(const void *left, const void *right) { return *(const int *)left - *(const int *)right; }

static long jumps(void) {
    volatile long count = 0;
    int value = setjmp(back);
    count += value + 1;
    if (value < 4) longjmp(back, value + 1);
    return count;
}

static long deep(long depth, long *sum) {
    long here[5] = {depth, depth * 2, *sum, 1, 2};
    *sum += here[depth % 5];
    return depth == 0 ? here[2] : deep(depth - 1, sum) + here[(depth + opaque) % 5];
}

static void *worker(void *argument) {
    long mine = (long)(size_t)argument;
    for (int i = 0; i < 500; i++) {
        per_thread += (unsigned)i;
        atomic_fetch_add(&shared_sum, mine);
        long seen = atomic_load(&shared_sum);
        if (i % 100 == 0) atomic_compare_exchange_strong(&shared_sum, &seen, seen);
    }
    return (void *)(size_t)per_thread;
}

static unsigned long threads(void) {
    pthread_t made[3];
    unsigned long sum = 0;
    for (size_t i = 0; i < 3; i++) pthread_create(&made[i], NULL, worker, (void *)(i + 1));
    for (int i = 0; i < 3; i++) {
        void *result;
        pthread_join(made[i], &result);
        sum += (unsigned long)(size_t)result;
    }
    return sum + (unsigned long)atomic_load(&shared_sum) + per_thread;
}

static long blocks(size_t count) {
    char from[300], to[300];
    for (int i = 0; i < 300; i++) from[i] = (char)(i * opaque);
    memset(to, 1, sizeof to);
    memcpy(to + 3, from, count);
    memmove(to, to + 5, 100);
    to[299] = 0;
    long sum = 0;
    for (int i = 0; i < 300; i++) sum = hash(sum, to[i] & 127);
    return sum + (long)strlen(from + 1) + memcmp(from, from, count);
}

int main(void) {
    printf("vectors %ld\n", vectors());
    printf("floats %.9g\n", floats(200 * opaque));
    printf("list %ld\n", walk(list(300)));
    long sum = 1;
    for (int i = 0; i < 200; i++) sum = hash(sum, chosen(i % 8, sum + i));
    printf("chosen %ld\n", sum);
    printf("several %ld\n", several(6, 1, 2.5, 3, 4.5, 5, 6.5));
    qsort(table, COUNT, sizeof *table, compare);
    printf("sorted %d %d %d\n", table[0], table[COUNT / 2], table[COUNT - 1]);
    printf("jumps %ld\n", jumps());
    sum = 0;
    long depth = deep(100, &sum);
    printf("deep %ld %ld\n", depth, sum);
    printf("threads %lu\n", threads());
    printf("blocks %ld\n", blocks(200 * (size_t)opaque));
    return 7;
}
