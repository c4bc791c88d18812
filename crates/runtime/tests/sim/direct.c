/* direct.c: accesses made by calling the entry points themselves, from code that is not instrumented: every one of them is known.
 * `direct CASE [SEED]`. The cases and what must come out of each are in ../sim_model.rs. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void __tsan_read8(void *);
void __tsan_write8(void *);
void __tsan_read_write8(void *);
void __tsan_unaligned_read8(void *);
void __tsan_read_range(void *, size_t);
void *__tsan_memcpy(void *, const void *, size_t);

#define LINE 64
#define PAGE 4096
#define BASE ((char *)0x100000000000)

static uint64_t seed = 1;
static uint64_t next(void) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return seed >> 33;
}

static char *map(char *at, size_t bytes) {
    char *block = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (block == MAP_FAILED) exit(3);
    return block;
}

/* Accesses are only told of: for reads there must be memory, or they would be of the zero page. */
static void filled(char *at, size_t bytes) {
    for (size_t i = 0; i < bytes; i += PAGE) ((volatile char *)at)[i] = 0;
}

static void read_lines(char *block, size_t lines) {
    for (size_t i = 0; i < lines; i++) __tsan_read8(block + i * LINE);
}

/* ---- threads that take turns ---- */

#define THREADS 4
static pthread_barrier_t barrier;
static char *block;
static size_t rounds;
static size_t stride;

static size_t started;

static void *alternate(void *argument) {
    size_t me = (size_t)argument;
    __atomic_fetch_add(&started, 1, __ATOMIC_RELEASE);
    for (size_t round = 0; round < rounds; round++) {
        pthread_barrier_wait(&barrier);
        if (round % 2 == me) __tsan_write8(block + me * stride);
    }
    /* Who ends takes its cache along: not before the other's last write. */
    pthread_barrier_wait(&barrier);
    return NULL;
}

static void *touch_quarter(void *argument) {
    char *mine = block + (size_t)argument * 64 * PAGE;
    for (size_t page = 0; page < 64; page++) __tsan_write8(mine + page * PAGE);
    return NULL;
}

static void *read_all(void *argument) {
    (void)argument;
    pthread_barrier_wait(&barrier);
    read_lines(block, 2000);
    return NULL;
}

static void run_threads(void *(*routine)(void *), size_t count) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, (unsigned)count);
    for (size_t i = 0; i < count; i++) {
        pthread_create(&threads[i], NULL, routine, (void *)i);
        /* Threads are numbered as they start. */
        while (routine == alternate && __atomic_load_n(&started, __ATOMIC_ACQUIRE) <= i) sched_yield();
    }
    for (size_t i = 0; i < count; i++) pthread_join(threads[i], NULL);
}

/* ---- cases ---- */

static void fit(void) {
    read_lines(block, 1000);
    for (int i = 0; i < 100000; i++) __tsan_read8(block + next() % 1000 * LINE + next() % 8 * 8);
}

static void uniform(size_t lines) {
    for (int i = 0; i < 1000000; i++) __tsan_read8(block + next() % lines * LINE);
}

static void ping_pong(size_t bytes_apart) {
    stride = bytes_apart;
    rounds = 2000;
    run_threads(alternate, 2);
}

static void first_touch(void) {
    run_threads(touch_quarter, THREADS);
    read_lines(block, 4 * 64 * PAGE / LINE);
}

static void *touch_again(void *argument) {
    (void)argument;
    for (size_t page = 0; page < 64; page++) __tsan_write8(block + page * PAGE);
    return NULL;
}

static void forget(void) {
    for (size_t page = 0; page < 64; page++) __tsan_write8(block + page * PAGE);
    munmap(block, 1 << 26);
    map(BASE, 1 << 26);
    run_threads(touch_again, 1);
}

/* One write in every page, in many lives of one range: no line is written twice in a life. At addresses that programs have: near the end of the
 * address space, and across a boundary at which the bits change that a tag has no room for. */
static void lives(void) {
    char *const at[] = {(char *)0x7e1234567000, (char *)0x1ffffff80000};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        for (int life = 0; life < 50; life++) {
            char *range = map(at[i], 1 << 20);
            for (size_t page = 0; page < 256; page++) __tsan_write8(range + page * PAGE + page % 64 * LINE);
            munmap(range, 1 << 20);
        }
    }
}

/* Memory that nobody has written: a pass over it, and then at random, and one word again and again. Processor time of each, which other programs do not
 * change, beside that of written memory. */
static uint64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void unwritten(void) {
    char *memory[] = {block, map(BASE + (1ll << 32), 1 << 26)};
    filled(memory[1], 1 << 26);
    for (size_t i = 0; i < 1 << 26; i += PAGE) (void)((volatile char *)memory[0])[i]; /* the kernel's zero page, everywhere */
    uint64_t took[2];
    for (int kind = 0; kind < 2; kind++) {
        uint64_t began = now_us();
        read_lines(memory[kind], (1 << 26) / LINE);
        for (int i = 0; i < 1000000; i++) __tsan_read8(memory[kind] + next() % (1 << 20) * LINE);
        took[kind] = now_us() - began;
    }
    printf("unwritten %lu written %lu\n", took[0], took[1]);
}

static void polled(void) {
    for (int i = 0; i < 1000000; i++) __tsan_read8(block);
    __tsan_write8(block);
}

/* All are sent to one CPU by main before their first accesses to their own parts of the block. */
static void *touch_where_sent(void *argument) {
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return touch_quarter(argument);
}

static void sent(void) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    for (size_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, touch_where_sent, (void *)i);
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < THREADS; i++) {
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        CPU_SET(15, &cpus);
        if (pthread_setaffinity_np(threads[i], sizeof cpus, &cpus) != 0) exit(4);
    }
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

