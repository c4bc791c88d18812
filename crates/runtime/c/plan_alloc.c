/* plan_alloc.c: malloc's family, and C++'s operators, for a program under a plan.
 *
 * What no rule takes goes on to the next definition in load order, by a jump. The pointers to it begin at stubs that find the real functions; so
 * there is nothing to check per call but the size (against those that rules take) and, in free, the address (against our own range).
 */
#define _GNU_SOURCE
#include "operators.h"
#include "plan.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

/* Sizes from `least` to `least + span` may be taken by a rule. At first none: least + span is the greatest number, which no program requests. */
static struct { size_t least, span; } sizes = {SIZE_MAX, 0};
/* Relaxed, as every allocation asks; place_as and replace look again, with what was set up before. Of a pair that is half new, rules take what they take. */
static inline bool may_match(size_t bytes) { return np_unlikely(bytes - np_load(sizes.least) <= np_load(sizes.span)); }
/* With the release in np_plan_alloc_start, whose store may_match saw, but where it saw `span` alone: then no rule holds yet. */
static bool may_place(void) { return __atomic_load_n(&sizes.least, __ATOMIC_ACQUIRE) != SIZE_MAX; }

static void *find_malloc(size_t bytes);
static void *find_calloc(size_t count, size_t each);
static void *find_realloc(void *old, size_t bytes);
static void find_free(void *block);
static void *find_aligned(size_t alignment, size_t bytes);
static int find_posix(void **block, size_t alignment, size_t bytes);
static size_t find_size(void *block);

static struct {
    __typeof__(&malloc) malloc;
    __typeof__(&calloc) calloc;
    __typeof__(&realloc) realloc;
    __typeof__(&free) free;
    __typeof__(&memalign) memalign;
    __typeof__(&aligned_alloc) aligned_alloc;
    __typeof__(&posix_memalign) posix_memalign;
    __typeof__(&malloc_usable_size) malloc_usable_size;
} real = {find_malloc, find_calloc, find_realloc, find_free, find_aligned, find_aligned, find_posix, find_size};
/* Relaxed: every function that may stand there serves, and what the limited ones need they look up again. */
#define REAL(name) np_load(real.name)

/* -- under a limit on addresses or memory: what fails is tried again once the planner has given back what it does not use -- */

static __typeof__(real) unlimited;
/* With the release in LIMIT: who is in a limited function has seen its store. */
#define UNLIMITED(name) ((void)__atomic_load_n(&real.name, __ATOMIC_ACQUIRE), unlimited.name)

#define AGAIN(type, is_failed, call)                                         \
    ({                                                                       \
        int saved = errno;                                                   \
        type result = (call);                                                \
        if (is_failed && np_region_shrink()) {                               \
            result = (call);                                                 \
            if (!(is_failed)) errno = saved;                                 \
        }                                                                    \
        result;                                                              \
    })
static void *limited_malloc(size_t bytes) { return AGAIN(void *, result == NULL, UNLIMITED(malloc)(bytes)); }
static void *limited_calloc(size_t count, size_t each) { return AGAIN(void *, result == NULL, UNLIMITED(calloc)(count, each)); }
static void *limited_realloc(void *old, size_t bytes) { return AGAIN(void *, result == NULL && bytes != 0, UNLIMITED(realloc)(old, bytes)); }
static void *limited_memalign(size_t alignment, size_t bytes) { return AGAIN(void *, result == NULL, UNLIMITED(memalign)(alignment, bytes)); }
static void *limited_aligned(size_t alignment, size_t bytes) { return AGAIN(void *, result == NULL, UNLIMITED(aligned_alloc)(alignment, bytes)); }
static int limited_posix(void **block, size_t alignment, size_t bytes) {
    return AGAIN(int, result == ENOMEM, UNLIMITED(posix_memalign)(block, alignment, bytes));
}

