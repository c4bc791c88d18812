/* plan_match.c: which rule takes an allocation.
 *
 * The plan holds, for each binary, the code that its frame patterns mean, as address ranges; here they are laid over the loaded modules. A call
 * stack is walked only if some rule that takes the size asks for frames, and only if the thread does not remember the patterns of the same stack
 * (same registers, same words at the same places) from last time.
 */
#define _GNU_SOURCE
#include "plan.h"

#include <fcntl.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <sys/stat.h>

#define MOST_MODULES 512u
#define MAX_DEPTH 64u

struct placed_code { uintptr_t first, last; uint64_t patterns; };
struct module { uintptr_t low, high; const void *eh_frame; };
/* Replaced as a whole when modules come or go; one that was replaced goes once nobody reads: programs load and unload plug-ins without end. */
struct view {
    uint64_t code_count, module_count, generation;
    struct view *retired; /* the one replaced before */
    struct module modules[MOST_MODULES];
    struct placed_code code[];
};
static struct view *view;
static struct view *retired;  /* replaced, and perhaps still read */
static uint32_t readers;      /* threads that have a view in hand */
static struct np_plan_lock view_lock;
static uint64_t view_adds, view_subs;
static bool frames_wanted;
static np_find_object_function find_object; /* NULL: this C library has none */

/* -- the loaded modules -- */

static uint64_t view_room(void) { return 2ull * np_plan->code_count + 1; }
static uint64_t view_bytes(void) { return sizeof(struct view) + view_room() * sizeof(struct placed_code); }

/* Between these the view stays. Sequentially consistent: whoever counts no reader after a replacement has replaced it for all that come later. */
static const struct view *begin_reading(void) {
    __atomic_fetch_add(&readers, 1, __ATOMIC_SEQ_CST);
    np_plan_tls.reading = 1;
    return __atomic_load_n(&view, __ATOMIC_SEQ_CST);
}
static void end_reading(void) {
    np_plan_tls.reading = 0;
    __atomic_fetch_sub(&readers, 1, __ATOMIC_RELEASE);
}

void np_match_left(void) {
    if (np_plan_tls.reading) end_reading();
    np_plan_lock_left(&view_lock);
}

/* Instances are counted in the order in which rules ask: only objects that meet all else. */
static uint64_t instances_seen[256];

void np_match_forked(void) {
    __atomic_store_n(&readers, 0, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < 256; i++) np_store(instances_seen[i], 0); /* plans number objects within a process */
}

/* What may go now; the lock is held. */
static struct view *take_retired(void) {
    struct view *list = retired;
    if (list == NULL || __atomic_load_n(&readers, __ATOMIC_SEQ_CST) != 0) return NULL;
    retired = NULL;
    return list;
}

static void free_views(struct view *list) {
    while (list != NULL) {
        struct view *next = list->retired;
        np_pages_free(list, view_bytes());
        list = next;
    }
}

static void drop_retired(void) {
    if (!np_plan_lock_soon(&view_lock)) return; /* another time */
    struct view *free = take_retired();
    np_plan_unlock(&view_lock);
    free_views(free);
}

struct gathering { struct view *view; uint64_t adds, subs; uint64_t room; };

static void lay_code(struct view *to, uint64_t room, uint32_t module, uintptr_t bias) {
    const struct np_plan_code *code = (void *)((char *)np_plan + np_plan->code);
    for (uint32_t i = 0; i < np_plan->code_count && to->code_count < room; i++) {
        if (code[i].module != module) continue;
        struct placed_code placed = {code[i].first + bias, code[i].last + bias, code[i].patterns};
        uint64_t at = to->code_count++;
        for (; at > 0 && to->code[at - 1].first > placed.first; at--) to->code[at] = to->code[at - 1];
        to->code[at] = placed;
    }
}

/* By opening it, not by its path: that may lead elsewhere by now, and emulators (QEMU's user mode) open the program where it asks for itself, but look at
 * themselves where it asks for a file's facts by that name. */
static bool facts_of_program(struct stat *status) {
    long fd = NP_SYS4(SYS_openat, AT_FDCWD, "/proc/self/exe", O_PATH | O_CLOEXEC, 0);
    if (fd < 0) return NP_SYS4(SYS_newfstatat, AT_FDCWD, "/proc/self/exe", status, 0) == 0;
    bool is_known = NP_SYS2(SYS_fstat, fd, status) == 0;
    NP_SYS1(SYS_close, fd);
    return is_known;
}

