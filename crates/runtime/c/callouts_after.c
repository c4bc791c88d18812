/* callouts_after.c: what call-outs call that were put into the compiler's assembly (`numapilot cc --after-optimisation`, crates/assembly).
 *
 * The first stage is inline there, word for word that of callouts.h. Where it misses, it calls np_after_few, np_after_narrow or np_after_wide, which keep
 * every register and the flags: nothing at such a place is the compiler's idea of a call. The address and a description lie below the caller's stack
 * pointer, where compiled code has nothing (`-mno-red-zone`):
 *   -24(%rsp) the address; -40(%rsp) the bytes of a block;
 *   -32(%rsp) bits 0-14 bytes, 15 the first stage was looked into already, 16 write, 17 atomic, 18 block, 19 the accesses are not counted yet,
 *             20-31 how many they are
 * and down to -120(%rsp) what the caller keeps there for itself. x86-64 only. */
#include "callouts.h"

#if defined(__x86_64__)
#include <cpuid.h>

#define AFTER_BYTES 0x7fffu
#define AFTER_LOOKED "0x8000"
#define AFTER_WRITE (1u << 16)
#define AFTER_ATOMIC (1u << 17)
#define AFTER_BLOCK (1u << 18)
#define AFTER_COUNTS (1u << 19)
#define AFTER_COUNT_SHIFT 20

/* The offsets that crates/assembly writes (emit.rs). */
_Static_assert(offsetof(struct np_slot, accesses) == 0 && offsetof(struct np_slot, l1_mask) == 16, "the inline first stage");
_Static_assert(offsetof(struct np_slot, line_mask) == 56 && offsetof(struct np_slot, line_pick) == 60, "the inline first stage");
_Static_assert(NP_FILTER_OFFSET == 4096 && NP_LINE_SHIFT == 6 && NP_PAGE_SHIFT == 12 && NP_PAGE_KEY == 1ull << 44, "the inline first stage");
_Static_assert(NP_LINE_HASH == 0x9e3779b97f4a7c15ull, "the inline first stage");
_Static_assert(offsetof(struct np_callouts_abi, attach) == 16, "the look below");

/* Runs before the vector registers are saved. */
#define NP_GENERAL __attribute__((target("general-regs-only"), noinline)) NP_HIDDEN NP_TEXT

static inline NP_TEXT bool np_after_line_hits(const struct np_slot *slot, uintptr_t address, uint32_t description) {
    return (description & AFTER_WRITE) ? np_hits_write(slot, address) : np_hits_read(slot, address);
}

/* Whether there is nothing left to do: the first stage holds all lines. */
NP_GENERAL bool np_after_hits(uintptr_t address, uint32_t description) {
    struct np_slot *slot = np_callouts_slot;
    if (slot == NULL) return false;
    if (description & AFTER_COUNTS) np_add(slot->accesses, description >> AFTER_COUNT_SHIFT);
    if (description & (AFTER_ATOMIC | AFTER_BLOCK)) return false;
    uintptr_t last = address + (description & AFTER_BYTES) - 1;
    if (!np_after_line_hits(slot, address, description)) return false;
    return (address ^ last) >> NP_LINE_SHIFT == 0 || np_after_line_hits(slot, last, description);
}

NP_HIDDEN NP_TEXT void np_after_miss(uintptr_t address, uint32_t description, size_t bytes, struct np_regs *caller) {
    struct np_slot *slot = np_callouts_slot;
    bool is_new = slot == NULL;
    if (is_new) {
        if ((slot = np_attach_slot()) == NULL) return;
        np_add(slot->accesses, description >> AFTER_COUNT_SHIFT);
    }
    const struct np_callouts_abi *table = np_load(np_callouts_primary);
    uint32_t bits = (description & AFTER_WRITE) ? NP_ACC_WRITE : 0;
    if (description & AFTER_BLOCK) {
        table->range(slot, address, bytes, bits | NP_ACC_RANGE, *caller);
        return;
    }
    if (description & AFTER_ATOMIC) bits |= NP_ACC_ATOMIC;
    uintptr_t last = address + (description & AFTER_BYTES) - 1;
    bool is_one = (address ^ last) >> NP_LINE_SHIFT == 0;
    if ((is_one && !is_new) || !np_after_line_hits(slot, address, description)) table->miss(slot, address, bits, *caller);
    if (!is_one && !np_after_line_hits(slot, last, description)) {
        table->miss(slot, last & ~(uintptr_t)((1u << NP_LINE_SHIFT) - 1), bits, *caller);
    }
    if (description & AFTER_ATOMIC) table->rmw(slot, address);
}

