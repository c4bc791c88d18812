/* sync_clock.c: clocks of synchronisation objects.
 *
 * Two stores. In the arena: release clocks of atomics, and clocks that other processes need (pipes, ended processes): entries of
 * 16 bytes, whose tag is checked, so that a collision loses a clock and never joins strangers. In this process: objects
 * (locks, conditions, semaphores, barriers) of about 1,200 bytes in a fixed table; the least recently used one makes way, and a lock
 * that made way has merely forgotten its past.
 *
 * Locks are resources: a hold is an interval of program time, and holds of one lock must not overlap there, whatever the order in which
 * the host ran them. Exact recent intervals decide which thread waits for which; a ring of fill levels per slice of the window
 * conserves capacity beyond those intervals, so that a saturated lock hands out exactly one cycle of hold per cycle.
 *
 * Each object has a word that its user holds for some nanoseconds. On a busy host that user may lose its CPU for milliseconds meanwhile: who waits
 * sleeps, so that it comes to run, and what is booked at the object is not lost. Taking it is bounded all the same: who finds it held by itself (a
 * signal handler), by a parent before the fork, or by a thread that does not run for a long time, goes on without the object.
 */
#include "vtime.h"

#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#define OBJECTS 4096 /* power of two */
#define WAYS 4
#define INTERVALS 8
#define SLICES 256          /* of fill levels: 4 windows */
#define SLICES_PER_WINDOW 64
#define TOKENS 64
#define BROADCASTS 8 /* the latest of a condition whose clocks are kept */

struct interval {
    uint64_t begin, end;
};

struct resource {
    uint64_t hold_begin;
    uint32_t owner; /* thread index + 1, 0: free */
    uint32_t depth;
    struct interval recent[INTERVALS];
    uint64_t base; /* number of the oldest slice kept */
    uint32_t fill[SLICES];
};

struct condition {
    uint64_t generation;      /* broadcasts so far */
    uint64_t notified_ns;     /* host time of the last signal or broadcast that found a waiter */
    uint64_t notices;         /* those so far that were for all waiters there were: each of them leaves its wait, or has missed it */
    struct {
        uint64_t clock;
        uint32_t wakes;       /* waiters of this broadcast that have not left yet: each is a wake-up in flight */
    } broadcasts[BROADCASTS]; /* of each generation modulo BROADCASTS */
    uint32_t waiters;
    uint32_t covered;         /* those of them that a broadcast has woken: the sum of `wakes` */
    uint32_t head, count;
    uint64_t signals[TOKENS]; /* each a wake-up in flight as well */
};

struct semaphore {
    uint32_t initial; /* tokens that were there from the start */
    uint32_t waiters;
    uint32_t wake_head, woken;
    uint64_t wakes[TOKENS]; /* clocks of the `woken` wake-ups in flight */
    uint32_t head, count;
    struct {
        uint64_t clock;
        uint64_t tokens;
    } posts[TOKENS];
};

struct barrier {
    uint32_t parties; /* 0: not known */
    uint32_t arrived;
    uint64_t round;
    uint64_t latest[4];
};

struct object {
    uint64_t key;  /* kind << 56 | address; 0: free */
    uint64_t lock; /* pid << 32 | tid of the thread inside */
    uint64_t used; /* clock of the last use */
    union {
        struct resource resource;
        struct condition condition;
        struct semaphore semaphore;
        struct barrier barrier;
        uint64_t clock;
    };
};

static struct object objects[OBJECTS];

static uint64_t mix(uint64_t key) {
    key ^= key >> 31;
    key *= 0x9e3779b97f4a7c15ull;
    return key ^ (key >> 29);
}

/* ---- finding an object ---- */

/* Turns of `enter`: busy, then giving way, then asleep; about a tenth of a second in all. */
#define BUSY_TURNS 48
#define YIELD_TURNS 64
#define TURNS 128

