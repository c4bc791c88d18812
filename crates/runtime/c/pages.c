/* pages.c: each page's home node.
 *
 * A table of the process in two levels: leaves of 2^18 pages (1 GiB of addresses), a byte per page, leaves mapped when needed, no locks. A
 * page gets its home at the first access that leaves a private filter (its first touch, as the filters give up lines of pages that are forgotten):
 * by the policy of its range, else of the thread, else of the recording, else the node of the thread, or the nearest node with memory.
 *
 * Pages of memory that processes share (MAP_SHARED) have one home, which the first of all processes to touch them gives them. This table is one process's: it
 * knows what this process touched first. What it finds there is unknown here, and told so; flows, which have all processes' records, know it (crates/flows).
 *
 * A forked child inherits the table as it inherits memory. In parent and child, pages of private memory are marked then: the first write to one of them, in
 * either, has the kernel make a copy for the writer, unless the page is the writer's alone by now. So it is with pages of private mappings of files that may
 * be written (initialised data): who reads one finds the file's page, who writes it first gets a copy of it. They are marked when they are read.
 *
 * The kernel knows better what begins and ends, and is asked (residency.c): at a page's first access, whether it is the first; where a block or a stack begins,
 * which pages have been taken back unseen, inside the C library.
 *
 * NP_REC_PLACE is held back while the same thread goes on placing the next page on the same node: one record per run. */
#define _GNU_SOURCE
#include "pages.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

/* As in <linux/mempolicy.h>. */
enum { POLICY_DEFAULT, POLICY_PREFERRED, POLICY_BIND, POLICY_INTERLEAVE, POLICY_LOCAL, POLICY_PREFERRED_MANY, POLICY_WEIGHTED_INTERLEAVE };

#define RUN_PAGES_MAX 64

#ifndef NP_PLUGIN
uint8_t *np_leaves[NP_LEAVES];
struct np_marked np_marked[1] = {{UINT64_MAX, 0}};
#endif

/* Policies of ranges, as a page without a home has them in its byte: they are the mapping's, and outlive the homes of its pages. Leaves as above, for what
 * a program gave a policy; an emulator's plugin needs none of them. */
static uint8_t *policies[NP_LEAVES];

uint8_t np_page_policy(uint64_t page) {
    const uint8_t *policy = byte_in(policies, page, false);
    return policy != NULL ? np_load(*policy) : 0;
}

static void set_policy(uint64_t page, uint8_t value) {
    uint8_t *policy = byte_in(policies, page, value != 0);
    if (policy != NULL) np_store(*policy, value);
}

/* ---- records ---- */

void np_page_put(struct np_slot *slot, uint64_t page, uint32_t pages, uint32_t node, uint32_t cause, uint32_t toucher, uint64_t order) {
    unsigned count = toucher == slot->thread_index ? 3 : 4;
    uint64_t *words = np_begin(slot, NP_REC_PLACE, page << NP_PAGE_SHIFT, count, order);
    if (words == NULL) return;
    words[2] = pages | (uint64_t)node << 32 | (uint64_t)cause << 48;
    if (count == 4) words[3] = toucher;
    np_commit(slot, count);
}

void np_place_flush(struct np_slot *slot) {
    struct np_sim_slot *sim = np_ss(slot);
    if (sim->place_pages == 0) return;
    np_page_put(slot, sim->place_page, sim->place_pages, sim->place_node, sim->place_cause, sim->place_toucher, sim->place_order);
    sim->place_pages = 0;
}

static void place_by(struct np_slot *slot, uint64_t page, uint32_t node, uint32_t cause, uint32_t toucher) {
    struct np_sim_slot *sim = np_ss(slot);
    bool goes_on = sim->place_pages != 0 && sim->place_pages < RUN_PAGES_MAX && page == sim->place_page + sim->place_pages &&
                   node == sim->place_node && cause == sim->place_cause && toucher == sim->place_toucher;
    if (!goes_on) {
        np_place_flush(slot);
        sim->place_page = page;
        sim->place_node = node;
        sim->place_cause = cause;
        sim->place_toucher = toucher;
    }
    sim->place_pages++;
    sim->place_order = np_order();
    /* The stamps say which of several processes was first, so no record may wait for the pages that follow it. */
    if (np_unlikely(np_load(np_sim.shares) || np_load(np_sim.forked))) np_place_flush(slot);
}