/* Which vector registers this processor and system have: 1 xmm, 2 ymm, 3 zmm and masks of 16 bits, 4 of 64 bits. 0: not known yet. */
NP_HIDDEN uint32_t np_after_width;

/* By the instruction alone: the header's functions would be code of ours outside the call-outs' sections. */
NP_GENERAL void np_after_find_width(void) {
    uint32_t leaf_max, a, b, c, d, width = 1;
    __cpuid(0, leaf_max, b, c, d);
    __cpuid(1, a, b, c, d);
    if ((c & bit_OSXSAVE) && (c & bit_AVX)) {
        uint32_t low, high;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        if ((low & 6) == 6) width = 2;
        if ((low & 0xe6) == 0xe6 && leaf_max >= 7) {
            __cpuid_count(7, 0, a, b, c, d);
            if (b & bit_AVX512F) width = (b & bit_AVX512BW) ? 4 : 3;
        }
    }
    np_store(np_after_width, width);
}

/* From the caller's stack pointer after the return: the return address is at -8, so that the saved registers begin below -128. `%rbp` is the frame of the
 * stub, from which all is found again. */
#define ENTER(name)                                                                                     \
    ".p2align 4\n.globl " name "\n.hidden " name "\n.type " name ", @function\n" name ":\n.cfi_startproc\n" \
    "  leaq -136(%rsp), %rsp\n.cfi_adjust_cfa_offset 136\n"                                             \
    "  pushq %rax\n.cfi_adjust_cfa_offset 8\n"                                                          \
    "  lahf\n  seto %al\n"                                                                              \
    "  pushq %rax\n.cfi_adjust_cfa_offset 8\n"                                                          \
    "  movq np_callouts_primary(%rip), %rax\n"                                                          \
    "  cmpq $0, 16(%rax)\n"                                                                             \
    "  je 9f\n"                                                                                         \
    "  pushq %rcx\n  pushq %rdx\n  pushq %rsi\n  pushq %rdi\n  pushq %r8\n  pushq %r9\n  pushq %r10\n  pushq %r11\n" \
    "  pushq %rbp\n.cfi_adjust_cfa_offset 72\n.cfi_rel_offset %rbp, 0\n"                                \
    "  movq %rsp, %rbp\n.cfi_def_cfa_register %rbp\n"                                                   \
    "  andq $-64, %rsp\n"                                                                               \
    "  movq 208(%rbp), %rdi\n  movl 200(%rbp), %esi\n"                                                  \
    "  testl $" AFTER_LOOKED ", %esi\n  jne 7f\n"                                                       \
    "  call np_after_hits\n"                                                                            \
    "  testb %al, %al\n  jne 8f\n7:\n"

/* struct np_regs and the saved control word lie above the vector registers. */
#define CALL(room)                                                                                      \
    "  movq 224(%rbp), %rax\n  movq %rax, " room "(%rsp)\n"                                             \
    "  leaq 232(%rbp), %rax\n  movq %rax, " room "+8(%rsp)\n"                                           \
    "  movq (%rbp), %rax\n  movq %rax, " room "+16(%rsp)\n"                                             \
    "  stmxcsr " room "+24(%rsp)\n"                                                                     \
    "  movq 208(%rbp), %rdi\n  movl 200(%rbp), %esi\n  movq 192(%rbp), %rdx\n  leaq " room "(%rsp), %rcx\n" \
    "  call np_after_miss\n"                                                                            \
    "  ldmxcsr " room "+24(%rsp)\n"

