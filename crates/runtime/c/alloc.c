/* alloc.c: malloc's family. alloc_new.c: C++'s operators.
 *
 * Each hook calls the next definition of its function in load order, so jemalloc, tcmalloc and mimalloc work as without us; blocks get no header. What
 * the real allocator calls in turn (operator new calls malloc) is not recorded again. A block is stamped after it was made and before
 * it is given back, so two lives of one address never overlap. The loader allocates while we look up the real functions: such blocks come
 * from bootstrap memory, and are never given back.
 */
#define _GNU_SOURCE
#include "emulator.h"
#include "track.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

static struct {
    __typeof__(&malloc) malloc;
    __typeof__(&calloc) calloc;
    __typeof__(&realloc) realloc;
    __typeof__(&reallocarray) reallocarray;
    __typeof__(&free) free;
    __typeof__(&aligned_alloc) aligned_alloc;
    __typeof__(&posix_memalign) posix_memalign;
    __typeof__(&memalign) memalign;
    __typeof__(&valloc) valloc;
    __typeof__(&pvalloc) pvalloc;
} real;
static bool is_ready;
static bool is_resolving;

/* -- bootstrap memory -- */

#define BOOTSTRAP_BYTES 65536u
static char bootstrap[BOOTSTRAP_BYTES] __attribute__((aligned(64)));
static size_t bootstrap_used;

bool np_alloc_is_bootstrap(const void *block) {
    return (uintptr_t)block - (uintptr_t)bootstrap < BOOTSTRAP_BYTES;
}

/* Zeroed, because it is never used twice. NULL when exhausted. */
static NP_COLD void *bootstrap_alloc(size_t bytes, size_t alignment) {
    if (bytes > BOOTSTRAP_BYTES || alignment > 64) return NULL;
    size_t whole = ((bytes + 63) & ~(size_t)63) + (bytes == 0 ? 64 : 0);
    size_t at = __atomic_fetch_add(&bootstrap_used, whole, __ATOMIC_RELAXED);
    return at + whole <= BOOTSTRAP_BYTES ? bootstrap + at : NULL;
}

static NP_COLD bool resolve(void) {
    if (__atomic_exchange_n(&is_resolving, true, __ATOMIC_ACQ_REL)) return __atomic_load_n(&is_ready, __ATOMIC_ACQUIRE);
    real.calloc = np_real("calloc");
    real.malloc = np_real("malloc");
    real.realloc = np_real("realloc");
    real.reallocarray = np_real("reallocarray");
    real.free = np_real("free");
    real.aligned_alloc = np_real("aligned_alloc");
    real.posix_memalign = np_real("posix_memalign");
    real.memalign = np_real("memalign");
    real.valloc = np_real("valloc");
    real.pvalloc = np_real("pvalloc");
    __atomic_store_n(&is_ready, true, __ATOMIC_RELEASE);
    return true;
}

bool np_alloc_ready(void) {
    return np_likely(__atomic_load_n(&is_ready, __ATOMIC_ACQUIRE)) || resolve(); /* with the release in resolve: `real` is whole */
}

/* -- records -- */

/* What an allocator gives back to the kernel with a block lies around it: glibc's heaps of threads are this large, and aligned to it. */
#define GONE_WINDOW (64ul << 20)
/* A call that gave memory back made a system call that does more than one that does nothing (emptying one page takes more than four times as long, unmapping it
 * twelve: Linux 6.18 on Zen 5): only then is anything asked. Both scale with the machine, and with an emulator, so the shorter is measured at the start. */
#define GONE_TIMES 3u
#define GONE_TRIES 16u
static uint64_t gone_ticks;

static NP_COLD void settle_nested(struct np_tls *tls, struct np_slot *slot, const void *block) {
    uint32_t nested = tls->nested;
    tls->nested = 0;
    /* An inner block that holds the outer one is the same memory under its first name. */
    if ((uintptr_t)block - (uintptr_t)tls->nested_last < tls->nested_bytes || block == tls->nested_last) nested--;
    if (slot != NULL && nested != 0) np_lost_reentrant(slot, nested);
    tls->nested_last = NULL;
}

/* The heap of the break: where it began, and how far blocks have reached since its end was last asked for. The real allocator moves that end
 * without a hook. */
#define HEAP_SPAN (1ul << 40)
static uintptr_t heap_low, heap_high;

/* A life begins on the pages that a larger block reaches into; those of small ones are looked at when they are given back. No other thread knows the block yet,
 * but its allocator has touched it: a page at the frontier of memory that was ever used, the block's first or the one that the word behind it is in, was
 * touched in making this block. */
