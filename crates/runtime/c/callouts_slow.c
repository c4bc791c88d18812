/* callouts_slow.c: what happens when an access does not hit the first-stage filter, or the thread is not attached.
 *
 * Each function here is tail-called by an entry point and takes a frame of its own (__builtin_frame_address makes the compilers set one up), so
 * NP_CALLER_REGS yields exactly the user's code: the return address into it, the stack pointer after that return, and its frame pointer. */
#include "callouts.h"

#include <dlfcn.h>

static NP_TEXT struct np_slot **np_slot_location(void) { return &np_callouts_slot; }

NP_EXPORT struct np_callouts_abi numapilot_callouts = {
    .version = NP_CALLOUTS_ABI,
    .slot_location = np_slot_location,
};

NP_HIDDEN struct np_callouts_abi *np_callouts_primary = &numapilot_callouts;

__attribute__((constructor)) static NP_TEXT void np_find_primary(void) {
    struct np_callouts_abi *found = dlsym(RTLD_DEFAULT, NP_CALLOUTS_SYMBOL);
    /* Not there, or not in use yet: the program has no call-outs, and this library was loaded (into a scope of its own, or into the global one) after the
     * tracker looked; or the tracker has still to look, and then its own table serves as well as the one that it fills in beside. */
    if (found == NULL || __atomic_load_n(&found->attach, __ATOMIC_ACQUIRE) == NULL) {
        struct np_callouts_abi *tracker = dlsym(RTLD_DEFAULT, NP_TRACKER_SYMBOL);
        if (tracker != NULL) found = tracker;
    }
    if (found != NULL && found->version == NP_CALLOUTS_ABI) np_store(np_callouts_primary, found);
}

NP_HIDDEN struct np_slot *np_attach_slot(void) {
    if (np_likely(np_callouts_slot != NULL)) return np_callouts_slot;
    return np_is_tracked() ? np_load(np_callouts_primary)->attach() : NULL;
}

/* The two hot ones. On x86-64 by hand: the compilers build struct np_regs twice, and copy it with moves that stall on the stores just made. */
#if defined(__x86_64__)
_Static_assert(offsetof(struct np_callouts_abi, miss) == 24, "the calls below");
_Static_assert(NP_ACC_WRITE == 1, "the bits below");
__asm__(".pushsection " NP_CALLOUTS_TEXT ",\"ax\",@progbits\n"
        ".p2align 4\n"
        ".globl np_miss_write\n.hidden np_miss_write\n.type np_miss_write, @function\n"
        "np_miss_write:\n"
        ".cfi_startproc\n"
        "  movl $1, %edx\n"
        "  jmp 1f\n"
        ".cfi_endproc\n"
        ".size np_miss_write, .-np_miss_write\n"
        ".globl np_miss_read\n.hidden np_miss_read\n.type np_miss_read, @function\n"
        "np_miss_read:\n"
        ".cfi_startproc\n"
        "  xorl %edx, %edx\n"
        "1:\n"
        "  movq (%rsp), %rcx\n"  /* the return address into the user's code */
        "  leaq 8(%rsp), %rax\n" /* the stack pointer after the return */
        "  pushq %rbp\n"
        ".cfi_adjust_cfa_offset 8\n"
        "  pushq %rax\n"
        ".cfi_adjust_cfa_offset 8\n"
        "  pushq %rcx\n"
        ".cfi_adjust_cfa_offset 8\n"
        "  xchgq %rdi, %rsi\n" /* (address, slot) to (slot, address) */
        "  movq np_callouts_primary(%rip), %rax\n"
        "  call *24(%rax)\n"
        "  addq $24, %rsp\n"
        ".cfi_adjust_cfa_offset -24\n"
        "  ret\n"
        ".cfi_endproc\n"
        ".size np_miss_read, .-np_miss_read\n"
        ".popsection\n");
#else
NP_HIDDEN __attribute__((noinline)) void np_miss_read(uintptr_t address, struct np_slot *slot) {
    np_load(np_callouts_primary)->miss(slot, address, 0, NP_CALLER_REGS());
}

