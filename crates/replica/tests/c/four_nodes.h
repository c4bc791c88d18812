/* four_nodes.h: a machine of four nodes with two CPUs each, played to the library by a test program that is linked with four_nodes.c. What the system
 * would do to pages is noted instead, and told when asked for. */
#ifndef FOUR_NODES_H
#define FOUR_NODES_H

#include <stddef.h>

enum { TEST_NODES = 4, TEST_CPUS = 8 };

/* The calling thread runs on this CPU from now on. */
void test_run_on(int cpu);

/* The node has memory for so many more ranges; what is preferred there after that goes to node 0. -1: for any number. */
void test_limit_node(int node, int ranges);

/* Ranges that are preferred on the node now. */
int test_ranges_on(int node);

#endif
