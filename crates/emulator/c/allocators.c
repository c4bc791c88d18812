/* allocators.c: blocks of allocators that the program carries itself, from calls and returns of their functions in the emulated program.
 *
 * The tracker's hooks see what is called through the loader. An allocator linked into the program is called directly; here its functions are found by
 * their symbols (allocator_symbols.c), and arguments and results are those of the emulated registers.
 *
 * A call ends in one of two ways, whichever is seen: a return instruction in the allocator's own file takes the return address that lay there at the call
 * (a function may end in a jump to another one), or the block of code behind the call instruction begins (what was jumped to may lie in another file, as memset
 * does for calloc), with the stack as it was before the call. Neither is seen where an allocator's function jumps to another file's and was called from a
 * third, nor after a jump out of the allocator (siglongjmp): the block is lost, and counted.
 *
 * Go's heap (runtime.mallocgc) gives blocks back in its collector's sweep, which is not followed: its blocks end when others come to lie there.
 *
 * Rules as for hooks (crates/runtime/c/alloc.c): what an allocation function calls in turn is part of it; a block is stamped after it was made, its end before
 * the call. What is called from the tracker's own hooks is recorded there. */
#define _GNU_SOURCE
#include "allocators.h"
#include "user.h"

#include <string.h>

enum { REGISTER_RAX = 0, REGISTER_RCX = 1, REGISTER_RDX = 2, REGISTER_RBX = 3, REGISTER_RSP = 4, REGISTER_RBP = 5, REGISTER_RSI = 6, REGISTER_RDI = 7 };

/* -- which functions these are -- */

#define MAPPINGS_MAX 128u
#define ENTRIES_MAX 1024u
/* The longest call instruction that is_after_call knows. */
#define CALL_BYTES_MAX 7u

/* Mappings in which code was translated, with their functions. Files are loaded rarely, and code is translated by one thread at a time; others take the lock
 * only when they unmap something. It is not held across a wait for anybody. */
static struct { uint64_t lo, hi; bool has_entries; } mappings[MAPPINGS_MAX]; /* hi 0: free */
static struct np_allocator_entry entries[ENTRIES_MAX];
static unsigned entries_used, next_mapping;
static uint32_t tables_lock;

static void take_tables(void) {
    while (__atomic_exchange_n(&tables_lock, 1, __ATOMIC_ACQUIRE) != 0) NP_SYS0(SYS_sched_yield);
}
static void give_tables(void) { __atomic_store_n(&tables_lock, 0, __ATOMIC_RELEASE); }

/* The lock may have been another thread's at the fork. What is forgotten is read again. */
void np_allocators_after_fork(void) {
    memset(mappings, 0, sizeof mappings);
    entries_used = 0;
    give_tables();
}

static void forget(uint64_t lo, uint64_t hi) {
    unsigned kept = 0;
    for (unsigned i = 0; i < entries_used; i++)
        if (entries[i].address < lo || entries[i].address >= hi) entries[kept++] = entries[i];
    entries_used = kept;
}

void np_allocators_unmapped(uint64_t address, uint64_t bytes) {
    uint64_t end = address + bytes;
    take_tables();
    for (unsigned i = 0; i < MAPPINGS_MAX; i++) {
        if (mappings[i].hi <= address || mappings[i].lo >= end) continue;
        forget(mappings[i].lo, mappings[i].hi);
        mappings[i].lo = mappings[i].hi = 0;
    }
    give_tables();
}

struct found_line { uint64_t address, lo, hi, offset; bool is_found; char path[NP_MAP_PATH_BYTES]; };

/* A file's mapping, or all that is mapped in a row of no file: the emulator changes the rights of generated code page by page, which makes many mappings
 * of one. */
static bool look_at_line(const struct np_maps_line *line, void *context) {
    struct found_line *found = context;
    bool is_file = line->path[0] == '/', goes_on = !is_file && line->lo == found->hi;
    if (!goes_on && (found->is_found || line->lo > found->address)) return false;
    bool holds = found->address >= line->lo && found->address < line->hi;
    if (!goes_on) found->lo = line->lo;
    found->hi = is_file && !holds ? 0 : line->hi; /* 0: nothing goes on from here */
    found->is_found |= holds;
    if (!is_file || !holds) return true;
    found->offset = line->offset;
    if (line->path_bytes < sizeof found->path) memcpy(found->path, line->path, line->path_bytes + 1);
    return false;
}

