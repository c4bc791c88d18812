/* Which node a thread is on, and where pages go: the few NUMA calls that the aware variants make.
 *
 * Nothing here is needed to run: libnuma is opened at run time if it is installed, and symbols are looked up in the global scope, so
 * that a library preloaded before (a simulated machine) answers first. On a machine with one node every call says so. */
#ifndef WORKLOADS_PLACEMENT_H
#define WORKLOADS_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PAGE_BYTES ((size_t)4096)

/* `bytes` rounded up to pages, as aligned_alloc() wants them. */
static inline size_t whole_pages(size_t bytes) {
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

/* Nodes of the machine; 1 where nothing is known. Constant during the run. */
int placement_node_count(void);

/* Node on which the calling thread runs now: 0 <= node < placement_node_count(). */
int placement_current_node(void);

/* Keeps the calling thread, and those that it starts from now on, on the CPUs of a node. False: it is not known which they are, or the system refused. */
bool placement_pin(int node);

/* Asks that the whole pages of [start, start + bytes), not touched yet, be dealt out to all nodes in turn.
 * False: the machine has one node or the system refused; the caller then stripes by first touch. */
bool placement_interleave(void *start, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
