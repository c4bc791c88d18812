/* rules.c: what the header says, rule by rule, on the machine of four_nodes.c. */
#define _GNU_SOURCE
#include "four_nodes.h"
#include "numapilot_replica.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 3000 };
#define MUST(condition) do { if (!(condition)) { fprintf(stderr, "rules: line %d: %s\n", __LINE__, #condition); exit(1); } } while (0)

static uint64_t content[WORDS];

static const uint64_t *fill(uint64_t value) {
    for (int i = 0; i < WORDS; i++) content[i] = value;
    return content;
}

static struct numapilot_replica_info info_of(numapilot_replica *replica) {
    struct numapilot_replica_info info = {.type_size = sizeof info};
    MUST(numapilot_replica_info(replica, &info) == 0);
    return info;
}

static struct numapilot_replica_copy copy_of(numapilot_replica *replica, int node) {
    struct numapilot_replica_copy copy = {.type_size = sizeof copy};
    MUST(numapilot_replica_copy_of(replica, node, &copy) == 0);
    return copy;
}

static numapilot_replica *made(uint32_t flags, uint32_t pending_max) {
    struct numapilot_replica_options options = {.type_size = sizeof options, .flags = flags, .pending_max = pending_max};
    numapilot_replica *replica;
    MUST(numapilot_replica_create(sizeof content, &options, &replica) == 0);
    return replica;
}

/* Each node's threads get their own copy, which stays theirs while they wander. */
static void each_node_reads_its_own(void) {
    numapilot_replica *replica = made(0, 0);
    uint64_t version = 7;
    MUST(*(const uint64_t *)numapilot_replica_enter(replica, &version) == 0 && version == 0);
    numapilot_replica_leave(replica);
    MUST(numapilot_replica_publish(replica, fill(5)) == 0);
    const void *seen[TEST_NODES];
    for (int node = 0; node < TEST_NODES; node++) {
        test_run_on(2 * node + 1);
        const uint64_t *words = numapilot_replica_enter(replica, &version);
        MUST(version == 1 && words[0] == 5 && words[WORDS - 1] == 5);
        MUST(words == copy_of(replica, node).address && copy_of(replica, node).home_node == node);
        seen[node] = words;
        for (int other = 0; other < node; other++) MUST(seen[other] != seen[node]);
        test_run_on(0);
        MUST(words[1] == 5);
        numapilot_replica_leave(replica);
        MUST(test_ranges_on(node) >= 1);
    }
    MUST(info_of(replica).copies == 4 && info_of(replica).nodes == 4 && info_of(replica).refused == 0);
    MUST(numapilot_replica_copy_of(replica, 4, &(struct numapilot_replica_copy){.type_size = sizeof(struct numapilot_replica_copy)}) == -ENODEV);
    MUST(numapilot_replica_destroy(replica) == 0);
}

static void collapse_and_back(void) {
    numapilot_replica *replica = made(NUMAPILOT_REPLICA_COLLAPSED, 0);
    MUST(numapilot_replica_publish(replica, fill(1)) == 0);
    MUST(info_of(replica).copies == 1 && info_of(replica).is_collapsed == 1);
    MUST(numapilot_replica_replicate(replica) == 0);
    MUST(info_of(replica).copies == 4 && info_of(replica).version == 1 && info_of(replica).is_collapsed == 0);
    MUST(numapilot_replica_collapse(replica) == 0);
    MUST(info_of(replica).copies == 1 && info_of(replica).version == 1 && info_of(replica).pending_versions == 0);
    int ranges = 0;
    for (int node = 0; node < TEST_NODES; node++) ranges += test_ranges_on(node);
    MUST(ranges <= 1);
    test_run_on(6);
    MUST(*(const uint64_t *)numapilot_replica_enter(replica, NULL) == 1);
    numapilot_replica_leave(replica);
    MUST(numapilot_replica_destroy(replica) == 0);
}

/* A node without memory shares another's copy, and gets its own when there is room again. */
static void a_full_node(void) {
    test_limit_node(2, 0);
    numapilot_replica *replica = made(0, 0);
    MUST(numapilot_replica_publish(replica, fill(9)) == 0);
    MUST(info_of(replica).copies == 3 && info_of(replica).refused == 1);
    MUST(copy_of(replica, 2).refusal == -ENOMEM && copy_of(replica, 2).home_node != 2 && copy_of(replica, 3).refusal == 0);
    test_run_on(5);
    MUST(*(const uint64_t *)numapilot_replica_enter(replica, NULL) == 9);
    numapilot_replica_leave(replica);
    test_limit_node(2, -1);
    MUST(numapilot_replica_replicate(replica) == 0);
    MUST(info_of(replica).copies == 4 && info_of(replica).refused == 0 && copy_of(replica, 2).home_node == 2);
    MUST(numapilot_replica_destroy(replica) == 0);
}

