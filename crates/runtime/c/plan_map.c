/* plan_map.c: what is not a block: anonymous mappings that rules take by their caller, mapped files, static objects and sections. */
#define _GNU_SOURCE
#include "plan.h"

#include <fcntl.h>
#include <link.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>

#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#define MAP_HUGE_MASK 0x3f
#endif
#define USUAL_HUGE_BYTES (2ul << 20)

static uint64_t whole_pages(uint64_t bytes, uint64_t page) { return (bytes + page - 1) & -page; }

/* Of mappings that do not say how large their huge pages are. */
static NP_COLD __attribute__((noinline)) uint64_t default_huge_bytes(void) {
    char text[4096];
    uint64_t bytes = 0;
    long fd = NP_SYS4(SYS_openat, AT_FDCWD, "/proc/meminfo", O_RDONLY | O_CLOEXEC, 0);
    long length = fd >= 0 ? NP_SYS3(SYS_read, fd, text, sizeof text - 1) : 0;
    if (fd >= 0) NP_SYS1(SYS_close, fd);
    text[length > 0 ? length : 0] = 0;
    const char *at = strstr(text, "Hugepagesize:");
    for (at = at != NULL ? at + sizeof "Hugepagesize:" - 1 : ""; *at == ' ' || (*at >= '0' && *at <= '9'); at++)
        if (*at != ' ') bytes = bytes * 10 + (uint64_t)(*at - '0');
    return bytes != 0 && (bytes & (bytes - 1)) == 0 ? bytes << 10 : USUAL_HUGE_BYTES;
}

/* The pages of what a call has mapped, of which the kernel places no parts. A mapping of huge pages (hugetlb) is as long as its pages need. */
static uint64_t page_of(int flags, int fd) {
    struct statfs system;
    unsigned log2 = (unsigned)flags >> MAP_HUGE_SHIFT & MAP_HUGE_MASK;
    if (!(flags & MAP_ANONYMOUS))
        return NP_SYS2(SYS_fstatfs, fd, &system) == 0 && system.f_type == HUGETLBFS_MAGIC ? (uint64_t)system.f_bsize : np_page_bytes();
    if (!(flags & MAP_HUGETLB)) return np_page_bytes();
    return log2 != 0 ? 1ul << log2 : default_huge_bytes();
}

/* `can_move` false: pages of the page cache, which the kernel places by the policy of the thread that reads them in. It would take ours, to no effect. What is
 * handed over is blocks (np_arena_hand_over): nobody would find these pages again. */
static void placed(struct np_plan_rule *rule, uintptr_t address, uint64_t bytes, uint64_t page, bool move, bool can_move) {
    if (rule->policy == NP_PLAN_REPLICATE) return;
    struct np_place place = {.node = rule->policy == NP_PLAN_LOCAL ? np_place_node() : NP_ANY_NODE, .move = move, .joins = true, .page = page};
    if (can_move && rule->policy != NP_PLAN_HAND_OVER && np_place_range(rule, place, address, bytes, NULL)) {
        np_plan_count(&rule->placed, 1);
        np_plan_count(&rule->placed_bytes, bytes);
    } else {
        np_plan_count(&rule->passed, 1);
    }
}

/* -- mappings -- */

/* Memory in the guise of a file: it goes by the mapping's policy. */
static bool is_memory(int fd) {
    struct statfs system;
    if (NP_SYS2(SYS_fstatfs, fd, &system) != 0) return false;
    return system.f_type == TMPFS_MAGIC || system.f_type == HUGETLBFS_MAGIC;
}

