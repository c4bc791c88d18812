/* map.c: mappings: mmap, munmap, mremap, brk, System V shared memory, advice that empties pages, and files in memory that get or lose pages; by name, and as
 * calls by number (syscall.c).
 *
 * What an allocator maps for itself is marked, so that only blocks are shown there. A mapping is stamped after it was made, its end before
 * the system call, so that two lives of one address never overlap; where a call replaces mappings in place, their end is stamped before it too.
 */
#define _GNU_SOURCE
#include "exec_target.h"
#include "memsim.h"
#include "syscalls.h"
#include "track.h"

#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#define MAX_ATTACHED 256u
#define DONTUNMAP 4 /* MREMAP_DONTUNMAP, from Linux 5.7 on */
#define POPULATE_WRITE 23  /* MADV_POPULATE_WRITE, from Linux 5.14 on */
#define DONTNEED_LOCKED 24 /* MADV_DONTNEED_LOCKED, from Linux 5.18 on */
#define GUARD_INSTALL 102  /* MADV_GUARD_INSTALL, from Linux 6.13 on */
#define HUGETLBFS 0x958458f6 /* HUGETLBFS_MAGIC of <linux/magic.h> */

/* -- what was there before us -- */

static uint32_t flags_of_line(const struct np_maps_line *line) {
    uint32_t flags = 0;
    if (line->inode == 0) flags |= NP_MAP_ANONYMOUS;
    if (line->perms[3] == 's') flags |= NP_MAP_SHARED;
    if (line->perms[2] == 'x') flags |= NP_MAP_EXEC;
    if (line->perms[1] == 'w') flags |= NP_MAP_WRITE;
    if (line->path_bytes == 6 && memcmp(line->path, "[heap]", 6) == 0) flags |= NP_MAP_BRK;
    if (line->path_bytes == 7 && memcmp(line->path, "[stack]", 7) == 0) flags |= NP_MAP_STACK;
    return flags;
}

static bool put_initial(const struct np_maps_line *line, void *context) {
    struct np_slot *slot = context;
    uintptr_t arena = (uintptr_t)np_arena;
    if (line->hi > NP_ADDRESS_END || (line->lo >= arena && line->lo < arena + np_arena->arena_bytes)) return true;
    struct np_mapping map = {.address = line->lo, .bytes = line->hi - line->lo, .offset = line->offset,
                          .flags = flags_of_line(line) | NP_MAP_INITIAL, .path = line->path, .path_bytes = line->path_bytes};
    np_put_map(slot, &map, np_order());
    return true;
}

void np_maps_init(struct np_slot *slot) {
    np_maps_each(put_initial, slot);
    np_heap_init();
}

void np_map_stack_grown(struct np_slot *slot, uintptr_t address, uint64_t bytes) {
    struct np_mapping map = {.address = address, .bytes = bytes, .flags = NP_MAP_ANONYMOUS | NP_MAP_WRITE | NP_MAP_STACK, .path = "[stack]", .path_bytes = 7};
    np_put_map(slot, &map, np_order());
}

struct line_search { uintptr_t address; struct np_mapping *map; char *path; };

static bool take_line(const struct np_maps_line *line, void *context) {
    struct line_search *search = context;
    if (search->address < line->lo || search->address >= line->hi) return true;
    size_t bytes = line->path_bytes < NP_MAP_PATH_BYTES ? line->path_bytes : NP_MAP_PATH_BYTES;
    memcpy(search->path, line->path, bytes);
    search->map->path = search->path;
    search->map->path_bytes = bytes;
    search->map->flags |= flags_of_line(line) & ~(uint32_t)(NP_MAP_BRK | NP_MAP_STACK);
    search->map->offset = line->offset + (search->address - line->lo) * (line->inode != 0);
    return false;
}

/* -- mmap -- */

static uint32_t allocator_flag(void) {
    return np_tls.in_alloc != 0 ? NP_MAP_ALLOCATOR : 0;
}

