/* Asks for libnuma by weak symbols, as programs do that can live without it. */
#include <stddef.h>

extern int numa_available(void) __attribute__((weak));
extern int numa_max_node(void) __attribute__((weak));
extern int numa_distance(int from, int to) __attribute__((weak));
extern int numa_run_on_node(int node) __attribute__((weak));
extern void *numa_alloc_onnode(size_t bytes, int node) __attribute__((weak));
extern void numa_setlocal_memory(void *start, size_t bytes) __attribute__((weak));
extern void numa_free(void *start, size_t bytes) __attribute__((weak));

int main(void) {
    static char page[4096];
    if (numa_available != NULL && numa_available() >= 0) return 1;
    /* Careless ones go on without asking whether it is available. */
    if (numa_max_node != NULL && numa_max_node() != 0) return 2;
    if (numa_distance != NULL && numa_distance(0, 0) != 0) return 3;
    if (numa_run_on_node != NULL && numa_run_on_node(0) == 0) return 4;
    if (numa_alloc_onnode != NULL && numa_alloc_onnode(4096, 0) != NULL) return 5;
    if (numa_setlocal_memory != NULL) numa_setlocal_memory(page, sizeof page);
    if (numa_free != NULL) numa_free(NULL, 0);
    return 0;
}
