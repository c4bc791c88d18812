/* access.c: an access of the emulated program: counted, looked up in the first-stage filter, and, where it is not there, handed to the simulated memory system.
 *
 * The look-up is that of the call-outs in instrumented programs (crates/runtime/c/callouts.c). An access that straddles two lines counts on its first. */
#include "user.h"
#include "memsim.h"
#include "vtime.h"

enum { REGISTER_RSP = 4, REGISTER_RBP = 5 };

qemu_plugin_meminfo_t np_store_bit;

/* System calls' own page, and whatever else is no user memory: the runtime's tables end there. */
static inline bool is_user(uint64_t address) { return address < NP_ADDRESS_END; }

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

/* One body for loads and stores: QEMU 7.2 gives loads to call-backs that asked for stores, and stores to all (it adds one to a kind that is a mask already),
 * so the kind is taken from the access itself. */
static inline __attribute__((always_inline)) void look_up(struct np_slot *slot, bool store, uint64_t address, uint64_t site) {
    uint64_t key = np_key_of(address, slot->line_mask, slot->line_pick), held = stage_one(slot, key);
    if (np_likely((held | !store) == (key << 1 | 1))) return;
    miss(slot, address, store ? NP_ACC_WRITE : 0, site);
}

static inline __attribute__((always_inline)) void access_line(struct np_slot *slot, bool store, uint64_t address, uint64_t site) {
    slot->accesses++;
    charge(slot, site >> NP_SITE_CHARGE_SHIFT);
    look_up(slot, store, address, site);
}

void np_on_access(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data) {
    struct np_slot *slot = np_guest.slot;
    if (np_unlikely(slot == NULL)) return;
    access_line(slot, (info & np_store_bit) != 0, address, (uint64_t)data);
}

/* The C library copies and sets blocks of a few KiB so, byte by byte, as the emulated CPU says that it is good at that (ERMS). A CPU that is takes vectors at a
 * time: work is counted for each of those, and every step is looked up, so that no line is missed. */
#define REPEATED_BYTES 32u
void np_on_repeated(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data) {
    struct np_slot *slot = np_guest.slot;
    if (np_unlikely(slot == NULL)) return;
    uint64_t step = (uint64_t)data >> NP_SITE_CHARGE_SHIFT;
    if (address % REPEATED_BYTES < step) {
        slot->accesses++;
        charge(slot, 1);
    }
    look_up(slot, (info & np_store_bit) != 0, address, (uint64_t)data);
}

/* A load and a store of one place: the line must be had for writing anyway, so the load adds nothing. */
void np_on_update(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data) {
    struct np_slot *slot = np_guest.slot;
    if (np_unlikely(slot == NULL) || !(info & np_store_bit)) return;
    access_line(slot, true, address, (uint64_t)data);
}

/* A locked instruction. It gets no clock from others, as in instrumented programs (np_rmw); a read of what it wrote looks like any other read here. */
void np_on_atomic(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data) {
    struct np_slot *slot = np_guest.slot;
    if (np_unlikely(slot == NULL) || !(info & np_store_bit)) return;
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
