/* place.c: where a replica's copies are, told by the kernel. On each node in turn a thread takes its copy, reads it, and asks move_pages() and
 * numa_maps about its pages; then a write, and all again.
 *
 * Prints "copy VERSION node N pages P on_node Q maps: LINE" per node; exit 0 when every page is on its node, 1 otherwise. */
#define _GNU_SOURCE
#include "numapilot_replica.h"

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WORDS = 512 * 1000, PAGE = 4096, PAGES = WORDS * 8 / PAGE };

/* Runs on the node from now on. False: it has no CPUs. */
static int go_to(int node) {
    char path[96];
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int cpu = 0; cpu < 64; cpu++) {
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpu%d", node, cpu);
        if (access(path, F_OK) == 0) CPU_SET(cpu, &set);
    }
    return CPU_COUNT(&set) > 0 && sched_setaffinity(0, sizeof set, &set) == 0;
}

static void print_numa_map(uintptr_t address) {
    char line[512], start[32];
    FILE *maps = fopen("/proc/self/numa_maps", "r");
    snprintf(start, sizeof start, "%lx ", (unsigned long)address);
    while (maps && fgets(line, sizeof line, maps)) {
        if (!strncmp(line, start, strlen(start))) printf("%s", line);
    }
    if (maps) fclose(maps);
}

/* Pages that are elsewhere, or hold something else than `value`. */
static int look(numapilot_replica *replica, int node, uint64_t value) {
    static void *pages[PAGES];
    static int status[PAGES];
    uint64_t version;
    int on_node = 0, is_wrong = 0;
    const uint64_t *words = numapilot_replica_enter(replica, &version);
    for (int i = 0; i < WORDS; i++) is_wrong |= words[i] != value;
    for (int i = 0; i < PAGES; i++) pages[i] = (char *)(uintptr_t)words + (size_t)i * PAGE;
    syscall(SYS_move_pages, 0, (unsigned long)PAGES, pages, NULL, status, 0);
    for (int i = 0; i < PAGES; i++) on_node += status[i] == node;
    printf("copy %llu node %d pages %d on_node %d maps: ", (unsigned long long)version, node, PAGES, on_node);
    print_numa_map((uintptr_t)words);
    numapilot_replica_leave(replica);
    return PAGES - on_node + is_wrong;
}

int main(void) {
    numapilot_replica *replica;
    uint64_t *content = malloc(WORDS * sizeof *content), *draft;
    int wrong = 0;
    for (int i = 0; i < WORDS; i++) content[i] = 7;
    if (numapilot_replica_create(WORDS * sizeof *content, NULL, &replica) != 0 || numapilot_replica_publish(replica, content) != 0) return 2;
    for (int node = 0; node < 64; node++) wrong += go_to(node) ? look(replica, node, 7) : 0;
    if (numapilot_replica_write_begin(replica, (void **)&draft) != 0) return 2;
    for (int i = 0; i < WORDS; i++) draft[i]++;
    if (numapilot_replica_write_commit(replica) != 0) return 2;
    for (int node = 0; node < 64; node++) wrong += go_to(node) ? look(replica, node, 8) : 0;
    if (numapilot_replica_collapse(replica) != 0) return 2;
    struct numapilot_replica_info info = {.type_size = sizeof info};
    numapilot_replica_info(replica, &info);
    printf("nodes %u copies after collapse %u wrong %d\n", info.nodes, info.copies, wrong);
    return wrong || info.copies != 1 || numapilot_replica_destroy(replica) != 0;
}
