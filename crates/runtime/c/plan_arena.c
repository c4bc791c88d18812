/* plan_arena.c: the planner's own allocator.
 *
 * One arena for each rule, for policy `local` one for each rule and node. Blocks up to 16 KiB come in 36 sizes from spans of 64 KiB; greater ones have a
 * span of their own, which is kept for the next block of about that size where its pages may serve again. Nothing is written beside blocks: sizes
 * are in the spans' descriptors. Threads keep a few free blocks of each size; the arena has a lock.
 */
#define _GNU_SOURCE
#include "plan_arena.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define KEPT_BYTES (64ull << 20) /* of large spans, in an arena */
#define BIN_BYTES 8192u
#define RUN_GRANULES 16u
#define MOST_KEPT_STEPS 128u /* through the kept spans, while other threads wait */
#define COPY_BYTES (4ul << 20) /* at once, of a block that moves */

static struct np_plan_lock arenas_lock;
static struct np_plan_arena *arenas[NP_MAX_ARENAS];
static uint32_t arena_count;
static struct np_plan_arena *by_rule[256][NP_PLAN_NODES + 1];

/* -- sizes: 16 to 128 by 16, then four to each doubling -- */

static inline uint32_t class_of(size_t bytes) {
    if (bytes <= 128) return bytes == 0 ? 0 : (uint32_t)((bytes - 1) >> 4);
    uint32_t log2 = 63 - (uint32_t)__builtin_clzl(bytes - 1);
    return 8 + (log2 - 7) * 4 + (uint32_t)((bytes - 1) >> (log2 - 2) & 3);
}

static inline uint32_t class_bytes(uint32_t class) {
    if (class < 8) return (class + 1) << 4;
    uint32_t log2 = 7 + (class - 8) / 4;
    return (1u << log2) + ((class & 3) + 1) * (1u << (log2 - 2));
}

static inline uint32_t batch_of(uint32_t class) {
    uint32_t count = BIN_BYTES / class_bytes(class);
    return count > 32 ? 32 : count < 2 ? 2 : count;
}

/* -- arenas -- */

static NP_COLD struct np_plan_arena *make_arena(uint32_t rule, uint32_t node) {
    np_plan_lock(&arenas_lock);
    struct np_plan_arena *arena = by_rule[rule][node];
    if (arena == NULL && arena_count < NP_MAX_ARENAS && (arena = np_pages_new(sizeof *arena)) != NULL) {
        arena->id = arena_count;
        arena->rule = rule;
        arena->node = node;
        arenas[arena_count] = arena;
        __atomic_store_n(&arena_count, arena_count + 1, __ATOMIC_RELEASE);
        __atomic_store_n(&by_rule[rule][node], arena, __ATOMIC_RELEASE);
    }
    np_plan_unlock(&arenas_lock);
    return arena;
}

struct np_plan_arena *np_arena_of(struct np_plan_thread *thread, uint32_t rule) {
    uint32_t node = NP_ANY_NODE;
    if (np_plan_rules()[rule].policy == NP_PLAN_LOCAL) {
        uint32_t left = np_load(thread->node_left); /* another thread that renames this one sets it to 0 */
        if (left == 0) thread->node = np_place_node();
        np_store(thread->node_left, left == 0 ? 63 : left - 1);
        node = thread->node;
    }
    struct np_plan_arena *arena = __atomic_load_n(&by_rule[rule][node], __ATOMIC_ACQUIRE);
    return np_likely(arena != NULL) ? arena : make_arena(rule, node);
}

void np_arena_link(struct np_plan_arena *arena, struct np_span *span) {
    np_store(span->arena, arena);
    span->arena_previous = NULL;
    span->arena_next = arena->spans;
    if (arena->spans != NULL) arena->spans->arena_previous = span;
    arena->spans = span;
}

void np_arena_unlink(struct np_plan_arena *arena, struct np_span *span) {
    if (span->arena_previous != NULL) span->arena_previous->arena_next = span->arena_next;
    else arena->spans = span->arena_next;
    if (span->arena_next != NULL) span->arena_next->arena_previous = span->arena_previous;
}

