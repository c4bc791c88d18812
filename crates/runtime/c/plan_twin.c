/* plan_twin.c: blocks that lie within pages and cache sets as those of the program's own allocator do.
 *
 * A measurement of a plan must change homes and nothing else. A block that began at ...010 in its page and now begins at ...000 has other
 * neighbours in its cache lines and sets, and the placement would be credited with that. So, in such a plan (NP_PLAN_TWINS), the program's own allocator
 * makes each block first: its twin, which is never touched, and goes when the block goes. The block is put where the low bits of the address are
 * the twin's. The other blocks of the program lie as without a plan, too, since their allocator sees the same calls.
 *
 * Blocks over 16 KiB have a span of their own. Smaller ones lie in windows: each stands for 1 MiB of the allocator's addresses, and a block lies
 * in it where its twin lies in those. Twins never overlap, so blocks do not. Windows stay: the pages of a heap keep their homes from block to block.
 */
#define _GNU_SOURCE
#include "plan_arena.h"

#include <stdlib.h>
#include <string.h>

#define WINDOW (1ul << 20)
#define LARGE (128ul << 10) /* from here on address bits up to 2 MiB are kept, below up to 1 MiB */

static struct np_span **bucket(struct np_plan_arena *arena, uintptr_t window) {
    return &arena->windows[(window / WINDOW) % NP_WINDOW_BUCKETS];
}

/* The arena's lock is held. */
static struct np_span *window_of(struct np_plan_arena *arena, uintptr_t window) {
    struct np_span **list = bucket(arena, window);
    for (struct np_span *span = *list; span != NULL; span = span->next)
        if (span->twin == window) return span;
    struct np_span *span = np_region_take(WINDOW >> NP_GRANULE_SHIFT, WINDOW);
    if (span == NULL) return NULL;
    np_arena_place(arena, span, (struct np_place){.is_run = true}, span->base, WINDOW);
    np_arena_link(arena, span);
    np_store(span->kind, NP_SPAN_WINDOW);
    span->twin = window;
    span->next = *list;
    *list = span;
    return span;
}

/* `alignment`: of which the low bits of the twin's address are kept. */
static struct np_span *own_span(struct np_plan_arena *arena, uintptr_t twin, size_t usable, uint64_t alignment) {
    uintptr_t low = twin & (alignment - 1);
    struct np_span *span = np_region_take((low + usable + NP_GRANULE - 1) >> NP_GRANULE_SHIFT, alignment);
    if (span == NULL) return NULL;
    span->twin = twin - low;
    np_store(span->kind, NP_SPAN_TWIN);
    uintptr_t page = np_page_bytes(), first = (span->base + low) & -page, end = (span->base + low + usable + page - 1) & -page;
    np_arena_place(arena, span, (struct np_place){0}, first, end - first);
    np_arena_link(arena, span);
    return span;
}

void *np_twin_alloc(struct np_plan_thread *thread, uint32_t rule, size_t bytes, bool zero, const void *twin, size_t usable) {
    struct np_plan_arena *arena = np_arena_of(thread, rule);
    uintptr_t at = (uintptr_t)twin, window = at & ~(WINDOW - 1);
    if (np_unlikely(arena == NULL) || usable > np_load(np_region_bytes)) return NULL;
    np_plan_lock(&arena->lock);
    struct np_span *span = NULL;
    if (usable <= NP_SMALL_MAX && at + usable <= window + WINDOW) span = window_of(arena, window);
    else span = own_span(arena, at, usable, usable < LARGE ? WINDOW : 2 * WINDOW);
    if (span == NULL) span = own_span(arena, at, usable, NP_GRANULE); /* few addresses are left */
    np_plan_unlock(&arena->lock);
    if (span == NULL) return NULL;
    void *block = (void *)(span->base + (at - span->twin));
    if (zero && span->kind == NP_SPAN_WINDOW) memset(block, 0, bytes);
    np_plan_block_counted(thread, rule, bytes, span->refused);
    np_plan_thread_counted(thread);
    return block;
}

void *np_twin_of(const void *block) {
    const struct np_span *span = np_span_of(block);
    if (span == NULL || (span->kind != NP_SPAN_WINDOW && span->kind != NP_SPAN_TWIN)) return NULL;
    return (void *)(span->twin + ((uintptr_t)block - span->base));
}

void np_twin_free(void *block) {
    struct np_span *span = np_span_of(block);
    if (span->kind == NP_SPAN_WINDOW) return;
    struct np_plan_arena *arena = span->arena;
    np_plan_lock(&arena->lock);
    np_arena_unlink(arena, span);
    np_plan_unlock(&arena->lock);
    np_region_give(span);
}
