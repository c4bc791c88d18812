/* unwind_cfi.c: the unwinding rule at one address, from .eh_frame (LSB 5.0, "Exception Frames"; DWARF 5, section 6.4).
 *
 * Run once per address; unwind.c keeps the answers. Only what the chain of frames needs is followed: the frame's address, the saved frame pointer, and
 * whether there is a caller at all. The tables are mapped by the loader and trusted to be where their headers say; what they hold is checked.
 */
#include "unwind_cfi.h"

static struct reader entry_reader(const uint8_t *entry) {
    uint32_t length;
    if (!np_cfi_is_readable(entry, 4)) return (struct reader){entry, entry, true};
    memcpy(&length, entry, 4);
    struct reader reader = {entry + 4, entry + 4 + length, length == 0 || length == 0xffffffffu || !np_cfi_is_readable(entry, 4ull + length)};
    if (reader.bad) reader.end = reader.at;
    return reader;
}

static bool read_cie(const uint8_t *entry, struct description *result) {
    struct reader reader = entry_reader(entry);
    if (fixed(&reader, 4) != 0 || reader.bad) return false;
    uint64_t version = fixed(&reader, 1);
    const char *augmentation = (const char *)reader.at;
    while (fixed(&reader, 1) != 0 && !reader.bad) {}
    result->code_align = uleb(&reader);
    result->data_align = sleb(&reader);
    result->ra_register = version == 1 ? fixed(&reader, 1) : uleb(&reader);
    result->encoding = 0;
    result->has_augmentation = augmentation[0] == 'z';
    if (reader.bad || (version != 1 && version != 3) || (augmentation[0] != 0 && !result->has_augmentation)) return false;
    if (result->has_augmentation) {
        uint64_t bytes = uleb(&reader);
        struct reader data = reader;
        if (bytes > (uint64_t)(reader.end - reader.at)) return false;
        reader.at += bytes;
        for (const char *letter = augmentation + 1; *letter != 0; letter++) {
            if (*letter == 'R') result->encoding = (uint8_t)fixed(&data, 1);
            else if (*letter == 'P') { uint8_t encoding = (uint8_t)fixed(&data, 1); encoded(&data, encoding & 0x7f, 0); }
            else if (*letter == 'L') fixed(&data, 1);
            else if (*letter == 'S') result->is_signal = true;
#if defined(__aarch64__)
            else if (*letter == 'B') continue; /* return addresses are signed by key B: stripping asks for no key */
#endif
            else break;
        }
    }
    result->cie_program = reader;
    return !reader.bad;
}

static bool read_fde(const uint8_t *entry, struct description *result) {
    struct reader reader = entry_reader(entry);
    const uint8_t *pointer_at = reader.at;
    uint64_t back = fixed(&reader, 4);
    if (reader.bad || back == 0 || !read_cie(pointer_at - back, result)) return false;
    result->begin = encoded(&reader, result->encoding, 0);
    result->bytes = encoded(&reader, result->encoding & 0x0f, 0);
    if (result->has_augmentation) {
        uint64_t bytes = uleb(&reader);
        if (bytes > (uint64_t)(reader.end - reader.at)) return false;
        reader.at += bytes;
    }
    result->fde_program = reader;
    return !reader.bad;
}

/* -- the program -- */

struct machine {
    const struct description *description;
    struct row row, initial, stack[REMEMBER_MAX];
    unsigned depth;
    uint64_t location;
    bool bad;
};

static struct saved *saved_of(struct machine *machine, uint64_t reg) {
    if (reg == REG_FP) return &machine->row.fp;
    return reg == machine->description->ra_register ? &machine->row.ra : NULL;
}

static void set(struct machine *machine, uint64_t reg, enum save how, int64_t offset) {
    struct saved *saved = saved_of(machine, reg);
    if (saved != NULL) *saved = (struct saved){(uint8_t)how, offset, NULL};
}

static void restore(struct machine *machine, uint64_t reg) {
    if (reg == REG_FP) machine->row.fp = machine->initial.fp;
    else if (reg == machine->description->ra_register) machine->row.ra = machine->initial.ra;
}

/* A block with its length before it; the answer points at the length. */
static const uint8_t *block(struct reader *reader) {
    const uint8_t *begin = reader->at;
    uint64_t bytes = uleb(reader);
    if (bytes > (uint64_t)(reader->end - reader->at)) reader->bad = true;
    else reader->at += bytes;
    return begin;
}

static void define_cfa(struct machine *machine, uint64_t reg, int64_t offset) {
    machine->row.cfa_register = reg;
    machine->row.cfa_offset = offset;
    machine->row.cfa_expression = NULL;
}

static void step_state(struct machine *machine, uint8_t op) {
    if (op == 0x0a) {
        if (machine->depth == REMEMBER_MAX) machine->bad = true;
        else machine->stack[machine->depth++] = machine->row;
    } else {
        if (machine->depth == 0) machine->bad = true;
        else machine->row = machine->stack[--machine->depth];
    }
}

