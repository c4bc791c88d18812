/*
 * Programs for the pilot to look after: what their threads do with memory that node 0 touched first is known, and so is where that memory belongs. Each
 * prints one line when it is ready and, at its end, where its pages are (move_pages without targets) and a checksum that must not depend on that.
 *
 *   moves PROGRAM MIB SECONDS [EVERY]       one thread per node; what else is wanted comes by environment:
 *   MOVES_HUGE=1          huge pages
 *   MOVES_MARK=half|all   marks around the second half, or from the start on; `regions SKIPPED COUNTED` says how many there were, by half and after it
 *   MOVES_NODES=N:CPUS    so many nodes with so many CPUs each, for simulated machines, which have no /sys
 *   MOVES_TURNS=N         it lasts until memory was gone through so often, not SECONDS: on simulated machines the clock is the host's, which may be busy
 *   MOVES_STAY=1          bound to node 0 such that the kernel still looks who uses what, and moves nothing
 *   MOVES_PAGES=1         each page's node at the end: `pages ADDRESS NODES`, a digit each
 *   MOVES_FREE=1          threads run where they like; MOVES_PAUSE_US: they sleep so long after each turn
 *   remote    each node's thread reads and writes a part of its own
 *   shared    every node's thread writes all of it
 *   phases    node 1's thread uses it, then node 2's, in turns of a third of the time
 *   handover  node 0's thread fills it again and again, node 2's reads it (producer and consumer)
 *   nothing   each node's thread uses what it touched itself
 *   many      as remote, by a process per node
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
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Marks for the lab's plugin, where its header is at hand. */
#if __has_include("mark.h")
#include "mark.h"
#else
enum { NP_MARK_BEGIN, NP_MARK_END, NP_MARK_ONLY_ME };
#define np_mark(command, argument) (void)(command)
#endif

enum { NODES_MAX = 16, PAGE = 4096, HUGE = 2 << 20, LINE = 64, BATCH = 1024 };

static char *memory;
static size_t bytes;
static int nodes, cpu_of[NODES_MAX];
static pid_t workers[NODES_MAX]; /* of `many`: whose process a part is */
static const char *program;
static double seconds, every;
static volatile int phase, stop, hurry;
static volatile long turns; /* of node 0's thread; of `phases`: of whose turn it is */
static pthread_barrier_t touched;
static uint64_t sums[NODES_MAX];

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

/* Nodes with CPUs, each with its first one. */
static void find_nodes(void) {
    int told = 0, cpus = 0;
    if (getenv("MOVES_NODES") && sscanf(getenv("MOVES_NODES"), "%d:%d", &told, &cpus) == 2) {
        for (; nodes < told && nodes < NODES_MAX; nodes++) cpu_of[nodes] = nodes * cpus;
        return;
    }
    for (int node = 0; nodes < NODES_MAX; node++) {
        char path[64];
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
        FILE *file = fopen(path, "r");
        if (!file) return;
        if (fscanf(file, "%d", &cpu_of[nodes]) == 1) nodes++;
        fclose(file);
    }
}

static void pin(int node) {
    if (getenv("MOVES_FREE")) return; /* wherever the scheduler or a daemon wants it */
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu_of[node], &set);
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
    size_t part = bytes / (size_t)nodes;
    char *own = memory + part * (size_t)node;
    if (is("nothing")) fill(own, part);
    else if (node == 0) fill(memory, bytes);
    pthread_barrier_wait(&touched);
    pthread_barrier_wait(&touched);
    useconds_t pause = getenv("MOVES_PAUSE_US") ? (useconds_t)atol(getenv("MOVES_PAUSE_US")) : 0;
    while (!stop) {
        if (pause) usleep(pause); /* busy for a part of the time only */
        if (is("remote") || is("nothing") || is("locked")) sums[node] = use(own, part, 1);
        else if (is("shared")) sums[node] = use(memory, bytes, 1);
        else if (is("phases") && node == 1 + phase % 2) sums[node] = use(memory, bytes, 1), turns++;
        else if (is("handover") && node == 0) fill(memory, bytes);
        else if (is("handover") && node == 2) sums[node] = use(memory, bytes, 0);
        else usleep(20000);
        if (node == 0 && !is("phases")) turns++;
    }
    return NULL;
}

/* Born on its node: a recording has a thread where it began. */
static int start_thread(pthread_t *thread, intptr_t node) {
    static pthread_attr_t all[NODES_MAX];
    pthread_attr_t *how = &all[node];
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu_of[node], &set);
    pthread_attr_init(how);
    if (!getenv("MOVES_FREE") && pthread_attr_setaffinity_np(how, sizeof set, &set)) return 1;
    return pthread_create(thread, how, work, (void *)node);
}

static void tell(double at, char *nodes_of) {
    uint64_t on[NODES_MAX + 1] = {0}, home = 0;
    void *pages[BATCH];
    int status[BATCH];
    size_t part = bytes / (size_t)nodes;
    for (size_t first = 0; first < bytes;) {
        size_t owner = first / part, count = 0;
        for (; count < BATCH && first < (owner + 1) * part; count++, first += PAGE) pages[count] = memory + first;
        if (syscall(SYS_move_pages, workers[owner], count, pages, NULL, status, 0) != 0) break;
        for (size_t i = 0; i < count; i++) {
            on[status[i] >= 0 && status[i] < nodes ? status[i] : NODES_MAX]++;
            home += status[i] == (int)owner;
            if (nodes_of) *nodes_of++ = status[i] >= 0 && status[i] < nodes ? "0123456789abcdef"[status[i]] : '-';
        }
    }
    printf("{\"at\": %.3f, \"pid\": %d, \"on\": [", at, getpid());
    for (int node = 0; node < nodes; node++) printf("%s%lu", node ? ", " : "", on[node]);
    printf("], \"nowhere\": %lu, \"in_own_part\": %lu}\n", on[NODES_MAX], home);
    fflush(stdout);
}