/* Looks at the mapping around `address`. -1: there is none. */
static int new_mapping(uint64_t address) {
    struct found_line line = {.address = address};
    np_maps_each(look_at_line, &line);
    if (!line.is_found) return -1;
    int index = (int)(next_mapping++ % MAPPINGS_MAX);
    forget(mappings[index].lo, mappings[index].hi);
    unsigned count = 0;
    if (line.path[0] != 0)
        count = np_allocators_in_file(line.path, line.lo, line.hi, line.offset, entries + entries_used, ENTRIES_MAX - entries_used);
    entries_used += count;
    mappings[index].lo = line.lo;
    mappings[index].hi = line.hi;
    mappings[index].has_entries = count != 0;
    return index;
}

static int mapping_of(uint64_t address) {
    for (unsigned i = 0; i < MAPPINGS_MAX; i++)
        if (address - mappings[i].lo < mappings[i].hi - mappings[i].lo) return (int)i;
    return new_mapping(address);
}

/* What lies before `start` may be a call instruction: one with an offset, or through a register or memory. */
static bool is_after_call(uint64_t start) {
    static const uint8_t lengths[] = {2, 3, 4, 6, CALL_BYTES_MAX};
    uint8_t before[CALL_BYTES_MAX];
    if (!np_read_guest(before, start - sizeof before, sizeof before)) return false;
    const uint8_t *end = before + sizeof before;
    if (end[-5] == 0xe8) return true;
    for (unsigned i = 0; i < sizeof lengths; i++)
        if (end[-lengths[i]] == 0xff && (end[1 - lengths[i]] & 0x38) == 0x10) return true;
    return false;
}

struct np_allocator_block np_allocator_block(uint64_t start) {
    struct np_allocator_block block = {NULL, false, false, false};
    take_tables();
    int index = mapping_of(start);
    if (index >= 0 && mappings[index].has_entries) {
        block.is_allocators = true;
        block.may_be_returned_to = start - mappings[index].lo >= CALL_BYTES_MAX && is_after_call(start);
        for (unsigned i = 0; i < entries_used; i++) {
            if (entries[i].address != start) continue;
            block.function = entries[i].function;
            block.is_standard = entries[i].is_standard;
        }
    }
    give_tables();
    return block;
}

bool np_allocators_follow(uint64_t function) { return np_allocator_block(function).function != NULL; }

/* -- calls -- */

/* The stack of an allocator's function and of what it calls does not reach further. */
#define DEEPEST_BYTES (1u << 20)

/* The outermost call of this thread that has not returned. */
static _Thread_local struct {
    const struct np_allocation_function *function; /* NULL: there is none */
    uint64_t sp;         /* where its return address lies */
    uint64_t returns_to;
    uint64_t fp;
    uint64_t block, bytes;
    uint64_t order;      /* stamp before it, of one that resizes */
    bool is_standard;    /* of the executable, by a name of malloc's family */
    const struct np_slot *slot;
    uint64_t head;       /* of its ring */
} call __attribute__((tls_model("initial-exec")));

static uint64_t argument(const struct np_allocation_function *function, const uint64_t *registers, unsigned number) {
    static const uint8_t passed_in[] = {REGISTER_RDI, REGISTER_RSI, REGISTER_RDX, REGISTER_RCX};
    static const uint8_t passed_in_go[] = {REGISTER_RAX, REGISTER_RBX, REGISTER_RCX};
    if (function->is_go) return number < sizeof passed_in_go ? registers[passed_in_go[number]] : 0;
    return number < sizeof passed_in ? registers[passed_in[number]] : 0;
}

static bool can_record(const struct np_slot *slot) { return !(slot->in_hook & NP_WRITING); }

static void put_free(struct np_slot *slot, uint64_t block, uint64_t order) {
    if (block == 0 || block >= NP_ADDRESS_END) return;
    if (!can_record(slot)) np_lost_reentrant(slot, 1);
    else if (np_begin(slot, NP_REC_FREE, block, 2, order) != NULL) np_commit(slot, 2);
}

/* -- Go's heap: a pool whose blocks end when others overlap them -- */

/* No program has so many pools. */
#define GO_POOL 0x7fffff00u
#define GO_NAME "Go's heap"
#define GO_BYTES_MAX (1ull << 40)
#define GO_FRAMES_MAX 48u

