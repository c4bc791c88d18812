/* stack.c: call stacks to identifiers.
 *
 * A stack is known by a 64-bit hash of its return addresses and of the state of the loader's list. Each thread keeps the
 * ones that it meets in a small cache; behind it lies one table per process. Whoever meets a stack first writes its
 * NP_REC_STACK before the number can be seen by others; a number whose record was lost is never given out. Before any of it,
 * each thread remembers for some call sites what its last walk there read: where the same words are still in place, the
 * stack is the same, and nothing needs to be walked. A full table costs nothing but doubles: the number then lives in the
 * thread's cache alone.
 */
#include "python.h"
#include "track.h"

#define CACHE_ENTRIES 4096u
#define MEMOS_LOG2 6
#define TABLE_LOG2 18
#define TABLE_ENTRIES (1u << TABLE_LOG2)
#define PROBES 32u
#define MAX_DEPTH 128u

struct cached { uint64_t hash; uint32_t id, unused; };
/* What a walk needs beside the registers. Not on the stack of the thread: coroutines, fibers and signal handlers have small ones, on which the program has
 * measured its own calls. */
struct working {
    uintptr_t frames[MAX_DEPTH];
    struct np_python python;
    struct np_python_room room;
};
struct np_stack_cache {
    struct cached entries[CACHE_ENTRIES];
    struct np_memo memos[1u << MEMOS_LOG2];
    struct working working;
    char path[NP_MAP_PATH_BYTES];
};
_Static_assert(sizeof(struct np_stack_cache) <= NP_STACK_CACHE_BYTES, "outgrew its pages");

/* The emulator's plugin samples accesses of the interpreter itself, the tracker only calls that it makes. */
#ifdef NP_PLUGIN
#define TAKES_ANY_INSTRUCTION true
#else
#define TAKES_ANY_INSTRUCTION false
#endif

/* id: 0 while its maker is writing the record; NO_ID when that failed and another thread may try. */
struct shared { uint64_t hash; uint32_t id, unused; };
#define NO_ID 0xffffffffu
static struct shared *table;

