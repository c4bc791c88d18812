/* sync_atomic.c: clocks that travel through memory, kept in the arena's sync table (see sync_clock.c for the other store).
 *
 * A store-release publishes its thread's clock under the address; a pure load-acquire takes the maximum. A read-modify-write
 * publishes too, but takes nothing: lock words, reference counts and work counters are resources, on which a thread that the host
 * ran late must not be dragged forward to the latest one. For the same reason a load takes over what a
 * read-modify-write published only when it polls (the same address again within POLL_CYCLES): then it really waits.
 *
 * Entry: key, then tag (15 bits of the key's hash) | rmw bit | clock (48 bits). A reader that finds a tag not its own ignores the
 * entry, so two writers that race for it cannot hand over a stranger's clock.
 */
#include "vtime.h"

#define ENTRIES (1u << 16)
#define POLL_CYCLES 2000
#define CLOCK_BITS 48
#define CLOCK_MASK ((1ull << CLOCK_BITS) - 1)
#define RMW_BIT (1ull << CLOCK_BITS)

struct entry {
    uint64_t key;
    uint64_t value;
};

static uint64_t hash(uint64_t key) {
    key ^= key >> 32;
    key *= 0xd6e8feb86659fd93ull;
    key ^= key >> 32;
    key *= 0xd6e8feb86659fd93ull;
    return key ^ (key >> 32);
}

static uint64_t tag_of(uint64_t hashed) {
    return (hashed >> 49) << 49;
}

static struct entry *entry_of(uint64_t hashed) {
    return (struct entry *)((char *)np_arena + np_arena->sync_offset) + (hashed & (ENTRIES - 1));
}

/* The value under `key`, 0: none. */
static uint64_t find(uint64_t key) {
    uint64_t hashed = hash(key);
    struct entry *entry = entry_of(hashed);
    if (__atomic_load_n(&entry->key, __ATOMIC_ACQUIRE) != key) return 0;
    uint64_t value = __atomic_load_n(&entry->value, __ATOMIC_ACQUIRE);
    return value >> 49 == hashed >> 49 ? value & (CLOCK_MASK | RMW_BIT) : 0;
}

static void put(uint64_t key, uint64_t value) {
    uint64_t hashed = hash(key);
    struct entry *entry = entry_of(hashed);
    if (__atomic_load_n(&entry->key, __ATOMIC_RELAXED) != key) {
        __atomic_store_n(&entry->key, 0, __ATOMIC_RELEASE);
        __atomic_store_n(&entry->value, tag_of(hashed) | value, __ATOMIC_RELEASE);
        __atomic_store_n(&entry->key, key, __ATOMIC_RELEASE);
    } else {
        __atomic_store_n(&entry->value, tag_of(hashed) | value, __ATOMIC_RELEASE);
    }
}

/* Addresses of different processes are different objects, even where the memory is shared. */
static uint64_t key_of(const struct np_slot *slot, uintptr_t address) {
    return 0x8000000000000000ull | (uint64_t)(slot->process_index & 0x7fff) << 48 | (address & 0xffffffffffffull);
}

/* Writers of one key may come at the same moment, also where it has no entry yet: the value is made the greatest before the key says whose it is, so none of
 * them undoes another's. */
void np_shared_set(uint64_t key, uint64_t clock) {
    uint64_t hashed = hash(key), wanted = clock & CLOCK_MASK;
    struct entry *entry = entry_of(hashed);
    /* A writer of another key may take the entry meanwhile: looked at again, a few times at most. */
    for (int i = 0; i < 4 && np_shared_get(key) < wanted; i++) {
        uint64_t seen = __atomic_load_n(&entry->value, __ATOMIC_ACQUIRE);
        while (seen >> 49 != hashed >> 49 || (seen & CLOCK_MASK) < wanted)
            if (__atomic_compare_exchange_n(&entry->value, &seen, tag_of(hashed) | wanted, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) break;
        if (__atomic_load_n(&entry->key, __ATOMIC_RELAXED) != key) __atomic_store_n(&entry->key, key, __ATOMIC_RELEASE);
    }
}

uint64_t np_shared_get(uint64_t key) {
    return find(key) & CLOCK_MASK;
}

void np_release(struct np_slot *slot, uintptr_t address) {
    if (!np_vtime_on()) return;
    np_throttle(slot);
    put(key_of(slot, address), np_clock_of(slot) & CLOCK_MASK);
}

void np_rmw(struct np_slot *slot, uintptr_t address) {
    if (!np_vtime_on()) return;
    np_clock_advance(slot, NP_LOCK_CYCLES);
    np_throttle(slot);
    uint64_t key = key_of(slot, address), clock = np_clock_of(slot) & CLOCK_MASK;
    uint64_t seen = find(key) & CLOCK_MASK;
    put(key, (seen > clock ? seen : clock) | RMW_BIT);
}

void np_acquire(struct np_slot *slot, uintptr_t address) {
    if (!np_vtime_on()) return;
    np_throttle(slot);
    struct np_vtime_slot *vt = np_vt(slot);
    uint64_t clock = np_clock_of(slot);
    bool polls = vt->acquire_address == address && clock - vt->acquire_clock < POLL_CYCLES;
    uint64_t value = find(key_of(slot, address));
    if (value != 0 && (polls || !(value & RMW_BIT))) {
        np_clock_wait_until(slot, value & CLOCK_MASK, NP_SYNC_ATOMIC, address);
        clock = np_clock_of(slot);
    }
    vt->acquire_address = address;
    vt->acquire_clock = clock;
}