/* Goroutines have stacks of their own, of which nobody knows the ends, and Go's code keeps frame pointers. */
static uint32_t go_stack(struct np_slot *slot, struct np_regs caller) {
    uintptr_t frames[GO_FRAMES_MAX];
    uint32_t depth = np_arena->config.max_stack_depth;
    unsigned most = depth < GO_FRAMES_MAX ? depth : GO_FRAMES_MAX, count = 0;
    uint64_t frame[2] = {caller.fp, caller.pc}, least = caller.sp;
    while (count < most && frame[1] >= 4096 && frame[1] < NP_ADDRESS_END) {
        frames[count++] = frame[1];
        uint64_t at = frame[0];
        if (at < least || (at & 7) != 0 || !np_read_guest(frame, at, sizeof frame)) break;
        least = at + sizeof frame;
    }
    return count != 0 ? np_stack_of(slot, frames, count, count == most) : 0;
}

static void name_go_pool(struct np_slot *slot) {
    static uint32_t named_in; /* a forked child is another process */
    if (np_load(named_in) == slot->process_index + 1) return;
    unsigned count = 3 + np_words_for(sizeof GO_NAME - 1);
    uint64_t *words = np_begin(slot, NP_REC_POOL, GO_POOL, count, np_order());
    if (words == NULL) return;
    words[2] = (sizeof GO_NAME - 1) | (uint64_t)NP_POOL_CREATED << 32;
    np_put_bytes(words + 3, GO_NAME, sizeof GO_NAME - 1);
    np_commit(slot, count);
    np_store(named_in, slot->process_index + 1); /* others that come in between name it, too, before they have a block of it */
}

static void put_made_by_go(struct np_slot *slot, uint64_t block, struct np_regs caller) {
    if (block == 0 || block >= NP_ADDRESS_END || call.bytes == 0 || call.bytes > GO_BYTES_MAX || !can_record(slot)) return;
    name_go_pool(slot);
    uint32_t stack = go_stack(slot, caller);
    uint64_t *words = np_begin(slot, NP_REC_POOL_ALLOC, block, 4, np_order());
    if (words == NULL) return;
    words[2] = stack | (uint64_t)GO_POOL << 32;
    words[3] = call.bytes;
    np_commit(slot, 4);
}

/* -- returns -- */

static void put_made(struct np_slot *slot, uint64_t block, struct np_regs caller) {
    if (block == 0 || block >= NP_ADDRESS_END) return;
    if (!can_record(slot)) np_lost_reentrant(slot, 1);
    else np_put_alloc(slot, block, call.bytes, call.function->kind, np_stack_id(slot, caller));
}

/* Where a function has stored the address of its block. The program may be wrong about that place. */
static uint64_t stored_at(uint64_t address) {
    uint64_t block;
    return np_read_guest(&block, address, sizeof block) ? block : 0;
}

/* -- an executable's malloc that wraps the next one --
 *
 * What it finds by dlsym is the tracker's hook, which records the block: of such an executable nothing is recorded here. The first block decides. */

/* A wrapper's own head before the block, and what it asks for beyond the caller's bytes. */
#define WRAPPED_HEAD 256u
#define WRAPPED_MORE 1024u

static enum { WRAPS_UNKNOWN, WRAPS_NOT, WRAPS_NEXT } wraps;

/* Whether a hook has recorded the block, or a little more around it, since the call began. Unknown where a record is longer than it says itself. */
static int is_recorded(const struct np_slot *slot, uint64_t block) {
    uint64_t size = np_arena->ring_bytes, head = np_load(slot->head);
    const char *ring = (const char *)slot + np_arena->ring_offset;
    if (call.slot != slot || head - call.head > size) return WRAPS_UNKNOWN;
    for (uint64_t at = call.head; at < head;) {
        const uint64_t *words = (const uint64_t *)(const void *)(ring + (at & (size - 1)));
        uint64_t type = words[0] & 0xff, length = words[0] >> 8 & 0xff, value = words[0] >> 16;
        bool is_alloc = type == NP_REC_ALLOC || type == NP_REC_ALLOC_KIND || type == NP_REC_ALLOC_BIG;
        uint64_t bytes = !is_alloc ? 0 : type == NP_REC_ALLOC_BIG ? words[3] : words[2] >> 32;
        if (is_alloc && block - value <= WRAPPED_HEAD && bytes >= call.bytes && bytes - call.bytes <= WRAPPED_MORE) return WRAPS_NEXT;
        uint64_t step = type == NP_REC_PAD ? value : length * 8;
        if (step == 0) return WRAPS_UNKNOWN;
        at += step;
    }
    return WRAPS_NOT;
}

static bool is_wrapper(const struct np_slot *slot, uint64_t block) {
    if (!call.is_standard) return false;
    if (np_load(wraps) == WRAPS_UNKNOWN && block != 0 && call.function->effect == NP_EFFECT_MAKES) np_store(wraps, is_recorded(slot, block));
    return np_load(wraps) == WRAPS_NEXT;
}

