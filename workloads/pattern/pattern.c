/*
 * A known pattern: blocks of memory, each first touched by a thread on one node and then read by threads pinned on others, again and again.
 * It prints what it did as JSON: addresses, threads, CPUs, exact counts of accesses per page, and where the kernel says each block's pages are
 * (move_pages with no target nodes, which changes nothing). Tools that claim to see placement are held against it.
 *
 * Alone in its file, so that a test can compile it: cc -O2 -g -pthread -o pattern pattern.c
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MAX_NODES = 64, MAX_BLOCKS = 64, MAX_THREADS = 256, LINE = 64, BATCH = 1024, MAX_CPUS = 1024 };

typedef struct {
    char name[32];
    size_t bytes;
    int touch;              /* node of the thread that touches it first; -1: each reader its own part */
    int readers[MAX_NODES]; /* nodes of the threads that read it */
    int reader_count;
    bool split; /* each reader reads a part of its own, else all read all */
    bool write; /* readers write too: each access adds to a word */
    bool huge;
    int move; /* after the first touch, all pages are moved to this node; -1: they stay */
    char *at;
    int touch_thread;
} block;

typedef struct {
    int block;
    size_t first, last; /* bytes, from and to */
} part;

typedef struct {
    pthread_t handle;
    int index, node, cpu;
    pid_t tid;
    part parts[MAX_BLOCKS];
    int part_count;
    uint64_t passes;
    uint64_t sum;
} worker;

static struct {
    block blocks[MAX_BLOCKS];
    int block_count;
    worker workers[MAX_THREADS];
    int worker_count;
    int nodes, node_cpus[MAX_NODES], cpu_of[MAX_NODES][MAX_CPUS];
    int threads_per_node;
    bool fold, pin;
    double seconds, every;
    uint64_t passes;
    size_t page;
    pthread_barrier_t barrier;
    volatile bool stop;
} the;

__attribute__((noreturn, format(printf, 2, 3))) static void fail(int code, const char *format, ...) {
    va_list list;
    va_start(list, format);
    fputs("pattern: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    exit(code);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The CPUs of each node, of those that we may use. */
static void read_nodes(void) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) fail(3, "sched_getaffinity: %s", strerror(errno));
    for (int node = 0; node < MAX_NODES; node++) {
        char path[96], text[4096];
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        the.nodes = node + 1;
        if (fgets(text, sizeof text, file)) {
            for (char *at = text; *at >= '0' && *at <= '9';) {
                long first = strtol(at, &at, 10), last = first;
                if (*at == '-') last = strtol(at + 1, &at, 10);
                for (long cpu = first; cpu <= last && cpu < MAX_CPUS; cpu++)
                    if (CPU_ISSET(cpu, &allowed)) the.cpu_of[node][the.node_cpus[node]++] = (int)cpu;
                if (*at == ',') at++;
            }
        }
        fclose(file);
    }
    if (the.nodes == 0) { /* a kernel without NUMA */
        the.nodes = 1;
        for (int cpu = 0; cpu < MAX_CPUS; cpu++)
            if (CPU_ISSET(cpu, &allowed)) the.cpu_of[0][the.node_cpus[0]++] = cpu;
    }
}

static int node_named(long node, const char *where) {
    if (the.fold && node >= 0) node %= the.nodes;
    if (node < 0 || node >= the.nodes || the.node_cpus[node] == 0)
        fail(2, "%s: node %ld has no CPU for us (this machine has nodes 0 to %d); --fold counts nodes modulo those there are", where, node, the.nodes - 1);
    return (int)node;
}

