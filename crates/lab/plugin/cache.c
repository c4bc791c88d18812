/* cache.c: the private caches of the guest's processors: one set-associative cache per vCPU, by guest-physical line, least recently used line out first.
 *
 * They are coherent: a store takes the line away from all others, a load of a line that another has for itself makes it shared. What comes through is what
 * asks a memory node: misses, and stores to lines that others may have. Lines that leave cost nothing (no write-backs), there is no prefetching, and
 * instructions are not fetched through it.
 *
 * In guests with a host thread per vCPU, looks at one set may race; a race may make a hit a miss or the other way round, and nothing worse. */
#include "system.h"

#include <stdlib.h>
#include <string.h>

/* An entry: the line's number plus one, and whether it is this vCPU's own (no other has it). In a set the most recent comes first. */
#define OWN (1ull << 63)

static _Atomic uint64_t *entries;
static unsigned sets, ways;

bool np_cache_start(void) {
    sets = np_options.cache_sets;
    ways = np_options.cache_ways;
    if (sets == 0) return true;
    entries = calloc((size_t)np_cpu_count * sets * ways, sizeof *entries);
    return entries != NULL;
}

void np_cache_clear(void) {
    if (entries != NULL) memset((void *)entries, 0, (size_t)np_cpu_count * sets * ways * sizeof *entries);
}

static _Atomic uint64_t *set_of(unsigned vcpu, uint64_t line) { return entries + ((size_t)vcpu * sets + (line & (sets - 1))) * ways; }

static uint64_t get(_Atomic uint64_t *entry) { return atomic_load_explicit(entry, memory_order_relaxed); }
static void put(_Atomic uint64_t *entry, uint64_t value) { atomic_store_explicit(entry, value, memory_order_relaxed); }

/* Tells all others: they lose the line, or share it. Whether any had it. */
static bool tell_others(unsigned vcpu, uint64_t line, bool store) {
    bool had = false;
    for (unsigned other = 0; other < np_cpu_count; other++) {
        if (other == vcpu) continue;
        _Atomic uint64_t *set = set_of(other, line);
        for (unsigned way = 0; way < ways; way++) {
            if ((get(&set[way]) & ~OWN) != line + 1) continue;
            put(&set[way], store ? 0 : line + 1);
            had = true;
        }
    }
    return had;
}

enum np_outcome np_cache_access(unsigned vcpu, uint64_t physical, bool store) {
    if (sets == 0) return NP_MISS;
    uint64_t line = physical >> NP_LINE_SHIFT;
    _Atomic uint64_t *set = set_of(vcpu, line);
    unsigned way = 0;
    while (way < ways && (get(&set[way]) & ~OWN) != line + 1) way++;
    bool present = way < ways;
    uint64_t entry = present ? get(&set[way]) : line + 1;
    enum np_outcome outcome = present ? NP_HIT : NP_MISS;
    if (!present || (store && (entry & OWN) == 0)) {
        bool shared = tell_others(vcpu, line, store);
        if (store || !shared) entry |= OWN;
        if (present) outcome = NP_MISS;
    }
    if (!present)
        for (way = 0; way < ways - 1 && get(&set[way]) != 0;) way++;
    for (; way > 0; way--) put(&set[way], get(&set[way - 1]));
    put(&set[0], entry);
    return outcome;
}
