/* plan_start.c: finding the plan, and starting each part of the library in a program that has one. */
#define _GNU_SOURCE
#include "exec_target.h"
#include "plan.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

struct np_plan *np_plan;
struct np_plan_numbered *np_plan_numbered;
struct np_arena *np_arena; /* for the unwinder, which the tracker has too: here nothing is recorded */
char np_plan_command[NP_PLAN_NAME];
#define VARIABLE "NUMAPILOT_PLAN="
char np_plan_environment[4096];

/* -- locks -- */

#define SPINS 100u
#define YIELDS 1000u
#define NAPS 1000u /* of a millisecond */

/* The kernel's number of the thread; where it may not be asked, what no other thread's storage has. */
NP_COLD uint32_t np_plan_new_tag(void) {
    uint32_t tag = np_is_confined ? (uint32_t)((uintptr_t)&np_plan_tls >> 4) & ~1u : (uint32_t)NP_SYS0(SYS_gettid) << 1;
    return np_plan_tls.tag = tag != 0 ? tag : 2;
}

static bool try_and_spin(struct np_plan_lock *lock) {
    if (np_plan_tls.tag == 0) np_plan_new_tag();
    for (unsigned spins = 0; spins < SPINS; spins++) {
        if (np_plan_try(lock)) return true;
        np_pause();
    }
    return false;
}

