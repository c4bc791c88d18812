/*
 * A program of several processes that only read one file: a worker per node, pinned there, with a private mapping of its own.
 *
 *   readers FILE SECONDS          reads for so long
 *   readers FILE SECONDS local    until nine tenths of each worker's pages are on its node, at most for so long
 *   readers FILE SECONDS wander   the same; then each worker goes to the next node, and the same again
 *   readers FILE SECONDS NAME     as local, then says `local`, and reads for another second once there is a file of that name
 *
 * Nobody knows how long a daemon takes on a busy machine, so that what is waited for is seen, not timed.
 *
 * Each worker prints at its end on which node it is, where the pages of its mapping lie (move_pages without targets), and a sum that must not depend on that.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NODES_MAX = 16, PAGE = 4096, LINE = 64, PAGES_MAX = 4096 };

static int cpu_of[NODES_MAX], nodes;
/* By worker: how many times it has come to a node and seen its pages come after it. */
static volatile int *arrived;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void find_nodes(void) {
    for (; nodes < NODES_MAX; nodes++) {
        char path[64];
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", nodes);
        FILE *file = fopen(path, "r");
        if (!file) return;
        if (fscanf(file, "%d", &cpu_of[nodes]) != 1) cpu_of[nodes] = 0;
        fclose(file);
    }
}

static void pin(int node) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu_of[node], &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) perror("sched_setaffinity");
}

/* Counts pages by node; how many there are. */
static size_t look(char *memory, size_t bytes, size_t on[NODES_MAX]) {
    static void *pages[PAGES_MAX];
    static int status[PAGES_MAX];
    size_t count = bytes / PAGE < PAGES_MAX ? bytes / PAGE : PAGES_MAX;
    for (size_t i = 0; i < count; i++) pages[i] = memory + i * PAGE;
    syscall(SYS_move_pages, 0, count, pages, NULL, status, 0);
    for (size_t i = 0; i < count; i++)
        if (status[i] >= 0 && status[i] < nodes) on[status[i]]++;
    return count;
}

/* Whether this worker's pages are where it is, and every other one's are, or were, too: for the turn-th time. */
static int all_local(int worker, int node, char *memory, size_t bytes, int turn) {
    size_t on[NODES_MAX] = {0};
    if (arrived[worker] < turn && look(memory, bytes, on) * 9 <= on[node] * 10) arrived[worker] = turn;
    for (int other = 0; other < nodes; other++)
        if (arrived[other] < turn) return 0;
    return 1;
}

static void tell(int worker, int node, char *memory, size_t bytes, uint64_t sum) {
    size_t on[NODES_MAX] = {0};
    look(memory, bytes, on);
    char line[512];
    int length = snprintf(line, sizeof line, "{\"worker\": %d, \"pid\": %d, \"node\": %d, \"sum\": %lu, \"on\": [", worker, getpid(), node, sum);
    for (int i = 0; i < nodes; i++) length += snprintf(line + length, sizeof line - (size_t)length, "%s%zu", i ? ", " : "", on[i]);
    length += snprintf(line + length, sizeof line - (size_t)length, "]}\n");
    if (write(1, line, (size_t)length) < 0) exit(6);
}

static int work(int worker, const char *path, double seconds, const char *mode) {
    int node = worker % nodes, turn = 1, turns = mode && !strcmp(mode, "wander") ? 2 : 1, file = open(path, O_RDONLY);
    int stays = mode && strcmp(mode, "local") && turns == 1;
    struct stat status;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (file < 0 || fstat(file, &status) != 0) return perror(path), 3;
    pin(node);
    size_t bytes = (size_t)status.st_size / PAGE * PAGE;
    char *memory = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (memory == MAP_FAILED) return 4;
    close(file);
    uint64_t expected = 0, rounds = 0;
    for (double start = now(), end = start + seconds; now() < end; rounds++) {
        uint64_t sum = 0;
        for (size_t i = 0; i < bytes; i += LINE) sum += *(volatile uint64_t *)(memory + i);
        if (rounds > 0 && sum != expected) return fprintf(stderr, "readers: round %lu read something else\n", rounds), 5;
        expected = sum;
        if (!mode || !all_local(worker, node, memory, bytes, turn)) continue;
        if (turn < turns) pin(node = (worker + turn++) % nodes);
        else if (!stays) break;
        else if (stays++ == 1 && worker == 0) fprintf(stderr, "readers: local\n");
        else if (access(mode, F_OK) == 0) end = now() + 1, mode = NULL;
    }
    tell(worker, node, memory, bytes, expected);
    return 0;
}

int main(int count, char **words) {
    if (count < 3) return fprintf(stderr, "usage: readers FILE SECONDS [local|wander|NAME]\n"), 2;
    find_nodes();
    if (nodes == 0) return fprintf(stderr, "readers: no memory nodes in /sys\n"), 3;
    arrived = mmap(NULL, NODES_MAX * sizeof *arrived, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (arrived == MAP_FAILED) return 4;
    int failed = 0, status = 0;
    for (int worker = 0; worker < nodes; worker++)
        if (fork() == 0) _exit(work(worker, words[1], atof(words[2]), count > 3 ? words[3] : NULL));
    for (int worker = 0; worker < nodes; worker++)
        if (wait(&status) < 0 || status != 0) failed = 1;
    return failed;
}
