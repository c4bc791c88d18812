/* sampler.c: an emulated sampling PMU: now and then a memory access becomes a record as the kernel would write it for a memory-sampling event
 * (PERF_RECORD_SAMPLE, `include/uapi/linux/perf_event.h`), in a file of such records.
 *
 * Memory accesses are those that the private caches let through, in the regions of interest. The gaps between samples of a vCPU are drawn from the
 * geometric distribution, seeded: every access is as likely to be sampled as any other, whatever its program's rhythm, so that the sampling error is that of
 * independent draws. Latencies are modelled: so many cycles per pair of nodes, given as arguments. */
#define _GNU_SOURCE
#include "system.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { PERF_RECORD_SAMPLE = 9, PERF_RECORD_MISC_USER = 2 };

/* sample_type: IP, TID, TIME, ADDR, CPU, PERIOD, WEIGHT, DATA_SRC, PHYS_ADDR; src/samples.rs describes the event so. */
struct record {
    uint32_t type;
    uint16_t misc, size;
    uint64_t ip;
    uint32_t pid, tid;
    uint64_t time, address;
    uint32_t cpu, zero;
    uint64_t period, weight, data_source, physical;
};

/* union perf_mem_data_src */
#define MEM_OP_LOAD 0x02ull
#define MEM_OP_STORE 0x04ull
#define MEM_LVL_LOCAL_RAM (0x82ull << 5) /* a hit there */
#define MEM_LVL_REMOTE_RAM (0x102ull << 5)
#define MEM_LVL_NUM_RAM (0xdull << 33)
#define MEM_REMOTE (1ull << 37)

struct sampler {
    uint64_t left; /* accesses until the next sample */
    uint64_t random;
};
static struct sampler samplers[NP_MAX_CPUS];
static FILE *file;
static pthread_mutex_t file_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_ullong clock_ns;
static bool failed;

/* Xorshift*, 64 bits (Vigna 2016). */
static uint64_t draw(struct sampler *s) {
    s->random ^= s->random >> 12;
    s->random ^= s->random << 25;
    s->random ^= s->random >> 27;
    return s->random * 0x2545f4914f6cdd1dull;
}

/* 1 or more; the period on average. */
static uint64_t gap(struct sampler *s) {
    double uniform = ((double)(draw(s) >> 11) + 0.5) * 0x1p-53;
    return np_options.period <= 1 ? 1 : 1 + (uint64_t)(log(uniform) / log1p(-1.0 / (double)np_options.period));
}

bool np_sampler_start(void) {
    if (np_options.samples == NULL) return true;
    file = fopen(np_options.samples, "w");
    if (file == NULL) return false;
    for (unsigned i = 0; i < np_cpu_count; i++) {
        samplers[i].random = (np_options.seed + 1) * 0x9e3779b97f4a7c15ull ^ ((uint64_t)i + 1) * 0xd1b54a32d192ed03ull;
        if (samplers[i].random == 0) samplers[i].random = 1;
        samplers[i].left = gap(&samplers[i]);
    }
    return true;
}

void np_sampler_clock(uint64_t instructions) {
    atomic_fetch_add_explicit(&clock_ns, instructions, memory_order_relaxed);
}

uint64_t np_sampler_now(void) { return atomic_load_explicit(&clock_ns, memory_order_relaxed); }

static uint64_t data_source(int from, int node, bool store) {
    uint64_t place = from == node ? MEM_LVL_LOCAL_RAM : MEM_LVL_REMOTE_RAM | MEM_REMOTE;
    return (store ? MEM_OP_STORE : MEM_OP_LOAD) | place | MEM_LVL_NUM_RAM;
}

void np_sampler_access(unsigned vcpu, uint64_t ip, uint64_t address, uint64_t physical, int node, bool store) {
    if (file == NULL || --samplers[vcpu].left != 0) return;
    samplers[vcpu].left = gap(&samplers[vcpu]);
    struct np_task task = np_running_task(vcpu);
    int from = np_options.node_of_cpu[vcpu];
    struct record record = {
        .type = PERF_RECORD_SAMPLE,
        .misc = PERF_RECORD_MISC_USER,
        .size = sizeof record,
        .ip = ip,
        .pid = task.pid,
        .tid = task.tid,
        .time = np_sampler_now(),
        .address = address,
        .cpu = vcpu,
        .period = np_options.period,
        .weight = np_options.latency[from][node],
        .data_source = data_source(from, node, store),
        .physical = physical,
    };
    pthread_mutex_lock(&file_lock);
    failed |= fwrite(&record, sizeof record, 1, file) != 1;
    pthread_mutex_unlock(&file_lock);
}

void np_sampler_flush(void) {
    if (file == NULL) return;
    pthread_mutex_lock(&file_lock);
    failed |= fflush(file) != 0;
    if (failed) np_complain("cannot write all of %s: %s", np_options.samples, strerror(errno));
    pthread_mutex_unlock(&file_lock);
}
