/* marked.c: a program whose accesses are known to the last one, by marks around its loops.
 *
 * Each of four nodes gets a block of PAGES pages, bound to it: where time passes by the clock, the kernel's NUMA balancing may move what is not
 * bound. Then each node's thread, pinned on its second CPU, loads every word of block b b + 1 times and stores every word of its own block once, each
 * in a region of its own; all that as many times as the argument says (1). Prints each block's address and, as move_pages says without moving
 * anything, the node of each of its pages (-1 for all that are not alike).
 *
 * With a second argument it does not end before what samples it has caught up: it makes the file of that name with `.done` behind it, and waits for one with
 * `.drained`. */
#define _GNU_SOURCE
#include "mark.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NODES = 4, PAGES = 64, WORDS = PAGES * 512 };

static void run_on(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) exit(3);
}

static int node_of(volatile long *block) {
    int node = -1;
    for (int page = 0; page < PAGES; page++) {
        void *address = (void *)(block + 512 * page);
        int status = -1;
        if (syscall(SYS_move_pages, 0, 1ul, &address, NULL, &status, 0) != 0 || (page > 0 && status != node)) return -1;
        node = status;
    }
    return node;
}

/* Whether the samples had all been handed over within ten minutes of the guest's time, which passes quickly while it waits for the host. */
static int wait_until_drained(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s.done", name);
    FILE *done = fopen(path, "w");
    if (done == NULL || fclose(done) != 0) return 0;
    snprintf(path, sizeof path, "%s.drained", name);
    for (int i = 0; i < 600000; i++) {
        if (access(path, F_OK) == 0) return 1;
        usleep(1000);
    }
    return 0;
}

int main(int count, char **arguments) {
    int rounds = count > 1 ? atoi(arguments[1]) : 1;
    volatile long *block[NODES];
    for (int node = 0; node < NODES; node++) {
        run_on(2 * node);
        block[node] = mmap(NULL, WORDS * sizeof(long), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (block[node] == MAP_FAILED) return 3;
        unsigned long mask = 1ul << node;
        if (syscall(SYS_mbind, block[node], WORDS * sizeof(long), MPOL_BIND, &mask, 8 * sizeof mask, 0) != 0) return 3;
        for (int i = 0; i < WORDS; i++) block[node][i] = i;
        printf("%p %d\n", (void *)block[node], node_of(block[node]));
    }
    fflush(stdout);
    np_mark(NP_MARK_ONLY_ME, NULL);
    for (int turn = 0; turn < NODES * rounds; turn++) {
        int node = turn % NODES;
        run_on(2 * node + 1);
        np_mark(NP_MARK_BEGIN, NULL);
        for (int b = 0; b < NODES; b++)
            for (int pass = 0; pass <= b; pass++)
                for (int i = 0; i < WORDS; i++) (void)block[b][i];
        for (int i = 0; i < WORDS; i++) block[node][i] = 1;
        np_mark(NP_MARK_END, NULL);
    }
    return count > 2 && !wait_until_drained(arguments[2]) ? 4 : 0;
}
