/* pages.c: each page's home node.
 *
 * A table of the process in two levels: 2^17 leaves of 2^18 pages (1 GiB of addresses), a byte per page, leaves mapped when needed, no locks. A
 * page gets its home at the first access that leaves a private filter (its first touch, as the filters give up lines of pages that are forgotten):
 * by the policy of its range,
 * else of the thread, else of the recording, else the node of the thread, or the nearest node with memory. A forked child inherits the table as it inherits
 * memory. Pages shared between processes (MAP_SHARED) have a home per process: a limit of the model.
 *
 * NP_REC_PLACE is held back while the same thread goes on placing the next page on the same node: one record per run. */
#include "memsim.h"

/* memory.c: zeroed memory of our own, by system calls that nobody records. */
NP_HIDDEN void *np_pages_new(size_t bytes);
NP_HIDDEN void np_pages_free(void *pages, size_t bytes);

#define LEAF_PAGES (1ull << NP_LEAF_BITS)

/* A page's byte: 0 no home yet; 1 to 64 home + 1; 65 to 128 no home yet, policy says node + 65; 129 no home yet, policy says the toucher's node. */
#define BYTE_HOME NP_PAGE_HOME
#define BYTE_POLICY NP_PAGE_POLICY
#define BYTE_LOCAL 129

/* As in <linux/mempolicy.h>. */
enum { POLICY_DEFAULT, POLICY_PREFERRED, POLICY_BIND, POLICY_INTERLEAVE, POLICY_LOCAL, POLICY_PREFERRED_MANY, POLICY_WEIGHTED_INTERLEAVE };

#define RUN_PAGES_MAX 64

#ifndef NP_PLUGIN
uint8_t *np_leaves[NP_LEAVES];
#endif

