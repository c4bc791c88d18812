/* pages_common.c: pages that several processes have: what others have of shared memory when it is mapped, and what becomes of private memory after a fork, and
 * of private mappings of files.
 *
 * A fork gives both processes the same pages, read-only. The first write of either makes it a copy, with a home of its own, unless it is the only one left
 * that has the page. The kernel knows that before the write (residency.c). After it, as under an emulator, nobody does: then the home is known where both come
 * to the same node. Marks in the table of homes (pages.h) and the first-stage filter, which holds such pages for reading only, have the first write seen.
 *
 * The file's page, which reads of a private mapping find, is not written either: the first writer gets a copy. After the write it can still be told whether
 * there is one, as it is no page of a file any more. */
#define _GNU_SOURCE
#include "pages.h"

void np_page_mark(uint64_t page) {
    uint64_t first = np_load(np_marked->first), end = np_load(np_marked->end);
    while (page < first && !__atomic_compare_exchange_n(&np_marked->first, &first, page, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) continue;
    while (page >= end && !__atomic_compare_exchange_n(&np_marked->end, &end, page + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) continue;
}

void np_pages_forked(void) {
    np_page_mark(0);
    np_page_mark((NP_LEAVES << NP_LEAF_BITS) - 1);
    __atomic_store_n(&np_sim.forked, 1, __ATOMIC_RELAXED);
}

void np_pages_shared(void) { __atomic_store_n(&np_sim.shares, 1, __ATOMIC_RELAXED); }

#ifndef NP_PLUGIN
/* Whether pages there are other processes' as well, who may have touched them first. */
bool np_page_is_common(struct np_slot *slot, uint64_t page) {
    if (!np_load(np_sim.shares)) return false;
    enum np_mapping_kind kind = np_mapping_kind(slot, page << NP_PAGE_SHIFT);
    return kind == NP_KIND_COMMON || (kind == NP_KIND_FAMILY && np_load(np_sim.forked));
}
#endif

/* ---- pages that are copied for who writes them first ---- */

/* The page's byte was `seen`, and says from now on that the page is this process's own, and on `node`. */
static bool become(uint8_t *byte, uint8_t seen, uint32_t node) {
    return __atomic_compare_exchange_n(byte, &seen, (uint8_t)(node + BYTE_HOME), false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* The page is on its old node, or it was copied to another: which, is not to be found out. */
static void leave_copy_unknown(struct np_slot *slot, uint64_t page, uint8_t *byte, uint8_t seen) {
    if (!__atomic_compare_exchange_n(byte, &seen, BYTE_UNKNOWN, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return;
    np_page_placed(slot, page, slot->node, NP_PLACED_UNKNOWN);
}

/* The kernel's page may be several of ours (arm64), and it has copied all of it. */
static void copy_rest(struct np_slot *slot, uint64_t page, const struct np_toucher *toucher) {
    uint64_t each = np_page_bytes() >> NP_PAGE_SHIFT, first = page & -each;
    for (uint64_t at = first; at < first + each; at++) {
        uint8_t *byte = at != page ? byte_of(at, false) : NULL, seen = byte != NULL ? __atomic_load_n(byte, __ATOMIC_RELAXED) : 0;
        if (!is_marked(seen)) continue;
        uint32_t cause, node = np_page_choose(slot, toucher, at, np_page_policy(at), &cause);
        if (become(byte, seen, node)) np_page_placed(slot, at, node, cause);
    }
}

/* The thread gets a copy of the page, as it is about to write it (`is_ahead`), or has. */
static void give_copy(struct np_slot *slot, uint64_t page, uint8_t *byte, uint8_t seen, bool is_ahead) {
    struct np_toucher toucher = {slot, slot->thread_index, slot->node, 1};
    uint8_t policy = np_page_policy(page);
    uint32_t cause, node = np_page_choose(slot, &toucher, page, policy, &cause);
    if (!become(byte, seen, node)) return;
    /* Or another process, writing while this thread waits, would find that it is alone, and another thread that it is the first. */
    if (is_ahead && !np_page_populate(page, NEXT_WRITE)) {
        np_page_overtaken(slot, page, byte, node, policy);
        return;
    }
    np_page_placed(slot, page, node, cause);
    if (np_page_bytes() > 1ul << NP_PAGE_SHIFT) copy_rest(slot, page, &toucher);
}

/* Whether the thread gets a copy is not to be found out. */
static void perhaps_copied(struct np_slot *slot, uint64_t page, uint8_t *byte, uint8_t seen) {
    struct np_toucher toucher = {slot, slot->thread_index, slot->node, 1};
    if (np_page_expected(slot, &toucher, page) == home_in(seen)) become(byte, seen, home_in(seen));
    else leave_copy_unknown(slot, page, byte, seen);
}

void np_page_was_written(struct np_slot *slot, uint64_t page, uint8_t *byte, uint8_t seen) {
    enum np_backing backing;
    if (np_backings(page, 1, &backing) != 1) perhaps_copied(slot, page, byte, seen);
    else if (backing == NP_BACKING_FILE) become(byte, seen, home_in(seen)); /* of shared memory: nothing is copied */
    else if (np_load(np_sim.forked)) perhaps_copied(slot, page, byte, seen);
    else give_copy(slot, page, byte, seen, false);
}

#ifdef NP_PLUGIN
/* The write has happened: the page is the writer's alone now, whether it was copied or not. */
static NP_COLD void first_write(struct np_slot *slot, uint64_t page, uint8_t *byte, uint8_t seen) { np_page_was_written(slot, page, byte, seen); }
#else
/* The page, which the thread is about to write, is this process's alone, and so perhaps are the `pages` - 1 behind it: the others have let them go, or code
 * that is not recorded has written them since the fork, and got the copies. The kernel's page faults tell who that may have been. */
static void keep(struct np_slot *slot, uint64_t page, uint8_t *bytes, const enum np_write_effect *effects, uint32_t pages) {
    struct np_toucher toucher = {slot, slot->thread_index, slot->node, 1};
    bool is_told = np_toucher_of(slot, page, &toucher);
    bool is_untouched = !is_told && np_toucher_is_nobody(slot, page);
    bool is_one = is_told || !np_load(np_sim.concurrent); /* there is one thread that may have written it */
    if (toucher.pages < pages) pages = toucher.pages;
    for (uint32_t i = 0; i < pages && effects[i] == NP_WRITE_KEEPS; i++) {
        uint8_t seen = __atomic_load_n(&bytes[i], __ATOMIC_RELAXED);
        if (!is_marked(seen)) break;
        uint32_t home = home_in(seen);
        /* Copied for that thread or not, it is on the same node. */
        bool is_known = is_untouched || (is_one && np_page_expected(slot, &toucher, page + i) == home);
        if (is_known) become(&bytes[i], seen, home);
        else if (i == 0) leave_copy_unknown(slot, page, bytes, seen);
        else break;
    }
}

/* The pages are no file's any more: code that is not recorded has written them since they were read. Accesses will ask who that was. */
static void forget_marks(uint64_t page, uint8_t *bytes, const enum np_write_effect *effects, uint32_t pages) {
    for (uint32_t i = 0; i < pages; i++) {
        uint8_t seen = __atomic_load_n(&bytes[i], __ATOMIC_RELAXED);
        if (!is_marked(seen) || effects[i] != NP_WRITE_KEEPS) continue;
        __atomic_compare_exchange_n(&bytes[i], &seen, np_page_policy(page + i), false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    }
}

static NP_COLD void first_write(struct np_slot *slot, uint64_t page, uint8_t *byte, uint8_t seen) {
    enum np_write_effect effects[NP_BACKINGS_MAX];
    /* To the end of a block of pages, which is in one leaf, as these are larger and aligned. */
    uint32_t pages = np_write_effects(page, NP_BACKINGS_MAX - (uint32_t)(page % NP_BACKINGS_MAX), effects);
    if (pages == 0) perhaps_copied(slot, page, byte, seen);
    else if (effects[0] == NP_WRITE_KEEPS && !np_load(np_sim.forked)) forget_marks(page, byte, effects, pages);
    else if (effects[0] == NP_WRITE_KEEPS) keep(slot, page, byte, effects, pages);
    else if (np_page_is_common(slot, page)) become(byte, seen, home_in(seen)); /* marked because mappings could not be read then */
    else give_copy(slot, page, byte, seen, true);
}
#endif

void np_page_written(struct np_slot *slot, uintptr_t address) {
    uint64_t page = address >> NP_PAGE_SHIFT;
    uint8_t *byte = byte_of(page, false), seen = byte != NULL ? __atomic_load_n(byte, __ATOMIC_RELAXED) : 0;
    if (is_marked(seen)) first_write(slot, page, byte, seen);
}

bool np_page_is_marked(uintptr_t address) {
    const uint8_t *byte = byte_of(address >> NP_PAGE_SHIFT, false);
    return byte != NULL && is_marked(__atomic_load_n(byte, __ATOMIC_RELAXED));
}

struct np_slot *np_next_own_slot(uint32_t *index) {
    uint64_t high = __atomic_load_n(&np_arena->slots_high, __ATOMIC_RELAXED);
    while (*index < high && *index < np_arena->slot_count) {
        struct np_slot *slot = np_slot_at((*index)++);
        if (np_load(slot->state) == NP_SLOT_LIVE && np_load(slot->process_index) == np_sim.process_index) return slot;
    }
    return NULL;
}

#ifndef NP_PLUGIN
/* ---- memory that other processes have, too ---- */

/* Runs of pages without a home here become unknown: those that are there, or, with `is_full`, all. */
static void others_part(struct np_slot *slot, uint64_t page, uint64_t end, bool is_full) {
    uint8_t resident[SETTLED_PAGES];
    uint64_t first = page, pages = end - page;
    if (!is_full && np_resident(page, pages, resident) != 0) return;
    for (; page <= end; page++) {
        uint8_t *byte = page < end && (is_full || resident[page - (end - pages)] & 1) ? byte_of(page, true) : NULL;
        uint8_t seen = byte != NULL ? __atomic_load_n(byte, __ATOMIC_RELAXED) : BYTE_UNKNOWN;
        bool is_marked = !has_home(seen) && seen != BYTE_UNKNOWN &&
                         __atomic_compare_exchange_n(byte, &seen, BYTE_UNKNOWN, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
        if (is_marked) continue;
        if (page > first) np_page_put(slot, first, (uint32_t)(page - first), slot->node, NP_PLACED_UNKNOWN, slot->thread_index, np_order());
        first = page + 1;
    }
}

void np_pages_of_others(struct np_slot *slot, uintptr_t address, size_t bytes, bool is_full) {
    uint64_t page = address >> NP_PAGE_SHIFT, end = page + (bytes >> NP_PAGE_SHIFT);
    if (!np_load(np_sim.ready) || np_is_confined) return;
    np_place_flush(slot);
    if (end - page > ALONE_PAGES_MAX) end = page + ALONE_PAGES_MAX;
    for (; page < end; page += SETTLED_PAGES) others_part(slot, page, end - page < SETTLED_PAGES ? end : page + SETTLED_PAGES, is_full);
}

/* ---- memory that one thread provides to others ---- */

void np_pages_provided(struct np_slot *slot, uintptr_t address, size_t bytes) {
    struct np_toucher toucher = {slot, slot->thread_index, slot->node, 1};
    uint64_t page = address >> NP_PAGE_SHIFT, end = (address + bytes) >> NP_PAGE_SHIFT;
    for (; np_load(np_sim.ready) && page < end; page++) {
        uint8_t *byte = byte_of(page, true);
        if (byte == NULL) break;
        uint32_t cause, node = np_page_choose(slot, &toucher, page, np_page_policy(page), &cause);
        __atomic_store_n(byte, (uint8_t)(node + BYTE_HOME), __ATOMIC_RELEASE); /* also where the thread that waits for it has given it its own */
        np_page_placed(slot, page, node, cause);
    }
    np_place_flush(slot); /* this thread may wait for long now */
}

/* ---- after a fork ---- */

static void inherit_part(uint64_t page, uint8_t *bytes, uint64_t count, void *context) {
    (void)page, (void)context;
    for (uint64_t i = next_known(bytes, 0, count); i < count; i = next_known(bytes, i + 1, count)) {
        uint8_t seen = np_load(bytes[i]);
        if (!is_home(seen)) continue;
        __atomic_compare_exchange_n(&bytes[i], &seen, marked_byte(home_in(seen)), false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    }
}

static bool inherit_mapping(const struct np_maps_line *line, void *context) {
    *(bool *)context = true;
    if (line->perms[3] == 'p') np_pages_each_leaf(line->lo >> NP_PAGE_SHIFT, line->hi >> NP_PAGE_SHIFT, false, inherit_part, NULL);
    return true;
}

void np_pages_inherited(void) {
    bool is_listed = false;
    if (!np_load(np_sim.ready)) return;
    np_maps_each(inherit_mapping, &is_listed);
    /* Which memory is private cannot be told then: where a page of it is written, first_write finds out what it can. */
    if (!is_listed) np_pages_each_leaf(0, NP_LEAVES << NP_LEAF_BITS, false, inherit_part, NULL);
    struct np_slot *slot;
    for (uint32_t index = 0; (slot = np_next_own_slot(&index)) != NULL;) np_filter_hold_for_reading(slot);
}
#endif
