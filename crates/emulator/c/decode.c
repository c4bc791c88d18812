/* decode.c: decode.h by tables: a letter per opcode. QEMU gives whole instructions, so lengths need not be found. */
#include "decode.h"

/* N none; S stack; 1 one access to the memory operand; U update of it; ? anything. Letters below hold where the operand is memory; with a register in
 * its place there is no access, but for:
 *   C call or jump or push through the operand (group 5); G group 3 (test, not, neg, mul, div); I group 4 (inc, dec); A group 1 (add ... cmp);
 *   X exchange, locked by itself; * string instructions and others without operand byte, anything. */
static const char one_byte[257] =
    "UU11NN**UU11NN**" /* 00 */
    "UU11NN**UU11NN**" /* 10 */
    "UU11NN**UU11NN**" /* 20 */
    "UU11NN**1111NN**" /* 30: cmp at 38 reads only */
    "****************" /* 40: REX, never seen here */
    "SSSSSSSSSSSSSSSS" /* 50 */
    "***1****S1S1****" /* 60 */
    "NNNNNNNNNNNNNNNN" /* 70 */
    "AA*A11XX1111?L??" /* 80: lea, pop to memory */
    "NNNNNNNNNNN*SSNN" /* 90 */
    "********NN******" /* a0: moffs and strings, test immediate */
    "NNNNNNNNNNNNNNNN" /* b0 */
    "UUSS**11*S******" /* c0 */
    "UUUU****????????" /* d0: x87 */
    "NNNN****SN*N****" /* e0 */
    "****N*GGNN**NNIC"; /* f0 */

/* Behind 0f. V: a vector instruction that makes one access when it is scalar (f2, f3), else as many as QEMU splits it into; M a hint; B bit tests. */
static const char two_bytes[257] =
    "?***?NN*NN*N*M*?" /* 00 */
    "VV?1???1MMMMMMMM" /* 10 */
    "********??V?VV11" /* 20 */
    "N***************" /* 30 */
    "1111111111111111" /* 40: cmov */
    "?VVVVVVVVVV?VVVV" /* 50 */
    "??????????????1?" /* 60 */
    "???????N??????1?" /* 70 */
    "NNNNNNNNNNNNNNNN" /* 80 */
    "1111111111111111" /* 90 */
    "SSN*UU**SS**UU?1" /* a0 */
    "??****111*B*1111" /* b0 */
    "??V1????NNNNNNNN" /* c0: xadd, cmpxchg8b; bswap */
    "??????1?????????" /* d0 */
    "????????????????" /* e0 */
    "???????*???????*"; /* f0: f7 stores through rdi */

struct fields {
    bool lock, repeat, rex_b, rex_x;
    const uint8_t *modrm, *end;
};

static int mod_of(const struct fields *f) { return *f->modrm >> 6; }
static int reg_of(const struct fields *f) { return *f->modrm >> 3 & 7; }

/* [rsp + constant], without index. */
static bool is_stack_operand(const struct fields *f) {
    if (mod_of(f) == 3 || (*f->modrm & 7) != 4 || f->modrm + 1 >= f->end) return false;
    uint8_t sib = f->modrm[1];
    return (sib & 7) == 4 && !f->rex_b && (sib >> 3 & 7) == 4 && !f->rex_x;
}

static enum np_shape group(char letter, const struct fields *f) {
    int reg = reg_of(f);
    switch (letter) {
    case 'A': return reg == 7 ? NP_SHAPE_ONE : NP_SHAPE_UPDATE;
    case 'G': return reg == 2 || reg == 3 ? NP_SHAPE_UPDATE : NP_SHAPE_ONE;
    case 'I': return reg <= 1 ? NP_SHAPE_UPDATE : NP_SHAPE_ANY;
    case 'C': return reg <= 1 ? NP_SHAPE_UPDATE : reg == 4 ? NP_SHAPE_ONE : NP_SHAPE_ANY;
    case 'B': return reg == 4 ? NP_SHAPE_ONE : reg > 4 ? NP_SHAPE_UPDATE : NP_SHAPE_ANY;
    default: return NP_SHAPE_ANY;
    }
}

