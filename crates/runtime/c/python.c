/* python.c: the Python functions and lines that an allocation, or a recorded access, is made for.
 *
 * They are no native frames: an interpreter runs them all in one C function. A thread's own list of interpreter frames is walked where the thread stands, as
 * debuggers walk it. Nothing of the interpreter is called but PyGILState_GetThisThreadState and _PyThreadState_UncheckedGet, which read a variable each.
 *
 * What could make a pointer lead nowhere:
 * - Other fields than those that are read here. Where they lie depends on the version (Include/cpython/pystate.h, code.h, Include/internal/pycore_frame.h of
 *   each); so each pointer of the first walks is looked at by the kernel before it is followed, and every object that is taken for code must have the type
 *   of code. The first that has not ends it: then there are C functions alone, as without this file.
 * - Another thread that frees it. A thread that holds the interpreter's lock, and the process's first one, which ends the interpreter, need not fear that. Of
 *   others, whose extensions allocate while they have released the lock (numpy does), the kernel reads the memory: what is gone is an error, and no fault.
 * - A change that is half done: stacks through a signal's handler have no Python functions.
 * The emulator's plugin, which takes stacks at any instruction, has the kernel read everything. It shows Python functions only where the interpreter is among
 * the native frames: then the thread is what the tracker saw last. The interpreter stores a new frame whole before it makes it the innermost one, so what a
 * walk finds is at worst the function before a call that is being made, or behind one that has just returned.
 *
 * A function's name, file and table of lines are written once, when it is first met (NP_REC_CODE); lines are looked up when the trace is read.
 */
#define _GNU_SOURCE
#include "python.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#define NONE NP_PYTHON_NONE
#define CODES_LOG2 14
#define CODES (1u << CODES_LOG2)
#define PROBES 16u
#define CAREFUL_WALKS 64u
/* Frames in a row that are no function's: entries from C. */
#define SKIPPED_MAX 8u
/* From this kind of owner on, a frame stands for an entry from C (enum _frameowner). */
#define OWNED_BY_C 3

/* Of every version: an object's type, a variable object's size, a string's length, its state, the UTF-8 form of one that is not ASCII, and bytes. */
enum { OBJECT_TYPE = 8, OBJECT_SIZE = 16, TEXT_LENGTH = 16, TEXT_STATE = 32, BYTES_TEXT = 32 };
/* Bits of a string's state. */
#define STATE_KIND(state) ((state) >> 2 & 7)
#define STATE_COMPACT 0x20u
#define STATE_ASCII 0x40u

static uint32_t careful_walks;   /* that went well */
static uint32_t no_kernel_reads; /* the kernel refuses them */
#ifdef NP_PLUGIN
#define IS_PLUGIN true
static const struct np_python_known none;
const struct np_python_known *np_python = &none;
#else
#define IS_PLUGIN false
#endif

/* -- reading -- */

/* Where the fields lie is not proved yet: whether the pages are there is asked first. */
static bool is_there(uintptr_t address, size_t bytes) {
    uintptr_t page = np_page_bytes(), first = address & -page, last = (address + bytes - 1) & -page;
    unsigned char residency[64];
    if (np_is_confined || (address & 3) != 0 || last - first >= sizeof residency * page) return false;
    return NP_SYS3(SYS_mincore, first, last - first + page, residency) == 0;
}

/* What the kernel has read at a time, by the emulator's plugin: an object's fields lie together. */
#define PIECE_BYTES 256u
struct piece { uintptr_t at; char bytes[PIECE_BYTES]; };

/* pid: of this process, where the kernel reads its memory; else 0. */
struct reader {
    uint32_t pid;
    bool careful, failed;
#ifdef NP_PLUGIN
    unsigned oldest;
    struct piece pieces[2];
#endif
};

static NP_COLD bool read_by_kernel(uint32_t pid, void *to, uintptr_t from, size_t bytes) {
    struct iovec local = {to, bytes}, remote = {(void *)from, bytes};
    long got = NP_SYS6(SYS_process_vm_readv, pid, &local, 1, &remote, 1, 0);
    if (got == -ENOSYS || got == -EPERM) np_store(no_kernel_reads, 1);
    return got == (long)bytes;
}

