/*
 * Programs for the pilot to look after, one process each: what its threads do with memory that node 0 touched first is known, and so is where that memory
 * belongs. Each prints one line when it is ready and, at its end, where its pages are (move_pages without targets) and a checksum that must not depend on that.
 *
 *   moves PROGRAM MIB SECONDS [EVERY]
 *   remote    each node's thread reads and writes a quarter of its own
 *   shared    every node's thread writes all of it
 *   phases    node 1's thread uses it, then node 2's, in turns of a third of the time
 *   handover  node 0's thread fills it again and again, node 2's reads it (producer and consumer)
 *   nothing   each node's thread uses what it touched itself
 *   sleep     nobody does anything
 *   churn     maps, touches, unmaps and forks all the time
 *   locked    as remote, in locked memory
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NODES = 4, PAGE = 4096, LINE = 64, BATCH = 1024 };

static char *memory;
static size_t bytes;
static const char *program;
static double seconds, every;
static volatile int phase, stop, hurry;
static pthread_barrier_t touched;
static uint64_t sums[NODES];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* SIGUSR1: enough, say your last words. */
static void hasten(int signal) {
    (void)signal;
    hurry = 1;
}

static int is(const char *name) { return !strcmp(program, name); }

static void pin(int node) {
    if (getenv("MOVES_FREE")) return; /* wherever the scheduler or a daemon wants it */
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(node * 2, &set); /* two CPUs a node */
    if (sched_setaffinity(0, sizeof set, &set) != 0) fprintf(stderr, "moves: not pinned: %s\n", strerror(errno));
}

/* Adds up one word of each line: the sum does not depend on how often. */
static uint64_t use(char *at, size_t length, int writes) {
    uint64_t sum = 0;
    for (size_t i = 0; i < length; i += LINE) {
        uint64_t *word = (uint64_t *)(at + i);
        uint64_t value = __atomic_load_n(word, __ATOMIC_RELAXED);
        if (writes) __atomic_store_n(word, value, __ATOMIC_RELAXED);
        sum += value;
    }
    return sum;
}

static void fill(char *at, size_t length) {
    for (size_t i = 0; i < length; i += LINE) __atomic_store_n((uint64_t *)(at + i), i * 2654435761u + 1, __ATOMIC_RELAXED);
}

static void *work(void *argument) {
    int node = (int)(intptr_t)argument;
    size_t part = bytes / NODES;
    char *own = memory + part * (size_t)node;
    pin(node);
    if (is("nothing")) fill(own, part);
    else if (node == 0) fill(memory, bytes);
    pthread_barrier_wait(&touched);
    pthread_barrier_wait(&touched);
    useconds_t pause = getenv("MOVES_PAUSE_US") ? (useconds_t)atol(getenv("MOVES_PAUSE_US")) : 0;
    while (!stop) {
        if (pause) usleep(pause); /* busy for a part of the time only */
        if (is("remote") || is("nothing") || is("locked")) sums[node] = use(own, part, 1);
        else if (is("shared")) sums[node] = use(memory, bytes, 1);
        else if (is("phases") && node == 1 + phase % 2) sums[node] = use(memory, bytes, 1);
        else if (is("handover") && node == 0) fill(memory, bytes);
        else if (is("handover") && node == 2) sums[node] = use(memory, bytes, 0);
        else usleep(20000);
    }
    return NULL;
}

static void tell(double at) {
    uint64_t on[NODES + 1] = {0}, home[NODES] = {0};
    void *pages[BATCH];
    int status[BATCH];
    for (size_t first = 0; first < bytes;) {
        size_t count = 0, start = first;
        for (; count < BATCH && first < bytes; count++, first += PAGE) pages[count] = memory + first;
        if (syscall(SYS_move_pages, 0, count, pages, NULL, status, 0) != 0) break;
        for (size_t i = 0; i < count; i++) {
            on[status[i] >= 0 && status[i] < NODES ? status[i] : NODES]++;
            size_t quarter = (start + i * PAGE) / (bytes / NODES);
            if (quarter < NODES && status[i] == (int)quarter) home[quarter]++;
        }
    }
    printf("{\"at\": %.3f, \"pid\": %d, \"on\": [%lu, %lu, %lu, %lu], \"nowhere\": %lu, \"in_own_quarter\": %lu}\n", at, getpid(), on[0], on[1], on[2],
           on[3], on[4], home[0] + home[1] + home[2] + home[3]);
    fflush(stdout);
}

/* Address space that never stays as it is: what is ordered about it is out of date when it is carried out. */
static void churn(double end) {
    uint64_t sum = 0, rounds = 0;
    while (now() < end) {
        size_t length = ((rounds * 37) % 61 + 1) * PAGE;
        char *at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) exit(3);
        fill(at, length);
        sum += use(at, length, 1) != use(at, length, 0);
        if (rounds % 16 == 0) {
            pid_t child = fork();
            if (child == 0) _exit(use(at, length, 1) == 0);
            int status = 0;
            if (child > 0 && (waitpid(child, &status, 0) != child || status != 0)) exit(4);
        }
        char *moved = mremap(at, length, length + PAGE, MREMAP_MAYMOVE);
        if (moved == MAP_FAILED) exit(5);
        sum += use(moved, length, 0) == 0;
        munmap(moved, length + PAGE);
        rounds++;
    }
    printf("checksum %lu\n", sum);
}

int main(int count, char **words) {
    if (count < 4) return fprintf(stderr, "usage: moves PROGRAM MIB SECONDS [EVERY]\n"), 2;
    program = words[1];
    bytes = strtoul(words[2], NULL, 10) << 20;
    seconds = atof(words[3]);
    every = count > 4 ? atof(words[4]) : 0;
    signal(SIGUSR1, hasten);
    if (is("churn")) return churn(now() + seconds), 0;
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 3;
    madvise(memory, bytes, getenv("MOVES_HUGE") ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    if (is("locked") && mlock(memory, bytes) != 0) return fprintf(stderr, "moves: mlock: %s\n", strerror(errno)), 3;
    pthread_t threads[NODES];
    pthread_barrier_init(&touched, NULL, NODES + 1);
    for (intptr_t node = 0; node < NODES; node++)
        if (pthread_create(&threads[node], NULL, work, (void *)node)) return 3;
    pthread_barrier_wait(&touched);
    fprintf(stderr, "moves: ready %d\n", getpid());
    tell(0);
    pthread_barrier_wait(&touched);
    double start = now(), next = every;
    while (!hurry && now() - start < seconds) {
        usleep(20000);
        phase = (int)((now() - start) / (seconds / 3));
        if (every > 0 && now() - start >= next) tell(now() - start), next += every;
    }
    stop = 1;
    for (int node = 0; node < NODES; node++) pthread_join(threads[node], NULL);
    tell(now() - start);
    printf("checksum %lu\n", use(memory, bytes, 0));
    return 0;
}