void np_page_placed(struct np_slot *slot, uint64_t page, uint32_t node, uint32_t cause) {
    place_by(slot, page, node, cause, slot->thread_index);
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

/* Whether the thread's policy gives each page it places another node than the one before. */
static bool places_by_turns(struct np_slot *slot) {
    uint32_t mode = np_ss(slot)->policy_mode;
    return mode == POLICY_INTERLEAVE || mode == POLICY_WEIGHTED_INTERLEAVE;
}

/* As the memory policy of `toucher` says, `slot`'s own or another's. One that has ended leaves its node alone. */
uint32_t np_page_choose(struct np_slot *slot, const struct np_toucher *toucher, uint64_t page, uint32_t byte, uint32_t *cause) {
    *cause = NP_PLACED_POLICY;
    if (byte >= BYTE_POLICY && byte < BYTE_LOCAL) return nearest_with_memory(byte - BYTE_POLICY);
    if (byte != BYTE_LOCAL) {
        const struct np_sim_slot *sim = toucher->slot != NULL ? np_ss(toucher->slot) : NULL;
        uint32_t mode = sim != NULL ? sim->policy_mode : POLICY_DEFAULT;
        if (mode == POLICY_INTERLEAVE || mode == POLICY_WEIGHTED_INTERLEAVE)
            return nth_node(usable(sim->policy_nodes), toucher->slot == slot ? np_ss(slot)->policy_turn++ : page);
        if (mode == POLICY_PREFERRED || mode == POLICY_BIND || mode == POLICY_PREFERRED_MANY)
            return nearest_of(usable(sim->policy_nodes), toucher->node);
        if (mode == POLICY_DEFAULT && np_arena->config.placement == NP_PLACE_INTERLEAVE && np_sim.memory_nodes != 0)
            return np_sim.memory_node[page % np_sim.memory_nodes];
    }
    *cause = NP_PLACED_FIRST_TOUCH;
    return nearest_with_memory(toucher->node);
}

static long own_faults(void) {
    struct rusage usage = {0}; /* its page of the stack is there before faults are counted */
    return NP_SYS2(SYS_getrusage, RUSAGE_THREAD, &usage) == 0 ? usage.ru_minflt + usage.ru_majflt : -1;
}

/* Has the kernel put memory behind the page now, as the access that follows would. Until that comes, the thread may wait (for others' clocks, for room in its
 * ring), and whoever wrote to the page meanwhile would get it. By advice: memory that may not be accessed is left to the access, whose signal is the
 * program's own. Kernels before 5.14 do not know it, and the gap stays. False: there was memory already, as the thread's count of faults says. */
bool np_page_populate(uint64_t page, enum next next) {
    if (np_is_confined) return true;
    long before = own_faults(), advice = next == NEXT_READ ? MADV_POPULATE_READ : MADV_POPULATE_WRITE;
    uintptr_t bytes = np_page_bytes(); /* the kernel takes no parts of its pages */
    long result = NP_SYS3(SYS_madvise, (page << NP_PAGE_SHIFT) & -bytes, bytes, advice);
    return result != 0 || before < 0 || own_faults() != before;
}

/* Whether others can come between. */
static bool must_populate(enum next next, bool depends_on_toucher) {
    return next == NEXT_READ || next == NEXT_WRITE || (next == NEXT_OWN && depends_on_toucher && np_load(np_sim.concurrent));
}

/* Another thread's access came after the question and before `populate`: the page is its, and its fault is a plain one: the recorder has the kernel's event.
 * No other thread has populated the page, because only the thread that sets its home does. */
NP_COLD uint32_t np_page_overtaken(struct np_slot *slot, uint64_t page, uint8_t *byte, uint32_t node, uint8_t policy) {
    struct np_toucher toucher;
    uint32_t cause = NP_PLACED_UNKNOWN, now = NP_HOME_UNKNOWN;
    bool is_known = np_toucher_of(slot, page, &toucher);
    if (is_known) now = np_page_choose(slot, &toucher, page, policy, &cause);
    uint8_t seen = (uint8_t)(node + BYTE_HOME), value = is_known ? (uint8_t)(now + BYTE_HOME) : BYTE_UNKNOWN;
    /* Moved or given back meanwhile: that holds. */
    if (!__atomic_compare_exchange_n(byte, &seen, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return has_home(seen) ? home_in(seen) : node;
    place_by(slot, page, is_known ? now : slot->node, cause, is_known ? toucher.thread_index : slot->thread_index);
    return now;
}

/* The kernel's page may be several of ours (arm64): whoever touches it first has touched all of it, and the kernel has no event of that (mm_account_fault). */
static void touch_rest(struct np_slot *slot, uint64_t page) {
    struct np_toucher toucher = {slot, slot->thread_index, slot->node, 1};
    uint64_t each = np_page_bytes() >> NP_PAGE_SHIFT, first = page & -each;
    for (uint64_t at = first; at < first + each; at++) {
        uint8_t *byte = at != page ? byte_of(at, true) : NULL, seen = byte != NULL ? __atomic_load_n(byte, __ATOMIC_RELAXED) : BYTE_UNKNOWN;
        if (has_home(seen) || seen == BYTE_UNKNOWN) continue;
        uint32_t cause, node = np_page_choose(slot, &toucher, at, unread_byte(seen), &cause);
        bool is_first = __atomic_compare_exchange_n(byte, &seen, (uint8_t)(node + BYTE_HOME), false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
        if (is_first) np_page_placed(slot, at, node, cause);
    }
}

/* Gives the page the home that `slot` as its first toucher causes, unless another thread is faster. */
static uint32_t touch(struct np_slot *slot, uint64_t page, uint8_t *byte, uint8_t seen, enum next next) {
    struct np_toucher toucher = {slot, slot->thread_index, slot->node, 1};
    uint8_t policy = unread_byte(seen);
    uint32_t cause, node = np_page_choose(slot, &toucher, page, policy, &cause);
    while (!__atomic_compare_exchange_n(byte, &seen, (uint8_t)(node + BYTE_HOME), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        if (has_home(seen)) return home_in(seen);
    bool depends_on_toucher = policy < BYTE_POLICY || policy == BYTE_LOCAL;
    if (must_populate(next, depends_on_toucher)) {
        if (!np_page_populate(page, next)) return np_page_overtaken(slot, page, byte, node, policy);
        seen = __atomic_load_n(byte, __ATOMIC_ACQUIRE);
        if (has_home(seen) && home_in(seen) != node) return home_in(seen); /* another thread has provided it, and told so (userfault.c) */
    }
    np_page_placed(slot, page, node, cause);
    if (next != NEXT_NONE && np_page_bytes() > 1ul << NP_PAGE_SHIFT) touch_rest(slot, page);
    return node;
}

/* The page is the zero page for now. Somebody who wrote it meanwhile gave it a home. */
static uint32_t read_of_nothing(uint8_t *byte, uint8_t seen) {
    while (!is_read(seen) && !__atomic_compare_exchange_n(byte, &seen, read_byte(seen), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        if (has_home(seen)) return home_in(seen);
    return NP_HOME_NONE;
}

/* Who touched the page first is not to be found out here. */
static uint32_t leave_unknown(struct np_slot *slot, uint64_t page, uint8_t *byte, uint8_t seen) {
    while (!__atomic_compare_exchange_n(byte, &seen, BYTE_UNKNOWN, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        if (has_home(seen)) return home_in(seen);
    np_page_placed(slot, page, slot->node, NP_PLACED_UNKNOWN);
    return NP_HOME_UNKNOWN;
}

/* A read of a file's page that is a copy for whoever writes it first. */
static uint32_t read_of_file(struct np_slot *slot, uint64_t page, uint8_t *byte, uint8_t seen) {
    struct np_toucher toucher = {slot, slot->thread_index, slot->node, 1};
    uint32_t cause, node = np_page_choose(slot, &toucher, page, unread_byte(seen), &cause);
    if (marked_byte(node) == BYTE_UNKNOWN) return leave_unknown(slot, page, byte, seen);
    np_page_mark(page);
    while (!__atomic_compare_exchange_n(byte, &seen, marked_byte(node), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        if (has_home(seen)) return home_in(seen);
    np_page_placed(slot, page, node, cause);
    return node;
}

/* Takes the pages that `toucher` touched unseen; the first of them is asked for. */
static uint32_t touched_unseen(struct np_slot *slot, uint64_t page, const struct np_toucher *toucher) {
    enum np_backing backings[NP_BACKINGS_MAX];
    uint32_t pages = toucher->pages < NP_BACKINGS_MAX ? toucher->pages : NP_BACKINGS_MAX, first = 0;
    uint32_t known = pages > 1 ? np_backings(page, pages, backings) : 0;
    for (uint32_t i = 0; i == 0 || i < known; i++) {
        uint8_t *byte = byte_of(page + i, true), seen = byte != NULL ? __atomic_load_n(byte, __ATOMIC_RELAXED) : 0;
        if (byte == NULL || (i > 0 && (backings[i] != NP_BACKING_PAGE || seen != 0))) break;
        uint32_t cause, node = np_page_choose(slot, toucher, page + i, unread_byte(seen), &cause);
        if (!__atomic_compare_exchange_n(byte, &seen, (uint8_t)(node + BYTE_HOME), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            if (i == 0) return has_home(seen) ? home_in(seen) : node;
            break;
        }
        if (i == 0) first = node;
        place_by(slot, page + i, node, cause, toucher->thread_index);
    }
    return first;
}

/* Memory that code which is not recorded has written: the first toucher by the kernel's events; with a policy of the range none is needed. */
static NP_COLD uint32_t unseen(struct np_slot *slot, uint64_t page, uint8_t *byte, uint8_t seen) {
    uint8_t policy = unread_byte(seen);
    struct np_toucher toucher = {slot, slot->thread_index, slot->node, 1};
    bool is_alone = !__atomic_load_n(&np_sim.concurrent, __ATOMIC_RELAXED) && !__atomic_load_n(&np_sim.forked, __ATOMIC_RELAXED);
    bool by_policy = policy >= BYTE_POLICY && policy < BYTE_LOCAL;
    if (is_alone || by_policy || np_toucher_of(slot, page, &toucher)) return touched_unseen(slot, page, &toucher);
    return leave_unknown(slot, page, byte, seen);
}

#ifndef NP_PLUGIN
static enum np_write_effect write_effect(uint64_t page) {
    enum np_write_effect effect;
    return np_write_effects(page, 1, &effect) == 1 ? effect : NP_WRITE_UNKNOWN;
}
#endif

/* An access to a page without a home that we know of. */
static NP_COLD uint32_t first_miss(struct np_slot *slot, uint64_t page, uint8_t *byte, uint8_t seen, uint32_t write) {
    enum next next = NEXT_NONE;
#ifdef NP_PLUGIN
    /* The access has happened: a write is the first as far as anybody knows, a read finds what there is. */
    enum np_backing backing;
    if (!write && np_backings(page, 1, &backing) == 1) {
        if (backing == NP_BACKING_ZERO) return read_of_nothing(byte, seen);
        if (backing == NP_BACKING_PAGE) return unseen(slot, page, byte, seen);
        if (backing == NP_BACKING_FILE) return read_of_file(slot, page, byte, seen); /* or of shared memory: a write will show which */
    }
#else
    enum np_backing backing = np_backing(page);
    if (backing == NP_BACKING_PAGE) {
        /* Its parent's, or its children's, too: this write makes a page of its own. */
        bool is_copied = write && np_load(np_sim.forked) && write_effect(page) == NP_WRITE_COPIES;
        return is_copied ? touch(slot, page, byte, seen, NEXT_WRITE) : unseen(slot, page, byte, seen);
    }
    if (!write && backing == NP_BACKING_ZERO) return read_of_nothing(byte, seen);
    if (backing == NP_BACKING_FILE) { /* what is there is not fresh */
        if (np_page_is_common(slot, page)) return leave_unknown(slot, page, byte, seen);
    } else if (backing == NP_BACKING_NONE && np_page_is_common(slot, page)) {
        next = write ? NEXT_WRITE : NEXT_READ;
    } else if (!write && np_mapping_kind(slot, page << NP_PAGE_SHIFT) == NP_KIND_FRESH) {
        return read_of_nothing(byte, seen);
    } else if (write) {
        next = NEXT_OWN;
    }
    if (!write && np_mapping_kind(slot, page << NP_PAGE_SHIFT) == NP_KIND_COPIED) return read_of_file(slot, page, byte, seen);
#endif
    return touch(slot, page, byte, seen, next);
}

/* ---- pages that were read, and are still the zero page, or a file's ---- */

/* Of blocks of pages: when the kernel was last asked about those in it that were read, in units of ZERO_UNIT cycles of the asker's clock, above the block's
 * number. Program time, so that what is remembered is as old as what the first-stage filter holds, at most. */
#define ZERO_PAGES_LOG2 8
#define ZERO_UNIT_LOG2 20
#define ZERO_BLOCK_BITS 28
#define ZERO_BLOCKS 4096u /* 4 GiB */
_Static_assert(1u << ZERO_PAGES_LOG2 <= NP_BACKINGS_MAX && ZERO_PAGES_LOG2 < NP_LEAF_BITS, "one question, one leaf");
_Static_assert(NP_ADDRESS_BITS - NP_PAGE_SHIFT - ZERO_PAGES_LOG2 <= ZERO_BLOCK_BITS, "a block's number fits");
static uint64_t zero_asked[ZERO_BLOCKS];

/* As long as the process has not forked, only pages of files are marked; what a fork shares looks no different when it has been copied. */
static bool is_marked_file(uint8_t byte) { return is_marked(byte) && !np_load(np_sim.forked); }

/* As it was before it was read. */
static uint8_t forgotten_byte(uint64_t page, uint8_t byte) { return is_marked(byte) ? np_page_policy(page) : unread_byte(byte); }

/* Whether a page that was read, and had the byte `seen`, is what it was then, as far as is known: the zero page, or a file's. Code that is not recorded may
 * have written it: the kernel is asked, about all pages of the block at once, and those that are something else now are forgotten to have been read. */
static bool still_unwritten(const struct np_slot *slot, uint64_t page, uint8_t seen) {
    uint64_t block = page >> ZERO_PAGES_LOG2, now = np_clock_of(slot) >> ZERO_UNIT_LOG2, *asked = &zero_asked[block % ZERO_BLOCKS];
    uint64_t last = np_load(*asked), then = last >> ZERO_BLOCK_BITS;
    bool is_recent = now + 1 >= then && now <= then + (np_sim.counters_cycles >> ZERO_UNIT_LOG2);
    if (last != 0 && (last & ((1ull << ZERO_BLOCK_BITS) - 1)) == block && is_recent) return true;
    enum np_backing backings[1u << ZERO_PAGES_LOG2];
    uint64_t first = block << ZERO_PAGES_LOG2;
    uint8_t *bytes = byte_of(first, false); /* leaves are larger, and aligned */
    if (bytes == NULL || np_backings(first, 1u << ZERO_PAGES_LOG2, backings) != 1u << ZERO_PAGES_LOG2) return false;
    for (uint32_t i = 0; i < 1u << ZERO_PAGES_LOG2; i++) {
        uint8_t byte = np_load(bytes[i]);
        bool is_as_read = backings[i] == NP_BACKING_ZERO || backings[i] == NP_BACKING_NONE || (backings[i] == NP_BACKING_FILE && is_marked(byte));
        if (is_as_read || !(is_read(byte) || is_marked_file(byte))) continue;
        __atomic_compare_exchange_n(&bytes[i], &byte, forgotten_byte(first + i, byte), false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    }
    np_store(*asked, now << ZERO_BLOCK_BITS | block);
    return np_load(bytes[page - first]) == seen;
}

uint32_t np_page_home_slow(struct np_slot *slot, uintptr_t address, uint32_t write) {
    uint64_t page = address >> NP_PAGE_SHIFT;
    uint8_t *byte = byte_of(page, true);
    if (np_unlikely(byte == NULL)) return NP_HOME_UNKNOWN; /* beyond what the table has, or no memory for it: not the node of whoever asks */
    uint8_t seen = __atomic_load_n(byte, __ATOMIC_ACQUIRE); /* who sees a mark sees that there may be one: np_may_be_marked */
    if (!write && (is_read(seen) || is_marked_file(seen))) {
        if (still_unwritten(slot, page, seen)) return is_read(seen) ? NP_HOME_NONE : home_in(seen);
        seen = __atomic_load_n(byte, __ATOMIC_ACQUIRE);
    }
    if (np_likely(has_home(seen))) return home_in(seen);
    if (seen == BYTE_UNKNOWN) return NP_HOME_UNKNOWN;
    return first_miss(slot, page, byte, seen, write);
}

/* `are_new`: no other process can have touched them. */
static void touched(struct np_slot *slot, uintptr_t address, size_t bytes, bool are_new) {
    if (!np_sim.ready || bytes == 0) return;
    uint64_t last = (address + bytes - 1) >> NP_PAGE_SHIFT;
    for (uint64_t page = address >> NP_PAGE_SHIFT; page <= last; page++) {
        uint8_t *byte = byte_of(page, true);
        if (byte == NULL) return;
        uint8_t seen = __atomic_load_n(byte, __ATOMIC_RELAXED);
        if (is_marked(seen)) np_page_was_written(slot, page, byte, seen);
        if (has_home(seen) || seen == BYTE_UNKNOWN) continue;
#ifndef NP_PLUGIN
        if (!are_new && np_page_is_common(slot, page)) {
            leave_unknown(slot, page, byte, seen);
            continue;
        }
#else
        (void)are_new; /* all code is seen there: flows know who was first */
#endif
        touch(slot, page, byte, seen, NEXT_NONE);
    }
}

void np_pages_touched(struct np_slot *slot, uintptr_t address, size_t bytes) { touched(slot, address, bytes, false); }

void np_pages_made(struct np_slot *slot, uintptr_t address, size_t bytes) { touched(slot, address, bytes, true); }

/* What one call fills, at most: MAX_RW_COUNT of the kernel (include/linux/fs.h). */
#define FILLED_MAX (1ull << 31)

/* It has none, or that of a file's page, of which somebody may have got a copy by now. */
static bool lacks_home(uint8_t seen) { return (!has_home(seen) || is_marked_file(seen)) && seen != BYTE_UNKNOWN; }

static bool page_lacks_home(uint64_t page) {
    const uint8_t *byte = byte_of(page, false);
    return byte == NULL || lacks_home(np_load(*byte));
}

/* The page, of the byte `seen`, is no file's. Its byte is one without a home now, or another thread has changed it: false. */
static bool lose_mark(uint64_t page, uint8_t *byte, uint8_t *seen) {
    uint8_t value = np_page_policy(page);
    if (!is_marked(*seen)) return true;
    if (!__atomic_compare_exchange_n(byte, seen, value, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return false;
    *seen = value;
    return true;
}

static void settle_unseen(struct np_slot *slot, uint64_t page, uint32_t pages) {
    enum np_backing backings[NP_BACKINGS_MAX];
    uint32_t known = np_backings(page, pages, backings);
    for (uint32_t i = 0; i < known; i++) {
        uint8_t *byte = backings[i] == NP_BACKING_PAGE ? byte_of(page + i, true) : NULL;
        uint8_t seen = byte != NULL ? __atomic_load_n(byte, __ATOMIC_RELAXED) : BYTE_UNKNOWN;
        if (!lacks_home(seen)) continue;
#ifdef NP_PLUGIN
        /* Not every access to a stack is seen: a page of which nothing is known stays without a home, and becomes the caller's, whose stack it mostly is. */
        struct np_toucher toucher;
        if (np_toucher_of(slot, page + i, &toucher) && lose_mark(page + i, byte, &seen)) touched_unseen(slot, page + i, &toucher);
#else
        if (lose_mark(page + i, byte, &seen)) unseen(slot, page + i, byte, seen);
#endif
    }
}

bool np_pages_are_contested(void) { return np_load(np_sim.ready) && (np_load(np_sim.concurrent) || np_load(np_sim.forked)); }

void np_pages_to_fill(struct np_slot *slot, uintptr_t address, size_t bytes) {
    uint8_t resident[NP_BACKINGS_MAX];
    if (bytes == 0 || !np_pages_are_contested()) return;
    uint64_t page = address >> NP_PAGE_SHIFT, end = ((address + (bytes < FILLED_MAX ? bytes : FILLED_MAX) - 1) >> NP_PAGE_SHIFT) + 1;
    while (page < end) {
        if (!page_lacks_home(page)) {
            page++;
            continue;
        }
        uint32_t pages = end - page < NP_BACKINGS_MAX ? (uint32_t)(end - page) : NP_BACKINGS_MAX;
        if (np_resident(page, pages, resident) != 0) return;
        if (memchr(resident, 1, pages) != NULL) settle_unseen(slot, page, pages);
        page += pages;
    }
}

#ifndef NP_PLUGIN
struct alone { struct np_slot *slot; uint64_t left; };

/* `of_file`: only what was a file's when it was read. */
static void take_alone(struct np_slot *slot, uint64_t page, uint32_t pages, bool of_file) {
    enum np_backing backings[NP_BACKINGS_MAX];
    uint32_t known = np_backings(page, pages, backings);
    for (uint32_t i = 0; i < known; i++) {
        uint8_t *byte = backings[i] == NP_BACKING_PAGE ? byte_of(page + i, true) : NULL;
        uint8_t seen = byte != NULL ? __atomic_load_n(byte, __ATOMIC_RELAXED) : BYTE_HOME;
        bool is_taken = of_file ? is_marked(seen) && lose_mark(page + i, byte, &seen) : !has_home(seen);
        if (is_taken) touch(slot, page + i, byte, seen, NEXT_NONE);
    }
}

static bool look_alone(const struct np_maps_line *line, void *context) {
    struct alone *alone = context;
    uint8_t resident[NP_BACKINGS_MAX];
    bool has_marks = line->lo >> NP_PAGE_SHIFT < np_load(np_marked->end) && line->hi >> NP_PAGE_SHIFT > np_load(np_marked->first);
    if (line->perms[3] != 'p' || line->perms[1] != 'w' || (line->inode != 0 && !has_marks)) return true;
    for (uint64_t page = line->lo >> NP_PAGE_SHIFT, end = line->hi >> NP_PAGE_SHIFT; page < end && alone->left > 0; page += NP_BACKINGS_MAX) {
        uint32_t pages = end - page < NP_BACKINGS_MAX ? (uint32_t)(end - page) : NP_BACKINGS_MAX;
        alone->left -= pages < alone->left ? pages : alone->left;
        if (np_resident(page, pages, resident) == 0 && memchr(resident, 1, pages) != NULL) take_alone(alone->slot, page, pages, line->inode != 0);
    }
    return true;
}

void np_pages_before_threads(struct np_slot *slot) {
    static bool is_done;
    /* Relaxed: whoever sees a stale `false` would itself be a second thread, whose creator, by making it, let it see `is_done`. */
    if (!np_load(np_sim.ready) || np_load(np_sim.concurrent) || np_load(np_sim.forked) || np_arena->fault_events == NP_FAULTS_ALL) return;
    if (__atomic_exchange_n(&is_done, true, __ATOMIC_RELAXED)) return;
    struct alone alone = {slot, ALONE_PAGES_MAX};
    np_maps_each(look_alone, &alone);
}
#endif

uint32_t np_pages_node(struct np_slot *slot) {
    struct np_toucher toucher = {slot, slot->thread_index, slot->node, 1};
    uint32_t cause;
    bool is_by_page = np_ss(slot)->policy_mode == POLICY_DEFAULT && np_arena->config.placement == NP_PLACE_INTERLEAVE;
    return !np_sim.ready || is_by_page || places_by_turns(slot) ? NP_NONE16 : np_page_choose(slot, &toucher, 0, 0, &cause);
}

uint32_t np_page_expected(struct np_slot *slot, const struct np_toucher *toucher, uint64_t page) {
    uint32_t cause, policy = np_page_policy(page);
    if (policy == 0 && toucher->slot != NULL && places_by_turns(toucher->slot)) return NP_NONE16;
    return np_page_choose(slot, toucher, page, policy, &cause);
}

int np_page_query(uintptr_t address) {
    uint8_t *byte = byte_of(address >> NP_PAGE_SHIFT, false);
    uint8_t seen = byte == NULL ? 0 : __atomic_load_n(byte, __ATOMIC_RELAXED);
    return has_home(seen) ? (int)home_in(seen) : -1;
}

bool np_page_move(struct np_slot *slot, uintptr_t address, uint32_t node) {
    uint8_t *byte = byte_of(address >> NP_PAGE_SHIFT, false);
    if (byte == NULL) return false;
    uint8_t seen = __atomic_load_n(byte, __ATOMIC_RELAXED);
    while (has_home(seen) || seen == BYTE_UNKNOWN) {
        uint8_t value = (uint8_t)(is_marked(seen) && marked_byte(node) != BYTE_UNKNOWN ? marked_byte(node) : node + BYTE_HOME);
        if (seen == value) return true;
        if (!__atomic_compare_exchange_n(byte, &seen, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) continue;
        np_page_placed(slot, address >> NP_PAGE_SHIFT, node, NP_PLACED_MOVED);
        return true;
    }
    return false;
}

/* ---- ranges ---- */

void np_pages_each_leaf(uint64_t first, uint64_t end, bool make, void (*visit)(uint64_t page, uint8_t *bytes, uint64_t count, void *context), void *context) {
    if (end > NP_LEAVES << NP_LEAF_BITS) end = NP_LEAVES << NP_LEAF_BITS;
    while (first < end) {
        uint64_t stop = (first | (LEAF_PAGES - 1)) + 1;
        if (stop > end) stop = end;
        uint8_t *bytes = byte_of(first, make);
        if (bytes != NULL) visit(first, bytes, stop - first, context);
        first = stop;
    }
}

/* Pages that were forgotten: from the first to behind the last. */
struct forgotten { uint64_t first, end; };

static void forget(struct forgotten *forgotten, uint64_t page, uint8_t *byte, uint8_t value) {
    __atomic_store_n(byte, value, __ATOMIC_RELAXED);
    if (forgotten->end == 0) forgotten->first = page;
    forgotten->end = page + 1;
}

static void forget_part(uint64_t page, uint8_t *bytes, uint64_t count, void *context) {
    for (uint64_t i = 0; i < count; i++) {
        if (np_load(bytes[i]) == 0) continue;
        forget(context, page + i, &bytes[i], 0);
        set_policy(page + i, 0);
    }
}

/* `same_mapping`: its pages were discarded, and it goes on with its policy. Else what is there now is another, as far as is known. */
static void settle(uint64_t page, uint8_t *bytes, uint64_t count, struct forgotten *forgotten, bool same_mapping) {
    uint8_t resident[SETTLED_PAGES];
    for (uint64_t i = next_known(bytes, 0, count); i < count; i = next_known(bytes, i, count)) {
        uint64_t pages = count - i < SETTLED_PAGES ? count - i : SETTLED_PAGES;
        long result = np_resident(page + i, pages, resident);
        /* Not all of it is mapped: one by one. */
        if (result != 0 && pages > 1) result = np_resident(page + i, pages = 1, resident);
        if (result == -ENOMEM) resident[0] = 0;
        else if (result != 0) return; /* unknown: homes stay */
        for (uint64_t k = 0; k < pages; k++) {
            uint8_t seen = np_load(bytes[i + k]);
            if (resident[k] & 1 || seen == 0 || is_policy(seen)) continue;
            if (!is_read(seen) && !(same_mapping && result == 0)) set_policy(page + i + k, 0);
            forget(forgotten, page + i + k, &bytes[i + k], is_read(seen) ? unread_byte(seen) : np_page_policy(page + i + k));
        }
        i += pages;
    }
}

static void settle_part(uint64_t page, uint8_t *bytes, uint64_t count, void *context) { settle(page, bytes, count, context, false); }

static void discard_part(uint64_t page, uint8_t *bytes, uint64_t count, void *context) { settle(page, bytes, count, context, true); }

#ifndef NP_PLUGIN
/* Copies of a file's pages that have been discarded: mincore tells of the file's own, which are there as before. */
static void discard_copies(uint64_t page, uint8_t *bytes, uint64_t count, void *context) {
    struct np_slot *slot = np_self_if_live();
    enum np_backing backings[NP_BACKINGS_MAX];
    for (uint64_t i = next_known(bytes, 0, count); slot != NULL && i < count; i = next_known(bytes, i, count)) {
        uint32_t known = np_backings(page + i, count - i < NP_BACKINGS_MAX ? (uint32_t)(count - i) : NP_BACKINGS_MAX, backings);
        if (known == 0) return;
        for (uint32_t k = 0; k < known; k++) {
            uint64_t at = page + i + k;
            uint8_t seen = np_load(bytes[i + k]);
            bool may_be_copy = (is_home(seen) || seen == BYTE_UNKNOWN) && (backings[k] == NP_BACKING_NONE || backings[k] == NP_BACKING_FILE);
            if (may_be_copy && np_mapping_kind(slot, at << NP_PAGE_SHIFT) == NP_KIND_COPIED) forget(context, at, &bytes[i + k], np_page_policy(at));
        }
        i += known;
    }
}
#endif

static void forget_lines(uintptr_t address, size_t bytes) {
    struct np_slot *slot;
    for (uint32_t index = 0; (slot = np_next_own_slot(&index)) != NULL;) np_filter_drop_range(slot, address, bytes);
}

/* Before homes in the range change: what is held back of their placing is written. */
static void flush_range(uint64_t first, uint64_t end) {
    struct np_slot *slot = np_self_if_live();
    if (slot != NULL && np_ss(slot)->place_page < end && first < np_ss(slot)->place_page + np_ss(slot)->place_pages) np_place_flush(slot);
}

static void drop_lines(const struct forgotten *forgotten) {
    if (forgotten->end != 0) forget_lines(forgotten->first << NP_PAGE_SHIFT, (forgotten->end - forgotten->first) << NP_PAGE_SHIFT);
}

static void change(uintptr_t address, size_t bytes, void (*visit)(uint64_t page, uint8_t *bytes, uint64_t count, void *context)) {
    if (!np_sim.ready || bytes == 0) return;
    uint64_t first = address >> NP_PAGE_SHIFT, end = (address + bytes + (1u << NP_PAGE_SHIFT) - 1) >> NP_PAGE_SHIFT;
    struct forgotten forgotten = {0, 0};
    flush_range(first, end);
    np_pages_each_leaf(first, end, false, visit, &forgotten);
    drop_lines(&forgotten);
}

void np_pages_forget(uintptr_t address, size_t bytes) { change(address, bytes, forget_part); }

void np_pages_settle(uintptr_t address, size_t bytes) { change(address, bytes, settle_part); }

void np_pages_discarded(uintptr_t address, size_t bytes) {
    change(address, bytes, discard_part);
#ifndef NP_PLUGIN
    change(address, bytes, discard_copies);
#endif
}

void np_pages_frontier(struct np_slot *slot, uintptr_t address) {
    if (!np_sim.ready) return;
    uint64_t page = address >> NP_PAGE_SHIFT;
    uint8_t *byte = byte_of(page, true), seen = byte != NULL ? __atomic_load_n(byte, __ATOMIC_RELAXED) : 1, resident[2] = {0, 0};
    if (seen != 0 && !is_policy(seen)) return;
    long result = np_resident(page, 2, resident);
    if (result == -ENOMEM && np_resident(page, 1, resident) == 0) result = resident[1] = 0; /* the last page of a mapping */
    if (result == 0 && (resident[0] & 1) && !(resident[1] & 1)) touch(slot, page, byte, seen, false);
}

/* The page has a home, or was read, and is gone. */
static bool is_gone(uint64_t page) {
    const uint8_t *byte = byte_of(page, false);
    uint8_t resident = 1, seen = byte != NULL ? __atomic_load_n(byte, __ATOMIC_RELAXED) : 0;
    if (seen == 0 || is_policy(seen)) return false;
    long result = np_resident(page, 1, &resident);
    return result == -ENOMEM || (result == 0 && !(resident & 1));
}

void np_pages_given_back(uintptr_t block, size_t window) {
    if (!np_sim.ready) return;
    uintptr_t low = block & ~(window - 1);
    uint64_t first = low >> NP_PAGE_SHIFT, pages = window >> NP_PAGE_SHIFT;
    const uint8_t *bytes = byte_of(first, false); /* leaves are larger, and aligned */
    if (bytes == NULL) return;
    for (; pages > 0; pages--) { /* in whole words where they are empty: the window is a multiple; relaxed, as in next_known */
        while (pages % 8 == 0 && pages > 0 && np_load(*(const eight_bytes *)(const void *)(bytes + pages - 8)) == 0) pages -= 8;
        uint8_t byte = pages > 0 ? np_load(bytes[pages - 1]) : 1;
        if (byte != 0 && !is_policy(byte)) break;
    }
    if (pages > 0 && (is_gone(block >> NP_PAGE_SHIFT) || is_gone(first + pages - 1))) np_pages_settle(low, window);
}

void np_pages_remap(uintptr_t old, uintptr_t new, size_t bytes, bool stays) {
    struct np_slot *slot = np_self_if_live();
    uint64_t from = old >> NP_PAGE_SHIFT, to = new >> NP_PAGE_SHIFT, pages = (bytes + (1u << NP_PAGE_SHIFT) - 1) >> NP_PAGE_SHIFT;
    if (!np_sim.ready || slot == NULL || ((old ^ new) & ((1u << NP_PAGE_SHIFT) - 1)) != 0) return;
    struct forgotten left = {0, 0};
    flush_range(from, from + pages);
    /* All of it is asked first: a leaf that is made for the new place may come to lie where the pages were. */
    for (uint64_t i = 0; i < pages && !stays; i++) {
        const uint8_t *byte = byte_of(from + i, false);
        uint8_t resident;
        if (byte != NULL && np_load(*byte) != 0 && np_resident(from + i, 1, &resident) != -ENOMEM) pages = i;
    }
    for (uint64_t i = 0; i < pages; i++) {
        uint8_t *byte = byte_of(from + i, false);
        uint8_t seen = byte != NULL ? __atomic_load_n(byte, __ATOMIC_RELAXED) : 0;
        if (seen == 0) continue;
        uint8_t *now = byte_of(to + i, true);
        if (now == NULL) break;
        if (is_marked(seen)) np_page_mark(to + i);
        __atomic_store_n(now, seen, __ATOMIC_RELAXED);
        set_policy(to + i, np_page_policy(from + i));
        if (has_home(seen)) np_page_placed(slot, to + i, home_in(seen), NP_PLACED_MOVED);
        forget(&left, from + i, byte, 0);
    }
    np_place_flush(slot);
    drop_lines(&left);
}

struct policy {
    int mode;
    uint64_t nodes;
    uint64_t first;
};

/* Pages with a home keep it: the kernel's mbind without MPOL_MF_MOVE does not move what is there. Their next life is by the policy. */
static void policy_part(uint64_t page, uint8_t *bytes, uint64_t count, void *context) {
    const struct policy *policy = context;
    for (uint64_t i = 0; i < count; i++) {
        uint8_t seen = __atomic_load_n(&bytes[i], __ATOMIC_RELAXED), value = 0;
        if (policy->mode == POLICY_LOCAL) value = BYTE_LOCAL;
        else if (policy->mode == POLICY_INTERLEAVE || policy->mode == POLICY_WEIGHTED_INTERLEAVE)
            value = (uint8_t)(BYTE_POLICY + nth_node(policy->nodes, page + i - policy->first));
        else if (policy->mode != POLICY_DEFAULT) value = (uint8_t)(BYTE_POLICY + nth_node(policy->nodes, 0));
        set_policy(page + i, value);
        if (has_home(seen) || seen == BYTE_UNKNOWN) continue;
        if (is_read(seen)) value = read_byte(value);
        if (value != seen) __atomic_compare_exchange_n(&bytes[i], &seen, value, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    }
}

static uint64_t first_word(const uint64_t *nodemask, unsigned mask_words) { return nodemask != NULL && mask_words > 0 ? nodemask[0] : 0; }

void np_pages_policy(uintptr_t address, size_t bytes, int mode, const uint64_t *nodemask, unsigned mask_words) {
    if (!np_sim.ready || bytes == 0) return;
    struct policy policy = {mode, usable(first_word(nodemask, mask_words)), address >> NP_PAGE_SHIFT};
    if (mode == POLICY_PREFERRED && first_word(nodemask, mask_words) == 0) policy.mode = POLICY_LOCAL;
    if (policy.nodes == 0) return;
    np_pages_each_leaf(policy.first, (address + bytes + (1u << NP_PAGE_SHIFT) - 1) >> NP_PAGE_SHIFT, mode != POLICY_DEFAULT, policy_part, &policy);
}

void np_thread_policy(struct np_slot *slot, int mode, const uint64_t *nodemask, unsigned mask_words) {
    struct np_sim_slot *sim = np_ss(slot);
    sim->policy_mode = (uint32_t)mode;
    sim->policy_nodes = first_word(nodemask, mask_words);
    sim->policy_turn = 0;
    if (mode == POLICY_PREFERRED && sim->policy_nodes == 0) sim->policy_mode = POLICY_LOCAL;
}