static void limit(void) {
    unlimited = real;
#define LIMIT(name, by) if (unlimited.name != NULL) __atomic_store_n(&real.name, by, __ATOMIC_RELEASE)
    LIMIT(malloc, limited_malloc);
    LIMIT(calloc, limited_calloc);
    LIMIT(realloc, limited_realloc);
    LIMIT(memalign, limited_memalign);
    LIMIT(aligned_alloc, limited_aligned);
    LIMIT(posix_memalign, limited_posix);
}

/* -- finding the real functions; meanwhile the loader is served from the region's first granule -- */

static uint32_t finding;

/* False: the caller is the loader, looking up for us. */
static NP_COLD bool find(void) {
    if (np_plan_tls.busy) return false;
    np_plan_tls.busy = 1;
    if (__atomic_exchange_n(&finding, 1, __ATOMIC_ACQ_REL) == 0) {
        np_plan_attach();
#define FIND(name) __typeof__(real.name) name##_ = (__typeof__(real.name))np_real(#name)
        FIND(malloc); FIND(calloc); FIND(realloc); FIND(free); FIND(memalign); FIND(aligned_alloc); FIND(posix_memalign); FIND(malloc_usable_size);
#define SET(name) if (name##_ != NULL) __atomic_store_n(&real.name, name##_, __ATOMIC_RELEASE)
        SET(calloc); SET(realloc); SET(free); SET(memalign); SET(aligned_alloc); SET(posix_memalign); SET(malloc_usable_size); SET(malloc);
        if (np_load(np_region_is_limited)) limit();
    } else {
        while (__atomic_load_n(&real.malloc, __ATOMIC_ACQUIRE) == find_malloc) np_pause();
    }
    np_plan_tls.busy = 0;
    return true;
}

static NP_COLD void *find_malloc(size_t bytes) { return find() ? REAL(malloc)(bytes) : np_region_bootstrap(bytes); }
static NP_COLD void *find_calloc(size_t count, size_t each) { return find() ? REAL(calloc)(count, each) : np_region_bootstrap(count * each); }
static NP_COLD void find_free(void *block) { if (find()) REAL(free)(block); }
static NP_COLD void *find_realloc(void *old, size_t bytes) {
    if (find()) return REAL(realloc)(old, bytes);
    return old == NULL ? np_region_bootstrap(bytes) : NULL;
}
static NP_COLD void *find_aligned(size_t alignment, size_t bytes) {
    if (find()) return REAL(memalign)(alignment, bytes);
    return alignment <= 64 ? np_region_bootstrap(bytes) : NULL;
}
static NP_COLD int find_posix(void **block, size_t alignment, size_t bytes) {
    if (find()) return REAL(posix_memalign)(block, alignment, bytes);
    return (*block = alignment <= 64 ? np_region_bootstrap(bytes) : NULL) != NULL ? 0 : ENOMEM;
}
static NP_COLD size_t find_size(void *block) { return find() ? REAL(malloc_usable_size)(block) : 0; }

/* From the constructor on rules hold. */
void np_plan_alloc_start(uint64_t least, uint64_t most) {
    /* With the release in find, perhaps another thread's. */
    if (__atomic_load_n(&real.malloc, __ATOMIC_ACQUIRE) == find_malloc) find();
    if (least > most) return;
    np_store(sizes.span, most - least);
    __atomic_store_n(&sizes.least, least, __ATOMIC_RELEASE);
}

/* -- placing -- */

/* A block beside one of the program's own allocator: see plan_twin.c. */
static void *place_beside(struct np_plan_thread *thread, uint32_t rule, size_t bytes, size_t alignment, bool zero) {
    /* The calls that the program made, as far as its allocator can distinguish them. */
    void *twin = zero ? REAL(calloc)(1, bytes) : alignment > 16 ? REAL(memalign)(alignment, bytes) : REAL(malloc)(bytes);
    if (twin == NULL) return NULL;
    size_t usable = REAL(malloc_usable_size)(twin);
    void *block = np_twin_alloc(thread, rule, bytes, zero, twin, usable > bytes ? usable : bytes);
    if (block == NULL) REAL(free)(twin);
    return block;
}

static inline bool is_busy(const void *own) { return np_unlikely(np_plan_tls.busy != 0) && !np_plan_was_left(own); }

