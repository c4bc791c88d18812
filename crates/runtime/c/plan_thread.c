/* plan_thread.c: where threads and processes run, and hand-over.
 *
 * Threads are met when they begin (pthread_create, thrd_create; behind the tracker it says so) and when they are named. Their numbers are those of their
 * creation: the order in which they begin is the scheduler's, and changes from run to run. A process is met when its program starts and when it is forked.
 * The library changes affinities by the functions that the program would call.
 */
#define _GNU_SOURCE
#include "plan.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <threads.h>

_Thread_local struct np_plan_tls np_plan_tls __attribute__((tls_model("initial-exec")));

static struct np_plan_lock threads_lock;
static struct np_plan_thread *threads;
static uint64_t threads_made; /* in this process, the main thread not counted, whether they have begun or not */
static pthread_key_t end_key;
static bool has_end_key;

static void thread_began(uintptr_t start);
/* What the tracker finds by name: it begins threads before we could, and says so. */
NP_EXPORT struct np_planner_abi numapilot_planner = {
    .version = NP_PLANNER_ABI, .thread_began = thread_began, .ranges = np_own_ranges, .before_lookup = np_bind_loaded, .mapped = np_plan_mapped,
    .gives_way = np_plan_gives_way, .ends = np_plan_all_counted, .path = np_own_path, .environment = np_plan_environment
};

/* -- a thread's state -- */

