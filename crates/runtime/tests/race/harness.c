/* harness.c: drives the runtime's own functions from many threads, in one program that a thread sanitizer watches: tests/race.rs compiles the runtime's files
 * with -fsanitize=thread and calls its hooks `hook_...`, so that the sanitizer's own stand before libc. `harness ROUNDS`; NUMAPILOT_ARENA as ever. */
#define _GNU_SOURCE
#include "track.h"
#include "vtime.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define THREADS 8
#define LINES 4096

extern int hook_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *), void *argument);
extern int hook_pthread_join(pthread_t thread, void **result);
extern int hook_pthread_mutex_lock(pthread_mutex_t *mutex);
extern int hook_pthread_mutex_unlock(pthread_mutex_t *mutex);
extern int hook_pthread_rwlock_rdlock(pthread_rwlock_t *lock);
extern int hook_pthread_rwlock_wrlock(pthread_rwlock_t *lock);
extern int hook_pthread_rwlock_unlock(pthread_rwlock_t *lock);
extern int hook_pthread_barrier_wait(pthread_barrier_t *barrier);
extern int hook_sem_wait(sem_t *semaphore);
extern int hook_sem_post(sem_t *semaphore);
extern void *hook_dlsym(void *handle, const char *name);
extern int hook_pthread_setname_np(pthread_t thread, const char *name);
extern void *hook_malloc(size_t bytes);
extern void hook_free(void *block);
extern void *hook_realloc(void *block, size_t bytes);
extern void *hook__Znwm(size_t bytes);
extern void hook__ZdlPv(void *block);
extern void *hook_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
extern int hook_munmap(void *address, size_t bytes);
extern int hook_getrlimit(int resource, struct rlimit *limits);
extern int hook_setrlimit(int resource, const struct rlimit *wanted);
/* The call-outs (`__tsan_read8` and so on): tests/race.rs has given them names of their own. */
extern void hook_callout_read8(void *pointer);
extern void hook_callout_write8(void *pointer);
extern void hook_callout_unaligned_write4(void *pointer);
extern void hook_callout_read_range(void *pointer, size_t bytes);
extern uint32_t hook_callout_atomic32_load(const volatile uint32_t *pointer, int order);
extern void hook_callout_atomic32_store(volatile uint32_t *pointer, uint32_t value, int order);
extern uint32_t hook_callout_atomic32_fetch_add(volatile uint32_t *pointer, uint32_t value, int order);
extern int hook_madvise(void *address, size_t bytes, int advice);
/* What the linker makes of an instrumented program's calls (`--wrap`). */
extern void *hook___wrap_memcpy(void *to, const void *from, size_t bytes);
extern void *hook___wrap_memmove(void *to, const void *from, size_t bytes);
extern void *hook___wrap_memset(void *to, int value, size_t bytes);
extern int hook___wrap_memcmp(const void *left, const void *right, size_t bytes);
extern size_t hook___wrap_strlen(const char *text);

static pthread_mutex_t mutexes[4] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static sem_t semaphore;
static void *mailboxes[THREADS];
static pthread_t peers[THREADS]; /* of this life; written before its first barrier */
static char *memory;
static unsigned rounds, arrived[THREADS];

static struct np_regs here(void) { return (struct np_regs){(uintptr_t)__builtin_return_address(0), 0, 0}; }

/* As an instrumented program's code does before its accesses. */
static void call_out(unsigned state) {
    char *at = memory + (state >> 8) % (LINES - 2) * 64;
    if (state >> 31) hook_callout_write8(at);
    else hook_callout_read8(at);
    hook_callout_unaligned_write4(at + 62);
    hook_callout_read_range(at, 100);
}

/* Without call-outs of its own: most accesses hit the first-stage filter, which counts them; the rest comes here. */
static void touch(unsigned state, unsigned lines) {
    struct np_slot *slot = np_self();
    if (slot == NULL) return;
    for (unsigned i = 0; i < lines; i++) {
        state = state * 1664525u + 1013904223u;
        uintptr_t address = (uintptr_t)memory + (state >> 8) % LINES * 64;
        __atomic_store_n(&slot->accesses, slot->accesses + 1, __ATOMIC_RELAXED);
        np_access_miss(slot, address, (state >> 30) == 0 ? NP_ACC_WRITE : 0, here());
        call_out(state);
    }
    np_access_range(slot, (uintptr_t)memory + (state >> 8) % LINES * 32, 5000, state >> 31, here());
}

