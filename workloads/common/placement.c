/* NUMA calls through their provider: a preloaded simulator, libnuma, or the kernel. */
#include "placement.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NODES_MAX = 1024, CPUS_MAX = 4096, MODE_INTERLEAVE = 3 };

static struct {
    int node_count;
    int (*node_of_cpu)(int cpu);
    long (*mbind)(void *start, unsigned long bytes, int mode, const unsigned long *nodes, unsigned long max, unsigned flags);
} numa;
static pthread_once_t numa_once = PTHREAD_ONCE_INIT;

/* Node of each CPU plus one; 0: not asked yet. libnuma's own look-up is slow and races with itself. */
static int node_cache[CPUS_MAX];
static pthread_mutex_t node_cache_lock = PTHREAD_MUTEX_INITIALIZER;

/* POSIX lets dlsym's result be a function; ISO C has no cast for it. */
static void look_up(const char *name, void *pointer_to_function) {
    void *found = dlsym(RTLD_DEFAULT, name);
    memcpy(pointer_to_function, &found, sizeof found);
}

/* Highest number in a list such as "0-3,8", or 0. */
static int highest_online_node(void) {
    char list[256] = "";
    FILE *file = fopen("/sys/devices/system/node/online", "r");
    if (!file) return 0;
    if (!fgets(list, sizeof list, file)) list[0] = 0;
    fclose(file);
    size_t last = strlen(list);
    while (last > 0 && !strchr("-,", list[last - 1])) last--;
    return atoi(list + last);
}

static void discover(void) {
    /* Left open on purpose: its functions are in use until the process ends. */
    if (!dlsym(RTLD_DEFAULT, "numa_max_node")) dlopen("libnuma.so.1", RTLD_NOW | RTLD_GLOBAL);
    int (*available)(void) = NULL, (*max_node)(void) = NULL;
    look_up("numa_available", &available);
    look_up("numa_max_node", &max_node);
    look_up("mbind", &numa.mbind);
    if (max_node && (!available || available() >= 0)) {
        look_up("numa_node_of_cpu", &numa.node_of_cpu);
        numa.node_count = max_node() + 1;
    } else {
        numa.node_count = highest_online_node() + 1;
    }
    if (numa.node_count < 1) numa.node_count = 1;
    if (numa.node_count > NODES_MAX) numa.node_count = NODES_MAX;
}

int placement_node_count(void) {
    pthread_once(&numa_once, discover);
    return numa.node_count;
}

static int look_up_node(int cpu) {
    int node = numa.node_of_cpu ? numa.node_of_cpu(cpu) : -1;
    if (node < 0) {
        unsigned kernel_cpu = 0, kernel_node = 0;
        if (!syscall(SYS_getcpu, &kernel_cpu, &kernel_node, NULL) && (int)kernel_cpu == cpu) node = (int)kernel_node;
    }
    return node >= 0 && node < numa.node_count ? node : 0;
}

int placement_current_node(void) {
    pthread_once(&numa_once, discover);
    if (numa.node_count == 1) return 0;
    int cpu = sched_getcpu();
    if (cpu < 0 || cpu >= CPUS_MAX) return 0;
    int cached = __atomic_load_n(&node_cache[cpu], __ATOMIC_RELAXED);
    if (!cached) {
        pthread_mutex_lock(&node_cache_lock);
        cached = look_up_node(cpu) + 1;
        pthread_mutex_unlock(&node_cache_lock);
        __atomic_store_n(&node_cache[cpu], cached, __ATOMIC_RELAXED);
    }
    return cached - 1;
}

bool placement_pin(int node) {
    pthread_once(&numa_once, discover);
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    long count = sysconf(_SC_NPROCESSORS_CONF);
    for (int cpu = 0; numa.node_of_cpu && cpu < count && cpu < CPU_SETSIZE; cpu++) {
        if (numa.node_of_cpu(cpu) == node) CPU_SET(cpu, &cpus);
    }
    return CPU_COUNT(&cpus) > 0 && !sched_setaffinity(0, sizeof cpus, &cpus);
}

bool placement_interleave(void *start, size_t bytes) {
    pthread_once(&numa_once, discover);
    uintptr_t first = ((uintptr_t)start + PAGE_BYTES - 1) & ~(uintptr_t)(PAGE_BYTES - 1);
    uintptr_t end = ((uintptr_t)start + bytes) & ~(uintptr_t)(PAGE_BYTES - 1);
    if (numa.node_count < 2 || end <= first) return false;
    enum { BITS = 8 * sizeof(unsigned long) };
    unsigned long nodes[NODES_MAX / BITS] = {0};
    for (int node = 0; node < numa.node_count; node++) nodes[node / BITS] |= 1ul << (node % BITS);
    /* The kernel reads one bit less than the given number. */
    unsigned long max = (unsigned long)numa.node_count + 1;
    if (numa.mbind) return numa.mbind((void *)first, end - first, MODE_INTERLEAVE, nodes, max, 0) == 0;
    return syscall(SYS_mbind, first, end - first, MODE_INTERLEAVE, nodes, max, 0) == 0;
}
