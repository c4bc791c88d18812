/* ring.c: records into this thread's ring.
 *
 * One producer (the thread, never two records at once: a signal handler that comes in between loses its own, counted), one
 * consumer (the recorder). `head` and `tail` count bytes and never wrap; a record is visible once `head` passes it. A full ring makes the
 * thread wait for a bounded time, and only while the recorder lives; after that the record is lost and counted. The bound is above what a recorder needs
 * that has to share its processors with several times as many threads: a lost birth gives an object's accesses to what contains it.
 */
#include "track.h"

#include <linux/futex.h>
#include <string.h>
#include <time.h>

#define WAIT_FIRST_NS 20000ull
#define WAIT_MAX_NS 2000000ull
#define WAIT_TOTAL_NS 10000000000ull
#define CONFINED_SPINS 500000u /* some tens of milliseconds */

/* -- losses -- */

void np_count_lost(enum np_loss reason, uint64_t count) {
    uint64_t *counter = reason == NP_LOST_NO_SLOT ? &np_arena->lost_no_slot
                      : reason == NP_LOST_STOPPED ? &np_arena->lost_stopped
                      : reason == NP_LOST_AFTER_END ? &np_arena->lost_after_end
                                                  : &np_arena->lost_full;
    __atomic_fetch_add(counter, count, __ATOMIC_RELAXED);
}

void np_lost_reentrant(struct np_slot *slot, uint32_t count) {
    np_scratch(slot)->lost_reentrant += count;
}

/* -- room -- */

static uint64_t load_tail(struct np_slot *slot) {
    return slot->tail_seen = __atomic_load_n(&slot->tail, __ATOMIC_ACQUIRE);
}

static void wake_recorder(void) {
    __atomic_fetch_add(&np_arena->drain_futex, 1, __ATOMIC_RELEASE);
    if (!np_is_confined) NP_SYS3(SYS_futex, &np_arena->drain_futex, FUTEX_WAKE, 1);
}

static bool recording(void) {
    return __atomic_load_n(&np_arena->state, __ATOMIC_RELAXED) == NP_STATE_RUN;
}

/* The recorder is gone for good: no later check is needed. A recorder of another user counts as alive, and so does one of another namespace of process numbers:
 * there its number is nobody's, or another process's. */
static bool recorder_lives(const struct np_slot *slot) {
    bool has_number = np_arena->recorder_pid != 0 && (np_arena->pid_namespace == 0 || slot->pid_namespace == np_arena->pid_namespace);
    if (!has_number || np_is_confined || NP_SYS2(SYS_kill, np_arena->recorder_pid, 0) != -ESRCH) return true;
    __atomic_store_n(&np_arena->state, NP_STATE_STOPPED, __ATOMIC_RELAXED);
    return false;
}

/* Waits until `bytes` fit. Once a wait has failed, later records do not wait again until the recorder has moved. */
static NP_COLD bool wait_for_room(struct np_slot *slot, uint64_t bytes) {
    struct np_scratch *scratch = np_scratch(slot);
    uint64_t room = np_arena->ring_bytes - bytes;
    if (slot->head - load_tail(slot) <= room) return true;
    if (scratch->has_waited && scratch->full_tail == slot->tail_seen) return false;
    uint64_t step = WAIT_FIRST_NS;
    for (uint64_t waited = 0; waited < WAIT_TOTAL_NS && recording() && recorder_lives(slot);) {
        wake_recorder();
        if (np_is_confined) {
            /* No sleep: the recorder looks by itself, now and then. */
            for (uint32_t spin = 0; spin < CONFINED_SPINS && slot->head - load_tail(slot) > room; spin++) np_pause();
            if (slot->head - load_tail(slot) <= room) return true;
            break;
        }
        struct timespec pause = {0, (long)step};
        NP_SYS2(SYS_nanosleep, &pause, NULL);
        if (slot->head - load_tail(slot) <= room) return true;
        waited += step;
        if (step < WAIT_MAX_NS) step *= 2;
    }
    scratch->has_waited = 1;
    scratch->full_tail = slot->tail_seen;
    return false;
}

static inline char *ring_of(struct np_slot *slot) {
    return (char *)slot + np_arena->ring_offset;
}

/* `bytes` in one piece, after a pad where the end of the ring would cut them. */
static inline uint64_t *reserve(struct np_slot *slot, uint64_t bytes) {
    uint64_t size = np_arena->ring_bytes;
    uint64_t at = slot->head & (size - 1);
    uint64_t pad = np_unlikely(size - at < bytes) ? size - at : 0;
    if (np_unlikely(slot->head + pad + bytes - slot->tail_seen > size)) {
        if (pad + bytes > size / 2 || !wait_for_room(slot, pad + bytes)) return NULL;
    }
    if (np_unlikely(pad != 0)) {
        uint64_t words = pad / 8 > NP_WORDS_MAX ? 0 : pad / 8;
        *(uint64_t *)(void *)(ring_of(slot) + at) = NP_REC_PAD | words << 8 | pad << 16;
        __atomic_store_n(&slot->head, slot->head + pad, __ATOMIC_RELEASE);
        at = 0;
    }
    return (uint64_t *)(void *)(ring_of(slot) + at);
}

