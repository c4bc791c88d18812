/* directory.h: which threads' private filters hold a line, and who wrote it last: coherence.
 *
 * A direct-mapped table in the arena, one 64-bit entry per line:
 *
 *     bits  0-23  tag: the line number's bits above the index
 *     bits 24-27  process tag, 1 to 15 (0: the entry is empty)
 *     bit     28  dirty: one thread holds the line written, and bits 38-63 are its slot
 *     bits 30-37  L3s that were given the line (number modulo 8)
 *     bits 38-63  not dirty: threads that read it (slot modulo 26)
 *
 * Index and tag together determine the line, so when another line takes an entry over, the filters that held the old line can give it up (as in a
 * real inclusive directory): no line is ever cached without an entry, and no write misses a sharer. Neighbouring lines have neighbouring
 * entries: a stream pays one host cache miss for eight lines.
 *
 * Needs NP_ADDRESS_BITS - 6 - directory_bits <= 24. With fewer entries tags are cut, and a take-over may recall a line that no cache holds: sharers can then be
 * missed. Entries of processes whose tags are equal (15 apart) are distinguished by the owner's process where there is an owner. */
#ifndef NUMAPILOT_DIRECTORY_H
#define NUMAPILOT_DIRECTORY_H

#include "memsim.h"

#pragma GCC visibility push(hidden)

#define NP_DIR_TAG_BITS 24
#define NP_DIR_TAG_MASK ((1ull << NP_DIR_TAG_BITS) - 1)
#define NP_DIR_PROCESS_SHIFT 24
#define NP_DIR_DIRTY (1ull << 28)
#define NP_DIR_L3_SHIFT 30
#define NP_DIR_L3_MASK 0xffull
#define NP_DIR_WHO_SHIFT 38
#define NP_DIR_SHARERS 26u

static inline uint64_t np_scatter(uint64_t high, uint64_t process_tag) {
    uint64_t hash = (high ^ process_tag << 32) * 0x9e3779b97f4a7c15ull;
    return (hash >> 32) & np_sim.directory_mask & ~7ull;
}

#define NP_DIR_SAME (NP_DIR_TAG_MASK | 15ull << NP_DIR_PROCESS_SHIFT)

static inline uint64_t np_identity(uintptr_t line) {
    return ((line >> np_sim.directory_bits) & NP_DIR_TAG_MASK) | (uint64_t)np_sim.process_tag << NP_DIR_PROCESS_SHIFT;
}

static inline uint64_t *np_directory_entry(uintptr_t line) {
    uint64_t index = (line & np_sim.directory_mask) ^ np_scatter((line >> np_sim.directory_bits) & NP_DIR_TAG_MASK, np_sim.process_tag);
    return np_sim.directory + index;
}

static inline bool np_is_of(uint64_t entry, uintptr_t line) {
    return (entry & NP_DIR_SAME) == np_identity(line);
}

static inline uint64_t np_l3_bit(const struct np_slot *slot) { return 1ull << (NP_DIR_L3_SHIFT + (slot->l3_index & 7)); }

/* Plain while the process has one thread: no other thread writes these entries then, but for other processes whose lines collide. */
static inline bool np_replace(uint64_t *entry, uint64_t *seen, uint64_t value) {
    if (!__atomic_load_n(&np_sim.concurrent, __ATOMIC_RELAXED)) {
        __atomic_store_n(entry, value, __ATOMIC_RELAXED);
        return true;
    }
    return __atomic_compare_exchange_n(entry, seen, value, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

/* ---- directory.c ---- */
struct np_holder {
    struct np_slot *dirty; /* another thread that held the line written */
    struct np_slot *far;   /* one of the other threads that shared it and lost it, on another L3 where there was one */
    bool mine;             /* no other cache holds it, and this thread may write */
};
struct np_holder np_directory_write(struct np_slot *slot, uintptr_t line, uint64_t *entry);
/* Another line takes the entry: whoever still holds the old one gives it up. */
void np_directory_recall(struct np_slot *slot, uint64_t old, const uint64_t *entry);
/* The line is read: its owner may no longer write it. NULL: the owner does not hold it any more. */
struct np_slot *np_directory_downgrade(struct np_slot *slot, uintptr_t line, uint64_t owner_index);

/* The line is read, and now in this thread's filter as not writable. */
static inline struct np_holder np_directory_read(struct np_slot *slot, uintptr_t line, uint64_t *entry) {
    struct np_holder holder = {NULL, NULL, false};
    uint64_t me = np_ss(slot)->slot_index, mine = 1ull << (NP_DIR_WHO_SHIFT + np_ss(slot)->sharer_bit);
    uint64_t same = np_identity(line), l3 = np_l3_bit(slot), old = __atomic_load_n(entry, __ATOMIC_RELAXED), value;
    bool found;
    do {
        found = (old & NP_DIR_SAME) == same;
        value = same | l3 | mine;
        if (np_unlikely(found)) {
            uint64_t owner = old >> NP_DIR_WHO_SHIFT;
            if (!(old & NP_DIR_DIRTY)) value = old | l3 | mine;
            else if (owner == me) value = old;
            else value |= (old & NP_DIR_L3_MASK << NP_DIR_L3_SHIFT) | 1ull << (NP_DIR_WHO_SHIFT + owner % NP_DIR_SHARERS);
        }
    } while (old != value && !np_replace(entry, &old, value));
    if (np_likely(!found)) {
        if (old != 0) np_directory_recall(slot, old, entry);
    } else if (old & NP_DIR_DIRTY) {
        if (old >> NP_DIR_WHO_SHIFT == me) holder.mine = true;
        else holder.dirty = np_directory_downgrade(slot, line, old >> NP_DIR_WHO_SHIFT);
    }
    return holder;
}

#pragma GCC visibility pop
#endif
