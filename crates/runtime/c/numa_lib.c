/* numa_lib.c: libnuma's functions on the simulated machine. Only what asks about the machine, moves threads or chooses nodes; bit masks, parsing and the
 * like stay libnuma's own. In programs that do not use libnuma nothing here is ever called; where no machine is simulated everything passes
 * through, and allocations are recorded as such either way. */
#define _GNU_SOURCE
#include "memsim.h"
#include "vtime.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* libnuma's, declared here so that it need not be installed to build. */
struct bitmask {
    unsigned long size;
    unsigned long *maskp;
};

enum { MODE_PREFERRED = 1, MODE_BIND = 2, MODE_INTERLEAVE = 3, MODE_LOCAL = 4 };

/* On to libnuma. A program may have asked by a weak symbol whether it is there, found ours, and have no libnuma: it gets `absent`, what libnuma answers
 * where the kernel knows no nodes. */
#define PASS(absent, type, name, ...)                                     \
    ({                                                                    \
        __typeof__(type) pass_ = NP_REAL_OF_LIBRARY(type, name);          \
        if (pass_ == NULL) errno = ENOSYS;                                \
        pass_ == NULL ? (absent) : pass_(__VA_ARGS__);                    \
    })
#define PASS_VOID(type, name, ...)                                        \
    do {                                                                  \
        __typeof__(type) pass_ = NP_REAL_OF_LIBRARY(type, name);          \
        if (pass_ != NULL) pass_(__VA_ARGS__);                            \
    } while (0)

static inline uint32_t node_count(void) { return np_arena->config.node_count < 64 ? np_arena->config.node_count : 64; }
static inline bool is_node(int node) { return node >= 0 && (uint32_t)node < node_count(); }
static inline uint64_t mask_of(const struct bitmask *mask) {
    if (mask == NULL || mask->size == 0 || mask->maskp == NULL) return 0;
    return mask->size >= 64 ? mask->maskp[0] : mask->maskp[0] & ((1ull << mask->size) - 1);
}
static inline uint64_t every_node(void) { return node_count() == 64 ? ~0ull : (1ull << node_count()) - 1; }

/* libnuma filled its public masks from the real machine. */
static void show_machine(const char *name, uint32_t bits) {
    struct bitmask **found = dlsym(RTLD_DEFAULT, name);
    if (found == NULL || *found == NULL || (*found)->maskp == NULL) return;
    for (uint32_t bit = 0; bit < (*found)->size; bit++) {
        unsigned long one = 1ul << (bit % 64), *word = &(*found)->maskp[bit / 64];
        *word = bit < bits ? *word | one : *word & ~one;
    }
}

NP_EXPORT int numa_available(void) {
    if (!np_is_simulated()) return PASS(-1, int (*)(void), numa_available);
    show_machine("numa_all_nodes_ptr", node_count());
    show_machine("numa_nodes_ptr", node_count());
    show_machine("numa_all_cpus_ptr", np_arena->config.cpu_count);
    return 0;
}

#define COUNT(name, value, absent)                             \
    NP_EXPORT int name(void) {                                 \
        if (!np_is_simulated()) return PASS(absent, int (*)(void), name); \
        return (int)(value);                                   \
    }
COUNT(numa_max_node, node_count() - 1, 0)
COUNT(numa_num_configured_nodes, node_count(), 1)
COUNT(numa_num_task_nodes, node_count(), 1)
COUNT(numa_num_configured_cpus, np_arena->config.cpu_count, 1)
COUNT(numa_num_task_cpus, np_arena->config.cpu_count, 1)

NP_EXPORT int numa_node_of_cpu(int cpu) {
    if (!np_is_simulated()) return PASS(-1, int (*)(int), numa_node_of_cpu, cpu);
    if (cpu >= 0 && cpu < NP_MAX_CPUS)
        for (uint32_t i = 0; i < np_arena->config.cpu_count && i < NP_MAX_CPUS; i++)
            if (np_arena->config.cpu_order[i] == cpu) return np_arena->config.cpu_node[cpu];
    errno = EINVAL;
    return -1;
}

/* As the machine's description says, all of it free; where that says nothing, as much as a program may request. */
NP_EXPORT long long numa_node_size64(int node, long long *free_bytes) {
    if (!np_is_simulated()) return PASS(-1, long long (*)(int, long long *), numa_node_size64, node, free_bytes);
    long long bytes = is_node(node) ? 0 : -1;
    if (bytes == 0 && np_arena->config.node_has_memory[node]) {
        bytes = (long long)np_arena->config.node_memory_bytes[node];
        if (bytes <= 0) bytes = 64ll << 30;
    }
    if (free_bytes != NULL) *free_bytes = bytes > 0 ? bytes : 0;
    return bytes;
}