static uint64_t *put_time(struct np_slot *slot, uint64_t *words, uint64_t order, uint64_t clock) {
    words[0] = NP_REC_TIME | 4u << 8;
    words[1] = 0;
    words[2] = order;
    words[3] = clock;
    __atomic_store_n(&slot->head, slot->head + 32, __ATOMIC_RELEASE);
    slot->last_order = order;
    slot->last_clock = clock;
    return words + 4;
}

static NP_COLD void put_pending_loss(struct np_slot *slot) {
    struct np_scratch *scratch = np_scratch(slot);
    uint32_t count = scratch->lost_reentrant;
    uint64_t *words = reserve(slot, 24);
    if (words == NULL) return;
    scratch->lost_reentrant -= count;
    words[0] = NP_REC_LOST | 3u << 8 | (uint64_t)count << 16;
    words[1] = 0;
    words[2] = NP_LOST_REENTRANT;
    __atomic_store_n(&slot->head, slot->head + 24, __ATOMIC_RELEASE);
}

static NP_COLD uint64_t *lose(struct np_slot *slot) {
    np_count_lost(recording() ? NP_LOST_RING_FULL : NP_LOST_STOPPED, 1);
    slot->in_hook &= ~NP_WRITING;
    return NULL;
}

uint64_t *np_begin(struct np_slot *slot, enum np_record type, uint64_t value48, unsigned words, uint64_t order) {
    if (np_unlikely(slot->in_hook & NP_WRITING) && np_is_guarded(slot)) {
        np_lost_reentrant(slot, 1);
        return NULL;
    }
#ifndef NP_PLUGIN
    if (slot->in_hook == 0) { /* the caller makes this record without the guard, and is there until it is whole */
        const uintptr_t *caller = *(const uintptr_t *const *)__builtin_frame_address(0);
        slot->hook_frame = (uintptr_t)caller;
        slot->hook_return = caller[1];
    }
#endif
    slot->in_hook |= NP_WRITING;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (np_unlikely(!recording())) return lose(slot);
    if (np_unlikely(np_scratch(slot)->lost_reentrant != 0)) put_pending_loss(slot);
    if (np_unlikely(order < np_scratch(slot)->born)) order = np_scratch(slot)->born;
    uint64_t clock = np_track_only ? np_real_clock(order) : np_stamp_clock(slot);
    uint64_t order_delta = order - slot->last_order, clock_delta = clock - slot->last_clock;
    /* Also true for deltas below zero: a record may be stamped before what was written meanwhile (realloc's free). */
    bool rebase = np_unlikely((order_delta | clock_delta) >> 32 != 0);
    uint64_t *at = reserve(slot, (uint64_t)words * 8 + (rebase ? 32 : 0));
    if (np_unlikely(at == NULL)) return lose(slot);
    if (rebase) {
        at = put_time(slot, at, order, clock);
        order_delta = clock_delta = 0;
    }
    at[0] = (uint64_t)type | (uint64_t)(words <= NP_WORDS_MAX ? words : 0) << 8 | value48 << 16;
    at[1] = order_delta | clock_delta << 32;
    slot->last_order = order;
    slot->last_clock = clock;
    return at;
}

/* Half full: notify the recorder, but not again before another eighth has been filled. */
static NP_COLD void half_full(struct np_slot *slot) {
    struct np_scratch *scratch = np_scratch(slot);
    uint64_t size = np_arena->ring_bytes;
    if (slot->head - load_tail(slot) < size / 2 || slot->head - scratch->wake_head < size / 8) return;
    scratch->wake_head = slot->head;
    wake_recorder();
}

void np_commit(struct np_slot *slot, unsigned words) {
    uint64_t head = slot->head + (uint64_t)words * 8;
    __atomic_store_n(&slot->head, head, __ATOMIC_RELEASE);
    if (np_unlikely(head - slot->tail_seen >= np_arena->ring_bytes / 2)) half_full(slot);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    slot->in_hook &= ~NP_WRITING;
}

void np_put_bytes(uint64_t *words, const char *text, size_t bytes) {
    if (bytes == 0) return;
    words[(bytes - 1) / 8] = 0;
    memcpy(words, text, bytes);
}

void np_put_mark(struct np_slot *slot, const char *text, size_t bytes) {
    unsigned count = 2 + np_words_for(bytes);
    uint64_t *words = np_begin(slot, NP_REC_MARK, bytes, count, np_order());
    if (words == NULL) return;
    np_put_bytes(words + 2, text, bytes);
    np_commit(slot, count);
}
