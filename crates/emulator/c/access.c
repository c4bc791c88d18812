/* access.c: an access of the emulated program: counted, looked up in the first-stage filter, and, where it is not there, handed to the simulated memory system.
 *
 * The look-up is that of the call-outs in instrumented programs (crates/runtime/c/callouts.c). An access that straddles two lines counts on its first. */
#include "user.h"
#include "memsim.h"
#include "vtime.h"

enum { REGISTER_RSP = 4, REGISTER_RBP = 5 };

/* System calls' own page, and whatever else is no user memory: the runtime's tables end at 2^47. */
static inline bool is_user(uint64_t address) { return address >> 47 == 0; }

static NP_COLD void miss(struct np_slot *slot, uint64_t address, uint32_t bits, uint64_t site) {
    if (!is_user(address)) return;
    const uint64_t *registers = np_guest.registers;
    struct np_regs caller = {site & NP_SITE_PC, 0, 0};
    if (np_likely(registers != NULL)) {
        caller.sp = registers[REGISTER_RSP];
        caller.fp = registers[REGISTER_RBP];
    }
    np_access_miss(slot, address, bits, caller);
}

/* Others read stall_cycles at any time: a plain store of the word, never torn. */
static inline void charge(struct np_slot *slot, uint64_t instructions) {
    __atomic_store_n(&slot->stall_cycles, slot->stall_cycles + instructions * NP_EMULATED_CYCLES, __ATOMIC_RELAXED);
}

static inline uint64_t stage_one(const struct np_slot *slot, uint64_t key) {
    return ((const uint64_t *)(const void *)((const char *)slot + NP_FILTER_OFFSET))[(uint32_t)key & slot->l1_mask];
}

void np_on_read(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data) {
    struct np_slot *slot = np_guest.slot;
    if (np_unlikely(slot == NULL)) return;
    slot->accesses++;
    charge(slot, (uint64_t)data >> NP_SITE_CHARGE_SHIFT);
    uint64_t key = np_key_of(address, slot->line_mask, slot->line_pick);
    if (np_likely(stage_one(slot, key) >> 1 == key)) return;
    miss(slot, address, 0, (uint64_t)data);
}

void np_on_write(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data) {
    struct np_slot *slot = np_guest.slot;
    if (np_unlikely(slot == NULL)) return;
    slot->accesses++;
    charge(slot, (uint64_t)data >> NP_SITE_CHARGE_SHIFT);
    uint64_t key = np_key_of(address, slot->line_mask, slot->line_pick);
    if (np_likely(stage_one(slot, key) == (key << 1 | 1))) return;
    miss(slot, address, NP_ACC_WRITE, (uint64_t)data);
}

/* The write of a locked instruction. It gets no clock from others, as in instrumented programs (np_rmw); who reads what it wrote cannot be told from any other
 * read here. */
void np_on_atomic(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data) {
    struct np_slot *slot = np_guest.slot;
    if (np_unlikely(slot == NULL)) return;
    slot->accesses++;
    np_clock_advance(slot, NP_LOCK_CYCLES);
    uint64_t key = np_key_of(address, slot->line_mask, slot->line_pick);
    if (stage_one(slot, key) != (key << 1 | 1)) miss(slot, address, NP_ACC_WRITE | NP_ACC_ATOMIC, (uint64_t)data);
    if (!slot->in_hook) np_throttle(slot);
}

void np_on_block(unsigned vcpu, void *data) {
    struct np_slot *slot = np_guest.slot;
    if (np_unlikely(slot == NULL)) return;
    charge(slot, (uint64_t)data);
    if (np_unlikely(np_clock_of(slot) >= __atomic_load_n(&slot->next_throttle, __ATOMIC_RELAXED)) && !slot->in_hook) np_throttle(slot);
}
