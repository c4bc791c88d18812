/* sync_ompt.c: OpenMP teams, barriers and tasks of LLVM's libomp, through the tool interface of the OpenMP specification (chapter OMPT), whose
 * few types are declared here by hand. The same rules as sync_gomp.c. Critical and ordered sections come through libomp's entry points,
 * since a tool hears of a release only after it.
 *
 * A program that brings its own tool keeps it, and then has no virtual time in its OpenMP regions.
 */
#define _GNU_SOURCE
#include "omp.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* ---- the interface ---- */

union tool_data {
    uint64_t value;
    void *pointer;
};
typedef void (*any_function)(void);
typedef any_function (*lookup_function)(const char *name);
struct start_tool_result {
    int (*initialize)(lookup_function lookup, int device, union tool_data *data);
    void (*finalize)(union tool_data *data);
    union tool_data data;
};
typedef int (*set_callback_function)(int event, any_function callback);

enum { EVENT_PARALLEL_BEGIN = 3, EVENT_PARALLEL_END = 4, EVENT_TASK_CREATE = 5, EVENT_TASK_SCHEDULE = 6, EVENT_IMPLICIT_TASK = 7,
       EVENT_SYNC_REGION_WAIT = 16, EVENT_SYNC_REGION = 23 };
enum { SCOPE_BEGIN = 1, SCOPE_END = 2 };
enum { TASK_INITIAL = 1, TASK_EXPLICIT = 4 };
enum { STATUS_COMPLETE = 1, STATUS_CANCEL = 3, STATUS_LATE_FULFILL = 6 };
enum { SYNC_BARRIER = 1, SYNC_BARRIER_LAST_OLD = 4, SYNC_TASKWAIT = 5, SYNC_TASKGROUP = 6, SYNC_BARRIER_WORKSHARE = 8,
       SYNC_BARRIER_PARALLEL = 9 };

/* ---- regions ---- */

struct tool_team {
    struct np_team team;
    struct np_omp outer; /* the master's place outside */
    uint32_t used;
};
#define TEAMS 1024
static struct tool_team teams[TEAMS];
static uint32_t next_team;