bool np_plan_facts_of(const char *path, struct stat *status) {
    if (path == NULL || path[0] == 0) return facts_of_program(status);
    return NP_SYS4(SYS_newfstatat, AT_FDCWD, path, status, 0) == 0;
}

/* The plan's number of the file behind a loaded module; module_count if it has none. */
static uint32_t module_of_file(const char *path) {
    const struct np_plan_module *modules = (void *)((char *)np_plan + np_plan->modules);
    struct stat status;
    if (!np_plan_facts_of(path, &status)) return np_plan->module_count;
    for (uint32_t i = 0; i < np_plan->module_count; i++)
        if (modules[i].device == status.st_dev && modules[i].inode == status.st_ino) return i;
    return np_plan->module_count;
}

static int gather(struct dl_phdr_info *info, size_t bytes, void *context) {
    struct gathering *to = context;
    if (bytes >= sizeof *info) {
        to->adds = info->dlpi_adds;
        to->subs = info->dlpi_subs;
    }
    struct module module = {UINTPTR_MAX, 0, NULL};
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t low = info->dlpi_addr + segment->p_vaddr;
        if (segment->p_type == PT_GNU_EH_FRAME) module.eh_frame = (const void *)low;
        if (segment->p_type != PT_LOAD) continue;
        if (low < module.low) module.low = low;
        if (low + segment->p_memsz > module.high) module.high = low + segment->p_memsz;
    }
    if (to->view->module_count < MOST_MODULES) to->view->modules[to->view->module_count++] = module;
    if (info->dlpi_name == NULL) return 0;
    uint32_t number = module_of_file(info->dlpi_name);
    if (number < np_plan->module_count) lay_code(to->view, to->room, number, info->dlpi_addr);
    return 0;
}

/* Takes the loader's lock, which this thread may hold already; never one of ours before it. Reached by mmap in a signal handler, too: where our lock is not to
 * be had, what was known stays. */
static NP_COLD struct view *look_again(void) {
    struct gathering to = {.view = np_pages_new(view_bytes()), .room = view_room()};
    if (to.view == NULL) return __atomic_load_n(&view, __ATOMIC_SEQ_CST);
    dl_iterate_phdr(gather, &to);
    if (!np_plan_lock_soon(&view_lock)) {
        np_pages_free(to.view, view_bytes());
        return __atomic_load_n(&view, __ATOMIC_SEQ_CST);
    }
    struct view *now = view;
    if (now == NULL || to.adds != view_adds || to.subs != view_subs) {
        to.view->generation = now == NULL ? 1 : now->generation + 1;
        view_adds = to.adds;
        view_subs = to.subs;
        __atomic_store_n(&view, to.view, __ATOMIC_SEQ_CST);
        np_unwind_modules_changed();
        if (now != NULL) {
            now->retired = retired;
            retired = now;
        }
        now = to.view;
        to.view = NULL;
    }
    np_plan_unlock(&view_lock);
    if (to.view != NULL) np_pages_free(to.view, view_bytes());
    return now;
}

/* A child whose lock another thread held at the fork would wait for ever at its next unknown caller. */
void np_match_fork(int phase) {
    np_plan_lock_fork(&view_lock, phase);
}

void np_match_modules_changed(void) {
    if (!np_plan_is_there() || !np_load(frames_wanted)) return;
    look_again();
    drop_retired();
}

static const struct module *module_at(const struct view *in, uintptr_t address) {
    for (uint64_t i = 0; in != NULL && i < in->module_count; i++)
        if (address >= in->modules[i].low && address < in->modules[i].high) return &in->modules[i];
    return NULL;
}

/* The C library unloads its own plug-ins unseen, and what is mapped in their place next may be code, too: just-in-time compilers take what is free. Tables of
 * such a module are not there any more. */
static bool is_gone(const struct module *module, uintptr_t pc) {
    np_find_object_function find = np_load(find_object);
    struct np_found_object found;
    return find != NULL && (find((void *)pc, &found) != 0 || found.eh_frame != module->eh_frame);
}