#ifdef NP_PLUGIN
static bool read_piece(struct reader *reader, void *to, uintptr_t from, size_t bytes) {
    for (unsigned i = 0; i < 2; i++) {
        const struct piece *piece = &reader->pieces[i];
        if (piece->at == 0 || from - piece->at >= PIECE_BYTES || PIECE_BYTES - (from - piece->at) < bytes) continue;
        memcpy(to, piece->bytes + (from - piece->at), bytes);
        return true;
    }
    struct piece *piece = &reader->pieces[reader->oldest];
    uintptr_t at = from & ~15ul;
    if (from - at + bytes > PIECE_BYTES || !read_by_kernel(reader->pid, piece->bytes, at, PIECE_BYTES)) {
        piece->at = 0;
        return read_by_kernel(reader->pid, to, from, bytes);
    }
    piece->at = at;
    reader->oldest ^= 1;
    memcpy(to, piece->bytes + (from - at), bytes);
    return true;
}
#else
static bool read_piece(struct reader *reader, void *to, uintptr_t from, size_t bytes) {
    return read_by_kernel(reader->pid, to, from, bytes);
}
#endif

/* False: it is not there, or something before was not. */
static inline bool copy(struct reader *reader, void *to, uintptr_t from, size_t bytes) {
    bool is_address = from >= 4096 && from < NP_ADDRESS_END;
    if (np_likely(!reader->careful && reader->pid == 0 && is_address)) {
        memcpy(to, (const void *)from, bytes);
        return true;
    }
    if (reader->failed || bytes == 0) return !reader->failed;
    reader->failed = !is_address || (reader->pid != 0 ? !read_piece(reader, to, from, bytes) : !is_there(from, bytes));
    if (!reader->failed && reader->pid == 0) memcpy(to, (const void *)from, bytes);
    return !reader->failed;
}

static inline uintptr_t word_at(struct reader *reader, uintptr_t address) {
    uintptr_t word;
    return copy(reader, &word, address, sizeof word) ? word : 0;
}

static inline int32_t int_at(struct reader *reader, uintptr_t address) {
    int32_t number;
    return copy(reader, &number, address, sizeof number) ? number : 0;
}

static inline bool has_type(struct reader *reader, uintptr_t object, uintptr_t type) {
    return object != 0 && (object & 7) == 0 && word_at(reader, object + OBJECT_TYPE) == type;
}

/* -- code objects -- */

/* The same address can be another function's later: the check tells. */
struct code { uintptr_t object; uint64_t check; uint32_t id; };
static struct code *codes;
static uint32_t codes_lock;

void np_python_after_fork(void) {
    np_unlock(&codes_lock);
}

void np_python_jumped(void) { np_unlock_left(&codes_lock); }

static unsigned put_utf8(char *to, uint32_t c) {
    if (c < 0x80) return (unsigned)(to[0] = (char)c, 1);
    unsigned more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    for (unsigned i = more; i > 0; i--, c >>= 6) to[i] = (char)(0x80 | (c & 0x3f));
    to[0] = (char)((0xf00 >> (more + 1) & 0xff) | c);
    return more + 1;
}

/* A string's text as UTF-8, cut at `max` bytes; its length. */
static unsigned text_of(struct reader *reader, uintptr_t object, char *to, unsigned max) {
    if (!has_type(reader, object, np_python->text_type)) return 0;
    uint32_t state = (uint32_t)int_at(reader, object + TEXT_STATE);
    uintptr_t length = word_at(reader, object + TEXT_LENGTH), size = STATE_KIND(state);
    if (!(state & STATE_COMPACT) || (size != 1 && size != 2 && size != 4)) return 0;
    uintptr_t text = object + (state & STATE_ASCII ? np_python->layout->ascii : np_python->layout->compact);
    unsigned used = 0;
    for (uintptr_t i = 0; i < length && used + 4 <= max;) {
        union { uint8_t one[64]; uint16_t two[32]; uint32_t four[16]; } piece;
        uintptr_t there = sizeof piece / size, now = length - i < there ? length - i : there;
        if (!copy(reader, &piece, text + i * size, now * size)) return 0;
        for (uintptr_t k = 0; k < now && used + 4 <= max; k++) used += put_utf8(to + used, size == 1 ? piece.one[k] : size == 2 ? piece.two[k] : piece.four[k]);
        i += now;
    }
    return used;
}