/* Two may tell at once, the thread and one that ends the process, or a signal handler and what it interrupted: whoever enters a part as told tells it. */
static void tell(struct np_told *count, uint64_t *counter) {
    uint64_t all = np_load(count->all), told = np_load(count->told);
    while (told < all && !__atomic_compare_exchange_n(&count->told, &told, all, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) continue;
    if (told < all) np_plan_count(counter, all - told);
}

void np_plan_thread_counted(struct np_plan_thread *thread) {
    struct np_plan_rule *rules = np_plan_rules();
    for (uint32_t i = 0; i < np_plan->rule_count && i < 256; i++) {
        tell(&thread->refused[i], &rules[i].passed);
        tell(&thread->blocks[i], &rules[i].placed);
        tell(&thread->bytes[i], &rules[i].placed_bytes);
    }
}

/* A fork's child: its parent tells of what was counted before. */
static void told_by_parent(struct np_plan_thread *thread) {
    for (uint32_t i = 0; i < 256; i++) {
        thread->refused[i].told = thread->refused[i].all;
        thread->blocks[i].told = thread->blocks[i].all;
        thread->bytes[i].told = thread->bytes[i].all;
    }
}

static uint32_t own_pid; /* of the process as of its last fork with handlers; 0: the constructor has not come so far */

/* A child that passed no handler of ours tells nothing: either it runs in its parent's memory (vfork), and what is counted there is the parent's, or it has a
 * copy (a bare system call), and does not know where its own begins. */
static bool is_own_process(void) {
    return np_is_confined ? !np_child_is_confined : np_load(own_pid) == (uint32_t)NP_SYS0(SYS_getpid);
}

void np_plan_all_counted(void) {
    if (!np_plan_is_there() || np_load(own_pid) == 0 || !is_own_process()) return;
    bool has_lock = np_plan_lock_soon(&threads_lock);
    for (struct np_plan_thread *at = has_lock ? threads : NULL; at != NULL; at = at->next) np_plan_thread_counted(at);
    if (has_lock) np_plan_unlock(&threads_lock);
    else if (np_plan_tls.thread != NULL) np_plan_thread_counted(np_plan_tls.thread);
}

void np_plan_threads_left(void) { np_plan_lock_left(&threads_lock); }

static NP_COLD struct np_plan_thread *make_thread(void) {
    if (!np_plan_is_there() || np_plan_tls.ended || np_is_confined) return NULL;
    struct np_plan_thread *thread = np_pages_new(sizeof *thread);
    if (thread == NULL) return NULL;
    thread->walker.pid = (uint32_t)NP_SYS0(SYS_getpid);
    thread->walker.tid = (uint32_t)NP_SYS0(SYS_gettid);
    thread->self = pthread_self();
    thread->order = thread->walker.pid == thread->walker.tid ? 0 : UINT64_MAX;
    if (!np_plan_lock_soon(&threads_lock)) { /* mmap in a signal handler comes here, too */
        np_pages_free(thread, sizeof *thread);
        return NULL;
    }
    thread->next = threads;
    threads = thread;
    np_plan_unlock(&threads_lock);
    np_plan_tls.thread = thread;
    /* With the release in np_plan_threads_init, which other libraries' threads may come before. */
    if (__atomic_load_n(&has_end_key, __ATOMIC_ACQUIRE)) pthread_setspecific(end_key, thread);
    return thread;
}

struct np_plan_thread *np_plan_thread_here(void) {
    struct np_plan_thread *thread = np_plan_tls.thread;
    return np_likely(thread != NULL) ? thread : make_thread();
}

/* In the last round of key destructors, so that what others free still goes through the thread's own bins. */
static void on_thread_exit(void *value) {
    struct np_plan_thread *thread = value;
    if (thread != np_plan_tls.thread) return;
    if (++np_plan_tls.ended < 4) {
        pthread_setspecific(end_key, value);
        return;
    }
    np_plan_tls.busy = 1;
    np_plan_give_late();
    np_plan_thread_counted(thread);
    np_arena_flush(thread);
    np_plan_lock(&threads_lock);
    for (struct np_plan_thread **at = &threads; *at != NULL; at = &(*at)->next) {
        if (*at != thread) continue;
        *at = thread->next;
        break;
    }
    np_plan_unlock(&threads_lock);
    np_plan_tls.thread = NULL;
    np_pages_free(thread, sizeof *thread);
    np_plan_tls.busy = 0;
}

/* -- pinning -- */

static void choose_cpus(const struct np_plan_place *rule, uint64_t number, uint64_t *set) {
    memcpy(set, rule->cpus, sizeof rule->cpus);
    if (rule->layout != NP_PLAN_SPREAD) return;
    if (rule->by_node) {
        uint64_t nodes = rule->nodes;
        for (uint64_t skip = number % (uint64_t)__builtin_popcountll(nodes); skip > 0; skip--) nodes &= nodes - 1;
        for (uint32_t i = 0; i < NP_PLAN_CPU_WORDS; i++) set[i] &= np_plan->node_cpus[__builtin_ctzll(nodes)][i];
        return;
    }
    uint64_t count = 0;
    for (uint32_t i = 0; i < NP_PLAN_CPU_WORDS; i++) count += (uint64_t)__builtin_popcountll(set[i]);
    uint64_t skip = count != 0 ? number % count : 0;
    for (uint32_t i = 0; i < NP_PLAN_CPU_WORDS; i++) {
        uint64_t word = set[i];
        set[i] = 0;
        for (; word != 0; word &= word - 1)
            if (skip-- == 0) set[i] = word & -word;
    }
}

/* Affinities are inherited from the creating thread. What a rule gave that one is not meant for threads and processes without a rule: they run where the
 * process might before the plan, or where a rule put it as a whole. Written by the constructor, and in a forked child. */
static uint64_t process_cpus[NP_PLAN_CPU_WORDS];

static void set_process_cpus(const uint64_t *set) {
    for (uint32_t i = 0; i < NP_PLAN_CPU_WORDS; i++) np_store(process_cpus[i], set[i]);
}

static bool is_same(const uint64_t *set, const uint64_t *other) { return memcmp(set, other, sizeof process_cpus) == 0; }

/* Of the calling thread. Keeps errno. */
static bool cpus_here(uint64_t *set) {
    int saved = errno;
    memset(set, 0, sizeof process_cpus);
    bool known = sched_getaffinity(0, sizeof process_cpus, (cpu_set_t *)(void *)set) == 0;
    errno = saved;
    return known;
}

/* The calling thread goes where its process may run, if it is still where it was pinned. */
static void release(const uint64_t *pinned) {
    uint64_t now[NP_PLAN_CPU_WORDS], all[NP_PLAN_CPU_WORDS];
    if (!cpus_here(now) || !is_same(now, pinned)) return;
    for (uint32_t i = 0; i < NP_PLAN_CPU_WORDS; i++) all[i] = np_load(process_cpus[i]);
    int saved = errno;
    sched_setaffinity(0, sizeof all, (const cpu_set_t *)(const void *)all);
    errno = saved;
}

/* `number`: which one it is of those that the rule takes. `thread` NULL: the calling one. `given`: what it then has. */
static bool pin(struct np_plan_place *rule, uint64_t number, const pthread_t *thread, uint64_t *given) {
    uint64_t set[NP_PLAN_CPU_WORDS], any = 0;
    for (uint32_t i = 0; i < NP_PLAN_CPU_WORDS; i++) any |= rule->cpus[i];
    if (any == 0) return false; /* the program was given none of them */
    choose_cpus(rule, number, set);
    int saved = errno, error;
    if (thread != NULL) error = pthread_setaffinity_np(*thread, sizeof set, (const cpu_set_t *)(const void *)set);
    else error = sched_setaffinity(0, sizeof set, (const cpu_set_t *)(const void *)set) == 0 ? 0 : errno;
    if (error == 0) {
        memcpy(given, set, sizeof set);
        if (thread != NULL) pthread_getaffinity_np(*thread, sizeof set, (cpu_set_t *)(void *)given);
        else cpus_here(given);
    } else {
        np_plan_count(&rule->failures, 1);
        __atomic_store_n(&rule->last_errno, (uint64_t)error, __ATOMIC_RELAXED);
    }
    errno = saved;
    return error == 0;
}

static bool suits(const struct np_plan_place *rule, const struct np_plan_thread *thread, const char *name) {
    if (rule->process[0] != 0 && !np_plan_glob(rule->process, np_plan_command)) return false;
    if (rule->name[0] != 0 && !np_plan_glob(rule->name, name)) return false;
    if (rule->start_pattern != NP_PLAN_NO_PATTERN && !(np_match_address(thread->start) >> rule->start_pattern & 1)) return false;
    if (rule->range_count == 0) return true;
    return thread->order != UINT64_MAX && np_plan_in_ranges(rule->order, rule->range_count, thread->order);
}

/* Of the rule for this thread, the number + 1; 0: there is none. */
static uint32_t rule_of(const struct np_plan_thread *thread, const char *name) {
    for (uint32_t i = 0; i < np_plan->thread_count; i++)
        if (suits(&np_plan_threads()[i], thread, name)) return i + 1;
    return 0;
}

/* The lock of all threads is held: others look for one that was pinned where they are, and may rename this one. */
static void place_thread(struct np_plan_thread *thread, const char *name, bool is_other) {
    uint32_t rule = rule_of(thread, name);
    if (rule == 0 || rule == thread->rule) return;
    np_store(thread->node_left, 0);
    np_store(thread->rule, rule);
    struct np_plan_place *place = &np_plan_threads()[rule - 1];
    uint64_t number = __atomic_fetch_add(&place->taken, 1, __ATOMIC_RELAXED);
    if (pin(place, number, is_other ? &thread->self : NULL, thread->pinned)) np_plan_count(&place->placed, 1);
    else memset(thread->pinned, 0, sizeof thread->pinned);
}

static void place_own(struct np_plan_thread *thread, const char *name) {
    if (!np_plan_lock_soon(&threads_lock)) return; /* prctl in a signal handler */
    place_thread(thread, name, false);
    np_plan_unlock(&threads_lock);
}

/* By the thread that began at `start`, has this name and runs on this node. */
static void take_over(uintptr_t start, const char *name, uint32_t node) {
    struct np_plan_rule *rules = np_plan_rules();
    for (uint32_t i = 0; i < np_plan->rule_count; i++) {
        if (rules[i].policy != NP_PLAN_HAND_OVER) continue;
        bool by_start = rules[i].to_pattern != NP_PLAN_NO_PATTERN && (np_match_address(start) >> rules[i].to_pattern & 1);
        if (by_start || np_plan_glob(rules[i].text, name)) np_arena_hand_over(i, node);
    }
}

/* -- threads -- */

static void meet(struct np_plan_thread *thread) {
    char name[16] = {0};
    if (np_is_confined) return;
    NP_SYS2(SYS_prctl, PR_GET_NAME, name);
    place_own(thread, name);
    take_over(thread->start, name, np_place_node());
}

/* Whether some thread was pinned to these CPUs by a rule. */
static bool is_of_another(const uint64_t *set) {
    bool found = false;
    np_plan_lock(&threads_lock);
    for (const struct np_plan_thread *at = threads; at != NULL && !found; at = at->next) found = at->rule != 0 && is_same(at->pinned, set);
    np_plan_unlock(&threads_lock);
    return found;
}

/* The calling thread begins. `inherited`: where a rule pinned its creator; NULL: the creator is unknown. */
static void began(uintptr_t start, const uint64_t *inherited) {
    if (np_plan_tls.busy || !np_plan_is_there()) return;
    int saved = errno;
    np_plan_tls.busy = 1;
    struct np_plan_thread *thread = np_plan_thread_here();
    if (thread != NULL && start != 0) {
        np_plan_lock(&threads_lock);
        thread->start = start;
        /* Without a number: made by a call that no hook sees, or for which there was no memory. */
        thread->order = np_plan_tls.order != 0 ? np_plan_tls.order : __atomic_add_fetch(&threads_made, 1, __ATOMIC_RELAXED);
        np_plan_unlock(&threads_lock);
        meet(thread);
        uint64_t now[NP_PLAN_CPU_WORDS];
        if (np_load(thread->rule) == 0 && np_plan->thread_count != 0 && !np_is_confined) {
            if (inherited != NULL) release(inherited);
            else if (cpus_here(now) && is_of_another(now)) release(now);
        }
    }
    np_plan_tls.busy = 0;
    errno = saved;
}

static void thread_began(uintptr_t start) {
    began(start, NULL);
}

struct start {
    uint32_t taken;
    void *(*routine)(void *);
    int (*c11_routine)(void *);
    void *argument;
    uint64_t order;
    uint64_t cpus[NP_PLAN_CPU_WORDS]; /* of the creator, by a rule; none: all zeroes */
};

/* Not pages of their own: under a recording mappings are to lie where they would without a plan. */
#define POOL_ENTRIES 256u
static struct start pool[POOL_ENTRIES];
static uint32_t pool_hint;

static struct start *take_start(void) {
    uint32_t hint = __atomic_fetch_add(&pool_hint, 1, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < POOL_ENTRIES; i++) {
        struct start *start = &pool[(hint + i) % POOL_ENTRIES];
        if (__atomic_exchange_n(&start->taken, 1, __ATOMIC_ACQUIRE) == 0) return start;
    }
    return numapilot_planner.is_tracked ? NULL : np_pages_new(sizeof(struct start));
}

static void give_start(struct start *start) {
    if (start >= pool && start < pool + POOL_ENTRIES) __atomic_store_n(&start->taken, 0, __ATOMIC_RELEASE);
    else np_pages_free(start, sizeof *start);
}

#define TRAMPOLINE __attribute__((noinline, section("np_trampolines")))

static TRAMPOLINE void *begin_pthread(void *given) {
    struct start start = *(struct start *)given;
    give_start(given);
    np_plan_tls.order = start.order;
    /* Else the tracker says so, with the program's own routine. */
    if (start.routine != numapilot_planner.begin_pthread) began((uintptr_t)start.routine, start.cpus);
    void *result = start.routine(start.argument);
    __asm__ volatile("" : "+r"(result)); /* not a tail call */
    return result;
}

static TRAMPOLINE int begin_c11(void *given) {
    struct start start = *(struct start *)given;
    give_start(given);
    np_plan_tls.order = start.order;
    if (start.c11_routine != numapilot_planner.begin_c11) began((uintptr_t)start.c11_routine, start.cpus);
    int result = start.c11_routine(start.argument);
    __asm__ volatile("" : "+r"(result));
    return result;
}

static struct start *new_start(void) {
    struct start *start = np_plan_is_there() ? take_start() : NULL;
    if (start == NULL) return NULL;
    memset(start->cpus, 0, sizeof start->cpus);
    start->order = __atomic_add_fetch(&threads_made, 1, __ATOMIC_RELAXED);
    const struct np_plan_thread *creator = np_plan_tls.thread;
    if (creator == NULL || np_load(creator->rule) == 0) return start;
    if (!np_plan_lock_soon(&threads_lock)) return start; /* another thread may rename this one */
    memcpy(start->cpus, creator->pinned, sizeof start->cpus);
    np_plan_unlock(&threads_lock);
    return start;
}

/* Its thread could not be made. The number goes to the next one, unless another thread has taken a later one meanwhile. */
static void drop_start(struct start *start) {
    uint64_t last = start->order;
    __atomic_compare_exchange_n(&threads_made, &last, last - 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    give_start(start);
}

/* A thread's stack found no addresses, perhaps for those that the planner has reserved. */
static inline bool gives_way(bool has_failed) { return np_unlikely(has_failed) && np_plan_gives_way(); }

NP_EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *), void *argument) {
    np_plan_before_threads();
    struct start *start = new_start();
    if (start == NULL) {
        int result = NP_REAL(pthread_create)(thread, attributes, routine, argument);
        return gives_way(result == EAGAIN) ? NP_REAL(pthread_create)(thread, attributes, routine, argument) : result;
    }
    start->routine = routine;
    start->argument = argument;
    int result = NP_REAL(pthread_create)(thread, attributes, begin_pthread, start);
    if (gives_way(result == EAGAIN)) result = NP_REAL(pthread_create)(thread, attributes, begin_pthread, start);
    if (result != 0) drop_start(start);
    return result;
}