NP_EXPORT long numa_node_size(int node, long *free_bytes) {
    if (!np_is_simulated()) return PASS(-1, long (*)(int, long *), numa_node_size, node, free_bytes);
    long long free_now, bytes = numa_node_size64(node, &free_now);
    if (free_bytes != NULL) *free_bytes = (long)free_now;
    return (long)bytes;
}

/* As firmware tables say it; where the recorder gave none, 10 for the own node, others in proportion to idle latency. 0: no such node. */
NP_EXPORT int numa_distance(int from, int to) {
    if (!np_is_simulated()) return PASS(0, int (*)(int, int), numa_distance, from, to);
    if (!is_node(from) || !is_node(to)) return 0;
    if (np_arena->config.node_distance[from][to] != 0) return np_arena->config.node_distance[from][to];
    uint32_t own = np_arena->config.memory_latency_cycles[from][from], other = np_arena->config.memory_latency_cycles[from][to];
    if (from == to || own == 0) return 10;
    uint32_t distance = (other * 10 + own / 2) / own;
    return distance > 10 ? (int)distance : 11;
}

/* ---- threads ---- */

static int run_on(struct np_slot *slot, uint64_t nodes) {
    if (np_numa_run_on(slot, nodes)) return 0;
    errno = EINVAL;
    return -1;
}

NP_EXPORT int numa_run_on_node(int node) {
    struct np_slot *slot = np_is_simulated() ? np_self() : NULL;
    if (slot == NULL) return PASS(-1, int (*)(int), numa_run_on_node, node);
    return run_on(slot, node == -1 ? every_node() : is_node(node) ? 1ull << node : 0);
}

NP_EXPORT int numa_run_on_node_mask(struct bitmask *nodes) {
    struct np_slot *slot = np_is_simulated() ? np_self() : NULL;
    if (slot == NULL) return PASS(-1, int (*)(struct bitmask *), numa_run_on_node_mask, nodes);
    return run_on(slot, mask_of(nodes));
}

/* The preferred node: that of the policy, else the thread's own. */
NP_EXPORT int numa_preferred(void) {
    struct np_slot *slot = np_is_simulated() ? np_self() : NULL;
    if (slot == NULL) return PASS(0, int (*)(void), numa_preferred);
    const struct np_sim_slot *sim = np_ss(slot);
    return sim->policy_mode == MODE_PREFERRED && sim->policy_nodes != 0 ? __builtin_ctzll(sim->policy_nodes) : (int)slot->node;
}

#define POLICY(name, parameters, type, arguments, mode, nodes)             \
    NP_EXPORT void name parameters {                                        \
        struct np_slot *slot = np_is_simulated() ? np_self() : NULL;        \
        if (slot == NULL) {                                                 \
            NP_REAL_OF_LIBRARY(type, name) arguments;                       \
            return;                                                         \
        }                                                                   \
        uint64_t chosen = (nodes);                                          \
        np_thread_policy(slot, chosen == 0 ? MODE_LOCAL : (mode), &chosen, 1); \
    }
POLICY(numa_set_preferred, (int node), void (*)(int), (node), MODE_PREFERRED, is_node(node) ? 1ull << node : 0)
POLICY(numa_set_localalloc, (void), void (*)(void), (), MODE_LOCAL, 0)
POLICY(numa_set_membind, (struct bitmask * nodes), void (*)(struct bitmask *), (nodes), MODE_BIND, mask_of(nodes))
POLICY(numa_set_interleave_mask, (struct bitmask * nodes), void (*)(struct bitmask *), (nodes), MODE_INTERLEAVE, mask_of(nodes))

/* ---- ranges ---- */

static void set_range(void *start, size_t bytes, int mode, uint64_t nodes) { np_pages_policy((uintptr_t)start, bytes, mode, &nodes, 1); }

NP_EXPORT void numa_tonode_memory(void *start, size_t bytes, int node) {
    if (np_is_simulated()) set_range(start, bytes, MODE_BIND, is_node(node) ? 1ull << node : 0);
    else PASS_VOID(void (*)(void *, size_t, int), numa_tonode_memory, start, bytes, node);
}

NP_EXPORT void numa_tonodemask_memory(void *start, size_t bytes, struct bitmask *nodes) {
    if (np_is_simulated()) set_range(start, bytes, MODE_BIND, mask_of(nodes));
    else PASS_VOID(void (*)(void *, size_t, struct bitmask *), numa_tonodemask_memory, start, bytes, nodes);
}

NP_EXPORT void numa_interleave_memory(void *start, size_t bytes, struct bitmask *nodes) {
    if (np_is_simulated()) set_range(start, bytes, MODE_INTERLEAVE, mask_of(nodes));
    else PASS_VOID(void (*)(void *, size_t, struct bitmask *), numa_interleave_memory, start, bytes, nodes);
}

NP_EXPORT void numa_setlocal_memory(void *start, size_t bytes) {
    if (np_is_simulated()) set_range(start, bytes, MODE_LOCAL, 0);
    else PASS_VOID(void (*)(void *, size_t), numa_setlocal_memory, start, bytes);
}