/* A block of a rule's arena, or NULL: no rule takes it, or there is no memory for it in the region. */
static __attribute__((noinline)) void *place_as(size_t bytes, size_t alignment, bool zero, bool grows, struct np_regs caller) {
    if (is_busy(__builtin_frame_address(0)) || !may_place()) return NULL;
    int saved = errno;
    np_plan_tls.busy = 1;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    void *block = NULL;
    struct np_plan_thread *thread = np_plan_thread_here();
    int rule = thread != NULL ? np_match(thread, bytes, caller) : -1;
    if (rule >= 0) {
        if (np_is_confined) block = NULL;
        else if (np_plan_has_twins()) block = place_beside(thread, (uint32_t)rule, bytes, alignment, zero);
        else if (grows) block = np_arena_alloc_growing(thread, (uint32_t)rule, bytes);
        else block = np_arena_alloc(thread, (uint32_t)rule, bytes, alignment, zero);
        if (block == NULL) np_plan_count(&np_plan_rules()[rule].passed, 1);
    }
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    np_plan_tls.busy = 0;
    errno = saved;
    return block;
}

static inline void *place(size_t bytes, size_t alignment, bool zero, struct np_regs caller) { return place_as(bytes, alignment, zero, false, caller); }

/* What realloc makes of a block in an arena, if a rule takes its new size and this call's stack. NULL: none, or no memory. */
static NP_COLD void *replace(void *old, size_t bytes, struct np_regs caller) {
    if (is_busy(__builtin_frame_address(0)) || !may_place()) return NULL;
    int saved = errno;
    np_plan_tls.busy = 1;
    struct np_plan_thread *thread = np_plan_thread_here();
    int rule = thread != NULL ? np_match(thread, bytes, caller) : -1;
    void *block = rule >= 0 && !np_is_confined ? np_arena_regrow(thread, (uint32_t)rule, old, bytes) : NULL;
    if (rule >= 0 && block == NULL) np_plan_count(&np_plan_rules()[rule].passed, 1);
    np_plan_tls.busy = 0;
    errno = saved;
    return block;
}

static void give_now(void *block) {
    void *twin = np_twin_of(block);
    if (twin == NULL) {
        np_arena_free(np_plan_tls.thread, block);
    } else {
        np_twin_free(block);
        REAL(free)(twin);
    }
}