NP_HIDDEN __attribute__((noinline)) void np_miss_write(uintptr_t address, struct np_slot *slot) {
    np_load(np_callouts_primary)->miss(slot, address, NP_ACC_WRITE, NP_CALLER_REGS());
}
#endif

NP_HIDDEN NP_COLD void np_detached_read(uintptr_t address) {
    if (!np_is_tracked()) return;
    struct np_slot *slot = np_attach_slot();
    if (slot == NULL) return;
    np_add(slot->accesses, 1);
    if (!np_hits_read(slot, address)) np_load(np_callouts_primary)->miss(slot, address, 0, NP_CALLER_REGS());
}

NP_HIDDEN NP_COLD void np_detached_write(uintptr_t address) {
    if (!np_is_tracked()) return;
    struct np_slot *slot = np_attach_slot();
    if (slot == NULL) return;
    np_add(slot->accesses, 1);
    if (!np_hits_write(slot, address)) np_load(np_callouts_primary)->miss(slot, address, NP_ACC_WRITE, NP_CALLER_REGS());
}

NP_HIDDEN NP_COLD void np_slow_access(uintptr_t address, size_t bytes, uint32_t bits, struct np_regs caller) {
    struct np_slot *slot = np_attach_slot();
    if (slot == NULL || bytes == 0) return;
    if (bytes <= 16 && np_in_one_line(address, bytes)) {
        np_add(slot->accesses, 1);
        if ((bits & NP_ACC_WRITE) ? np_hits_write(slot, address) : np_hits_read(slot, address)) return;
        np_load(np_callouts_primary)->miss(slot, address, bits & ~NP_ACC_RANGE, caller);
    } else {
        np_load(np_callouts_primary)->range(slot, address, bytes, bits | NP_ACC_RANGE, caller);
    }
}

NP_HIDDEN NP_COLD void np_slow_read_range(uintptr_t address, size_t bytes) {
    if (np_callouts_slot == NULL && !np_is_tracked()) return;
    np_slow_access(address, bytes, NP_ACC_RANGE, NP_CALLER_REGS());
}

NP_HIDDEN NP_COLD void np_slow_write_range(uintptr_t address, size_t bytes) {
    if (np_callouts_slot == NULL && !np_is_tracked()) return;
    np_slow_access(address, bytes, NP_ACC_WRITE | NP_ACC_RANGE, NP_CALLER_REGS());
}

/* ---- accesses whose instruction the compiler names ---- */

#define NP_WITH_PC(name, bytes, bits)                                        \
    NP_ENTRY void name(void *pointer, void *pc) {                            \
        struct np_regs caller = NP_CALLER_REGS();                            \
        caller.pc = (uintptr_t)pc;                                           \
        np_slow_access((uintptr_t)pointer, bytes, bits, caller);             \
    }

NP_WITH_PC(__tsan_read1_pc, 1, 0)
NP_WITH_PC(__tsan_read2_pc, 2, 0)
NP_WITH_PC(__tsan_read4_pc, 4, 0)
NP_WITH_PC(__tsan_read8_pc, 8, 0)
NP_WITH_PC(__tsan_read16_pc, 16, 0)
NP_WITH_PC(__tsan_write1_pc, 1, NP_ACC_WRITE)
NP_WITH_PC(__tsan_write2_pc, 2, NP_ACC_WRITE)
NP_WITH_PC(__tsan_write4_pc, 4, NP_ACC_WRITE)
NP_WITH_PC(__tsan_write8_pc, 8, NP_ACC_WRITE)
NP_WITH_PC(__tsan_write16_pc, 16, NP_ACC_WRITE)

NP_ENTRY void __tsan_read_range_pc(void *pointer, size_t bytes, void *pc) {
    struct np_regs caller = NP_CALLER_REGS();
    caller.pc = (uintptr_t)pc;
    np_slow_access((uintptr_t)pointer, bytes, NP_ACC_RANGE, caller);
}

NP_ENTRY void __tsan_write_range_pc(void *pointer, size_t bytes, void *pc) {
    struct np_regs caller = NP_CALLER_REGS();
    caller.pc = (uintptr_t)pc;
    np_slow_access((uintptr_t)pointer, bytes, NP_ACC_WRITE | NP_ACC_RANGE, caller);
}
