/* vtime.c: the program clock of each thread, and the window that keeps clocks together. The rules: docs/virtual-time.md.
 *
 * A clock is computed, never stored: np_clock_of(slot). Others read it racily, which is harmless: each of its two fields only
 * grows, and every decision taken from it is checked again.
 *
 * The window: a thread whose clock is more than config.window_cycles ahead of the slowest running thread sleeps in host time.
 * It notifies the slowest thread of the clock at which that is over (by lowering its next_throttle), and the slowest wakes it there; every
 * sleep also ends by itself after SLEEP_NS, so a lost wake-up costs milliseconds and never a deadlock. Threads in known
 * waits (np_block_begin) are left out; one that makes no progress for an unknown reason is found by watch().
 */
#define _GNU_SOURCE
#include "vtime.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>

#define SLEEP_NS 2000000       /* longest sleep before a throttled thread looks around by itself */
#define FIRST_SLEEP_NS 250000  /* the same for the sleeper that is next in line: the slowest may run in a loop without calls to us */
#define STALL_NS 1000000       /* without progress for this long a laggard is looked at in /proc */
#define STALL_ASLEEP_NS 20000000 /* the same for one that sleeps for the window itself, in case it never comes back from there */
#define STALL_CPU_NS 5000000   /* CPU time without progress: it computes in code that is not instrumented */
#define STALL_KERNEL_NS 20000000 /* uninterruptible: it waits in the kernel for a disk, or for a lock (of its process's memory) whose holder has no CPU */
#define STALL_WAIT_NS 1000000000 /* runnable but without CPU for this long: the host is too busy, go on without it. A quota of CPU time takes less away. */

uint32_t np_cycles_per_access_q8;
static struct np_vtime_process own_process;
struct np_vtime_process *np_vtime_process = &own_process;

uint64_t np_monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

uint64_t np_cycles_of_ns(uint64_t ns) {
    return (uint64_t)((unsigned __int128)ns * np_arena->config.clock_khz / 1000000u);
}

uint64_t np_stamp_clock(const struct np_slot *slot) {
    return np_vtime_on() ? np_clock_of(slot) : np_real_clock(np_order());
}

/* Other threads read stall_cycles at any time: a plain store of the word, never torn. */
static void add_stall(struct np_slot *slot, uint64_t cycles) {
    np_add(slot->stall_cycles, cycles);
}

void np_clock_advance(struct np_slot *slot, uint64_t cycles) {
    add_stall(slot, cycles);
}

/* Running threads of one virtual CPU take turns: with n of them, work takes n times as long. */
void np_share_charge(struct np_slot *slot) {
    struct np_vtime_slot *vt = np_vt(slot);
    uint64_t clock = np_clock_of(slot);
    uint32_t load = np_load(vt->on_cpu) != 0 ? __atomic_load_n(&np_arena->cpu_load[slot->cpu], __ATOMIC_RELAXED) : 1;
    if (load > 1 && clock > vt->share_clock) add_stall(slot, (clock - vt->share_clock) * (load - 1));
    vt->share_clock = np_clock_of(slot);
}

static void record_sync(struct np_slot *slot, uint64_t begin, enum np_sync_kind kind, uint64_t object) {
    uint64_t *record = np_begin(slot, NP_REC_SYNC, object & 0xffffffffffffull, 4, np_order());
    if (record == NULL) return;
    record[2] = kind;
    record[3] = begin;
    np_commit(slot, 4);
}

static uint64_t move_clock(struct np_slot *slot, uint64_t clock, enum np_sync_kind kind, uint64_t object) {
    np_share_charge(slot);
    uint64_t begin = np_clock_of(slot);
    if (clock <= begin) return 0;
    add_stall(slot, clock - begin);
    np_vt(slot)->share_clock = clock;
    if (clock - begin >= NP_SYNC_RECORD_MIN_CYCLES) record_sync(slot, begin, kind, object);
    return clock - begin;
}

