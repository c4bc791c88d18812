/* numa_cpus.c: the simulated machine as programs see it, CPUs: which one they run on, how many there are, and where they may run.
 *
 * Where no machine is simulated everything passes through to the C library. CPU numbers are those of the model. A thread's affinity is kept in its slot,
 * as Linux keeps it: inherited by the threads it makes. A thread that may not stay on its CPU goes to the least loaded CPU of its
 * set, in the order in which the recording lays threads out; from then on it moves within the set as cpus.c says. */
#define _GNU_SOURCE
#include "memsim.h"
#include "syscalls.h"
#include "vtime.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define ATTRIBUTES_KEPT 256u

bool np_is_simulated(void) {
    if (np_unlikely(np_load(np_arena) == NULL)) np_attach_process();
    return np_load(np_arena) != NULL && np_arena->config.mode == NP_MODE_INSTRUMENT && np_sim.ready;
}

/* ---- moving ---- */

/* The CPU for a thread with this affinity: its own where that is in the set. NP_MAX_CPUS if the machine has none of the set. */
static uint32_t choose_cpu(const struct np_slot *slot, const uint64_t *set) {
    return np_in_cpu_set(set, slot->cpu) ? slot->cpu : np_cpu_idlest(set, NP_MAX_CPUS);
}

void np_numa_move(struct np_slot *slot) {
    uint32_t cpu = __atomic_exchange_n(&np_ss(slot)->moved_to_cpu, 0, __ATOMIC_ACQ_REL);
    if (cpu != 0) np_cpu_move(slot, cpu - 1);
}

/* 0, or an errno value. Another thread is notified, and moves when its next access leaves the first stage, or when it asks where it is. */
static int set_affinity(struct np_slot *slot, const uint64_t *set, bool is_own) {
    uint32_t cpu = choose_cpu(slot, set);
    if (cpu >= NP_MAX_CPUS) return EINVAL;
    struct np_sim_slot *sim = np_ss(slot);
    np_set_affinity(sim, set);
    if (cpu == slot->cpu) return 0;
    __atomic_store_n(&sim->moved_to_cpu, cpu + 1, __ATOMIC_RELEASE);
    if (!is_own) np_filter_poke(slot);
    else if (np_enter(slot)) {
        np_numa_move(slot);
        np_leave(slot);
    }
    return 0;
}

bool np_numa_run_on(struct np_slot *slot, uint64_t nodes) {
    uint64_t set[NP_MAX_CPUS / 64] = {0};
    for (uint32_t i = 0; i < np_cpu_count(); i++) {
        uint32_t cpu = np_arena->config.cpu_order[i];
        if (cpu < NP_MAX_CPUS && nodes >> (np_arena->config.cpu_node[cpu] % 64) & 1) set[cpu / 64] |= 1ull << (cpu % 64);
    }
    return set_affinity(slot, set, true) == 0;
}

/* ---- finding threads ---- */

static struct np_slot *slot_of_tid(pid_t tid) {
    uint64_t high = __atomic_load_n(&np_arena->slots_high, __ATOMIC_ACQUIRE);
    for (uint32_t index = 0; index < high && index < np_arena->slot_count; index++) {
        struct np_slot *slot = np_slot_at(index);
        if (np_load(slot->tid) == (uint32_t)tid && __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) == NP_SLOT_LIVE) return slot;
    }
    return NULL;
}

/* The C library keeps a thread's descriptor, which pthread_t points to, at the top of its stack. */
static struct np_slot *slot_of_pthread(pthread_t thread) {
    if (pthread_equal(thread, pthread_self())) return np_self();
    uint64_t high = __atomic_load_n(&np_arena->slots_high, __ATOMIC_ACQUIRE);
    for (uint32_t index = 0; index < high && index < np_arena->slot_count; index++) {
        struct np_slot *slot = np_slot_at(index);
        bool is_live = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) == NP_SLOT_LIVE && slot->process_index == np_sim.process_index;
        if (is_live && (uintptr_t)thread >= slot->stack_lo && (uintptr_t)thread < slot->stack_hi) return slot;
    }
    return NULL;
}

static void take_set(uint64_t *to, const void *set, size_t bytes) {
    memset(to, 0, NP_MAX_CPUS / 8);
    memcpy(to, set, bytes < NP_MAX_CPUS / 8 ? bytes : NP_MAX_CPUS / 8);
}

/* What a thread may run on; one without a slot, on every CPU. */
static void allowed(const struct np_slot *slot, uint64_t all[NP_MAX_CPUS / 64]) {
    memset(all, 0, NP_MAX_CPUS / 8);
    for (uint32_t i = 0; i < np_cpu_count(); i++) {
        uint32_t cpu = np_arena->config.cpu_order[i];
        if (cpu < NP_MAX_CPUS) all[cpu / 64] |= 1ull << (cpu % 64);
    }
    uint64_t own[NP_MAX_CPUS / 64];
    bool has_own = slot != NULL && np_get_affinity(np_ss((struct np_slot *)(uintptr_t)slot), own);
    for (uint32_t word = 0; has_own && word < NP_MAX_CPUS / 64; word++) all[word] &= own[word];
}

