/* handover.c: pairs of threads hand blocks over by a lock-free mailbox: each puts a block of its own in and gives back the one that it finds there.
 * `handover THREADS ROUNDS`. Each block holds its maker and a serial number; every thread notes what it gave back, in order.
 *
 * Neighbours are pinned to different CPUs. The mailbox is one exchange (release and acquire), with no branch on what it
 * gives: nothing but the processor's own fences keeps the stamp of the free behind it. */
#define _GNU_SOURCE
#include "truth.h"

#include <sched.h>
#include <sys/syscall.h>

#define MAX_THREADS 64
#define MAX_ROUNDS 20000
#define BLOCK_BYTES 72

struct block { uint32_t maker, number; };
struct thread {
    unsigned index, rounds, tid, freed;
    struct block gone[MAX_ROUNDS];
};

static struct { _Alignas(256) void *block; } mailboxes[MAX_THREADS];
static struct thread threads[MAX_THREADS];
static pthread_barrier_t start;
static unsigned cpus[CPU_SETSIZE], cpu_count;

static void pin(unsigned index) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpus[index % cpu_count], &set);
    CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
}

static void *work(void *argument) {
    struct thread *own = argument;
    void **mailbox = &mailboxes[own->index / 2].block;
    own->tid = (unsigned)syscall(SYS_gettid);
    pin(own->index);
    pthread_barrier_wait(&start);
    for (unsigned i = 0; i < own->rounds; i++) {
        struct block *block = malloc(BLOCK_BYTES);
        *block = (struct block){own->index, i};
        struct block *found = __atomic_exchange_n(mailbox, block, __ATOMIC_ACQ_REL);
        if (found == NULL) continue;
        own->gone[own->freed++] = *found;
        free(found);
    }
    return NULL;
}

static void find_cpus(void) {
    cpu_set_t set;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set)) cpus[cpu_count++] = cpu;
}

static void tell(const struct thread *thread) {
    truth("thread %u %u", thread->index, thread->tid);
    for (unsigned i = 0; i < thread->freed; i++) truth("gone %u %u %u", thread->index, thread->gone[i].maker, thread->gone[i].number);
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    unsigned number = (unsigned)atoi(arguments[1]), rounds = (unsigned)atoi(arguments[2]);
    CHECK(number <= MAX_THREADS && rounds <= MAX_ROUNDS);
    pthread_t ids[MAX_THREADS];
    find_cpus();
    pthread_barrier_init(&start, NULL, number);
    for (unsigned i = 0; i < number; i++) {
        threads[i].index = i;
        threads[i].rounds = rounds;
        CHECK(pthread_create(&ids[i], NULL, work, &threads[i]) == 0);
    }
    for (unsigned i = 0; i < number; i++) pthread_join(ids[i], NULL);
    for (unsigned i = 0; i < number; i++) tell(&threads[i]);
    truth_write();
    return 0;
}
