/* torture.c: many threads on one replica, wandering between nodes, ending inside sections, interrupted by signals, forking; the whole history of reads and
 * writes is kept with times and then checked for linearizability.
 *
 * Every word of the content is the number of writes so far, which is its version: a read is right if all words agree with each other and with the version,
 * and the history is linearizable if and only if (values being totally ordered) no operation gives less than one that had ended before it began, no
 * write gives the same, and no read gives what was not being written yet.
 * Usage: torture MILLISECONDS READERS WRITERS SEED [READS WRITES], for longer where a busy machine has not let as much happen by then; torture false 0|1|2|3: a
 * false history, which must be found out.
 * With FOUR_NODES the machine is four_nodes.c's, else the real one, by sched_setaffinity(). */
#define _GNU_SOURCE
#include "numapilot_replica.h"
#ifdef FOUR_NODES
#include "four_nodes.h"
#endif

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__ /* it does not support children of processes with threads */
enum { FORKS = 0 };
#else
enum { FORKS = 1 };
#endif
enum { CONTENT_WORDS = 1200, THREADS_MAX = 64, OPERATIONS_MAX = 1 << 20, CPUS = 8 };

struct operation {
    uint64_t begin_ns, end_ns, value;
    bool is_write;
};

struct worker {
    pthread_t thread;
    uint64_t random;
    struct operation *operations;
    size_t count;
    uint64_t newest; /* version that its threads saw last */
    bool is_writer;
};

static numapilot_replica *replica;
static struct worker workers[THREADS_MAX];
static int worker_count;
static int is_over;
static size_t reads_enough, writes_enough; /* a run in which less happened proves nothing */
static uint64_t handled, forks, ends_inside;

static void fail(const char *what, uint64_t a, uint64_t b) {
    fprintf(stderr, "torture: %s: %" PRIu64 ", %" PRIu64 "\n", what, a, b);
    abort();
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t draw(struct worker *worker) {
    worker->random = worker->random * 6364136223846793005u + 1442695040888963407u;
    return worker->random >> 33;
}

static void wander(struct worker *worker) {
    uint64_t cpu = draw(worker) % CPUS;
#ifdef FOUR_NODES
    test_run_on((int)cpu);
#else
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    /* CPUs that the machine lacks are refused: stays where it is. */
    sched_setaffinity(0, sizeof set, &set);
#endif
}

static void check_words(const uint64_t *words, uint64_t value, size_t step) {
    for (size_t i = 0; i < CONTENT_WORDS; i += step) {
        if (words[i] != value) fail("a section sees two versions", words[i], value);
    }
}

static void keep(struct worker *worker, uint64_t begin_ns, uint64_t value, bool is_write) {
    size_t at = worker->count;
    if (at == OPERATIONS_MAX) return;
    worker->operations[at] = (struct operation){begin_ns, now_ns(), value, is_write};
    /* Main looks at it meanwhile. A plain store for the processor: it adds no order to what is tested. */
    __atomic_store_n(&worker->count, at + 1, __ATOMIC_RELAXED);
}

/* ---- readers ---- */

static void read_once(struct worker *worker) {
    uint64_t version, begin = now_ns();
    const uint64_t *words = numapilot_replica_enter(replica, &version);
    if (words[0] != version) fail("content of another version", words[0], version);
    keep(worker, begin, version, false);
    if (version < worker->newest) fail("versions fall", worker->newest, version);
    worker->newest = version;
    uint64_t kind = draw(worker) % 16;
    check_words(words, version, kind == 0 ? 1 : 97);
    if (kind == 1) {
        uint64_t inner;
        const uint64_t *others = numapilot_replica_enter(replica, &inner);
        if (inner < version) fail("an inner section is older", version, inner);
        wander(worker);
        check_words(others, inner, 97);
        numapilot_replica_leave(replica);
        worker->newest = inner;
    }
    if (kind == 2) wander(worker);
    if (kind == 3) sched_yield();
    check_words(words, version, 97);
    if (kind == 4 && draw(worker) % 64 == 0) {
        __atomic_fetch_add(&ends_inside, 1, __ATOMIC_RELAXED);
        pthread_exit(NULL);
    }
    numapilot_replica_leave(replica);
    if (kind < 8) wander(worker);
}

static void on_signal(int number) {
    (void)number;
    uint64_t version;
    const uint64_t *words = numapilot_replica_enter(replica, &version);
    check_words(words, version, 97);
    numapilot_replica_leave(replica);
    __atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
}

static void *reader_main(void *argument) {
    struct worker *worker = argument;
    /* The first section of a thread is no matter for its signal handlers. */
    numapilot_replica_enter(replica, NULL);
    numapilot_replica_leave(replica);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) read_once(worker);
    return NULL;
}

/* ---- writers ---- */

