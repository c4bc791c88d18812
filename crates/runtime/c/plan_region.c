/* plan_region.c: one reserved range of addresses for all of the planner's blocks, in granules of 64 KiB.
 *
 * Reserved without access at first; pages get access as they are first handed out. A table says which span each granule belongs to. Spans that
 * come back are joined with their free neighbours and emptied, so that they cost no memory. Addresses below np_region + one granule serve
 * the loader's allocations while the real functions are looked up; those are never given back.
 *
 * Where the kernel charges memory that may be written as if all of it were (vm.overcommit_memory=2, `ulimit -d`), free spans lose their access once an
 * allocation of the program has failed: what it freed is its own again.
 */
#define _GNU_SOURCE
#include "plan.h"

#include <sys/mman.h>
#include <sys/resource.h>

#define MOST_BYTES (1ull << 40)
/* QEMU keeps 24 bytes for each 4 KiB that are mapped, with access or without, and copies them at each fork: 48 MiB for these. */
#define EMULATED_BYTES (1ull << 33)
#define LEAST_BYTES (1ull << 24)
#define LIMITED_SHARE 4 /* of what a limit on addresses leaves, at most */
#define TABLE_STEP (64ul << 10) /* of the table may be written more: for 512 MiB */
#define LEAST_CLOSED_LOG2 4u /* granules of a free span that loses its access: each is a mapping of its own */
#define MOST_CLOSED 4096u
#define STEP_BYTES (4ull << 20) /* access is given in steps of this size */
#define DESCRIPTOR_PAGES 65536u
#define FREE_LISTS 25u   /* up to MOST_BYTES */
#define MOST_STEPS 32u   /* in a list of which not all spans fit */
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24 /* Linux 5.18 */
#endif

uintptr_t np_region, np_region_bytes;
bool np_region_is_limited;

/* Last of all locks: whoever has it waits for no other, and allocates nothing. */
static struct np_plan_lock lock;
static bool is_wanted; /* what serves no block: whoever needed it could not have the lock, and its holder lets go of it */
static struct np_span **table;
static uintptr_t table_usable_end, table_end;
static bool has_address_limit, is_charged;
static uint64_t next_granule, usable_end;
static uint64_t bootstrap_used;
static struct np_span *free_spans[FREE_LISTS], *spare; /* list k: of 2^k to 2^(k+1) - 1 granules */
static struct np_span *fresh, *fresh_end;
static struct np_own_range *unused_range; /* addresses that no block has had yet */