static void forked(void) {
    for (size_t page = 0; page < 64; page++) __tsan_write8(block + page * PAGE);
    pid_t child = fork();
    if (child == 0) {
        for (size_t page = 0; page < 64; page++) __tsan_read8(block + page * PAGE);
        for (size_t page = 0; page < 128; page++) __tsan_write8(block + page * PAGE + LINE);
        exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    if (status != 0) exit(4);
}

static void ranges(void) {
    for (size_t i = 0; i < 100; i++) __tsan_unaligned_read8(block + i * 2 * LINE + LINE - 4); /* two lines each */
    char *other = block + (1 << 20);
    for (size_t i = 0; i < 100; i++) __tsan_read_range(other + i * 1088 + 60, 1000); /* 17 lines each, touching 17 * 100 */
    other = block + (2 << 20);
    __tsan_memcpy(other, block + (3 << 20), 6400); /* 100 lines read, 100 written */
}

static void mixed(void) {
    char *far = block + (8 << 20);
    for (size_t page = 0; page < 2048; page++) __tsan_write8(block + page * PAGE);
    run_threads(touch_quarter, THREADS);
    for (size_t page = 0; page < (1 << 25) / PAGE; page++) __tsan_write8(block + page * PAGE);
    for (int i = 0; i < 400000; i++) {
        __tsan_read8(block + next() % (1 << 19) * LINE);
        if (i % 3 == 0) __tsan_write8(far + next() % (1 << 18) * LINE);
    }
}

/* ---- what comes from what: a core overlaps misses that do not wait for each other ---- */

#define MANY (512 * 1024) /* lines: 32 MiB, five times the caches */
#define STEPS 200000

/* All lines in one ring, in random order, each with the address of the next in the middle of it. */
static char **ring(void) {
    char *lines = map(BASE + (1ll << 32), (size_t)MANY * LINE);
    uint32_t *order = malloc(MANY * sizeof *order);
    for (uint32_t i = 0; i < MANY; i++) order[i] = i;
    for (uint32_t i = MANY - 1; i > 0; i--) {
        uint32_t other = (uint32_t)(next() % (i + 1)), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    for (uint32_t i = 0; i < MANY; i++)
        *(char **)(lines + (size_t)order[i] * LINE + 24) = lines + (size_t)order[(i + 1) % MANY] * LINE + 24;
    free(order);
    return (char **)(lines + 24);
}

static void chase(void) {
    char **at = ring();
    for (int step = 0; step < STEPS; step++) {
        __tsan_read8(at);
        at = *(char ***)at;
    }
    if (at == NULL) exit(4);
}

/* The same lines in the same order, but by a table of their addresses: what each says of the next is not looked at. */
static void listed(void) {
    char **first = ring(), **list = (char **)map(BASE + (2ll << 32), STEPS * sizeof *list);
    for (int step = 0; step < STEPS; step++, first = *(char ***)first) list[step] = (char *)first - 24;
    for (int step = 0; step < STEPS; step++) {
        __tsan_read8(list + step);
        __tsan_read8(list[step]);
    }
}

/* Scattered lines whose addresses are computed, with `between` accesses to one line after each. */
static void gather(int between) {
    char *lines = map(BASE + (2ll << 32), (size_t)MANY * LINE), *near = map(BASE + (3ll << 32), PAGE);
    filled(lines, (size_t)MANY * LINE);
    filled(near, PAGE);
    for (int step = 0; step < STEPS; step++) {
        __tsan_read8(lines + next() % MANY * LINE);
        for (int i = 0; i < between; i++) __tsan_read8(near);
    }
}

/* A table of pointers, asked at random, and what they point to. */
static void buckets(void) {
    char **table = (char **)map(BASE + (2ll << 32), (size_t)MANY * LINE), **nodes = ring();
    for (size_t i = 0; i < MANY; i++) table[i * 8] = (char *)nodes + next() % MANY * LINE;
    for (int step = 0; step < STEPS; step++) {
        char **bucket = table + next() % MANY * 8;
        __tsan_read8(bucket);
        __tsan_read8(*bucket);
    }
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    if (argc > 2) seed = strtoull(argv[2], NULL, 0);
    block = map(BASE, 1 << 26);
    const char *reading[] = {"fit", "uniform", "shared", "ranges"};
    for (size_t i = 0; i < sizeof reading / sizeof *reading; i++)
        if (!strcmp(name, reading[i])) filled(block, 1 << 26);
    if (!strcmp(name, "fit")) fit();
    else if (!strcmp(name, "uniform")) uniform(4 * 1024 * 9);
    else if (!strcmp(name, "ping-pong")) ping_pong(8);
    else if (!strcmp(name, "apart")) ping_pong(LINE);
    else if (!strcmp(name, "shared")) run_threads(read_all, THREADS);
    else if (!strcmp(name, "first-touch")) first_touch();
    else if (!strcmp(name, "forget")) forget();
    else if (!strcmp(name, "lives")) lives();
    else if (!strcmp(name, "unwritten")) unwritten();
    else if (!strcmp(name, "polled")) polled();
    else if (!strcmp(name, "sent")) sent();
    else if (!strcmp(name, "fork")) forked();
    else if (!strcmp(name, "ranges")) ranges();
    else if (!strcmp(name, "mixed")) mixed();
    else if (!strcmp(name, "chase")) chase();
    else if (!strcmp(name, "listed")) listed();
    else if (!strcmp(name, "gather")) gather(0);
    else if (!strcmp(name, "sparse")) gather(100);
    else if (!strcmp(name, "buckets")) buckets();
    else return 2;
    return 0;
}
