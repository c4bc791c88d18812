/* nodes.h: which nodes there are, which one a thread is on, and memory on a chosen node. */
#ifndef NPR_NODES_H
#define NPR_NODES_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NPR_HIDDEN __attribute__((visibility("hidden")))
#define NPR_NODES_MAX 1024
#define NPR_CPUS_MAX 8192

/* Nodes that have CPUs and memory that this process may use, ascending. `span`: the highest plus one. */
struct npr_nodes {
    uint32_t count, span;
    uint16_t id[NPR_NODES_MAX];
};

/* Found out once. Node 0 alone where the system does not say. */
NPR_HIDDEN const struct npr_nodes *npr_nodes(void);

/* Distance by the firmware, 10: the node itself; 255 where it is not known. */
NPR_HIDDEN uint32_t npr_distance(int from, int to);

/* Node of each CPU plus one; 0: not asked yet. */
NPR_HIDDEN extern uint16_t npr_node_of_cpu[NPR_CPUS_MAX];
NPR_HIDDEN uint32_t npr_ask_node(int cpu);

/* The calling thread's node. Through the C library, so that a library preloaded to simulate a machine answers first; the C library itself reads the CPU
 * from the thread's rseq area (glibc 2.35) or from the vDSO, without a system call. */
static inline uint32_t npr_node_here(void) {
    int cpu = sched_getcpu();
    uint16_t known = (uint32_t)cpu < NPR_CPUS_MAX ? __atomic_load_n(&npr_node_of_cpu[cpu], __ATOMIC_RELAXED) : 0;
    return __builtin_expect(known != 0, 1) ? known - 1u : npr_ask_node(cpu);
}

NPR_HIDDEN size_t npr_whole_pages(size_t bytes);

/* Prefers `node` for the pages of a range that are not there yet. False: refused, they go where the process's policy says. */
NPR_HIDDEN bool npr_prefer(void *start, size_t bytes, int node);

/* Pages of the range that are known to be on another node, at most one batch of them. */
NPR_HIDDEN size_t npr_misplaced(const void *start, size_t bytes, int node);

/* Pages of the range, up to a batch, that are known to be on the node. */
NPR_HIDDEN size_t npr_placed(const void *start, size_t bytes, int node);

/* Private memory for `bytes`, its pages made and zero, preferably on the node. NULL: none. */
NPR_HIDDEN void *npr_map_on(size_t bytes, int node);

#endif