/* What lies before is of the same arena: then both are one mapping, unless the policy cuts them. */
static bool joins(const struct np_plan_arena *arena, const struct np_span *span) {
    if (span->base - np_region <= NP_GRANULE) return false;
    const struct np_span *before = np_span_of((const void *)(span->base - 1));
    return before != NULL && np_load(before->arena) == arena && np_load(before->kind) != NP_SPAN_FREE;
}

void np_arena_place(struct np_plan_arena *arena, struct np_span *span, struct np_place place, uintptr_t first, uint64_t bytes) {
    uint32_t mappings;
    place.node = arena->node;
    struct np_plan_rule *rule = &np_plan_rules()[arena->rule];
    bool done = np_place_range(rule, place, first, bytes, &mappings);
    if (rule->flags & (NP_PLAN_HUGE | NP_PLAN_NO_HUGE)) span->advised = true;
    span->mappings += mappings; /* a span that grows is placed in parts */
    if (done) return;
    span->refused = true;
    __atomic_store_n(&arena->was_refused, true, __ATOMIC_RELAXED);
}

static void place_span(struct np_plan_arena *arena, struct np_span *span, bool is_run) {
    struct np_place place = {.joins = joins(arena, span), .is_run = is_run};
    np_arena_place(arena, span, place, span->base, span->granules << NP_GRANULE_SHIFT);
}

static struct np_span *new_large(struct np_plan_arena *arena, uint64_t granules, uint64_t alignment) {
    struct np_span *span = np_region_take(granules, alignment);
    if (span == NULL) return NULL;
    place_span(arena, span, false);
    np_arena_link(arena, span);
    return span;
}

/* Of one granule. They are placed many at a time, side by side, so that arenas do not cut the addresses into ever more mappings. */
static struct np_span *new_small(struct np_plan_arena *arena) {
    if (arena->ready == NULL) {
        struct np_span *run = np_region_take(RUN_GRANULES, NP_GRANULE);
        if (run == NULL) run = np_region_take(1, NP_GRANULE);
        if (run == NULL) return NULL;
        place_span(arena, run, true);
        if (run->mappings > 1) run->mappings = 0; /* its pieces come back one by one, and stay cut */
        arena->ready = np_region_split(run);
    }
    struct np_span *span = arena->ready;
    arena->ready = span->next;
    span->next = NULL;
    np_arena_link(arena, span);
    return span;
}

/* -- small blocks; the arena's lock is held -- */

static void list_room(struct np_plan_arena *arena, struct np_span *span) {
    span->listed = true;
    span->previous = NULL;
    span->next = arena->room[span->size_class];
    if (span->next != NULL) span->next->previous = span;
    arena->room[span->size_class] = span;
}

static void unlist_room(struct np_plan_arena *arena, struct np_span *span) {
    span->listed = false;
    if (span->previous != NULL) span->previous->next = span->next;
    else arena->room[span->size_class] = span->next;
    if (span->next != NULL) span->next->previous = span->previous;
}

static void *take_small(struct np_plan_arena *arena, uint32_t class) {
    struct np_span *span = arena->room[class];
    if (span == NULL) {
        span = new_small(arena);
        if (span == NULL) return NULL;
        np_store(span->kind, NP_SPAN_SMALL);
        span->size_class = class;
        span->block_bytes = class_bytes(class);
        span->capacity = NP_GRANULE / span->block_bytes;
        list_room(arena, span);
    }
    void *block = span->free;
    if (block != NULL) span->free = *(void **)block;
    else block = (void *)(span->base + (uint64_t)span->bumped++ * span->block_bytes);
    if (++span->used == span->capacity) unlist_room(arena, span);
    return block;
}

/* A span to be given back to the region once the lock is open, or NULL. */
static struct np_span *give_small(struct np_plan_arena *arena, struct np_span *span, void *block) {
    *(void **)block = span->free;
    span->free = block;
    if (!span->listed) list_room(arena, span);
    if (--span->used != 0 || (span->next == NULL && span->previous == NULL)) return NULL;
    unlist_room(arena, span);
    np_arena_unlink(arena, span);
    return span;
}