/* No memory at all: an error, and the old version. */
static void no_memory(void) {
    numapilot_replica *replica = made(0, 0);
    MUST(numapilot_replica_publish(replica, fill(3)) == 0);
    struct rlimit before, none;
    getrlimit(RLIMIT_AS, &before);
    none = before;
    none.rlim_cur = 1;
    setrlimit(RLIMIT_AS, &none);
    int error = numapilot_replica_publish(replica, fill(4));
    void *draft;
    int begin_error = numapilot_replica_write_begin(replica, &draft);
    setrlimit(RLIMIT_AS, &before);
    MUST(error == -ENOMEM && begin_error == -ENOMEM);
    uint64_t version;
    MUST(*(const uint64_t *)numapilot_replica_enter(replica, &version) == 3 && version == 1);
    numapilot_replica_leave(replica);
    MUST(numapilot_replica_publish(replica, fill(4)) == 0 && info_of(replica).version == 2);
    MUST(numapilot_replica_destroy(replica) == 0);
}

static void waits_and_deadlocks(void) {
    numapilot_replica *replica = made(0, 2);
    const uint64_t *words = numapilot_replica_enter(replica, NULL);
    MUST(numapilot_replica_publish(replica, fill(1)) == 0);
    MUST(numapilot_replica_publish(replica, fill(2)) == 0);
    MUST(info_of(replica).pending_versions == 2 && info_of(replica).pending_bytes >= sizeof content);
    MUST(numapilot_replica_publish(replica, fill(3)) == -EDEADLK);
    MUST(words[0] == 0 && words[WORDS - 1] == 0 && info_of(replica).version == 2);
    void *draft;
    MUST(numapilot_replica_write_begin(replica, &draft) == 0 && numapilot_replica_write_commit(replica) == -EDEADLK);
    MUST(numapilot_replica_destroy(replica) == -EDEADLK);
    numapilot_replica_leave(replica);
    MUST(numapilot_replica_write_commit(replica) == 0);
    MUST(numapilot_replica_write_commit(replica) == -EPERM && numapilot_replica_write_abort(replica) == -EPERM);
    MUST(info_of(replica).pending_versions == 0 && info_of(replica).version == 3);
    MUST(numapilot_replica_destroy(replica) == 0);
}

static int turn_is_taken;

static void *write_and_wait(void *replica) {
    void *draft;
    MUST(numapilot_replica_write_begin(replica, &draft) == 0);
    __atomic_store_n(&turn_is_taken, 1, __ATOMIC_RELEASE);
    /* Waits for the main thread's section. */
    MUST(numapilot_replica_write_commit(replica) == 0);
    return NULL;
}

/* A writer waits for a reader who wants to write: the reader is told. */
static void two_that_would_wait_for_each_other(void) {
    numapilot_replica *replica = made(0, 1);
    MUST(numapilot_replica_publish(replica, fill(1)) == 0);
    numapilot_replica_enter(replica, NULL);
    MUST(numapilot_replica_publish(replica, fill(2)) == 0);
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, write_and_wait, replica) == 0);
    while (!__atomic_load_n(&turn_is_taken, __ATOMIC_ACQUIRE)) usleep(100);
    alarm(60);
    MUST(numapilot_replica_publish(replica, fill(3)) == -EDEADLK);
    numapilot_replica_leave(replica);
    MUST(pthread_join(thread, NULL) == 0);
    MUST(numapilot_replica_publish(replica, fill(3)) == 0 && info_of(replica).version == 4);
    alarm(0);
    MUST(numapilot_replica_destroy(replica) == 0);
}

static void *end_while_writing(void *replica) {
    void *draft;
    MUST(numapilot_replica_write_begin(replica, &draft) == 0);
    numapilot_replica_enter(replica, NULL);
    return NULL;
}

/* A thread that ends has neither the turn nor a section. */
static void a_writer_that_ends(void) {
    numapilot_replica *replica = made(0, 0);
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, end_while_writing, replica) == 0 && pthread_join(thread, NULL) == 0);
    alarm(60);
    MUST(numapilot_replica_publish(replica, fill(1)) == 0);
    alarm(0);
    MUST(info_of(replica).version == 1 && info_of(replica).pending_versions == 0);
    MUST(numapilot_replica_destroy(replica) == 0);
}