/* Writes the record of a function. 0: it was lost, or this is none. */
static NP_COLD uint32_t write_code(struct np_slot *slot, struct reader *reader, struct np_python_room *room, uintptr_t code) {
    const struct np_python_layout *layout = np_python->layout;
    char *name = room->name, *file = room->file;
    unsigned name_bytes = text_of(reader, word_at(reader, code + layout->name), name, sizeof room->name);
    unsigned file_bytes = text_of(reader, word_at(reader, code + layout->file), file, sizeof room->file);
    uintptr_t table = word_at(reader, code + layout->table), table_bytes = 0;
    if (has_type(reader, table, np_python->bytes_type)) table_bytes = word_at(reader, table + OBJECT_SIZE);
    int32_t line = int_at(reader, code + layout->first_line);
    /* A table that no ring has room for is left out, and the line, too: up to 3.9 a function of one line has an empty table. */
    if (table_bytes > np_arena->ring_bytes / 8) table_bytes = 0, line = 0;
    if (reader->failed) return 0;
    uint32_t id = __atomic_fetch_add(&np_arena->next_code_id, 1, __ATOMIC_RELAXED);
    unsigned name_words = np_words_for(name_bytes), file_words = np_words_for(file_bytes);
    unsigned count = 5 + name_words + file_words + np_words_for(table_bytes);
    if (id >= NP_CODE_IDS) return 0;
    uint64_t *words = np_begin(slot, NP_REC_CODE, id, count, np_order());
    if (words == NULL) return 0;
    words[2] = name_bytes | (uint64_t)file_bytes << 32;
    words[3] = table_bytes | (uint64_t)(uint32_t)line << 32;
    words[4] = layout->minor;
    np_put_bytes(words + 5, name, name_bytes);
    np_put_bytes(words + 5 + name_words, file, file_bytes);
    uint64_t *to = words + 5 + name_words + file_words;
    if (table_bytes > 0) to[(table_bytes - 1) / 8] = 0;
    /* A table that has gone meanwhile is none. */
    if (!copy(reader, to, table + BYTES_TEXT, table_bytes)) memset(to, 0, table_bytes);
    np_commit(slot, count);
    return id;
}

static uint64_t check_of(struct reader *reader, uintptr_t code) {
    const struct np_python_layout *layout = np_python->layout;
    uint64_t sum = word_at(reader, code + layout->name) * 3 + word_at(reader, code + layout->file) * 5;
    return sum + word_at(reader, code + layout->table) * 7 + (uint32_t)int_at(reader, code + layout->first_line);
}

/* The number of a function; 0: none was to be had. */
static uint32_t code_id(struct np_slot *slot, struct reader *reader, struct np_python_room *room, uintptr_t code) {
    uint64_t check = check_of(reader, code), hash = (code >> 4) * NP_HASH_FACTOR >> (64 - CODES_LOG2);
    if (!np_lock(&codes_lock)) return 0;
    if (codes == NULL) codes = np_pages_new(CODES * sizeof *codes);
    uint32_t id = 0;
    if (codes != NULL) {
        /* Where there is no room near its place, the first there is forgotten, and will be written again. */
        struct code *place = &codes[hash];
        for (unsigned probe = 0; probe < PROBES; probe++) {
            struct code *entry = &codes[(hash + probe) & (CODES - 1)];
            if (entry->object != code && entry->object != 0) continue;
            place = entry;
            break;
        }
        if (place->object == code && place->check == check) id = place->id;
        else if ((id = write_code(slot, reader, room, code)) != 0) *place = (struct code){code, check, id};
    }
    np_unlock(&codes_lock);
    return id;
}

/* -- frames -- */

/* The instruction that a frame is at, counted from the first of its code, in units of two bytes. */
static uint64_t unit_of(struct reader *reader, uintptr_t frame, uintptr_t code) {
    const struct np_python_layout *layout = np_python->layout;
    int64_t unit;
    if (layout->code_start == NONE) unit = int_at(reader, frame + layout->at) / (layout->minor < 10 ? 2 : 1);
    else unit = ((int64_t)word_at(reader, frame + layout->at) - (int64_t)(code + layout->code_start)) / 2;
    return unit < 0 ? 0 : unit >= NP_CODE_UNITS ? NP_CODE_UNITS - 1 : (uint64_t)unit;
}