#define SETTLED_BYTES (128ul << 10)
#define BLOCK_HEAD 17u
#define BLOCK_TAIL 15u
static inline void settle(struct np_slot *slot, const void *block, size_t bytes) {
    uintptr_t begin = (uintptr_t)block - BLOCK_HEAD, end = (uintptr_t)block + bytes + BLOCK_TAIL;
    uint64_t first = begin >> NP_PAGE_SHIFT, last = end >> NP_PAGE_SHIFT;
    if (np_likely(first == last) || np_track_only) return;
    if (bytes >= SETTLED_BYTES) {
        np_pages_settle((first + 1) << NP_PAGE_SHIFT, (last - first) << NP_PAGE_SHIFT);
        np_pages_frontier(slot, (uintptr_t)block);
    }
    np_pages_frontier(slot, end);
    if (end - heap_low < HEAP_SPAN && end > __atomic_load_n(&heap_high, __ATOMIC_RELAXED)) __atomic_store_n(&heap_high, end, __ATOMIC_RELAXED);
}

static void settle_heap(void) {
    uintptr_t end = (uintptr_t)NP_SYS1(SYS_brk, 0), high = __atomic_exchange_n(&heap_high, end, __ATOMIC_RELAXED);
    if (end < high) np_pages_settle(end, high - end);
}

static NP_COLD void settle_gone(const void *block) {
    struct np_slot *slot = np_load(np_arena) == NULL ? NULL : np_slot_here();
    if (slot == NULL || !np_enter(slot)) return;
    np_pages_given_back((uintptr_t)block, GONE_WINDOW);
    settle_heap();
    np_leave(slot);
}

void np_alloc_gone(const void *block, uint64_t began) {
    if (!np_load(np_track_only) && np_unlikely(np_ticks() - began >= np_load(gone_ticks))) settle_gone(block);
}

void *np_alloc_made(void *block, size_t bytes, enum np_alloc_kind kind, struct np_regs caller) {
    struct np_slot *slot = np_slot_here();
    if (np_unlikely(np_tls.nested != 0)) settle_nested(&np_tls, slot, block);
    if (np_unlikely(block == NULL || slot == NULL)) return block;
    if (np_unlikely(!np_enter(slot))) {
        np_lost_reentrant(slot, 1);
        return block;
    }
    np_heap_block(slot, (uintptr_t)block, bytes);
    settle(slot, block, bytes);
    np_put_alloc(slot, (uintptr_t)block, bytes, kind, np_stack_id(slot, caller));
    np_leave(slot);
    return block;
}

void np_alloc_freed(void *block, uint64_t order) {
    if (np_unlikely(np_tls.phase == NP_PHASE_ENDED)) {
        np_thread_freed_after_end(block, order);
        return;
    }
    struct np_slot *slot = np_slot_here();
    if (np_unlikely(slot == NULL)) return;
    if (np_unlikely(!np_enter(slot))) {
        np_lost_reentrant(slot, 1);
        return;
    }
    if (np_likely(np_begin(slot, NP_REC_FREE, (uintptr_t)block, 2, order) != NULL)) np_commit(slot, 2);
    np_leave(slot);
}

NP_COLD void *np_alloc_nested(void *block, size_t bytes) {
    struct np_tls *tls = &np_tls;
    if (block == NULL || (tls->nested != 0 && block == tls->nested_last)) return block;
    tls->nested++;
    tls->nested_last = block;
    tls->nested_bytes = bytes;
    return block;
}

/* Inside the real allocator: the outer hook's own block, or that of other code (a signal handler's). While attaching: ours. */
NP_COLD void np_alloc_nested_free(void *block) {
    if (block != np_tls.outer_block && np_tls.slot != NULL && !(np_tls.slot->in_hook & 1)) np_alloc_freed(block, np_order());
}

NP_COLD void np_alloc_thrown(struct np_regs caller) {
    struct np_tls *tls = &np_tls;
    uint32_t nested = tls->nested;
    void *block = tls->nested_last;
    tls->in_alloc = tls->nested = 0;
    if (nested != 0) np_alloc_made(block, tls->nested_bytes, NP_ALLOC_MALLOC, caller);
    if (nested > 1 && tls->slot != NULL) np_lost_reentrant(tls->slot, nested - 1);
}

void np_record_alloc(void *block, size_t bytes, enum np_alloc_kind kind, struct np_regs caller) {
    struct np_slot *slot = block != NULL ? np_slot_here() : NULL;
    if (slot == NULL) return;
    bool entered = np_enter(slot); /* the hook that calls may be in already */
    np_put_alloc(slot, (uintptr_t)block, bytes, kind, np_stack_id(slot, caller));
    if (entered) np_leave(slot);
}

