/* unwind_cfi.h: what is common to reading unwinding tables (unwind_cfi.c) and to making a rule of what they say (unwind_rule_*.c, one per processor).
 * Numbers of registers are DWARF's, by each processor's ABI. */
#ifndef NUMAPILOT_UNWIND_CFI_H
#define NUMAPILOT_UNWIND_CFI_H
#include "track.h"

#include <string.h>

#if defined(__x86_64__)
enum { REG_FP = 6, REG_SP = 7, REG_RA = 16 };
#else
enum { REG_FP = 29, REG_RA = 30, REG_SP = 31, REG_VG = 46 };
#endif
enum { PE_OMIT = 0xff, PE_PCREL = 0x10, PE_DATAREL = 0x30 };
#define REMEMBER_MAX 4 /* compilers nest none; this much is on the program's stack */

struct reader { const uint8_t *at, *end; bool bad; };

static inline uint64_t fixed(struct reader *reader, unsigned bytes) {
    uint64_t value = 0;
    if ((size_t)(reader->end - reader->at) < bytes) {
        reader->bad = true;
        reader->at = reader->end;
        return 0;
    }
    memcpy(&value, reader->at, bytes);
    reader->at += bytes;
    return value;
}

static inline uint64_t uleb(struct reader *reader) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint64_t byte = fixed(reader, 1);
        value |= (byte & 0x7f) << shift;
        if (!(byte & 0x80)) return value;
    }
    reader->bad = true;
    return 0;
}

static inline int64_t sleb(struct reader *reader) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint64_t byte = fixed(reader, 1);
        value |= (byte & 0x7f) << shift;
        if (byte & 0x80) continue;
        if ((byte & 0x40) && shift + 7 < 64) value |= ~0ull << (shift + 7);
        return (int64_t)value;
    }
    reader->bad = true;
    return 0;
}

/* A pointer in one of the encodings of the LSB; `data` is the base of data-relative ones. */
static inline uint64_t encoded(struct reader *reader, uint8_t encoding, uint64_t data) {
    uint64_t base = (encoding & 0x70) == PE_PCREL ? (uint64_t)reader->at : (encoding & 0x70) == PE_DATAREL ? data : 0;
    if ((encoding & 0x70) > PE_PCREL && (encoding & 0x70) != PE_DATAREL) reader->bad = true;
    switch (encoding & 0x0f) {
    case 0x0: case 0x4: case 0xc: return base + fixed(reader, 8);
    case 0x1: return base + uleb(reader);
    case 0x2: return base + fixed(reader, 2);
    case 0x3: return base + fixed(reader, 4);
    case 0x9: return base + (uint64_t)sleb(reader);
    case 0xa: return base + (uint64_t)(int64_t)(int16_t)fixed(reader, 2);
    case 0xb: return base + (uint64_t)(int64_t)(int32_t)fixed(reader, 4);
    default: reader->bad = true; return 0;
    }
}

enum save { SAVE_SAME, SAVE_OFFSET, SAVE_EXPRESSION, SAVE_UNDEFINED, SAVE_OTHER };
struct saved { uint8_t how; int64_t offset; const uint8_t *expression; };
struct row {
    uint64_t cfa_register;
    int64_t cfa_offset;
    const uint8_t *cfa_expression; /* not NULL: instead of the two above */
    struct saved fp, ra;
    bool ra_is_signed; /* by pointer authentication (arm64) */
};
struct description {
    struct reader cie_program, fde_program;
    uint64_t code_align;
    int64_t data_align;
    uint64_t ra_register;
    uint64_t begin, bytes;
    uint8_t encoding;
    bool has_augmentation, is_signal;
};

/* What a rule has room for. */
static inline bool fits(int64_t value) {
    return value > -(1 << 23) && value < 1 << 23;
}

#pragma GCC visibility push(hidden)
/* The rule that a row at pc amounts to. */
struct np_rule np_cfi_rule_of_row(const struct row *row, uintptr_t pc);
/* All these bytes can be read. On x86-64 lengths in the tables are trusted, and nothing is asked. */
#if defined(__x86_64__)
static inline bool np_cfi_is_readable(const uint8_t *at, uint64_t bytes) {
    (void)at, (void)bytes;
    return true;
}
#else
bool np_cfi_is_readable(const uint8_t *at, uint64_t bytes);
#endif
#pragma GCC visibility pop
#endif