/* A limit on addresses (`ulimit -v`; batch systems set one for every job) counts reserved ones: most of it is the program's. */
static uint64_t most_bytes(bool is_emulated) {
    struct rlimit limit;
    if (is_emulated) return EMULATED_BYTES;
    if (NP_SYS2(SYS_getrlimit, RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return MOST_BYTES;
    uint64_t used = np_bytes_mapped(), share = limit.rlim_cur > used ? (limit.rlim_cur - used) / LIMITED_SHARE & ~(NP_GRANULE - 1) : 0;
    np_store(has_address_limit, true);
    return share < MOST_BYTES ? share : MOST_BYTES;
}

/* Whether memory that may be written counts against a limit before it is touched. */
static bool charges_access(void) {
    struct rlimit limit;
    if (NP_SYS2(SYS_getrlimit, RLIMIT_DATA, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) return true;
    return np_number_in("/proc/sys/vm/overcommit_memory") == 2;
}

/* The table's entries for the granules before `end` may be written. */
static bool give_table(uintptr_t base, uintptr_t end) {
    uintptr_t wanted = (uintptr_t)&table[(end - base) >> NP_GRANULE_SHIFT];
    if (wanted <= table_usable_end) return true;
    uintptr_t to = (wanted + TABLE_STEP - 1) & ~(TABLE_STEP - 1);
    if (to > table_end) to = table_end;
    if (NP_SYS3(SYS_mprotect, table_usable_end, to - table_usable_end, PROT_READ | PROT_WRITE) != 0) return false;
    table_usable_end = to;
    return true;
}

static bool make_table(uintptr_t base, uint64_t bytes) {
    size_t table_bytes = bytes / NP_GRANULE * sizeof *table;
    table = np_pages_reserve(table_bytes);
    if (table == NULL) return false;
    table_usable_end = (uintptr_t)table;
    table_end = (uintptr_t)table + table_bytes;
    if (give_table(base, base + NP_GRANULE)) return true;
    np_pages_free(table, table_bytes);
    return false;
}

static bool reserve(uint64_t bytes) {
    long at = NP_SYS6(SYS_mmap, 0, bytes + NP_GRANULE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at < 0 && at > -4096) return false;
    uintptr_t base = ((uintptr_t)at + NP_GRANULE - 1) & ~(NP_GRANULE - 1);
    if (NP_SYS3(SYS_mprotect, base, NP_GRANULE, PROT_READ | PROT_WRITE) != 0 || !make_table(base, bytes)) {
        NP_SYS2(SYS_munmap, at, bytes + NP_GRANULE);
        return false;
    }
    next_granule = 1;
    usable_end = base + NP_GRANULE;
    if (bytes > NP_GRANULE) unused_range = np_own_range_add(usable_end, base + bytes);
    np_store(np_region_bytes, bytes);
    __atomic_store_n(&np_region, base, __ATOMIC_RELEASE); /* with the acquires in has_region: all of the above */
    return true;
}

bool np_region_make(const struct np_plan *plan) {
    if (plan == NULL) return reserve(NP_GRANULE);
    uint64_t most = most_bytes((plan->flags & NP_PLAN_EMULATED) != 0);
    is_charged = charges_access();
    np_store(np_region_is_limited, np_load(has_address_limit) || is_charged);
    for (uint64_t bytes = most; bytes >= LEAST_BYTES; bytes = bytes / 4 & ~(NP_GRANULE - 1))
        if (reserve(bytes)) return true;
    reserve(NP_GRANULE);
    return false;
}

/* Lets go of the addresses that no block has had yet. The lock is held. */
static bool give_addresses(void) {
    uintptr_t end = np_region + np_region_bytes, from = (usable_end + NP_GRANULE - 1) & ~(NP_GRANULE - 1);
    if (from >= end) return false;
    __atomic_store_n(&np_region_bytes, from - np_region, __ATOMIC_RELAXED);
    if (unused_range != NULL) np_store(unused_range->hi, from);
    NP_SYS2(SYS_munmap, from, end - from);
    return true;
}

/* New mappings in place of a span's: nothing is in them, advised of them, or locked. */
static bool map_anew(const struct np_span *span, int protection) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    return NP_SYS6(SYS_mmap, span->base, span->granules << NP_GRANULE_SHIFT, protection, flags, -1, 0) == (long)span->base;
}

/* Takes the access from free spans, great ones first, and with it what the kernel charges. Only new mappings do: it charges what lost its access by mprotect
 * as before. The lock is held. */
static bool close_free(void) {
    uint32_t closed = 0;
    bool has_closed = false;
    for (uint32_t list = FREE_LISTS; list-- > LEAST_CLOSED_LOG2;) {
        for (struct np_span *span = free_spans[list]; span != NULL && closed < MOST_CLOSED; span = span->next) {
            closed++;
            if (!span->has_open) continue;
            has_closed |= map_anew(span, PROT_NONE);
            span->has_closed = true; /* also where that failed: it may have no mapping then, and whoever takes it finds out */
            span->has_open = false;
        }
    }
    return has_closed;
}

/* Before a span that was free serves again. False: there is no memory. */
static bool open_span(const struct np_span *span) {
    return !span->has_closed || NP_SYS3(SYS_mprotect, span->base, span->granules << NP_GRANULE_SHIFT, PROT_READ | PROT_WRITE) == 0;
}

/* The table's entries for addresses that are not the region's any more. The lock is held. */
static void give_table_back(void) {
    uintptr_t page = np_page_bytes(), from = ((uintptr_t)&table[np_region_bytes >> NP_GRANULE_SHIFT] + page - 1) & -page;
    if (from >= table_end) return;
    for (unsigned i = 0; i < NP_OWN_RANGES; i++)
        if (np_load(np_own_ranges[i].lo) == (uintptr_t)table) np_store(np_own_ranges[i].hi, from);
    NP_SYS2(SYS_munmap, from, table_end - from);
    table_end = from;
    if (table_usable_end > table_end) table_usable_end = table_end;
}

/* The lock is held. */
static void give_way(void) {
    np_store(is_wanted, false);
    if (np_load(has_address_limit) && give_addresses()) give_table_back();
    if (is_charged) close_free();
}

static void unlock(void) {
    if (np_unlikely(np_load(is_wanted)) && !np_is_confined) give_way();
    np_plan_unlock(&lock);
}

/* Whether there is anything of ours; with the release in reserve. */
static bool has_region(void) { return __atomic_load_n(&np_region, __ATOMIC_ACQUIRE) != 0; }

/* From a hook of mmap, so perhaps from a signal handler. Where the interrupted code has the lock, it gives way as soon as it goes on: too late for this call
 * alone. True also where there was nothing left: of several threads that were refused at once the first one here takes it all, after the others' calls. */
bool np_region_shrink(void) {
    if (!has_region() || np_is_confined) return false;
    np_store(is_wanted, true);
    if (np_plan_lock_soon(&lock)) unlock();
    return true;
}

void np_region_limit(void) {
    if (!has_region() || np_is_confined) return;
    np_store(has_address_limit, true);
    np_store(np_region_is_limited, true);
    np_region_shrink();
}

void *np_region_bootstrap(size_t bytes) {
    uint64_t whole = (bytes + 79) & ~63ull;
    uint64_t at = __atomic_fetch_add(&bootstrap_used, whole, __ATOMIC_RELAXED);
    return has_region() && bytes < NP_GRANULE && at + whole <= NP_GRANULE ? (void *)(np_region + at) : NULL;
}

struct np_span *np_span_of(const void *block) {
    return __atomic_load_n(&table[((uintptr_t)block - np_region) >> NP_GRANULE_SHIFT], __ATOMIC_ACQUIRE);
}

static struct np_span *new_span(void) {
    struct np_span *span = spare;
    if (span != NULL) {
        spare = span->next;
    } else {
        if (fresh == fresh_end) {
            fresh = np_pages_new(DESCRIPTOR_PAGES);
            if (fresh == NULL) return fresh_end = NULL;
            fresh_end = fresh + DESCRIPTOR_PAGES / sizeof *fresh;
        }
        span = fresh++;
    }
    np_store(span->arena, NULL);
    np_store(span->kind, NP_SPAN_FREE);
    __builtin_memset(&span->size_class, 0, sizeof *span - offsetof(struct np_span, size_class));
    return span;
}

static void drop_span(struct np_span *span) {
    span->next = spare;
    spare = span;
}

static uint64_t index_of(uintptr_t base) { return (base - np_region) >> NP_GRANULE_SHIFT; }

static uint32_t list_of(uint64_t granules) { return 63 - (uint32_t)__builtin_clzll(granules); }

/* Before its size changes. */
static void unlink_free(struct np_span *span) {
    if (span->previous != NULL) span->previous->next = span->next;
    else free_spans[list_of(span->granules)] = span->next;
    if (span->next != NULL) span->next->previous = span->previous;
    span->next = span->previous = NULL;
}

/* A free span is found by its first and last granule. */
static void link_free(struct np_span *span) {
    np_store(span->kind, NP_SPAN_FREE);
    struct np_span **list = &free_spans[list_of(span->granules)];
    span->previous = NULL;
    span->next = *list;
    if (*list != NULL) (*list)->previous = span;
    *list = span;
    /* With the acquire in np_span_of: the descriptor is whole. */
    __atomic_store_n(&table[index_of(span->base)], span, __ATOMIC_RELEASE);
    __atomic_store_n(&table[index_of(span->base) + span->granules - 1], span, __ATOMIC_RELEASE);
}

static bool give_access(uintptr_t end) {
    if (end <= usable_end) return true;
    uintptr_t to = (end + STEP_BYTES - 1) & ~(STEP_BYTES - 1);
    if (to > np_region + np_region_bytes) to = np_region + np_region_bytes;
    if (!give_table(np_region, to)) return false; /* of all that has access: the next spans do not come here */
    if (NP_SYS3(SYS_mprotect, usable_end, to - usable_end, PROT_READ | PROT_WRITE) != 0) {
        to = end; /* as little as will do: memory may be strictly accounted */
        if (NP_SYS3(SYS_mprotect, usable_end, to - usable_end, PROT_READ | PROT_WRITE) != 0) return false;
    }
    usable_end = to;
    if (unused_range != NULL) np_store(unused_range->lo, to);
    return true;
}

static void link_part(struct np_span *part, const struct np_span *of, uintptr_t base, uint64_t granules) {
    part->base = base;
    part->granules = granules;
    part->has_open = of->has_open;
    part->has_closed = of->has_closed;
    link_free(part);
}

/* Cuts what is before `base` and behind the wanted granules off a span that is in no list. */
static bool trim(struct np_span *span, uintptr_t base, uint64_t granules) {
    uint64_t before = (base - span->base) >> NP_GRANULE_SHIFT, behind = span->granules - before - granules;
    struct np_span *head = before != 0 ? new_span() : NULL, *tail = behind != 0 ? new_span() : NULL;
    if ((before != 0 && head == NULL) || (behind != 0 && tail == NULL)) {
        if (head != NULL) drop_span(head);
        return false;
    }
    if (head != NULL) link_part(head, span, span->base, before);
    if (tail != NULL) link_part(tail, span, base + (granules << NP_GRANULE_SHIFT), behind);
    span->base = base;
    span->granules = granules;
    return true;
}

static uintptr_t aligned_in(const struct np_span *span, uint64_t alignment) { return (span->base + alignment - 1) & ~(alignment - 1); }

/* The smallest that fits among the first spans of a list. */
static struct np_span *best_of(struct np_span *span, uint64_t granules, uint64_t alignment, uint64_t steps) {
    struct np_span *best = NULL;
    for (; span != NULL && steps-- > 0; span = span->next) {
        uintptr_t end = aligned_in(span, alignment) + (granules << NP_GRANULE_SHIFT);
        bool fits = end <= span->base + (span->granules << NP_GRANULE_SHIFT);
        if (fits && (best == NULL || span->granules < best->granules)) best = span;
    }
    return best;
}

/* Of spans of this size on, the smallest sizes first; few steps, however many free spans there are: other threads wait. In a list whose spans all fit one
 * step suffices. */
static struct np_span *take_free(uint64_t granules, uint64_t alignment, uint64_t steps) {
    struct np_span *span = NULL;
    for (uint32_t list = list_of(granules); span == NULL && list < FREE_LISTS; list++) span = best_of(free_spans[list], granules, alignment, steps);
    if (span == NULL) return NULL;
    unlink_free(span);
    if (trim(span, aligned_in(span, alignment), granules) && open_span(span)) return span;
    link_free(span);
    return NULL;
}

static struct np_span *take_fresh(uint64_t granules, uint64_t alignment) {
    uintptr_t start = np_region + (next_granule << NP_GRANULE_SHIFT), base = (start + alignment - 1) & ~(alignment - 1);
    uintptr_t room = np_region + np_region_bytes - start, end = base + (granules << NP_GRANULE_SHIFT);
    if (granules > np_region_bytes >> NP_GRANULE_SHIFT || base - start + (granules << NP_GRANULE_SHIFT) > room || !give_access(end)) return NULL;
    struct np_span *span = new_span();
    if (span == NULL) return NULL;
    span->base = start;
    span->granules = (end - start) >> NP_GRANULE_SHIFT;
    span->has_open = true;
    if (!trim(span, base, granules)) {
        drop_span(span);
        return NULL;
    }
    next_granule = (end - np_region) >> NP_GRANULE_SHIFT;
    return span;
}

bool np_region_extend(struct np_span *span, uint64_t more) {
    np_plan_lock(&lock);
    uint64_t end = index_of(span->base) + span->granules, left = (np_region_bytes >> NP_GRANULE_SHIFT) - end;
    struct np_span *behind = end < next_granule ? np_load(table[end]) : NULL;
    bool done = false;
    if (behind != NULL && np_load(behind->kind) == NP_SPAN_FREE && behind->granules >= more) {
        unlink_free(behind);
        done = trim(behind, behind->base, more) && open_span(behind);
        if (done) drop_span(behind);
        else link_free(behind);
    } else if (end == next_granule && more <= left && give_access(np_region + ((end + more) << NP_GRANULE_SHIFT))) {
        next_granule += more;
        done = true;
    }
    if (done) {
        span->granules += more;
        for (uint64_t i = 0; i < more; i++) __atomic_store_n(&table[end + i], span, __ATOMIC_RELEASE);
    }
    unlock();
    return done;
}

struct np_span *np_region_take(uint64_t granules, uint64_t alignment) {
    if (alignment < NP_GRANULE) alignment = NP_GRANULE;
    if (granules == 0 || granules > np_load(np_region_bytes) >> NP_GRANULE_SHIFT || alignment > np_load(np_region_bytes)) return NULL;
    np_plan_lock(&lock);
    struct np_span *span = take_free(granules, alignment, MOST_STEPS);
    if (span == NULL) span = take_fresh(granules, alignment);
    if (span == NULL) span = take_free(granules, alignment, UINT64_MAX);
    if (span != NULL) {
        uint64_t first = index_of(span->base);
        for (uint64_t i = 0; i < granules; i++) __atomic_store_n(&table[first + i], span, __ATOMIC_RELEASE);
        np_store(span->kind, NP_SPAN_LARGE);
        span->zeroed = true;
        span->mappings = 0;
        span->refused = span->listed = span->advised = span->has_closed = false;
        span->has_open = true;
        span->free = NULL;
        span->used = span->bumped = 0;
        span->arena_next = span->arena_previous = span->next = span->previous = NULL;
    }
    unlock();
    return span;
}

/* Makes of one span as many as it has granules, in a list by `next`. What finds no descriptor stays one. */
struct np_span *np_region_split(struct np_span *span) {
    np_plan_lock(&lock);
    struct np_span *list = span;
    while (span->granules > 1) {
        struct np_span *last = new_span();
        if (last == NULL) break;
        last->granules = 1;
        last->base = span->base + (--span->granules << NP_GRANULE_SHIFT);
        np_store(last->kind, np_load(span->kind));
        last->zeroed = true;
        last->refused = span->refused;
        last->advised = span->advised;
        last->has_open = true;
        last->next = list;
        list = last;
        __atomic_store_n(&table[index_of(last->base)], last, __ATOMIC_RELEASE);
    }
    unlock();
    return list;
}

/* The span's memory goes back to the kernel, and its addresses read as zeroes. The kernel refuses that for pages that the program locked (mlock) and did
 * not unlock, as programs do that trust in free() to unmap: those are mapped anew, which drops the lock as unmapping would. False: nothing helped; the
 * addresses may hold old bytes, or nothing: so it is where the program restricts its system calls, too. Keeps errno.
 *
 * Advice about huge pages would stay, and go with the addresses to the next rule's objects: there is no advice that takes it back. New mappings have none. */
static bool empty(const struct np_span *span) {
    if (np_is_confined) return false; /* nothing is taken any more */
    int saved = errno;
    void *base = (void *)span->base;
    uint64_t bytes = span->granules << NP_GRANULE_SHIFT;
    bool is_empty = !span->advised && madvise(base, bytes, MADV_DONTNEED) == 0;
    if (!is_empty) {
        is_empty = map_anew(span, PROT_READ | PROT_WRITE);
        if (!is_empty) NP_SYS2(SYS_munlock, base, bytes); /* more than the program may lock (mlockall) */
        bool is_given = madvise(base, bytes, MADV_DONTNEED) == 0;
        is_empty = is_empty || is_given;
        if (!is_given) madvise(base, bytes, MADV_DONTNEED_LOCKED); /* locked as all new memory is (mlockall): it may go all the same */
    }
    errno = saved;
    return is_empty;
}

/* A free neighbour becomes part of a span. The lock is held. */
static void join(struct np_span *span, struct np_span *other) {
    unlink_free(other);
    if (other->base < span->base) span->base = other->base;
    span->granules += other->granules;
    span->has_open |= other->has_open;
    span->has_closed |= other->has_closed;
    drop_span(other);
}

/* Emptied first, and outside the lock: whoever takes it next finds zeroes. What cannot be emptied is never handed out again. */
void np_region_give(struct np_span *span) {
    int saved = errno;
    np_place_give_back(span->base, span->granules << NP_GRANULE_SHIFT, span->mappings);
    errno = saved;
    span->mappings = 0;
    if (!empty(span)) {
        np_store(span->arena, NULL);
        return;
    }
    np_plan_lock(&lock);
    uint64_t first = index_of(span->base);
    struct np_span *before = first > 1 ? np_load(table[first - 1]) : NULL;
    struct np_span *behind = first + span->granules < next_granule ? np_load(table[first + span->granules]) : NULL;
    np_store(span->arena, NULL);
    if (before != NULL && np_load(before->kind) == NP_SPAN_FREE) join(span, before);
    if (behind != NULL && np_load(behind->kind) == NP_SPAN_FREE) join(span, behind);
    link_free(span);
    unlock();
}

void np_region_fork(int phase) {
    np_plan_lock_fork(&lock, phase);
}
