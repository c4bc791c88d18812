/* sync_timed.c: waits with a time-out, which pass it in program time.
 *
 * The host counts a time-out in its own time, in which instrumented and emulated threads get on ten to a hundred times more slowly than in their own. So when
 * it passes there, those that could end the wait are mostly far from it: the wait that the program began goes on, in parts, for as long as another thread is
 * further behind its end in program time than the window. It is over when none is, and at the latest after EXTRA_FACTOR times as long as it was to be, or
 * EXTRA_NS more; then it passes no more program time than the others did, and is counted (np_arena.early_timeouts). To the program it is a wait that was woken,
 * or timed out, late.
 *
 * Sleeps are no such waits: nobody ends them, so they take the time that was asked for, whatever others do.
 */
#define _GNU_SOURCE
#include "vtime.h"

#define EXTRA_FACTOR 100u
#define EXTRA_NS 10000000000ull  /* of a wait, */
#define BUDGET_NS 30000000000ull /* and of all of a thread's that timed out in spite of it: a program that only lets time pass is not held up for long */
#define SHORT_PART_NS 1000000u
#define LONG_PART_NS 20000000u
#define CALM_LOOKS 4u /* short parts in which nobody was behind, before that is believed: whom the host has just woken may not run yet */

static uint64_t ns_of_cycles(uint64_t cycles) {
    uint32_t khz = np_arena->config.clock_khz;
    return khz != 0 ? (uint64_t)((unsigned __int128)cycles * 1000000u / khz) : 0;
}

struct np_timed np_timed_since(struct np_slot *slot, uint64_t began_ns, uint64_t cycles) {
    struct np_timed timed = {.slot = slot};
    if (cycles == 0) return timed;
    timed.deadline = np_clock_of(slot) + cycles;
    timed.began_ns = began_ns;
    timed.due_ns = began_ns + ns_of_cycles(cycles);
    __atomic_store_n(&np_vt(slot)->goes_on_at, timed.deadline, __ATOMIC_SEQ_CST);
    return timed;
}

struct np_timed np_timed_until(struct np_slot *slot, clockid_t clock_id, const struct timespec *absolute) {
    if (absolute == NULL) return (struct np_timed){.slot = slot};
    uint64_t now = np_monotonic_ns(); /* first, so that the wait is not due before due_ns */
    return np_timed_since(slot, now, np_cycles_until(clock_id, absolute));
}

/* How much longer than until now the wait may take in host time. */
static uint64_t extra_ns(const struct np_timed *timed, uint64_t now) {
    uint64_t spent = np_vt(timed->slot)->timed_out_ns, left = spent < BUDGET_NS ? BUDGET_NS - spent : 0;
    uint64_t extra = (now - timed->began_ns) * (EXTRA_FACTOR - 1);
    if (extra > EXTRA_NS) extra = EXTRA_NS;
    return extra < left ? extra : left;
}

static bool next_part(struct np_timed *timed, clockid_t clock_id, uint64_t now, uint64_t ns) {
    struct timespec at;
    if (clock_gettime(clock_id, &at) != 0) return false;
    timed->part = (struct timespec){0, (long)ns};
    timed->due_ns = now + ns;
    uint64_t fraction = (uint64_t)at.tv_nsec + ns;
    timed->until = (struct timespec){at.tv_sec + (time_t)(fraction / 1000000000u), (long)(fraction % 1000000000u)};
    return true;
}

static bool goes_on(struct np_timed *timed, clockid_t clock_id) {
    if (timed->deadline == 0 || np_is_confined || np_load(np_arena->state) != NP_STATE_RUN) return false;
    uint64_t now = np_monotonic_ns(), others = np_clock_of_others(timed->slot);
    bool is_first = timed->passed_ns == 0;
    if (is_first) {
        timed->passed_ns = now;
        timed->limit_ns = now + extra_ns(timed, now);
    }
    if (others >= timed->deadline || timed->deadline - others <= np_arena->config.window_cycles) {
        timed->is_early = false;
        return !is_first && now < timed->limit_ns && timed->calm++ < CALM_LOOKS && next_part(timed, clock_id, now, SHORT_PART_NS);
    }
    timed->calm = 0;
    timed->is_early = true;
    timed->reached = others;
    if (now >= timed->limit_ns) return false;
    uint64_t ns = ns_of_cycles(timed->deadline - others) / 2;
    return next_part(timed, clock_id, now, ns < SHORT_PART_NS ? SHORT_PART_NS : ns > LONG_PART_NS ? LONG_PART_NS : ns);
}

NP_COLD bool np_timed_goes_on(struct np_timed *timed, clockid_t clock_id) {
    int saved = errno;
    bool result = goes_on(timed, clock_id);
    errno = saved;
    return result;
}

void np_timed_out(struct np_timed *timed, enum np_sync_kind kind, uint64_t object) {
    struct np_slot *slot = timed->slot;
    if (timed->deadline == 0) return;
    uint64_t end = timed->is_early && timed->reached < timed->deadline ? timed->reached : timed->deadline, clock = np_clock_of(slot);
    if (timed->is_early) __atomic_fetch_add(&np_arena->early_timeouts, 1, __ATOMIC_RELAXED);
    if (timed->passed_ns != 0) np_vt(slot)->timed_out_ns += np_monotonic_ns() - timed->passed_ns;
    if (end > clock) np_clock_sleep(slot, end - clock, kind, object);
}
