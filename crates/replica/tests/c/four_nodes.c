/* four_nodes.c: the system calls of a machine with four nodes, in front of the real ones. */
#define _GNU_SOURCE
#include "four_nodes.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { RANGES = 4096 };

static struct {
    uintptr_t start, end;
    int node;
} ranges[RANGES];
static int limits[TEST_NODES] = {-1, -1, -1, -1};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread int cpu_here;

/* A thread may hold the lock when another one forks: the child needs it free. Registered before the library's own, so that it is taken last. */
static void take(void) { pthread_mutex_lock(&lock); }
static void release(void) { pthread_mutex_unlock(&lock); }
__attribute__((constructor)) static void hold_over_forks(void) { pthread_atfork(take, release, release); }

void test_run_on(int cpu) { cpu_here = cpu; }

void test_limit_node(int node, int count) {
    pthread_mutex_lock(&lock);
    limits[node] = count;
    pthread_mutex_unlock(&lock);
}

int test_ranges_on(int node) {
    int found = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < RANGES; i++) found += ranges[i].start != 0 && ranges[i].node == node;
    pthread_mutex_unlock(&lock);
    return found;
}

int sched_getcpu(void) { return cpu_here; }

int getcpu(unsigned *cpu, unsigned *node) {
    *cpu = (unsigned)cpu_here;
    *node = (unsigned)cpu_here / (TEST_CPUS / TEST_NODES);
    return 0;
}

long get_mempolicy(int *mode, unsigned long *mask, unsigned long bits, void *address, unsigned flags) {
    (void)mode, (void)address, (void)flags;
    memset(mask, 0, bits / 8);
    mask[0] = (1ul << TEST_NODES) - 1;
    return 0;
}

long mbind(void *start, unsigned long bytes, int mode, const unsigned long *mask, unsigned long mask_bits, unsigned flags) {
    (void)mode, (void)mask_bits, (void)flags;
    int node = __builtin_ctzl(mask[0]);
    pthread_mutex_lock(&lock);
    if (limits[node] == 0) node = 0;
    else if (limits[node] > 0) limits[node]--;
    int i = 0;
    while (i < RANGES && ranges[i].start) i++;
    if (i < RANGES) {
        ranges[i].start = (uintptr_t)start;
        ranges[i].end = (uintptr_t)start + bytes;
        ranges[i].node = node;
    }
    pthread_mutex_unlock(&lock);
    errno = ENOMEM;
    return i < RANGES ? 0 : -1;
}

/* The sanitizers unmap memory of their own by this function, in the middle of a report, which may come from code that holds the lock. Then nothing here may
 * wait for it, or call into them, as locks and checked accesses do: the lock is taken only for memory that is one of the ranges, which are not theirs. */
__attribute__((no_sanitize("thread"), no_sanitize("address"), no_sanitize("undefined"))) static bool is_range(uintptr_t start) {
    for (int i = 0; i < RANGES; i++) {
        if (__atomic_load_n(&ranges[i].start, __ATOMIC_RELAXED) == start) return true;
    }
    return false;
}

static void forget(uintptr_t start) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < RANGES; i++) {
        if (ranges[i].start == start) ranges[i].start = 0;
    }
    pthread_mutex_unlock(&lock);
}

__attribute__((no_sanitize("thread"), no_sanitize("address"), no_sanitize("undefined"))) int munmap(void *start, size_t bytes) {
    if (start && is_range((uintptr_t)start)) forget((uintptr_t)start);
    return (int)syscall(SYS_munmap, start, bytes);
}

long move_pages(int pid, unsigned long count, void **pages, const int *nodes, int *status, int flags) {
    (void)pid, (void)nodes, (void)flags;
    pthread_mutex_lock(&lock);
    for (unsigned long page = 0; page < count; page++) {
        status[page] = -ENOENT;
        for (int i = 0; i < RANGES; i++) {
            if (ranges[i].start && (uintptr_t)pages[page] >= ranges[i].start && (uintptr_t)pages[page] < ranges[i].end) status[page] = ranges[i].node;
        }
    }
    pthread_mutex_unlock(&lock);
    return 0;
}