static _Atomic int allocated, holding;
static _Atomic bool may_end;
static pthread_key_t late;
static numapilot_replica *read_late;

/* The records of readers are allocated with it. */
int posix_memalign(void **made, size_t alignment, size_t bytes) {
    allocated++;
    *made = aligned_alloc(alignment, bytes);
    return *made ? 0 : ENOMEM;
}

/* Has a record of its own until it may end. */
static void *hold(void *nothing) {
    numapilot_replica_enter(read_late, NULL);
    numapilot_replica_leave(read_late);
    holding++;
    while (!may_end) usleep(100);
    return nothing;
}

/* Runs when the thread has handed its record back, and another one takes that. */
static void at_end(void *holder) {
    int before = holding;
    MUST(pthread_create(holder, NULL, hold, NULL) == 0);
    while (holding == before) usleep(100);
    int made = allocated;
    const uint64_t *words = numapilot_replica_enter(read_late, NULL);
    MUST(words[0] == 1 && words[WORDS - 1] == 1);
    numapilot_replica_leave(read_late);
    MUST(allocated == made);
}

static void *ending(void *holder) {
    numapilot_replica_enter(read_late, NULL);
    numapilot_replica_leave(read_late);
    pthread_setspecific(late, holder);
    return NULL;
}

/* A signal handler that came at its thread's end allocated memory, perhaps in the middle of the allocator: the thread sanitizer said so. */
static void a_thread_at_its_end_allocates_nothing(void) {
    enum { HOLDERS = 16 };
    pthread_t holders[HOLDERS + 1], thread;
    read_late = made(0, 0);
    MUST(numapilot_replica_publish(read_late, fill(1)) == 0);
    /* Later than the library's, and so its destructor. */
    MUST(pthread_key_create(&late, at_end) == 0);
    for (int i = 0; i < HOLDERS; i++) MUST(pthread_create(&holders[i], NULL, hold, NULL) == 0);
    while (holding < HOLDERS) usleep(100);
    MUST(pthread_create(&thread, NULL, ending, &holders[HOLDERS]) == 0);
    MUST(pthread_join(thread, NULL) == 0 && holding == HOLDERS + 1 && allocated > 0);
    may_end = true;
    for (int i = 0; i <= HOLDERS; i++) MUST(pthread_join(holders[i], NULL) == 0);
    MUST(pthread_key_delete(late) == 0);
    MUST(numapilot_replica_destroy(read_late) == 0);
}

static void stray_writes(void) {
    for (uint32_t flags = 0; flags <= NUMAPILOT_REPLICA_UNPROTECTED; flags++) {
        numapilot_replica *replica = made(flags, 0);
        MUST(numapilot_replica_publish(replica, fill(1)) == 0);
        pid_t pid = fork();
        if (pid == 0) {
            signal(SIGSEGV, SIG_DFL);
            *(volatile uint64_t *)(uintptr_t)numapilot_replica_enter(replica, NULL) = 2;
            _exit(0);
        }
        int status;
        MUST(waitpid(pid, &status, 0) == pid);
        if (flags == 0) MUST(!WIFEXITED(status) || WEXITSTATUS(status) != 0);
        else MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        MUST(numapilot_replica_destroy(replica) == 0);
    }
}

static void bad_arguments(void) {
    numapilot_replica *replica;
    struct numapilot_replica_options options = {.type_size = sizeof options, .flags = 0x80};
    MUST(numapilot_replica_create(0, NULL, &replica) == -EINVAL);
    MUST(numapilot_replica_create(SIZE_MAX, NULL, &replica) == -EINVAL);
    MUST(numapilot_replica_create(8, &options, &replica) == -EINVAL);
    options = (struct numapilot_replica_options){.type_size = 4};
    MUST(numapilot_replica_create(8, &options, &replica) == -EINVAL);
    MUST(numapilot_replica_create((size_t)1 << 60, NULL, &replica) == -ENOMEM);
}

int main(void) {
    each_node_reads_its_own();
    collapse_and_back();
    a_full_node();
    no_memory();
    waits_and_deadlocks();
    two_that_would_wait_for_each_other();
    a_writer_that_ends();
    a_thread_at_its_end_allocates_nothing();
    stray_writes();
    bad_arguments();
    for (int node = 0; node < TEST_NODES; node++) MUST(test_ranges_on(node) == 0);
    printf("rules ok\n");
    return 0;
}
