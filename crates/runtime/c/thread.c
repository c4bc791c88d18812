/* thread.c: the lives and names of threads.
 *
 * A thread begins at its first hook or, when it was made through one of the hooks here, before its start routine, so that its first record is
 * its own birth with its creator and the creating stack. It ends in a key destructor, in the last round, so that what other destructors free
 * is still recorded. Threads made by clone() without storage of their own share their creator's: they are told apart by number (core.c).
 */
#define _GNU_SOURCE
#include "confined.h"
#include "emulator.h"
#include "syscalls.h"

#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <threads.h>

/* glibc calls destructors in this many rounds as long as keys are set again. */
#define LAST_END_ROUND 4u
#define POOL_ENTRIES 512u
#define ENDED_ENTRIES 4096u
#define WHOLE_NAME_BYTES_MAX 120u

static pthread_key_t end_key;
static bool has_end_key;

/* -- clocks of ended threads, by pthread_t -- */

struct ended {
    unsigned long thread; /* 0: free. Entries are re-used by a later thread of the same pthread_t, and never removed */
    uint64_t clock;
    uint32_t index;
    uint32_t valid;
};
static struct ended ended_threads[ENDED_ENTRIES];

static struct ended *ended_entry(unsigned long thread, bool insert) {
    uint64_t at = (uint64_t)thread * 0x9e3779b97f4a7c15ull >> 52;
    for (unsigned probe = 0; probe < 64; probe++) {
        struct ended *entry = &ended_threads[(at + probe) % ENDED_ENTRIES];
        unsigned long owner = __atomic_load_n(&entry->thread, __ATOMIC_ACQUIRE);
        if (owner == thread) return entry;
        if (owner != 0) continue;
        if (!insert) return NULL;
        if (__atomic_compare_exchange_n(&entry->thread, &owner, thread, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return entry;
        if (owner == thread) return entry;
    }
    return insert ? &ended_threads[at % ENDED_ENTRIES] : NULL;
}

static void remember_end(const struct np_slot *slot) {
    struct ended *entry = ended_entry((unsigned long)pthread_self(), true);
    np_store(entry->valid, 0);
    np_store(entry->thread, (unsigned long)pthread_self());
    np_store(entry->clock, np_stamp_clock(slot));
    np_store(entry->index, slot->thread_index);
    __atomic_store_n(&entry->valid, 1, __ATOMIC_RELEASE);
}

bool np_thread_end_clock(unsigned long thread, uint64_t *clock, uint32_t *index) {
    struct ended *entry = ended_entry(thread, false);
    if (entry == NULL || !__atomic_load_n(&entry->valid, __ATOMIC_ACQUIRE)) return false;
    *clock = np_load(entry->clock);
    *index = np_load(entry->index);
    return true;
}

/* -- begin and end -- */

/* The mapping that `here` is in, the end of the one below it, and whether the kernel lets it grow downwards. */
struct stack_search { uintptr_t here, lo, hi, below; bool grows; };

static bool holds_our_stack(const struct np_maps_line *line, void *context) {
    struct stack_search *search = context;
    if (search->here >= line->hi) {
        search->below = line->hi;
        return true;
    }
    if (search->here < line->lo) return false;
    search->lo = line->lo;
    search->hi = line->hi;
    search->grows = line->path_bytes == 7 && memcmp(line->path, "[stack]", 7) == 0;
    return false;
}

/* Stack bounds of the calling thread. pthread_getattr_np knows them exactly, but allocates: only where no allocator can be further up the stack. */
static void find_stack(struct np_slot *slot, bool may_allocate) {
    if (may_allocate && slot->pid != slot->tid && !np_is_confined) { /* it asks for the affinity, too */
        pthread_attr_t attributes;
        void *low = NULL;
        size_t bytes = 0;
        if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
            if (pthread_attr_getstack(&attributes, &low, &bytes) == 0) {
                slot->stack_lo = (uintptr_t)low;
                slot->stack_hi = (uintptr_t)low + bytes;
            }
            pthread_attr_destroy(&attributes);
        }
        uintptr_t here = (uintptr_t)__builtin_frame_address(0);
        if (here >= slot->stack_lo && here < slot->stack_hi) return;
    }
    struct stack_search search = {.here = (uintptr_t)__builtin_frame_address(0)};
    np_maps_each(holds_our_stack, &search);
    slot->stack_lo = search.lo;
    slot->stack_hi = search.hi;
    /* An emulator maps the whole of its guest's. */
    if (slot->pid == slot->tid && !np_arena->emulated) np_stack_growing(slot, search.grows, search.below);
}

static void put_thread_start(struct np_slot *slot, const struct np_birth *birth, uint64_t order) {
    np_scratch(slot)->born = order;
    uint64_t *words = np_begin(slot, NP_REC_THREAD_START, slot->thread_index, 9, order);
    if (words == NULL) return;
    uint64_t cpu = np_track_only ? NP_NONE32 : slot->cpu, node = np_track_only ? NP_NONE32 : slot->node;
    words[2] = slot->pid | (uint64_t)slot->tid << 32;
    words[3] = slot->parent_thread | (uint64_t)slot->process_index << 32;
    words[4] = cpu | node << 32;
    words[5] = slot->stack_lo;
    words[6] = slot->stack_hi;
    words[7] = birth->start;
    words[8] = birth->stack_id;
    np_commit(slot, 9);
}

static void put_name_of(struct np_slot *slot, const char *name, size_t bytes, uint64_t order) {
    unsigned words_needed = 2 + np_words_for(bytes);
    uint64_t *words = np_begin(slot, NP_REC_THREAD_NAME, bytes, words_needed, order);
    if (words == NULL) return;
    np_put_bytes(words + 2, name, bytes);
    np_commit(slot, words_needed);
}

static void put_name(struct np_slot *slot, const char *name, uint64_t order) {
    size_t bytes = strnlen(name, sizeof np_tls.name - 1);
    memset(np_tls.name, 0, sizeof np_tls.name);
    memcpy(np_tls.name, name, bytes);
    put_name_of(slot, name, bytes, order);
}

/* Cut as the kernel cuts it; written if it is news. */
static void note_name(struct np_slot *slot, const char *given, uint64_t order) {
    char name[sizeof np_tls.name] = {0};
    memcpy(name, given, strnlen(given, sizeof name - 1));
    if (strncmp(name, np_tls.name, sizeof name) != 0) put_name(slot, name, order);
}

/* The name that the calling thread begins with: its creator's, or, where nobody told us, the kernel's. No later one is asked for: a thread may have given up
 * the right to ask. */
static void put_first_name(struct np_slot *slot, const struct np_birth *birth, uint64_t order) {
    char name[sizeof np_tls.name] = {0};
    memcpy(name, birth->name, sizeof name);
    if (name[0] != 0 || (!np_is_confined && NP_SYS2(SYS_prctl, PR_GET_NAME, name) == 0)) note_name(slot, name, order);
}

/* Names that others gave to this thread since. */
static void put_new_name(struct np_slot *slot) {
    struct np_tls *tls = &np_tls;
    if (!__atomic_load_n(&tls->has_new_name, __ATOMIC_ACQUIRE)) return;
    uint64_t name[2] = {np_load(tls->new_name[0]), np_load(tls->new_name[1])};
    note_name(slot, (const char *)name, np_order());
    np_store(tls->has_new_name, false);
}

/* The kernel's number of the calling thread. Where it may not be asked: the C library writes what it knows into a mutex that is locked. */
uint32_t np_own_tid(void) {
    if (!np_is_confined) return (uint32_t)NP_SYS0(SYS_gettid);
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    NP_REAL(pthread_mutex_lock)(&mutex);
    uint32_t tid = (uint32_t)mutex.__data.__owner;
    NP_REAL(pthread_mutex_unlock)(&mutex);
    return tid;
}

static uint32_t own_pid; /* as the last thread of this process found it */

static struct np_slot *prepare_slot(const struct np_birth *birth) {
    struct np_slot *slot = np_slot_claim();
    if (slot == NULL) return NULL;
    if (!np_is_confined || np_load(own_pid) == 0) np_store(own_pid, (uint32_t)NP_SYS0(SYS_getpid));
    np_store(slot->pid_namespace, np_pid_namespace);
    np_store(slot->pid, np_load(own_pid));
    np_store(slot->tid, np_own_tid());
    np_store(slot->process_index, np_process_index);
    slot->parent_thread = birth->parent_thread;
    np_store(slot->thread_index, __atomic_fetch_add(&np_arena->next_thread_index, 1, __ATOMIC_RELAXED));
    uint64_t seed = np_arena->config.seed + (uint64_t)(slot->thread_index + 1) * 0x9e3779b97f4a7c15ull;
    slot->rng = (seed ^ seed >> 29) | 1;
    slot->in_hook = 1;
    return slot;
}

struct np_slot *np_thread_begin(const struct np_birth *birth) {
    struct np_tls *tls = &np_tls;
    int saved = errno;
    tls->phase = NP_PHASE_BUSY;
    struct np_slot *slot = prepare_slot(birth);
    if (slot == NULL) {
        tls->phase = NP_PHASE_NO_SLOT;
        np_count_lost(NP_LOST_NO_SLOT, 1);
        if (birth->start != 0) np_vtime_birth_done(birth->creator_clock); /* nobody is to wait for its clock: it has none */
        errno = saved;
        return NULL;
    }
    find_stack(slot, birth->start != 0);
    np_filter_thread_start(slot);
    /* The C library keeps stacks of threads that ended, without their pages, and unmaps those that it does not keep. */
    if (slot->pid != slot->tid) np_pages_settle(slot->stack_lo, slot->stack_hi - slot->stack_lo);
    np_vtime_thread_start(slot, birth->creator_clock);
    np_numa_thread_start(slot, birth->heir_of, birth->has_affinity ? birth->affinity : NULL);
    tls->slot = slot;
    tls->end_rounds = 0;
    tls->nested = 0;
    if (has_end_key) pthread_setspecific(end_key, slot);
    __atomic_store_n(&slot->state, NP_SLOT_LIVE, __ATOMIC_RELEASE);
    uint64_t order = birth->order != 0 ? birth->order : np_order();
    put_thread_start(slot, birth, order);
    put_first_name(slot, birth, order); /* with its start: a forked process' start, as early, is written after it, and the rings are merged record by record */
    tls->phase = NP_PHASE_LIVE;
    slot->in_hook = 0;
    np_set_callouts_slot(slot);
    errno = saved;
    return slot;
}

static void close_slot(struct np_slot *slot) {
    np_toucher_ended(slot);
    np_counters(slot, true);
    uint64_t *words = np_begin(slot, NP_REC_THREAD_END, slot->thread_index, 2, np_order());
    if (words != NULL) np_commit(slot, 2);
    np_vtime_thread_end(slot);
    __atomic_store_n(&slot->state, NP_SLOT_CLOSED, __ATOMIC_RELEASE);
}

void np_thread_end(bool goes_on) {
    struct np_tls *tls = &np_tls;
    struct np_slot *slot = tls->slot;
    if (slot == NULL || tls->phase != NP_PHASE_LIVE) return;
    int saved = errno;
    np_guard_for_good(slot);
    np_set_callouts_slot(NULL);
    put_new_name(slot);
    remember_end(slot);
    tls->phase = NP_PHASE_ENDED;
    tls->slot = NULL;
    tls->ended_slot = slot;
    tls->ended_generation = slot->generation;
    close_slot(slot);
    if (goes_on && tls->stacks != NULL) np_pages_free(tls->stacks, NP_STACK_CACHE_BYTES); /* as the C library unmaps the thread's stack */
    tls->stacks = NULL;
    errno = saved;
}

/* The C library frees a thread's dynamic storage after the last destructor; in detached threads, which nobody joins, it does so in the thread
 * itself. The recorder keeps a closed slot for its thread while that lives, so this fails only if the recorder cannot see the thread. */
NP_COLD void np_thread_freed_after_end(void *block, uint64_t order) {
    struct np_tls *tls = &np_tls;
    struct np_slot *slot = tls->ended_slot;
    uint32_t expected = NP_SLOT_CLOSED;
    if (slot == NULL || !*np_fork_canary
        || !__atomic_compare_exchange_n(&slot->state, &expected, NP_SLOT_LIVE, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
        np_count_lost(NP_LOST_AFTER_END, 1);
        return;
    }
    if (np_load(slot->generation) != tls->ended_generation) np_count_lost(NP_LOST_AFTER_END, 1); /* another thread's, closed as well */
    else if (np_begin(slot, NP_REC_FREE, (uintptr_t)block, 2, order) != NULL) np_commit(slot, 2);
    __atomic_store_n(&slot->state, NP_SLOT_CLOSED, __ATOMIC_RELEASE);
}

static void on_thread_exit(void *value) {
    if (np_tls.slot == NULL || *np_fork_canary == 0) return;
    if (++np_tls.end_rounds < LAST_END_ROUND) pthread_setspecific(end_key, value);
    else np_thread_end(true);
}

void np_thread_init(void) {
    has_end_key = pthread_key_create(&end_key, on_thread_exit) == 0;
}

/* -- pthread_create, thrd_create -- */

struct start {
    uint32_t taken;
    struct np_birth birth;
    void *(*routine)(void *);
    int (*c11_routine)(void *);
    void *argument;
};
static struct start pool[POOL_ENTRIES];
static uint32_t pool_hint;

static struct start *take_start(void) {
    uint32_t hint = __atomic_fetch_add(&pool_hint, 1, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < POOL_ENTRIES; i++) {
        struct start *entry = &pool[(hint + i) % POOL_ENTRIES];
        if (__atomic_exchange_n(&entry->taken, 1, __ATOMIC_ACQUIRE) == 0) return entry;
    }
    return NULL;
}

static void give_start(struct start *entry) {
    __atomic_store_n(&entry->taken, 0, __ATOMIC_RELEASE);
}

/* A filled entry, or NULL when the thread shall start unhooked (not recording, or 512 threads made and none of them begun). */
static struct start *prepare_start(uintptr_t routine, struct np_regs caller) {
    struct np_slot *slot = np_slot_here();
    if (slot == NULL || !np_enter(slot)) return NULL;
    struct start *entry = take_start();
    if (entry != NULL) {
        np_pages_before_threads(slot);
        entry->birth = (struct np_birth){
            .parent_thread = slot->thread_index,
            .stack_id = np_stack_id(slot, caller),
            .creator_clock = np_track_only ? 0 : np_stamp_clock(slot),
            .start = routine,
        };
        memcpy(entry->birth.name, np_tls.name, sizeof entry->birth.name);
        np_vtime_birth(entry->birth.creator_clock);
    }
    np_leave(slot);
    return entry;
}

/* In a section of their own: these frames end every stack of the thread (unwind.c). */
#define TRAMPOLINE __attribute__((noinline, section("np_trampolines")))

/* The thread may have begun already, by a hook in the C library's own start of it. */
static void begin(const struct np_birth *birth) {
    if (np_tls.phase == NP_PHASE_NEW) np_thread_begin(birth);
    else np_vtime_birth_done(birth->creator_clock);
}

static TRAMPOLINE void *begin_pthread(void *entry) {
    struct start start = *(struct start *)entry;
    begin(&start.birth);
    give_start(entry);
    np_planner_thread_began(start.birth.start);
    void *result = start.routine(start.argument);
    __asm__ volatile("" : "+r"(result)); /* not a tail call */
    return result;
}

static TRAMPOLINE int begin_c11(void *entry) {
    struct start start = *(struct start *)entry;
    begin(&start.birth);
    give_start(entry);
    np_planner_thread_began(start.birth.start);
    int result = start.c11_routine(start.argument);
    __asm__ volatile("" : "+r"(result));
    return result;
}

void np_thread_meet_planner(struct np_planner_abi *planner) {
    planner->begin_pthread = begin_pthread;
    planner->begin_c11 = begin_c11;
}

NP_EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *), void *argument) {
    np_before_threads();
    struct start *entry = prepare_start((uintptr_t)routine, NP_CALLER_REGS());
    if (entry == NULL) return NP_REAL(pthread_create)(thread, attributes, routine, argument);
    entry->birth.has_affinity = np_attr_affinity(attributes, entry->birth.affinity);
    entry->routine = routine;
    entry->argument = argument;
    int result = NP_REAL(pthread_create)(thread, attributes, begin_pthread, entry);
    if (result != 0) {
        np_vtime_birth_done(entry->birth.creator_clock);
        give_start(entry);
    }
    return result;
}