void np_record_free(void *block) {
    struct np_slot *slot = block != NULL ? np_slot_here() : NULL;
    if (slot != NULL && np_begin(slot, NP_REC_FREE, (uintptr_t)block, 2, np_order()) != NULL) np_commit(slot, 2);
}

/* -- hooks -- */

/* The real call between the marks that tell what it calls in turn that it is not alone. Anything that the hooks run from
 * signal handlers leaves the marks as it found them. */
#define INSIDE(call)                                             \
    ({                                                           \
        np_alloc_enter();                                        \
        __typeof__(call) result_ = (call);                       \
        np_alloc_leave();                                        \
        result_;                                                 \
    })

NP_EXPORT void *malloc(size_t bytes) {
    if (np_unlikely(!np_alloc_ready())) return bootstrap_alloc(bytes, 16);
    if (np_alloc_is_inside()) return np_alloc_nested(real.malloc(bytes), bytes);
    return np_alloc_made(INSIDE(real.malloc(bytes)), bytes, NP_ALLOC_MALLOC, NP_CALLER_REGS());
}

NP_EXPORT void *calloc(size_t count, size_t each) {
    if (np_unlikely(!np_alloc_ready())) {
        size_t bytes;
        return __builtin_mul_overflow(count, each, &bytes) ? NULL : bootstrap_alloc(bytes, 16);
    }
    if (np_alloc_is_inside()) return np_alloc_nested(real.calloc(count, each), count * each);
    return np_alloc_made(INSIDE(real.calloc(count, each)), count * each, NP_ALLOC_CALLOC, NP_CALLER_REGS());
}

NP_EXPORT void free(void *block) {
    if (block == NULL || np_unlikely(np_alloc_is_bootstrap(block)) || np_unlikely(!np_alloc_ready())) return;
    if (np_alloc_is_inside()) {
        np_alloc_nested_free(block);
        real.free(block);
        return;
    }
    np_alloc_freed(block, np_order());
    np_tls.outer_block = block;
    uint64_t began = np_alloc_going();
    np_alloc_enter();
    real.free(block);
    np_alloc_leave();
    np_alloc_gone(block, began);
}

/* C23, in glibc from 2.43 on, which would go straight to its own free. An allocator that has them takes its blocks by free as well. */
NP_EXPORT void free_sized(void *block, size_t bytes) {
    (void)bytes;
    free(block);
}

NP_EXPORT void free_aligned_sized(void *block, size_t alignment, size_t bytes) {
    (void)alignment, (void)bytes;
    free(block);
}

static NP_COLD void *leave_bootstrap(void *old, size_t bytes) {
    void *block = malloc(bytes);
    size_t most = (size_t)(bootstrap + BOOTSTRAP_BYTES - (char *)old);
    if (block != NULL) memcpy(block, old, bytes < most ? bytes : most);
    return block;
}

/* By mremap, inside the allocator: then the pages have kept their homes. Otherwise the old block's are mapped, or of another place in the page. */
static void moved(const void *old, const void *block, size_t bytes) {
    struct np_slot *slot = bytes >= 1u << NP_PAGE_SHIFT && !np_load(np_track_only) ? np_slot_here() : NULL;
    if (slot == NULL || !np_enter(slot)) return;
    np_pages_remap((uintptr_t)old, (uintptr_t)block, bytes, false);
    settle_heap();
    np_leave(slot);
}

/* What a realloc of whatever spelling did. A failed one leaves the old block alive; one to size 0 may free and return nothing. */
static void *reallocated(void *old, void *block, size_t bytes, uint64_t before, struct np_regs caller) {
    if (old != NULL && (block != NULL || bytes == 0)) np_alloc_freed(old, before);
    if (old != NULL && block != NULL && block != old) moved(old, block, bytes);
    return np_alloc_made(block, bytes, NP_ALLOC_REALLOC, caller);
}

NP_EXPORT void *realloc(void *old, size_t bytes) {
    if (np_unlikely(!np_alloc_ready())) return old == NULL ? bootstrap_alloc(bytes, 16) : NULL;
    if (np_unlikely(old != NULL && np_alloc_is_bootstrap(old))) return leave_bootstrap(old, bytes);
    if (np_alloc_is_inside()) return np_alloc_nested(real.realloc(old, bytes), bytes);
    np_tls.outer_block = old;
    uint64_t before = np_order_kept();
    return reallocated(old, INSIDE(real.realloc(old, bytes)), bytes, before, NP_CALLER_REGS());
}

