/* weak.c: defaults for parts that are not written yet. To be deleted. */
#include "track.h"
#define WEAK __attribute__((weak))
WEAK uint32_t np_cycles_per_access_q8;
WEAK uint64_t np_stamp_clock(const struct np_slot *slot) { return np_clock_of(slot); }
WEAK void np_clock_advance(struct np_slot *slot, uint64_t cycles) { slot->stall_cycles += cycles; }
WEAK void np_clock_wait_until(struct np_slot *slot, uint64_t clock, enum np_sync_kind kind, uint64_t object) {}
WEAK void np_block_begin(struct np_slot *slot) {}
WEAK void np_block_end(struct np_slot *slot) {}
WEAK void np_throttle(struct np_slot *slot) {}
WEAK void np_vtime_thread_start(struct np_slot *slot, uint64_t creator_clock) {}
WEAK void np_vtime_thread_end(struct np_slot *slot) {}
WEAK void np_access_miss(struct np_slot *slot, uintptr_t address, uint32_t bits, struct np_regs caller) {}
WEAK void np_access_range(struct np_slot *slot, uintptr_t address, size_t bytes, uint32_t bits, struct np_regs caller) {}
WEAK void np_pages_forget(uintptr_t address, size_t bytes) {}
WEAK void np_pages_policy(uintptr_t address, size_t bytes, int mode, const uint64_t *nodemask, unsigned mask_words) {}
WEAK void np_thread_policy(struct np_slot *slot, int mode, const uint64_t *nodemask, unsigned mask_words) {}
WEAK void np_filter_thread_start(struct np_slot *slot) {}
WEAK void np_counters(struct np_slot *slot, bool force) {}
WEAK void np_acquire(struct np_slot *slot, uintptr_t address) {}
WEAK void np_release(struct np_slot *slot, uintptr_t address) {}
WEAK uint32_t np_stack_id(struct np_slot *slot, struct np_regs regs) { return 0; }
WEAK void np_unwind_modules_changed(void) {}
WEAK void np_record_alloc(void *block, size_t bytes, enum np_alloc_kind kind, struct np_regs caller) {}
WEAK void np_record_free(void *block) {}
WEAK void np_modules_init(struct np_slot *slot) {}
WEAK void np_maps_init(struct np_slot *slot) {}
WEAK void np_alloc_init(struct np_slot *slot) {}
WEAK void np_process_init(void) {}
WEAK void np_process_start(struct np_slot *slot, uint64_t order, uint32_t parent_index, bool by_exec) {}