static void write_once(struct worker *worker) {
    uint64_t *draft, begin = now_ns();
    int error = numapilot_replica_write_begin(replica, (void **)&draft);
    if (error) fail("write_begin", (uint64_t)-error, 0);
    check_words(draft, draft[0], 97);
    uint64_t value = draft[0] + 1, kind = draw(worker) % 16;
    for (size_t i = 0; i < CONTENT_WORDS; i++) draft[i] = value;
    if (kind == 0) {
        numapilot_replica_write_abort(replica);
        return;
    }
    if (numapilot_replica_write_begin(replica, (void **)&draft) != -EDEADLK) fail("a second write_begin", 0, 0);
    error = numapilot_replica_write_commit(replica);
    if (error) fail("write_commit", (uint64_t)-error, 0);
    keep(worker, begin, value, true);
    if (kind == 1 && (error = numapilot_replica_collapse(replica)) != 0) fail("collapse", (uint64_t)-error, 0);
    if (kind == 2 && (error = numapilot_replica_replicate(replica)) != 0) fail("replicate", (uint64_t)-error, 0);
    uint64_t seen;
    numapilot_replica_enter(replica, &seen);
    numapilot_replica_leave(replica);
    if (seen < value) fail("a writer does not see its own write", value, seen);
}

static void *writer_main(void *argument) {
    struct worker *worker = argument;
    while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
        write_once(worker);
        wander(worker);
        usleep((useconds_t)(draw(worker) % 300));
    }
    return NULL;
}

/* ---- fork, ends, signals: the main thread's part ---- */

/* In a child: read, write, leave. Whoever was writing when it was made is not here. */
static void child(void) {
    alarm(600); /* under valgrind, on a busy machine */
    uint64_t before, after;
    const uint64_t *words = numapilot_replica_enter(replica, &before);
    check_words(words, before, 1);
    numapilot_replica_leave(replica);
    uint64_t *draft;
    for (int i = 0; i < 3; i++) {
        if (numapilot_replica_write_begin(replica, (void **)&draft) != 0) _exit(2);
        for (size_t word = 0; word < CONTENT_WORDS; word++) draft[word]++;
        if (numapilot_replica_write_commit(replica) != 0) _exit(3);
    }
    words = numapilot_replica_enter(replica, &after);
    check_words(words, after, 1);
    numapilot_replica_leave(replica);
    _exit(after == before + 3 ? 0 : 4);
}

static void fork_once(void) {
    pid_t pid = fork();
    if (pid == 0) child();
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) fail("a child ends with status", (uint64_t)status, 0);
    forks++;
}

static void start(struct worker *worker) {
    if (pthread_create(&worker->thread, NULL, worker->is_writer ? writer_main : reader_main, worker) != 0) fail("pthread_create", 0, 0);
}

static bool is_enough(void) {
    size_t reads = 0, writes = 0;
    for (int i = 0; i < worker_count; i++) *(workers[i].is_writer ? &writes : &reads) += __atomic_load_n(&workers[i].count, __ATOMIC_RELAXED);
    return reads >= reads_enough && writes >= writes_enough;
}

static void disturb(uint64_t until_ns) {
    uint64_t latest_ns = until_ns + 600000000000u; /* as long as a busy machine may need under valgrind */
    for (int round = 0; now_ns() < until_ns || (!is_enough() && now_ns() < latest_ns); round++) {
        for (int i = 0; i < worker_count; i++) {
            struct worker *worker = &workers[i];
            if (!worker->is_writer && pthread_tryjoin_np(worker->thread, NULL) == 0) start(worker);
            else if (!worker->is_writer) pthread_kill(worker->thread, SIGUSR1);
        }
        if (FORKS && round % 16 == 0) fork_once();
        usleep(2000);
    }
}

/* ---- the history ---- */

