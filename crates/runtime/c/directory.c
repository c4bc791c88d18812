/* directory.c: the directory's rarer events: writes, and entries that are taken over. directory.h describes it. */
#include "directory.h"

static inline struct np_slot *slot_of_process(uint64_t index, uint32_t process_tag) {
    if (index >= np_arena->slot_count) return NULL;
    struct np_slot *slot = np_slot_at((uint32_t)index);
    if (np_load(slot->state) != NP_SLOT_LIVE || np_load(slot->process_index) % 15 + 1 != process_tag) return NULL;
    return slot;
}

/* Takes the line out of the filters of all threads in `who`, except this one. Returns one that had it, on another L3 if there is such. */
static struct np_slot *drop_sharers(struct np_slot *slot, uintptr_t line, uint64_t who, uint32_t process_tag) {
    struct np_slot *far = NULL;
    uint64_t high = __atomic_load_n(&np_arena->slots_high, __ATOMIC_RELAXED);
    for (uint64_t bit = 0; bit < NP_DIR_SHARERS; bit++) {
        if (!(who >> bit & 1)) continue;
        for (uint64_t index = bit; index < high; index += NP_DIR_SHARERS) {
            struct np_slot *holder = slot_of_process(index, process_tag);
            if (holder == NULL || holder == slot || !np_filter_drop(holder, line)) continue;
            if (far == NULL || np_load(holder->l3_index) != slot->l3_index) far = holder;
        }
    }
    return far;
}

/* Another line takes the entry: whoever still holds the old one gives it up. */
void np_directory_recall(struct np_slot *slot, uint64_t old, const uint64_t *entry) {
    uint32_t process_tag = (uint32_t)(old >> NP_DIR_PROCESS_SHIFT) & 15;
    uint64_t who = old >> NP_DIR_WHO_SHIFT;
    if (process_tag == 0) return;
    uint64_t high = old & NP_DIR_TAG_MASK;
    uint64_t low = (uint64_t)(entry - np_sim.directory) ^ np_scatter(high, process_tag);
    uintptr_t line = high << np_sim.directory_bits | low;
    if (old & NP_DIR_DIRTY) {
        struct np_slot *owner = slot_of_process(who, process_tag);
        if (owner != NULL) np_filter_drop(owner, line);
        return;
    }
    uint64_t mine = 1ull << np_ss(slot)->sharer_bit;
    if (process_tag == np_sim.process_tag && (who & mine)) np_filter_drop(slot, line);
    if (who & ~mine || np_load(np_sim.concurrent) || process_tag != np_sim.process_tag) drop_sharers(slot, line, who, process_tag);
}

struct np_slot *np_directory_downgrade(struct np_slot *slot, uintptr_t line, uint64_t owner_index) {
    struct np_slot *owner = slot_of_process(owner_index, np_sim.process_tag);
    return owner != NULL && owner != slot && np_filter_downgrade(owner, line) ? owner : NULL;
}

/* The line is about to be written; in this thread's filter as writable, or (an upgrade) as not writable yet. */
struct np_holder np_directory_write(struct np_slot *slot, uintptr_t line, uint64_t *entry) {
    struct np_holder holder = {NULL, NULL, true};
    uint64_t me = np_ss(slot)->slot_index, mine = 1ull << np_ss(slot)->sharer_bit;
    uint64_t old = __atomic_load_n(entry, __ATOMIC_RELAXED);
    uint64_t value = np_identity(line) | NP_DIR_DIRTY | np_l3_bit(slot) | me << NP_DIR_WHO_SHIFT;
    while (!np_replace(entry, &old, value)) {
    }
    if (!np_is_of(old, line)) {
        if (old != 0) np_directory_recall(slot, old, entry);
        return holder;
    }
    if (old & NP_DIR_DIRTY) {
        uint64_t who = old >> NP_DIR_WHO_SHIFT;
        struct np_slot *owner = who == me ? NULL : slot_of_process(who, np_sim.process_tag);
        if (owner != NULL && np_filter_drop(owner, line)) holder.dirty = owner;
    } else {
        /* Two threads can have my bit. */
        bool crowded = __atomic_load_n(&np_arena->slots_high, __ATOMIC_RELAXED) > NP_DIR_SHARERS;
        uint64_t others = (old >> NP_DIR_WHO_SHIFT) & (crowded ? ~0ull : ~mine);
        if (others != 0) holder.far = drop_sharers(slot, line, others, np_sim.process_tag);
    }
    uint64_t elsewhere = (old & ~np_l3_bit(slot)) >> NP_DIR_L3_SHIFT & NP_DIR_L3_MASK;
    for (uint32_t l3 = 0; elsewhere != 0 && np_sim.l3_ways != 0 && l3 < np_arena->config.l3_count; l3++)
        if (elsewhere >> (l3 & 7) & 1 && l3 != slot->l3_index) np_l3_drop(l3, line);
    return holder;
}