#define LEAVE(name)                                                                                     \
    "8:\n  movq %rbp, %rsp\n.cfi_def_cfa_register %rsp\n"                                               \
    "  popq %rbp\n.cfi_restore %rbp\n"                                                                  \
    "  popq %r11\n  popq %r10\n  popq %r9\n  popq %r8\n  popq %rdi\n  popq %rsi\n  popq %rdx\n  popq %rcx\n.cfi_adjust_cfa_offset -72\n" \
    "9:\n  popq %rax\n.cfi_adjust_cfa_offset -8\n"                                                      \
    "  addb $127, %al\n  sahf\n"                                                                        \
    "  popq %rax\n.cfi_adjust_cfa_offset -8\n"                                                          \
    "  leaq 136(%rsp), %rsp\n.cfi_adjust_cfa_offset -136\n"                                             \
    "  ret\n.cfi_endproc\n.size " name ", .-" name "\n"

#define FEW(move) move("0") move("1") move("2") move("3") move("4") move("5") move("6") move("7")
#define LOW(move)                                                                                       \
    FEW(move)                                                                                           \
    move("8") move("9") move("10") move("11") move("12") move("13") move("14") move("15")
#define HIGH(move)                                                                                      \
    move("16") move("17") move("18") move("19") move("20") move("21") move("22") move("23")             \
    move("24") move("25") move("26") move("27") move("28") move("29") move("30") move("31")
#define SAVE_X(n) "  movups %xmm" n ", 16*" n "(%rsp)\n"
#define LOAD_X(n) "  movups 16*" n "(%rsp), %xmm" n "\n"
#define SAVE_Y(n) "  vmovups %ymm" n ", 32*" n "(%rsp)\n"
#define LOAD_Y(n) "  vmovups 32*" n "(%rsp), %ymm" n "\n"
#define SAVE_Z(n) "  vmovups %zmm" n ", 64*" n "(%rsp)\n"
#define LOAD_Z(n) "  vmovups 64*" n "(%rsp), %zmm" n "\n"
#define SAVE_K(n) "  kmovq %k" n ", 2048+8*" n "(%rsp)\n"
#define LOAD_K(n) "  kmovq 2048+8*" n "(%rsp), %k" n "\n"
#define SAVE_K16(n) "  kmovw %k" n ", 2048+8*" n "(%rsp)\n"
#define LOAD_K16(n) "  kmovw 2048+8*" n "(%rsp), %k" n "\n"

/* np_after_few is called from files that name no vector register but the first eight, and those as xmm: nobody hands others from function to function.
 * np_after_narrow from files that have no instruction for wider registers: what the upper halves hold there is nobody's. np_after_wide keeps all that the
 * processor has. */
__asm__(".pushsection " NP_CALLOUTS_TEXT ",\"ax\",@progbits\n"
        ENTER("np_after_few")
        "  subq $192, %rsp\n" FEW(SAVE_X) CALL("128") FEW(LOAD_X)
        LEAVE("np_after_few")
        ENTER("np_after_narrow")
        "  subq $320, %rsp\n" LOW(SAVE_X) CALL("256") LOW(LOAD_X)
        LEAVE("np_after_narrow")
        ENTER("np_after_wide")
        "  cmpl $0, np_after_width(%rip)\n  jne 1f\n  call np_after_find_width\n1:\n"
        "  cmpl $2, np_after_width(%rip)\n  ja 3f\n  je 2f\n"
        "  subq $320, %rsp\n" LOW(SAVE_X) CALL("256") LOW(LOAD_X) "  jmp 8f\n"
        "2:\n  subq $576, %rsp\n" LOW(SAVE_Y) CALL("512") LOW(LOAD_Y) "  jmp 8f\n"
        "3:\n  subq $2176, %rsp\n" LOW(SAVE_Z) HIGH(SAVE_Z)
        "  cmpl $3, np_after_width(%rip)\n  je 4f\n" FEW(SAVE_K) "  jmp 5f\n4:\n" FEW(SAVE_K16) "5:\n"
        CALL("2112")
        LOW(LOAD_Z) HIGH(LOAD_Z)
        "  cmpl $3, np_after_width(%rip)\n  je 6f\n" FEW(LOAD_K) "  jmp 8f\n6:\n" FEW(LOAD_K16)
        LEAVE("np_after_wide")
        ".popsection\n");
#endif