NP_EXPORT int thrd_create(thrd_t *thread, thrd_start_t routine, void *argument) {
    np_before_threads();
    struct start *entry = prepare_start((uintptr_t)routine, NP_CALLER_REGS());
    if (entry == NULL) return NP_REAL(thrd_create)(thread, routine, argument);
    entry->c11_routine = routine;
    entry->argument = argument;
    int result = NP_REAL(thrd_create)(thread, begin_c11, entry);
    if (result != thrd_success) {
        np_vtime_birth_done(entry->birth.creator_clock);
        give_start(entry);
    }
    return result;
}

/* -- clone() of threads -- */

static TRAMPOLINE int begin_clone(void *entry) {
    struct start start = *(struct start *)entry;
    give_start(entry);
    /* Its storage is its creator's, which goes on using it: this slot is found by thread number only. */
    struct np_slot *slot = prepare_slot(&start.birth);
    if (slot != NULL) {
        np_filter_thread_start(slot);
        np_vtime_thread_start(slot, start.birth.creator_clock);
        np_numa_thread_start(slot, NULL, NULL);
        __atomic_store_n(&slot->state, NP_SLOT_LIVE, __ATOMIC_RELEASE);
        put_thread_start(slot, &start.birth, np_order());
        slot->in_hook = 0;
        np_emulator_slot(slot);
    } else {
        np_vtime_birth_done(start.birth.creator_clock);
    }
    int result = start.c11_routine(start.argument);
    if (slot != NULL) {
        np_guard_for_good(slot);
        np_emulator_slot(NULL);
        close_slot(slot);
    }
    return result;
}

