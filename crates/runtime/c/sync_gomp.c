/* sync_gomp.c: OpenMP teams, barriers, worksharing and locks through libgomp's entry points (also libomp's copies of them).
 *
 * A team's members start at the fork clock, its barriers release all members at the latest arrival, and the region ends for its master at
 * the latest end. The region's function is wrapped, so that pool threads count as running exactly while they run it. Dynamic
 * loops check the window before each chunk: chunks then go to whoever comes first in program time.
 */
#define _GNU_SOURCE
#include "omp.h"
#include "track.h"

#include <dlfcn.h>

_Thread_local struct np_omp np_omp __attribute__((tls_model("initial-exec")));

/* ---- the functions behind the hooks ---- */

static const char *const libraries[] = {"libgomp.so.1", "libomp.so.5", "libomp.so", "libiomp5.so"};
#define LIBRARIES (sizeof libraries / sizeof *libraries)

extern const struct np_real_place *np_begin_omp_reals[] __asm__("__start_np_omp_reals") NP_HIDDEN;
extern const struct np_real_place *np_end_omp_reals[] __asm__("__stop_np_omp_reals") NP_HIDDEN;

/* Looks for the listed functions that are not found yet. False: one is in no library. */
static bool find_listed(const struct np_real_place **begin, const struct np_real_place **end) {
    /* Libraries that were loaded with RTLD_LOCAL, as plug-ins are. */
    void *handles[LIBRARIES];
    bool has_all = true;
    for (unsigned i = 0; i < LIBRARIES; i++) handles[i] = NP_REAL(dlopen)(libraries[i], RTLD_LAZY | RTLD_NOLOAD);
    for (const struct np_real_place **at = begin; at < end; at++) {
        if (np_load(*(*at)->place) != NULL) continue;
        void *found = dlsym(RTLD_NEXT, (*at)->name);
        for (unsigned i = 0; found == NULL && i < LIBRARIES; i++)
            if (handles[i] != NULL) found = dlsym(handles[i], (*at)->name);
        np_store(*(*at)->place, found);
        has_all &= found != NULL;
    }
    for (unsigned i = 0; i < LIBRARIES; i++)
        if (handles[i] != NULL) NP_REAL(dlclose)(handles[i]);
    return has_all;
}

static bool find_all(void) { return find_listed(np_begin_omp_reals, np_end_omp_reals); }

void *np_omp_find(const struct np_real_place *real) {
    static bool are_found;
    if (!__atomic_exchange_n(&are_found, true, __ATOMIC_RELAXED)) np_look_up(find_all);
    int saved = errno;
    if (np_load(*real->place) == NULL) find_listed(&real, &real + 1); /* of a library that was loaded since */
    errno = saved;
    return np_load(*real->place);
}

/* ---- regions ---- */

struct region {
    struct np_team team;
    void (*function)(void *);
    void *data;
    struct np_slot *master;
    uint32_t expected; /* members that have not begun */
};

int omp_get_active_level(void), omp_get_max_active_levels(void), omp_get_max_threads(void);

/* Members that a region is going to have, as far as is known before it starts. */
static uint32_t members(unsigned threads) {
    int (*get_level)(void) = NP_OMP_REAL(omp_get_active_level), (*get_max_level)(void) = NP_OMP_REAL(omp_get_max_active_levels);
    int (*get_max)(void) = NP_OMP_REAL(omp_get_max_threads);
    if (get_max == NULL || get_level == NULL || get_max_level == NULL || get_level() >= get_max_level()) return 1;
    return threads != 0 ? threads : (uint32_t)get_max();
}

