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
#define PAGE_MASK 4095u

static struct np_heap heap;
struct np_heap *np_heap = &heap;

void np_heap_init(void) {
    np_heap->break_known = (uintptr_t)NP_SYS1(SYS_brk, 0);
    np_heap->break_bound = UINTPTR_MAX;
}

bool np_heap_moved(uintptr_t end) {
    return __atomic_exchange_n(&np_heap->break_known, end, __ATOMIC_RELAXED) == end;
}

void np_heap_reaches(struct np_slot *slot, uintptr_t end) {
    uintptr_t known = np_load(np_heap->break_known);
    while (end > known)
        if (__atomic_compare_exchange_n(&np_heap->break_known, &known, end, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            np_map_of_allocator(slot, known, end - known, NP_MAP_BRK);
            break;
        }
}

static NP_COLD void look_at_break(struct np_slot *slot, uintptr_t block) {
    uintptr_t now = (uintptr_t)NP_SYS1(SYS_brk, 0);
    np_heap_reaches(slot, now);
    if (block >= now) np_store(np_heap->break_bound, block);
}

struct arena_search { uintptr_t start; bool found; };

static bool begins_here(const struct np_maps_line *line, void *context) {
    struct arena_search *search = context;
    if (line->lo < search->start) return true;
    search->found = line->lo == search->start && line->inode == 0 && line->perms[1] == 'w' && line->perms[3] == 'p';
    return false;
}

bool np_heap_note_arena(uintptr_t start) {
    uintptr_t region = start >> ARENA_SHIFT;
    for (unsigned probe = 0; probe < NP_ARENAS_KNOWN; probe++) {
        uintptr_t *place = &np_heap->regions[(region + probe) % NP_ARENAS_KNOWN], expected = 0;
        if (np_load(*place) == region) return false;
        if (__atomic_compare_exchange_n(place, &expected, region, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return true;
        if (expected == region) return false;
    }
    return false;
}

static NP_COLD void look_at_region(struct np_slot *slot, uintptr_t region) {
    struct arena_search search = {region << ARENA_SHIFT, false};
    if (!np_heap_note_arena(search.start)) return;
    np_maps_each(begins_here, &search);
    if (search.found) np_map_of_allocator(slot, search.start, (uint64_t)1 << ARENA_SHIFT, 0);
}

/* Whether glibc says that this block is of another arena than the main one. The word before a block that does not begin a page can be read,
 * whichever allocator this is. Other bits of it change while neighbours are freed; another allocator's word may belong to other code, where the
 * thread sanitizer would report a race; at most it causes a needless check. */
__attribute__((no_sanitize("thread"))) static bool is_of_arena(uintptr_t block) {
    return (block & PAGE_MASK) >= sizeof(size_t) && (__atomic_load_n((const size_t *)block - 1, __ATOMIC_RELAXED) & NON_MAIN_ARENA) != 0;
}

void np_heap_block(struct np_slot *slot, uintptr_t block, size_t bytes) {
    const struct np_heap *known = np_heap;
    uintptr_t end = np_load(known->break_known);
    if (np_unlikely(block + bytes - end - 1 < np_load(known->break_bound) - end)) look_at_break(slot, block);
    if (np_unlikely(is_of_arena(block))) {
        uintptr_t region = block >> ARENA_SHIFT;
        if (np_unlikely(np_load(known->regions[region % NP_ARENAS_KNOWN]) != region)) look_at_region(slot, region);
    }
}