NP_EXPORT int clone(int (*routine)(void *), void *stack, int flags, void *argument, ...) {
    va_list rest;
    va_start(rest, argument);
    pid_t *parent_tid = va_arg(rest, pid_t *);
    void *tls = va_arg(rest, void *);
    pid_t *child_tid = va_arg(rest, pid_t *);
    va_end(rest);
    np_before_threads();
    struct start *entry = NULL;
    /* Without a routine it fails, and must not with ours. */
    if (routine != NULL && (flags & CLONE_VM) && !(flags & (CLONE_SETTLS | CLONE_VFORK)) && np_load(np_arena) != NULL)
        entry = prepare_start((uintptr_t)routine, NP_CALLER_REGS());
    if (entry == NULL) return NP_REAL(clone)(routine, stack, flags, argument, parent_tid, tls, child_tid);
    __atomic_store_n(&np_tls_is_shared, true, __ATOMIC_SEQ_CST);
    entry->c11_routine = routine;
    entry->argument = argument;
    int result = NP_REAL(clone)(begin_clone, stack, flags, entry, parent_tid, tls, child_tid);
    if (result < 0) {
        np_vtime_birth_done(entry->birth.creator_clock);
        give_start(entry);
    }
    return result;
}

/* -- names -- */

/* Another thread's state lies as far from its descriptor as ours does from our own: its storage of this kind is laid out with its descriptor. */
static struct np_tls *state_of(pthread_t thread) {
    return (struct np_tls *)((uintptr_t)thread + ((uintptr_t)&np_tls - (uintptr_t)pthread_self()));
}