static NP_COLD void *refill(struct np_plan_arena *arena, uint32_t class, struct np_bin *bin) {
    np_plan_lock(&arena->lock);
    void *block = take_small(arena, class);
    for (uint32_t i = 1; bin != NULL && block != NULL && i < batch_of(class); i++) {
        void *more = take_small(arena, class);
        if (more == NULL) break;
        *(void **)more = bin->head;
        bin->head = more;
        bin->count++;
    }
    np_plan_unlock(&arena->lock);
    return block;
}

static NP_COLD void shrink(struct np_plan_arena *arena, struct np_bin *bin, uint32_t keep) {
    struct np_span *empty = NULL;
    np_plan_lock(&arena->lock);
    while (bin->count > keep) {
        void *block = bin->head;
        bin->head = *(void **)block;
        bin->count--;
        struct np_span *span = give_small(arena, np_span_of(block), block);
        if (span == NULL) continue;
        span->next = empty;
        empty = span;
    }
    np_plan_unlock(&arena->lock);
    while (empty != NULL) {
        struct np_span *next = empty->next;
        np_region_give(empty);
        empty = next;
    }
}

static inline struct np_bin *bin_of(struct np_plan_thread *thread, struct np_plan_arena *arena, uint32_t class) {
    return thread != NULL && arena->id < NP_CACHED_ARENAS ? &thread->bins[arena->id][class] : NULL;
}

void np_arena_flush(struct np_plan_thread *thread) {
    for (uint32_t id = 0; id < NP_CACHED_ARENAS && id < __atomic_load_n(&arena_count, __ATOMIC_ACQUIRE); id++) /* with the release in make_arena */
        for (uint32_t class = 0; class < NP_CLASSES; class++)
            if (thread->bins[id][class].count != 0) shrink(arenas[id], &thread->bins[id][class], 0);
}

/* -- large blocks -- */

/* Whether pages that served one object may serve another. */
static bool can_be_kept(const struct np_plan_rule *rule) {
    return rule->policy == NP_PLAN_NODE || rule->policy == NP_PLAN_INTERLEAVE || rule->policy == NP_PLAN_LOCAL ||
           (rule->policy == NP_PLAN_WEIGHTED && !(rule->flags & NP_PLAN_OWN_WEIGHTS));
}

static struct np_span *take_kept(struct np_plan_arena *arena, uint64_t granules, uint64_t alignment) {
    uint32_t steps = MOST_KEPT_STEPS;
    for (struct np_span *span = arena->kept; span != NULL && steps-- > 0; span = span->next) {
        if (span->granules < granules || span->granules > granules + granules / 4 || (span->base & (alignment - 1)) != 0) continue;
        if (span->previous != NULL) span->previous->next = span->next;
        else arena->kept = span->next;
        if (span->next != NULL) span->next->previous = span->previous;
        arena->kept_bytes -= span->granules << NP_GRANULE_SHIFT;
        span->zeroed = false;
        return span;
    }
    return NULL;
}

static void *take_large(struct np_plan_arena *arena, size_t bytes, size_t alignment, bool zero) {
    struct np_plan_rule *rule = &np_plan_rules()[arena->rule];
    if (bytes > np_load(np_region_bytes)) return NULL;
    uint64_t granules = (bytes + (bytes == 0) + NP_GRANULE - 1) >> NP_GRANULE_SHIFT;
    if ((rule->flags & NP_PLAN_HUGE) && bytes >= 2ul << 20 && alignment < 2ul << 20) alignment = 2ul << 20;
    np_plan_lock(&arena->lock);
    struct np_span *span = take_kept(arena, granules, alignment);
    if (span == NULL) span = new_large(arena, granules, alignment);
    if (span != NULL) {
        np_store(span->kind, NP_SPAN_LARGE);
        span->used = 1;
    }
    np_plan_unlock(&arena->lock);
    if (span == NULL) return NULL;
    if (zero && !span->zeroed) memset((void *)span->base, 0, bytes);
    return (void *)span->base;
}

