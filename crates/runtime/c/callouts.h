/* callouts.h: what the call-outs' files share. The call-outs are the archive that `numapilot cc` links into instrumented
 * programs: the `__tsan_*` entry points with the first-stage filter inline, nothing else of the runtime.
 *
 * Assumes: compiled as position-independent code with initial-exec thread-local storage, so that one archive serves PIE,
 * non-PIE and shared objects (the linker turns the access into local-exec where it can). */
#ifndef NUMAPILOT_CALLOUTS_H
#define NUMAPILOT_CALLOUTS_H

#include "np.h"

/* The call-outs' code has sections of its own names, which linkers keep as they are and `strip` leaves: of a stripped binary nothing else would tell the
 * hidden functions from the program's (crates/symbols, coverage.rs). Every function here that the compiler does not surely inline carries one; a
 * test holds the archive to that (crates/runtime/tests/sim_model.rs). What `--wrap` leads to is apart: code without instrumentation calls it too. */
#define NP_CALLOUTS_TEXT "np_callouts_text"
#define NP_TEXT __attribute__((section(NP_CALLOUTS_TEXT)))
#define NP_WRAPPED_TEXT __attribute__((section("np_callouts_wrapped")))
/* Entry points are default-visible: libraries of one program share the copy that is first in link order. */
#define NP_ENTRY NP_EXPORT NP_TEXT

/* Exported: the call-outs in a library's own code (callouts_after.c) look at the copy that the tracker sets, as its entry points do. */
extern NP_EXPORT _Thread_local struct np_slot *np_callouts_slot __asm__("numapilot_callouts_slot") __attribute__((tls_model("initial-exec")));
extern struct np_callouts_abi numapilot_callouts;
/* The copy that the tracker filled in: ours, or, in a library that hides its symbols, the program's. Relaxed: other libraries' threads may run while it is
 * found, and each copy serves as well. */
extern NP_HIDDEN struct np_callouts_abi *np_callouts_primary;
/* Whether there is a tracker. Acquire, with the release in fill_in (core.c): what it filled in before is there, too. Who has a slot knows that already. */
static inline NP_TEXT bool np_is_tracked(void) { return __atomic_load_n(&np_load(np_callouts_primary)->attach, __ATOMIC_ACQUIRE) != NULL; }

/* Slow paths, tail-called from the entry points, so that their caller's registers are those of the user's code. The argument order keeps the
 * address where the entry point received it. */
NP_HIDDEN NP_TEXT void np_miss_read(uintptr_t address, struct np_slot *slot);
NP_HIDDEN NP_TEXT void np_miss_write(uintptr_t address, struct np_slot *slot);
NP_HIDDEN NP_TEXT void np_detached_read(uintptr_t address);
NP_HIDDEN NP_TEXT void np_detached_write(uintptr_t address);
NP_HIDDEN NP_TEXT void np_slow_read_range(uintptr_t address, size_t bytes);
NP_HIDDEN NP_TEXT void np_slow_write_range(uintptr_t address, size_t bytes);
/* The same with the registers given by an entry point that cannot tail-call. */
NP_HIDDEN NP_TEXT void np_slow_access(uintptr_t address, size_t bytes, uint32_t bits, struct np_regs caller);
/* This thread's slot, attaching the thread if need be. NULL: not recorded. */
NP_HIDDEN NP_TEXT struct np_slot *np_attach_slot(void);

static inline NP_TEXT uint64_t np_key(const struct np_slot *slot, uintptr_t address) { return np_key_of(address, slot->line_mask, slot->line_pick); }

static inline NP_TEXT uint64_t np_stage_one(const struct np_slot *slot, uint64_t key) {
    const uint64_t *entries = (const uint64_t *)((const char *)slot + NP_FILTER_OFFSET);
    return np_load(entries[(uint32_t)key & np_load(slot->l1_mask)]);
}

static inline NP_TEXT bool np_hits_read(const struct np_slot *slot, uintptr_t address) {
    uint64_t key = np_key(slot, address);
    return np_likely(np_stage_one(slot, key) >> 1 == key);
}

static inline NP_TEXT bool np_hits_write(const struct np_slot *slot, uintptr_t address) {
    uint64_t key = np_key(slot, address);
    return np_likely(np_stage_one(slot, key) == (key << 1 | 1));
}

/* Bytes that lie in the line of their first byte. */
static inline NP_TEXT bool np_in_one_line(uintptr_t address, size_t bytes) {
    return (address & ((1u << NP_LINE_SHIFT) - 1)) + bytes <= (1u << NP_LINE_SHIFT);
}

/* Work units of a block access: copies move 32 bytes per step. */
static inline NP_TEXT uint64_t np_range_work(size_t bytes) { return 1 + (bytes >> 5); }

#endif
