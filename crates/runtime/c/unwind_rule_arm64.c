/* unwind_rule_arm64.c: what a row of the unwinding tables amounts to on 64-bit Arm (ABI: aadwarf64), and what these tables do not say: where the kernel's
 * signal trampoline is. The return address is wherever the function has put it, or still in the link register. */
#include "unwind_cfi.h"

#if defined(__aarch64__)
#include <errno.h>
#include <signal.h>

/* -- memory that may not be there -- */

/* The kernel reads eight bytes before it looks at what is to be done with them, which is nothing: no signal's mask changes. */
static bool is_readable8(uintptr_t at) {
    return NP_SYS4(SYS_rt_sigprocmask, -1, at, 0, 8) == -EINVAL;
}

#define ENTRY_BYTES_MAX (256u << 10) /* the longest description of real programs is a hundredth of this */

bool np_cfi_is_readable(const uint8_t *at, uint64_t bytes) {
    uintptr_t first = (uintptr_t)at & ~7ul, end = (uintptr_t)at + bytes;
    if (bytes > ENTRY_BYTES_MAX || end > NP_ADDRESS_END || end < first) return false;
    for (uintptr_t page = first; page < end; page = (page & ~4095ul) + 4096)
        if (!is_readable8(page)) return false;
    return true;
}

/* mov x8, #__NR_rt_sigreturn; svc #0: the vDSO's, or a C library's own. Since Linux 5.8 the vDSO's has no unwinding data; debuggers and unwinders know it by
 * these instructions, which arch/arm64/kernel/vdso/sigreturn.S keeps for them. */
bool np_cfi_is_signal_trampoline(uintptr_t pc) {
    if ((pc & 3) != 0 || !is_readable8(pc)) return false;
    uint32_t code[2];
    memcpy(code, (const void *)pc, sizeof code);
    return code[0] == 0xd2801168 && code[1] == 0xd4000001;
}

/* -- expressions -- */

/* A number that an expression computes: an offset from the stack pointer, the frame pointer, the frame's address, or from nothing. */
enum base { BASE_NONE, BASE_SP, BASE_FP, BASE_CFA };
struct value { enum base base; int64_t offset; };
#define STACK_MAX 4
struct stack { struct value values[STACK_MAX + 1]; unsigned used; bool bad; };

static void push(struct stack *stack, enum base base, int64_t offset) {
    if (stack->used == STACK_MAX) stack->bad = true;
    else stack->values[stack->used++] = (struct value){base, offset};
}

/* Units of 8 bytes in a scalable vector: frames that keep such registers are some multiple of it larger. Where their code runs, this instruction exists. */
static int64_t vector_granules(void) {
    register int64_t x0 __asm__("x0");
    __asm__ volatile(".inst 0x04e0e3e0" : "=r"(x0)); /* cntd x0 */
    return x0;
}

static void push_register(struct stack *stack, uint64_t reg, int64_t offset) {
    if (reg == REG_SP) push(stack, BASE_SP, offset);
    else if (reg == REG_FP) push(stack, BASE_FP, offset);
    else if (reg == REG_VG) push(stack, BASE_NONE, vector_granules() + offset);
    else stack->bad = true;
}

static void calculate(struct stack *stack, uint64_t op) {
    if (stack->used < 2) {
        stack->bad = true;
        return;
    }
    struct value right = stack->values[--stack->used], *left = &stack->values[stack->used - 1];
    uint64_t a = (uint64_t)left->offset, b = (uint64_t)right.offset;
    bool of_numbers = left->base == BASE_NONE && right.base == BASE_NONE;
    switch (op) {
    case 0x1c: /* minus */
        stack->bad |= right.base != BASE_NONE;
        left->offset = (int64_t)(a - b);
        return;
    case 0x1e: /* mul */
        stack->bad |= !of_numbers;
        left->offset = (int64_t)(a * b);
        return;
    case 0x22: /* plus */
        stack->bad |= left->base != BASE_NONE && right.base != BASE_NONE;
        if (left->base == BASE_NONE) left->base = right.base;
        left->offset = (int64_t)(a + b);
        return;
    default: /* 0x24, shl */
        stack->bad |= !of_numbers || b > 63;
        left->offset = (int64_t)(a << (b & 63));
    }
}

static void evaluate_op(struct stack *stack, struct reader *reader) {
    uint64_t op = fixed(reader, 1);
    if (op >= 0x30 && op <= 0x4f) push(stack, BASE_NONE, (int64_t)op - 0x30);
    else if (op >= 0x70 && op <= 0x8f) push_register(stack, op - 0x70, sleb(reader));
    else switch (op) {
    case 0x08: push(stack, BASE_NONE, (int64_t)fixed(reader, 1)); return;
    case 0x09: push(stack, BASE_NONE, (int8_t)fixed(reader, 1)); return;
    case 0x0a: push(stack, BASE_NONE, (int64_t)fixed(reader, 2)); return;
    case 0x0b: push(stack, BASE_NONE, (int16_t)fixed(reader, 2)); return;
    case 0x0c: push(stack, BASE_NONE, (int64_t)fixed(reader, 4)); return;
    case 0x0d: push(stack, BASE_NONE, (int32_t)fixed(reader, 4)); return;
    case 0x10: push(stack, BASE_NONE, (int64_t)uleb(reader)); return;
    case 0x11: push(stack, BASE_NONE, sleb(reader)); return;
    case 0x1c: case 0x1e: case 0x22: case 0x24: calculate(stack, op); return;
    case 0x23: push(stack, BASE_NONE, (int64_t)uleb(reader)); calculate(stack, 0x22); return; /* plus_uconst */
    case 0x92: { uint64_t reg = uleb(reader); push_register(stack, reg, sleb(reader)); return; } /* bregx */
    default: stack->bad = true;
    }
}