static void give_large(struct np_plan_arena *arena, struct np_span *span) {
    uint64_t bytes = span->granules << NP_GRANULE_SHIFT;
    np_plan_lock(&arena->lock);
    bool keep = can_be_kept(&np_plan_rules()[arena->rule]) && arena->kept_bytes + bytes <= KEPT_BYTES;
    if (keep) {
        np_store(span->kind, NP_SPAN_CACHED);
        span->previous = NULL;
        span->next = arena->kept;
        if (arena->kept != NULL) arena->kept->previous = span;
        arena->kept = span;
        arena->kept_bytes += bytes;
    } else {
        np_arena_unlink(arena, span);
    }
    np_plan_unlock(&arena->lock);
    if (!keep) np_region_give(span);
}

/* -- all blocks -- */

void *np_arena_alloc(struct np_plan_thread *thread, uint32_t rule, size_t bytes, size_t alignment, bool zero) {
    struct np_plan_arena *arena = np_arena_of(thread, rule);
    if (np_unlikely(arena == NULL)) return NULL;
    void *block;
    bool is_due = false; /* what this thread placed is counted now and then */
    /* Spans begin at multiples of 64 KiB, so blocks of a power of two in size are aligned to it. */
    size_t wanted = bytes;
    if (np_unlikely(alignment > 16)) {
        wanted = bytes > alignment ? bytes : alignment;
        if (wanted <= NP_SMALL_MAX && (wanted & (wanted - 1)) != 0) wanted = 1ul << (64 - __builtin_clzl(wanted));
    }
    if (np_likely(wanted <= NP_SMALL_MAX)) {
        uint32_t class = class_of(wanted);
        struct np_bin *bin = bin_of(thread, arena, class);
        if (np_likely(bin != NULL && bin->head != NULL)) {
            block = bin->head;
            bin->head = *(void **)block;
            bin->count--;
        } else {
            block = refill(arena, class, bin);
            is_due = true;
        }
        if (zero && block != NULL) memset(block, 0, bytes);
    } else {
        block = take_large(arena, bytes, alignment, zero);
        is_due = true;
    }
    if (np_likely(block != NULL)) {
        bool is_refused = np_unlikely(__atomic_load_n(&arena->was_refused, __ATOMIC_RELAXED)) && np_span_of(block)->refused;
        np_plan_block_counted(thread, rule, bytes, is_refused);
    }
    if (np_unlikely(is_due)) np_plan_thread_counted(thread);
    return block;
}

void np_arena_free(struct np_plan_thread *thread, void *block) {
    struct np_span *span = np_span_of(block);
    if (np_unlikely(span == NULL || span->arena == NULL)) return; /* bootstrap memory */
    struct np_plan_arena *arena = span->arena;
    if (np_unlikely(span->kind != NP_SPAN_SMALL)) {
        if (span->kind != NP_SPAN_LARGE || (uintptr_t)block != span->base) abort(); /* as any allocator, when a block is given back twice */
        give_large(arena, span);
        return;
    }
    struct np_bin *bin = bin_of(thread, arena, span->size_class);
    if (np_likely(bin != NULL)) {
        *(void **)block = bin->head;
        bin->head = block;
        if (np_unlikely(++bin->count > 2 * batch_of(span->size_class))) shrink(arena, bin, batch_of(span->size_class));
        return;
    }
    struct np_bin lone = {.head = block, .count = 1};
    *(void **)block = NULL;
    shrink(arena, &lone, 0);
}

/* -- other sizes -- */

