/* Preloaded before the tracker into a program that is recorded on a simulated machine inside the lab: runs each
   thread, really, on the CPUs of the node on which the simulated machine has it, and hands its memory policies to the
   kernel, too. So the kernel places pages for the same threads as the simulated machine does, in one run.

   The environment names how many CPUs a node of the guest has (LAB_CPUS_PER_NODE); CPUs are numbered node by node. */
#define _GNU_SOURCE
#include "kernel_call.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THREADS_MAX = 1024 };

static struct {
    void *(*routine)(void *);
    void *argument;
} starts[THREADS_MAX];
static atomic_uint start_count;

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

/* The node is the simulated machine's answer (the tracker's getcpu), the affinity the kernel's. */
static void follow(void) {
    static int (*simulated)(unsigned *, unsigned *);
    unsigned cpu = 0, node = 0;
    int saved = errno;
    if (simulated == NULL) simulated = (int (*)(unsigned *, unsigned *))next("getcpu");
    const char *per_node = getenv("LAB_CPUS_PER_NODE");
    unsigned count = per_node != NULL ? (unsigned)atoi(per_node) : 1;
    if (simulated != NULL && simulated(&cpu, &node) == 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        for (unsigned i = 0; i < count; i++) CPU_SET(node * count + i, &set);
        kernel_call(SYS_sched_setaffinity, 0, sizeof set, (long)&set, 0, 0, 0);
    }
    errno = saved;
}

__attribute__((constructor)) static void begin(void) { follow(); }

/* A child gets a node of its own. */
pid_t fork(void) {
    pid_t child = ((pid_t (*)(void))next("fork"))();
    if (child == 0) follow();
    return child;
}

static void *started(void *start) {
    size_t index = (size_t)start;
    follow();
    return starts[index].routine(starts[index].argument);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *), void *argument) {
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
        (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))next("pthread_create");
    size_t index = atomic_fetch_add(&start_count, 1);
    if (index >= THREADS_MAX) return create(thread, attributes, routine, argument);
    starts[index].routine = routine;
    starts[index].argument = argument;
    return create(thread, attributes, started, (void *)index);
}

int sched_setaffinity(pid_t task, size_t size, const cpu_set_t *set) {
    int (*call)(pid_t, size_t, const cpu_set_t *) = (int (*)(pid_t, size_t, const cpu_set_t *))next("sched_setaffinity");
    int answer = call(task, size, set);
    follow();
    return answer;
}

int pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t *set) {
    int (*call)(pthread_t, size_t, const cpu_set_t *) = (int (*)(pthread_t, size_t, const cpu_set_t *))next("pthread_setaffinity_np");
    int answer = call(thread, size, set);
    follow();
    return answer;
}

long mbind(void *start, unsigned long bytes, int mode, const unsigned long *nodes, unsigned long max, unsigned flags) {
    long (*call)(void *, unsigned long, int, const unsigned long *, unsigned long, unsigned) =
        (long (*)(void *, unsigned long, int, const unsigned long *, unsigned long, unsigned))next("mbind");
    long answer = call != NULL ? call(start, bytes, mode, nodes, max, flags) : -1;
    int saved = errno;
    if (answer == 0) kernel_call(SYS_mbind, (long)start, (long)bytes, mode, (long)nodes, (long)max, flags);
    errno = saved;
    return answer;
}

long set_mempolicy(int mode, const unsigned long *nodes, unsigned long max) {
    long (*call)(int, const unsigned long *, unsigned long) = (long (*)(int, const unsigned long *, unsigned long))next("set_mempolicy");
    long answer = call != NULL ? call(mode, nodes, max) : -1;
    int saved = errno;
    if (answer == 0) kernel_call(SYS_set_mempolicy, mode, (long)nodes, (long)max, 0, 0, 0);
    errno = saved;
    return answer;
}