static void locks(unsigned index, unsigned i) {
    pthread_mutex_t *mutex = &mutexes[(index + i) % 4];
    hook_pthread_mutex_lock(mutex);
    touch(i * 7 + index, 3);
    hook_pthread_mutex_unlock(mutex);
    if (i % 4 == 0) hook_pthread_rwlock_wrlock(&rwlock);
    else hook_pthread_rwlock_rdlock(&rwlock);
    touch(i, 2);
    hook_pthread_rwlock_unlock(&rwlock);
    if (i % 2 == 0) hook_sem_post(&semaphore);
    else hook_sem_wait(&semaphore);
}

/* All threads of a round go on at the last one's broadcast. The hook would find the C library's oldest pthread_cond_wait, of which the sanitizer knows
 * nothing: the real calls, with what the hook does around them. */
static void rendezvous(unsigned i) {
    static unsigned count, round;
    struct np_slot *slot = np_self();
    if (slot == NULL) return;
    uint64_t notices, ticket = np_cond_begin(slot, (uintptr_t)&condition, &notices), wake = 0;
    np_block_begin(slot);
    pthread_mutex_lock(&plain);
    unsigned mine = round;
    if (++count == THREADS) {
        count = 0;
        round++;
        np_cond_notify(slot, (uintptr_t)&condition, true);
        pthread_cond_broadcast(&condition);
    }
    while (mine == round) pthread_cond_wait(&condition, &plain);
    pthread_mutex_unlock(&plain);
    uint64_t clock = np_cond_end(slot, (uintptr_t)&condition, ticket, true, &wake);
    np_block_end(slot);
    if (wake != 0) np_vtime_birth_done(wake);
    np_clock_wait_until(slot, clock, NP_SYNC_COND, (uintptr_t)&condition);
    touch(i, 1);
}

/* Of the thread's own memory: what the program copies may be one thread's alone, and what the call-outs note of it is not. */
static void copies(unsigned i) {
    char from[300], to[300];
    size_t bytes = 1 + i * 37 % (sizeof from - 1);
    hook___wrap_memset(from, 1, sizeof from - 1);
    from[sizeof from - 1] = 0;
    hook___wrap_memcpy(to, from, bytes);
    hook___wrap_memmove(to, to + bytes / 2, bytes - bytes / 2);
    if (hook___wrap_memcmp(to, from, bytes - bytes / 2) != 0 || hook___wrap_strlen(from) != sizeof from - 1) abort();
}

static void blocks(unsigned index, unsigned i) {
    void *block = hook_realloc(hook_malloc(24 + i % 64), 100 + i % 200);
    hook_free(__atomic_exchange_n(&mailboxes[(index + i) % THREADS], block, __ATOMIC_ACQ_REL));
    hook__ZdlPv(hook__Znwm(40 + i % 8));
    char *pages = hook_mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct np_slot *slot = np_self();
    if (slot != NULL) np_access_range(slot, (uintptr_t)pages, 1 << 14, NP_ACC_WRITE, here());
    hook_madvise(pages, 1 << 15, MADV_DONTNEED);
    hook_munmap(pages, 1 << 16);
    if (i % 16 == 1) hook_dlsym(NULL, "strlen");
    if (i % 16 == 2) hook_pthread_setname_np(pthread_self(), i % 32 == 2 ? "even" : "odd");
    /* Its ring is its own: the name waits for it. Not in the last rounds, when it may have ended. */
    if (i % 16 == 4 && i + 8 < rounds) hook_pthread_setname_np(peers[(index + 1) % THREADS], "given");
    struct rlimit limit;
    if (i % 16 == 3 && hook_getrlimit(RLIMIT_AS, &limit) == 0 && hook_setrlimit(RLIMIT_AS, &limit) == 0) np_limit_exec_failed();
    if (i % 16 == 0) hook_madvise(memory, 1 << 16, MADV_DONTNEED);
}

