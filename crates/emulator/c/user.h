/* user.h: what the files of the user-mode plugin share (user.c, translate.c, access.c, process.c, filled.c, mappings.c, allocators.c).
 * crates/runtime/c/emulator.h is the seam to the tracker.
 *
 * The plugin is the native half of a recording of an emulated process: QEMU calls it at every access of the emulated code, and it runs the runtime's own
 * simulated memory system (filter.c, directory.c, pages.c, sample.c, vtime.c and what they need, compiled into it unchanged) on the emulated process's
 * arena and tables. Emulated and native code share one address space (guest_base 0, checked), so pointers need no translation.
 *
 * Rules, besides the runtime's: nothing here may fault (QEMU would take it for a fault of the program), nor leave a call-back by a jump. */
#ifndef NUMAPILOT_USER_H
#define NUMAPILOT_USER_H

#include "emulator.h"
#include "qemu_plugin_api.h"

#pragma GCC visibility push(hidden)

/* One emulated thread is one host thread. */
struct np_guest {
    struct np_slot *slot;       /* NULL: not recorded (yet), and nothing is done */
    const uint64_t *registers;  /* rax, rcx, rdx, rbx, rsp, rbp, ... as QEMU keeps them; NULL: not found, so stacks are unknown */
    const uint64_t *candidate;  /* the same, not yet checked */
    uint64_t fork_order;        /* stamp before the last call that may make a process */
    uint64_t candidate_argument; /* its rdi when np_emulator_slot began */
    bool own_call;               /* the tracker itself is about to make a system call */
    const uint32_t *in_alloc;    /* the tracker's own mark that this thread is inside a hook of malloc's family; NULL: not known */
    const uintptr_t *python_state; /* the tracker's note of this thread's state in a Python interpreter; NULL: not known */
};
extern _Thread_local struct np_guest np_guest __attribute__((tls_model("initial-exec")));

/* ---- process.c: what the tracker says ---- */
extern uintptr_t np_slot_call; /* emulator.h; 0: no tracker yet */
void np_on_system_call(qemu_plugin_id_t id, unsigned vcpu, int64_t number, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5,
                       uint64_t a6, uint64_t a7, uint64_t a8);
void np_on_system_call_result(qemu_plugin_id_t id, unsigned vcpu, int64_t number, int64_t result);
/* Call-back at the start of np_emulator_slot. */
void np_on_slot_call(unsigned vcpu, void *data);
/* Copies emulated memory. False: not all of it can be read, as where the program gives a bad pointer. */
bool np_read_guest(void *to, uint64_t address, size_t bytes);

/* ---- filled.c: before and after each system call of a thread that is recorded ---- */
void np_kernel_asked(int64_t number, uint64_t first, uint64_t second, uint64_t third);
void np_kernel_filled(int64_t number, int64_t result);

/* ---- mappings.c: before and after each system call of a process that is recorded; -1 for one of the tracker's own ---- */
void np_mapping_asked(int64_t number, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6);
void np_mapping_made(int64_t number, int64_t result);
/* This thread has its slot. */
void np_mapping_slot(struct np_slot *slot);
/* Call-back of each instruction of the tracker that makes a system call, before it does. */
void np_on_own_system_call(unsigned vcpu, void *data);

/* ---- allocators.c: allocation functions that the program carries itself (allocators.h) ---- */
struct np_allocation_function;
/* What a translated block is to them. */
struct np_allocator_block {
    const struct np_allocation_function *function; /* that begins with it; NULL: none does */
    bool is_allocators;      /* it lies in a file that has such functions: its return instructions may be theirs */
    bool may_be_returned_to; /* it begins behind a call instruction in such a file */
    bool is_standard;        /* the function is the executable's own of malloc's family or C++'s operators (allocators.h) */
};
/* The function as the call-back's data. */
#define NP_ALLOCATOR_STANDARD 1ul
static inline void *np_allocator_data(struct np_allocator_block block) {
    return (void *)((uintptr_t)block.function | (block.is_standard ? NP_ALLOCATOR_STANDARD : 0));
}
/* In the translation of a block: its code is there to be read. */
struct np_allocator_block np_allocator_block(uint64_t start);
/* Whether calls of the function that begins here are followed. */
bool np_allocators_follow(uint64_t function);
/* Something else may come to this place, or has. */
void np_allocators_unmapped(uint64_t address, uint64_t bytes);
void np_allocators_after_fork(void);
/* Call-backs: of a block that begins one of the functions (`data`: np_allocator_data); of a return instruction's access; of a block that may be returned to
 * (`data`: its start). */
void np_on_allocator(unsigned vcpu, void *data);
void np_on_return(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data);
void np_on_returned(unsigned vcpu, void *data);

/* ---- translate.c ---- */
void np_on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb);

/* ---- access.c: call-backs of translated code ----
 * `data` of an access: bits 0-47 the address after its instruction, bits 48-63 instructions to charge (those of the whole block, at one access of it). */
#define NP_SITE_PC 0xffffffffffffull
#define NP_SITE_CHARGE_SHIFT 48
#define NP_SITE_CHARGE_MAX 0xffffu
/* Program time of an emulated instruction, in cycles, beside the latencies of its accesses: docs/emulate.md. */
#define NP_EMULATED_CYCLES 1
extern qemu_plugin_meminfo_t np_store_bit; /* in the description of an access: it is a store */
void np_on_access(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data);
void np_on_update(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data);
void np_on_atomic(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data);
/* Of a repeated movs or stos; in place of the charge: the bytes of a step, which QEMU runs one by one. */
void np_on_repeated(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data);
/* Of a block that has no access to charge its instructions at: `data` is their number. */
void np_on_block(unsigned vcpu, void *data);

#pragma GCC visibility pop
#endif
