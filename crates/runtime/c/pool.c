/* pool.c: memory pools that the program carries itself, as it reports them through include/numapilot_pool.h.
 *
 * The program finds these functions by name, in no program that does not call them. A pool's blocks lie in memory that other hooks know as a block or a
 * mapping: nothing is said of pages here. Inside malloc's family the outer hook records the block, and the pool behind it stays silent.
 */
#define _GNU_SOURCE
#include "../include/numapilot_pool.h"
#include "pool.h"
#include "track.h"

#include <string.h>

#define NAME_BYTES_MAX 200u

/* The last number given to a pool. A forked child counts on from its parent's. */
static uint32_t last_pool;

/* The slot with the guard taken, or NULL. */
static inline __attribute__((always_inline)) struct np_slot *enter(void) {
    if (np_unlikely(np_tls.in_alloc)) return NULL;
    struct np_slot *slot = np_slot_here();
    if (np_unlikely(slot == NULL)) return NULL;
    if (np_likely(np_enter(slot))) return slot;
    np_lost_reentrant(slot, 1);
    return NULL;
}

/* *order: 0: now. Becomes the record's. False: it was not recorded. */
static bool tell(np_pool pool, enum np_pool_event event, const char *name, size_t bytes, uint64_t *order) {
    int saved = errno;
    bool is_told = false;
    struct np_slot *slot = enter();
    if (slot != NULL) {
        if (*order == 0) *order = np_order();
        if (*order < np_scratch(slot)->born) *order = np_scratch(slot)->born;
        unsigned count = 3 + np_words_for(bytes);
        uint64_t *words = np_begin(slot, NP_REC_POOL, pool, count, *order);
        if (words != NULL) {
            words[2] = bytes | (uint64_t)event << 32;
            np_put_bytes(words + 3, name, bytes);
            np_commit(slot, count);
            is_told = true;
        }
        np_leave(slot);
    }
    errno = saved;
    return is_told;
}

static void tell_now(np_pool pool, enum np_pool_event event) {
    uint64_t now = 0;
    tell(pool, event, NULL, 0, &now);
}

static np_pool next_pool(void) { return __atomic_add_fetch(&last_pool, 1, __ATOMIC_RELAXED); }
static size_t name_bytes(const char *name) { return name != NULL ? strnlen(name, NAME_BYTES_MAX) : 0; }

uint32_t np_pool_named(const char *name, uint64_t *order) {
    np_pool pool = next_pool();
    return tell(pool, NP_POOL_CREATED, name, name_bytes(name), order) ? pool : 0;
}

/* A pool has a number, though its name may be lost: its owner does not ask again. */
static np_pool create(const char *name) {
    np_pool pool = next_pool();
    uint64_t now = 0;
    tell(pool, NP_POOL_CREATED, name, name_bytes(name), &now);
    return np_load(np_arena) != NULL ? pool : 0;
}

static void put_made(struct np_slot *slot, np_pool pool, uintptr_t address, size_t bytes, uint32_t stack, uint32_t thread, uint64_t order,
                     uint64_t sample) {
    bool is_own = thread == slot->thread_index;
    unsigned count = sample != 0 ? 6 : is_own ? 4 : 5;
    uint64_t *words = np_begin(slot, NP_REC_POOL_ALLOC, address, count, order);
    if (words == NULL) return;
    words[2] = stack | (uint64_t)pool << 32;
    words[3] = bytes;
    if (count > 4) words[4] = is_own ? NP_NONE32 : thread;
    if (count > 5) words[5] = sample;
    np_commit(slot, count);
}

static void made(np_pool pool, const void *address, size_t bytes) {
    struct np_regs caller = NP_CALLER_REGS();
    if (address == NULL || (uintptr_t)address >= NP_ADDRESS_END) return;
    int saved = errno;
    struct np_slot *slot = enter();
    if (slot != NULL) {
        uint32_t stack = np_stack_id(slot, caller);
        put_made(slot, pool, (uintptr_t)address, bytes, stack, slot->thread_index, np_order(), 0);
        np_leave(slot);
    }
    errno = saved;
}

void np_pool_made_at(uint32_t pool, uintptr_t address, size_t bytes, uint32_t stack, uint32_t thread, uint64_t order, uint64_t sample) {
    if (address == 0 || address >= NP_ADDRESS_END) return;
    int saved = errno;
    struct np_slot *slot = enter();
    if (slot != NULL) {
        put_made(slot, pool, address, bytes, stack, thread, order, sample);
        np_leave(slot);
    }
    errno = saved;
}

static void put_gone(struct np_slot *slot, np_pool pool, uintptr_t address, uint64_t order) {
    uint64_t *words = np_begin(slot, NP_REC_POOL_FREE, address, 3, order);
    if (words == NULL) return;
    words[2] = pool;
    np_commit(slot, 3);
}

void np_pool_gone(uint32_t pool, uintptr_t address, uint64_t order) {
    if (address == 0 || address >= NP_ADDRESS_END) return;
    int saved = errno;
    struct np_slot *slot = enter();
    if (slot != NULL) {
        put_gone(slot, pool, address, order);
        np_leave(slot);
    }
    errno = saved;
}

static void given_back(np_pool pool, const void *address) { np_pool_gone(pool, (uintptr_t)address, np_order()); }
static void reset(np_pool pool) { tell_now(pool, NP_POOL_RESET); }
static void destroy(np_pool pool) { tell_now(pool, NP_POOL_DESTROYED); }

NP_EXPORT const struct np_pool_functions numapilot_pools = {NP_POOL_VERSION, 0, create, made, given_back, reset, destroy};
