/* filter.c: the private filter (what a core's L1 and L2 hold) and the way of an access through the simulated memory system.
 *
 * The first-stage filter, which the call-outs look into by themselves, holds a subset of the private filter (and lines of the kernel's zero page): what leaves
 * the latter is taken out of the former too. Races with other threads that take lines away can leave a line in the first stage for longer; it is emptied at
 * every NP_REC_COUNTERS (10 ms of program time), which ends that. */
#include "directory.h"

#include <errno.h>
#include <string.h>

struct np_sim np_sim;

/* A stream is believed after this many lines in a row, and then costs a fraction of the latency per line: the hardware prefetches it. */
#define STREAM_LINES 2
#define STREAM_SHARE 8

/* ---- set-up ---- */

static uint32_t log2_of(uint32_t value) { return value <= 1 ? 0 : 31 - (uint32_t)__builtin_clz(value); }

static void sim_start(uint32_t process_index) {
    const struct np_config *config = &np_arena->config;
    struct np_sim *sim = &np_sim;
    sim->l1_mask = config->l1_lines - 1;
    sim->l2_set_mask = config->l2_sets - 1;
    sim->l2_set_bits = log2_of(config->l2_sets);
    sim->l2_ways = config->l2_ways;
    sim->l2_offset = NP_FILTER_OFFSET + config->l1_lines * 8;
    sim->l3_set_mask = config->l3_sets - 1;
    sim->l3_ways = config->l3_sets != 0 ? config->l3_ways : 0;
    sim->l3_stride = config->l3_sets * config->l3_ways;
    sim->l3 = (uint32_t *)(void *)((char *)np_arena + np_arena->l3_offset);
    sim->directory = (uint64_t *)(void *)((char *)np_arena + np_arena->dir_offset);
    sim->directory_bits = config->dir_entries_log2;
    sim->directory_mask = (1ull << config->dir_entries_log2) - 1;
    sim->l2_cycles = config->l2_cycles;
    sim->l3_cycles = config->l3_cycles;
    uint32_t sampling = config->line_sampling;
    sim->line_sampling = sampling >= 1 && sampling <= 64 && (sampling & (sampling - 1)) == 0 ? sampling : 1;
    /* Of lines chosen at random, the next in a row is rarely more than four mean distances away. */
    sim->stream_reach = sim->line_sampling == 1 ? 1 : 4 * sim->line_sampling;
    sim->core_window = config->core_window;
    sim->core_misses = config->core_misses != 0 ? config->core_misses : 1;
    sim->counters_cycles = (uint64_t)config->clock_khz * 10;
    sim->memory_nodes = 0;
    for (uint32_t node = 0; node < config->node_count && node < NP_MAX_NODES; node++)
        if (config->node_has_memory[node]) sim->memory_node[sim->memory_nodes++] = (uint8_t)node;
    sim->process_index = process_index;
    sim->process_tag = process_index % 15 + 1;
    np_store(sim->concurrent, 0);
    __atomic_store_n(&sim->ready, np_arena->filter_offset == NP_FILTER_OFFSET && sim->l2_ways != 0 && sim->l2_ways <= 16, __ATOMIC_RELEASE);
}

/* By words: the owner looks at its entries while others clear them. */
static void clear_stage_one(struct np_slot *slot) {
    uint64_t *entries = (uint64_t *)(void *)((char *)slot + NP_FILTER_OFFSET);
    for (uint32_t i = 0; i <= np_sim.l1_mask; i++) np_store(entries[i], 0);
}

static void filter_clear(struct np_slot *slot) {
    clear_stage_one(slot);
    uint32_t *tags = np_private_set(slot, 0);
    for (size_t i = 0; i < (size_t)(np_sim.l2_set_mask + 1) * np_sim.l2_ways; i++) np_store(tags[i], 0);
}