/* For the unwinder. */
const void *np_module_eh_frame(struct np_slot *slot, uintptr_t pc) {
    (void)slot;
    const struct module *module = module_at(begin_reading(), pc);
    bool is_known = module != NULL && !is_gone(module, pc);
    if (!is_known) module = module_at(look_again(), pc);
    if (!is_known && module != NULL && is_gone(module, pc)) module = NULL;
    const void *eh_frame = module != NULL ? module->eh_frame : NULL;
    end_reading();
    if (!is_known) drop_retired(); /* the C library unloads its own plug-ins unseen: this may be all that ever looks */
    return eh_frame;
}

static uint64_t patterns_at(const struct view *in, uintptr_t address) {
    if (in == NULL) return 0;
    uint64_t low = 0, high = in->code_count;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (in->code[middle].first <= address) low = middle + 1;
        else high = middle;
    }
    return low > 0 && address <= in->code[low - 1].last ? in->code[low - 1].patterns : 0;
}

uint64_t np_match_address(uintptr_t address) {
    uint64_t patterns = patterns_at(begin_reading(), address);
    end_reading();
    return patterns;
}

/* -- stacks -- */

static NP_COLD bool holds_stack(const struct np_maps_line *line, void *context) {
    struct np_slot *walker = context;
    if (walker->stack_lo < line->lo || walker->stack_lo >= line->hi) return true;
    walker->stack_lo = line->lo;
    walker->stack_hi = line->hi;
    return false;
}

static NP_COLD uint64_t walk(struct np_plan_thread *thread, struct np_plan_memo *memo, struct np_regs caller) {
    struct np_slot *walker = &thread->walker;
    if (caller.sp < walker->stack_lo || caller.sp >= walker->stack_hi) {
        walker->stack_lo = caller.sp;
        walker->stack_hi = 0;
        np_maps_each(holds_stack, walker);
    }
    uintptr_t frames[MAX_DEPTH];
    uint32_t flags;
    uint64_t hash;
    memo->walk.regs = caller;
    memo->walk.id = 0;
    unsigned count = np_unwind(walker, &memo->walk, frames, MAX_DEPTH, &flags, &hash);
    uint64_t found = 0;
    const struct view *in = begin_reading();
    for (unsigned i = 0; i < count; i++) found |= patterns_at(in, frames[i] - 1);
    end_reading();
    memo->found = found;
    if (memo->walk.loads <= NP_MEMO_LOADS && !(flags & 2)) memo->walk.id = 1;
    return found;
}

static inline uint64_t patterns_of(struct np_plan_thread *thread, struct np_regs caller) {
    struct np_plan_memo *memo = &thread->memos[(caller.pc ^ caller.sp << 3) * 0x9e3779b97f4a7c15ull >> (64 - NP_PLAN_MEMOS_LOG2)];
    if (np_likely(np_memo_holds(&memo->walk, caller))) return memo->found;
    return walk(thread, memo, caller);
}

int np_match(struct np_plan_thread *thread, size_t bytes, struct np_regs caller) {
    struct np_plan_rule *rules = np_plan_rules();
    uint64_t found = 0;
    bool walked = false;
    for (uint32_t i = 0; i < np_plan->rule_count; i++) {
        struct np_plan_rule *rule = &rules[i];
        if (rule->kind != NP_PLAN_DYNAMIC || bytes < rule->min_size || bytes > rule->max_size) continue;
        if (rule->patterns != 0) {
            if (!walked) found = patterns_of(thread, caller);
            walked = true;
            if ((found & rule->patterns) != rule->patterns) continue;
        }
        if (rule->process[0] != 0 && !np_plan_glob(rule->process, np_plan_command)) continue;
        if (rule->range_count != 0) {
            uint64_t number = __atomic_fetch_add(&instances_seen[i], 1, __ATOMIC_RELAXED);
            if (!np_plan_in_ranges(rule->instances, rule->range_count, number)) continue;
        }
        return rule->policy == NP_PLAN_REPLICATE ? -1 : (int)i;
    }
    return -1;
}

/* A lookup that fails leaves a message in the program's heap, and its blocks would lie elsewhere. */
static bool has_find_object(void) {
    unsigned minor = 0;
    const char *at = gnu_get_libc_version();
    if (at[0] != '2' || at[1] != '.') return false;
    for (at += 2; *at >= '0' && *at <= '9'; at++) minor = minor * 10 + (unsigned)(*at - '0');
    return minor >= 35;
}

void np_match_init(void) {
    if (has_find_object()) np_store(find_object, (np_find_object_function)np_real("_dl_find_object"));
    np_store(frames_wanted, true);
    look_again();
}