/* NAME,mib=N,touch=NODE|each,read=NODE+NODE..,move=NODE,share=all|split,write,huge */
static void read_block(char *text) {
    if (the.block_count == MAX_BLOCKS) fail(2, "more than %d blocks", MAX_BLOCKS);
    block *b = &the.blocks[the.block_count++];
    size_t mib = 16;
    b->split = true;
    b->move = -1;
    char *rest, *word = strtok_r(text, ",", &rest);
    snprintf(b->name, sizeof b->name, "%s", word ? word : "");
    while ((word = strtok_r(NULL, ",", &rest))) {
        if (!strncmp(word, "mib=", 4)) mib = strtoul(word + 4, NULL, 10);
        else if (!strcmp(word, "touch=each")) b->touch = -1;
        else if (!strncmp(word, "touch=", 6)) b->touch = node_named(strtol(word + 6, NULL, 10), "touch");
        else if (!strncmp(word, "read=", 5)) {
            for (char *at = word + 5; *at && b->reader_count < MAX_NODES;) {
                char *end;
                long node = strtol(at, &end, 10);
                if (end == at) fail(2, "block %s: read=%s is no list of nodes such as 1+2", b->name, word + 5);
                b->readers[b->reader_count++] = node_named(node, "read");
                at = *end == '+' ? end + 1 : end;
            }
        } else if (!strcmp(word, "share=all")) b->split = false;
        else if (!strcmp(word, "share=split")) b->split = true;
        else if (!strncmp(word, "move=", 5)) b->move = node_named(strtol(word + 5, NULL, 10), "move");
        else if (!strcmp(word, "write")) b->write = true;
        else if (!strcmp(word, "huge")) b->huge = true;
        else fail(2, "block %s: what is %s? Known: mib=, touch=, read=, move=, share=all, share=split, write, huge", b->name, word);
    }
    if (mib == 0 || mib > (1 << 20)) fail(2, "block %s: mib= wants 1 to 1048576", b->name);
    if (b->reader_count == 0) fail(2, "block %s: nobody reads it; give read=NODE+NODE", b->name);
    b->bytes = mib << 20;
}

static worker *worker_on(int node, int which) {
    for (int i = 0; i < the.worker_count; i++)
        if (the.workers[i].node == node && which-- == 0) return &the.workers[i];
    return NULL;
}

static worker *add_worker(int node, int which) {
    worker *w = worker_on(node, which);
    if (w) return w;
    if (the.worker_count == MAX_THREADS) fail(2, "more than %d threads", MAX_THREADS);
    w = &the.workers[the.worker_count];
    *w = (worker){.index = the.worker_count++, .node = node, .cpu = the.cpu_of[node][which % the.node_cpus[node]]};
    return w;
}

/* Gives every block's readers their parts, in whole pages. */
static void share_out(void) {
    for (int i = 0; i < the.block_count; i++) {
        block *b = &the.blocks[i];
        int count = b->reader_count * the.threads_per_node;
        size_t pages = b->bytes / the.page;
        for (int r = 0; r < count; r++) {
            worker *w = add_worker(b->readers[r / the.threads_per_node], r % the.threads_per_node);
            size_t first = b->split ? pages * (size_t)r / (size_t)count : 0;
            size_t last = b->split ? pages * (size_t)(r + 1) / (size_t)count : pages;
            w->parts[w->part_count++] = (part){i, first * the.page, last * the.page};
        }
        if (b->touch >= 0) b->touch_thread = add_worker(b->touch, 0)->index;
    }
}

__attribute__((noinline)) static void touch_part(char *at, size_t bytes, size_t page) {
    for (size_t i = 0; i < bytes; i += page) at[i] = 1; /* the first touch of each page */
}
static const int touch_line = __LINE__ - 2;

__attribute__((noinline)) static uint64_t read_part(const char *at, size_t bytes) {
    uint64_t sum = 0;
    for (size_t i = 0; i < bytes; i += LINE) sum += *(volatile const uint64_t *)(at + i); /* one load of each line */
    return sum;
}
static const int read_line = __LINE__ - 3;