void np_filter_thread_start(struct np_slot *slot) {
    if (np_load(np_arena) == NULL || np_arena->config.mode != NP_MODE_INSTRUMENT) return;
    if (!np_sim.ready || np_sim.process_index != slot->process_index) sim_start(slot->process_index);
    else __atomic_store_n(&np_sim.concurrent, 1, __ATOMIC_SEQ_CST);
    if (!np_sim.ready) return;
    struct np_sim_slot *sim = np_ss(slot);
    sim->slot_index = (uint32_t)(((uint64_t)((char *)slot - (char *)np_arena) - np_arena->slots_offset) / np_arena->slot_bytes);
    sim->sharer_bit = sim->slot_index % 26;
    np_store(slot->l1_mask, np_sim.l1_mask);
    slot->line_mask = np_sim.line_sampling - 1;
    slot->line_pick = (uint32_t)np_mix(np_arena->config.seed) & slot->line_mask;
    if (slot->rng == 0) slot->rng = 1;
    slot->next_counters = 0;
    filter_clear(slot);
    np_sample_start(slot);
}

void np_filter_hold_for_reading(struct np_slot *slot) {
    uint64_t *entries = (uint64_t *)(void *)((char *)slot + NP_FILTER_OFFSET);
    for (uint32_t i = 0; i <= np_sim.l1_mask; i++) {
        uint64_t seen = np_load(entries[i]);
        if (seen & 1) __atomic_compare_exchange_n(&entries[i], &seen, seen & ~1ull, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    }
}

void np_filter_poke(struct np_slot *slot) {
    if (!np_sim.ready) return;
    /* With one entry left in use, and that empty, nearly every look-up misses; miss() puts the mask back. */
    __atomic_store_n((uint64_t *)(void *)((char *)slot + NP_FILTER_OFFSET), 0, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->l1_mask, 0, __ATOMIC_RELEASE);
}

/* ---- lines leave ---- */

/* Takes the line out of the first stage, or only its writable bit. */
static inline void stage_one_cut(struct np_slot *slot, uintptr_t line, bool keep) {
    uint64_t *entry = np_stage_one(slot, line);
    uint64_t seen = __atomic_load_n(entry, __ATOMIC_RELAXED);
    if (seen >> 1 == line) __atomic_compare_exchange_n(entry, &seen, keep ? seen & ~1ull : 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static inline bool filter_cut(struct np_slot *owner, uintptr_t line, bool keep) {
    uint32_t want = np_private_tag(line), *set = np_private_set(owner, line);
    uint32_t found = np_find_tag(set, np_sim.l2_ways, want, 1);
    bool present = false;
    if (found != 0) {
        uint32_t *tag = set + __builtin_ctz(found), seen = __atomic_load_n(tag, __ATOMIC_RELAXED);
        while ((seen & ~1u) == want && !present)
            present = __atomic_compare_exchange_n(tag, &seen, keep ? want : 0, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
    }
    stage_one_cut(owner, line, keep);
    return present;
}

bool np_filter_drop(struct np_slot *owner, uintptr_t line) { return filter_cut(owner, line, false); }

bool np_filter_downgrade(struct np_slot *owner, uintptr_t line) { return filter_cut(owner, line, true); }

/* Takes out the lines whose numbers above the set's are from `high` to before `end`, of which all that lies above a tag is the same: then what tags have
 * folded in is one value, without which they are in the order of their lines. */
static void drop_tags(struct np_slot *owner, uint64_t high, uint64_t end) {
    uint32_t fold = np_tag_fold(high), low = (uint32_t)high & NP_TAG_MASK, count = (uint32_t)(end - high), *tags = np_private_set(owner, 0);
    bool has_zero = ((fold - low) & NP_TAG_MASK) < count; /* the range has the line of tag 0, which is kept as 1 */
    for (uint32_t way = 0; way < (np_sim.l2_set_mask + 1) * np_sim.l2_ways; way++) {
        uint32_t tag = np_load(tags[way]) >> 1;
        if (tag != 0 && ((((tag ^ fold) - low) & NP_TAG_MASK) < count || (tag == 1 && has_zero))) np_store(tags[way], 0);
    }
}

void np_filter_drop_range(struct np_slot *owner, uintptr_t address, size_t bytes) {
    uintptr_t first = address >> NP_LINE_SHIFT, last = (address + bytes - 1) >> NP_LINE_SHIFT;
    uint32_t sets = np_sim.l2_set_mask + 1;
    if (last - first < sets) {
        for (uintptr_t line = first; line <= last; line++) {
            filter_cut(owner, line, false);
            stage_one_cut(owner, line >> (NP_PAGE_SHIFT - NP_LINE_SHIFT) | NP_PAGE_KEY, false);
        }
        return;
    }
    /* Longer than the filter has sets: every set holds some of its lines, so compare every tag with the range's tags. */
    uint64_t high = first >> np_sim.l2_set_bits, end = (last >> np_sim.l2_set_bits) + 1;
    while (high < end) {
        uint64_t stop = ((high >> NP_TAG_BITS) + 1) << NP_TAG_BITS;
        if (stop > end) stop = end;
        drop_tags(owner, high, stop);
        high = stop;
    }
    clear_stage_one(owner);
}

/* A way for a new line in the set: an empty one, or a random one whose line leaves. */
static inline uint32_t *filter_way(struct np_slot *slot, uint32_t *set, uint32_t empty, uint32_t random, uintptr_t line) {
    if (np_unlikely(empty != 0)) return set + __builtin_ctz(empty);
    uint32_t *way = set + ((uint64_t)random * np_sim.l2_ways >> 32);
    /* The first stage is indexed by low bits of the line, which tag and set have exactly. */
    uint32_t tag = np_load(*way);
    uint64_t victim = (uint64_t)(tag >> 1) << np_sim.l2_set_bits | (line & np_sim.l2_set_mask);
    uint64_t *entry = np_stage_one(slot, victim);
    uint64_t held = np_load(*entry) >> 1;
    if (np_unlikely(((held ^ line) & np_sim.l2_set_mask) == 0) && np_private_tag(held) == (tag & ~1u)) np_store(*entry, 0);
    return way;
}

/* ---- time ---- */

/* True when the line continues a stream of lines upwards or downwards that has run for a while. */
static inline bool is_streamed(struct np_sim_slot *sim, uintptr_t line) {
    uint32_t low = (uint32_t)line, near = 0, reach = np_sim.stream_reach;
#if defined(__SSE2__)
    /* Distance plus reach is from 0 to twice the reach. */
    const __m128i next = _mm_set1_epi32((int)(low + reach)), minus_one = _mm_set1_epi32(-1), end = _mm_set1_epi32((int)(2 * reach + 1));
    const __m128i *lines = (const __m128i *)(const void *)sim->stream_line;
    __m128i a = _mm_sub_epi32(next, _mm_loadu_si128(lines)), b = _mm_sub_epi32(next, _mm_loadu_si128(lines + 1));
    __m128i small_a = _mm_and_si128(_mm_cmpgt_epi32(a, minus_one), _mm_cmplt_epi32(a, end));
    __m128i small_b = _mm_and_si128(_mm_cmpgt_epi32(b, minus_one), _mm_cmplt_epi32(b, end));
    near = (uint32_t)_mm_movemask_ps(_mm_castsi128_ps(small_a)) | (uint32_t)_mm_movemask_ps(_mm_castsi128_ps(small_b)) << 4;
#else
    for (uint32_t i = 0; i < NP_STREAMS; i++) near |= (uint32_t)(low - sim->stream_line[i] + reach <= 2 * reach) << i;
#endif
    if (near == 0) {
        uint32_t oldest = sim->stream_next++ % NP_STREAMS;
        sim->stream_line[oldest] = low;
        sim->stream_run[oldest] = 0;
        return false;
    }
    uint32_t i = (uint32_t)__builtin_ctz(near);
    bool believed = sim->stream_run[i] >= STREAM_LINES;
    sim->stream_run[i] = (uint8_t)(sim->stream_run[i] + (!believed && low != sim->stream_line[i]));
    sim->stream_line[i] = low;
    return believed;
}

static NP_COLD void tick(struct np_slot *slot) {
    clear_stage_one(slot);
    np_counters(slot, false);
}

/* ---- the way of an access ---- */

/* The line was not in the private filter. Returns the latency in cycles. */
static inline uint32_t private_miss(struct np_slot *slot, uintptr_t address, uint32_t bits, uint32_t home, uint64_t *entry, struct np_l3_place place,
                                    uint32_t *set, uint32_t empty, const struct np_regs *caller) {
    uintptr_t line = address >> NP_LINE_SHIFT;
    uint32_t write = bits & NP_ACC_WRITE;
    slot->l3_lookups++;
    uint64_t random = np_random(slot);
    uint32_t *way = filter_way(slot, set, empty, (uint32_t)random, line);
    uint32_t tag = np_private_tag(line) | write;
    __atomic_store_n(way, tag, __ATOMIC_RELAXED);
    __atomic_store_n(np_stage_one(slot, line), line << 1 | write, __ATOMIC_RELAXED);
    struct np_holder holder = write ? np_directory_write(slot, line, entry) : np_directory_read(slot, line, entry);
    if (holder.mine && !write) {
        uint32_t seen = tag;
        if (__atomic_compare_exchange_n(way, &seen, tag | 1, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
            np_store(*np_stage_one(slot, line), line << 1 | 1);
    }
    bool in_l3 = np_sim.l3_ways != 0 && np_l3_access(place, (uint32_t)(random >> 32));
    bool near = holder.dirty != NULL && np_sim.l3_ways != 0 && np_load(holder.dirty->l3_index) == slot->l3_index;
    if (near || (holder.dirty == NULL && in_l3)) return np_sim.l3_cycles;
    enum np_level level = holder.dirty != NULL ? NP_LEVEL_PEER_CACHE : NP_LEVEL_MEMORY;
    slot->memory_accesses++;
    if (np_likely(home != NP_HOME_UNKNOWN)) slot->by_home[home]++;
    slot->memory_writes += write;
    slot->cache_transfers += level == NP_LEVEL_PEER_CACHE;
    if (np_unlikely(--slot->sample_left == 0)) np_sample(slot, address, bits, level, home, caller);
    uint32_t from = home != NP_HOME_UNKNOWN ? home : slot->node;
    if (level == NP_LEVEL_PEER_CACHE) from = np_load(holder.dirty->node);
    return np_arena->config.memory_latency_cycles[slot->node % NP_MAX_NODES][from % NP_MAX_NODES];
}

/* A write to a line that is held, but not writable: all other holders give it up. */
static inline uint32_t upgrade(struct np_slot *slot, uintptr_t line, uint64_t *entry, uint32_t *way, uint32_t tag) {
    struct np_holder holder = np_directory_write(slot, line, entry);
    uint32_t seen = tag;
    /* Taken away meanwhile: then the next access misses, as it should. */
    if (__atomic_compare_exchange_n(way, &seen, tag | 1, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        __atomic_store_n(np_stage_one(slot, line), line << 1 | 1, __ATOMIC_RELAXED);
    if (holder.far == NULL && holder.dirty == NULL) return np_sim.l2_cycles;
    const struct np_slot *other = holder.far != NULL ? holder.far : holder.dirty;
    if (np_sim.l3_ways != 0 && np_load(other->l3_index) == slot->l3_index) return np_sim.l3_cycles;
    return np_arena->config.memory_latency_cycles[slot->node % NP_MAX_NODES][np_load(other->node) % NP_MAX_NODES];
}

/* Ends what np_filter_poke began, a request to check this thread's clock, or to move to another CPU. While every access is checked (overlap.c), it ends with
 * that. */
static inline void unpoke(struct np_slot *slot) {
    if (np_likely(np_load(slot->l1_mask) == np_sim.l1_mask) || np_ss(slot)->overlap.line != 0) return;
    np_store(slot->l1_mask, np_sim.l1_mask);
    __atomic_store_n(&slot->next_throttle, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_ACQUIRE); /* pairs with the poke's release: whoever poked to have this thread moved has said where to */
    if (np_unlikely(np_load(np_ss(slot)->moved_to_cpu) != 0)) np_numa_move(slot);
}

/* A line that is not simulated: only its page's first touch matters. A page that was only read, and has no home, is not held for writing: its first
 * write must be seen. */
static inline void access_page(struct np_slot *slot, uintptr_t address, uint32_t bits, uint64_t key) {
    uint32_t home = np_page_home(slot, address, bits & NP_ACC_WRITE);
    __atomic_store_n(np_stage_one(slot, key), key << 1 | (home != NP_HOME_NONE), __ATOMIC_RELAXED);
}

static inline void simulate(struct np_slot *slot, uintptr_t address, uint32_t bits, const struct np_regs *caller) {
    uintptr_t line = address >> NP_LINE_SHIFT;
    uint64_t key = np_key_of(address, slot->line_mask, slot->line_pick);
    unpoke(slot); /* first: it may move the thread, to another L3 */
    if (key != line) {
        access_page(slot, address, bits, key);
        return;
    }
    __builtin_prefetch((const void *)address); /* what the program is about to wait for */
    uint64_t *entry = np_directory_entry(line);
    struct np_l3_place place = np_l3_place(slot->l3_index, line);
    __builtin_prefetch(entry, 1);
    __builtin_prefetch(place.set, 1);
    slot->l2_lookups++;
    bool streamed = is_streamed(np_ss(slot), line);
    uint32_t *set = np_private_set(slot, line), want = np_private_tag(line);
    struct np_ways ways = np_find_ways(set, np_sim.l2_ways, want, 1);
    uint32_t latency;
    if (ways.found != 0) {
        uint32_t *way = set + __builtin_ctz(ways.found), tag = __atomic_load_n(way, __ATOMIC_RELAXED);
        if ((bits & NP_ACC_WRITE) && !(tag & 1)) {
            latency = upgrade(slot, line, entry, way, want);
        } else {
            __atomic_store_n(np_stage_one(slot, line), line << 1 | (tag & 1), __ATOMIC_RELAXED);
            latency = np_sim.l2_cycles;
        }
    } else {
        uint64_t before = slot->memory_accesses;
        uint32_t home = np_page_home(slot, address, bits & NP_ACC_WRITE);
        /* Reads of memory that was never written all read one page of the kernel's, which caches hold: the first stage holds the line, for reading, and the
         * private filter does not, so that the first write comes here and gives the page its home. */
        if (np_unlikely(home == NP_HOME_NONE)) {
            latency = np_sim.l2_cycles;
            __atomic_store_n(np_stage_one(slot, line), line << 1, __ATOMIC_RELAXED);
        } else latency = private_miss(slot, address, bits, home, entry, place, set, ways.empty, caller);
        if (slot->memory_accesses != before) {
            latency = streamed ? latency / STREAM_SHARE : np_overlap_charge(slot, address, bits, latency);
            slot->memory_cycles += (uint64_t)latency * np_sim.line_sampling;
            slot->memory_streamed += streamed;
            np_add(slot->stall_cycles, (uint64_t)latency * np_sim.line_sampling);
            return;
        }
    }
    uint64_t stall = (uint64_t)(streamed ? latency / STREAM_SHARE : latency) * np_sim.line_sampling;
    np_add(slot->stall_cycles, stall);
}

/* A page that another process may have, too, or a file, is held for reading only, line by line: its first write must be seen. */
static NP_COLD void after_read_of_marked(struct np_slot *slot, uintptr_t address) {
    if (!np_page_is_marked(address)) return;
    uint64_t key = np_key_of(address, slot->line_mask, slot->line_pick), *entry = np_stage_one(slot, key), seen = np_load(*entry);
    if (seen >> 1 == key) np_store(*entry, key << 1);
}

static inline void access_line(struct np_slot *slot, uintptr_t address, uint32_t bits, const struct np_regs *caller) {
    uint32_t write = bits & NP_ACC_WRITE;
    if (write && np_unlikely(np_may_be_marked(address))) {
        unpoke(slot); /* first: it may move the thread, to another node */
        np_page_written(slot, address);
    }
    simulate(slot, address, bits, caller);
    if (!write && np_unlikely(np_may_be_marked(address))) after_read_of_marked(slot, address); /* asked anew: this access may be what it was marked for */
}

static inline void after_access(struct np_slot *slot) {
    uint64_t clock = np_clock_of(slot);
    if (np_unlikely(clock >= slot->next_counters)) tick(slot);
    slot->in_hook = 0;
    if (np_unlikely(clock >= __atomic_load_n(&slot->next_throttle, __ATOMIC_RELAXED))) np_throttle(slot);
}

/* While a leader is followed (overlap.c), accesses come here that the first stage holds; they have cost nothing, and cost nothing. */
static NP_COLD void followed_access(struct np_slot *slot, uintptr_t address, uint32_t bits, const struct np_regs *caller) {
    bool comes_by_pointer = np_overlap_follows(slot, address, bits);
    uint64_t key = np_key_of(address, slot->line_mask, slot->line_pick), held = np_load(*np_stage_one(slot, key));
    bool hits = (bits & NP_ACC_WRITE) ? held == (key << 1 | 1) : held >> 1 == key;
    uint64_t before = slot->memory_accesses;
    if (!hits) access_line(slot, address, bits, caller);
    if (comes_by_pointer && key == address >> NP_LINE_SHIFT) np_overlap_followed(slot, slot->memory_accesses != before);
}

/* A signal handler that comes into the middle of one of our hooks has its accesses counted as work, and not simulated. */
void np_access_miss(struct np_slot *slot, uintptr_t address, uint32_t bits, struct np_regs caller) {
    if (np_unlikely(np_is_guarded(slot) || !np_sim.ready)) return;
    np_guard(slot);
    if (np_unlikely(np_ss(slot)->overlap.line != 0)) followed_access(slot, address, bits, &caller);
    else access_line(slot, address, bits, &caller);
    after_access(slot);
}

void np_access_range(struct np_slot *slot, uintptr_t address, size_t bytes, uint32_t bits, struct np_regs caller) {
    if (bytes == 0 || address + bytes < address) return;
    np_add(slot->accesses, 1 + (bytes >> 5));
    if (np_unlikely(np_is_guarded(slot) || !np_sim.ready)) return;
    uintptr_t last = (address + bytes - 1) >> NP_LINE_SHIFT;
    np_guard(slot);
    for (uintptr_t line = address >> NP_LINE_SHIFT; line <= last; line++) {
        uint64_t key = np_key_of(line << NP_LINE_SHIFT, slot->line_mask, slot->line_pick), held = np_load(*np_stage_one(slot, key));
        if ((bits & NP_ACC_WRITE) ? held == (key << 1 | 1) : held >> 1 == key) continue;
        uintptr_t first = line << NP_LINE_SHIFT;
        access_line(slot, first < address ? address : first, bits | NP_ACC_RANGE, &caller);
        if (np_unlikely((line & 511) == 511)) { /* a long block must not run far ahead of the other threads */
            after_access(slot);
            np_guard(slot);
        }
    }
    after_access(slot);
}