NP_EXPORT int thrd_create(thrd_t *thread, thrd_start_t routine, void *argument) {
    np_plan_before_threads();
    struct start *start = new_start();
    if (start == NULL) return NP_REAL(thrd_create)(thread, routine, argument);
    start->c11_routine = routine;
    start->argument = argument;
    int result = NP_REAL(thrd_create)(thread, begin_c11, start);
    if (gives_way(result == thrd_nomem || result == thrd_error)) result = NP_REAL(thrd_create)(thread, begin_c11, start);
    if (result != thrd_success) drop_start(start);
    return result;
}

/* -- names -- */

/* A field of a `stat` file in /proc, from the third on; 0: unknown. */
static uint64_t stat_field(const char *path, unsigned field) {
    char text[1024];
    long fd = NP_SYS4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return 0;
    long length = NP_SYS3(SYS_read, fd, text, sizeof text - 1);
    NP_SYS1(SYS_close, fd);
    if (length <= 0) return 0;
    text[length] = 0;
    const char *at = strrchr(text, ')'); /* the end of field 2, which may hold anything */
    for (unsigned i = 2; at != NULL && i < field; i++) at = strchr(at + 1, ' ');
    uint64_t value = 0;
    for (at = at != NULL ? at + 1 : ""; *at >= '0' && *at <= '9'; at++) value = value * 10 + (uint64_t)(*at - '0');
    return value;
}