/* `copies`: pages that are written become the process's own. */
static void place_file(int fd, uintptr_t address, uint64_t bytes, uint64_t page, bool copies) {
    char link[32] = "/proc/self/fd/", path[1024];
    unsigned at = 14;
    unsigned digits = 1;
    for (unsigned rest = (unsigned)fd; rest >= 10; rest /= 10) digits++;
    for (unsigned i = digits, rest = (unsigned)fd; i > 0; i--, rest /= 10) link[at + i - 1] = (char)('0' + rest % 10);
    link[at + digits] = 0;
    long length = NP_SYS4(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    if (length <= 0) return;
    path[length] = 0;
    struct np_plan_rule *rules = np_plan_rules();
    for (uint32_t i = 0; i < np_plan->rule_count; i++) {
        bool fits = rules[i].kind == NP_PLAN_FILE && bytes >= rules[i].min_size && bytes <= rules[i].max_size;
        if (!fits || !np_plan_glob(rules[i].text, path)) continue;
        if (rules[i].process[0] != 0 && !np_plan_glob(rules[i].process, np_plan_command)) continue;
        placed(&rules[i], address, bytes, page, true, copies || is_memory(fd));
        return;
    }
}

/* Read by every call of mmap, so relaxed; `mapped` looks again, with what was set up before. */
static bool has_files;
static uint64_t least = UINT64_MAX, most;

static inline bool is_wanted(size_t bytes, int flags) {
    return flags & MAP_ANONYMOUS ? bytes >= np_load(least) && bytes <= np_load(most) : np_load(has_files);
}

/* To the program mmap is a system call, out of which a signal handler may jump (siglongjmp); the thread must neither stay busy for that, so that nothing of
 * its would be placed any more, nor keep locks. */
#define FARTHEST (1ul << 20) /* more lies between two stacks */

/* As long as a function runs, its return address is in its place. That may not be there any more, so the kernel reads it. */
static bool has_returned(uintptr_t frame) {
    uintptr_t back = 0;
    struct iovec to = {&back, sizeof back}, from = {(uintptr_t *)frame + 1, sizeof back};
    return NP_SYS6(SYS_process_vm_readv, NP_SYS0(SYS_getpid), &to, 1, &from, 1, 0) == (long)sizeof back && back != np_plan_tls.map_return;
}

/* What a handler calls is deeper in the stack than what it interrupted, unless it has a stack of its own. */
static bool is_above(uintptr_t frame, uintptr_t here) {
    stack_t stack;
    return here >= frame && here - frame < FARTHEST && NP_SYS2(SYS_sigaltstack, NULL, &stack) == 0 && !(stack.ss_flags & SS_ONSTACK);
}

NP_COLD bool np_plan_was_left(const void *own) {
    uintptr_t frame = np_plan_tls.map_frame;
    if (frame == 0 || np_is_confined || (!is_above(frame, (uintptr_t)own) && !has_returned(frame))) return false;
    np_place_left();
    np_match_left();
    np_plan_threads_left();
    np_plan_tls.map_frame = 0;
    np_plan_tls.busy = 0;
    return true;
}

static NP_COLD void mapped(void *address, size_t bytes, int protection, int flags, int fd, struct np_regs caller) {
    const uintptr_t *own = __builtin_frame_address(0);
    if (address == MAP_FAILED || np_is_confined || (np_plan_tls.busy && !np_plan_was_left(own))) return;
    int saved = errno;
    np_plan_tls.busy = 1;
    np_plan_tls.map_return = own[1];
    np_plan_tls.map_frame = (uintptr_t)own;
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* a handler sees both before anything that they guard */
    /* With the releases in np_plan_maps_init: is_wanted saw one of the two, and so does this. */
    (void)__atomic_load_n(&least, __ATOMIC_ACQUIRE);
    (void)__atomic_load_n(&has_files, __ATOMIC_ACQUIRE);
    uint64_t page = page_of(flags, fd), whole = whole_pages(bytes, page);
    if (flags & MAP_ANONYMOUS) {
        struct np_plan_thread *thread = np_plan_thread_here();
        int rule = thread != NULL ? np_match(thread, bytes, caller) : -1;
        if (rule >= 0) placed(&np_plan_rules()[rule], (uintptr_t)address, whole, page, false, true);
    } else {
        place_file(fd, (uintptr_t)address, whole, page, (flags & MAP_TYPE) == MAP_PRIVATE && (protection & PROT_WRITE));
    }
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    np_plan_tls.map_frame = 0;
    np_plan_tls.busy = 0;
    errno = saved;
}

void np_plan_mapped(void *address, size_t bytes, int protection, int flags, int fd, struct np_regs caller) {
    if (is_wanted(bytes, flags)) mapped(address, bytes, protection, flags, fd, caller);
}

NP_COLD bool np_plan_gives_way(void) { return np_load(np_region_is_limited) && np_region_shrink(); }

static inline bool gives_way(const void *result) { return np_unlikely(result == MAP_FAILED) && errno == ENOMEM && np_plan_gives_way(); }

NP_EXPORT void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    void *result = NP_REAL(mmap)(address, bytes, protection, flags, fd, offset);
    if (gives_way(result)) result = NP_REAL(mmap)(address, bytes, protection, flags, fd, offset);
    if (np_unlikely(is_wanted(bytes, flags))) mapped(result, bytes, protection, flags, fd, NP_CALLER_REGS());
    return result;
}