static uint32_t flags_of_call(int protection, int flags) {
    uint32_t result = allocator_flag();
    if (flags & MAP_ANONYMOUS) result |= NP_MAP_ANONYMOUS;
    if ((flags & MAP_TYPE) != MAP_PRIVATE) result |= NP_MAP_SHARED;
    if (protection & PROT_EXEC) result |= NP_MAP_EXEC;
    if (protection & PROT_WRITE) result |= NP_MAP_WRITE;
    if (flags & MAP_STACK) result |= NP_MAP_STACK;
    if (flags & MAP_HUGETLB) result |= NP_MAP_HUGE;
    return result;
}

/* The slot with the guard taken, or NULL. An allocator may be calling with its locks held: nothing may be begun from here that allocates, neither
 * attaching (what was mapped before is read from /proc/self/maps then) nor a thread. Events that the hooks themselves cause are not recorded. */
static inline __attribute__((always_inline)) struct np_slot *enter(void) {
    struct np_slot *slot = np_self_if_live();
    if (slot == NULL) {
        if (np_load(np_arena) != NULL && np_tls.phase == NP_PHASE_ENDED) np_count_lost(NP_LOST_AFTER_END, 1);
        if (np_load(np_arena) != NULL && np_tls.phase == NP_PHASE_NO_SLOT) np_count_lost(NP_LOST_NO_SLOT, 1);
        return NULL;
    }
    if (np_enter(slot)) return slot;
    if (!(slot->in_hook & 1)) np_lost_reentrant(slot, 1);
    return NULL;
}

struct end_search { uintptr_t address; uint64_t bytes; };

static bool take_end(const struct np_maps_line *line, void *context) {
    struct end_search *search = context;
    if (line->lo < search->address) return true;
    if (line->lo == search->address && line->hi - line->lo > search->bytes) search->bytes = line->hi - line->lo;
    return false;
}

/* The kernel makes a mapping of huge pages (hugetlb) as long as its pages need, and merges it with no other: as it is listed. `bytes`: that were asked for. */
static uint64_t bytes_of_huge(uintptr_t address, uint64_t bytes) {
    struct end_search search = {address, bytes};
    np_maps_each(take_end, &search);
    return search.bytes;
}

static __attribute__((noinline)) bool is_of_huge_pages(int fd) { /* its room on the stack, which may be small, is given back first */
    struct statfs status;
    return !np_is_confined && NP_SYS2(SYS_fstatfs, fd, &status) == 0 && (unsigned long)status.f_type == HUGETLBFS;
}

struct mmap_call { void *address; size_t bytes; int protection, flags, fd; off_t offset; };

static void record_mmap(const struct mmap_call *call, void *result, uint64_t before, struct np_regs caller) {
    struct np_slot *slot = enter();
    if (slot == NULL) return;
    uint64_t bytes = np_whole_pages(call->bytes);
    if (call->flags & MAP_ANONYMOUS ? (call->flags & MAP_HUGETLB) != 0 : is_of_huge_pages(call->fd)) bytes = bytes_of_huge((uintptr_t)result, bytes);
    /* A fixed mapping silently replaces what was there. */
    if ((call->flags & MAP_FIXED) && (call->flags & MAP_FIXED_NOREPLACE) != MAP_FIXED_NOREPLACE)
        np_put_unmap(slot, (uintptr_t)result, bytes, before);
    /* Elsewhere nothing was mapped any more, whoever had unmapped it. */
    np_pages_forget((uintptr_t)result, bytes);
    bool is_shared = (call->flags & MAP_TYPE) != MAP_PRIVATE, is_anonymous = (call->flags & MAP_ANONYMOUS) != 0;
    if (!is_anonymous || is_shared) np_mappings_changed();
    else if (call->flags & MAP_FIXED) np_mappings_ended();
    if (is_shared) np_pages_shared();
    struct np_file file = {0};
    bool is_known = is_shared && !is_anonymous && !np_track_only && np_file_of_fd(call->fd, &file);
    if ((call->flags & (MAP_POPULATE | MAP_LOCKED)) && (call->protection & PROT_WRITE)) {
        if (is_anonymous) np_pages_made(slot, (uintptr_t)result, bytes);
        else np_pages_touched(slot, (uintptr_t)result, bytes);
    }
    char *path = call->flags & MAP_ANONYMOUS ? NULL : np_stack_path();
    struct np_mapping map = {.address = (uintptr_t)result, .bytes = bytes, .offset = (uint64_t)call->offset,
                          .flags = flags_of_call(call->protection, call->flags), .path = path};
    uint64_t order = np_order();
    map.stack = np_stack_id(slot, caller); /* before the path is there: it may need that room for a module's */
    if (call->flags & MAP_ANONYMOUS) map.offset = 0;
    else if (path != NULL) map.path_bytes = np_path_of_fd(call->fd, path);
    if (is_known) np_put_file(slot, &file, map.address, order);
    np_put_map(slot, &map, order);
    /* The page cache has a file's pages where an earlier program, or a write, left them: who finds them there is not their first toucher. Where the program may
     * write, its copies have homes (pages.c). The test of np_sim.ready is here, too: what follows takes room on the stack, which may be small. */
    bool is_read_only = !is_shared && !is_anonymous && (call->protection & (PROT_READ | PROT_WRITE)) == PROT_READ;
    if (is_shared && !is_anonymous && (file.is_full || np_arena->emulated)) np_pages_of_others(slot, map.address, bytes, file.is_full);
    else if (is_read_only && np_load(np_sim.ready)) np_pages_of_others(slot, map.address, bytes, false);
    np_leave(slot);
}