/* The value of the block at `at`, which begins with its length. `indirect`: the word at that address is meant. False: it is beyond us. */
static bool evaluate(const uint8_t *at, struct stack *stack, struct value *result, bool *indirect) {
    struct reader reader = {at, at + 10, false};
    uint64_t bytes = uleb(&reader);
    reader.end = reader.at + bytes; /* within the description: the program's reader has passed over it */
    *indirect = bytes > 1 && reader.end[-1] == 0x06; /* deref, unless it is the last byte of a number */
    while (!reader.bad && !stack->bad && reader.at < reader.end) {
        if (*indirect && reader.end - reader.at == 1) break;
        evaluate_op(stack, &reader);
    }
    if (reader.at == reader.end) *indirect = false;
    *result = stack->values[0];
    return !reader.bad && !stack->bad && stack->used == 1 && fits(result->offset);
}

/* -- the rule -- */

static bool set_cfa(const struct row *row, struct np_rule *rule) {
    struct value value = {row->cfa_register == REG_SP ? BASE_SP : row->cfa_register == REG_FP ? BASE_FP : BASE_NONE, row->cfa_offset};
    bool indirect = false;
    if (row->cfa_expression != NULL) {
        struct stack stack = {.used = 0};
        if (!evaluate(row->cfa_expression, &stack, &value, &indirect)) return false;
    }
    if (value.base == BASE_NONE || !fits(value.offset) || (indirect && value.base != BASE_FP)) return false;
    rule->kind = indirect ? NP_RULE_FP_INDIRECT : value.base == BASE_SP ? NP_RULE_SP : NP_RULE_FP;
    rule->cfa = (int32_t)value.offset;
    return true;
}

/* The offset from the frame's address at which a register was saved. */
static bool place_of(const struct saved *saved, const struct np_rule *rule, int32_t *offset) {
    struct value value = {BASE_CFA, saved->offset};
    if (saved->how == SAVE_EXPRESSION) {
        struct stack stack = {.values = {{BASE_CFA, 0}}, .used = 1}; /* it begins with the frame's address */
        bool indirect;
        struct reader reader = {saved->expression, saved->expression + 10, false};
        uleb(&reader);
        /* What begins with a register's value leaves the frame's address unused below it. */
        if ((*reader.at >= 0x70 && *reader.at <= 0x8f) || *reader.at == 0x92) stack.used = 0;
        if (!evaluate(saved->expression, &stack, &value, &indirect) || indirect) return false;
        if ((value.base == BASE_SP && rule->kind == NP_RULE_SP) || (value.base == BASE_FP && rule->kind == NP_RULE_FP))
            value = (struct value){BASE_CFA, value.offset - rule->cfa};
    } else if (saved->how != SAVE_OFFSET) return false;
    if (value.base != BASE_CFA || !fits(value.offset) || (value.offset & 7) != 0) return false;
    *offset = (int32_t)value.offset;
    return true;
}

struct np_rule np_cfi_rule_of_row(const struct row *row, uintptr_t pc) {
    struct np_rule rule = {.kind = NP_RULE_FAIL}, fail = rule;
    (void)pc;
    if (row->ra.how == SAVE_UNDEFINED) {
        rule.kind = NP_RULE_END;
        return rule;
    }
    if (!set_cfa(row, &rule)) return fail;
    rule.ra_is_signed = row->ra_is_signed;
    rule.ra_in_register = row->ra.how == SAVE_SAME;
    int32_t ra = 0, fp = 0;
    if (!rule.ra_in_register && !place_of(&row->ra, &rule, &ra)) return fail;
    rule.fp_rule = row->fp.how == SAVE_SAME ? NP_FP_SAME : place_of(&row->fp, &rule, &fp) ? NP_FP_AT_CFA : NP_FP_LOST;
    if (rule.fp_rule != NP_FP_AT_CFA) fp = ra;
    int32_t apart = rule.ra_in_register ? 0 : (ra - fp) / 8;
    /* The two stand side by side; where they do not, the frame pointer is given up. */
    if (apart < INT8_MIN || apart > INT8_MAX) {
        rule.fp_rule = NP_FP_LOST;
        fp = ra;
        apart = 0;
    }
    rule.fp = fp;
    rule.ra_words = (int8_t)apart;
    return rule;
}

#endif