static int by_begin(const void *a, const void *b) {
    const struct operation *x = a, *y = b;
    return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

static int by_end(const void *a, const void *b) {
    const struct operation *const *x = a, *const *y = b;
    return ((*x)->end_ns > (*y)->end_ns) - ((*x)->end_ns < (*y)->end_ns);
}

static size_t check_history(void) {
    size_t count = 0, ended = 0;
    for (int i = 0; i < worker_count; i++) count += workers[i].count;
    struct operation *all = malloc(count * sizeof *all);
    struct operation **ends = malloc(count * sizeof(void *));
    uint64_t *write_begin_ns = calloc(count + 2, sizeof *write_begin_ns), floor = 0;
    bool is_written_before = false;
    if (!all || !ends || !write_begin_ns) fail("memory", count, 0);
    count = 0;
    for (int i = 0; i < worker_count; i++) {
        memcpy(all + count, workers[i].operations, workers[i].count * sizeof *all);
        count += workers[i].count;
    }
    qsort(all, count, sizeof *all, by_begin);
    for (size_t i = 0; i < count; i++) {
        ends[i] = &all[i];
        if (!all[i].is_write) continue;
        if (all[i].value > count || write_begin_ns[all[i].value]) fail("a version is written twice or not in turn", all[i].value, count);
        write_begin_ns[all[i].value] = all[i].begin_ns;
    }
    qsort(ends, count, sizeof *ends, by_end);
    for (size_t i = 0; i < count; i++) {
        for (; ended < count && ends[ended]->end_ns < all[i].begin_ns; ended++) {
            if (ends[ended]->value >= floor) is_written_before = true;
            if (ends[ended]->value > floor) floor = ends[ended]->value;
        }
        if (all[i].value < floor) fail("an operation gives less than one that had ended before", all[i].value, floor);
        if (all[i].is_write && is_written_before && all[i].value == floor) fail("a write gives what was there already", all[i].value, floor);
        bool is_known = all[i].value == 0 || (all[i].value <= count && write_begin_ns[all[i].value]);
        if (!all[i].is_write && is_known && all[i].value > 0 && write_begin_ns[all[i].value] > all[i].end_ns) {
            fail("a read gives what was not being written yet", all[i].value, all[i].end_ns);
        }
    }
    free(all);
    free(ends);
    free(write_begin_ns);
    return count;
}

/* Two writes one after the other, 10 to 20 and 30 to 40 ns; then what cannot be. */
static void check_false_history(int which) {
    static struct operation operations[3] = {{10, 20, 1, true}, {30, 40, 2, true}, {0, 0, 0, false}};
    static const struct operation wrong[] = {
        {41, 50, 1, false}, /* an old value, after the second write */
        {21, 29, 0, false}, /* no value, after the first */
        {21, 29, 2, false}, /* a value before it is written */
        {41, 50, 2, true},  /* a write that is lost */
    };
    operations[2] = wrong[which];
    workers[0].operations = operations;
    workers[0].count = 3;
    worker_count = 1;
    check_history();
    printf("torture: the false history %d passes\n", which);
}

static void report(void) {
    uint64_t reads = 0, writes = 0;
    for (int i = 0; i < worker_count; i++) {
        for (size_t at = 0; at < workers[i].count; at++) {
            reads += !workers[i].operations[at].is_write;
            writes += workers[i].operations[at].is_write;
        }
    }
    size_t checked = check_history();
    struct numapilot_replica_info info = {.type_size = sizeof info};
    numapilot_replica_info(replica, &info);
    printf("torture ok nodes=%u reads=%" PRIu64 " writes=%" PRIu64 " operations_checked=%zu signals=%" PRIu64 " forks=%" PRIu64 " ends_inside=%" PRIu64 "\n",
           info.nodes, reads, writes, checked, handled, forks, ends_inside);
    if (info.version != writes) fail("version and writes", info.version, writes);
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "false") && argv[2][0] >= '0' && argv[2][0] <= '3') check_false_history(argv[2][0] - '0');
    if (argc != 5 && argc != 7) return 2;
    if (argc == 7) {
        reads_enough = strtoull(argv[5], NULL, 10);
        writes_enough = strtoull(argv[6], NULL, 10);
    }
    uint64_t milliseconds = strtoull(argv[1], NULL, 10), seed = strtoull(argv[4], NULL, 10);
    int readers = atoi(argv[2]), writers = atoi(argv[3]);
    worker_count = readers + writers;
    if (worker_count > THREADS_MAX) return 2;
    fprintf(stderr, "torture: seed %" PRIu64 "\n", seed);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_signal, .sa_flags = SA_RESTART}, NULL);
    int error = numapilot_replica_create(CONTENT_WORDS * sizeof(uint64_t), NULL, &replica);
    if (error) fail("create", (uint64_t)-error, 0);
    for (int i = 0; i < worker_count; i++) {
        workers[i].random = seed * 1000 + (uint64_t)i;
        workers[i].is_writer = i >= readers;
        workers[i].operations = calloc(OPERATIONS_MAX, sizeof(struct operation));
        if (!workers[i].operations) fail("memory", 0, 0);
        start(&workers[i]);
    }
    disturb(now_ns() + milliseconds * 1000000u);
    __atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < worker_count; i++) pthread_join(workers[i].thread, NULL);
    report();
    error = numapilot_replica_destroy(replica);
    if (error) fail("destroy", (uint64_t)-error, 0);
#ifdef FOUR_NODES
    for (int node = 0; node < TEST_NODES; node++) {
        if (test_ranges_on(node) != 0) fail("copies are left over", (uint64_t)node, (uint64_t)test_ranges_on(node));
    }
#endif
    for (int i = 0; i < worker_count; i++) free(workers[i].operations);
    return 0;
}