/* `other`: NULL, the calling thread has the new name. Another writes it when it ends: its ring is its own. */
static void named(const pthread_t *other, const char *name) {
    struct np_slot *slot = name != NULL ? np_slot_here() : NULL;
    if (slot == NULL || !np_enter(slot)) return;
    if (other == NULL) {
        np_store(np_tls.has_new_name, false);
        note_name(slot, name, np_order());
    } else if (!np_load(np_tls_is_shared)) {
        struct np_tls *tls = state_of(*other);
        uint64_t words[2] = {0, 0};
        memcpy(words, name, strnlen(name, sizeof words - 1));
        np_store(tls->new_name[0], words[0]);
        np_store(tls->new_name[1], words[1]);
        __atomic_store_n(&tls->has_new_name, true, __ATOMIC_RELEASE); /* with the acquire in put_new_name */
    }
    np_leave(slot);
}

void np_thread_called(const char *name) {
    struct np_slot *slot = np_slot_here();
    if (slot == NULL || !np_enter(slot)) return;
    put_name_of(slot, name, strnlen(name, WHOLE_NAME_BYTES_MAX), np_order());
    np_leave(slot);
}

NP_EXPORT int pthread_setname_np(pthread_t thread, const char *name) {
    int result = NP_REAL(pthread_setname_np)(thread, name);
    if (result == 0) named(pthread_equal(thread, pthread_self()) ? NULL : &thread, name);
    return result;
}

