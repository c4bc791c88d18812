/* sample.c: samples of memory accesses, and the exact counts.
 *
 * A thread's memory accesses are cut into blocks of P; of each block one access, uniformly chosen, is sampled, with weight P. Every access thus
 * has the chance 1/P of being sampled, whatever the program's own periods, so sums of weights are unbiased for any group of accesses. P
 * changes only from one block to the next: unbiased too. (The distance of two samples is triangular around P, within (0, 2P).)
 *
 * With --period P is fixed. Otherwise it follows the target rate: the whole program's samples per second of program time, shared equally by the threads
 * that run. It starts small, so that short programs have samples, and doubles or halves at most once in TUNE_SAMPLES samples. */
#include "memsim.h"

#define FIRST_PERIOD 64
#define TUNE_SAMPLES 16

/* Of simulated accesses, each of which stands for line_sampling: a sample's weight has 32 bits. */
static uint64_t max_period(void) { return UINT32_MAX / np_sim.line_sampling; }

/* The block after the current one begins: choose its access. */
static void next_block(struct np_slot *slot) {
    struct np_sim_slot *sim = np_ss(slot);
    uint64_t period = sim->sample_period, at = np_random_below(slot, (uint32_t)period);
    slot->sample_left = sim->sample_rest + at + 1;
    slot->sample_weight = period;
    sim->sample_rest = period - at - 1;
}

void np_sample_start(struct np_slot *slot) {
    struct np_sim_slot *sim = np_ss(slot);
    uint64_t fixed = np_arena->config.sample_period;
    uint64_t wanted = fixed / np_sim.line_sampling + (fixed % np_sim.line_sampling != 0);
    sim->sample_period = fixed == 0 ? FIRST_PERIOD : wanted < max_period() ? wanted : max_period();
    sim->sample_rest = 0;
    sim->tune_clock = np_clock_of(slot);
    next_block(slot);
}

static uint64_t running_threads(void) {
    uint64_t high = __atomic_load_n(&np_arena->slots_high, __ATOMIC_RELAXED), running = 0;
    for (uint32_t index = 0; index < high && index < np_arena->slot_count; index++) {
        const struct np_slot *slot = np_slot_at(index);
        running += __atomic_load_n(&slot->state, __ATOMIC_RELAXED) == NP_SLOT_LIVE &&
                   __atomic_load_n(&slot->run_state, __ATOMIC_RELAXED) == NP_RUN_RUNNING;
    }
    return running != 0 ? running : 1;
}

/* Compares the clock that the last TUNE_SAMPLES samples took with what they should take. */
static void tune(struct np_slot *slot) {
    struct np_sim_slot *sim = np_ss(slot);
    const struct np_config *config = &np_arena->config;
    if (config->sample_period != 0 || ++sim->tune_samples < TUNE_SAMPLES) return;
    uint64_t clock = np_clock_of(slot), took = clock - sim->tune_clock;
    uint64_t rate = config->sample_rate_hz != 0 ? config->sample_rate_hz : 1;
    uint64_t wanted = TUNE_SAMPLES * running_threads() * config->clock_khz * 1000ull / rate;
    uint64_t period = sim->sample_period;
    if (took < wanted / 2) period *= 2;
    else if (took > wanted * 2) period /= 2;
    else period = (period + period * wanted / (took + 1)) / 2;
    sim->sample_period = period < 1 ? 1 : period > max_period() ? max_period() : period;
    sim->tune_clock = clock;
    sim->tune_samples = 0;
}

void np_sample(struct np_slot *slot, uintptr_t address, uint32_t bits, enum np_level level, uint32_t home, const struct np_regs *caller) {
    uint64_t weight = slot->sample_weight * np_sim.line_sampling;
    tune(slot);
    next_block(slot);
    const struct np_sim_slot *sim = np_ss(slot);
    uint64_t page = address >> NP_PAGE_SHIFT;
    if (page - sim->place_page < sim->place_pages) np_place_flush(slot); /* a page's home is known before its accesses */
    uint32_t stack = np_stack_id(slot, *caller);
    uint64_t *words = np_begin(slot, NP_REC_ACCESS, address, 5, np_order());
    if (words == NULL) return;
    words[2] = (bits & 0xf) | (uint64_t)level << NP_ACCESS_LEVEL_SHIFT | (uint64_t)caller->pc << 16;
    words[3] = stack | weight << 32;
    words[4] = (home & 0xffff) | (uint64_t)(slot->cpu & 0xffff) << 16;
    np_commit(slot, 5);
}

void np_counters(struct np_slot *slot, bool force) {
    struct np_sim_slot *sim = np_ss(slot);
    if (!np_sim.ready || np_arena->config.mode != NP_MODE_INSTRUMENT) return;
    uint64_t clock = np_clock_of(slot);
    if (!force && clock < slot->next_counters) return;
    slot->next_counters = clock + np_sim.counters_cycles;
    np_place_flush(slot);
    if (!force && slot->accesses == sim->counted_accesses) return;
    uint32_t nodes = np_arena->config.node_count <= NP_MAX_NODES ? np_arena->config.node_count : NP_MAX_NODES;
    uint64_t *words = np_begin(slot, NP_REC_COUNTERS, slot->thread_index, 13 + nodes, np_order());
    if (words == NULL) return;
    words[2] = sim->counted_accesses = slot->accesses;
    uint64_t scale = np_sim.line_sampling;
    words[3] = slot->l2_lookups * scale;
    words[4] = slot->l3_lookups * scale;
    words[5] = slot->memory_accesses * scale;
    words[6] = slot->cache_transfers * scale;
    words[7] = slot->memory_writes * scale;
    words[8] = slot->wait_cycles;
    words[9] = nodes;
    for (uint32_t node = 0; node < nodes; node++) words[10 + node] = (slot->by_home_written[node] = slot->by_home[node]) * scale;
    words[10 + nodes] = slot->memory_cycles;
    words[11 + nodes] = slot->memory_streamed * scale;
    words[12 + nodes] = slot->memory_dependent * scale;
    np_commit(slot, 13 + nodes);
}