static bool take_expected(struct region *region) {
    uint32_t left = __atomic_load_n(&region->expected, __ATOMIC_RELAXED);
    while (left > 0 && !__atomic_compare_exchange_n(&region->expected, &left, left - 1, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return left > 0;
}

/* Entry of every member, master included. */
static void member(void *argument) {
    struct region *region = argument;
    struct np_slot *slot = np_vtime_self();
    if (slot == NULL) {
        region->function(region->data);
        return;
    }
    struct np_omp outer = np_omp;
    np_omp = (struct np_omp){.team = &region->team};
    np_clock_wait_until(slot, region->team.fork_clock, NP_SYNC_TEAM_START, (uintptr_t)region->function);
    np_block_suspend(slot);
    if (slot != region->master && take_expected(region)) np_vtime_birth_done(region->team.fork_clock);
    np_throttle(slot);
    region->function(region->data);
    np_share_charge(slot);
    np_atomic_max(&region->team.end_clock, np_clock_of(slot));
    np_task_drop(np_omp.task);
    np_omp = outer;
    /* Until its next region this thread waits in the library: at the region's end, or in the pool. */
    np_block_resume(slot, 1);
}

static struct region region_begin(struct np_slot *slot, void (*function)(void *), void *data, unsigned threads) {
    struct region region = {.function = function, .data = data, .master = slot};
    np_share_charge(slot);
    region.team.fork_clock = region.team.end_clock = np_clock_of(slot);
    region.expected = members(threads) - 1;
    np_wakes_begin(region.team.fork_clock, region.expected);
    return region;
}

static void region_end(struct region *region) {
    struct np_slot *slot = region->master;
    while (take_expected(region)) np_vtime_birth_done(region->team.fork_clock); /* the team was smaller */
    uint64_t end = __atomic_load_n(&region->team.end_clock, __ATOMIC_ACQUIRE);
    np_clock_wait_until(slot, end, NP_SYNC_TEAM_END, (uintptr_t)region->function);
    np_block_suspend(slot);
}

/* The members' entry blocks the master too when its share is done; region_end lets it go on. */
#define NP_REGION(name, parameters, ...)                                   \
    NP_EXPORT void name parameters {                                       \
        struct np_slot *slot = np_vtime_self();                            \
        if (slot == NULL) {                                                \
            NP_OMP_REAL(name)(__VA_ARGS__);                                \
            return;                                                        \
        }                                                                  \
        struct region region = region_begin(slot, function, data, threads);         \
        function = member;                                                 \
        data = &region;                                                    \
        NP_OMP_REAL(name)(__VA_ARGS__);                                    \
        region_end(&region);                                               \
    }
typedef void (*omp_function)(void *);
#define NP_REGION_LOOP(name)                                                                                                     \
    NP_REGION(name, (omp_function function, void *data, unsigned threads, long start, long end, long step, long chunk, unsigned flags), \
              function, data, threads, start, end, step, chunk, flags)
#define NP_REGION_LOOP_RUNTIME(name)                                                                                             \
    NP_REGION(name, (omp_function function, void *data, unsigned threads, long start, long end, long step, unsigned flags),     \
              function, data, threads, start, end, step, flags)

NP_REGION(GOMP_parallel, (omp_function function, void *data, unsigned threads, unsigned flags), function, data, threads, flags)
NP_REGION(GOMP_parallel_sections, (omp_function function, void *data, unsigned threads, unsigned count, unsigned flags), function, data,
          threads, count, flags)
NP_REGION_LOOP(GOMP_parallel_loop_static)
NP_REGION_LOOP(GOMP_parallel_loop_dynamic)
NP_REGION_LOOP(GOMP_parallel_loop_guided)
NP_REGION_LOOP(GOMP_parallel_loop_nonmonotonic_dynamic)
NP_REGION_LOOP(GOMP_parallel_loop_nonmonotonic_guided)
NP_REGION_LOOP_RUNTIME(GOMP_parallel_loop_runtime)
NP_REGION_LOOP_RUNTIME(GOMP_parallel_loop_nonmonotonic_runtime)
NP_REGION_LOOP_RUNTIME(GOMP_parallel_loop_maybe_nonmonotonic_runtime)

/* The library finds the reductions through the first word of the region's data: ours begins with it. */
struct reduction_region {
    void *reductions;
    struct region region;
};

static void reduction_member(void *argument) {
    member(&((struct reduction_region *)argument)->region);
}

NP_EXPORT unsigned GOMP_parallel_reductions(omp_function function, void *data, unsigned threads, unsigned flags) {
    struct np_slot *slot = np_vtime_self();
    if (slot == NULL) return NP_OMP_REAL(GOMP_parallel_reductions)(function, data, threads, flags);
    struct reduction_region whole = {*(void **)data, region_begin(slot, function, data, threads)};
    unsigned members = NP_OMP_REAL(GOMP_parallel_reductions)(reduction_member, &whole, threads, flags);
    region_end(&whole.region);
    return members;
}

/* Compilers before GCC 4.9: the master starts the team, runs its share by itself, and ends the team. */
#define OLD_REGIONS 8
NP_TLS struct {
    struct region regions[OLD_REGIONS];
    struct np_omp outer[OLD_REGIONS];
    unsigned depth;
} old;

NP_EXPORT void GOMP_parallel_start(omp_function function, void *data, unsigned threads) {
    struct np_slot *slot = np_vtime_self();
    unsigned depth = old.depth++;
    if (slot == NULL || depth >= OLD_REGIONS) {
        if (depth < OLD_REGIONS) old.regions[depth].master = NULL;
        NP_OMP_REAL(GOMP_parallel_start)(function, data, threads);
        return;
    }
    old.regions[depth] = region_begin(slot, function, data, threads);
    old.outer[depth] = np_omp;
    np_omp = (struct np_omp){.team = &old.regions[depth].team};
    NP_OMP_REAL(GOMP_parallel_start)(member, &old.regions[depth], threads);
}

NP_EXPORT void GOMP_parallel_end(void) {
    struct region *region = old.depth > 0 && old.depth <= OLD_REGIONS ? &old.regions[old.depth - 1] : NULL;
    if (old.depth > 0) old.depth--;
    if (region == NULL || region->master == NULL) {
        NP_OMP_REAL(GOMP_parallel_end)();
        return;
    }
    np_library_block_begin(region->master);
    NP_OMP_REAL(GOMP_parallel_end)();
    np_omp = old.outer[old.depth];
    region_end(region);
}

/* ---- barriers ---- */

void np_team_arrive(struct np_slot *slot) {
    np_throttle(slot);
    np_share_charge(slot);
    if (np_omp.team != NULL) np_atomic_max(&np_omp.team->latest[np_omp.barriers % 2], np_clock_of(slot));
    np_omp.at_barrier++;
    np_library_block_begin(slot);
}

void np_team_leave(struct np_slot *slot, enum np_sync_kind kind) {
    if (np_omp.team != NULL) {
        uint64_t latest = __atomic_load_n(&np_omp.team->latest[np_omp.barriers++ % 2], __ATOMIC_ACQUIRE);
        np_clock_wait_until(slot, latest, kind, (uintptr_t)np_omp.team);
    }
    if (np_omp.at_barrier > 0) np_omp.at_barrier--;
    np_block_end(slot);
}

#define NP_TEAM_BARRIER(type, name)                       \
    NP_EXPORT type name(void) {                           \
        struct np_slot *slot = np_vtime_self();           \
        if (slot == NULL) return NP_OMP_REAL(name)();     \
        np_team_arrive(slot);                             \
        NP_TEAM_CALL_##type(name);                        \
    }
#define NP_TEAM_CALL_void(name)                 \
    NP_OMP_REAL(name)();                        \
    np_team_leave(slot, NP_SYNC_OMP_BARRIER)
#define NP_TEAM_CALL_bool(name)                 \
    bool result = NP_OMP_REAL(name)();          \
    np_team_leave(slot, NP_SYNC_OMP_BARRIER);   \
    return result
NP_TEAM_BARRIER(void, GOMP_barrier)
NP_TEAM_BARRIER(bool, GOMP_barrier_cancel)
NP_TEAM_BARRIER(void, GOMP_loop_end)
NP_TEAM_BARRIER(bool, GOMP_loop_end_cancel)
NP_TEAM_BARRIER(void, GOMP_sections_end)
NP_TEAM_BARRIER(bool, GOMP_sections_end_cancel)

/* ---- single with copyprivate: the others wait for the one that ran it ---- */

NP_EXPORT void *GOMP_single_copy_start(void) {
    struct np_slot *slot = np_vtime_self();
    if (slot == NULL) return NP_OMP_REAL(GOMP_single_copy_start)();
    np_throttle(slot);
    np_library_block_begin(slot);
    void *copied = NP_OMP_REAL(GOMP_single_copy_start)();
    if (copied != NULL && np_omp.team != NULL)
        np_clock_wait_until(slot, __atomic_load_n(&np_omp.team->single_clock, __ATOMIC_ACQUIRE), NP_SYNC_OMP_BARRIER, (uintptr_t)np_omp.team);
    np_block_end(slot);
    return copied;
}

NP_EXPORT void GOMP_single_copy_end(void *data) {
    struct np_slot *slot = np_vtime_self();
    if (slot != NULL && np_omp.team != NULL) {
        np_share_charge(slot);
        np_atomic_max(&np_omp.team->single_clock, np_clock_of(slot));
    }
    NP_OMP_REAL(GOMP_single_copy_end)(data);
}

/* ---- locks, critical and atomic sections: resources; ordered: a chain ---- */

static char critical_lock, atomic_lock;

#define NP_OMP_LOCK(begin, end, parameters, argument, address)                                  \
    NP_EXPORT void begin parameters {                                                           \
        struct np_slot *slot = np_vtime_self();                                                 \
        if (slot == NULL) {                                                                     \
            NP_OMP_REAL(begin)(argument);                                                       \
            return;                                                                             \
        }                                                                                       \
        np_throttle(slot);                                                                      \
        np_lock_wait_begin(slot);                                                               \
        NP_OMP_REAL(begin)(argument);                                                           \
        np_block_end(slot);                                                                     \
        np_lock_acquired(slot, (uintptr_t)(address), NP_SYNC_MUTEX);                            \
    }                                                                                           \
    NP_EXPORT void end parameters {                                                             \
        struct np_slot *slot = np_vtime_self();                                                 \
        if (slot != NULL) np_lock_releasing(slot, (uintptr_t)(address), NP_SYNC_MUTEX);         \
        NP_OMP_REAL(end)(argument);                                                             \
    }
NP_OMP_LOCK(GOMP_critical_start, GOMP_critical_end, (void), , &critical_lock)
NP_OMP_LOCK(GOMP_atomic_start, GOMP_atomic_end, (void), , &atomic_lock)
NP_OMP_LOCK(GOMP_critical_name_start, GOMP_critical_name_end, (void **name), name, name)
NP_OMP_LOCK(omp_set_lock, omp_unset_lock, (void *lock), lock, lock)
NP_OMP_LOCK(omp_set_nest_lock, omp_unset_nest_lock, (void *lock), lock, lock)
/* Fortran's names of them, which go on inside the library. A nested lock is known by its variable there, and by what that points to in C. */
NP_OMP_LOCK(omp_set_lock_, omp_unset_lock_, (void *lock), lock, lock)
NP_OMP_LOCK(omp_set_nest_lock_, omp_unset_nest_lock_, (void *lock), lock, lock)

#define NP_OMP_TEST(name)                                                                       \
    NP_EXPORT int name(void *lock) {                                                            \
        struct np_slot *slot = np_vtime_self();                                                 \
        if (slot != NULL) np_throttle(slot);                                                    \
        int result = NP_OMP_REAL(name)(lock);                                                   \
        if (slot != NULL && result != 0) np_lock_acquired(slot, (uintptr_t)lock, NP_SYNC_MUTEX); \
        else if (slot != NULL) np_clock_advance(slot, NP_LOCK_CYCLES);                          \
        return result;                                                                          \
    }
NP_OMP_TEST(omp_test_lock)
NP_OMP_TEST(omp_test_nest_lock)
NP_OMP_TEST(omp_test_lock_)
NP_OMP_TEST(omp_test_nest_lock_)

NP_EXPORT void GOMP_ordered_start(void) {
    struct np_slot *slot = np_vtime_self();
    if (slot == NULL) {
        NP_OMP_REAL(GOMP_ordered_start)();
        return;
    }
    np_library_block_begin(slot);
    NP_OMP_REAL(GOMP_ordered_start)();
    if (np_omp.team != NULL)
        np_clock_wait_until(slot, __atomic_load_n(&np_omp.team->ordered_clock, __ATOMIC_ACQUIRE), NP_SYNC_OMP_BARRIER, (uintptr_t)np_omp.team);
    np_block_end(slot);
}

NP_EXPORT void GOMP_ordered_end(void) {
    struct np_slot *slot = np_vtime_self();
    if (slot != NULL && np_omp.team != NULL) {
        np_share_charge(slot);
        np_atomic_max(&np_omp.team->ordered_clock, np_clock_of(slot));
    }
    NP_OMP_REAL(GOMP_ordered_end)();
}
