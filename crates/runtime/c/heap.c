/* heap.c: memory that the C library's allocator gets by calls that no hook sees: a growing break, and the heaps of its arenas.
 *
 * glibc moves the break and maps its arenas from inside. What it writes between the blocks (headers, lists of free ones) would then be accesses to no object.
 * A block that lies beyond what is known tells of such memory: two comparisons per allocation, a look at the break or at the mappings where they say so.
 */
#define _GNU_SOURCE
#include "track.h"

#include <sys/syscall.h>

/* glibc: a heap of an arena other than the main one begins at a multiple of this, which is reserved for it whole (malloc/arena.c, HEAP_MAX_SIZE on 64-bit). */
#define ARENA_SHIFT 26u
/* glibc: this bit of a chunk's size, the word before the block, says that it is of such an arena (malloc/malloc.c, NON_MAIN_ARENA). */
#define NON_MAIN_ARENA 4u
/* More arenas are known by their first blocks only as part of what lies beneath. */
#define ARENAS_KNOWN 1024u
#define PAGE_MASK 4095u

/* The heap as recorded ends here; it cannot reach an address where something else was seen. */
static uintptr_t break_known, break_bound;
/* Numbers of regions of 64 MiB that were looked at; 0: free. Open addressing, never emptied. */
static uintptr_t regions[ARENAS_KNOWN];

void np_heap_init(void) {
    break_known = (uintptr_t)NP_SYS1(SYS_brk, 0);
    break_bound = UINTPTR_MAX;
}

void np_heap_moved(uintptr_t end) {
    __atomic_store_n(&break_known, end, __ATOMIC_RELAXED);
}

static NP_COLD void look_at_break(struct np_slot *slot, uintptr_t block) {
    uintptr_t now = (uintptr_t)NP_SYS1(SYS_brk, 0), known = __atomic_load_n(&break_known, __ATOMIC_RELAXED);
    while (now > known)
        if (__atomic_compare_exchange_n(&break_known, &known, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            np_map_of_allocator(slot, known, now - known, NP_MAP_BRK);
            break;
        }
    if (block >= now) __atomic_store_n(&break_bound, block, __ATOMIC_RELAXED);
}

struct arena_search { uintptr_t start; bool found; };

static bool begins_here(const struct np_maps_line *line, void *context) {
    struct arena_search *search = context;
    if (line->lo < search->start) return true;
    search->found = line->lo == search->start && line->inode == 0 && line->perms[1] == 'w' && line->perms[3] == 'p';
    return false;
}

static NP_COLD void look_at_region(struct np_slot *slot, uintptr_t region) {
    for (unsigned probe = 0; probe < ARENAS_KNOWN; probe++) {
        uintptr_t *place = &regions[(region + probe) % ARENAS_KNOWN], expected = 0;
        if (__atomic_load_n(place, __ATOMIC_RELAXED) == region) return;
        if (!__atomic_compare_exchange_n(place, &expected, region, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            if (expected == region) return;
            continue;
        }
        struct arena_search search = {region << ARENA_SHIFT, false};
        np_maps_each(begins_here, &search);
        if (search.found) np_map_of_allocator(slot, search.start, (uint64_t)1 << ARENA_SHIFT, 0);
        return;
    }
}

/* Whether glibc says that this block is of another arena than the main one. The word before a block that does not begin a page can be read,
 * whoever's allocator this is. Other bits of it change while neighbours are freed; another allocator's word is somebody else's, which the thread
 * sanitizer's own would complain of, and gives a needless look at most. */
__attribute__((no_sanitize("thread"))) static bool is_of_arena(uintptr_t block) {
    return (block & PAGE_MASK) >= sizeof(size_t) && (__atomic_load_n((const size_t *)block - 1, __ATOMIC_RELAXED) & NON_MAIN_ARENA) != 0;
}

void np_heap_block(struct np_slot *slot, uintptr_t block, size_t bytes) {
    uintptr_t known = __atomic_load_n(&break_known, __ATOMIC_RELAXED);
    if (np_unlikely(block + bytes - known - 1 < __atomic_load_n(&break_bound, __ATOMIC_RELAXED) - known)) look_at_break(slot, block);
    if (np_unlikely(is_of_arena(block))) {
        uintptr_t region = block >> ARENA_SHIFT;
        if (np_unlikely(__atomic_load_n(&regions[region % ARENAS_KNOWN], __ATOMIC_RELAXED) != region)) look_at_region(slot, region);
    }
}