static void step_register(struct machine *machine, struct reader *reader, uint8_t op) {
    int64_t align = machine->description->data_align;
    uint64_t reg = uleb(reader);
    struct saved *saved;
    switch (op) {
    case 0x05: set(machine, reg, SAVE_OFFSET, (int64_t)uleb(reader) * align); return;
    case 0x06: restore(machine, reg); return;
    case 0x07: set(machine, reg, SAVE_UNDEFINED, 0); return;
    case 0x08: set(machine, reg, SAVE_SAME, 0); return;
    case 0x09: uleb(reader); set(machine, reg, SAVE_OTHER, 0); return;
    case 0x0c: define_cfa(machine, reg, (int64_t)uleb(reader)); return;
    case 0x0d: machine->row.cfa_register = reg; return;
    case 0x11: set(machine, reg, SAVE_OFFSET, sleb(reader) * align); return;
    case 0x12: define_cfa(machine, reg, sleb(reader) * align); return;
    case 0x14: uleb(reader); set(machine, reg, SAVE_OTHER, 0); return;
    case 0x15: sleb(reader); set(machine, reg, SAVE_OTHER, 0); return;
    case 0x2f: set(machine, reg, SAVE_OFFSET, -(int64_t)uleb(reader) * align); return;
    default: /* 0x10 expression, 0x16 value expression */
        saved = saved_of(machine, reg);
        const uint8_t *at = block(reader);
        if (saved != NULL) *saved = (struct saved){op == 0x10 ? SAVE_EXPRESSION : SAVE_OTHER, 0, at};
    }
}

static void run(struct machine *machine, struct reader reader, uint64_t pc) {
    const struct description *d = machine->description;
    while (reader.at < reader.end && !reader.bad && !machine->bad && machine->location <= pc) {
        uint8_t op = (uint8_t)fixed(&reader, 1), low = op & 0x3f;
        switch (op & 0xc0) {
        case 0x40: machine->location += low * d->code_align; continue;
        case 0x80: set(machine, low, SAVE_OFFSET, (int64_t)uleb(&reader) * d->data_align); continue;
        case 0xc0: restore(machine, low); continue;
        default: break;
        }
        switch (op) {
        case 0x00: break;
        case 0x01: machine->location = encoded(&reader, d->encoding, 0); break;
        case 0x02: machine->location += fixed(&reader, 1) * d->code_align; break;
        case 0x03: machine->location += fixed(&reader, 2) * d->code_align; break;
        case 0x04: machine->location += fixed(&reader, 4) * d->code_align; break;
        case 0x0a: case 0x0b: step_state(machine, op); break;
        case 0x0e: machine->row.cfa_offset = (int64_t)uleb(&reader); break;
        case 0x0f: machine->row.cfa_expression = block(&reader); break;
        case 0x13: machine->row.cfa_offset = sleb(&reader) * d->data_align; break;
        case 0x2e: uleb(&reader); break;
        case 0x05: case 0x06: case 0x07: case 0x08: case 0x09: case 0x0c: case 0x0d: case 0x10: case 0x11: case 0x12: case 0x14: case 0x15:
        case 0x16: case 0x2f: step_register(machine, &reader, op); break;
#if defined(__aarch64__)
        case 0x2c: case 0x2d: machine->row.ra_is_signed = !machine->row.ra_is_signed; break; /* negate_ra_state_with_pc, negate_ra_state */
#endif
        default: machine->bad = true;
        }
    }
    if (reader.bad) machine->bad = true;
}

/* -- the index -- */

/* The description whose range may hold pc, by the linker's sorted table. NULL: none, or an index in a form that no linker writes. */
static const uint8_t *find_fde(const uint8_t *header, uintptr_t pc) {
    if (header[0] != 1 || header[3] != (PE_DATAREL | 0x0b) || header[2] == PE_OMIT) return NULL;
    struct reader reader = {header + 4, header + 4 + 32, false};
    encoded(&reader, header[1], (uint64_t)header);
    uint64_t count = encoded(&reader, header[2], (uint64_t)header);
    if (reader.bad || count == 0) return NULL;
    const int32_t *table = (const void *)reader.at;
    int64_t wanted = (int64_t)(pc - (uintptr_t)header);
    if (wanted < table[0]) return NULL;
    uint64_t low = 0, high = count;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (table[2 * middle] <= wanted) low = middle;
        else high = middle;
    }
    return header + table[2 * low + 1];
}

struct np_rule np_cfi_rule(const void *eh_frame_hdr, uintptr_t pc) {
    struct np_rule guess = {.kind = NP_RULE_GUESS};
    const uint8_t *entry = eh_frame_hdr != NULL ? find_fde(eh_frame_hdr, pc) : NULL;
    struct description description = {0};
    if (entry == NULL || !read_fde(entry, &description) || pc - description.begin >= description.bytes) return guess;
    if (description.is_signal) return (struct np_rule){.kind = NP_RULE_SIGNAL};
    struct machine machine = {.description = &description, .location = 0};
    run(&machine, description.cie_program, UINT64_MAX);
    machine.initial = machine.row;
    machine.location = description.begin;
    run(&machine, description.fde_program, pc);
    if (machine.bad) return (struct np_rule){.kind = NP_RULE_FAIL};
    return np_cfi_rule_of_row(&machine.row, pc);
}