void np_plan_lock_slow(struct np_plan_lock *lock) {
    if (try_and_spin(lock)) return;
    for (;;) {
        uint32_t seen = 0;
        if (__atomic_compare_exchange_n(&lock->word, &seen, np_plan_tls.tag | 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return; /* others may wait still */
        bool is_told = (seen & 1) || __atomic_compare_exchange_n(&lock->word, &seen, seen | 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
        if (is_told) NP_SYS4(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE, seen | 1, NULL);
    }
}

static bool try_for_a_while(struct np_plan_lock *lock) {
    if (np_plan_tls.forks != 0) return true;
    if (np_plan_holds(lock)) return false;
    if (try_and_spin(lock)) return true;
    for (unsigned tries = 0; tries < YIELDS + NAPS; tries++) {
        if (np_plan_try(lock)) return true;
        struct timespec nap = {0, 1000000};
        if (np_is_confined) np_pause();
        else if (tries < YIELDS) NP_SYS0(SYS_sched_yield);
        else NP_SYS2(SYS_nanosleep, &nap, NULL);
    }
    return false;
}

bool np_plan_lock_soon(struct np_plan_lock *lock) {
    np_plan_tls.busy++;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    bool has_it = try_for_a_while(lock);
    if (!has_it) np_plan_tls.busy--;
    return has_it;
}

/* In a handler's fork the interrupted code keeps what it has: it goes on in the parent, and in the child, too, where the handler returns. */
void np_plan_lock_fork(struct np_plan_lock *lock, int phase) {
    if (phase == 0 && np_plan_holds(lock)) lock->forks++;
    else if (phase == 0 && !np_plan_try(lock)) np_plan_lock_slow(lock);
    else if (phase != 0 && lock->forks != 0) lock->forks--;
    else if (phase != 0) np_plan_let_go(lock);
}

void np_plan_wake(struct np_plan_lock *lock) {
    NP_SYS4(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL);
}

/* -- patterns: `*` any run of characters, `?` one -- */

bool np_plan_glob(const char *pattern, const char *text) {
    const char *after = NULL, *from = NULL;
    while (*text != 0) {
        if (*pattern == '*') {
            after = ++pattern;
            from = text;
        } else if (*pattern == '?' || *pattern == *text) {
            pattern++;
            text++;
        } else if (after != NULL) {
            pattern = after;
            text = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return *pattern == 0;
}

/* -- the plan -- */

static bool part_fits(const struct np_plan *plan, uint64_t offset, uint64_t count, uint64_t each) {
    return offset % 8 == 0 && offset <= plan->bytes && count <= (plan->bytes - offset) / each;
}

static bool sound(const struct np_plan *plan, uint64_t bytes) {
    if (plan->magic != NP_PLAN_MAGIC || plan->version != NP_PLAN_VERSION || plan->bytes > bytes || plan->bytes < sizeof *plan) return false;
    if (plan->rule_count > 256 || plan->thread_count > 256 || plan->process_count > 256) return false;
    return part_fits(plan, plan->rules, plan->rule_count, sizeof(struct np_plan_rule)) &&
           part_fits(plan, plan->threads, plan->thread_count, sizeof(struct np_plan_place)) &&
           part_fits(plan, plan->processes, plan->process_count, sizeof(struct np_plan_place)) &&
           part_fits(plan, plan->modules, plan->module_count, sizeof(struct np_plan_module)) &&
           part_fits(plan, plan->code, plan->code_count, sizeof(struct np_plan_code)) &&
           part_fits(plan, plan->statics, plan->static_count, sizeof(struct np_plan_static));
}

static struct np_plan *map_plan(const char *path) {
    long fd = NP_SYS4(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0) return NULL;
    struct np_plan *plan = NULL;
    struct stat status;
    if (NP_SYS4(SYS_newfstatat, fd, "", &status, AT_EMPTY_PATH) == 0 && S_ISREG(status.st_mode) && (uint64_t)status.st_size >= sizeof *plan) {
        uint64_t bytes = (uint64_t)status.st_size;
        long at = NP_SYS6(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at > 0 || at < -4095) {
            plan = (struct np_plan *)at;
            uint64_t behind = (plan->bytes + 7) & ~7ull;
            if (behind < bytes && bytes - behind >= NP_PLAN_NUMBERED * sizeof *np_plan_numbered) np_plan_numbered = (void *)((char *)plan + behind);
            if (!sound(plan, bytes)) {
                NP_SYS2(SYS_munmap, at, bytes);
                plan = NULL;
                np_plan_numbered = NULL;
            }
        }
    }
    NP_SYS1(SYS_close, fd);
    return plan;
}

static void read_command(void) {
    char path[1024];
    long length = NP_SYS4(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", path, sizeof path - 1);
    if (length <= 0) return;
    path[length] = 0;
    const char *name = strrchr(path, '/');
    name = name != NULL ? name + 1 : path;
    size_t bytes = strnlen(name, sizeof np_plan_command - 1);
    memcpy(np_plan_command, name, bytes);
}

/* Reached from the first allocation, so by system calls only. The region is needed even without a plan: for the loader's first allocations. */
void np_plan_attach(void) {
    np_find_ourselves();
    const char *path = np_initial_environment(VARIABLE);
    struct np_plan *plan = path != NULL ? map_plan(path) : NULL;
    bool has_region = np_region_make(plan);
    if (plan == NULL) return;
    if (!has_region) {
        np_plan_count(&plan->no_memory, 1);
        plan = NULL; /* nothing can be placed; threads could, but half a plan is none */
    }
    read_command();
    if (strlen(path) + sizeof VARIABLE <= sizeof np_plan_environment) strcpy(stpcpy(np_plan_environment, VARIABLE), path);
    __atomic_store_n(&np_plan, plan, __ATOMIC_RELEASE);
}

static bool rules_ask_for_frames(void) {
    const struct np_plan_rule *rules = np_plan_rules();
    const struct np_plan_place *threads = np_plan_threads();
    bool wanted = false;
    for (uint32_t i = 0; i < np_plan->rule_count; i++) wanted |= rules[i].patterns != 0 || rules[i].to_pattern != NP_PLAN_NO_PATTERN;
    for (uint32_t i = 0; i < np_plan->thread_count; i++) wanted |= threads[i].start_pattern != NP_PLAN_NO_PATTERN;
    return wanted;
}

void np_plan_alloc_start(uint64_t least, uint64_t most) NP_HIDDEN;
void np_plan_maps_init(void) NP_HIDDEN;

__attribute__((constructor(102))) static void construct(void) {
    int saved = errno;
    np_plan_alloc_start(1, 0);
    np_exec_init();
    if (np_plan_is_there()) {
        np_plan_tls.busy = 1;
        np_place_init();
        if (rules_ask_for_frames()) np_match_init();
        np_plan_process_began();
        np_plan_threads_init();
        np_plan_maps_init();
        np_bind_init();
        np_plan_tls.busy = 0;
        np_plan_alloc_start(np_plan->min_size, np_plan->max_size);
    }
    errno = saved;
}

void np_plan_before_threads(void) {
    static bool is_done;
    if (np_likely(np_load(is_done))) return;
    uint32_t busy = np_plan_tls.busy;
    np_plan_tls.busy = 1;
    np_store(is_done, true);
    np_reals_find();
    np_plan_tls.busy = busy;
}

/* A library that went may make room for another at the same addresses. */
NP_EXPORT int dlclose(void *handle) {
    int result = NP_REAL(dlclose)(handle);
    np_match_modules_changed();
    return result;
}