static bool enter(struct np_slot *slot, struct object *object) {
    uint64_t me = (uint64_t)slot->pid << 32 | slot->tid;
    for (unsigned attempt = 0; attempt < TURNS; attempt++) {
        uint64_t holder = 0;
        if (__atomic_compare_exchange_n(&object->lock, &holder, me, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return true;
        if (holder == me) return false;
        if (holder >> 32 != slot->pid) { /* left behind by the fork */
            if (__atomic_compare_exchange_n(&object->lock, &holder, me, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return true;
            continue;
        }
        if (attempt < BUSY_TURNS || np_is_confined) {
            np_pause();
        } else if (attempt < YIELD_TURNS) {
            NP_SYS0(SYS_sched_yield);
        } else {
            /* From 0.1 to 1.6 ms. */
            struct timespec nap = {0, 100000l << (attempt - YIELD_TURNS < 4 ? attempt - YIELD_TURNS : 4)};
            NP_SYS2(SYS_nanosleep, &nap, NULL);
        }
    }
    return false;
}

static void leave(struct object *object) {
    __atomic_store_n(&object->lock, 0, __ATOMIC_RELEASE);
}

/* The object may not be replaced: a thread is inside it or waits at it. Held by the caller. */
static bool busy(const struct object *object) {
    switch (object->key >> 56) {
    case NP_OBJECT_LOCK:
    case NP_OBJECT_READERS: return object->resource.owner != 0;
    case NP_OBJECT_COND: return object->condition.waiters != 0;
    case NP_OBJECT_BARRIER: return object->barrier.arrived != 0;
    default: return false;
    }
}

/* The object of `key` in its set, held; NULL: it is not there, or cannot be had. */
static struct object *find(struct np_slot *slot, struct object *set, uint64_t key, bool *is_there) {
    for (int way = 0; way < WAYS; way++) {
        struct object *object = &set[way];
        /* Not held: the key may go to another object before it is, so it is looked at again inside. */
        if (np_load(object->key) != key) continue;
        *is_there = true;
        if (!enter(slot, object)) return NULL;
        if (object->key == key) return object;
        leave(object);
        *is_there = false;
    }
    return NULL;
}

/* The least recently used object of the set that no thread needs, held; NULL: there is none. Each is checked while held. */
static struct object *make_way(struct np_slot *slot, struct object *set) {
    struct object *victim = NULL;
    for (int way = 0; way < WAYS; way++) {
        struct object *object = &set[way];
        bool is_better = victim == NULL || np_load(object->key) == 0 || (victim->key != 0 && np_load(object->used) < victim->used);
        if (!is_better || !enter(slot, object)) continue;
        bool is_free = !busy(object) && (victim == NULL || object->key == 0 || (victim->key != 0 && object->used < victim->used));
        if (!is_free) {
            leave(object);
            continue;
        }
        if (victim != NULL) leave(victim);
        victim = object;
    }
    return victim;
}

/* The object of `kind` at `address`, held; a new one starts empty. NULL: go on without. */
static struct object *take(struct np_slot *slot, enum np_object_kind kind, uintptr_t address, bool create) {
    uint64_t key = (uint64_t)kind << 56 | (address & 0xffffffffffffffull);
    struct object *set = &objects[(mix(key) >> 8) % (OBJECTS / WAYS) * WAYS];
    bool is_there = false;
    struct object *object = find(slot, set, key, &is_there);
    if (object == NULL) {
        if (is_there || !create || (object = make_way(slot, set)) == NULL) return NULL;
        memset((char *)object + offsetof(struct object, clock), 0, sizeof *object - offsetof(struct object, clock));
        np_store(object->key, key);
    }
    np_store(object->used, np_clock_of(slot));
    return object;
}

/* ---- locks ---- */

static uint64_t slice_cycles(void) {
    uint64_t cycles = np_arena->config.window_cycles / SLICES_PER_WINDOW;
    return cycles > 0 ? cycles : 1;
}

/* Latest of the clocks that `clock` moves to while it lies inside a recent hold. */
static uint64_t after_recent(const struct resource *resource, uint64_t clock) {
    for (int moved = 1; moved;) {
        moved = 0;
        for (int i = 0; i < INTERVALS; i++) {
            const struct interval *hold = &resource->recent[i];
            if (clock >= hold->begin && clock < hold->end) {
                clock = hold->end;
                moved = 1;
            }
        }
    }
    return clock;
}

static uint64_t after_full_slices(const struct resource *resource, uint64_t clock) {
    uint64_t width = slice_cycles();
    uint64_t slice = clock / width;
    while (slice >= resource->base && slice < resource->base + SLICES && resource->fill[slice % SLICES] >= width) {
        slice++;
        clock = slice * width;
    }
    return clock;
}

static void remember(struct resource *resource, uint64_t begin, uint64_t end) {
    struct interval *oldest = &resource->recent[0];
    for (int i = 0; i < INTERVALS; i++) {
        struct interval *hold = &resource->recent[i];
        if (hold->end != 0 && begin <= hold->end && end >= hold->begin) {
            if (begin < hold->begin) hold->begin = begin;
            if (end > hold->end) hold->end = end;
            return;
        }
        if (hold->end < oldest->end) oldest = hold;
    }
    *oldest = (struct interval){begin, end};
}

static void advance_base(struct resource *resource, uint64_t slice) {
    if (slice < resource->base + SLICES) return;
    uint64_t base = slice - SLICES + 1;
    uint64_t clear = base - resource->base;
    if (clear >= SLICES) {
        memset(resource->fill, 0, sizeof resource->fill);
    } else {
        for (uint64_t i = 0; i < clear; i++) resource->fill[(resource->base + i) % SLICES] = 0;
    }
    resource->base = base;
}

/* Records a hold that ran from `begin` to `end`; how much later it would have ended had it waited for room. */
static uint64_t book(struct resource *resource, uint64_t begin, uint64_t end) {
    uint64_t width = slice_cycles(), left = end - begin, slice = begin / width, last = slice;
    advance_base(resource, end / width);
    if (left >= width * SLICES || slice < resource->base) return 0; /* longer or older than what is kept */
    while (left > 0) {
        advance_base(resource, slice);
        uint32_t *fill = &resource->fill[slice % SLICES];
        uint64_t room = *fill < width ? width - *fill : 0;
        uint64_t part = room < left ? room : left;
        *fill += (uint32_t)part;
        left -= part;
        last = slice++;
    }
    if (last <= end / width) return 0;
    uint64_t done = last * width + resource->fill[last % SLICES];
    return done > end ? done - end : 0;
}

/* Clock until which readers hold the lock at `clock`. */
static uint64_t after_readers(struct np_slot *slot, uintptr_t address, uint64_t clock) {
    struct object *readers = take(slot, NP_OBJECT_READERS, address, false);
    if (readers == NULL) return clock;
    clock = after_recent(&readers->resource, clock);
    leave(readers);
    return clock;
}

static void one_lock_less(struct np_slot *slot) {
    struct np_vtime_slot *vt = np_vt(slot);
    if (vt->locks_held > 0) np_add(vt->locks_held, -1u);
    if (vt->locks_held > 0 || !vt->wide) return;
    vt->wide = 0;
    __atomic_store_n(&slot->next_throttle, 0, __ATOMIC_RELAXED);
}

void np_lock_acquired(struct np_slot *slot, uintptr_t address, enum np_sync_kind kind) {
    np_add(np_vt(slot)->locks_held, 1);
    struct object *object = take(slot, NP_OBJECT_LOCK, address, true);
    if (object == NULL) return;
    struct resource *resource = &object->resource;
    if (resource->owner == slot->thread_index + 1 && resource->depth > 0) {
        resource->depth++;
        leave(object);
        return;
    }
    np_share_charge(slot);
    uint64_t clock = np_clock_of(slot), free_at = clock, before;
    do {
        before = free_at;
        free_at = after_full_slices(resource, after_recent(resource, free_at));
        if (kind == NP_SYNC_RWLOCK) free_at = after_readers(slot, address, free_at);
    } while (free_at != before);
    resource->owner = slot->thread_index + 1;
    resource->depth = 1;
    resource->hold_begin = free_at;
    leave(object);
    np_clock_wait_until(slot, free_at, kind, address);
    np_clock_advance(slot, NP_LOCK_CYCLES);
}

bool np_lock_is_mine(struct np_slot *slot, uintptr_t address) {
    struct object *object = take(slot, NP_OBJECT_LOCK, address, false);
    if (object == NULL) return false;
    bool mine = object->resource.owner == slot->thread_index + 1;
    leave(object);
    return mine;
}

void np_lock_releasing(struct np_slot *slot, uintptr_t address, enum np_sync_kind kind) {
    one_lock_less(slot);
    np_share_charge(slot);
    struct object *object = take(slot, NP_OBJECT_LOCK, address, false);
    if (object == NULL) return;
    struct resource *resource = &object->resource;
    if (resource->owner != slot->thread_index + 1 || --resource->depth > 0) {
        leave(object);
        return;
    }
    uint64_t begin = resource->hold_begin, end = np_clock_of(slot);
    if (end <= begin) end = begin + 1;
    uint64_t late = book(resource, begin, end);
    remember(resource, begin + late, end + late);
    resource->owner = 0;
    leave(object);
    if (late > 0) np_clock_wait_until(slot, end + late, kind, address);
}

/* Read holds of this thread that are open: readers share, so an object cannot keep them. */
#define READ_HOLDS 4
NP_TLS struct {
    uintptr_t address;
    uint64_t begin;
} read_holds[READ_HOLDS];

void np_read_lock_acquired(struct np_slot *slot, uintptr_t address) {
    np_add(np_vt(slot)->locks_held, 1);
    np_share_charge(slot);
    uint64_t free_at = np_clock_of(slot);
    struct object *object = take(slot, NP_OBJECT_LOCK, address, false);
    if (object != NULL) {
        free_at = after_recent(&object->resource, free_at);
        leave(object);
    }
    np_clock_wait_until(slot, free_at, NP_SYNC_RWLOCK, address);
    for (int i = 0; i < READ_HOLDS; i++) {
        if (read_holds[i].address != 0) continue;
        read_holds[i].address = address;
        read_holds[i].begin = np_clock_of(slot);
        break;
    }
    np_clock_advance(slot, NP_LOCK_CYCLES);
}

void np_read_lock_releasing(struct np_slot *slot, uintptr_t address) {
    one_lock_less(slot);
    np_share_charge(slot);
    for (int i = 0; i < READ_HOLDS; i++) {
        if (read_holds[i].address != address) continue;
        read_holds[i].address = 0;
        struct object *object = take(slot, NP_OBJECT_READERS, address, true);
        if (object == NULL) return;
        remember(&object->resource, read_holds[i].begin, np_clock_of(slot));
        leave(object);
        return;
    }
}

/* ---- condition variables ---- */

static void waits_at(struct np_slot *slot, enum np_object_kind kind, uintptr_t address, uint64_t ticket) {
    struct np_vtime_slot *vt = np_vt(slot);
    vt->wait_object = address;
    vt->wait_ticket = ticket;
    vt->wait_kind = kind;
}

void np_wait_abandoned(struct np_slot *slot) {
    struct np_vtime_slot *vt = np_vt(slot);
    uint64_t wake = 0;
    if (vt->wait_kind == NP_OBJECT_COND) np_cond_end(slot, vt->wait_object, vt->wait_ticket, false, &wake);
    else if (vt->wait_kind == NP_OBJECT_SEM) wake = np_sem_waited(slot, vt->wait_object);
    vt->wait_kind = 0;
    if (wake != 0) np_vtime_birth_done(wake);
}

uint64_t np_cond_begin(struct np_slot *slot, uintptr_t address, uint64_t *notices) {
    struct object *object = take(slot, NP_OBJECT_COND, address, true);
    if (object == NULL) return UINT64_MAX;
    object->condition.waiters++;
    uint64_t ticket = object->condition.generation;
    *notices = object->condition.notices;
    leave(object);
    waits_at(slot, NP_OBJECT_COND, address, ticket);
    return ticket;
}

static uint64_t take_signal(struct condition *condition) {
    uint64_t clock = condition->signals[condition->head];
    condition->head = (condition->head + 1) % TOKENS;
    condition->count--;
    return clock;
}

/* The waiters of the broadcast kept at `at` are expected no longer. */
static void forget_broadcast(struct condition *condition, uint64_t at) {
    uint32_t wakes = condition->broadcasts[at].wakes;
    condition->covered -= wakes;
    condition->broadcasts[at].wakes = 0;
    for (; wakes > 0; wakes--) np_vtime_birth_done(condition->broadcasts[at].clock);
}

uint64_t np_cond_end(struct np_slot *slot, uintptr_t address, uint64_t ticket, bool woken, uint64_t *wake) {
    *wake = 0;
    np_vt(slot)->wait_kind = 0;
    if (ticket == UINT64_MAX) return 0;
    struct object *object = take(slot, NP_OBJECT_COND, address, false);
    if (object == NULL) return 0;
    struct condition *condition = &object->condition;
    uint64_t clock = 0, at = ticket % BROADCASTS;
    if (condition->waiters > 0) condition->waiters--;
    if (condition->generation != ticket) {
        bool kept = condition->generation - ticket <= BROADCASTS;
        clock = condition->broadcasts[kept ? at : condition->generation % BROADCASTS].clock;
        if (kept && condition->broadcasts[at].wakes > 0) {
            condition->broadcasts[at].wakes--;
            condition->covered--;
            *wake = clock;
        }
    } else if (woken && condition->count > 0) {
        *wake = clock = take_signal(condition);
    }
    /* Signals whose waiters left otherwise (timed out, cancelled) wake no thread. */
    while (condition->count > 0 && condition->count + condition->covered > condition->waiters)
        np_vtime_birth_done(take_signal(condition));
    leave(object);
    return woken ? clock : 0;
}

void np_cond_notify(struct np_slot *slot, uintptr_t address, bool all) {
    np_share_charge(slot);
    struct object *object = take(slot, NP_OBJECT_COND, address, false);
    if (object == NULL) return;
    struct condition *condition = &object->condition;
    uint64_t clock = np_clock_of(slot);
    if (condition->waiters > 0) condition->notified_ns = np_monotonic_ns();
    if (all || condition->waiters == 1) condition->notices++;
    if (all) {
        /* Once for each waiter: those of earlier broadcasts are expected already, those of signals now at this clock. */
        while (condition->count > 0) np_vtime_birth_done(take_signal(condition));
        uint64_t at = condition->generation++ % BROADCASTS;
        forget_broadcast(condition, at);
        uint32_t wakes = condition->waiters > condition->covered ? condition->waiters - condition->covered : 0;
        condition->broadcasts[at].clock = clock;
        condition->broadcasts[at].wakes = wakes;
        condition->covered += wakes;
        np_wakes_begin(clock, wakes);
    } else if (condition->waiters > condition->covered + condition->count && condition->count < TOKENS) {
        condition->signals[(condition->head + condition->count) % TOKENS] = clock;
        condition->count++;
        np_wakes_begin(clock, 1);
    }
    leave(object);
}

bool np_cond_may_have_missed(struct np_slot *slot, uintptr_t address, uint64_t due_ns, uint64_t *notices) {
    struct object *object = take(slot, NP_OBJECT_COND, address, false);
    if (object == NULL) return true; /* others cannot tell it, either */
    const struct condition *condition = &object->condition;
    bool has_missed = condition->notices != *notices || condition->notified_ns >= due_ns;
    *notices = condition->notices;
    leave(object);
    return has_missed;
}

/* ---- semaphores ---- */

void np_sem_reset(struct np_slot *slot, uintptr_t address, uint32_t initial) {
    struct object *object = take(slot, NP_OBJECT_SEM, address, true);
    if (object == NULL) return;
    object->semaphore = (struct semaphore){.initial = initial};
    leave(object);
}

void np_sem_posted(struct np_slot *slot, uintptr_t address) {
    np_share_charge(slot);
    struct object *object = take(slot, NP_OBJECT_SEM, address, true);
    if (object == NULL) return;
    struct semaphore *semaphore = &object->semaphore;
    if (semaphore->count == TOKENS) { /* a younger clock for older tokens: at most the window late, never early */
        uint32_t last = (semaphore->head + TOKENS - 1) % TOKENS;
        semaphore->posts[last].clock = np_clock_of(slot);
        semaphore->posts[last].tokens++;
    } else {
        uint32_t at = (semaphore->head + semaphore->count++) % TOKENS;
        semaphore->posts[at].clock = np_clock_of(slot);
        semaphore->posts[at].tokens = 1;
        if (semaphore->waiters > semaphore->woken && semaphore->woken < TOKENS) {
            semaphore->wakes[(semaphore->wake_head + semaphore->woken++) % TOKENS] = np_clock_of(slot);
            np_wakes_begin(np_clock_of(slot), 1);
        }
    }
    leave(object);
}

void np_sem_waits(struct np_slot *slot, uintptr_t address) {
    struct object *object = take(slot, NP_OBJECT_SEM, address, true);
    if (object == NULL) return;
    object->semaphore.waiters++;
    leave(object);
    waits_at(slot, NP_OBJECT_SEM, address, 0);
}

static uint64_t take_wake(struct semaphore *semaphore) {
    uint64_t clock = semaphore->wakes[semaphore->wake_head];
    semaphore->wake_head = (semaphore->wake_head + 1) % TOKENS;
    semaphore->woken--;
    return clock;
}

uint64_t np_sem_waited(struct np_slot *slot, uintptr_t address) {
    np_vt(slot)->wait_kind = 0;
    struct object *object = take(slot, NP_OBJECT_SEM, address, false);
    if (object == NULL) return 0;
    struct semaphore *semaphore = &object->semaphore;
    if (semaphore->waiters > 0) semaphore->waiters--;
    uint64_t wake = semaphore->woken > 0 ? take_wake(semaphore) : 0;
    leave(object);
    return wake;
}

uint64_t np_sem_taken(struct np_slot *slot, uintptr_t address) {
    struct object *object = take(slot, NP_OBJECT_SEM, address, false);
    if (object == NULL) return 0;
    struct semaphore *semaphore = &object->semaphore;
    uint64_t clock = 0;
    if (semaphore->initial > 0) {
        semaphore->initial--;
    } else if (semaphore->count > 0) {
        clock = semaphore->posts[semaphore->head].clock;
        if (--semaphore->posts[semaphore->head].tokens == 0) {
            semaphore->head = (semaphore->head + 1) % TOKENS;
            semaphore->count--;
        }
    }
    /* Whoever took a token without waiting took it from a thread that was to wake for it. */
    while (semaphore->woken > 0 && semaphore->woken > semaphore->initial + semaphore->count) np_vtime_birth_done(take_wake(semaphore));
    leave(object);
    return clock;
}

/* ---- barriers ---- */

void np_barrier_reset(struct np_slot *slot, uintptr_t address, uint32_t count) {
    struct object *object = take(slot, NP_OBJECT_BARRIER, address, true);
    if (object == NULL) return;
    object->barrier = (struct barrier){.parties = count};
    leave(object);
}

uint64_t np_barrier_arrive(struct np_slot *slot, uintptr_t address) {
    np_share_charge(slot);
    struct object *object = take(slot, NP_OBJECT_BARRIER, address, true);
    if (object == NULL) return UINT64_MAX;
    struct barrier *barrier = &object->barrier;
    uint64_t round = barrier->round, clock = np_clock_of(slot);
    uint64_t *latest = &barrier->latest[round % 4];
    if (barrier->arrived++ == 0 || clock > *latest) *latest = clock;
    if (barrier->arrived == barrier->parties) {
        np_wakes_begin(*latest, barrier->parties);
        barrier->arrived = 0;
        barrier->round++;
    }
    leave(object);
    return round;
}

uint64_t np_barrier_leave(struct np_slot *slot, uintptr_t address, uint64_t round) {
    if (round == UINT64_MAX) return 0;
    struct object *object = take(slot, NP_OBJECT_BARRIER, address, false);
    if (object == NULL) return 0;
    struct barrier *barrier = &object->barrier;
    if (barrier->round == round) { /* number of parties not known: the first to leave ends the round */
        barrier->round++;
        barrier->arrived = 0;
    }
    uint64_t clock = barrier->round - round < 4 ? barrier->latest[round % 4] : 0;
    leave(object);
    return clock;
}

/* ---- single clocks ---- */

void np_event_set(struct np_slot *slot, enum np_object_kind kind, uintptr_t address, uint64_t clock) {
    struct object *object = take(slot, kind, address, true);
    if (object == NULL) return;
    object->clock = clock;
    leave(object);
}

uint64_t np_event_get(struct np_slot *slot, enum np_object_kind kind, uintptr_t address) {
    struct object *object = take(slot, kind, address, false);
    if (object == NULL) return 0;
    uint64_t clock = object->clock;
    leave(object);
    return clock;
}
