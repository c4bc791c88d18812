/* system.h: what the files of the system-mode plugin share. main.c asks QEMU for call-backs, guest.c knows the guest's processor and its running task,
 * cache.c is a vCPU's private cache, truth.c counts,
 * sampler.c samples.
 *
 * Only accesses of user code are seen: instructions at addresses of the lower half. What the kernel reads and writes on a program's behalf is not.
 *
 * One vCPU's data is written by the host thread that runs this vCPU only. Others read it at marks, when its owner may be one access further. */
#ifndef NUMAPILOT_SYSTEM_H
#define NUMAPILOT_SYSTEM_H

#include <stdatomic.h>

#include "qemu_api.h"

#include "mark.h"

#pragma GCC visibility push(hidden)

#define NP_PAGE_SHIFT 12
#define NP_LINE_SHIFT 6
#define NP_MAX_CPUS 256
#define NP_MAX_NODES 64
#define NP_MAX_RANGES 128
#define NP_MAX_SPACES 1024

/* ---- arguments (main.c) ---- */

struct np_range {
    uint64_t first, end; /* guest-physical addresses */
    uint32_t node;
};
struct np_options {
    const char *output; /* NULL: none */
    struct np_range ranges[NP_MAX_RANGES];
    unsigned range_count;
    unsigned cache_sets, cache_ways; /* 0: no cache, every access counts */
    const char *samples;             /* NULL: none are taken */
    uint64_t period, seed;           /* memory accesses per sample, on average */
    int node_of_cpu[NP_MAX_CPUS];
    uint64_t latency[NP_MAX_NODES][NP_MAX_NODES]; /* cycles, modelled: of an access from a node to another's memory */
    bool one_thread;                 /* all vCPUs run in one host thread, in turn */
};
extern struct np_options np_options;
extern unsigned np_cpu_count, np_node_count;

/* Node of a guest-physical address; -1: no memory of a node (a device). */
int np_node_of(uint64_t physical);

/* ---- guest.c ---- */

/* An address space of the guest: a page table's root. Number 0 is what did not fit into the table. */
struct np_space {
    _Atomic uint64_t root;
    _Atomic uint32_t pid; /* 0: not known */
};
extern struct np_space np_spaces[NP_MAX_SPACES];
extern atomic_uint np_space_count;
struct np_task {
    uint32_t pid, tid; /* 0: not known */
};

void np_guest_cpu_start(unsigned vcpu);
/* The vCPU whose call-back this is; QEMU itself does not always say so: see there. */
unsigned np_running_cpu(unsigned said);
bool np_guest_tells_cpus(void);
uint64_t np_register(unsigned vcpu, const char *name);
/* By its number in instructions. */
uint64_t np_general_register(unsigned vcpu, unsigned number);
bool np_guest_memory(unsigned vcpu, uint64_t address, void *into, size_t bytes);
void np_guest_kernel(unsigned vcpu, uint64_t address);
/* The task that this vCPU runs, read from the guest's kernel. */
struct np_task np_running_task(unsigned vcpu);
/* Number of the address space in use. Its process is asked for when it is new, so: in call-backs of user code. */
unsigned np_running_space(unsigned vcpu);
uint64_t np_root_of(uint64_t cr3);

/* ---- cache.c ---- */

enum np_outcome { NP_HIT, NP_MISS };
bool np_cache_start(void);
/* Looks a line up, and lets it in. */
enum np_outcome np_cache_access(unsigned vcpu, uint64_t physical, bool store);
void np_cache_clear(void);

/* ---- sampler.c ---- */

bool np_sampler_start(void);
/* Time of samples: instructions of user code of all vCPUs, one a nanosecond. */
void np_sampler_clock(uint64_t instructions);
uint64_t np_sampler_now(void);
/* A memory access. */
void np_sampler_access(unsigned vcpu, uint64_t ip, uint64_t address, uint64_t physical, int node, bool store);
void np_sampler_flush(void);

/* ---- truth.c ---- */

extern atomic_bool np_region_open;
bool np_truth_start(void);
void np_truth_begin(void);
void np_truth_end(void);
void np_truth_only(unsigned vcpu);
void np_truth_not(unsigned vcpu);
/* This vCPU has (or may have) another address space from now on. */
void np_truth_switched(unsigned vcpu);
void np_truth_block(unsigned vcpu, uint64_t instructions);
void np_truth_access(unsigned vcpu, uint64_t ip, uint64_t address, uint64_t physical, int node, bool store);
bool np_truth_counts(unsigned vcpu);
void np_truth_write(void);

void np_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#pragma GCC visibility pop
#endif
