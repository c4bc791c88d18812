/* pages.h: what the files of page homes share (pages.c, pages_common.c): the table of the process, a byte per page, in two levels. pages.c describes it. */
#ifndef NUMAPILOT_PAGES_H
#define NUMAPILOT_PAGES_H

#include "memsim.h"
#include "track.h"

#pragma GCC visibility push(hidden)

#define LEAF_PAGES (1ull << NP_LEAF_BITS)

/* A page's byte: 0 no home yet; 1 to 64 home + 1; 65 to 128 no home yet, policy says node + 65; 129 no home yet, policy says the toucher's node; from 130
 * to 195 the same but for homes, of a page that was read and is the kernel's zero page; 196 to 254 home + 196, of a page that is marked: another process may
 * have it, too, or a file, until this process writes it; 255 a home that is unknown. */
#define BYTE_HOME NP_PAGE_HOME
#define BYTE_POLICY NP_PAGE_POLICY
#define BYTE_LOCAL 129
#define BYTE_READ 130
#define BYTE_READ_LAST 195
#define BYTE_MARKED 196
#define BYTE_UNKNOWN 255

static inline bool is_home(uint8_t byte) { return byte >= BYTE_HOME && byte < BYTE_POLICY; }
static inline bool is_marked(uint8_t byte) { return byte >= BYTE_MARKED && byte < BYTE_UNKNOWN; }
static inline bool has_home(uint8_t byte) { return is_home(byte) || is_marked(byte); }
static inline uint32_t home_in(uint8_t byte) { return (uint32_t)byte - (is_home(byte) ? BYTE_HOME : BYTE_MARKED); }
/* The mark of a page on `node`. There is none for the last of the nodes that a machine may have: whose copy it will be is unknown then. */
static inline uint8_t marked_byte(uint32_t node) { return (uint8_t)(BYTE_MARKED + node < BYTE_UNKNOWN ? BYTE_MARKED + node : BYTE_UNKNOWN); }
static inline bool is_policy(uint8_t byte) { return byte >= BYTE_POLICY && byte <= BYTE_LOCAL; }
static inline uint8_t read_byte(uint8_t byte) { return byte == 0 ? BYTE_READ : (uint8_t)(byte - BYTE_POLICY + BYTE_READ + 1); }
static inline bool is_read(uint8_t byte) { return byte >= BYTE_READ && byte <= BYTE_READ_LAST; }
static inline uint8_t unread_byte(uint8_t byte) {
    return !is_read(byte) ? byte : byte == BYTE_READ ? 0 : (uint8_t)(byte - BYTE_READ - 1 + BYTE_POLICY);
}

static NP_COLD uint8_t *new_leaf(uint8_t **where) {
    uint8_t *leaf = np_pages_new(LEAF_PAGES), *seen = NULL;
    if (leaf == NULL) return NULL;
    if (__atomic_compare_exchange_n(where, &seen, leaf, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return leaf;
    np_pages_free(leaf, LEAF_PAGES);
    return seen;
}

/* The page's byte in a table. NULL: not a user-space address, or no memory for a leaf. */
static inline uint8_t *byte_in(uint8_t **leaves, uint64_t page, bool make) {
    if (np_unlikely(page >> NP_LEAF_BITS >= NP_LEAVES)) return NULL;
    uint8_t **where = &leaves[page >> NP_LEAF_BITS], *leaf = __atomic_load_n(where, __ATOMIC_ACQUIRE);
    if (np_unlikely(leaf == NULL)) {
        if (!make) return NULL;
        leaf = new_leaf(where);
        if (leaf == NULL) return NULL;
    }
    return leaf + (page & (LEAF_PAGES - 1));
}

static inline uint8_t *byte_of(uint64_t page, bool make) { return byte_in(np_leaves, page, make); }

typedef uint64_t __attribute__((may_alias)) eight_bytes;

/* The next page of the part that has a home, or was read. */
static inline uint64_t next_known(const uint8_t *bytes, uint64_t at, uint64_t count) {
    /* Relaxed: other threads place pages meanwhile; whether a page that is just being placed counts makes no difference, as the kernel is asked next. */
    for (; at < count; at++) {
        while (((uintptr_t)(bytes + at) & 7) == 0 && at + 8 <= count && np_load(*(const eight_bytes *)(const void *)(bytes + at)) == 0) at += 8;
        uint8_t byte = at < count ? np_load(bytes[at]) : 1;
        if (byte != 0 && !is_policy(byte)) break;
    }
    return at < count ? at : count;
}

/* Asked of the kernel in one call. */
#define SETTLED_PAGES 1024u
/* Address space looked through for pages that were touched unseen: 256 GiB. */
#define ALONE_PAGES_MAX (1ull << 26)

/* The access that follows, for which the kernel has no memory yet. */
enum next {
    NEXT_NONE, /* or it has happened already */
    NEXT_OWN,  /* a write to memory of this process alone */
    NEXT_READ, NEXT_WRITE, /* to memory that other processes may touch */
};

/* ---- pages.c ---- */
/* Tells that the thread has placed the page; runs of pages are held back, and told as one. */
void np_page_placed(struct np_slot *slot, uint64_t page, uint32_t node, uint32_t cause);
/* The record of that at once, for any thread as the toucher. */
void np_page_put(struct np_slot *slot, uint64_t page, uint32_t pages, uint32_t node, uint32_t cause, uint32_t toucher, uint64_t order);
/* Where a page comes to lie that `toucher` touches first: by `policy`, a page's byte, else by the policy of the thread. */
uint32_t np_page_choose(struct np_slot *slot, const struct np_toucher *toucher, uint64_t page, uint32_t policy, uint32_t *cause);
/* The same of a page that the thread may have touched: nothing is placed. NP_NONE16: it places pages by turns. */
uint32_t np_page_expected(struct np_slot *slot, const struct np_toucher *toucher, uint64_t page);
/* The policy of the page's range, as a byte; 0: none. */
uint8_t np_page_policy(uint64_t page);
/* Has the kernel provide the page now. False: it was there already. */
bool np_page_populate(uint64_t page, enum next next);
/* That was the answer: the page, which `byte` says is on `node`, is another thread's. Its home, or NP_HOME_UNKNOWN. */
uint32_t np_page_overtaken(struct np_slot *slot, uint64_t page, uint8_t *byte, uint32_t node, uint8_t policy);
/* Calls `visit` for the part of the pages [first, end) in each leaf that exists (or, with `make`, in each leaf). */
void np_pages_each_leaf(uint64_t first, uint64_t end, bool make, void (*visit)(uint64_t page, uint8_t *bytes, uint64_t count, void *context), void *context);

/* ---- pages_common.c ---- */
/* Whether pages there are other processes' as well, who may have touched them first. */
bool np_page_is_common(struct np_slot *slot, uint64_t page);
/* Before the page gets its mark: writes to it will be looked at. */
void np_page_mark(uint64_t page);
/* The thread has written a marked page, whose byte was `seen`, by way of the kernel. */
void np_page_was_written(struct np_slot *slot, uint64_t page, uint8_t *byte, uint8_t seen);
/* This process's live slots, from `index` on; NULL: no more. */
struct np_slot *np_next_own_slot(uint32_t *index);

#pragma GCC visibility pop
#endif