static NP_COLD uint8_t *new_leaf(uint8_t **where) {
    uint8_t *leaf = np_pages_new(LEAF_PAGES), *seen = NULL;
    if (leaf == NULL) return NULL;
    if (__atomic_compare_exchange_n(where, &seen, leaf, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return leaf;
    np_pages_free(leaf, LEAF_PAGES);
    return seen;
}

/* The page's byte. NULL: not a user-space address, or no memory for a leaf. */
static inline uint8_t *byte_of(uint64_t page, bool make) {
    if (np_unlikely(page >> NP_LEAF_BITS >= NP_LEAVES)) return NULL;
    uint8_t **where = &np_leaves[page >> NP_LEAF_BITS], *leaf = __atomic_load_n(where, __ATOMIC_ACQUIRE);
    if (np_unlikely(leaf == NULL)) {
        if (!make) return NULL;
        leaf = new_leaf(where);
        if (leaf == NULL) return NULL;
    }
    return leaf + (page & (LEAF_PAGES - 1));
}

/* ---- records ---- */

void np_place_flush(struct np_slot *slot) {
    struct np_sim_slot *sim = np_ss(slot);
    if (sim->place_pages == 0) return;
    uint64_t *words = np_begin(slot, NP_REC_PLACE, sim->place_page << NP_PAGE_SHIFT, 3, sim->place_order);
    if (words != NULL) {
        words[2] = sim->place_pages | (uint64_t)sim->place_node << 32 | (uint64_t)sim->place_cause << 48;
        np_commit(slot, 3);
    }
    sim->place_pages = 0;
}

static void place(struct np_slot *slot, uint64_t page, uint32_t node, uint32_t cause) {
    struct np_sim_slot *sim = np_ss(slot);
    bool goes_on = sim->place_pages != 0 && sim->place_pages < RUN_PAGES_MAX && page == sim->place_page + sim->place_pages &&
                   node == sim->place_node && cause == sim->place_cause;
    if (!goes_on) {
        np_place_flush(slot);
        sim->place_page = page;
        sim->place_node = node;
        sim->place_cause = cause;
    }
    sim->place_pages++;
    sim->place_order = np_order();
}

/* ---- choosing a node ---- */

static uint32_t nearest_with_memory(uint32_t node) {
    const struct np_config *config = &np_arena->config;
    if (node >= config->node_count || node >= NP_MAX_NODES) return np_sim.memory_nodes != 0 ? np_sim.memory_node[0] : 0;
    if (config->node_has_memory[node]) return node;
    for (uint32_t i = 0; i < config->node_count; i++)
        if (config->node_has_memory[config->node_order[node][i]]) return config->node_order[node][i];
    return np_sim.memory_nodes != 0 ? np_sim.memory_node[0] : 0;
}

/* The nodes of `mask` that exist and have memory; all of them if there is none. */
static uint64_t usable(uint64_t mask) {
    uint64_t result = 0, all = 0;
    for (uint32_t i = 0; i < np_sim.memory_nodes; i++) {
        uint64_t bit = 1ull << np_sim.memory_node[i];
        all |= bit;
        result |= mask & bit;
    }
    return result != 0 ? result : all;
}

static uint32_t nth_node(uint64_t mask, uint64_t n) {
    n %= (uint32_t)__builtin_popcountll(mask);
    while (n-- > 0) mask &= mask - 1;
    return (uint32_t)__builtin_ctzll(mask);
}

/* The node of a set that is nearest to `from`. */
static uint32_t nearest_of(uint64_t mask, uint32_t from) {
    const struct np_config *config = &np_arena->config;
    if (from < NP_MAX_NODES && mask >> from & 1) return from;
    for (uint32_t i = 0; from < NP_MAX_NODES && i < config->node_count; i++)
        if (mask >> config->node_order[from][i] & 1) return config->node_order[from][i];
    return (uint32_t)__builtin_ctzll(mask);
}

static uint32_t choose(struct np_slot *slot, uint64_t page, uint32_t byte, uint32_t *cause) {
    struct np_sim_slot *sim = np_ss(slot);
    *cause = NP_PLACED_POLICY;
    if (byte >= BYTE_POLICY && byte < BYTE_LOCAL) return nearest_with_memory(byte - BYTE_POLICY);
    if (byte != BYTE_LOCAL) {
        if (sim->policy_mode == POLICY_INTERLEAVE || sim->policy_mode == POLICY_WEIGHTED_INTERLEAVE)
            return nth_node(usable(sim->policy_nodes), sim->policy_turn++);
        if (sim->policy_mode == POLICY_PREFERRED || sim->policy_mode == POLICY_BIND || sim->policy_mode == POLICY_PREFERRED_MANY)
            return nearest_of(usable(sim->policy_nodes), slot->node);
        if (sim->policy_mode == POLICY_DEFAULT && np_arena->config.placement == NP_PLACE_INTERLEAVE && np_sim.memory_nodes != 0)
            return np_sim.memory_node[page % np_sim.memory_nodes];
    }
    *cause = NP_PLACED_FIRST_TOUCH;
    return nearest_with_memory(slot->node);
}

static NP_COLD uint32_t first_touch(struct np_slot *slot, uint64_t page, uint8_t *byte, uint8_t seen) {
    uint32_t cause, node = choose(slot, page, seen, &cause);
    if (!__atomic_compare_exchange_n(byte, &seen, (uint8_t)(node + BYTE_HOME), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return seen >= BYTE_HOME && seen < BYTE_POLICY ? (uint32_t)seen - BYTE_HOME : node;
    place(slot, page, node, cause);
    return node;
}

uint32_t np_page_home_slow(struct np_slot *slot, uintptr_t address) {
    uint64_t page = address >> NP_PAGE_SHIFT;
    uint8_t *byte = byte_of(page, true);
    if (np_unlikely(byte == NULL)) return nearest_with_memory(slot->node);
    uint8_t seen = __atomic_load_n(byte, __ATOMIC_RELAXED);
    if (np_likely(seen - BYTE_HOME < BYTE_POLICY - BYTE_HOME && seen != 0)) return seen - BYTE_HOME;
    return first_touch(slot, page, byte, seen);
}

int np_page_query(uintptr_t address) {
    uint8_t *byte = byte_of(address >> NP_PAGE_SHIFT, false);
    uint8_t seen = byte == NULL ? 0 : __atomic_load_n(byte, __ATOMIC_RELAXED);
    return seen >= BYTE_HOME && seen < BYTE_POLICY ? seen - BYTE_HOME : -1;
}

bool np_page_move(struct np_slot *slot, uintptr_t address, uint32_t node) {
    uint8_t *byte = byte_of(address >> NP_PAGE_SHIFT, false);
    if (byte == NULL) return false;
    uint8_t seen = __atomic_load_n(byte, __ATOMIC_RELAXED);
    while (seen >= BYTE_HOME && seen < BYTE_POLICY) {
        if (seen == node + BYTE_HOME) return true;
        if (!__atomic_compare_exchange_n(byte, &seen, (uint8_t)(node + BYTE_HOME), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) continue;
        place(slot, address >> NP_PAGE_SHIFT, node, NP_PLACED_MOVED);
        return true;
    }
    return false;
}

/* ---- ranges ---- */

/* Calls `visit` for the part of the pages [first, end) in each leaf that exists (or, with `make`, in each leaf). */
static void each_leaf(uint64_t first, uint64_t end, bool make, void (*visit)(uint64_t page, uint8_t *bytes, uint64_t count, void *context),
                      void *context) {
    if (end > NP_LEAVES << NP_LEAF_BITS) end = NP_LEAVES << NP_LEAF_BITS;
    while (first < end) {
        uint64_t stop = (first | (LEAF_PAGES - 1)) + 1;
        if (stop > end) stop = end;
        uint8_t *bytes = byte_of(first, make);
        if (bytes != NULL) visit(first, bytes, stop - first, context);
        first = stop;
    }
}

static void forget_part(uint64_t page, uint8_t *bytes, uint64_t count, void *context) {
    (void)page;
    (void)context;
    for (uint64_t i = 0; i < count; i++)
        if (np_load(bytes[i]) != 0) np_store(bytes[i], 0);
}

static void forget_lines(uintptr_t address, size_t bytes) {
    uint64_t high = __atomic_load_n(&np_arena->slots_high, __ATOMIC_RELAXED);
    for (uint32_t index = 0; index < high && index < np_arena->slot_count; index++) {
        struct np_slot *slot = np_slot_at(index);
        if (np_load(slot->state) == NP_SLOT_LIVE && np_load(slot->process_index) == np_sim.process_index)
            np_filter_drop_range(slot, address, bytes);
    }
}

void np_pages_forget(uintptr_t address, size_t bytes) {
    if (!np_sim.ready || bytes == 0) return;
    uint64_t first = address >> NP_PAGE_SHIFT, end = (address + bytes + (1u << NP_PAGE_SHIFT) - 1) >> NP_PAGE_SHIFT;
    struct np_slot *slot = np_self_if_live();
    if (slot != NULL && np_ss(slot)->place_page < end && first < np_ss(slot)->place_page + np_ss(slot)->place_pages) np_place_flush(slot);
    each_leaf(first, end, false, forget_part, NULL);
    forget_lines(address, bytes);
}

struct policy {
    int mode;
    uint64_t nodes;
    uint64_t first;
};

/* Only pages without a home: the kernel's mbind without MPOL_MF_MOVE does not move what is there. */
static void policy_part(uint64_t page, uint8_t *bytes, uint64_t count, void *context) {
    const struct policy *policy = context;
    for (uint64_t i = 0; i < count; i++) {
        uint8_t seen = __atomic_load_n(&bytes[i], __ATOMIC_RELAXED), value = 0;
        if (seen >= BYTE_HOME && seen < BYTE_POLICY) continue;
        if (policy->mode == POLICY_LOCAL) value = BYTE_LOCAL;
        else if (policy->mode == POLICY_INTERLEAVE || policy->mode == POLICY_WEIGHTED_INTERLEAVE)
            value = (uint8_t)(BYTE_POLICY + nth_node(policy->nodes, page + i - policy->first));
        else if (policy->mode != POLICY_DEFAULT) value = (uint8_t)(BYTE_POLICY + nth_node(policy->nodes, 0));
        if (value != seen) __atomic_compare_exchange_n(&bytes[i], &seen, value, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    }
}

static uint64_t first_word(const uint64_t *nodemask, unsigned mask_words) { return nodemask != NULL && mask_words > 0 ? nodemask[0] : 0; }

void np_pages_policy(uintptr_t address, size_t bytes, int mode, const uint64_t *nodemask, unsigned mask_words) {
    if (!np_sim.ready || bytes == 0) return;
    struct policy policy = {mode, usable(first_word(nodemask, mask_words)), address >> NP_PAGE_SHIFT};
    if (mode == POLICY_PREFERRED && first_word(nodemask, mask_words) == 0) policy.mode = POLICY_LOCAL;
    if (policy.nodes == 0) return;
    each_leaf(policy.first, (address + bytes + (1u << NP_PAGE_SHIFT) - 1) >> NP_PAGE_SHIFT, mode != POLICY_DEFAULT, policy_part, &policy);
}

void np_thread_policy(struct np_slot *slot, int mode, const uint64_t *nodemask, unsigned mask_words) {
    struct np_sim_slot *sim = np_ss(slot);
    sim->policy_mode = (uint32_t)mode;
    sim->policy_nodes = first_word(nodemask, mask_words);
    sim->policy_turn = 0;
    if (mode == POLICY_PREFERRED && sim->policy_nodes == 0) sim->policy_mode = POLICY_LOCAL;
}