/* Where a thread of this process runs, or did last. */
static int cpu_of(uint32_t tid) {
    char path[48] = "/proc/self/task/", digits[12];
    unsigned count = 0, at = sizeof "/proc/self/task/" - 1;
    for (; tid != 0; tid /= 10) digits[count++] = (char)('0' + tid % 10);
    while (count > 0) path[at++] = digits[--count];
    memcpy(path + at, "/stat", sizeof "/stat");
    return (int)stat_field(path, 39);
}

static void renamed(const pthread_t *thread, const char *given) {
    if (np_plan_tls.busy || np_is_confined || given == NULL || !np_plan_is_there()) return;
    char name[16] = {0}; /* as much of it as the kernel keeps, and recordings show */
    memcpy(name, given, strnlen(given, sizeof name - 1));
    int saved = errno;
    np_plan_tls.busy = 1;
    bool is_self = thread == NULL || pthread_equal(*thread, pthread_self());
    struct np_plan_thread *state = is_self ? np_plan_thread_here() : NULL;
    if (is_self && state != NULL) {
        place_own(state, name);
        take_over(state->start, name, np_place_node());
    } else if (!is_self) {
        uintptr_t start = 0;
        uint32_t tid = 0;
        np_plan_lock(&threads_lock);
        for (state = threads; state != NULL && !pthread_equal(state->self, *thread); state = state->next) {}
        if (state != NULL) {
            place_thread(state, name, true);
            start = state->start;
            tid = state->walker.tid;
        }
        np_plan_unlock(&threads_lock);
        /* Where the host runs a thread of a simulated machine says nothing. */
        if (tid != 0 && !numapilot_planner.is_tracked) take_over(start, name, np_place_node_of(cpu_of(tid)));
    }
    np_plan_tls.busy = 0;
    errno = saved;
}