static long ask_for(const struct mmap_call *call) {
    return NP_SYS6(SYS_mmap, call->address, call->bytes, call->protection, call->flags, call->fd, call->offset);
}

static void *do_mmap(const struct mmap_call *call, struct np_regs caller) {
    uint64_t before = np_order_kept();
    long result = ask_for(call);
    if (np_unlikely(result == -ENOMEM) && np_planner_gives_way()) result = ask_for(call);
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return MAP_FAILED;
    }
    record_mmap(call, (void *)result, before, caller);
    np_planner_mapped((void *)result, call->bytes, call->protection, call->flags, call->fd, caller);
    return (void *)result;
}

NP_EXPORT void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    struct mmap_call call = {address, bytes, protection, flags, fd, offset};
    return do_mmap(&call, NP_CALLER_REGS());
}

NP_EXPORT void *mmap64(void *address, size_t bytes, int protection, int flags, int fd, off64_t offset) {
    struct mmap_call call = {address, bytes, protection, flags, fd, offset};
    return do_mmap(&call, NP_CALLER_REGS());
}

static void record_end(uintptr_t address, uint64_t bytes, uint64_t order) {
    np_mappings_ended();
    struct np_slot *slot = enter();
    if (slot == NULL) return;
    np_put_unmap(slot, address, bytes, order);
    np_leave(slot);
}

/* Before the call: afterwards another thread may have the addresses, and homes there. Where the call then fails, the next access to each page asks the kernel
 * who touched it first, as for pages that were touched unseen. */
static void forget_homes(uintptr_t address, uint64_t bytes) {
    struct np_slot *slot = np_load(np_sim.ready) ? np_self_if_live() : NULL;
    if (slot == NULL || !np_enter(slot)) return;
    np_pages_forget(address, bytes);
    np_leave(slot);
}

/* Stamped before the call, and recorded once it has succeeded: memory that is sealed, a part of a huge page, or one mapping too many stay as they are. Homes of
 * a call that cannot succeed (unaligned or empty) are not forgotten. */
NP_EXPORT int munmap(void *address, size_t bytes) {
    if (((uintptr_t)address & 4095) == 0 && bytes != 0 && bytes <= NP_ADDRESS_END) forget_homes((uintptr_t)address, np_whole_pages(bytes));
    uint64_t before = np_order_kept();
    long result = NP_SYS2(SYS_munmap, address, bytes);
    if (result == 0) {
        record_end((uintptr_t)address, np_whole_pages(bytes), before);
        return 0;
    }
    errno = (int)-result;
    return -1;
}

