/* unwind_rule_x86.c: what a row of the unwinding tables amounts to on x86-64 (psABI): the return address always stands right below the frame. */
#include "unwind_cfi.h"

#if defined(__x86_64__)

/* The three shapes of expression that compilers and linkers write: breg(sp) n, breg(fp) n [deref], and the PLT's, which depends on nothing
 * but pc: breg(sp) 8; breg(rip) 0; lit15; and; litN; ge; lit3; shl; plus. */
static bool cfa_of_expression(const uint8_t *at, uintptr_t pc, struct np_rule *rule) {
    struct reader reader = {at, at + 16, false};
    uint64_t bytes = uleb(&reader);
    reader.end = reader.at + bytes;
    uint64_t op = fixed(&reader, 1);
    int64_t offset = sleb(&reader);
    if (reader.bad || !fits(offset) || (op != 0x70 + REG_FP && op != 0x70 + REG_SP)) return false;
    bool by_fp = op == 0x70 + REG_FP;
    rule->cfa = (int32_t)offset;
    rule->kind = by_fp ? NP_RULE_FP : NP_RULE_SP;
    if (reader.at == reader.end) return true;
    if (by_fp && bytes >= 3 && reader.end - reader.at == 1 && *reader.at == 0x06) {
        rule->kind = NP_RULE_FP_INDIRECT;
        return true;
    }
    static const uint8_t plt[] = {0x80, 0x00, 0x3f, 0x1a, 0x00, 0x2a, 0x33, 0x24, 0x22};
    if (by_fp || reader.end - reader.at != sizeof plt) return false;
    for (unsigned i = 0; i < sizeof plt; i++)
        if (i != 4 && reader.at[i] != plt[i]) return false;
    if (reader.at[4] < 0x30 || reader.at[4] > 0x4f) return false;
    if ((pc & 15) >= (uintptr_t)(reader.at[4] - 0x30)) rule->cfa += 8;
    return true;
}

static void fp_of_row(const struct row *row, struct np_rule *rule) {
    rule->fp_rule = NP_FP_LOST;
    if (row->fp.how == SAVE_SAME) rule->fp_rule = NP_FP_SAME;
    if (row->fp.how == SAVE_OFFSET && fits(row->fp.offset)) {
        rule->fp_rule = NP_FP_AT_CFA;
        rule->fp = (int32_t)row->fp.offset;
    }
    if (row->fp.how == SAVE_EXPRESSION) {
        struct reader reader = {row->fp.expression, row->fp.expression + 16, false};
        uint64_t bytes = uleb(&reader);
        reader.end = reader.at + bytes;
        uint64_t op = fixed(&reader, 1);
        int64_t offset = sleb(&reader);
        if (op != 0x70 + REG_FP || reader.bad || reader.at != reader.end || !fits(offset)) return;
        rule->fp_rule = NP_FP_AT_FP;
        rule->fp = (int32_t)offset;
    }
}

struct np_rule np_cfi_rule_of_row(const struct row *row, uintptr_t pc) {
    struct np_rule rule = {.kind = NP_RULE_FAIL};
    if (row->ra.how == SAVE_UNDEFINED) {
        rule.kind = NP_RULE_END;
        return rule;
    }
    /* The return address stands below the frame everywhere on x86-64; what claims otherwise is beyond us. */
    if (row->ra.how != SAVE_OFFSET || row->ra.offset != -8) return rule;
    fp_of_row(row, &rule);
    if (row->cfa_expression != NULL) {
        if (!cfa_of_expression(row->cfa_expression, pc, &rule)) rule.kind = NP_RULE_FAIL;
        return rule;
    }
    if (!fits(row->cfa_offset)) return rule;
    rule.cfa = (int32_t)row->cfa_offset;
    if (row->cfa_register == REG_SP) rule.kind = NP_RULE_SP;
    else if (row->cfa_register == REG_FP) rule.kind = NP_RULE_FP;
    return rule;
}

#endif
