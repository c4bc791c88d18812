/* plan_arena.h: an arena of the planner, for the two files that hand out its blocks: plan_arena.c and plan_twin.c. */
#ifndef NUMAPILOT_PLAN_ARENA_H
#define NUMAPILOT_PLAN_ARENA_H

#include "plan.h"

#pragma GCC visibility push(hidden)

#define NP_WINDOW_BUCKETS 256u

struct np_plan_arena {
    struct np_plan_lock lock;
    uint32_t id, rule, node;
    struct np_span *room[NP_CLASSES]; /* spans with free blocks */
    struct np_span *kept;             /* large ones, ready for the next */
    uint64_t kept_bytes;
    bool was_refused;                 /* the kernel refused to place some span */
    struct np_span *ready;            /* placed, for small blocks */
    struct np_span *spans;            /* all that hold blocks, or held some */
    struct np_span *windows[NP_WINDOW_BUCKETS]; /* plan_twin.c: by the addresses that they mirror; a list by `next` */
};

/* The arena of a rule for this thread; NULL: no memory. */
struct np_plan_arena *np_arena_of(struct np_plan_thread *thread, uint32_t rule);
/* The policy of the arena's rule for these pages of a span, which takes note of a refusal and of the mappings that it took. `place`: but for its node. The
 * arena's lock is held. */
void np_arena_place(struct np_plan_arena *arena, struct np_span *span, struct np_place place, uintptr_t first, uint64_t bytes);
/* Enters a span into the arena's list, or takes it out. The arena's lock is held. */
void np_arena_link(struct np_plan_arena *arena, struct np_span *span);
void np_arena_unlink(struct np_plan_arena *arena, struct np_span *span);

#pragma GCC visibility pop
#endif
