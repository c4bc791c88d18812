/* cpus.c: on which CPU of the simulated machine each thread runs.
 *
 * Spread and pack: thread k (creation order, over all processes) takes cpu_order[k % cpu_count] for life. None: the CPU with
 * the fewest running threads at its start, as a scheduler without affinity would choose. A thread with an affinity set has the same
 * freedom within its set, however the others are bound. Who is free to move takes the idlest CPU at each wake-up that finds its own one
 * taken (select_idle_sibling of Linux's kernel/sched/fair.c), and leaves a CPU that it shares for one with fewer threads (its
 * load balancing, which a CPU that runs out of work starts at once).
 *
 * arena.cpu_load counts running threads per CPU in every mode: where a CPU has several, they share its time (np_share_charge in vtime.c).
 * Two threads that wake at once may choose one CPU, as on Linux; the next charge parts them. Threads that end without a word (exec,
 * the end of their process, a kill) are taken off their CPUs by who notices: the new image, the thread that ends the process, and, once the recorder has
 * freed the slot, the next thread that starts.
 */
#include "memsim.h"
#include "vtime.h"

static void place(struct np_slot *slot, uint32_t cpu) {
    const struct np_config *config = &np_arena->config;
    np_store(slot->cpu, cpu);
    np_store(slot->node, config->cpu_node[cpu]);
    np_store(slot->l3_index, config->cpu_l3[cpu]);
}

static uint32_t load_of(uint32_t cpu) {
    return __atomic_load_n(&np_arena->cpu_load[cpu], __ATOMIC_RELAXED);
}

static void take(uint32_t cpu) { __atomic_fetch_add(&np_arena->cpu_load[cpu], 1, __ATOMIC_RELAXED); }

/* Never below 0, whatever threads did that are no more. */
static void give_up(uint32_t cpu) {
    uint16_t *load = &np_arena->cpu_load[cpu];
    uint16_t seen = __atomic_load_n(load, __ATOMIC_RELAXED);
    while (seen > 0 && !__atomic_compare_exchange_n(load, &seen, seen - 1, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

/* Counted first: whoever takes the thread off its CPU meanwhile finds nothing to take. */
static void enter(struct np_slot *slot) {
    struct np_vtime_slot *vt = np_vt(slot);
    if (np_load(vt->on_cpu) != 0) return;
    take(slot->cpu);
    __atomic_store_n(&vt->on_cpu, slot->cpu + 1, __ATOMIC_RELEASE);
}

uint32_t np_cpu_idlest(const uint64_t *set, uint32_t own) {
    const struct np_config *config = &np_arena->config;
    bool has_own = own < NP_MAX_CPUS && (set == NULL || np_in_cpu_set(set, own));
    uint32_t best = has_own ? own : NP_MAX_CPUS, best_load = has_own ? load_of(own) : UINT32_MAX;
    for (uint32_t i = 0; i < np_cpu_count() && best_load > 0; i++) {
        uint32_t cpu = config->cpu_order[i];
        if (cpu >= NP_MAX_CPUS || (set != NULL && !np_in_cpu_set(set, cpu))) continue;
        uint32_t load = load_of(cpu);
        if (load >= best_load) continue;
        best = cpu;
        best_load = load;
    }
    return best;
}

void np_cpu_put(struct np_slot *slot, uint32_t cpu) {
    if (cpu == slot->cpu || cpu >= NP_MAX_CPUS) return;
    uint32_t was = __atomic_exchange_n(&np_vt(slot)->on_cpu, 0, __ATOMIC_ACQ_REL);
    if (was != 0) {
        take(cpu);
        give_up(was - 1);
    }
    place(slot, cpu);
    if (was != 0) __atomic_store_n(&np_vt(slot)->on_cpu, cpu + 1, __ATOMIC_RELEASE);
}

void np_cpu_move(struct np_slot *slot, uint32_t cpu) {
    if (cpu == slot->cpu || cpu >= NP_MAX_CPUS) return;
    np_cpu_put(slot, cpu);
    uint64_t *record = np_begin(slot, NP_REC_CPU, slot->cpu, 3, np_order());
    if (record == NULL) return;
    record[2] = slot->node;
    np_commit(slot, 3);
}

/* The idlest CPU among those between which the thread moves by itself; NP_MAX_CPUS: it stays where it is. */
static uint32_t better_cpu(struct np_slot *slot) {
    uint64_t set[NP_MAX_CPUS / 64];
    if (np_get_affinity(np_ss(slot), set)) return np_cpu_idlest(set, slot->cpu);
    return np_arena->config.bind == NP_BIND_NONE ? np_cpu_idlest(NULL, slot->cpu) : NP_MAX_CPUS;
}

/* Threads that were killed: the recorder frees their slots when the system knows them no more. Claimed for the moment, so that nobody begins in it. */
static void sweep(void) {
    uint64_t high = __atomic_load_n(&np_arena->slots_high, __ATOMIC_ACQUIRE);
    for (uint64_t index = 0; index < high && index < np_arena->slot_count; index++) {
        struct np_slot *slot = np_slot_at(index);
        uint32_t expected = NP_SLOT_FREE;
        if (__atomic_load_n(&slot->state, __ATOMIC_RELAXED) != NP_SLOT_FREE || !np_vtime_counts(slot)) continue;
        if (!__atomic_compare_exchange_n(&slot->state, &expected, NP_SLOT_CLAIMED, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) continue;
        np_vtime_abandoned(slot);
        __atomic_store_n(&slot->state, NP_SLOT_FREE, __ATOMIC_RELEASE);
    }
}

/* First placement of a thread. Its THREAD_START record, written afterwards, has the CPU. */
void np_cpu_start(struct np_slot *slot) {
    const struct np_config *config = &np_arena->config;
    if (config->cpu_count == 0 || config->cpu_count > NP_MAX_CPUS) return;
    sweep();
    uint32_t cpu = config->bind == NP_BIND_NONE ? np_cpu_idlest(NULL, NP_MAX_CPUS) : config->cpu_order[slot->thread_index % config->cpu_count];
    place(slot, cpu < NP_MAX_CPUS ? cpu : 0);
    enter(slot);
}

/* The thread runs again after a block, or after it was found asleep. Unless it counts already, any load on its own CPU is another's. */
void np_cpu_wake(struct np_slot *slot) {
    const struct np_config *config = &np_arena->config;
    if (config->cpu_count == 0 || config->cpu_count > NP_MAX_CPUS) return;
    if (!np_load(np_vt(slot)->started)) return; /* its process is about to end */
    if (np_load(np_vt(slot)->on_cpu) == 0 && load_of(slot->cpu) > 0) np_cpu_move(slot, better_cpu(slot));
    enter(slot);
}

void np_cpu_balance(struct np_slot *slot) {
    uint32_t load = np_load(np_vt(slot)->on_cpu) != 0 ? load_of(slot->cpu) : 0;
    uint32_t cpu = load < 2 ? NP_MAX_CPUS : better_cpu(slot);
    if (cpu < NP_MAX_CPUS && load_of(cpu) + 1 < load) np_cpu_move(slot, cpu);
}

/* The thread blocks or ends; by itself, or by who knows it. */
void np_cpu_leave(struct np_slot *slot) {
    uint32_t was = __atomic_exchange_n(&np_vt(slot)->on_cpu, 0, __ATOMIC_ACQ_REL);
    if (was != 0) give_up(was - 1);
}
