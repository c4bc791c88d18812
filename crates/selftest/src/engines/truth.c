// A program whose accesses are known, for engine `instrument`, which needs a compiled one. The other engines record numapilot itself doing the same
// (truth.rs). Arguments: OWNER_CPU:READER_CPU:BYTES:PASSES. It prints what it did as JSON (the fields of `Truth`).
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

struct role {
    int cpu;
    long tid;
};
static size_t words;
static unsigned passes;
static long *block;
static volatile long sum;

static void take(struct role *role) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(role->cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set)) {
        perror("sched_setaffinity");
        exit(1);
    }
    role->tid = syscall(SYS_gettid);
}

static void *owner(void *role) {
    take(role);
    block = malloc(words * sizeof *block);
    if (!block) exit(1);
    for (size_t at = 0; at < words; at++) block[at] = 1;
    return NULL;
}

static void *reader(void *role) {
    take(role);
    for (unsigned pass = 0; pass < passes; pass++) {
        long seen = 0;
        for (size_t at = 0; at < words; at += 8) seen += block[at];
        sum = seen;
    }
    return NULL;
}

int main(int count, char **arguments) {
    struct role roles[2];
    size_t bytes;
    if (count != 2 || sscanf(arguments[1], "%d:%d:%zu:%u", &roles[0].cpu, &roles[1].cpu, &bytes, &passes) != 4) return 2;
    words = bytes / sizeof *block;
    void *(*work[2])(void *) = {owner, reader};
    for (int turn = 0; turn < 2; turn++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work[turn], &roles[turn]) || pthread_join(thread, NULL)) return 1;
    }
    printf("{\"address\":%llu,\"bytes\":%zu,\"owner_tid\":%ld,\"reader_tid\":%ld,\"homes\":null}\n", (unsigned long long)block, bytes,
           roles[0].tid, roles[1].tid);
    return 0;
}
