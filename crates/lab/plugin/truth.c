/* truth.c: the exact counts: the accesses of each vCPU's user code to each node in each region of interest, and of each page in all of them.
 *
 * A page is a virtual one of an address space, on a node: one that moved has several rows. An access that straddles pages counts on its first byte.
 * Where the table of pages is full, the matrix still counts, and the file says how many accesses have no row. */
#include "system.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Rows per vCPU; memory is taken as rows come into use. */
#define PAGE_ROWS (1u << 20)
#define PROBES 64
#define MAX_REGIONS 4096

struct counts {
    uint64_t instructions; /* of blocks begun: one that a fault cuts short counts whole */
    uint64_t accesses;     /* of user code to nodes' memory, before the cache */
    uint64_t elsewhere;    /* to no node's memory: devices, and pages that were gone at the look */
    uint64_t matrix[NP_MAX_NODES][2]; /* after the cache: loads, stores */
};
/* Key: page number, node, space, plus one bit that is always set. */
struct row {
    uint64_t key, count[2];
};
struct cpu {
    atomic_bool stale; /* the running task has to be looked up */
    bool counted;
    unsigned space;
    struct counts now;
    struct row *rows;
    uint64_t unlisted;
};
struct region {
    uint64_t begin, end; /* on the clock of samples */
    struct counts *cpus;
};

atomic_bool np_region_open;
static struct cpu cpus[NP_MAX_CPUS];
static struct region regions[MAX_REGIONS];
static unsigned region_count;
static uint64_t began;
static uint64_t regions_unlisted;
static pthread_mutex_t regions_lock = PTHREAD_MUTEX_INITIALIZER;
/* Which spaces count. */
static atomic_bool only_chosen;
static atomic_bool chosen[NP_MAX_SPACES], excluded[NP_MAX_SPACES];