/* `stays`: the old range is mapped on, and empty. */
static void record_mremap(uintptr_t old, uint64_t old_bytes, uintptr_t new, uint64_t new_bytes, bool stays, uint64_t before, struct np_regs caller) {
    struct np_slot *slot = enter();
    if (slot == NULL) return;
    uint64_t after = np_order();
    /* Before anything else: memory of our own may come to lie where the pages were. */
    if (new != old) {
        np_pages_forget(new, new_bytes);
        np_pages_remap(old, new, old_bytes < new_bytes ? old_bytes : new_bytes, stays);
        np_pages_forget(old, old_bytes);
    } else if (new_bytes < old_bytes) np_pages_forget(old + new_bytes, old_bytes - new_bytes);
    char *path = np_stack_path();
    struct np_mapping map = {.address = new, .bytes = new_bytes, .flags = allocator_flag(), .path = path};
    struct line_search search = {new, &map, path};
    map.stack = np_stack_id(slot, caller);
    if (path != NULL) np_maps_each(take_line, &search);
    /* Another kind of memory may lie in place of this one next, and this one where another was. */
    if (!(map.flags & NP_MAP_ANONYMOUS) || (map.flags & NP_MAP_SHARED)) np_mappings_changed();
    else np_mappings_ended();
    if (!stays) np_put_unmap(slot, old, old_bytes, before);
    np_put_map(slot, &map, after);
    np_leave(slot);
}

static void *do_mremap(void *old, size_t old_bytes, size_t new_bytes, int flags, void *wanted, struct np_regs caller) {
    uint64_t before = np_order_kept();
    long result = np_sys(SYS_mremap, (long)old, (long)old_bytes, (long)new_bytes, flags, (long)wanted, 0);
    if (np_unlikely(result == -ENOMEM) && np_planner_gives_way())
        result = np_sys(SYS_mremap, (long)old, (long)old_bytes, (long)new_bytes, flags, (long)wanted, 0);
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return MAP_FAILED;
    }
    bool stays = old_bytes == 0 || (flags & DONTUNMAP) != 0; /* of no bytes: shared memory is mapped once more */
    record_mremap((uintptr_t)old, np_whole_pages(old_bytes), (uintptr_t)result, np_whole_pages(new_bytes), stays, before, caller);
    return (void *)result;
}

NP_EXPORT void *mremap(void *old, size_t old_bytes, size_t new_bytes, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    void *wanted = flags & MREMAP_FIXED ? va_arg(rest, void *) : NULL;
    va_end(rest);
    return do_mremap(old, old_bytes, new_bytes, flags, wanted, NP_CALLER_REGS());
}

static bool may_empty(int advice) {
    return advice == MADV_DONTNEED || advice == DONTNEED_LOCKED || advice == GUARD_INSTALL || advice == MADV_FREE || advice == MADV_REMOVE;
}

void np_to_fill(uintptr_t address, size_t bytes) {
    struct np_slot *slot = np_pages_are_contested() ? np_self_if_live() : NULL;
    if (slot == NULL || !np_enter(slot)) return;
    np_pages_to_fill(slot, address, bytes);
    np_leave(slot);
}

/* Advice is not obeyed everywhere: shared pages stay, those given to MADV_FREE stay until memory is short. */
static void record_advice(uintptr_t address, uint64_t bytes, int advice) {
    struct np_slot *slot = may_empty(advice) || advice == POPULATE_WRITE ? enter() : NULL;
    if (slot == NULL) return;
    if (advice == POPULATE_WRITE) np_pages_touched(slot, address, bytes);
    else np_pages_discarded(address, bytes);
    np_leave(slot);
}

NP_EXPORT int madvise(void *address, size_t bytes, int advice) {
    if (np_load(np_arena) != NULL && advice == POPULATE_WRITE) np_to_fill((uintptr_t)address, bytes);
    int result = (int)NP_SYS3(SYS_madvise, address, bytes, advice);
    if (result != 0) {
        errno = -result;
        return -1;
    }
    if (np_load(np_arena) != NULL) record_advice((uintptr_t)address, np_whole_pages(bytes), advice);
    return 0;
}