NP_EXPORT void *reallocarray(void *old, size_t count, size_t each) {
    size_t bytes;
    if (__builtin_mul_overflow(count, each, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    if (np_unlikely(!np_alloc_ready())) return old == NULL ? bootstrap_alloc(bytes, 16) : NULL;
    if (np_unlikely(old != NULL && np_alloc_is_bootstrap(old))) return leave_bootstrap(old, bytes);
    __typeof__(&reallocarray) call = real.reallocarray;
    if (np_alloc_is_inside()) return np_alloc_nested(call != NULL ? call(old, count, each) : real.realloc(old, bytes), bytes);
    np_tls.outer_block = old;
    uint64_t before = np_order_kept();
    void *block = INSIDE(call != NULL ? call(old, count, each) : real.realloc(old, bytes));
    return reallocated(old, block, bytes, before, NP_CALLER_REGS());
}

NP_EXPORT void *aligned_alloc(size_t alignment, size_t bytes) {
    if (np_unlikely(!np_alloc_ready())) return bootstrap_alloc(bytes, alignment);
    if (np_alloc_is_inside()) return np_alloc_nested(real.aligned_alloc(alignment, bytes), bytes);
    return np_alloc_made(INSIDE(real.aligned_alloc(alignment, bytes)), bytes, NP_ALLOC_ALIGNED, NP_CALLER_REGS());
}

NP_EXPORT void *memalign(size_t alignment, size_t bytes) {
    if (np_unlikely(!np_alloc_ready())) return bootstrap_alloc(bytes, alignment);
    if (np_alloc_is_inside()) return np_alloc_nested(real.memalign(alignment, bytes), bytes);
    return np_alloc_made(INSIDE(real.memalign(alignment, bytes)), bytes, NP_ALLOC_ALIGNED, NP_CALLER_REGS());
}

NP_EXPORT int posix_memalign(void **block, size_t alignment, size_t bytes) {
    if (np_unlikely(!np_alloc_ready())) return (*block = bootstrap_alloc(bytes, alignment)) != NULL ? 0 : ENOMEM;
    if (np_alloc_is_inside()) {
        int result = real.posix_memalign(block, alignment, bytes);
        if (result == 0) np_alloc_nested(*block, bytes);
        return result;
    }
    int result = INSIDE(real.posix_memalign(block, alignment, bytes));
    if (result == 0) np_alloc_made(*block, bytes, NP_ALLOC_ALIGNED, NP_CALLER_REGS());
    return result;
}

NP_EXPORT void *valloc(size_t bytes) {
    if (np_unlikely(!np_alloc_ready())) return NULL;
    if (np_alloc_is_inside()) return np_alloc_nested(real.valloc(bytes), bytes);
    return np_alloc_made(INSIDE(real.valloc(bytes)), bytes, NP_ALLOC_ALIGNED, NP_CALLER_REGS());
}

/* Whole pages are the caller's to use. */
NP_EXPORT void *pvalloc(size_t bytes) {
    if (np_unlikely(!np_alloc_ready())) return NULL;
    size_t whole = (bytes + 4095) & ~(size_t)4095;
    if (np_alloc_is_inside()) return np_alloc_nested(real.pvalloc(bytes), whole);
    return np_alloc_made(INSIDE(real.pvalloc(bytes)), whole, NP_ALLOC_ALIGNED, NP_CALLER_REGS());
}

NP_EXPORT int malloc_trim(size_t pad) {
    int result = NP_REAL(malloc_trim)(pad);
    struct np_slot *slot = np_load(np_track_only) ? NULL : np_slot_here();
    if (slot == NULL || !np_enter(slot)) return result;
    np_pages_settle(0, NP_ADDRESS_END); /* every heap there is */
    np_leave(slot);
    return result;
}

/* -- start -- */

static void measure_gone_ticks(void) {
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < GONE_TRIES; i++) {
        uint64_t began = np_ticks();
        NP_SYS0(SYS_getppid);
        uint64_t took = np_ticks() - began;
        if (took < least) least = took;
    }
    np_store(gone_ticks, GONE_TIMES * least);
}

/* An allocator linked into the executable (or preloaded before us) is called in our place: say so instead of showing an empty heap. */
void np_alloc_init(struct np_slot *slot) {
    if (!np_track_only) measure_gone_ticks();
    heap_low = (uintptr_t)NP_SYS1(SYS_brk, 0) & ~(GONE_WINDOW - 1);
    uintptr_t first = (uintptr_t)dlsym(RTLD_DEFAULT, "malloc");
    if ((first >= np_own.lo && first < np_own.hi) || np_emulator_follows(first)) return;
    static const char text[] = "warning: the program has its own malloc, which the tracker cannot intercept; its blocks are not recorded, "
                               "unless it reports them (docs/guides/pools.md)";
    np_put_mark(slot, text, sizeof text - 1);
}
