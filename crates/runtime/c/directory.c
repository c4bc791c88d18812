/* directory.c: which threads' private filters hold a line, and who wrote it last: coherence.
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
 * Needs 41 - directory_bits <= 24. With fewer entries tags are cut, and a take-over may recall a line that nobody holds: sharers can then be
 * missed. Entries of processes whose tags are equal (15 apart) are told apart by the owner's process where there is an owner. */
#include "memsim.h"

#define TAG_BITS 24
#define TAG_MASK ((1ull << TAG_BITS) - 1)
#define PROCESS_SHIFT 24
#define DIRTY (1ull << 28)
#define L3_SHIFT 30
#define L3_MASK 0xffull
#define WHO_SHIFT 38
#define SHARERS 26u

static inline uint64_t scatter(uint64_t high, uint64_t process_tag) {
    uint64_t hash = (high ^ process_tag << 32) * 0x9e3779b97f4a7c15ull;
    return (hash >> 32) & np_sim.directory_mask & ~7ull;
}

static inline uint64_t identity(uintptr_t line) {
    return ((line >> np_sim.directory_bits) & TAG_MASK) | (uint64_t)np_sim.process_tag << PROCESS_SHIFT;
}

uint64_t *np_directory_entry(uintptr_t line) {
    uint64_t index = (line & np_sim.directory_mask) ^ scatter((line >> np_sim.directory_bits) & TAG_MASK, np_sim.process_tag);
    return np_sim.directory + index;
}

static inline bool is_of(uint64_t entry, uintptr_t line) {
    return (entry & (TAG_MASK | 15ull << PROCESS_SHIFT)) == identity(line);
}

static inline uint64_t l3_bit(const struct np_slot *slot) { return 1ull << (L3_SHIFT + (slot->l3_index & 7)); }

