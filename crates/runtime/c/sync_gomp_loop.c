/* sync_gomp_loop.c: the entry points at which threads of an OpenMP team fetch work (libgomp's, and libomp's dispatch). Each checks the
 * window first, so that iterations go to whoever comes first in program time, and charges the shared counter's atomic.
 */
#include "omp.h"

static void fetch(void) {
    struct np_slot *slot = np_vtime_self();
    if (slot == NULL) return;
    np_clock_advance(slot, NP_LOCK_CYCLES);
    np_throttle(slot);
}

#define NP_FETCH(name, parameters, ...)             \
    NP_EXPORT bool name parameters {                \
        fetch();                                    \
        return NP_OMP_REAL(name)(__VA_ARGS__);      \
    }
typedef unsigned long long ull;
#define NP_NEXT(name) NP_FETCH(name, (long *first, long *last), first, last)
#define NP_NEXT_ULL(name) NP_FETCH(name, (ull *first, ull *last), first, last)
#define NP_START(name) \
    NP_FETCH(name, (long start, long end, long step, long chunk, long *first, long *last), start, end, step, chunk, first, last)
#define NP_START_RUNTIME(name) NP_FETCH(name, (long start, long end, long step, long *first, long *last), start, end, step, first, last)
#define NP_START_ULL(name)                                                                                                   \
    NP_FETCH(name, (bool up, ull start, ull end, ull step, ull chunk, ull *first, ull *last), up, start, end, step, chunk, first, last)
#define NP_START_ULL_RUNTIME(name) \
    NP_FETCH(name, (bool up, ull start, ull end, ull step, ull *first, ull *last), up, start, end, step, first, last)

/* Kinds with a chunk size. */
#define NP_KIND(kind)                       \
    NP_START(GOMP_loop_##kind##_start)      \
    NP_NEXT(GOMP_loop_##kind##_next)        \
    NP_START_ULL(GOMP_loop_ull_##kind##_start) \
    NP_NEXT_ULL(GOMP_loop_ull_##kind##_next)
NP_KIND(static)
NP_KIND(dynamic)
NP_KIND(guided)
NP_KIND(nonmonotonic_dynamic)
NP_KIND(nonmonotonic_guided)
NP_KIND(ordered_static)
NP_KIND(ordered_dynamic)
NP_KIND(ordered_guided)

/* Kinds that OMP_SCHEDULE chooses. */
#define NP_KIND_RUNTIME(kind)                       \
    NP_START_RUNTIME(GOMP_loop_##kind##_start)      \
    NP_NEXT(GOMP_loop_##kind##_next)                \
    NP_START_ULL_RUNTIME(GOMP_loop_ull_##kind##_start) \
    NP_NEXT_ULL(GOMP_loop_ull_##kind##_next)
NP_KIND_RUNTIME(runtime)
NP_KIND_RUNTIME(nonmonotonic_runtime)
NP_KIND_RUNTIME(maybe_nonmonotonic_runtime)
NP_KIND_RUNTIME(ordered_runtime)

#define NP_START_GENERAL(name)                                                                                                        \
    NP_FETCH(name, (long start, long end, long step, long schedule, long chunk, long *first, long *last, void *reductions, void **memory), \
             start, end, step, schedule, chunk, first, last, reductions, memory)
#define NP_START_ULL_GENERAL(name)                                                                                                 \
    NP_FETCH(name, (bool up, ull start, ull end, ull step, long schedule, ull chunk, ull *first, ull *last, void *reductions,      \
                    void **memory),                                                                                                \
             up, start, end, step, schedule, chunk, first, last, reductions, memory)
NP_START_GENERAL(GOMP_loop_start)
NP_START_GENERAL(GOMP_loop_ordered_start)
NP_START_ULL_GENERAL(GOMP_loop_ull_start)
NP_START_ULL_GENERAL(GOMP_loop_ull_ordered_start)

NP_EXPORT unsigned GOMP_sections_start(unsigned count) {
    fetch();
    return NP_OMP_REAL(GOMP_sections_start)(count);
}

NP_EXPORT unsigned GOMP_sections2_start(unsigned count, void *reductions, void **memory) {
    fetch();
    return NP_OMP_REAL(GOMP_sections2_start)(count, reductions, memory);
}

NP_EXPORT unsigned GOMP_sections_next(void) {
    fetch();
    return NP_OMP_REAL(GOMP_sections_next)();
}

NP_EXPORT bool GOMP_single_start(void) {
    fetch();
    return NP_OMP_REAL(GOMP_single_start)();
}

/* libomp's dynamic loops; bounds of the four integer types pass through as pointers. */
#define NP_DISPATCH(name)                                                                                   \
    NP_EXPORT int name(void *location, int thread, int *last, void *lower, void *upper, void *stride) {     \
        fetch();                                                                                            \
        return NP_OMP_REAL(name)(location, thread, last, lower, upper, stride);                             \
    }
NP_DISPATCH(__kmpc_dispatch_next_4)
NP_DISPATCH(__kmpc_dispatch_next_4u)
NP_DISPATCH(__kmpc_dispatch_next_8)
NP_DISPATCH(__kmpc_dispatch_next_8u)
