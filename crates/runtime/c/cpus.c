/* cpus.c: on which CPU of the simulated machine each thread runs.
 *
 * Spread and pack: thread k (creation order, over all processes) takes cpu_order[k % cpu_count] for life. None: the CPU with
 * the fewest running threads at its start, chosen again at each wake-up that finds the own CPU taken, as a scheduler without
 * affinity would. arena.cpu_load counts running threads per CPU in every mode: where a CPU has several, they share its time
 * (np_share_charge in vtime.c). A process killed from outside leaves its counts behind; the error is bounded by its threads.
 */
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

static void enter(struct np_slot *slot) {
    struct np_vtime_slot *vt = np_vt(slot);
    if (!vt->on_cpu) {
        vt->on_cpu = 1;
        __atomic_fetch_add(&np_arena->cpu_load[slot->cpu], 1, __ATOMIC_RELAXED);
    }
}

/* The first CPU of the layout order with the least load; the thread's own one wins a tie, since caches are warm there. */
static uint32_t idlest(uint32_t own, bool has_own) {
    const struct np_config *config = &np_arena->config;
    uint32_t best = has_own ? own : config->cpu_order[0];
    uint32_t best_load = load_of(best);
    for (uint32_t i = 0; i < config->cpu_count && best_load > 0; i++) {
        uint32_t cpu = config->cpu_order[i];
        if (cpu >= NP_MAX_CPUS) continue;
        uint32_t load = load_of(cpu);
        if (load < best_load) {
            best = cpu;
            best_load = load;
        }
    }
    return best;
}

/* First placement of a thread. Its THREAD_START record, written afterwards, has the CPU. */
void np_cpu_start(struct np_slot *slot) {
    const struct np_config *config = &np_arena->config;
    if (config->cpu_count == 0 || config->cpu_count > NP_MAX_CPUS) return;
    uint32_t cpu = config->bind == NP_BIND_NONE ? idlest(0, false) : config->cpu_order[slot->thread_index % config->cpu_count];
    place(slot, cpu < NP_MAX_CPUS ? cpu : 0);
    enter(slot);
}

/* The thread runs again after a block. */
void np_cpu_wake(struct np_slot *slot) {
    const struct np_config *config = &np_arena->config;
    if (config->cpu_count == 0 || config->cpu_count > NP_MAX_CPUS) return;
    if (config->bind == NP_BIND_NONE && load_of(slot->cpu) > 0) {
        uint32_t cpu = idlest(slot->cpu, true);
        if (cpu != slot->cpu) {
            place(slot, cpu);
            uint64_t *record = np_begin(slot, NP_REC_CPU, slot->cpu, 3, np_order());
            if (record != NULL) {
                record[2] = slot->node;
                np_commit(slot, 3);
            }
        }
    }
    enter(slot);
}

/* The thread blocks or ends. */
void np_cpu_leave(struct np_slot *slot) {
    struct np_vtime_slot *vt = np_vt(slot);
    if (!vt->on_cpu) return;
    vt->on_cpu = 0;
    uint16_t *load = &np_arena->cpu_load[slot->cpu];
    uint16_t seen = __atomic_load_n(load, __ATOMIC_RELAXED);
    while (seen > 0 && !__atomic_compare_exchange_n(load, &seen, seen - 1, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}