static uint64_t walk(struct reader *reader, uintptr_t state, struct np_python *stack, uint64_t hash) {
    const struct np_python_layout *layout = np_python->layout;
    uintptr_t frame = word_at(reader, state + layout->innermost);
    if (layout->in_cframe != NONE && frame != 0) frame = word_at(reader, frame + layout->in_cframe);
    for (unsigned skipped = 0; frame != 0 && !reader->failed && skipped < SKIPPED_MAX; frame = word_at(reader, frame + layout->back)) {
        if ((frame & 7) != 0 || (stack->is_cut = stack->count == NP_PYTHON_FRAMES)) break;
        if (layout->owner != NONE && (int_at(reader, frame + (layout->owner & ~3u)) >> (layout->owner & 3) * 8 & 0xff) >= OWNED_BY_C) {
            skipped++;
            continue;
        }
        /* From 3.14 on the low bits say who counts the reference. */
        uintptr_t code = word_at(reader, frame + layout->code) & ~(uintptr_t)(layout->minor >= 14 ? 7 : 0);
        if (!has_type(reader, code, np_python->code_type)) {
            skipped++;
            continue;
        }
        skipped = 0;
        uint64_t unit = unit_of(reader, frame, code);
        stack->frames[stack->count].code = code;
        stack->frames[stack->count++].unit = unit;
        hash = np_hash_step(hash, (code ^ unit << 47) + check_of(reader, code) * 0xc2b2ae3d27d4eb4full);
    }
    return hash;
}

static bool is_evaluator(uintptr_t pc) {
    return pc > np_python->evaluator_lo && pc <= np_python->evaluator_hi;
}

bool np_python_is_among(const uintptr_t *frames, unsigned count) {
    unsigned at = 0;
    if (np_likely(__atomic_load_n(&np_python->layout, __ATOMIC_ACQUIRE) == NULL)) return false;
    while (at < count && !is_evaluator(frames[at])) at++;
    return at < count;
}

/* Python frames stand for what is between the innermost and the outermost run of the interpreter, both included; but the plugin's first frame is where the
 * access itself is. */
static unsigned merge(uintptr_t *frames, unsigned count, struct np_python_room *room, unsigned more, unsigned max, uint32_t *flags) {
    unsigned inner = 0, outer = count;
    while (inner < count && !is_evaluator(frames[inner])) inner++;
    while (outer > inner && !is_evaluator(frames[outer - 1])) outer--;
    if (IS_PLUGIN && inner == 0 && outer > 0) inner = 1;
    const uintptr_t *found = room->found;
    uintptr_t *rest = room->rest;
    unsigned left = count - outer;
    if (left > sizeof room->rest / sizeof *rest) left = sizeof room->rest / sizeof *rest;
    memcpy(rest, frames + outer, left * sizeof *rest);
    unsigned used = inner;
    for (unsigned i = 0; i < more && used < max; i++) frames[used++] = found[i];
    for (unsigned i = 0; i < left && used < max; i++) frames[used++] = rest[i];
    if (used < inner + more + left) *flags |= 1;
    return used;
}

bool np_python_walk(const struct np_slot *slot, struct np_python *stack, uint64_t *hash, bool *is_python) {
    *is_python = false;
    if (np_likely(__atomic_load_n(&np_python->layout, __ATOMIC_ACQUIRE) == NULL) || np_load(np_python->given_up)) return false;
    bool is_held;
    uintptr_t state = np_python_thread(&is_held);
    *is_python = state != 0;
    bool may_be_freed = IS_PLUGIN || (!is_held && slot->pid != slot->tid);
    if (state == 0 || (may_be_freed && (np_is_confined || np_load(no_kernel_reads)))) return false;
    uint32_t walks = np_load(careful_walks);
    struct reader reader = {.pid = may_be_freed ? slot->pid : 0, .careful = walks < CAREFUL_WALKS && !may_be_freed};
    stack->count = 0;
    stack->is_cut = false;
    stack->is_careful = reader.careful;
    stack->by_kernel = may_be_freed;
    uint64_t sum = walk(&reader, state, stack, *hash);
    if (np_unlikely(reader.failed)) {
        if (reader.careful) np_python_give_up();
        return false;
    }
    if (stack->count == 0) return false;
    if (np_unlikely(reader.careful)) np_store(careful_walks, walks + 1);
    *hash = np_hash_step(sum, stack->is_cut);
    return true;
}

unsigned np_python_merge(struct np_slot *slot, const struct np_python *stack, struct np_python_room *room, uintptr_t *frames, unsigned count, unsigned max,
                         uint32_t *flags) {
    struct reader reader = {.pid = stack->by_kernel ? slot->pid : 0, .careful = stack->is_careful};
    for (unsigned i = 0; i < stack->count; i++) {
        uint32_t id = code_id(slot, &reader, room, stack->frames[i].code);
        if (np_unlikely(id == 0)) return 0;
        room->found[i] = NP_CODE_FRAME | (uint64_t)id << NP_CODE_SHIFT | stack->frames[i].unit;
    }
    if (stack->is_cut) *flags |= 1;
    return merge(frames, count, room, stack->count, max, flags);
}