__attribute__((noinline)) static uint64_t write_part(char *at, size_t bytes) {
    /* Relaxed atomics, because parts may be shared; one load and one store of each line. */
    for (size_t i = 0; i < bytes; i += LINE) {
        uint64_t *word = (uint64_t *)(at + i);
        __atomic_store_n(word, __atomic_load_n(word, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
    }
    return 0;
}

/* Moves all pages of a block; how many did not get there shows in the counts. */
static void move_block(const block *b) {
    void *pages[BATCH];
    int nodes[BATCH], status[BATCH];
    for (size_t at = 0; at < b->bytes;) {
        size_t n = 0;
        for (; n < BATCH && at < b->bytes; n++, at += the.page) pages[n] = b->at + at, nodes[n] = b->move;
        if (syscall(SYS_move_pages, 0, n, pages, nodes, status, 2 /* MPOL_MF_MOVE */) < 0)
            fail(3, "cannot move block %s to node %d: %s", b->name, b->move, strerror(errno));
    }
}

static void *work(void *argument) {
    worker *w = argument;
    w->tid = (pid_t)syscall(SYS_gettid);
    char name[16];
    snprintf(name, sizeof name, "node%d.%d", w->node, w->index);
    prctl(PR_SET_NAME, name);
    if (the.pin) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(w->cpu, &set);
        if (sched_setaffinity(0, sizeof set, &set) != 0) fail(3, "cannot run on CPU %d: %s", w->cpu, strerror(errno));
    }
    pthread_barrier_wait(&the.barrier);
    for (int i = 0; i < the.block_count; i++) {
        const block *b = &the.blocks[i];
        if (b->touch >= 0 && b->touch_thread == w->index) touch_part(b->at, b->bytes, the.page);
    }
    for (int p = 0; p < w->part_count; p++) {
        const part *s = &w->parts[p];
        if (the.blocks[s->block].touch < 0) touch_part(the.blocks[s->block].at + s->first, s->last - s->first, the.page);
    }
    pthread_barrier_wait(&the.barrier); /* all is touched */
    pthread_barrier_wait(&the.barrier); /* all is told */
    for (uint64_t pass = 0; w->part_count > 0 && !the.stop && (the.passes == 0 || pass < the.passes); pass++) {
        for (int p = 0; p < w->part_count; p++) {
            const part *s = &w->parts[p];
            const block *b = &the.blocks[s->block];
            w->sum += b->write ? write_part(b->at + s->first, s->last - s->first) : read_part(b->at + s->first, s->last - s->first);
        }
        w->passes++;
    }
    return NULL;
}

/* Pages of a block by node; the last count is of those that are on none. */
static void count_pages(const block *b, uint64_t on[MAX_NODES + 1]) {
    void *pages[BATCH];
    int status[BATCH];
    memset(on, 0, sizeof(uint64_t) * (MAX_NODES + 1));
    for (size_t at = 0; at < b->bytes;) {
        size_t n = 0;
        for (; n < BATCH && at < b->bytes; n++, at += the.page) pages[n] = b->at + at;
        if (syscall(SYS_move_pages, 0, n, pages, NULL, status, 0) != 0) {
            on[MAX_NODES] += n;
            continue;
        }
        for (size_t i = 0; i < n; i++) on[status[i] >= 0 && status[i] < MAX_NODES ? status[i] : MAX_NODES]++;
    }
}

static void print_counts(const block *b) {
    uint64_t on[MAX_NODES + 1];
    count_pages(b, on);
    printf("{\"block\": \"%s\", \"pages_on_node\": [", b->name);
    for (int node = 0; node < the.nodes; node++) printf("%s%" PRIu64, node ? ", " : "", on[node]);
    printf("], \"pages_nowhere\": %" PRIu64 "}", on[MAX_NODES]);
}

/* What the kernel's NUMA balancing did so far, in the whole system. */
static void print_balancing(void) {
    static const char *const keys[] = {"numa_pte_updates", "numa_hint_faults", "numa_hint_faults_local", "numa_pages_migrated"};
    FILE *file = fopen("/proc/vmstat", "r");
    char name[64];
    uint64_t value;
    bool first = true;
    while (file && fscanf(file, "%63s %" SCNu64, name, &value) == 2)
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            if (!strcmp(name, keys[i])) printf("%s\"%s\": %" PRIu64, first ? "" : ", ", name, value), first = false;
    if (file) fclose(file);
}

/* Since the program was started, by the kernel's clock (10 ms steps). */
static double seconds_since_exec(void) {
    char text[1024] = "";
    FILE *file = fopen("/proc/self/stat", "r");
    if (file && !fgets(text, sizeof text, file)) text[0] = 0;
    if (file) fclose(file);
    const char *at = strrchr(text, ')'); /* the name may hold anything */
    unsigned long long ticks = 0;
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    if (!at || sscanf(at, "%llu", &ticks) != 1) return 0;
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9 - (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

static void print_placement(double seconds) {
    printf("{\"seconds\": %.6f, \"balancing\": {", seconds);
    print_balancing();
    printf("}, \"blocks\": [");
    for (int i = 0; i < the.block_count; i++) {
        if (i) printf(", ");
        print_counts(&the.blocks[i]);
    }
    printf("]}");
}

static void print_truth(void) {
    printf("], \"blocks\": [");
    for (int i = 0; i < the.block_count; i++) {
        const block *b = &the.blocks[i];
        printf("%s\n  {\"name\": \"%s\", \"address\": \"%p\", \"bytes\": %zu, \"pages\": %zu, "
               "\"touched_by_node\": %d, \"touched_by_tid\": %d, \"writes\": %s, \"readers\": [",
               i ? "," : "", b->name, (void *)b->at, b->bytes, b->bytes / the.page, b->touch,
               b->touch < 0 ? -1 : the.workers[b->touch_thread].tid, b->write ? "true" : "false");
        bool first = true;
        for (int t = 0; t < the.worker_count; t++) {
            const worker *w = &the.workers[t];
            for (int p = 0; p < w->part_count; p++) {
                if (w->parts[p].block != i) continue;
                printf("%s\n    {\"tid\": %d, \"node\": %d, \"first_page\": %zu, \"end_page\": %zu, "
                       "\"passes\": %" PRIu64 ", \"accesses_per_page\": %" PRIu64 "}",
                       first ? "" : ",", w->tid, w->node, w->parts[p].first / the.page, w->parts[p].last / the.page, w->passes,
                       w->passes * (the.page / LINE) * (b->write ? 2 : 1));
                first = false;
            }
        }
        printf("]}");
    }
    printf("],\n \"threads\": [");
    for (int t = 0; t < the.worker_count; t++) {
        const worker *w = &the.workers[t];
        printf("%s\n  {\"tid\": %d, \"name\": \"node%d.%d\", \"node\": %d, \"cpu\": %d, \"passes\": %" PRIu64 "}", t ? "," : "", w->tid, w->node, w->index,
               w->node, w->cpu, w->passes);
    }
    printf("]}\n");
}

static const char USAGE[] =
    "usage: pattern [--block NAME,mib=N,touch=NODE|each,read=NODE+NODE..,move=NODE,share=all|split,write,huge].. [--passes N | --seconds S]\n"
    "  --threads-per-node N  threads that read on each named node (1)\n"
    "  --passes N            each thread reads its parts so often (100)\n"
    "  --seconds S           instead: whole passes until S seconds have passed\n"
    "  --every S             also print where the pages are every S seconds\n"
    "  --fold                count nodes modulo those that there are\n"
    "  --no-pin              let the scheduler place threads\n"
    "Without --block: one of 16 MiB for each node, all touched on node 0, each read on its own node.\n"
    "Exit status: 0, 2 bad option, 3 the system refused something.\n";

static void read_options(int count, char **words) {
    the.threads_per_node = 1, the.passes = 100, the.pin = true;
    for (int i = 1; i < count; i++) /* before any node is named */
        if (!strcmp(words[i], "--fold")) the.fold = true;
    for (int i = 1; i < count; i++) {
        const char *word = words[i];
        if (!strcmp(word, "--fold")) continue;
        if (!strcmp(word, "--no-pin")) { the.pin = false; continue; }
        if (!strcmp(word, "--help")) { fputs(USAGE, stdout); exit(0); }
        if (i + 1 == count) fail(2, "%s: unknown, or a value is missing\n%s", word, USAGE);
        char *value = words[++i];
        if (!strcmp(word, "--block")) read_block(value);
        else if (!strcmp(word, "--threads-per-node")) the.threads_per_node = atoi(value);
        else if (!strcmp(word, "--passes")) the.passes = strtoull(value, NULL, 10);
        else if (!strcmp(word, "--seconds")) the.seconds = atof(value), the.passes = 0;
        else if (!strcmp(word, "--every")) the.every = atof(value);
        else fail(2, "unknown option %s\n%s", word, USAGE);
    }
    if (the.every > 0 && the.seconds <= 0) fail(2, "--every wants --seconds");
    if (the.threads_per_node < 1 || (the.passes == 0 && the.seconds <= 0)) fail(2, "--threads-per-node and --passes want at least 1, --seconds more than 0");
    if (the.block_count > 0) return;
    for (int node = 0; node < the.nodes; node++) {
        if (the.node_cpus[node] == 0) continue;
        char text[64];
        snprintf(text, sizeof text, "block%d,touch=0,read=%d", node, node);
        read_block(text);
    }
}

/* Sleeps until `end`, and prints the pages' nodes at intervals. */
static void watch(double start, double end) {
    double next = start + the.every;
    while (now() < end) {
        double until = the.every > 0 && next < end ? next : end;
        double wait = until - now();
        if (wait > 0) usleep((useconds_t)(wait * 1e6) + 1);
        if (the.every > 0 && now() >= next) {
            printf(",\n  "), print_placement(now() - start), fflush(stdout);
            next += the.every;
        }
    }
}

int main(int count, char **words) {
    the.page = (size_t)sysconf(_SC_PAGESIZE);
    read_nodes();
    read_options(count, words);
    for (int i = 0; i < the.block_count; i++) {
        block *b = &the.blocks[i];
        b->at = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (b->at == MAP_FAILED) fail(3, "no %zu bytes for block %s: %s", b->bytes, b->name, strerror(errno));
        madvise(b->at, b->bytes, b->huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    }
    share_out();
    pthread_barrier_init(&the.barrier, NULL, (unsigned)the.worker_count + 1);
    for (int i = 0; i < the.worker_count; i++) {
        int error = pthread_create(&the.workers[i].handle, NULL, work, &the.workers[i]);
        if (error) fail(3, "no thread %d: %s", i, strerror(error));
    }
    pthread_barrier_wait(&the.barrier);
    pthread_barrier_wait(&the.barrier);
    for (int i = 0; i < the.block_count; i++)
        if (the.blocks[i].move >= 0) move_block(&the.blocks[i]);
    printf("{\"pid\": %d, \"page_bytes\": %zu, \"nodes\": %d, \"seconds_since_exec\": %.3f,\n \"touch_function\": \"touch_part\", \"touch_line\": %d, "
           "\"read_function\": \"read_part\", \"read_line\": %d,\n"
           " \"placement\": [\n  ", getpid(), the.page, the.nodes, seconds_since_exec(), touch_line, read_line);
    print_placement(0);
    fflush(stdout);
    fprintf(stderr, "pattern: ready %d\n", getpid());
    double start = now();
    pthread_barrier_wait(&the.barrier);
    if (the.seconds > 0) {
        watch(start, start + the.seconds);
        the.stop = true;
    }
    for (int i = 0; i < the.worker_count; i++) pthread_join(the.workers[i].handle, NULL);
    printf(",\n  "), print_placement(now() - start);
    print_truth();
    return fflush(stdout) == 0 ? 0 : 3;
}