/* What a call of prctl is to be told of before and after it. */
static bool before_prctl(int option) {
    bool confines = option == PR_SET_SECCOMP && !np_is_confined;
    if (confines) np_confinement_begins();
    return confines;
}

static void after_prctl(int option, const char *name, bool confines, long result) {
    if (confines && result != 0) np_confinement_failed();
    if (result == 0 && option == PR_SET_NAME) named(NULL, name);
}

NP_EXPORT int prctl(int option, ...) {
    va_list rest;
    va_start(rest, option);
    unsigned long a = va_arg(rest, unsigned long), b = va_arg(rest, unsigned long);
    unsigned long c = va_arg(rest, unsigned long), d = va_arg(rest, unsigned long);
    va_end(rest);
    bool confines = before_prctl(option);
    int result = NP_REAL(prctl)(option, a, b, c, d);
    after_prctl(option, (const char *)a, confines, result);
    return result;
}

/* By number. */
NP_HIDDEN long np_syscall_prctl(long number, long option, long a, long b, long c, long d) {
    bool confines = before_prctl((int)option);
    long result = np_syscall_real(number, option, a, b, c, d);
    after_prctl((int)option, (const char *)a, confines, result);
    return result;
}

/* In a forked child: only this thread is left, and it must not touch its parent's ring. process.c goes on from here. */
void np_thread_after_fork(void) {
    memset(pool, 0, sizeof pool);
    memset(ended_threads, 0, sizeof ended_threads);
    own_pid = np_is_confined ? np_own_tid() : 0; /* its only thread has the process's number */
    np_tls_is_shared = false;
}