static void returned(struct np_slot *slot, uint64_t result) {
    const struct np_allocation_function *function = call.function;
    struct np_regs caller = {call.returns_to, call.sp + 8, call.fp};
    uint64_t block = result;
    if (is_wrapper(slot, block)) {
        call.function = NULL;
        return;
    }
    if (function->effect == NP_EFFECT_STORES) block = (uint32_t)result == 0 ? stored_at(call.block) : 0;
    if (function->effect == NP_EFFECT_RESIZES && (block != 0 || call.bytes == 0)) put_free(slot, call.block, call.order);
    if (function->is_go) put_made_by_go(slot, block, caller);
    else if (function->effect != NP_EFFECT_FREES) put_made(slot, block, caller);
    call.function = NULL;
}

/* Part of the call under way: deeper on its stack, where the call's return address still is. What begins at the same depth is another call, or what the first
 * jumped to, which goes on in its place. The stack of a call that was left may be gone. */
static bool is_within_call(uint64_t sp) {
    uint64_t depth = call.sp - sp, word;
    if (depth == 0 || depth >= DEEPEST_BYTES) return false;
    if (call.sp >> NP_PAGE_SHIFT == sp >> NP_PAGE_SHIFT) return *(const uint64_t *)call.sp == call.returns_to;
    return np_read_guest(&word, call.sp, sizeof word) && word == call.returns_to;
}

static bool is_in_tracker(void) {
    const uint32_t *in_alloc = np_guest.in_alloc;
    return in_alloc != NULL && np_load(*in_alloc) != 0;
}

void np_on_allocator(unsigned vcpu, void *data) {
    const struct np_allocation_function *function = (const void *)((uintptr_t)data & ~NP_ALLOCATOR_STANDARD);
    bool is_standard = ((uintptr_t)data & NP_ALLOCATOR_STANDARD) != 0;
    struct np_slot *slot = np_guest.slot;
    const uint64_t *registers = np_guest.registers;
    if (slot == NULL || registers == NULL || is_in_tracker()) return;
    if (is_standard && np_load(wraps) == WRAPS_NEXT) return;
    uint64_t sp = registers[REGISTER_RSP];
    if (sp == 0 || sp >= NP_ADDRESS_END || (sp & 7) != 0) return;
    bool goes_on = false;
    if (call.function != NULL) {
        /* Go's heap makes no block while it makes another, and a goroutine may go on in another thread, or with its stack at another place. */
        if (!function->is_go && !call.function->is_go && is_within_call(sp)) return;
        goes_on = call.sp == sp && call.returns_to == *(const uint64_t *)sp;
        if (!goes_on && !call.function->is_go && call.function->effect != NP_EFFECT_FREES) np_lost_reentrant(slot, 1);
    }
    uint64_t block = argument(function, registers, function->block), bytes = argument(function, registers, function->bytes);
    bool was_freed = goes_on && call.function->effect == NP_EFFECT_FREES && function->effect == NP_EFFECT_FREES && call.block == block;
    if (function->count != NP_NO_ARGUMENT && __builtin_mul_overflow(bytes, argument(function, registers, function->count), &bytes)) bytes = 0;
    call.function = function;
    call.sp = sp;
    call.returns_to = *(const uint64_t *)sp;
    call.fp = registers[REGISTER_RBP];
    call.block = block;
    call.bytes = bytes;
    call.order = 0;
    call.is_standard = is_standard;
    call.slot = slot;
    if (!goes_on) call.head = np_load(slot->head);
    if (function->effect == NP_EFFECT_RESIZES) call.order = np_order_kept();
    if (function->effect == NP_EFFECT_FREES && !was_freed) put_free(slot, block, np_order());
}

void np_on_return(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data) {
    if (np_likely(call.function == NULL) || address != call.sp || (info & np_store_bit)) return;
    struct np_slot *slot = np_guest.slot;
    if (slot != NULL && np_guest.registers != NULL) returned(slot, np_guest.registers[REGISTER_RAX]);
    else call.function = NULL;
}

void np_on_returned(unsigned vcpu, void *data) {
    struct np_slot *slot = np_guest.slot;
    const uint64_t *registers = np_guest.registers;
    if (np_likely(call.function == NULL) || (uint64_t)data != call.returns_to || slot == NULL || registers == NULL) return;
    if (registers[REGISTER_RSP] == call.sp + 8) returned(slot, registers[REGISTER_RAX]);
}