/* Regions of interest: what is counted before the second half begins, and from then on. What one thread does after another (`phases`) is a region each:
 * a model takes all of a region to be done at the same time. */
static int regions[2], is_open;

static void begin_region(int half) {
    np_mark(NP_MARK_BEGIN, NULL);
    regions[half]++;
    is_open = 1;
}

/* Opens regions as time goes on. */
static void mark(double at) {
    static int half, seen;
    const char *which = getenv("MOVES_MARK");
    if (!which) return;
    int now_half = at >= seconds / 2, is_new = !is_open || now_half != half || (is("phases") && phase != seen);
    half = now_half, seen = phase;
    if (is_new && (half || !strcmp(which, "all"))) begin_region(half);
}

/* What processes of `many` share: how many are ready, what to do, and each one's sum. */
enum { WAIT, GO, STOP, LEAVE };
struct team {
    int ready, order;
    uint64_t sums[NODES_MAX];
};
static struct team *team;

/* A process of `many`, started on node 0; it moves to its node once it has touched its part, and stays until its pages' nodes have been read. */
static int be_worker(int node) {
    size_t part = bytes / (size_t)nodes;
    char *own = memory + part * (size_t)node;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getenv("MOVES_MARK")) np_mark(NP_MARK_ONLY_ME, NULL);
    pin(0);
    fill(own, part);
    pin(node);
    __atomic_fetch_add(&team->ready, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&team->order, __ATOMIC_SEQ_CST) == WAIT) usleep(1000);
    while (__atomic_load_n(&team->order, __ATOMIC_SEQ_CST) == GO) use(own, part, 1);
    team->sums[node] = use(own, part, 0);
    __atomic_fetch_sub(&team->ready, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&team->order, __ATOMIC_SEQ_CST) != LEAVE) usleep(1000);
    return 0;
}

static int start_workers(void) {
    team = mmap(NULL, sizeof *team, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (team == MAP_FAILED) return 0;
    for (int node = 0; node < nodes; node++) {
        workers[node] = fork();
        if (workers[node] < 0) return 0;
        if (workers[node] == 0) _exit(be_worker(node));
    }
    while (__atomic_load_n(&team->ready, __ATOMIC_SEQ_CST) < nodes) usleep(1000);
    return 1;
}

static void order(int what) {
    if (team) __atomic_store_n(&team->order, what, __ATOMIC_SEQ_CST);
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
    find_nodes();
    if (nodes == 0) return fprintf(stderr, "moves: no memory nodes in /sys\n"), 3;
    memory = mmap(NULL, bytes + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 3;
    memory += (HUGE - (uintptr_t)memory % HUGE) % HUGE;
    madvise(memory, bytes, getenv("MOVES_HUGE") ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    /* MPOL_BIND | MPOL_F_NUMA_BALANCING (linux/mempolicy.h): pages go to users on the nodes bound to only (mpol_misplaced in mm/mempolicy.c). */
    unsigned long first_node = 1;
    if (getenv("MOVES_STAY") && syscall(SYS_mbind, memory, bytes, 2 | 1 << 13, &first_node, sizeof first_node * 8, 0) != 0)
        return fprintf(stderr, "moves: mbind: %s\n", strerror(errno)), 3;
    if (is("locked") && mlock(memory, bytes) != 0) return fprintf(stderr, "moves: mlock: %s\n", strerror(errno)), 3;
    if (getenv("MOVES_MARK")) np_mark(NP_MARK_ONLY_ME, NULL);
    pthread_t threads[NODES_MAX];
    int crew = is("many") ? 0 : nodes;
    if (crew == 0 && !start_workers()) return 3;
    pthread_barrier_init(&touched, NULL, (unsigned)crew + 1);
    for (intptr_t node = 0; node < crew; node++)
        if (start_thread(&threads[node], node)) return 3;
    pthread_barrier_wait(&touched);
    fprintf(stderr, "moves: ready %d\n", getpid());
    tell(0, NULL);
    pthread_barrier_wait(&touched);
    order(GO);
    double start = now(), next = every;
    double all = getenv("MOVES_TURNS") ? atof(getenv("MOVES_TURNS")) : 0, done;
    while (!hurry && (done = all > 0 ? (double)turns / all : (now() - start) / seconds) < 1) {
        phase = (int)(3 * done);
        mark(now() - start);
        usleep(20000);
        if (every > 0 && now() - start >= next) tell(now() - start, NULL), next += every;
    }
    if (is_open) np_mark(NP_MARK_END, NULL);
    stop = 1;
    order(STOP);
    for (int node = 0; node < crew; node++) pthread_join(threads[node], NULL);
    while (team && __atomic_load_n(&team->ready, __ATOMIC_SEQ_CST) > 0) usleep(1000);
    char *last = getenv("MOVES_PAGES") ? calloc(bytes / PAGE + 1, 1) : NULL;
    tell(now() - start, last);
    if (last) printf("pages %p %s\n", (void *)memory, last);
    if (is_open) printf("regions %d %d\n", regions[0], regions[1]);
    order(LEAVE);
    uint64_t sum = team ? 0 : use(memory, bytes, 0);
    int failed = 0, status = 0;
    for (int node = 0; team && node < nodes; node++) {
        sum += team->sums[node];
        if (waitpid(workers[node], &status, 0) != workers[node] || status != 0) failed = 5;
    }
    printf("checksum %lu\n", sum);
    return failed;
}