static struct tool_team *team_new(void) {
    for (int attempt = 0; attempt < 32; attempt++) {
        struct tool_team *team = &teams[__atomic_fetch_add(&next_team, 1, __ATOMIC_RELAXED) % TEAMS];
        uint32_t unused = 0;
        if (!__atomic_compare_exchange_n(&team->used, &unused, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) continue;
        memset(&team->team, 0, sizeof team->team);
        return team;
    }
    return NULL;
}

static void on_parallel_begin(union tool_data *task, const void *frame, union tool_data *parallel, unsigned requested, int flags,
                              const void *code) {
    (void)task, (void)frame, (void)requested, (void)flags, (void)code;
    struct np_slot *slot = np_vtime_self();
    struct tool_team *team = slot != NULL ? team_new() : NULL;
    parallel->pointer = team;
    if (team == NULL) return;
    np_share_charge(slot);
    team->team.fork_clock = np_clock_of(slot);
    team->outer = np_omp;
}

static void on_parallel_end(union tool_data *parallel, union tool_data *task, int flags, const void *code) {
    (void)task, (void)flags;
    struct np_slot *slot = np_vtime_self();
    struct tool_team *team = parallel->pointer;
    if (team == NULL) return;
    np_omp = team->outer;
    if (slot != NULL) {
        uint64_t end = team->team.end_clock;
        for (int i = 0; i < 2; i++) end = team->team.latest[i] > end ? team->team.latest[i] : end;
        np_clock_wait_until(slot, end, NP_SYNC_TEAM_END, (uintptr_t)code);
    }
    __atomic_store_n(&team->used, 0, __ATOMIC_RELEASE);
}

static void on_implicit_task(int endpoint, union tool_data *parallel, union tool_data *task, unsigned parties, unsigned index, int flags) {
    (void)parties;
    if (flags & TASK_INITIAL) return;
    struct np_slot *slot = np_vtime_self();
    if (slot == NULL) return;
    if (endpoint == SCOPE_BEGIN) {
        struct tool_team *team = parallel != NULL ? parallel->pointer : NULL;
        task->value = 0;
        np_omp = (struct np_omp){.team = team != NULL ? &team->team : NULL};
        if (team != NULL) np_clock_wait_until(slot, team->team.fork_clock, NP_SYNC_TEAM_START, (uintptr_t)team);
        np_block_suspend(slot);
        np_throttle(slot);
    } else if (endpoint == SCOPE_END) {
        np_task_drop(np_omp.task);
        np_omp = (struct np_omp){0};
        if (index != 0) np_block_resume(slot, 1); /* idle in the pool */
    }
}

/* ---- barriers and waits for tasks ---- */

static bool is_barrier(int kind) {
    return (kind >= SYNC_BARRIER && kind <= SYNC_BARRIER_LAST_OLD) || kind == SYNC_BARRIER_WORKSHARE || kind == SYNC_BARRIER_PARALLEL;
}

static void join_children(struct np_slot *slot, uint32_t task) {
    if (task != 0)
        np_clock_wait_until(slot, __atomic_load_n(&np_task_at(task)->children_clock, __ATOMIC_ACQUIRE), NP_SYNC_TEAM_END, 0);
}

static void group_begin(void) {
    uint32_t group = np_task_new();
    if (group == 0) return;
    np_task_at(group)->parent = np_omp.group;
    np_omp.group = group;
}

static void group_end(struct np_slot *slot) {
    uint32_t group = np_omp.group;
    if (group == 0) return;
    struct np_task *task = np_task_at(group);
    join_children(slot, group);
    np_omp.group = task->parent;
    if (task->parent != 0) np_atomic_max(&np_task_at(task->parent)->children_clock, task->children_clock);
    np_task_drop(group);
}

static void on_sync_region(int kind, int endpoint, union tool_data *parallel, union tool_data *task, const void *code) {
    (void)task, (void)code;
    struct np_slot *slot = np_vtime_self();
    if (slot == NULL) return;
    bool begins = endpoint == SCOPE_BEGIN;
    if (is_barrier(kind)) {
        if (begins) {
            np_team_arrive(slot);
        } else if (parallel != NULL) {
            np_team_leave(slot, NP_SYNC_OMP_BARRIER);
        } else { /* the region is over: the team may already be another one */
            if (np_omp.at_barrier > 0) np_omp.at_barrier--;
            np_block_end(slot);
        }
    } else if (kind == SYNC_TASKWAIT) {
        if (begins) {
            np_library_block_begin(slot);
        } else {
            join_children(slot, np_omp.task);
            np_block_end(slot);
        }
    } else if (kind == SYNC_TASKGROUP) {
        if (begins) group_begin();
        else group_end(slot);
    }
}

static void on_sync_region_wait(int kind, int endpoint, union tool_data *parallel, union tool_data *task, const void *code) {
    (void)parallel, (void)task, (void)code;
    struct np_slot *slot = kind == SYNC_TASKGROUP ? np_vtime_self() : NULL;
    if (slot == NULL) return;
    if (endpoint == SCOPE_BEGIN) np_library_block_begin(slot);
    else np_block_end(slot);
}

/* ---- tasks ---- */

static void on_task_create(union tool_data *creator, const void *frame, union tool_data *created, int flags, int dependences, const void *code) {
    (void)creator, (void)frame, (void)dependences, (void)code;
    created->value = 0;
    struct np_slot *slot = (flags & TASK_EXPLICIT) ? np_vtime_self() : NULL;
    if (slot == NULL) return;
    np_throttle(slot);
    if (np_omp.task == 0) np_omp.task = np_task_new();
    uint32_t index = np_task_new();
    if (index == 0) return;
    struct np_task *task = np_task_at(index);
    np_share_charge(slot);
    task->start_clock = np_clock_of(slot);
    task->parent = np_omp.task;
    task->group = np_omp.group;
    np_task_keep(task->parent);
    np_task_keep(task->group);
    created->value = index;
}

static void task_ends(struct np_slot *slot, uint32_t index) {
    struct np_task *task = np_task_at(index);
    np_share_charge(slot);
    uint64_t end = np_clock_of(slot);
    if (task->parent != 0) np_atomic_max(&np_task_at(task->parent)->children_clock, end);
    if (task->group != 0) np_atomic_max(&np_task_at(task->group)->children_clock, end);
    np_omp.task = task->outer_task;
    np_omp.group = task->outer_group;
    np_omp.at_barrier = task->outer_at_barrier;
    if (np_omp.team != NULL) {
        np_atomic_max(&np_omp.team->end_clock, end);
        if (np_omp.at_barrier > 0) np_atomic_max(&np_omp.team->latest[np_omp.barriers % 2], end);
    }
    uint32_t depth = task->depth;
    np_task_drop(task->parent);
    np_task_drop(task->group);
    np_task_drop(index);
    np_block_resume(slot, depth);
}

static void task_starts(struct np_slot *slot, uint32_t index) {
    struct np_task *task = np_task_at(index);
    task->depth = np_block_suspend(slot);
    task->outer_task = np_omp.task;
    task->outer_group = np_omp.group;
    task->outer_at_barrier = np_omp.at_barrier;
    np_omp.task = index;
    np_omp.group = task->group;
    np_omp.at_barrier = 0;
    np_clock_wait_until(slot, task->start_clock, NP_SYNC_TEAM_START, 0);
    np_throttle(slot);
}

static void on_task_schedule(union tool_data *prior, int status, union tool_data *next) {
    struct np_slot *slot = np_vtime_self();
    if (slot == NULL) return;
    bool ended = status == STATUS_COMPLETE || status == STATUS_CANCEL || status == STATUS_LATE_FULFILL;
    if (ended && prior != NULL && prior->value != 0 && np_omp.task == prior->value) {
        task_ends(slot, (uint32_t)prior->value);
        prior->value = 0;
    } else if (!ended && next != NULL && next->value != 0) {
        task_starts(slot, (uint32_t)next->value);
    }
}

/* ---- start ---- */

static int tool_initialize(lookup_function lookup, int device, union tool_data *data) {
    (void)device, (void)data;
    set_callback_function set = (set_callback_function)lookup("ompt_set_callback");
    if (set == NULL) return 0;
    set(EVENT_PARALLEL_BEGIN, (any_function)on_parallel_begin);
    set(EVENT_PARALLEL_END, (any_function)on_parallel_end);
    set(EVENT_IMPLICIT_TASK, (any_function)on_implicit_task);
    set(EVENT_SYNC_REGION, (any_function)on_sync_region);
    set(EVENT_SYNC_REGION_WAIT, (any_function)on_sync_region_wait);
    set(EVENT_TASK_CREATE, (any_function)on_task_create);
    set(EVENT_TASK_SCHEDULE, (any_function)on_task_schedule);
    return 1;
}

static void tool_finalize(union tool_data *data) {
    (void)data;
}

typedef struct start_tool_result *(*start_tool_function)(unsigned version, const char *runtime);

/* A tool that the program brings, other than the default that libomp itself defines. */
static start_tool_function programs_tool(void) {
    Dl_info where;
    start_tool_function found = (start_tool_function)dlsym(RTLD_NEXT, "ompt_start_tool");
    if (found == NULL || dladdr((void *)found, &where) == 0 || where.dli_fname == NULL) return NULL;
    return strstr(where.dli_fname, "libomp") != NULL || strstr(where.dli_fname, "libiomp") != NULL ? NULL : found;
}

NP_EXPORT struct start_tool_result *ompt_start_tool(unsigned version, const char *runtime) {
    static struct start_tool_result result = {tool_initialize, tool_finalize, {0}};
    start_tool_function other = programs_tool();
    if (other != NULL) return other(version, runtime);
    const char *libraries = getenv("OMP_TOOL_LIBRARIES");
    if (!np_vtime_on() || np_vtime_self() == NULL || (libraries != NULL && *libraries != 0)) return NULL;
    return &result;
}

/* ---- libomp's critical and ordered sections ---- */

#define NP_KMP_ENTER(name, parameters, ...)                                       \
    NP_EXPORT void name parameters {                                              \
        struct np_slot *slot = np_vtime_self();                                   \
        if (slot != NULL) {                                                       \
            np_throttle(slot);                                                    \
            np_lock_wait_begin(slot);                                             \
        }                                                                         \
        NP_OMP_REAL(name)(__VA_ARGS__);                                           \
        if (slot == NULL) return;                                                 \
        np_block_end(slot);                                                       \
        np_lock_acquired(slot, (uintptr_t)lock, NP_SYNC_MUTEX);                   \
    }
NP_KMP_ENTER(__kmpc_critical, (void *location, int thread, void *lock), location, thread, lock)
NP_KMP_ENTER(__kmpc_critical_with_hint, (void *location, int thread, void *lock, uint32_t hint), location, thread, lock, hint)

NP_EXPORT void __kmpc_end_critical(void *location, int thread, void *lock) {
    struct np_slot *slot = np_vtime_self();
    if (slot != NULL) np_lock_releasing(slot, (uintptr_t)lock, NP_SYNC_MUTEX);
    NP_OMP_REAL(__kmpc_end_critical)(location, thread, lock);
}

NP_EXPORT void __kmpc_ordered(void *location, int thread) {
    struct np_slot *slot = np_vtime_self();
    if (slot != NULL) np_library_block_begin(slot);
    NP_OMP_REAL(__kmpc_ordered)(location, thread);
    if (slot == NULL) return;
    if (np_omp.team != NULL)
        np_clock_wait_until(slot, __atomic_load_n(&np_omp.team->ordered_clock, __ATOMIC_ACQUIRE), NP_SYNC_OMP_BARRIER, (uintptr_t)np_omp.team);
    np_block_end(slot);
}

NP_EXPORT void __kmpc_end_ordered(void *location, int thread) {
    struct np_slot *slot = np_vtime_self();
    if (slot != NULL && np_omp.team != NULL) {
        np_share_charge(slot);
        np_atomic_max(&np_omp.team->ordered_clock, np_clock_of(slot));
    }
    NP_OMP_REAL(__kmpc_end_ordered)(location, thread);
}