/* In place. Parts of equal size on each node would be others then. */
static bool grow(struct np_plan_arena *arena, struct np_span *span, size_t bytes) {
    if (span->kind != NP_SPAN_LARGE || span->arena != arena || np_plan_rules()[arena->rule].policy == NP_PLAN_SPLIT) return false;
    if (bytes > np_load(np_region_bytes)) return false;
    uint64_t had = span->granules, wanted = (bytes + NP_GRANULE - 1) >> NP_GRANULE_SHIFT;
    /* Each part is cut into stripes of its own, and those take mappings: few parts. */
    if ((np_plan_rules()[arena->rule].flags & NP_PLAN_OWN_WEIGHTS) && wanted > had && wanted < had + had / 2) wanted = had + had / 2;
    np_plan_lock(&arena->lock);
    bool done = wanted <= had || np_region_extend(span, wanted - had);
    if (done && wanted > had) {
        struct np_place place = {.joins = !span->refused};
        np_arena_place(arena, span, place, span->base + (had << NP_GRANULE_SHIFT), (wanted - had) << NP_GRANULE_SHIFT);
    }
    np_plan_unlock(&arena->lock);
    return done;
}

void np_arena_copy(void *to, void *old, size_t bytes) {
    const struct np_span *span = np_span_of(old);
    bool is_large = !np_is_confined && span != NULL && span->arena != NULL && span->kind == NP_SPAN_LARGE;
    for (size_t at = 0; at < bytes; at += COPY_BYTES) {
        size_t part = bytes - at < COPY_BYTES ? bytes - at : COPY_BYTES;
        memcpy((char *)to + at, (char *)old + at, part);
        if (is_large && part == COPY_BYTES) madvise((char *)old + at, part, MADV_DONTNEED);
    }
}

void *np_arena_alloc_growing(struct np_plan_thread *thread, uint32_t rule, size_t bytes) {
    struct np_plan_arena *arena = np_arena_of(thread, rule);
    if (arena == NULL || bytes > np_load(np_region_bytes)) return NULL;
    void *block = take_large(arena, bytes + bytes / 2, NP_GRANULE, false);
    if (block == NULL) return NULL;
    np_plan_block_counted(thread, rule, bytes, np_span_of(block)->refused);
    np_plan_thread_counted(thread);
    return block;
}

void *np_arena_regrow(struct np_plan_thread *thread, uint32_t rule, void *old, size_t bytes) {
    struct np_plan_arena *arena = np_arena_of(thread, rule);
    struct np_span *span = np_span_of(old);
    size_t had = np_arena_size(old);
    if (arena == NULL || span == NULL) return NULL;
    if (bytes > had && grow(arena, span, bytes)) {
        np_plan_block_counted(thread, rule, bytes, span->refused);
        np_plan_thread_counted(thread);
        return old;
    }
    bool is_growing = bytes > had && had > NP_SMALL_MAX;
    void *block = is_growing ? np_arena_alloc_growing(thread, rule, bytes) : np_arena_alloc(thread, rule, bytes, 16, false);
    if (block == NULL) return NULL;
    np_arena_copy(block, old, bytes < had ? bytes : had);
    np_arena_free(thread, old);
    return block;
}

size_t np_arena_size(const void *block) {
    const struct np_span *span = np_span_of(block);
    if (span == NULL || span->arena == NULL) return 0;
    return span->kind == NP_SPAN_SMALL ? span->block_bytes : span->granules << NP_GRANULE_SHIFT;
}

void np_arena_hand_over(uint32_t rule, uint32_t node) {
    struct np_plan_arena *arena = __atomic_load_n(&by_rule[rule][NP_ANY_NODE], __ATOMIC_ACQUIRE);
    if (arena == NULL) return;
    np_plan_lock(&arena->lock);
    bool moved = false;
    for (struct np_span *span = arena->spans; span != NULL; span = span->arena_next)
        moved |= np_place_move(&np_plan_rules()[rule], span->base, span->granules << NP_GRANULE_SHIFT, node);
    np_plan_unlock(&arena->lock);
    if (moved) np_plan_count(&np_plan_rules()[rule].moved, 1);
}

void np_arena_fork(int phase) {
    if (phase == 0) np_plan_lock_fork(&arenas_lock, phase);
    for (uint32_t i = 0; i < arena_count; i++)
        if (arenas[i] != NULL) np_plan_lock_fork(&arenas[i]->lock, phase); /* NULL: the fork is a signal handler's, which came in the middle of make_arena */
    if (phase != 0) np_plan_lock_fork(&arenas_lock, phase);
}