void np_numa_every_cpu(uint64_t cpus[NP_MAX_CPUS / 64]) { allowed(NULL, cpus); }

void np_numa_allowed_cpus(uint64_t cpus[NP_MAX_CPUS / 64]) { allowed(np_self_if_live(), cpus); }

/* The same as the kernel gives it. 0, or an errno value. */
static int give_set(const struct np_slot *slot, void *set, size_t bytes) {
    uint64_t all[NP_MAX_CPUS / 64];
    allowed(slot, all);
    for (size_t at = bytes; at < sizeof all; at++)
        if (((const uint8_t *)all)[at] != 0) return EINVAL;
    memset(set, 0, bytes);
    memcpy(set, all, bytes < sizeof all ? bytes : sizeof all);
    return 0;
}

/* ---- threads begin ---- */

/* Affinities that attributes ask for, as the real ones may name no CPU that this host lacks: thread creation would fail. */
static struct {
    const void *attributes;
    uint64_t set[NP_MAX_CPUS / 64];
} kept[ATTRIBUTES_KEPT];
static uint32_t kept_next;

/* Its position plus one; 0: not there. */
static uint32_t find_kept(const void *attributes) {
    for (uint32_t i = 0; attributes != NULL && i < ATTRIBUTES_KEPT; i++)
        if (__atomic_load_n(&kept[i].attributes, __ATOMIC_ACQUIRE) == attributes) return i + 1;
    return 0;
}

/* What lies at that address from now on are other attributes, which ask for nothing yet. */
static void forget_kept(const void *attributes) {
    uint32_t at = find_kept(attributes);
    if (at != 0) __atomic_store_n(&kept[at - 1].attributes, NULL, __ATOMIC_RELEASE);
}

/* An entry that nobody finds: a free one, else that of the attributes which have been kept longest, as most programs never destroy theirs. */
static uint32_t take_kept(void) {
    static const char taken;
    for (uint32_t i = 0; i < ATTRIBUTES_KEPT; i++) {
        const void *none = NULL;
        if (__atomic_compare_exchange_n(&kept[i].attributes, &none, (const void *)&taken, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return i;
    }
    uint32_t oldest = __atomic_fetch_add(&kept_next, 1, __ATOMIC_RELAXED) % ATTRIBUTES_KEPT;
    __atomic_store_n(&kept[oldest].attributes, (const void *)&taken, __ATOMIC_RELEASE);
    return oldest;
}

bool np_attr_affinity(const void *attributes, uint64_t affinity[NP_MAX_CPUS / 64]) {
    uint32_t at = np_is_simulated() ? find_kept(attributes) : 0;
    if (at != 0) memcpy(affinity, kept[at - 1].set, sizeof kept[at - 1].set);
    return at != 0;
}

static const struct np_slot *live_thread(uint32_t thread_index, const struct np_slot *except) {
    uint64_t high = __atomic_load_n(&np_arena->slots_high, __ATOMIC_ACQUIRE);
    for (uint32_t index = 0; index < high && index < np_arena->slot_count; index++) {
        const struct np_slot *slot = np_slot_at(index);
        if (slot != except && np_load(slot->thread_index) == thread_index && __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) == NP_SLOT_LIVE) return slot;
    }
    return NULL;
}

static void inherit(struct np_slot *slot, const struct np_slot *from) {
    struct np_sim_slot *sim = np_ss(slot), *its = np_ss((struct np_slot *)(uintptr_t)from);
    sim->policy_mode = np_load(its->policy_mode);
    sim->policy_nodes = np_load(its->policy_nodes);
    uint64_t set[NP_MAX_CPUS / 64];
    if (np_get_affinity(its, set)) np_set_affinity(sim, set);
}

void np_numa_thread_start(struct np_slot *slot, const struct np_slot *heir_of, const uint64_t *affinity) {
    if (np_arena->config.mode != NP_MODE_INSTRUMENT || !np_sim.ready) return;
    struct np_sim_slot *sim = np_ss(slot);
    if (heir_of == NULL && slot->parent_thread != NP_NONE32) heir_of = live_thread(slot->parent_thread, slot);
    if (heir_of != NULL) inherit(slot, heir_of);
    if (affinity != NULL) np_set_affinity(sim, affinity);
    uint64_t set[NP_MAX_CPUS / 64];
    uint32_t cpu = np_get_affinity(sim, set) ? choose_cpu(slot, set) : NP_MAX_CPUS;
    if (cpu < NP_MAX_CPUS) np_cpu_put(slot, cpu);
}

/* ---- what programs call ---- */

/* The caller, on the CPU that it was last sent to. */
static struct np_slot *self_where_sent(void) {
    struct np_slot *slot = np_self();
    if (slot != NULL && np_load(np_ss(slot)->moved_to_cpu) != 0 && np_enter(slot)) {
        np_numa_move(slot);
        np_leave(slot);
    }
    return slot;
}

NP_EXPORT int sched_getcpu(void) {
    struct np_slot *slot = np_is_simulated() ? self_where_sent() : NULL;
    return slot != NULL ? (int)slot->cpu : NP_REAL_AS(int (*)(void), sched_getcpu)();
}

NP_EXPORT int getcpu(unsigned *cpu, unsigned *node) {
    struct np_slot *slot = np_is_simulated() ? self_where_sent() : NULL;
    if (slot == NULL) return NP_REAL_AS(int (*)(unsigned *, unsigned *), getcpu)(cpu, node);
    if (cpu != NULL) *cpu = slot->cpu;
    if (node != NULL) *node = slot->node;
    return 0;
}

NP_EXPORT int sched_setaffinity(pid_t pid, size_t bytes, const cpu_set_t *set) {
    if (!np_is_simulated()) return NP_REAL_AS(int (*)(pid_t, size_t, const cpu_set_t *), sched_setaffinity)(pid, bytes, set);
    struct np_slot *self = np_self(), *slot = pid == 0 ? self : slot_of_tid(pid);
    uint64_t wanted[NP_MAX_CPUS / 64];
    take_set(wanted, set, bytes);
    int error = slot == NULL ? (pid == 0 ? 0 : ESRCH) : set_affinity(slot, wanted, slot == self);
    if (error == 0) return 0;
    errno = error;
    return -1;
}

NP_EXPORT int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set) {
    if (!np_is_simulated()) return NP_REAL_AS(int (*)(pid_t, size_t, cpu_set_t *), sched_getaffinity)(pid, bytes, set);
    int error = give_set(pid == 0 ? np_self_if_live() : slot_of_tid(pid), set, bytes);
    if (error == 0) return 0;
    errno = error;
    return -1;
}