/* An instruction with an operand byte. */
static enum np_shape with_operand(char letter, const struct fields *f) {
    if (f->modrm >= f->end) return NP_SHAPE_ANY;
    if (mod_of(f) == 3) return letter == 'C' && reg_of(f) != 4 && reg_of(f) > 1 ? NP_SHAPE_STACK : NP_SHAPE_NONE;
    enum np_shape shape;
    switch (letter) {
    case 'L':
    case 'M': return NP_SHAPE_NONE; /* addresses and hints */
    case '1': shape = NP_SHAPE_ONE; break;
    case 'U': shape = NP_SHAPE_UPDATE; break;
    case 'X': return NP_SHAPE_LOCKED;
    case 'V': shape = f->repeat ? NP_SHAPE_ONE : NP_SHAPE_ANY; break;
    default: shape = group(letter, f); break;
    }
    if (f->lock) return NP_SHAPE_LOCKED;
    /* Groups with pushes and calls touch two places. */
    return letter != 'C' && is_stack_operand(f) ? NP_SHAPE_STACK : shape;
}

static enum np_shape decode_vex(const uint8_t *at, struct fields *f) {
    /* c5 has R alone; c4 and 62 have X and B inverted in their first byte. */
    unsigned length = *at == 0xc5 ? 2 : *at == 0xc4 ? 3 : 4;
    if (at + length + 1 >= f->end) return NP_SHAPE_ANY; /* vzeroupper is as short */
    f->rex_b = *at != 0xc5 && !(at[1] & 0x20);
    f->rex_x = *at != 0xc5 && !(at[1] & 0x40);
    uint8_t opcode = at[length];
    /* Gathers and scatters: what looks like no index is a vector of them. maskmovdqu stores through rdi, and has two registers. */
    if (opcode == 0xf7 || (opcode & 0xfc) == 0x90 || (opcode & 0xfc) == 0xa0) return NP_SHAPE_ANY;
    f->modrm = at + length + 1;
    return with_operand('?', f);
}

enum np_shape np_decode(const uint8_t *bytes, size_t size) {
    struct fields f = {.end = bytes + size};
    const uint8_t *at = bytes;
    for (; at < f.end; at++) {
        if (*at == 0xf0) f.lock = true;
        else if (*at == 0xf2 || *at == 0xf3) f.repeat = true;
        else if (*at != 0x66 && *at != 0x67 && (*at & 0xe7) != 0x26 && (*at & 0xfe) != 0x64) break;
    }
    if (at < f.end && (*at & 0xf0) == 0x40) {
        f.rex_b = *at & 1;
        f.rex_x = *at & 2;
        at++;
    }
    if (at >= f.end) return NP_SHAPE_ANY;
    if (*at == 0xc4 || *at == 0xc5 || *at == 0x62) return decode_vex(at, &f);
    bool two = *at == 0x0f;
    if (two && ++at >= f.end) return NP_SHAPE_ANY;
    uint8_t opcode = *at;
    /* 0f 38 and 0f 3a have one byte more. */
    if (two && (opcode == 0x38 || opcode == 0x3a)) {
        f.modrm = at + 2;
        return with_operand('?', &f);
    }
    char letter = two ? two_bytes[opcode] : one_byte[opcode];
    if (letter == 'N') return NP_SHAPE_NONE;
    if (letter == 'S') return NP_SHAPE_STACK;
    if (letter == '*') return f.lock ? NP_SHAPE_LOCKED : NP_SHAPE_ANY; /* a bit of a string of them, named by a register */
    f.modrm = at + 1;
    return with_operand(letter, &f);
}

unsigned np_decode_step(const uint8_t *bytes, size_t size) {
    bool repeats = false, is_short = false, is_long = false;
    size_t at = 0;
    for (; at + 1 < size; at++) {
        uint8_t byte = bytes[at];
        if (byte == 0xf2 || byte == 0xf3) repeats = true;
        else if (byte == 0x66) is_short = true;
        else if ((byte & 0xf0) == 0x40) is_long = byte & 8;
        else if (byte != 0x67 && (byte & 0xe7) != 0x26 && (byte & 0xfe) != 0x64) return 0;
    }
    if (!repeats || at >= size) return 0;
    uint8_t kind = bytes[at] & 0xfe;
    if (kind != 0xa4 && kind != 0xaa) return 0;
    return !(bytes[at] & 1) ? 1 : is_long ? 8 : is_short ? 2 : 4;
}