void np_clock_wait_until(struct np_slot *slot, uint64_t clock, enum np_sync_kind kind, uint64_t object) {
    if (!np_vtime_on()) return;
    slot->wait_cycles += move_clock(slot, clock, kind, object);
}

void np_clock_sleep(struct np_slot *slot, uint64_t cycles, enum np_sync_kind kind, uint64_t object) {
    if (!np_vtime_on() || cycles == 0) return;
    np_share_charge(slot);
    move_clock(slot, np_clock_of(slot) + cycles, kind, object);
}

/* ---- looking at the other threads ---- */

static uint64_t slots_used(void) {
    uint64_t high = __atomic_load_n(&np_arena->slots_high, __ATOMIC_ACQUIRE);
    return high < np_arena->slot_count ? high : np_arena->slot_count;
}

enum reach { IGNORED = 0, LOCK_WAITER = 1, RUNNING = 2 };

/* Whether the others have to respect a thread's clock. */
static enum reach reach_of(const struct np_slot *slot, uint64_t clock) {
    const struct np_vtime_slot *vt = np_vt(slot);
    uint32_t state = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);
    if ((state != NP_SLOT_LIVE && state != NP_SLOT_CLAIMED) || !__atomic_load_n(&vt->started, __ATOMIC_ACQUIRE)) return IGNORED;
    if (__atomic_load_n(&vt->stalled_clock, __ATOMIC_RELAXED) == clock + 1) return IGNORED;
    if (__atomic_load_n(&slot->run_state, __ATOMIC_ACQUIRE) == NP_RUN_RUNNING) return RUNNING;
    return __atomic_load_n(&vt->lock_wait, __ATOMIC_RELAXED) ? LOCK_WAITER : IGNORED;
}

/* Threads of this process that were created and have no slot yet. Their clock counts at once, otherwise the first of sixteen new threads
 * could end before the second begins. */
#define BIRTH_NS 100000000 /* a thread that did not begin after this long is forgotten */
#define WAKE_NS 10000000   /* and a wake-up: what was to end it may have taken another way */

