/* jumped.c: hooks that a signal handler jumped out of.
 *
 * A handler may come into the middle of a hook, and leave by siglongjmp to a place far above: time limits, Ctrl-C in interpreters. The program only computed,
 * as far as it knows; its thread must not stay unrecorded for the rest of its life because the guard of that hook is never given back.
 *
 * Whoever took the guard noted the frame of the function that holds it. That frame is gone where the program stands above it now, by the stack pointer with
 * which it called the present hook, or where the frame's return address is not in its place any more. Else it is alive: it is one of the hook's own callers
 * (a hook reached from within another), or the handler runs below it. Only the thread's own stack tells; elsewhere (coroutines, alternate signal stacks)
 * nothing is concluded. */
#include "track.h"

static bool is_on_stack(const struct np_slot *slot, uintptr_t at) {
    return at >= slot->stack_lo && at < slot->stack_hi - 16 && (at & 7) == 0;
}

/* Whether the function that took the guard in `frame`, to return to `back`, is gone, as seen from `at`, the frame of the function that wants the guard. */
static bool is_gone(const struct np_slot *slot, uintptr_t frame, uintptr_t back, const uintptr_t *at) {
    /* None takes it twice: this is another call of the same function, from the same depth. */
    if ((uintptr_t)at == frame) return true;
    while (is_on_stack(slot, (uintptr_t)at)) {
        /* Our frames that lead here: it is one of them, or another hook's has taken its place. */
        if ((uintptr_t)at == frame) return at[1] != back;
        if (at[1] - np_own.lo >= np_own.hi - np_own.lo) {
            uintptr_t sp = (uintptr_t)(at + 2); /* with which the program, or a library, called us */
            return sp > frame || ((const uintptr_t *)frame)[1] != back;
        }
        const uintptr_t *next = (const uintptr_t *)at[0];
        if (next <= at) return false;
        at = next;
    }
    return false;
}

/* The record that was being made is not part of the ring, but the stamps that later ones build on may be its: they are written anew. */
static void forget_record(struct np_slot *slot) {
    slot->last_order = UINT64_MAX;
    slot->last_clock = 1ull << 63;
}

NP_COLD bool np_hook_was_left(struct np_slot *slot) {
    const uintptr_t *own = __builtin_frame_address(0);
    if (!is_on_stack(slot, slot->hook_frame) || !is_on_stack(slot, (uintptr_t)own)) return false;
    if (!is_gone(slot, slot->hook_frame, slot->hook_return, (const uintptr_t *)own[0])) return false;
    if (slot->in_hook & NP_WRITING) forget_record(slot);
    slot->hook_frame = 0;
    slot->in_hook = 0;
    np_tls.in_alloc = np_tls.nested = 0;
    np_modules_jumped();
    np_limit_jumped();
    np_lost_reentrant(slot, 1);
    return true;
}

NP_COLD bool np_alloc_was_left(void) {
    struct np_tls *tls = &np_tls;
    const uintptr_t *own = __builtin_frame_address(0);
    struct np_slot *slot = tls->slot;
    if (slot == NULL || np_load(np_tls_is_shared) || !is_on_stack(slot, tls->alloc_frame) || !is_on_stack(slot, (uintptr_t)own)) return false;
    if (!is_gone(slot, tls->alloc_frame, tls->alloc_return, (const uintptr_t *)own[0])) return false;
    tls->alloc_frame = 0;
    tls->in_alloc = tls->nested = 0;
    np_lost_reentrant(slot, 1);
    return true;
}