/* A signal handler's, which interrupted the planner in the middle of a list, or with a lock: the block goes with the thread's next one. */
static NP_COLD void give_later(void *block) {
    void *next = np_load(np_plan_tls.later);
    do *(void **)block = next;
    while (!__atomic_compare_exchange_n(&np_plan_tls.later, &next, block, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

NP_COLD void np_plan_give_late(void) {
    void *block = __atomic_exchange_n(&np_plan_tls.later, NULL, __ATOMIC_RELAXED);
    while (block != NULL) {
        void *next = *(void **)block;
        give_now(block);
        block = next;
    }
}

static void give(void *block) {
    if (is_busy(__builtin_frame_address(0))) {
        give_later(block);
        return;
    }
    int saved = errno;
    np_plan_tls.busy = 1;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    give_now(block);
    if (np_unlikely(np_load(np_plan_tls.later) != NULL)) np_plan_give_late();
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    np_plan_tls.busy = 0;
    errno = saved;
}

static size_t size_of_ours(const void *block) {
    void *twin = np_twin_of(block);
    if (twin != NULL) return REAL(malloc_usable_size)(twin);
    size_t bytes = np_arena_size(block);
    return bytes != 0 ? bytes : NP_GRANULE - ((uintptr_t)block & (NP_GRANULE - 1)); /* bootstrap memory */
}

/* -- the family -- */

NP_EXPORT void *malloc(size_t bytes) {
    if (may_match(bytes)) {
        void *block = place(bytes, 16, false, NP_CALLER_REGS());
        if (block != NULL) return block;
    }
    return REAL(malloc)(bytes);
}

NP_EXPORT void *calloc(size_t count, size_t each) {
    size_t bytes;
    if (!__builtin_mul_overflow(count, each, &bytes) && may_match(bytes)) {
        void *block = place(bytes, 16, true, NP_CALLER_REGS());
        if (block != NULL) return block;
    }
    return REAL(calloc)(count, each);
}

NP_EXPORT void free(void *block) {
    if (np_unlikely(np_is_ours(block))) give(block);
    else REAL(free)(block);
}

NP_EXPORT void cfree(void *block) {
    free(block);
}

/* C23, in glibc from 2.43 on, which would take our block for its own. */
NP_EXPORT void free_sized(void *block, size_t bytes) {
    (void)bytes;
    free(block);
}

NP_EXPORT void free_aligned_sized(void *block, size_t alignment, size_t bytes) {
    (void)alignment, (void)bytes;
    free(block);
}

/* Of our block. One that has to grow or move is decided anew, by its new size and this call's stack. */
static NP_COLD void *regrow(void *old, size_t bytes, struct np_regs caller) {
    if (bytes == 0) {
        give(old);
        return NULL;
    }
    size_t had = size_of_ours(old);
    const struct np_span *span = np_span_of(old);
    bool in_arena = span != NULL && span->arena != NULL;
    /* It fits, and little would be saved. */
    if (in_arena && bytes <= had && (bytes > had / 2 || had <= 64)) return old;
    if (in_arena && !np_plan_has_twins()) {
        void *block = may_match(bytes) ? replace(old, bytes, caller) : NULL;
        if (block != NULL) return block;
    }
    void *block = may_match(bytes) && (!in_arena || np_plan_has_twins()) ? place(bytes, 16, false, caller) : NULL;
    if (block == NULL) block = REAL(malloc)(bytes);
    if (block == NULL) return NULL;
    np_arena_copy(block, old, bytes < had ? bytes : had);
    give(old);
    return block;
}

static void *reallocate(void *old, size_t bytes, struct np_regs caller) {
    if (np_unlikely(np_is_ours(old))) return regrow(old, bytes, caller);
    if (bytes != 0 && may_match(bytes)) {
        size_t had = old != NULL ? REAL(malloc_usable_size)(old) : 0;
        void *block = place_as(bytes, 16, false, had > NP_SMALL_MAX && bytes > had, caller);
        if (block != NULL) {
            if (old == NULL) return block;
            memcpy(block, old, bytes < had ? bytes : had);
            REAL(free)(old);
            return block;
        }
    }
    return REAL(realloc)(old, bytes);
}

NP_EXPORT void *realloc(void *old, size_t bytes) {
    return reallocate(old, bytes, NP_CALLER_REGS());
}

NP_EXPORT void *reallocarray(void *old, size_t count, size_t each) {
    size_t bytes;
    if (__builtin_mul_overflow(count, each, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return reallocate(old, bytes, NP_CALLER_REGS());
}

static bool is_alignment(size_t alignment) { return alignment != 0 && (alignment & (alignment - 1)) == 0; }

NP_EXPORT void *memalign(size_t alignment, size_t bytes) {
    if (may_match(bytes) && is_alignment(alignment)) {
        void *block = place(bytes, alignment, false, NP_CALLER_REGS());
        if (block != NULL) return block;
    }
    return REAL(memalign)(alignment, bytes);
}

NP_EXPORT void *aligned_alloc(size_t alignment, size_t bytes) {
    if (may_match(bytes) && is_alignment(alignment)) {
        void *block = place(bytes, alignment, false, NP_CALLER_REGS());
        if (block != NULL) return block;
    }
    return REAL(aligned_alloc)(alignment, bytes);
}

NP_EXPORT int posix_memalign(void **result, size_t alignment, size_t bytes) {
    if (may_match(bytes) && is_alignment(alignment) && alignment >= sizeof(void *)) {
        void *block = place(bytes, alignment, false, NP_CALLER_REGS());
        if (block != NULL) {
            *result = block;
            return 0;
        }
    }
    return REAL(posix_memalign)(result, alignment, bytes);
}

NP_EXPORT void *valloc(size_t bytes) {
    if (may_match(bytes)) {
        void *block = place(bytes, np_page_bytes(), false, NP_CALLER_REGS());
        if (block != NULL) return block;
    }
    return REAL(memalign)(np_page_bytes(), bytes);
}

NP_EXPORT void *pvalloc(size_t bytes) {
    size_t page = np_page_bytes(), whole = (bytes + page - 1) & -page;
    if (whole >= bytes && may_match(whole)) {
        void *block = place(whole, page, false, NP_CALLER_REGS());
        if (block != NULL) return block;
    }
    return REAL(memalign)(page, whole >= bytes ? whole : bytes);
}

NP_EXPORT size_t malloc_usable_size(void *block) {
    if (block == NULL) return 0;
    return np_unlikely(np_is_ours(block)) ? size_of_ours(block) : REAL(malloc_usable_size)(block);
}

/* -- C++ -- */

/* Looking it up may allocate: the loader's own blocks are none of a plan's. */
static NP_COLD void *find_operator(const char *name) {
    uint32_t busy = np_plan_tls.busy;
    np_plan_tls.busy = 1;
    void *found = np_find_operator(name, dlclose);
    np_plan_tls.busy = busy;
    return found;
}

static NP_COLD void *without_operator(size_t bytes, size_t alignment, bool throws) {
    void *block = alignment != 0 ? REAL(memalign)(alignment, bytes) : REAL(malloc)(bytes != 0 ? bytes : 1);
    if (block == NULL && throws) abort(); /* no C++ library could throw bad_alloc */
    return block;
}

/* The C++ library's own operators are malloc with an exception at the end: what no rule takes then goes there at once, so that the decision is not made
 * a second time inside. Replaced operators are called. */
static NP_COLD bool find_plain(void) {
    Dl_info info;
    uint32_t busy = np_plan_tls.busy;
    np_plan_tls.busy = 1;
    void *found = find_operator("_Znwm");
    bool plain = found != NULL && dladdr(found, &info) != 0 && info.dli_fname != NULL && strstr(info.dli_fname, "/libstdc++.so") != NULL;
    np_plan_tls.busy = busy;
    return plain;
}

static inline bool is_plain(void) {
    static uint32_t known; /* 0 unknown, 1 no, 2 yes */
    if (np_unlikely(np_load(known) == 0)) np_store(known, find_plain() ? 2 : 1); /* whoever races finds the same */
    return np_load(known) == 2;
}

/* A call of the next operator comes last, so that an exception finds nothing of ours on its way. */
#define NEW(name, is_array, parameters, arguments, align, throws)                                             \
    void *name parameters;                                                                          \
    NP_EXPORT void *name parameters {                                                               \
        static void *(*next) parameters;                                                            \
        NP_OPERATOR_LISTED(next, #name);                                                            \
        if (may_match(bytes)) {                                                                     \
            void *block = place(bytes, align != 0 ? align : 16, false, NP_CALLER_REGS());           \
            if (block != NULL) return block;                                                        \
            if (is_plain()) {                                                                       \
                block = align != 0 ? REAL(memalign)(align, bytes) : REAL(malloc)(bytes + (bytes == 0)); \
                if (block != NULL) return block;                                                    \
            }                                                                                       \
        }                                                                                           \
        void *(*call) parameters = NP_KEPT(next, find_operator(#name));                             \
        if (np_unlikely(call == NULL)) return without_operator(bytes, align, throws);               \
        return call arguments;                                                                      \
    }

#include "operators.h"

#define DELETE(name, parameters, arguments)                                  \
    void name parameters;                                                    \
    NP_EXPORT void name parameters {                                         \
        static void (*next) parameters;                                      \
        NP_OPERATOR_LISTED(next, #name);                                     \
        if (np_unlikely(np_is_ours(block))) {                                \
            give(block);                                                     \
            return;                                                          \
        }                                                                    \
        void (*call) parameters = NP_KEPT(next, find_operator(#name));       \
        if (np_unlikely(call == NULL)) REAL(free)(block);                     \
        else call arguments;                                                 \
    }

#include "operators.h"