static struct shared *shared_table(void) {
    struct shared *found = __atomic_load_n(&table, __ATOMIC_ACQUIRE);
    if (np_likely(found != NULL)) return found;
    struct shared *fresh = np_pages_new(TABLE_ENTRIES * sizeof *fresh);
    if (fresh == NULL) return NULL;
    if (__atomic_compare_exchange_n(&table, &found, fresh, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return fresh;
    np_pages_free(fresh, TABLE_ENTRIES * sizeof *fresh);
    return found;
}

static uint32_t write_stack(struct np_slot *slot, const uintptr_t *frames, unsigned count, uint32_t flags) {
    uint32_t id = __atomic_fetch_add(&np_arena->next_stack_id, 1, __ATOMIC_RELAXED);
    if (id == 0) id = __atomic_fetch_add(&np_arena->next_stack_id, 1, __ATOMIC_RELAXED);
    uint64_t *words = np_begin(slot, NP_REC_STACK, id, 3 + count, np_order());
    if (words == NULL) return 0;
    words[2] = count | (uint64_t)flags << 32;
    for (unsigned i = 0; i < count; i++) words[3 + i] = frames[i];
    np_commit(slot, 3 + count);
    return id;
}

/* The entry of this hash, or a free one claimed for it (*mine). NULL: no room near its place. */
static struct shared *find_shared(uint64_t hash, bool *mine) {
    struct shared *entries = shared_table();
    *mine = false;
    for (unsigned probe = 0; entries != NULL && probe < PROBES; probe++) {
        struct shared *entry = &entries[(hash + probe) & (TABLE_ENTRIES - 1)];
        uint64_t owner = __atomic_load_n(&entry->hash, __ATOMIC_ACQUIRE);
        if (owner == 0 && __atomic_compare_exchange_n(&entry->hash, &owner, hash, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            *mine = true;
            return entry;
        }
        if (owner == hash) return entry;
    }
    return NULL;
}

/* Another thread is about to publish this stack: a moment's patience saves a double. */
static uint32_t await_id(struct shared *entry, bool *mine) {
    for (unsigned tries = 0; tries < 1000; tries++) {
        uint32_t id = __atomic_load_n(&entry->id, __ATOMIC_ACQUIRE);
        if (id == NO_ID) {
            *mine = __atomic_compare_exchange_n(&entry->id, &id, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
            if (*mine) return 0;
        }
        if (id != 0 && id != NO_ID) return id;
        np_pause();
    }
    return 0;
}

static NP_COLD uint32_t find_id(struct np_slot *slot, uint64_t hash, const uintptr_t *frames, unsigned count, uint32_t flags) {
    bool mine;
    struct shared *entry = find_shared(hash, &mine);
    uint32_t id = 0;
    if (entry != NULL && !mine) id = await_id(entry, &mine);
    if (id != 0) return id;
    id = write_stack(slot, frames, count, flags);
    if (entry != NULL && mine) __atomic_store_n(&entry->id, id != 0 ? id : NO_ID, __ATOMIC_RELEASE);
    return id;
}

static uint32_t walk(struct np_slot *slot, struct np_stack_cache *cache, struct np_memo *memo, struct working *working) {
    uintptr_t *frames = working->frames;
    uint32_t flags, depth = np_arena->config.max_stack_depth;
    uint64_t hash;
    memo->id = 0;
    memo->is_python = false;
    uintptr_t stack_lo = slot->stack_lo;
    (void)stack_lo;
    unsigned most = depth - 1 < MAX_DEPTH ? depth : MAX_DEPTH, count = np_unwind(slot, memo, frames, most, &flags, &hash);
#ifndef NP_PLUGIN /* an emulator maps its guest's whole */
    if (np_unlikely(slot->stack_lo < stack_lo)) np_map_stack_grown(slot, slot->stack_lo, stack_lo - slot->stack_lo);
#endif
    if (np_unlikely(flags & 2)) __atomic_fetch_add(&np_arena->failed_unwinds, 1, __ATOMIC_RELAXED);
    if (np_unlikely(count == 0)) return 0;
    memo->native_hash = hash;
    bool may_have = !memo->may_interrupt && (!TAKES_ANY_INSTRUCTION || np_python_is_among(frames, count));
    bool has_python = may_have && np_python_walk(slot, &working->python, &hash, &memo->is_python);
    hash |= hash == 0;
    struct cached none = {0}, *entry = cache != NULL ? &cache->entries[hash % CACHE_ENTRIES] : &none;
    if (np_unlikely(entry->hash != hash)) {
        unsigned merged = has_python ? np_python_merge(slot, &working->python, &working->room, frames, count, most, &flags) : count;
        /* Without the Python functions it is another stack: not known by this hash. */
        if (np_unlikely(merged == 0)) return find_id(slot, memo->native_hash | (memo->native_hash == 0), frames, count, flags);
        count = merged;
        uint32_t id = find_id(slot, hash, frames, count, flags);
        if (id == 0) return 0;
        *entry = (struct cached){hash, id, 0};
    }
    if (memo->loads <= NP_MEMO_LOADS && !(flags & 2)) memo->id = entry->id;
    return entry->id;
}

uint32_t np_stack_of(struct np_slot *slot, const uintptr_t *frames, unsigned count, uint32_t flags) {
    uint64_t hash = np_hash_step(NP_HASH_FACTOR, flags);
    for (unsigned i = 0; i < count; i++) hash = np_hash_step(hash, frames[i]);
    return find_id(slot, hash | (hash == 0), frames, count, flags);
}

/* The id of the stack whose native frames are those of the memo; 0: it has to be walked. */
static uint32_t remembered(const struct np_slot *slot, struct np_stack_cache *cache, const struct np_memo *memo) {
    if (np_unlikely(memo->is_python)) {
        uint64_t hash = memo->native_hash;
        bool is_python;
        if (!np_python_walk(slot, &cache->working.python, &hash, &is_python)) return 0;
        hash |= hash == 0;
        const struct cached *entry = &cache->entries[hash % CACHE_ENTRIES];
        return entry->hash == hash ? entry->id : 0;
    }
    return memo->id;
}

static struct np_stack_cache *own_cache(void) {
    if (np_unlikely(np_tls.stacks == NULL)) np_tls.stacks = np_pages_new(NP_STACK_CACHE_BYTES);
    return np_tls.stacks;
}

#ifndef NP_PLUGIN
char *np_stack_path(void) {
    struct np_stack_cache *cache = np_tls_is_shared ? NULL : own_cache();
    return cache != NULL ? cache->path : NULL;
}
#endif

/* Threads that share their storage cannot share a cache. */
static NP_COLD uint32_t walk_alone(struct np_slot *slot, struct np_regs regs) {
    struct { struct np_memo memo; struct working working; } *alone = np_pages_new(sizeof *alone);
    if (alone == NULL) return 0;
    alone->memo.regs = regs;
    uint32_t id = walk(slot, NULL, &alone->memo, &alone->working);
    np_pages_free(alone, sizeof *alone);
    return id;
}

uint32_t np_stack_id(struct np_slot *slot, struct np_regs regs) {
    if (np_unlikely(np_tls_is_shared)) return walk_alone(slot, regs);
    struct np_stack_cache *cache = own_cache();
    if (np_unlikely(cache == NULL)) return 0;
    struct np_memo *memo = &cache->memos[(regs.pc ^ regs.sp << 3) * 0x9e3779b97f4a7c15ull >> (64 - MEMOS_LOG2)];
    if (np_likely(np_memo_holds(memo, regs))) {
        uint32_t id = remembered(slot, cache, memo);
        if (np_likely(id != 0)) return id;
    }
    memo->regs = regs;
    return walk(slot, cache, memo, &cache->working);
}