NP_EXPORT void *mmap64(void *address, size_t bytes, int protection, int flags, int fd, off64_t offset) {
    void *result = NP_REAL(mmap64)(address, bytes, protection, flags, fd, offset);
    if (gives_way(result)) result = NP_REAL(mmap64)(address, bytes, protection, flags, fd, offset);
    if (np_unlikely(is_wanted(bytes, flags))) mapped(result, bytes, protection, flags, fd, NP_CALLER_REGS());
    return result;
}

/* Rules say nothing of a mapping that grows or moves: its policy goes with it. */
NP_EXPORT void *mremap(void *old, size_t old_bytes, size_t new_bytes, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    void *wanted = flags & MREMAP_FIXED ? va_arg(rest, void *) : NULL;
    va_end(rest);
    void *result = NP_REAL(mremap)(old, old_bytes, new_bytes, flags, wanted);
    if (gives_way(result)) result = NP_REAL(mremap)(old, old_bytes, new_bytes, flags, wanted);
    return result;
}

/* -- static objects -- */

/* Whether an object lies in memory that is written, not in the file's pages (code, constants). `address` as in the file. */
static bool is_written(const struct dl_phdr_info *info, uint64_t address) {
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD && address - segment->p_vaddr < segment->p_memsz) return (segment->p_flags & PF_W) != 0;
    }
    return true;
}

static int place_module(struct dl_phdr_info *info, size_t bytes, void *context) {
    (void)bytes, (void)context;
    const struct np_plan_module *modules = (void *)((char *)np_plan + np_plan->modules);
    const struct np_plan_static *statics = (void *)((char *)np_plan + np_plan->statics);
    struct stat status;
    if (!np_plan_facts_of(info->dlpi_name, &status)) return 0;
    for (uint32_t i = 0; i < np_plan->static_count; i++) {
        const struct np_plan_module *module = &modules[statics[i].module];
        struct np_plan_rule *rule = &np_plan_rules()[statics[i].rule];
        if (module->device != status.st_dev || module->inode != status.st_ino) continue;
        if (rule->process[0] != 0 && !np_plan_glob(rule->process, np_plan_command)) continue;
        uintptr_t page = np_page_bytes(), first = (info->dlpi_addr + statics[i].first) & -page;
        uint64_t whole = whole_pages(info->dlpi_addr + statics[i].last + 1 - first, page);
        placed(rule, first, whole, page, true, is_written(info, statics[i].first));
    }
    return 0;
}

void np_plan_maps_init(void) {
    const struct np_plan_rule *rules = np_plan_rules();
    bool has_some = false;
    for (uint32_t i = 0; i < np_plan->rule_count; i++) has_some |= rules[i].kind == NP_PLAN_FILE;
    if (np_plan->static_count != 0) dl_iterate_phdr(place_module, NULL);
    np_store(most, np_plan->max_size);
    __atomic_store_n(&least, np_plan->min_size, __ATOMIC_RELEASE);
    __atomic_store_n(&has_files, has_some, __ATOMIC_RELEASE);
}
