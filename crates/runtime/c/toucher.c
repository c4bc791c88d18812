/* toucher.c: asks the recorder, which has the kernel's page faults, for the first toucher of a page that no recorded access touched.
 *
 * The kernel writes a fault's event before the fault returns, so whoever now finds the page touched finds its event read, too, if there is one. A question
 * costs a wake-up and an answer some tens of microseconds; an answer holds for a run of pages (pages.c takes them all). No wait is long: an answer that
 * does not come makes the first toucher unknown, and after a few such no thread asks any more. */
#include "memsim.h"
#include "track.h"

#include <linux/futex.h>
#include <time.h>

/* Forty steps of 25 ms: a recorder on a busy host is late, not gone. */
#define ANSWER_STEP_NS 25000000l
#define ANSWER_STEPS 40u
#define FAILURES_MAX 3u

static uint32_t failures;

/* The node of threads that have ended, by the kernel's number. A later thread of that number, or hash, takes the entry. */
#define ENDED_NODES 4096u
static uint64_t ended_nodes[ENDED_NODES];

static uint64_t *ended_entry(uint32_t tid) { return &ended_nodes[(uint32_t)(tid * 0x9e3779b1u) >> 20]; }

void np_toucher_ended(const struct np_slot *slot) {
    /* 24 bits of the thread's index are enough for any recording that fits a disk. */
    uint64_t value = slot->tid | (uint64_t)(slot->node & 0xff) << 32 | (uint64_t)(slot->thread_index & 0xffffff) << 40;
    __atomic_store_n(ended_entry(slot->tid), value, __ATOMIC_RELAXED);
}

static bool of_thread(uint32_t tid, struct np_toucher *toucher) {
    uint64_t high = __atomic_load_n(&np_arena->slots_high, __ATOMIC_ACQUIRE);
    for (uint64_t index = 0; index < high && index < np_arena->slot_count; index++) {
        struct np_slot *slot = np_slot_at(index);
        if (np_load(slot->tid) != tid || np_load(slot->process_index) != np_sim.process_index) continue;
        if (__atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) != NP_SLOT_LIVE) continue;
        *toucher = (struct np_toucher){slot, np_load(slot->thread_index), np_load(slot->node), 1};
        return true;
    }
    uint64_t ended = __atomic_load_n(ended_entry(tid), __ATOMIC_RELAXED);
    if ((uint32_t)ended == tid) {
        *toucher = (struct np_toucher){NULL, (uint32_t)(ended >> 40), (uint32_t)(ended >> 32) & 0xff, 1};
        return true;
    }
    return false;
}

/* Wakes whoever answers and waits for the answer. */
static bool ask(struct np_slot *slot, uint64_t page) {
    __atomic_store_n(&slot->ask_page, page, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->ask_state, NP_ASK_ASKED, __ATOMIC_RELEASE);
    __atomic_fetch_add(&np_arena->fault_futex, 1, __ATOMIC_RELEASE);
    NP_SYS3(SYS_futex, &np_arena->fault_futex, FUTEX_WAKE, 1);
    struct timespec step = {0, ANSWER_STEP_NS};
    for (uint32_t i = 0; i < ANSWER_STEPS && __atomic_load_n(&np_arena->state, __ATOMIC_RELAXED) == NP_STATE_RUN; i++) {
        if (__atomic_load_n(&slot->ask_state, __ATOMIC_ACQUIRE) == NP_ASK_ANSWERED) return true;
        NP_SYS4(SYS_futex, &slot->ask_state, FUTEX_WAIT, NP_ASK_ASKED, &step);
    }
    return __atomic_load_n(&slot->ask_state, __ATOMIC_ACQUIRE) == NP_ASK_ANSWERED;
}

bool np_toucher_is_nobody(const struct np_slot *slot, uint64_t page) {
    bool is_answered = slot->ask_page == page && __atomic_load_n(&slot->ask_state, __ATOMIC_ACQUIRE) == NP_ASK_ANSWERED;
    return is_answered && slot->answer_tid == 0 && np_arena->fault_events == NP_FAULTS_ALL;
}

bool np_toucher_of(struct np_slot *slot, uint64_t page, struct np_toucher *toucher) {
    if (np_arena->pid_namespace != 0 && slot->pid_namespace != np_arena->pid_namespace) return false; /* the recorder numbers threads otherwise */
    if (np_is_confined || np_arena->fault_events == NP_FAULTS_NONE || __atomic_load_n(&failures, __ATOMIC_RELAXED) >= FAILURES_MAX) return false;
    if (!ask(slot, page)) {
        __atomic_fetch_add(&slot->ask_failures, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
        return false;
    }
    __atomic_store_n(&failures, 0, __ATOMIC_RELAXED);
    if (slot->answer_tid == 0 || !of_thread(slot->answer_tid, toucher)) return false;
    toucher->pages = slot->answer_pages;
    return true;
}