NP_EXPORT int numa_move_pages(int pid, unsigned long count, void **pages, const int *nodes, int *status, int flags) {
    extern long move_pages(int, unsigned long, void **, const int *, int *, int);
    if (np_is_simulated()) return (int)move_pages(pid, count, pages, nodes, status, flags);
    return PASS(-1, int (*)(int, unsigned long, void **, const int *, int *, int), numa_move_pages, pid, count, pages, nodes, status, flags);
}

/* ---- allocation: whole pages, as libnuma does it ---- */

/* Our own mapping, not recorded: the block is. */
static void *allocate(size_t bytes, int mode, uint64_t nodes, struct np_regs caller) {
    long at = np_sys(SYS_mmap, 0, (long)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at < 0 && at > -4096) {
        errno = (int)-at;
        return NULL;
    }
    np_pages_forget((uintptr_t)at, bytes);
    if (mode != 0) set_range((void *)at, bytes, mode, nodes);
    np_record_alloc((void *)at, bytes, NP_ALLOC_NUMA, caller);
    return (void *)at;
}

/* The real function, inside the guard, so that the mapping that it makes is not recorded beside the block. */
#define RECORDED(call, bytes)                                   \
    ({                                                          \
        struct np_slot *slot_ = np_self();                      \
        bool entered_ = slot_ != NULL && np_enter(slot_);       \
        void *block_ = (call);                                  \
        if (entered_) np_leave(slot_);                          \
        np_record_alloc(block_, bytes, NP_ALLOC_NUMA, NP_CALLER_REGS()); \
        block_;                                                 \
    })

NP_EXPORT void *numa_alloc_onnode(size_t bytes, int node) {
    if (np_is_simulated()) return allocate(bytes, MODE_BIND, is_node(node) ? 1ull << node : 0, NP_CALLER_REGS());
    return RECORDED(PASS(NULL, void *(*)(size_t, int), numa_alloc_onnode, bytes, node), bytes);
}

NP_EXPORT void *numa_alloc_local(size_t bytes) {
    if (np_is_simulated()) return allocate(bytes, MODE_LOCAL, 0, NP_CALLER_REGS());
    return RECORDED(PASS(NULL, void *(*)(size_t), numa_alloc_local, bytes), bytes);
}

NP_EXPORT void *numa_alloc_interleaved(size_t bytes) {
    if (np_is_simulated()) return allocate(bytes, MODE_INTERLEAVE, every_node(), NP_CALLER_REGS());
    return RECORDED(PASS(NULL, void *(*)(size_t), numa_alloc_interleaved, bytes), bytes);
}

NP_EXPORT void *numa_alloc_interleaved_subset(size_t bytes, struct bitmask *nodes) {
    if (np_is_simulated()) return allocate(bytes, MODE_INTERLEAVE, mask_of(nodes), NP_CALLER_REGS());
    return RECORDED(PASS(NULL, void *(*)(size_t, struct bitmask *), numa_alloc_interleaved_subset, bytes, nodes), bytes);
}

NP_EXPORT void *numa_alloc(size_t bytes) {
    if (np_is_simulated()) return allocate(bytes, 0, 0, NP_CALLER_REGS());
    return RECORDED(PASS(NULL, void *(*)(size_t), numa_alloc, bytes), bytes);
}

NP_EXPORT void numa_free(void *block, size_t bytes) {
    np_record_free(block);
    if (!np_is_simulated()) {
        struct np_slot *slot = np_self();
        bool entered = slot != NULL && np_enter(slot);
        PASS_VOID(void (*)(void *, size_t), numa_free, block, bytes);
        if (entered) np_leave(slot);
        return;
    }
    np_pages_forget((uintptr_t)block, bytes);
    np_sys(SYS_munmap, (long)block, (long)bytes, 0, 0, 0, 0);
}

NP_EXPORT void *numa_realloc(void *old, size_t old_bytes, size_t bytes) {
    np_record_free(old);
    if (!np_is_simulated()) return RECORDED(PASS(NULL, void *(*)(void *, size_t, size_t), numa_realloc, old, old_bytes, bytes), bytes);
    void *block = allocate(bytes, 0, 0, NP_CALLER_REGS());
    if (block == NULL || old == NULL) return block;
    size_t common = old_bytes < bytes ? old_bytes : bytes;
    memcpy(block, old, common);
    struct np_slot *slot = np_self();
    for (uintptr_t page = 0; slot != NULL && page < common; page += 1ul << NP_PAGE_SHIFT) {
        int home = np_page_query((uintptr_t)old + page); /* the pages themselves are moved, homes and all */
        if (home >= 0) set_range((char *)block + page, 1ul << NP_PAGE_SHIFT, MODE_BIND, 1ull << home);
    }
    np_pages_forget((uintptr_t)old, old_bytes);
    np_sys(SYS_munmap, (long)old, (long)old_bytes, 0, 0, 0, 0);
    return block;
}