bool np_truth_start(void) {
    for (unsigned i = 0; i < np_cpu_count; i++) {
        void *rows = mmap(NULL, PAGE_ROWS * sizeof(struct row), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (rows == MAP_FAILED) return false;
        cpus[i].rows = rows;
        cpus[i].stale = true;
    }
    return true;
}

/* ---- regions ---- */

static void all_stale(void) {
    for (unsigned i = 0; i < np_cpu_count; i++) atomic_store(&cpus[i].stale, true);
}

static void close_region(void) {
    if (!atomic_load(&np_region_open)) return;
    atomic_store(&np_region_open, false);
    struct counts *kept = region_count < MAX_REGIONS ? calloc(np_cpu_count, sizeof *kept) : NULL;
    if (kept == NULL) {
        regions_unlisted++;
        return;
    }
    for (unsigned i = 0; i < np_cpu_count; i++) kept[i] = cpus[i].now;
    regions[region_count++] = (struct region){began, np_sampler_now(), kept};
}

void np_truth_begin(void) {
    pthread_mutex_lock(&regions_lock);
    close_region();
    for (unsigned i = 0; i < np_cpu_count; i++) memset(&cpus[i].now, 0, sizeof cpus[i].now);
    np_cache_clear();
    began = np_sampler_now();
    all_stale();
    atomic_store(&np_region_open, true);
    pthread_mutex_unlock(&regions_lock);
}

void np_truth_end(void) {
    pthread_mutex_lock(&regions_lock);
    close_region();
    pthread_mutex_unlock(&regions_lock);
    np_truth_write();
    np_sampler_flush();
}

/* ---- whose accesses ---- */

void np_truth_only(unsigned vcpu) {
    atomic_store(&chosen[np_running_space(vcpu)], true);
    atomic_store(&only_chosen, true);
    all_stale();
}

void np_truth_not(unsigned vcpu) {
    atomic_store(&excluded[np_running_space(vcpu)], true);
    all_stale();
}

void np_truth_switched(unsigned vcpu) { atomic_store_explicit(&cpus[vcpu].stale, true, memory_order_relaxed); }

static void identify(unsigned vcpu) {
    struct cpu *cpu = &cpus[vcpu];
    atomic_store_explicit(&cpu->stale, false, memory_order_relaxed);
    cpu->space = np_running_space(vcpu);
    cpu->counted = (!atomic_load(&only_chosen) || atomic_load(&chosen[cpu->space])) && !atomic_load(&excluded[cpu->space]);
}

bool np_truth_counts(unsigned vcpu) {
    return atomic_load_explicit(&np_region_open, memory_order_relaxed) && cpus[vcpu].counted &&
           !atomic_load_explicit(&cpus[vcpu].stale, memory_order_relaxed);
}

/* ---- counting ---- */

void np_truth_block(unsigned vcpu, uint64_t instructions) {
    struct cpu *cpu = &cpus[vcpu];
    if (!atomic_load_explicit(&np_region_open, memory_order_relaxed)) return;
    if (atomic_load_explicit(&cpu->stale, memory_order_relaxed)) identify(vcpu);
    if (!cpu->counted) return;
    cpu->now.instructions += instructions;
    np_sampler_clock(instructions);
}

static void count_page(struct cpu *cpu, uint64_t address, int node, bool store) {
    uint64_t page = (address >> NP_PAGE_SHIFT) & ((1ull << 36) - 1);
    uint64_t key = page | (uint64_t)node << 36 | (uint64_t)cpu->space << 42 | 1ull << 63;
    uint64_t at = key * 0x9e3779b97f4a7c15ull >> 32;
    for (unsigned probe = 0; probe < PROBES; probe++, at++) {
        struct row *row = &cpu->rows[at & (PAGE_ROWS - 1)];
        if (row->key == 0) row->key = key;
        if (row->key != key) continue;
        row->count[store]++;
        return;
    }
    cpu->unlisted++;
}

void np_truth_access(unsigned vcpu, uint64_t ip, uint64_t address, uint64_t physical, int node, bool store) {
    struct cpu *cpu = &cpus[vcpu];
    if (node < 0) {
        cpu->now.elsewhere++;
        return;
    }
    cpu->now.accesses++;
    if (np_cache_access(vcpu, physical, store) == NP_HIT) return;
    cpu->now.matrix[node][store]++;
    count_page(cpu, address, node, store);
    np_sampler_access(vcpu, ip, address, physical, node, store);
}

/* ---- the file ---- */

static void write_region(FILE *file, unsigned number) {
    fprintf(file, "region %u %" PRIu64 " %" PRIu64 "\n", number, regions[number].begin, regions[number].end);
    for (unsigned i = 0; i < np_cpu_count; i++) {
        const struct counts *c = &regions[number].cpus[i];
        fprintf(file, "cpu %u %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", i, c->instructions, c->accesses, c->elsewhere);
        for (unsigned node = 0; node < np_node_count; node++)
            if (c->matrix[node][0] != 0 || c->matrix[node][1] != 0)
                fprintf(file, "matrix %u %u %" PRIu64 " %" PRIu64 "\n", i, node, c->matrix[node][0], c->matrix[node][1]);
    }
}

static void write_pages(FILE *file, unsigned cpu) {
    for (unsigned i = 0; i < PAGE_ROWS; i++) {
        const struct row *row = &cpus[cpu].rows[i];
        if (row->key == 0) continue;
        uint64_t page = row->key & ((1ull << 36) - 1);
        unsigned node = row->key >> 36 & 63, space = row->key >> 42 & 0xfffff;
        fprintf(file, "page %u %" PRIx64 " %u %u %" PRIu64 " %" PRIu64 "\n", space, page << NP_PAGE_SHIFT, node, cpu, row->count[0], row->count[1]);
    }
}

static void write_all(FILE *file) {
    uint64_t unlisted = 0;
    for (unsigned i = 0; i < np_cpu_count; i++) unlisted += cpus[i].unlisted;
    fprintf(file, "numapilot-truth 1\nmachine %u %u\ncache %u %u\nunlisted %" PRIu64 " %" PRIu64 "\n", np_cpu_count, np_node_count,
            np_options.cache_sets, np_options.cache_ways, unlisted, regions_unlisted);
    for (unsigned i = 0; i < region_count; i++) write_region(file, i);
    for (unsigned i = 0; i < atomic_load(&np_space_count); i++) fprintf(file, "space %u %u\n", i, np_spaces[i].pid);
    for (unsigned i = 0; i < np_cpu_count; i++) write_pages(file, i);
    fputs("end\n", file);
}

void np_truth_write(void) {
    char unfinished[4096];
    if (np_options.output == NULL) return;
    pthread_mutex_lock(&regions_lock);
    int length = snprintf(unfinished, sizeof unfinished, "%s.new", np_options.output);
    FILE *file = length > 0 && (size_t)length < sizeof unfinished ? fopen(unfinished, "w") : NULL;
    bool good = file != NULL;
    if (good) {
        write_all(file);
        good = !ferror(file);
        good = fclose(file) == 0 && good && rename(unfinished, np_options.output) == 0;
        if (!good) unlink(unfinished);
    }
    if (!good) np_complain("cannot write %s: %s", np_options.output, strerror(errno));
    pthread_mutex_unlock(&regions_lock);
}