/* Of this process or of another: where pages are still there, the kernel says so, and their homes stay. */
NP_EXPORT ssize_t process_madvise(int process, const struct iovec *parts, size_t count, int advice, unsigned flags) {
    long result = np_sys(SYS_process_madvise, process, (long)parts, (long)count, advice, flags, 0);
    if (result < 0) {
        errno = (int)-result;
        return -1;
    }
    uint64_t left = np_load(np_arena) != NULL && may_empty(advice) ? (uint64_t)result : 0;
    for (size_t i = 0; i < count && left > 0; i++) {
        uint64_t bytes = parts[i].iov_len < left ? parts[i].iov_len : left;
        record_advice((uintptr_t)parts[i].iov_base, np_whole_pages(bytes), advice);
        left -= bytes;
    }
    return result;
}

static int do_remap_file_pages(void *start, size_t bytes, int protection, size_t page, int flags, struct np_regs caller) {
    uint64_t before = np_order_kept();
    long result = np_sys(SYS_remap_file_pages, (long)start, (long)bytes, protection, (long)page, flags, 0);
    if (result != 0) {
        errno = (int)-result;
        return -1;
    }
    if (np_load(np_arena) == NULL) return 0;
    uintptr_t at = (uintptr_t)start & ~(uintptr_t)4095;
    forget_homes(at, bytes & ~4095ul); /* other pages of the file lie there now */
    record_mremap(at, bytes & ~4095ul, at, bytes & ~4095ul, false, before, caller);
    return 0;
}

NP_EXPORT int remap_file_pages(void *start, size_t bytes, int protection, size_t page, int flags) {
    return do_remap_file_pages(start, bytes, protection, page, flags, NP_CALLER_REGS());
}

/* -- the break -- */

static void record_break(uintptr_t old, uintptr_t new, uint64_t before, struct np_regs caller) {
    struct np_slot *slot = old != new ? enter() : NULL;
    if (slot == NULL) return;
    bool is_known = np_heap_moved(new);
    if (new > old) {
        struct np_mapping map = {.address = old, .bytes = new - old, .stack = np_stack_id(slot, caller),
                              .flags = NP_MAP_ANONYMOUS | NP_MAP_WRITE | NP_MAP_BRK | allocator_flag()};
        if (!is_known) np_put_map(slot, &map, np_order());
        if (np_whole_pages(new) > np_whole_pages(old)) np_pages_forget(np_whole_pages(old), np_whole_pages(new) - np_whole_pages(old));
    } else {
        np_put_unmap(slot, new, old - new, before);
        np_pages_forget((new + 4095) & ~(uintptr_t)4095, np_whole_pages(old) - np_whole_pages(new));
    }
    np_leave(slot);
}

NP_EXPORT void *sbrk(intptr_t bytes) {
    struct np_regs caller = NP_CALLER_REGS();
    uint64_t before = np_order_kept();
    void *old = NP_REAL(sbrk)(bytes);
    if (old != (void *)-1 && np_load(np_arena) != NULL) record_break((uintptr_t)old, (uintptr_t)old + (uintptr_t)bytes, before, caller);
    return old;
}

NP_EXPORT int brk(void *end) {
    struct np_regs caller = NP_CALLER_REGS();
    uint64_t before = np_order_kept();
    uintptr_t old = (uintptr_t)NP_SYS1(SYS_brk, 0);
    int result = NP_REAL(brk)(end);
    if (result == 0 && np_load(np_arena) != NULL) record_break(old, (uintptr_t)end, before, caller);
    return result;
}

/* As the system call: where the break is now. */
static long break_by_number(uintptr_t end, struct np_regs caller) {
    uint64_t before = np_order_kept();
    long old = NP_SYS1(SYS_brk, 0), now = NP_SYS1(SYS_brk, end);
    if (np_load(np_arena) != NULL) record_break((uintptr_t)old, (uintptr_t)now, before, caller);
    return now;
}

/* -- System V shared memory -- */

static struct { uintptr_t address; uint64_t bytes; } attached[MAX_ATTACHED];