static void expect(uint64_t creator_clock, uint64_t limit_ns) {
    uint64_t until_ns = np_monotonic_ns() + limit_ns;
    for (int i = 0; i < NP_BIRTHS; i++) {
        uint64_t none = 0;
        if (__atomic_load_n(&np_vtime_process->births[i].clock, __ATOMIC_RELAXED) != 0) continue;
        __atomic_store_n(&np_vtime_process->births[i].until_ns, until_ns, __ATOMIC_RELEASE); /* first: it may not be seen with an old limit */
        if (!__atomic_compare_exchange_n(&np_vtime_process->births[i].clock, &none, creator_clock + 1, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) continue;
        __atomic_fetch_add(&np_vtime_process->births_open, 1, __ATOMIC_SEQ_CST);
        return;
    }
}

void np_vtime_birth(uint64_t creator_clock) {
    if (np_vtime_on()) expect(creator_clock, BIRTH_NS);
}

void np_vtime_birth_done(uint64_t creator_clock) {
    if (!np_vtime_on()) return;
    for (int i = 0; i < NP_BIRTHS; i++) {
        uint64_t clock = creator_clock + 1;
        if (!__atomic_compare_exchange_n(&np_vtime_process->births[i].clock, &clock, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) continue;
        __atomic_fetch_sub(&np_vtime_process->births_open, 1, __ATOMIC_SEQ_CST);
        return;
    }
}

void np_wakes_begin(uint64_t clock, uint32_t count) {
    if (!np_vtime_on()) return;
    for (uint32_t i = 0; i < count && i < NP_BIRTHS; i++) expect(clock, WAKE_NS);
}

static uint64_t slowest_birth(void) {
    uint64_t slowest = UINT64_MAX;
    if (np_likely(__atomic_load_n(&np_vtime_process->births_open, __ATOMIC_SEQ_CST) == 0)) return slowest;
    uint64_t now = np_monotonic_ns();
    for (int i = 0; i < NP_BIRTHS; i++) {
        uint64_t clock = __atomic_load_n(&np_vtime_process->births[i].clock, __ATOMIC_SEQ_CST);
        if (clock == 0) continue;
        if (now > __atomic_load_n(&np_vtime_process->births[i].until_ns, __ATOMIC_RELAXED)) np_vtime_birth_done(clock - 1);
        else if (clock - 1 < slowest) slowest = clock - 1;
    }
    return slowest;
}

/* Two readings: [0] of running threads, for those that hold locks; [1] with threads that wait for locks, for all others. */
struct view {
    uint64_t slowest_clock[2]; /* UINT64_MAX: no thread runs */
    struct np_slot *slowest[2]; /* NULL: none, or a thread that has no slot yet or is being woken */
    uint32_t awake; /* running and not asleep for the window */
};

static int reading_for(const struct np_slot *slot) {
    return __atomic_load_n(&np_vt(slot)->locks_held, __ATOMIC_RELAXED) == 0;
}

static void consider(struct view *view, int reading, uint64_t clock, struct np_slot *slot) {
    if (clock >= view->slowest_clock[reading]) return;
    view->slowest_clock[reading] = clock;
    view->slowest[reading] = slot;
}

static uint64_t window(void) {
    uint32_t cycles = np_arena->config.window_cycles;
    return cycles > 64 ? cycles : 64;
}

static struct view look(const struct np_slot *except) {
    struct view view = {{UINT64_MAX, UINT64_MAX}, {NULL, NULL}, 0};
    struct np_slot *fastest = NULL;
    uint64_t used = slots_used(), fastest_clock = 0, unborn = slowest_birth();
    for (uint64_t i = 0; i < used; i++) {
        struct np_slot *slot = np_slot_at(i);
        uint64_t clock = np_clock_of(slot);
        enum reach reach = slot == except ? IGNORED : reach_of(slot, clock);
        if (reach == IGNORED) continue;
        consider(&view, 1, clock, slot);
        if (reach != RUNNING) continue;
        consider(&view, 0, clock, slot);
        if (__atomic_load_n(&np_vt(slot)->throttled, __ATOMIC_RELAXED) == 1) continue;
        view.awake++;
        if (clock > fastest_clock) {
            fastest = slot;
            fastest_clock = clock;
        }
    }
    consider(&view, 0, unborn, NULL);
    consider(&view, 1, unborn, NULL);
    uint64_t slowest = fastest != NULL ? view.slowest_clock[reading_for(fastest)] : 0;
    if (fastest != NULL && fastest_clock > slowest && fastest_clock - slowest > window()) np_filter_poke(fastest);
    return view;
}

/* How far inside the window a sleeper must be before it is worth waking. Most of the window, so that it then runs for long;
 * nearly nothing of it while host CPUs are idle. */
static uint64_t slack(uint32_t awake) {
    return awake < np_load(np_vtime_process->host_cpus) ? window() / 16 : window() / 4;
}

static void poke(struct np_slot *slowest, uint64_t clock) {
    if (clock < __atomic_load_n(&slowest->next_throttle, __ATOMIC_RELAXED))
        __atomic_store_n(&slowest->next_throttle, clock, __ATOMIC_RELAXED);
}

static void wake(struct np_slot *slot) {
    uint32_t asleep = 1;
    if (!__atomic_compare_exchange_n(&np_vt(slot)->throttled, &asleep, 2, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) return;
    __atomic_fetch_add(&np_vt(slot)->throttle_futex, 1, __ATOMIC_SEQ_CST);
    /* Without it the sleeper looks by itself, somewhat later. */
    if (!np_is_confined) np_sys(SYS_futex, (long)&np_vt(slot)->throttle_futex, FUTEX_WAKE, 1, 0, 0, 0);
}

/* Wakes every sleeper that may go on, given what the caller saw, and notifies the slowest thread when to do so for the rest. Returns the
 * first of the rest. */
static struct np_slot *release_sleepers(struct view view) {
    uint64_t used = slots_used(), first_clock = UINT64_MAX;
    struct np_slot *first = NULL;
    for (uint64_t i = 0; i < used; i++) {
        struct np_slot *slot = np_slot_at(i);
        if (__atomic_load_n(&np_vt(slot)->throttled, __ATOMIC_RELAXED) != 1) continue;
        uint64_t clock = np_clock_of(slot), slowest = view.slowest_clock[reading_for(slot)];
        if (reach_of(slot, clock) != RUNNING) continue;
        if (slowest >= clock || clock + slack(view.awake) <= slowest + window()) {
            wake(slot);
            view.awake++;
        } else if (clock < first_clock) {
            first = slot;
            first_clock = clock;
        }
    }
    if (first == NULL) return NULL;
    struct np_slot *slowest = view.slowest[reading_for(first)];
    if (slowest != NULL) poke(slowest, first_clock + slack(view.awake) - window());
    return first;
}

static bool sleepers(void) {
    return __atomic_load_n(&np_arena->epoch_waiters, __ATOMIC_SEQ_CST) != 0;
}

/* ---- laggards without progress ---- */

static long read_proc(const struct np_slot *slot, const char *name, char *buffer, long size) {
    if (np_is_confined) return -EPERM;
    char path[64];
    char *at = path;
    uint32_t numbers[2] = {slot->pid, slot->tid};
    const char *parts[3] = {"/proc/", "/task/", "/"};
    for (int i = 0; i < 3; i++) {
        for (const char *c = parts[i]; *c; c++) *at++ = *c;
        if (i == 2) break;
        char digits[12];
        int n = 0;
        for (uint32_t value = numbers[i]; n == 0 || value > 0; value /= 10) digits[n++] = (char)('0' + value % 10);
        while (n > 0) *at++ = digits[--n];
    }
    while (*name) *at++ = *name++;
    *at = 0;
    long fd = np_sys(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
    if (fd < 0) return fd;
    long got = np_sys(SYS_read, fd, (long)buffer, size - 1, 0, 0, 0);
    np_sys(SYS_close, fd, 0, 0, 0, 0, 0);
    if (got >= 0) buffer[got] = 0;
    return got;
}

static uint64_t cpu_time_ns(const struct np_slot *slot) {
    char text[96];
    uint64_t value = 0;
    if (read_proc(slot, "schedstat", text, sizeof text) <= 0) return 0;
    for (const char *c = text; *c >= '0' && *c <= '9'; c++) value = value * 10 + (uint64_t)(*c - '0');
    return value;
}

/* State letter of the thread, 0 if it is gone. */
static char proc_state(const struct np_slot *slot) {
    char text[512];
    if (read_proc(slot, "stat", text, sizeof text) <= 0) return 0;
    const char *close = strrchr(text, ')');
    return close != NULL && close[1] == ' ' ? close[2] : 0;
}

/* Called by a sleeper whose sleep timed out, for the thread that it waits for. */
static void watch(struct np_slot *laggard) {
    struct np_vtime_slot *vt = np_vt(laggard);
    uint64_t clock = np_clock_of(laggard);
    uint64_t now = np_monotonic_ns();
    /* Several watchers may write these three at once; a mixture of two of their looks is some milliseconds off, and costs one more look. */
    uint64_t since_ns = np_load(vt->seen_ns);
    if (np_load(vt->seen_clock) != clock || since_ns == 0) {
        np_store(vt->seen_clock, clock);
        np_store(vt->seen_cpu_ns, cpu_time_ns(laggard));
        np_store(vt->seen_ns, now);
        return;
    }
    if (now - since_ns < (np_load(vt->throttled) ? STALL_ASLEEP_NS : STALL_NS)) return;
    char state = proc_state(laggard);
    bool computes = state == 'R' && cpu_time_ns(laggard) - np_load(vt->seen_cpu_ns) >= STALL_CPU_NS;
    bool starved = state == 'R' && now - since_ns >= STALL_WAIT_NS;
    if (state == 'R' && !computes && !starved) return;
    if (state == 'D' && now - since_ns < STALL_KERNEL_NS) return;
    __atomic_store_n(&vt->stalled_clock, clock + 1, __ATOMIC_RELAXED);
    if (state != 'R') np_cpu_leave(laggard); /* asleep: it keeps nobody from its CPU, and comes back to one in throttle_slow */
    __atomic_store_n(&laggard->next_throttle, 0, __ATOMIC_RELAXED);
}

uint64_t np_clock_of_others(const struct np_slot *slot) {
    struct view view = look(slot);
    if (view.slowest[0] != NULL) watch(view.slowest[0]);
    uint64_t used = slots_used(), earliest = view.slowest_clock[0];
    for (uint64_t i = 0; i < used; i++) {
        const struct np_slot *other = np_slot_at(i);
        const struct np_vtime_slot *vt = np_vt(other);
        if (other == slot || __atomic_load_n(&other->state, __ATOMIC_ACQUIRE) != NP_SLOT_LIVE || !__atomic_load_n(&vt->started, __ATOMIC_ACQUIRE)) continue;
        /* In the opposite order of run_again's stores: who reads its 0 here reads its RUNNING below, though the thread was blocked when the view was taken. */
        uint64_t at = __atomic_load_n(&vt->goes_on_at, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&other->run_state, __ATOMIC_SEQ_CST) == NP_RUN_RUNNING) {
            at = np_clock_of(other);
            if (__atomic_load_n(&vt->stalled_clock, __ATOMIC_RELAXED) == at + 1) continue;
        } else if (at == 0) continue;
        if (at < earliest) earliest = at;
    }
    return earliest;
}

/* Time passed for the others while this thread was out of sight (unseen wait, code without instrumentation, I/O): it is not
 * allowed to come back further behind them than the window. */
static void catch_up(struct np_slot *slot, uint64_t slowest_clock) {
    if (slowest_clock == UINT64_MAX || slowest_clock < window()) return;
    move_clock(slot, slowest_clock - window(), NP_SYNC_IO, 0);
}

/* ---- the window ---- */

/* Also for a sleep that a signal handler jumped out of, or that its thread's end cut short. */
static void sleep_is_over(struct np_vtime_slot *vt) {
    __atomic_store_n(&vt->throttled, 0, __ATOMIC_SEQ_CST);
    if (__atomic_exchange_n(&vt->sleeping, 0, __ATOMIC_SEQ_CST) != 0) __atomic_fetch_sub(&np_arena->epoch_waiters, 1, __ATOMIC_SEQ_CST);
}

/* Sleeps until the slowest other thread has come near. */
static void sleep_for_window(struct np_slot *slot) {
    struct np_vtime_slot *vt = np_vt(slot);
    uint64_t clock = np_clock_of(slot);
    if (np_load(vt->sleeping) == 0) {
        __atomic_fetch_add(&np_arena->epoch_waiters, 1, __ATOMIC_SEQ_CST);
        np_store(vt->sleeping, 1);
    }
    for (;;) {
        uint32_t ticket = __atomic_load_n(&vt->throttle_futex, __ATOMIC_SEQ_CST);
        __atomic_store_n(&vt->throttled, 1, __ATOMIC_SEQ_CST);
        struct view view = look(slot);
        int reading = reading_for(slot);
        uint64_t slowest = view.slowest_clock[reading];
        if (slowest >= clock || clock + slack(view.awake) <= slowest + window()) break;
        bool first = release_sleepers(view) == slot;
        struct timespec timeout = {0, first ? FIRST_SLEEP_NS : SLEEP_NS};
        long result = np_sys(SYS_futex, (long)&vt->throttle_futex, FUTEX_WAIT, ticket, (long)&timeout, 0, 0);
        if (result == -ETIMEDOUT && view.slowest[reading] != NULL) watch(view.slowest[reading]);
        if (np_load(np_arena->state) != NP_STATE_RUN) break;
    }
    sleep_is_over(vt);
}

/* True when the thread left its outermost blocking call by longjmp or an exception: the stack is above the call's frame. A signal
 * handler that runs during the call is below it (or on another stack). */
static bool escaped_block(const struct np_slot *slot) {
    uintptr_t sp = (uintptr_t)__builtin_frame_address(0);
    uint64_t block_sp = np_vt(slot)->block_sp;
    bool own_stack = slot->stack_hi == 0 || (sp >= slot->stack_lo && sp < slot->stack_hi);
    return own_stack && sp > block_sp;
}

static void run_again(struct np_slot *slot) {
    np_vt(slot)->block_depth = 0;
    np_vt(slot)->kept_back = 0;
    np_store(np_vt(slot)->lock_wait, 0);
    np_cpu_wake(slot);
    np_vt(slot)->share_clock = np_clock_of(slot);
    __atomic_store_n(&slot->run_state, NP_RUN_RUNNING, __ATOMIC_SEQ_CST);
    __atomic_store_n(&np_vt(slot)->goes_on_at, 0, __ATOMIC_SEQ_CST); /* last: np_clock_of_others finds the thread by one of the two at any time */
    __atomic_store_n(&slot->next_throttle, 0, __ATOMIC_RELAXED);
}

/* A cancelled thread left its wait between two parts of it. (A handler that jumped ran inside a part, where nothing was kept back.) */
static void let_in(uint64_t signals) {
#ifndef NP_PLUGIN /* an emulator's own signals are none of its guest's */
    uint64_t mask = 0;
    if (signals == 0 || np_is_confined || NP_SYS4(SYS_rt_sigprocmask, SIG_BLOCK, 0, &mask, sizeof mask) != 0) return;
    if ((mask & signals) == signals) NP_SYS4(SYS_rt_sigprocmask, SIG_UNBLOCK, &signals, 0, sizeof signals);
#endif
}

NP_COLD bool np_block_escaped(struct np_slot *slot) {
    if (!escaped_block(slot)) return false;
    uint64_t kept_back = np_vt(slot)->kept_back;
    np_wait_abandoned(slot);
    run_again(slot);
    let_in(kept_back);
    return true;
}

/* A signal handler jumps, most likely out of what this thread waits in. If it does not, the thread counts as running in its wait, until
 * another finds that it makes no progress. */
static void before_jump(void) {
    struct np_slot *slot = np_vtime_self_live();
    if (slot == NULL || !np_load(np_vt(slot)->started)) return;
    sleep_is_over(np_vt(slot));
    if (np_vt(slot)->block_depth == 0 || np_vt(slot)->block_sp == UINT64_MAX) return;
    np_wait_abandoned(slot);
    run_again(slot);
}

#define NP_JUMP(name, environment)                                              \
    NP_EXPORT __attribute__((noreturn)) void name(environment, int value) {     \
        before_jump();                                                          \
        NP_REAL(name)(where, value);                                            \
        __builtin_unreachable();                                                \
    }
extern __attribute__((noreturn)) void __longjmp_chk(jmp_buf where, int value);
NP_JUMP(longjmp, jmp_buf where)
NP_JUMP(_longjmp, jmp_buf where)
NP_JUMP(__longjmp_chk, jmp_buf where)
NP_JUMP(siglongjmp, sigjmp_buf where)

static NP_COLD void throttle_slow(struct np_slot *slot) {
    struct np_vtime_slot *vt = np_vt(slot);
    if (np_is_confined || !np_load(vt->started) || np_load(np_arena->state) != NP_STATE_RUN) {
        np_store(slot->next_throttle, np_clock_of(slot) + window());
        return;
    }
    if (vt->block_depth > 0) {
        if (!np_block_escaped(slot)) {
            np_store(slot->next_throttle, np_clock_of(slot) + window());
            return;
        }
    }
    np_share_charge(slot);
    np_cpu_balance(slot);
    struct view others = look(slot);
    int reading = reading_for(slot);
    if (np_load(vt->stalled_clock) != 0) {
        __atomic_store_n(&vt->stalled_clock, 0, __ATOMIC_RELAXED);
        catch_up(slot, others.slowest_clock[0]);
        np_cpu_wake(slot);
    }
    uint64_t clock = np_clock_of(slot), slowest = others.slowest_clock[reading];
    /* Whoever holds a lock gets twice the window: asleep with it, it would hold up the others. */
    uint64_t allowed = window() * (reading == 0 ? 2 : 1);
    if (clock > slowest && clock - slowest > allowed) {
        sleep_for_window(slot);
        np_cpu_wake(slot); /* another may have taken it for asleep elsewhere */
        others = look(slot);
        slowest = others.slowest_clock[reading];
    }
    uint64_t limit = (slowest == UINT64_MAX ? clock : slowest) + allowed;
    uint64_t step = clock + window() / 16;
    vt->wide = reading == 0;
    __atomic_store_n(&slot->next_throttle, limit > step ? limit : step, __ATOMIC_SEQ_CST);
    if (!sleepers()) return;
    others.awake++;
    consider(&others, 0, clock, slot);
    consider(&others, 1, clock, slot);
    release_sleepers(others);
}

void np_throttle(struct np_slot *slot) {
    if (np_likely(np_clock_of(slot) < __atomic_load_n(&slot->next_throttle, __ATOMIC_RELAXED)) || !np_vtime_on()) return;
    int saved = errno;
    throttle_slow(slot);
    errno = saved;
}

/* ---- known waits ---- */

/* The thread counts no longer: whoever sleeps for it may go on. */
static void leave_running(struct np_slot *slot) {
    np_share_charge(slot);
    __atomic_store_n(&slot->run_state, NP_RUN_BLOCKED, __ATOMIC_SEQ_CST);
    np_cpu_leave(slot);
    if (sleepers()) release_sleepers(look(slot));
}

void np_block_begin(struct np_slot *slot) {
    if (!np_vtime_on()) return;
    struct np_vtime_slot *vt = np_vt(slot);
    if (vt->block_depth > 0) np_block_escaped(slot);
    if (vt->block_depth++ > 0) return;
    vt->block_sp = (uintptr_t)__builtin_frame_address(0);
    __atomic_store_n(&slot->next_throttle, 0, __ATOMIC_RELAXED);
    leave_running(slot);
}

void np_library_block_begin(struct np_slot *slot) {
    bool outermost = np_vtime_on() && np_vt(slot)->block_depth == 0;
    np_block_begin(slot);
    if (outermost) np_vt(slot)->block_sp = UINT64_MAX;
}

void np_lock_wait_begin(struct np_slot *slot) {
    if (np_vt(slot)->block_depth == 0) __atomic_store_n(&np_vt(slot)->lock_wait, 1, __ATOMIC_SEQ_CST);
    np_block_begin(slot);
}

void np_block_end(struct np_slot *slot) {
    struct np_vtime_slot *vt = np_vt(slot);
    if (!np_vtime_on() || vt->block_depth == 0) return;
    if (vt->block_depth > 1) {
        vt->block_depth--;
        return;
    }
    run_again(slot);
}

void np_block_catch_up(struct np_slot *slot) {
    if (np_vtime_on()) catch_up(slot, look(slot).slowest_clock[0]);
}

uint32_t np_block_suspend(struct np_slot *slot) {
    uint32_t depth = np_vt(slot)->block_depth;
    if (depth > 0) run_again(slot);
    return depth;
}

void np_block_resume(struct np_slot *slot, uint32_t depth) {
    struct np_vtime_slot *vt = np_vt(slot);
    if (depth == 0 || vt->block_depth > 0) return;
    vt->block_depth = depth;
    vt->block_sp = UINT64_MAX; /* in a library's own loop, which nothing leaves by a jump */
    __atomic_store_n(&slot->next_throttle, 0, __ATOMIC_RELAXED);
    leave_running(slot);
}

/* ---- threads ---- */

static NP_COLD void count_host_cpus(void) {
    uint64_t mask[128] = {0};
    long bytes = np_sys(SYS_sched_getaffinity, 0, sizeof mask, (long)mask, 0, 0, 0);
    uint32_t count = 0;
    for (long i = 0; i < bytes / 8; i++) count += (uint32_t)__builtin_popcountll(mask[i]);
    __atomic_store_n(&np_vtime_process->host_cpus, count > 0 ? count : 1, __ATOMIC_RELAXED);
}

void np_vtime_thread_start(struct np_slot *slot, uint64_t creator_clock) {
    if (np_load(np_arena) == NULL) return;
    __atomic_store_n(&np_cycles_per_access_q8, np_arena->config.cycles_per_access_q8, __ATOMIC_RELAXED);
    if (!np_vtime_on()) return;
    if (np_load(np_vtime_process->host_cpus) == 0) count_host_cpus();
    struct np_vtime_slot *vt = np_vt(slot);
    uint64_t clock = np_clock_of(slot);
    if (creator_clock > clock) add_stall(slot, creator_clock - clock);
    vt->share_clock = np_clock_of(slot);
    np_store(slot->next_throttle, 0);
    np_cpu_start(slot);
    __atomic_store_n(&slot->run_state, NP_RUN_RUNNING, __ATOMIC_SEQ_CST);
    __atomic_store_n(&vt->started, 1, __ATOMIC_SEQ_CST);
    np_vtime_birth_done(creator_clock);
}

void np_vtime_thread_end(struct np_slot *slot) {
    if (!np_vtime_on() || !np_load(np_vt(slot)->started)) return;
    int saved = errno;
    np_wait_abandoned(slot);
    sleep_is_over(np_vt(slot));
    np_vt(slot)->block_depth = 0;
    np_vt(slot)->kept_back = 0;
    leave_running(slot);
    __atomic_store_n(&np_vt(slot)->started, 0, __ATOMIC_SEQ_CST);
    uint64_t clock = np_clock_of(slot), key = NP_SHARED_PROCESS | slot->pid;
    if (clock > np_shared_get(key)) np_shared_set(key, clock);
    errno = saved;
}

void np_vtime_abandoned(struct np_slot *slot) {
    if (!np_vtime_on()) return;
    __atomic_store_n(&np_vt(slot)->started, 0, __ATOMIC_SEQ_CST); /* first: it may still run for a moment, and comes back to no CPU */
    sleep_is_over(np_vt(slot));
    np_cpu_leave(slot);
}

/* ---- what a program may call (see docs/virtual-time.md) ---- */

NP_EXPORT void numapilot_work(uint64_t cycles) {
    struct np_slot *slot = np_vtime_self();
    if (slot == NULL) return;
    while (cycles > 0) {
        uint64_t step = window() / 8;
        if (step > cycles) step = cycles;
        np_clock_advance(slot, step);
        cycles -= step;
        np_throttle(slot);
    }
}

NP_EXPORT uint64_t numapilot_clock(void) {
    struct np_slot *slot = np_load(np_arena) != NULL ? np_self() : NULL;
    if (slot == NULL) return 0;
    if (np_vtime_on()) np_share_charge(slot);
    return np_stamp_clock(slot);
}

NP_EXPORT void numapilot_mark(const char *text) {
    struct np_slot *slot = np_load(np_arena) != NULL && text != NULL ? np_self() : NULL;
    if (slot == NULL) return;
    np_put_mark(slot, text, strnlen(text, 240));
}