long np_numa_get_affinity(pid_t pid, size_t bytes, void *set) {
    if (bytes % sizeof(long) != 0) return -EINVAL;
    int error = give_set(pid == 0 ? np_self_if_live() : slot_of_tid(pid), set, bytes);
    return error != 0 ? -error : (long)(bytes < NP_MAX_CPUS / 8 ? bytes : NP_MAX_CPUS / 8);
}

NP_EXPORT int pthread_setaffinity_np(pthread_t thread, size_t bytes, const cpu_set_t *set) {
    if (!np_is_simulated()) return NP_REAL_AS(int (*)(pthread_t, size_t, const cpu_set_t *), pthread_setaffinity_np)(thread, bytes, set);
    uint64_t wanted[NP_MAX_CPUS / 64];
    take_set(wanted, set, bytes);
    struct np_slot *slot = slot_of_pthread(thread);
    return slot == NULL ? 0 : set_affinity(slot, wanted, pthread_equal(thread, pthread_self()));
}

NP_EXPORT int pthread_getaffinity_np(pthread_t thread, size_t bytes, cpu_set_t *set) {
    if (!np_is_simulated()) return NP_REAL_AS(int (*)(pthread_t, size_t, cpu_set_t *), pthread_getaffinity_np)(thread, bytes, set);
    return give_set(slot_of_pthread(thread), set, bytes);
}

NP_EXPORT int pthread_attr_setaffinity_np(pthread_attr_t *attributes, size_t bytes, const cpu_set_t *set) {
    if (!np_is_simulated())
        return NP_REAL_AS(int (*)(pthread_attr_t *, size_t, const cpu_set_t *), pthread_attr_setaffinity_np)(attributes, bytes, set);
    forget_kept(attributes);
    if (bytes == 0) return 0;
    uint32_t at = take_kept();
    take_set(kept[at].set, set, bytes);
    __atomic_store_n(&kept[at].attributes, (const void *)attributes, __ATOMIC_RELEASE);
    return 0;
}

NP_EXPORT int pthread_attr_init(pthread_attr_t *attributes) {
    forget_kept(attributes);
    return NP_REAL_AS(int (*)(pthread_attr_t *), pthread_attr_init)(attributes);
}

NP_EXPORT int pthread_attr_destroy(pthread_attr_t *attributes) {
    forget_kept(attributes);
    return NP_REAL_AS(int (*)(pthread_attr_t *), pthread_attr_destroy)(attributes);
}

NP_EXPORT int get_nprocs(void) {
    if (np_is_simulated()) return (int)np_cpu_count();
    return NP_REAL_AS(int (*)(void), get_nprocs)();
}

NP_EXPORT int get_nprocs_conf(void) {
    if (np_is_simulated()) return (int)np_cpu_count();
    return NP_REAL_AS(int (*)(void), get_nprocs_conf)();
}

NP_EXPORT long sysconf(int name) {
    if ((name == _SC_NPROCESSORS_ONLN || name == _SC_NPROCESSORS_CONF) && np_is_simulated()) return (long)np_cpu_count();
    return NP_REAL_AS(long (*)(int), sysconf)(name);
}

NP_OWN(getcpu);
NP_OWN(sched_setaffinity);