static void atomics(unsigned index) {
    struct np_slot *slot = np_self();
    if (slot == NULL) return;
    np_release(slot, (uintptr_t)&arrived[index]);
    np_acquire(slot, (uintptr_t)&arrived[(index + 1) % THREADS]);
    np_rmw(slot, (uintptr_t)&arrived[0]);
    np_filter_poke(slot);
    hook_callout_atomic32_fetch_add(&arrived[index], 1, __ATOMIC_ACQ_REL);
    hook_callout_atomic32_store(&arrived[(index + 1) % THREADS], hook_callout_atomic32_load(&arrived[0], __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
}

static void *work(void *argument) {
    unsigned index = (unsigned)(uintptr_t)argument;
    peers[index] = pthread_self();
    for (unsigned i = 0; i < rounds; i++) {
        touch(i * 131 + index, 64);
        blocks(index, i);
        locks(index, i);
        atomics(index);
        copies(i);
        if (i % 8 == 0) hook_pthread_barrier_wait(&barrier);
        if (i % 8 == 4) rendezvous(i);
    }
    void *last = hook_malloc(77);
    np_thread_end(true); /* not in the last round of key destructors: the sanitizer is gone by then */
    hook_free(last);
    return NULL;
}

/* Threads of other preloaded libraries are there before the tracker's constructor, and come into its hooks while it attaches. */
#define EARLY 3
static pthread_t early[EARLY];
static bool is_started; /* main runs: they end */

static void *begin_early(void *unused) {
    while (!__atomic_load_n(&is_started, __ATOMIC_ACQUIRE)) {
        hook_free(hook_realloc(hook_malloc(40), 100));
        void *pages = hook_mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        hook_callout_write8(pages);
        hook_callout_read8(pages);
        hook_munmap(pages, 4096);
    }
    np_thread_end(true);
    return unused;
}

__attribute__((constructor(101))) static void start_early(void) {
    for (unsigned i = 0; i < EARLY; i++)
        if (pthread_create(&early[i], NULL, begin_early, NULL) != 0) abort();
}

/* Deadlines that are to mean never: the latest time there is, and one whose nanoseconds from now would be 0.29 s, counted in 64 bits. */
static bool never_is_far(void) {
    struct timespec latest = {INT64_MAX, 999999999}, wrapped;
    clock_gettime(CLOCK_REALTIME, &wrapped);
    wrapped.tv_sec += 18446744074;
    uint64_t year = np_cycles_of_ns(365ull * 86400 * 1000000000);
    return np_cycles_until(CLOCK_REALTIME, &latest) > year && np_cycles_until(CLOCK_REALTIME, &wrapped) > year;
}

/* What a waiter is told that timed out (`due_ns`: never): of two, a signal wakes one; of one, it was for that. */
static bool misses_are_known(void) {
    static char own, other;
    uintptr_t at = (uintptr_t)&own;
    struct np_slot *slot = np_self();
    uint64_t notices = 0, seen = 0, wake, began = np_monotonic_ns();
    if (slot == NULL || !np_cond_may_have_missed(slot, (uintptr_t)&other, UINT64_MAX, &notices)) return false;
    uint64_t first = np_cond_begin(slot, at, &notices), second = np_cond_begin(slot, at, &notices);
    bool is_right = !np_cond_may_have_missed(slot, at, began, &notices);
    np_cond_notify(slot, at, false);
    is_right &= np_cond_may_have_missed(slot, at, began, &notices) && !np_cond_may_have_missed(slot, at, UINT64_MAX, &notices);
    np_cond_end(slot, at, first, true, &wake);
    seen = notices;
    np_cond_notify(slot, at, false);
    is_right &= np_cond_may_have_missed(slot, at, UINT64_MAX, &notices) && !np_cond_may_have_missed(slot, at, UINT64_MAX, &notices);
    np_cond_notify(slot, at, true);
    is_right &= np_cond_may_have_missed(slot, at, UINT64_MAX, &notices) && np_cond_may_have_missed(slot, at, UINT64_MAX, &seen);
    np_cond_end(slot, at, second, true, &wake);
    return is_right;
}

int main(int count, char **arguments) {
    if (count != 2 || np_arena == NULL) return 2;
    if (!never_is_far() || !misses_are_known()) return 4;
    __atomic_store_n(&is_started, true, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < EARLY; i++) pthread_join(early[i], NULL);
    rounds = (unsigned)atoi(arguments[1]);
    memory = mmap(NULL, LINES * 64, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_barrier_init(&barrier, NULL, THREADS);
    sem_init(&semaphore, 0, THREADS);
    for (int life = 0; life < 2; life++) {
        pthread_t threads[THREADS];
        for (uintptr_t i = 0; i < THREADS; i++)
            if (hook_pthread_create(&threads[i], NULL, work, (void *)i) != 0) return 3;
        for (int i = 0; i < THREADS; i++) hook_pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < THREADS; i++) hook_free(mailboxes[i]);
    puts("done");
    return 0;
}