NP_EXPORT int pthread_setname_np(pthread_t thread, const char *name) {
    int result = NP_REAL(pthread_setname_np)(thread, name);
    if (result == 0) renamed(&thread, name);
    return result;
}

void np_plan_renamed(const char *name) {
    renamed(NULL, name);
}

/* -- processes -- */

/* This process, however often it executes another program: its pid, and when it began (/proc/self/stat, field 22). 0: unknown. */
static uint64_t this_process(void) {
    uint64_t began = stat_field("/proc/self/stat", 22);
    return began != 0 ? began << 22 | ((uint64_t)NP_SYS0(SYS_getpid) & 0x3fffff) : 0;
}

/* What was noted of a process for a rule + 1 (0: for none); `own` where nothing can be. */
static struct np_plan_numbered *noted(uint64_t process, uint64_t rule, struct np_plan_numbered *own, bool *is_known) {
    *is_known = false;
    if (np_plan_numbered == NULL || process == 0) return own;
    uint64_t first = (process ^ rule << 32) * 0x9e3779b97f4a7c15ull >> 52;
    for (uint64_t i = 0; i < 16; i++) {
        struct np_plan_numbered *entry = &np_plan_numbered[(first + i) % NP_PLAN_NUMBERED];
        uint64_t of = __atomic_load_n(&entry->process, __ATOMIC_ACQUIRE);
        *is_known = of == process && entry->rule == rule;
        if (*is_known) return entry;
        if (of != 0 || !__atomic_compare_exchange_n(&entry->process, &of, process, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) continue;
        entry->rule = rule;
        return entry;
    }
    return own;
}

/* True: a rule pinned it. */
static bool place_process(void) {
    uint64_t process = this_process();
    bool is_known;
    struct np_plan_numbered own = {0};
    noted(process, 0, &own, &is_known);
    if (!is_known) np_plan_count(&np_plan->attached, 1);
    struct np_plan_place *rules = np_plan_processes();
    for (uint32_t i = 0; i < np_plan->process_count; i++) {
        if (rules[i].process[0] != 0 && !np_plan_glob(rules[i].process, np_plan_command)) continue;
        own = (struct np_plan_numbered){0};
        struct np_plan_numbered *entry = noted(process, i + 1, &own, &is_known);
        if (!is_known) entry->order = __atomic_fetch_add(&rules[i].seen, 1, __ATOMIC_RELAXED);
        if (!np_plan_in_ranges(rules[i].order, rules[i].range_count, entry->order)) continue;
        bool is_new = entry->number == 0;
        if (is_new) entry->number = __atomic_add_fetch(&rules[i].taken, 1, __ATOMIC_RELAXED);
        uint64_t given[NP_PLAN_CPU_WORDS] = {0};
        if (!pin(&rules[i], entry->number - 1, NULL, given)) return false;
        set_process_cpus(given);
        if (is_new) np_plan_count(&rules[i].placed, 1);
        return true;
    }
    return false;
}

static bool has_begun; /* else the fork is another library's constructor's, and ours runs in the child, too */

void np_plan_process_began(void) {
    uint64_t given[NP_PLAN_CPU_WORDS];
    cpus_here(given);
    set_process_cpus(given);
    place_process();
    np_store(has_begun, true);
}

/* All locks, each after those under which it is taken. */
static void lock_for_fork(int phase) {
    np_plan_tls.busy++;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (phase == 0) {
        np_plan_lock_fork(&threads_lock, 0);
        np_arena_fork(0);
        np_region_fork(0);
        np_place_fork(0);
        np_match_fork(0);
        np_plan_tls.forks++;
    } else {
        np_plan_tls.forks--;
        np_match_fork(1);
        np_place_fork(1);
        np_region_fork(1);
        np_arena_fork(1);
        np_plan_lock_fork(&threads_lock, 1);
    }
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    np_plan_tls.busy--;
}

static void before_fork(void) {
    lock_for_fork(0);
}

static void in_parent(void) {
    lock_for_fork(1);
}

/* Only this thread is left. Blocks in the others' bins are lost to the child, as they are in other allocators. */
static void in_child(void) {
    in_parent();
    if (!np_load(has_begun)) return;
    struct np_plan_thread *thread = np_plan_tls.thread;
    uint32_t busy = np_plan_tls.busy, had = 0;
    if (busy == 0 && np_plan_tls.forks == 0) np_plan_tls.tag = 0; /* the parent's number may be that of a thread here once the parent is gone */
    np_plan_tls.busy = 1;
    if (!np_is_confined) np_store(own_pid, (uint32_t)NP_SYS0(SYS_getpid));
    np_match_forked();
    threads = thread;
    threads_made = 0;
    /* Starts of the parent's other threads stay taken: they are few, and another library's handler may have made a thread here already. */
    if (thread != NULL) {
        thread->next = NULL;
        if (!np_is_confined) {
            thread->walker.pid = (uint32_t)NP_SYS0(SYS_getpid);
            thread->walker.tid = (uint32_t)NP_SYS0(SYS_gettid);
        }
        told_by_parent(thread);
        thread->order = 0;
        had = thread->rule;
        thread->rule = 0;
        thread->node_left = 0;
    }
    if (!np_is_confined && !place_process() && had != 0) {
        char name[16] = {0};
        NP_SYS2(SYS_prctl, PR_GET_NAME, name);
        if (rule_of(thread, name) == had) thread->rule = had; /* it is where it should be */
        else release(thread->pinned);
    }
    np_plan_tls.busy = busy;
}

/* Of handlers before a fork the last registered one runs first, of those after it the first. Ours are the first, so that the locks are held for the fork alone:
 * other libraries' handlers allocate, and take locks under which other threads do. */
extern int __register_atfork(void (*before)(void), void (*parent)(void), void (*child)(void), void *library);

static void register_handlers(void) {
    static bool is_done;
    if (!__atomic_exchange_n(&is_done, true, __ATOMIC_ACQ_REL)) NP_REAL(__register_atfork)(before_fork, in_parent, in_child, NULL);
}

/* pthread_atfork, which is a part of each library. */
NP_EXPORT int __register_atfork(void (*before)(void), void (*parent)(void), void (*child)(void), void *library) {
    register_handlers();
    return NP_REAL(__register_atfork)(before, parent, child, library);
}

void np_plan_threads_init(void) {
    __atomic_store_n(&has_end_key, pthread_key_create(&end_key, on_thread_exit) == 0, __ATOMIC_RELEASE);
    register_handlers();
    np_store(own_pid, (uint32_t)NP_SYS0(SYS_getpid));
    atexit(np_plan_all_counted);
    at_quick_exit(np_plan_all_counted);
    struct np_plan_thread *thread = np_plan_thread_here();
    if (thread != NULL) meet(thread);
}