/* Plain while the process has one thread: nobody else writes these entries then, but for other processes whose lines collide. */
static inline bool replace(uint64_t *entry, uint64_t *seen, uint64_t value) {
    if (!__atomic_load_n(&np_sim.concurrent, __ATOMIC_RELAXED)) {
        __atomic_store_n(entry, value, __ATOMIC_RELAXED);
        return true;
    }
    return __atomic_compare_exchange_n(entry, seen, value, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

static inline struct np_slot *slot_of_process(uint64_t index, uint32_t process_tag) {
    if (index >= np_arena->slot_count) return NULL;
    struct np_slot *slot = np_slot_at((uint32_t)index);
    if (__atomic_load_n(&slot->state, __ATOMIC_RELAXED) != NP_SLOT_LIVE || slot->process_index % 15 + 1 != process_tag) return NULL;
    return slot;
}

/* Takes the line out of the filters of all threads in `who`, except this one. Returns one that had it, on another L3 if there is such. */
static NP_COLD struct np_slot *drop_sharers(struct np_slot *slot, uintptr_t line, uint64_t who, uint32_t process_tag) {
    struct np_slot *far = NULL;
    uint64_t high = __atomic_load_n(&np_arena->slots_high, __ATOMIC_RELAXED);
    for (uint64_t bit = 0; bit < SHARERS; bit++) {
        if (!(who >> bit & 1)) continue;
        for (uint64_t index = bit; index < high; index += SHARERS) {
            struct np_slot *holder = slot_of_process(index, process_tag);
            if (holder == NULL || holder == slot || !np_filter_drop(holder, line)) continue;
            if (far == NULL || holder->l3_index != slot->l3_index) far = holder;
        }
    }
    return far;
}

/* Another line takes the entry: whoever still holds the old one gives it up. */
static void recall(struct np_slot *slot, uint64_t old, const uint64_t *entry) {
    uint32_t process_tag = (uint32_t)(old >> PROCESS_SHIFT) & 15;
    uint64_t who = old >> WHO_SHIFT;
    if (process_tag == 0) return;
    uint64_t high = old & TAG_MASK;
    uint64_t low = (uint64_t)(entry - np_sim.directory) ^ scatter(high, process_tag);
    uintptr_t line = high << np_sim.directory_bits | low;
    if (old & DIRTY) {
        struct np_slot *owner = slot_of_process(who, process_tag);
        if (owner != NULL) np_filter_drop(owner, line);
        return;
    }
    uint64_t mine = 1ull << np_ss(slot)->sharer_bit;
    if (process_tag == np_sim.process_tag && (who & mine)) np_filter_drop(slot, line);
    if (who & ~mine || np_sim.concurrent || process_tag != np_sim.process_tag) drop_sharers(slot, line, who, process_tag);
}

/* The line is read, and now in this thread's filter as not writable. */
struct np_holder np_directory_read(struct np_slot *slot, uintptr_t line, uint64_t *entry) {
    struct np_holder holder = {NULL, NULL, false};
    uint64_t me = np_ss(slot)->slot_index, mine = 1ull << (WHO_SHIFT + np_ss(slot)->sharer_bit);
    uint64_t old = __atomic_load_n(entry, __ATOMIC_RELAXED), value;
    do {
        if (!is_of(old, line)) {
            value = identity(line) | l3_bit(slot) | mine;
        } else if (!(old & DIRTY)) {
            value = old | l3_bit(slot) | mine;
        } else if (old >> WHO_SHIFT == me) {
            value = old;
        } else {
            value = (old & ((1ull << WHO_SHIFT) - 1) & ~DIRTY) | l3_bit(slot) | mine;
            uint64_t owner = old >> WHO_SHIFT;
            value |= 1ull << (WHO_SHIFT + owner % SHARERS);
        }
    } while (!replace(entry, &old, value));
    if (!is_of(old, line)) {
        if (old != 0) recall(slot, old, entry);
    } else if (old & DIRTY) {
        struct np_slot *owner = old >> WHO_SHIFT == me ? slot : slot_of_process(old >> WHO_SHIFT, np_sim.process_tag);
        if (owner == slot) holder.mine = true;
        else if (owner != NULL && np_filter_downgrade(owner, line)) holder.dirty = owner;
    }
    return holder;
}

/* The line is about to be written; in this thread's filter as writable, or (an upgrade) as not writable yet. */
struct np_holder np_directory_write(struct np_slot *slot, uintptr_t line, uint64_t *entry) {
    struct np_holder holder = {NULL, NULL, true};
    uint64_t me = np_ss(slot)->slot_index, mine = 1ull << np_ss(slot)->sharer_bit;
    uint64_t old = __atomic_load_n(entry, __ATOMIC_RELAXED);
    uint64_t value = identity(line) | DIRTY | l3_bit(slot) | me << WHO_SHIFT;
    while (!replace(entry, &old, value)) {
    }
    if (!is_of(old, line)) {
        if (old != 0) recall(slot, old, entry);
        return holder;
    }
    if (old & DIRTY) {
        uint64_t who = old >> WHO_SHIFT;
        struct np_slot *owner = who == me ? NULL : slot_of_process(who, np_sim.process_tag);
        if (owner != NULL && np_filter_drop(owner, line)) holder.dirty = owner;
    } else {
        /* Two threads can have my bit. */
        bool crowded = __atomic_load_n(&np_arena->slots_high, __ATOMIC_RELAXED) > SHARERS;
        uint64_t others = (old >> WHO_SHIFT) & (crowded ? ~0ull : ~mine);
        if (others != 0) holder.far = drop_sharers(slot, line, others, np_sim.process_tag);
    }
    uint64_t elsewhere = (old & ~l3_bit(slot)) >> L3_SHIFT & L3_MASK;
    for (uint32_t l3 = 0; elsewhere != 0 && np_sim.l3_ways != 0 && l3 < np_arena->config.l3_count; l3++)
        if (elsewhere >> (l3 & 7) & 1 && l3 != slot->l3_index) np_l3_drop(l3, line);
    return holder;
}
