/* mappings.c: memory that the emulated C library maps from inside: arenas and large blocks of its allocator, the heap of the break, threads' stacks, files.
 *
 * No hook of the tracker sees these calls, as the library makes them without its own exported functions. The tracker finds such memory at the first block
 * in it (crates/runtime/c/heap.c), or when the thread has begun: too late for what the library does there before, inside the same call (calloc clears,
 * realloc copies, pthread_create fills the new thread's control block). The loader's and the locales' files, too, are read before anything is announced.
 * Here the calls themselves are seen, in the order in which they happen. Not followed: memory without access rights, until it gets them; what is put in
 * the place of a part of a mapping (the loader's segments: the whole file comes first); and what the tracker itself calls, whose hooks record that.
 *
 * Rules as for hooks (crates/runtime/c/map.c): a mapping is stamped after it was made, its end before the call. */
#define _GNU_SOURCE
#include "user.h"

#include <sys/mman.h>
#include <sys/syscall.h>

/* What the call under way was asked for. */
static _Thread_local struct {
    int64_t number;
    uint64_t address, bytes, more, flags, offset;
    int fd;
    uint64_t order; /* stamp before it; of calls that end a mapping */
} call __attribute__((tls_model("initial-exec")));

/* Address space that this thread has reserved and not used yet. glibc reserves twice what an arena needs, gives back what is not aligned, and then makes the
 * beginning writable; other allocators do the same. */
static _Thread_local struct { uint64_t lo, hi; } reserved __attribute__((tls_model("initial-exec")));

/* Made while this thread had no slot: the C library allocates when the tracker asks it for a new thread's stack, and often makes an arena for that. What is
 * more is found by its first block. */
#define PENDING_MAX 8u
static _Thread_local struct {
    struct np_mapping list[PENDING_MAX];
    uint32_t count;
    uintptr_t heap_end;
} pending __attribute__((tls_model("initial-exec")));

void np_on_own_system_call(unsigned vcpu, void *data) { np_guest.own_call = true; }

/* Gives back a part of what was reserved: nothing lives there. */
static bool trims(uint64_t lo, uint64_t hi) {
    if (lo < reserved.lo || hi > reserved.hi) return false;
    if (lo == reserved.lo) reserved.lo = hi;
    else if (hi == reserved.hi) reserved.hi = lo;
    else reserved.lo = reserved.hi = 0;
    return true;
}

/* A record may be made inside a hook too, as long as the tracker is not making one itself; only accesses are not the program's there. */
static bool can_record(const struct np_slot *slot) { return slot != NULL && !(slot->in_hook & NP_WRITING); }

static void ends(struct np_slot *slot, uint64_t address, uint64_t bytes, uint64_t order) {
    if (can_record(slot)) np_put_unmap(slot, address, bytes, order);
    for (uint32_t i = 0; i < pending.count; i++)
        if (pending.list[i].address >= address && pending.list[i].address + pending.list[i].bytes <= address + bytes)
            pending.list[i--] = pending.list[--pending.count];
}

static void begins(struct np_slot *slot, uint64_t address, uint64_t bytes, uint32_t flags) {
    struct np_mapping map = {.address = address, .bytes = bytes, .flags = NP_MAP_ANONYMOUS | NP_MAP_WRITE | flags};
    if (can_record(slot)) np_put_map(slot, &map, np_order());
    else if (slot == NULL && pending.count < PENDING_MAX) pending.list[pending.count++] = map;
}

void np_mapping_asked(int64_t number, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6) {
    call.number = -1;
    if (number != SYS_mmap && number != SYS_munmap && number != SYS_mremap && number != SYS_mprotect && number != SYS_brk) return;
    call.number = number;
    call.address = a1;
    call.bytes = np_whole_pages(a2);
    call.more = a3;
    call.flags = a4;
    call.fd = (int)a5;
    call.offset = a6;
    if (number == SYS_mremap || number == SYS_munmap) call.order = np_order_kept();
}

static void mapped_file(struct np_slot *slot, uint64_t address) {
    if (!can_record(slot) || call.more == PROT_NONE) return;
    char path[NP_MAP_PATH_BYTES];
    struct np_mapping map = {.address = address, .bytes = call.bytes, .offset = call.offset, .path = path};
    if ((call.flags & MAP_TYPE) != MAP_PRIVATE) map.flags |= NP_MAP_SHARED;
    if (call.more & PROT_EXEC) map.flags |= NP_MAP_EXEC;
    if (call.more & PROT_WRITE) map.flags |= NP_MAP_WRITE;
    uint64_t order = np_order();
    map.path_bytes = np_path_of_fd(call.fd, path);
    np_put_map(slot, &map, order);
}

static void mapped(struct np_slot *slot, uint64_t address) {
    if (call.flags & MAP_FIXED) return;
    if (!(call.flags & MAP_ANONYMOUS)) mapped_file(slot, address);
    if (!(call.flags & MAP_ANONYMOUS) || (call.flags & MAP_TYPE) != MAP_PRIVATE) return;
    if (call.flags & MAP_STACK) {
        begins(slot, address, call.bytes, NP_MAP_STACK);
    } else if (call.more & PROT_WRITE) {
        begins(slot, address, call.bytes, NP_MAP_ALLOCATOR);
    } else {
        reserved.lo = address;
        reserved.hi = address + call.bytes;
    }
}

/* The whole is the allocator's from now on, however little of it can be used yet. */
static void opened(struct np_slot *slot) {
    if (!(call.more & PROT_WRITE) || reserved.lo == reserved.hi || call.address != reserved.lo || call.bytes > reserved.hi - reserved.lo) return;
    np_heap_note_arena(reserved.lo);
    begins(slot, reserved.lo, reserved.hi - reserved.lo, NP_MAP_ALLOCATOR);
    reserved.lo = reserved.hi = 0;
}

/* What stays in its place keeps its object, and its pages their homes. */
static void moved(struct np_slot *slot, uint64_t address, uint64_t bytes) {
    if (address != call.address) {
        ends(slot, call.address, call.bytes, call.order);
        begins(slot, address, bytes, NP_MAP_ALLOCATOR);
    } else if (bytes < call.bytes) {
        ends(slot, address + bytes, call.bytes - bytes, call.order);
    } else if (bytes > call.bytes) {
        begins(slot, address + call.bytes, bytes - call.bytes, NP_MAP_ALLOCATOR);
    }
}

static void unmapped(struct np_slot *slot) {
    if (!trims(call.address, call.address + call.bytes)) ends(slot, call.address, call.bytes, call.order);
}

static void broke(struct np_slot *slot, uintptr_t end) {
    if (can_record(slot)) np_heap_reaches(slot, end);
    else pending.heap_end = end;
}

void np_mapping_made(int64_t number, int64_t result) {
    struct np_slot *slot = np_guest.slot;
    bool failed = result < 0 && result > -4096;
    if (number != call.number || failed) return;
    call.number = -1;
    switch (number) {
    case SYS_mmap: mapped(slot, (uint64_t)result); break;
    case SYS_mprotect: opened(slot); break;
    case SYS_munmap: unmapped(slot); break;
    case SYS_brk: broke(slot, (uintptr_t)result); break;
    case SYS_mremap: moved(slot, (uint64_t)result, np_whole_pages(call.more)); break;
    default: break;
    }
}

void np_mapping_slot(struct np_slot *slot) {
    for (uint32_t i = 0; i < pending.count; i++) np_put_map(slot, &pending.list[i], np_order());
    if (pending.heap_end != 0 && np_heap->break_known != 0) np_heap_reaches(slot, pending.heap_end);
    pending.count = 0;
    pending.heap_end = 0;
}