static void remember_attached(uintptr_t address, uint64_t bytes) {
    for (unsigned i = 0; i < MAX_ATTACHED; i++) {
        uintptr_t expected = 0;
        if (!__atomic_compare_exchange_n(&attached[i].address, &expected, address, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) continue;
        attached[i].bytes = bytes;
        return;
    }
}

static uint64_t forget_attached(uintptr_t address) {
    for (unsigned i = 0; i < MAX_ATTACHED; i++) {
        if (__atomic_load_n(&attached[i].address, __ATOMIC_ACQUIRE) != address) continue;
        uint64_t bytes = attached[i].bytes;
        __atomic_store_n(&attached[i].address, 0, __ATOMIC_RELEASE);
        return bytes;
    }
    return 0;
}

/* A name that is the same in each process that attaches the segment. */
static uint32_t segment_name(char name[24], int id) {
    static const char start[] = "/SYSV id ";
    char digits[12];
    uint32_t bytes = sizeof start - 1, count = 0;
    memcpy(name, start, bytes);
    for (uint32_t rest = (uint32_t)id; rest != 0 || count == 0; rest /= 10) digits[count++] = (char)('0' + rest % 10);
    while (count > 0) name[bytes++] = digits[--count];
    return bytes;
}

static void *do_shmat(int id, const void *address, int flags, struct np_regs caller) {
    void *result = NP_REAL(shmat)(id, address, flags);
    struct np_slot *slot = result != (void *)-1 ? enter() : NULL;
    if (slot == NULL) return result;
    int saved = errno;
    struct shmid_ds status;
    bool is_told = shmctl(id, IPC_STAT, &status) == 0;
    uint64_t bytes = is_told ? bytes_of_huge((uintptr_t)result, np_whole_pages(status.shm_segsz)) : 0;
    remember_attached((uintptr_t)result, bytes);
    char name[24];
    struct np_mapping map = {.address = (uintptr_t)result, .bytes = bytes, .stack = np_stack_id(slot, caller),
                          .path = name, .path_bytes = segment_name(name, id),
                          .flags = NP_MAP_SHARED | NP_MAP_SHM | (flags & SHM_RDONLY ? 0 : NP_MAP_WRITE)};
    np_mappings_changed();
    np_pages_shared();
    np_pages_forget((uintptr_t)result, bytes);
    np_put_map(slot, &map, np_order());
    if (is_told && np_arena->emulated) np_pages_of_others(slot, map.address, bytes, false);
    np_leave(slot);
    errno = saved;
    return result;
}

NP_EXPORT void *shmat(int id, const void *address, int flags) { return do_shmat(id, address, flags, NP_CALLER_REGS()); }

NP_EXPORT int shmdt(const void *address) {
    uint64_t bytes = np_load(np_arena) != NULL ? forget_attached((uintptr_t)address) : 0;
    if (bytes != 0) forget_homes((uintptr_t)address, bytes);
    uint64_t before = np_order_kept();
    int result = NP_REAL(shmdt)(address);
    /* Where it fails, nothing of the segment was attached there any more. */
    if (result == 0 && bytes != 0) record_end((uintptr_t)address, bytes, before);
    return result;
}

/* -- memory that a file is given before anybody maps it -- */

#define MOST_HOLES 256u

/* The part of [at, end) in front of the next page that was written (by write, or by whoever mapped the file). Memory that was only given is a hole still. */
static uint64_t end_of_hole(long fd, uint64_t at, uint64_t end) {
    long data = NP_SYS3(SYS_lseek, fd, at, SEEK_DATA);
    return data == -ENXIO || data >= (long)end ? end : data > (long)at ? (uint64_t)data : at;
}

/* To the pages that had none. Asked by a description of its own: the file's position is the program's. Where there is none to be had, or too many holes,
 * nothing is said of the rest. */
static void put_given(struct np_slot *slot, struct np_file *file, int fd, uint64_t first, uint64_t end) {
    char path[32];
    long own = NP_SYS4(SYS_openat, AT_FDCWD, np_exec_path_of_fd(fd, path), O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    for (unsigned holes = 0; own >= 0 && first < end && holes < MOST_HOLES; holes++) {
        uint64_t hole_end = end_of_hole(own, first, end);
        file->offset = first;
        file->bytes = hole_end - first;
        if (file->bytes != 0) np_put_file(slot, file, 0, np_order());
        long next = hole_end < end ? NP_SYS3(SYS_lseek, own, hole_end, SEEK_HOLE) : -1;
        if (next <= (long)hole_end) break;
        first = (uint64_t)next;
    }
    if (own >= 0) NP_SYS1(SYS_close, own);
}

/* shmem_fallocate (mm/shmem.c): its pages come from where the calling thread's policy says. They are no memory for mincore until they are written first. */
static void record_allocated(int fd, off_t offset, off_t bytes) {
    struct np_slot *slot = np_load(np_arena) != NULL && !np_track_only && bytes > 0 && offset >= 0 ? enter() : NULL;
    if (slot == NULL) return;
    struct np_file file;
    if (np_file_of_fd(fd, &file) && file.is_memory) {
        file.offset = (uint64_t)offset;
        file.bytes = (uint64_t)bytes;
        file.node = np_pages_node(slot);
        /* What has huge pages cannot be written but by a mapping, and says that all of it is data. */
        if (is_of_huge_pages(fd)) np_put_file(slot, &file, 0, np_order());
        else put_given(slot, &file, fd, file.offset, file.offset + file.bytes);
    }
    np_leave(slot);
}

/* -- memory that is taken from a file which this process has mapped -- */

struct hole { uint64_t inode, first, end; };

/* The kernel is asked what of the mapping is gone. So it does no harm that another device may have a file of the same number. */
static bool discard_hole(const struct np_maps_line *line, void *context) {
    const struct hole *hole = context;
    uint64_t first = line->offset, end = line->offset + (line->hi - line->lo);
    if (line->inode != hole->inode || line->perms[3] != 's') return true;
    if (first < hole->first) first = hole->first;
    if (end > hole->end) end = hole->end;
    if (first < end) np_pages_discarded(line->lo + (first - line->offset), end - first);
    return true;
}

/* Whether this process may have a file mapped of which others see what is written. */
static bool shows_files(void) { return np_load(np_arena) != NULL && np_load(np_sim.ready) && np_load(np_sim.shares); }

/* Whoever touches such a page next gives it a new home. Other processes that have the file mapped do not learn of it. */
static void record_taken(int fd, uint64_t first, uint64_t end) {
    struct np_slot *slot = shows_files() ? enter() : NULL;
    if (slot == NULL) return;
    struct np_file file;
    if (np_file_of_fd(fd, &file) && file.is_memory) {
        struct hole hole = {file.inode, first, end};
        np_maps_each(discard_hole, &hole);
    }
    np_leave(slot);
}

static void record_fallocate(int fd, int mode, off_t offset, off_t bytes) {
    if ((mode & ~FALLOC_FL_KEEP_SIZE) == 0) record_allocated(fd, offset, bytes);
    else if (mode & FALLOC_FL_PUNCH_HOLE) record_taken(fd, (uint64_t)offset, (uint64_t)offset + (uint64_t)bytes);
}

NP_EXPORT int ftruncate(int fd, off_t bytes) {
    int result = NP_REAL(ftruncate)(fd, bytes);
    if (result == 0) record_taken(fd, (uint64_t)bytes, UINT64_MAX);
    return result;
}

NP_EXPORT int ftruncate64(int fd, off64_t bytes) {
    int result = NP_REAL(ftruncate64)(fd, bytes);
    if (result == 0) record_taken(fd, (uint64_t)bytes, UINT64_MAX);
    return result;
}

void np_file_emptied(int fd) { record_taken(fd, 0, UINT64_MAX); }

static void record_cut(const char *path, uint64_t bytes) {
    long fd = shows_files() && !np_is_confined ? NP_SYS4(SYS_openat, AT_FDCWD, path, O_PATH | O_CLOEXEC, 0) : -1;
    if (fd < 0) return;
    record_taken((int)fd, bytes, UINT64_MAX);
    NP_SYS1(SYS_close, fd);
}

NP_EXPORT int truncate(const char *path, off_t bytes) {
    int result = NP_REAL(truncate)(path, bytes);
    if (result == 0) record_cut(path, (uint64_t)bytes);
    return result;
}

NP_EXPORT int truncate64(const char *path, off64_t bytes) {
    int result = NP_REAL(truncate64)(path, bytes);
    if (result == 0) record_cut(path, (uint64_t)bytes);
    return result;
}

/* open() with O_TRUNC, fopen() and the like: numa_files.c. */
NP_EXPORT int creat(const char *path, mode_t mode) {
    int fd = NP_REAL(creat)(path, mode);
    if (fd >= 0) np_file_emptied(fd);
    return fd;
}

NP_EXPORT int creat64(const char *path, mode_t mode) {
    int fd = NP_REAL(creat64)(path, mode);
    if (fd >= 0) np_file_emptied(fd);
    return fd;
}

NP_EXPORT int fallocate(int fd, int mode, off_t offset, off_t bytes) {
    int result = NP_REAL(fallocate)(fd, mode, offset, bytes);
    if (result == 0) record_fallocate(fd, mode, offset, bytes);
    return result;
}

NP_EXPORT int fallocate64(int fd, int mode, off64_t offset, off64_t bytes) {
    int result = NP_REAL(fallocate64)(fd, mode, offset, bytes);
    if (result == 0) record_fallocate(fd, mode, offset, bytes);
    return result;
}

NP_EXPORT int posix_fallocate(int fd, off_t offset, off_t bytes) {
    int result = NP_REAL(posix_fallocate)(fd, offset, bytes);
    if (result == 0) record_allocated(fd, offset, bytes);
    return result;
}

NP_EXPORT int posix_fallocate64(int fd, off64_t offset, off64_t bytes) {
    int result = NP_REAL(posix_fallocate64)(fd, offset, bytes);
    if (result == 0) record_allocated(fd, offset, bytes);
    return result;
}

/* -- calls by number -- */

NP_OWN(munmap);
NP_OWN(madvise);
NP_OWN(shmdt);
NP_OWN(ftruncate);
NP_OWN(fallocate);
NP_OWN(truncate);
NP_OWN(process_madvise);

/* The file is the host's, as for all that is opened by number: numa_files.c shows the simulated machine by name alone. */
static long opened_by_number(long fd, long flags) {
    if (fd < 0) {
        errno = (int)-fd;
        return -1;
    }
    if (flags & O_TRUNC) np_file_emptied((int)fd);
    return fd;
}

NP_HIDDEN long np_syscall_memory(long number, long a, long b, long c, long d, long e, long f) {
    struct np_regs caller = NP_CALLER_REGS();
    switch ((enum np_memory_call)number) {
    case SYS_mmap: {
        struct mmap_call call = {(void *)a, (size_t)b, (int)c, (int)d, (int)e, (off_t)f};
        return (long)do_mmap(&call, caller);
    }
    case SYS_mremap: return (long)do_mremap((void *)a, (size_t)b, (size_t)c, (int)d, (void *)e, caller);
    case SYS_munmap: return np_own_munmap((void *)a, (size_t)b);
    case SYS_madvise: return np_own_madvise((void *)a, (size_t)b, (int)c);
    case SYS_brk: return break_by_number((uintptr_t)a, caller);
    case SYS_shmat: return (long)do_shmat((int)a, (const void *)b, (int)c, caller);
    case SYS_shmdt: return np_own_shmdt((const void *)a);
    case SYS_ftruncate: return np_own_ftruncate((int)a, (off_t)b);
    case SYS_fallocate: return np_own_fallocate((int)a, (int)b, (off_t)c, (off_t)d);
    case SYS_truncate: return np_own_truncate((const char *)a, (off_t)b);
    case SYS_process_madvise: return np_own_process_madvise((int)a, (const struct iovec *)b, (size_t)c, (int)d, (unsigned)e);
    case SYS_remap_file_pages: return do_remap_file_pages((void *)a, (size_t)b, (int)c, (size_t)d, (int)e, caller);
#ifdef SYS_open
    case SYS_open: return opened_by_number(NP_SYS3(SYS_open, a, b, c), b);
    case SYS_creat: return opened_by_number(NP_SYS2(SYS_creat, a, b), O_TRUNC);
#endif
    case SYS_openat: return opened_by_number(NP_SYS4(SYS_openat, a, b, c, d), c);
    }
    return np_syscall_real(number, a, b, c, d, e, f);
}
