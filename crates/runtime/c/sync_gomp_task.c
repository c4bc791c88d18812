/* sync_gomp_task.c: OpenMP tasks through libgomp. A task starts no earlier than its creation, and whoever waits for tasks
 * (taskwait, the end of a taskgroup, a barrier) leaves no earlier than the last of them ended.
 *
 * The task's function is wrapped, and its arguments are preceded by a header: two words that libgomp itself writes for some kinds of
 * task (loop bounds, event handle), then ours. Tasks with reductions are passed on untouched, since libgomp reads their
 * arguments by position.
 */
#define _GNU_SOURCE
#include "omp.h"

#include <alloca.h>
#include <string.h>

/* ---- tasks, also for sync_ompt.c ---- */

#define TASKS 16384
static struct np_task tasks[TASKS];
static uint32_t next_task;

struct np_task *np_task_at(uint32_t task) {
    return task != 0 ? &tasks[task] : NULL;
}

/* A fresh task with one reference; 0 when none is free nearby: its clocks are then not followed. */
uint32_t np_task_new(void) {
    for (int attempt = 0; attempt < 16; attempt++) {
        uint32_t index = __atomic_fetch_add(&next_task, 1, __ATOMIC_RELAXED) % TASKS;
        uint32_t none = 0;
        if (index == 0) continue;
        struct np_task *task = &tasks[index];
        if (!__atomic_compare_exchange_n(&task->references, &none, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) continue;
        task->children_clock = task->start_clock = 0;
        task->parent = 0;
        return index;
    }
    return 0;
}

void np_task_keep(uint32_t task) {
    if (task != 0) __atomic_fetch_add(&tasks[task].references, 1, __ATOMIC_RELAXED);
}

void np_task_drop(uint32_t task) {
    if (task != 0) __atomic_fetch_sub(&tasks[task].references, 1, __ATOMIC_RELEASE);
}

/* ---- the wrapper around a task's function ---- */

enum { TASK_NOGROUP = 1 << 11, TASK_REDUCTION = 1 << 12, TASK_DETACH = 1 << 13 }; /* libgomp's flags */

struct header {
    long words[2]; /* written by libgomp in taskloops (bounds) and detachable tasks (event) */
    void (*function)(void *);
    void (*copy)(void *, void *);
    void *original;      /* the program's arguments, valid while the task is being made */
    uint64_t clock;      /* at creation */
    uint32_t parent, group;
    uint32_t arguments;  /* offset of the arguments from the header */
    uint32_t bytes;
    uint32_t words_used; /* how many of `words` belong at the front of the arguments */
};

static void run_task(void *argument) {
    struct header *header = argument;
    void *arguments = (char *)argument + header->arguments;
    memcpy(arguments, header->words, header->words_used * sizeof(long));
    struct np_slot *slot = np_vtime_self();
    if (slot == NULL) {
        header->function(arguments);
        return;
    }
    struct np_omp outer = np_omp;
    uint32_t depth = np_block_suspend(slot);
    np_omp.task = 0;
    np_omp.group = header->group;
    np_omp.at_barrier = 0;
    np_clock_wait_until(slot, header->clock, NP_SYNC_TEAM_START, (uintptr_t)header->function);
    np_throttle(slot);
    uint32_t parent = header->parent, group = header->group; /* the task may free its arguments' memory by ending */
    header->function(arguments);
    np_share_charge(slot);
    uint64_t end = np_clock_of(slot);
    if (parent != 0) np_atomic_max(&np_task_at(parent)->children_clock, end);
    if (group != 0) np_atomic_max(&np_task_at(group)->children_clock, end);
    np_task_drop(np_omp.task);
    np_task_drop(parent);
    np_task_drop(group);
    uint64_t barriers = np_omp.barriers;
    np_omp = outer;
    np_omp.barriers = barriers;
    if (np_omp.team != NULL) {
        np_atomic_max(&np_omp.team->end_clock, end);
        if (np_omp.at_barrier > 0) np_atomic_max(&np_omp.team->latest[np_omp.barriers % 2], end);
    }
    np_block_resume(slot, depth);
}

static void copy_task(void *to, void *from) {
    struct header *header = to;
    memcpy(to, from, sizeof *header);
    header->copy((char *)to + header->arguments, ((struct header *)from)->original);
}

static size_t round_up(size_t value, size_t alignment) {
    return (value + alignment - 1) / alignment * alignment;
}

/* Fills the header in `block`, which has room for it and, when the arguments are plain bytes, for them. */
static void wrap(struct np_slot *slot, struct header *header, void (*function)(void *), void *data, void (*copy)(void *, void *), long bytes,
                 size_t offset, uint32_t words_used) {
    if (np_omp.task == 0) np_omp.task = np_task_new();
    np_share_charge(slot);
    *header = (struct header){.function = function, .copy = copy, .original = data, .clock = np_clock_of(slot), .parent = np_omp.task,
                              .group = np_omp.group, .arguments = (uint32_t)offset, .bytes = (uint32_t)bytes, .words_used = words_used};
    if (copy == NULL && bytes > 0) memcpy((char *)header + offset, data, (size_t)bytes);
    np_task_keep(header->parent);
    np_task_keep(header->group);
}

#define WRAPPED_MAX 4096 /* larger argument blocks are passed on unwrapped: they would need a lot of stack */

NP_EXPORT void GOMP_task(void (*function)(void *), void *data, void (*copy)(void *, void *), long bytes, long alignment, bool condition,
                         unsigned flags, void **depend, int priority, void *detach) {
    struct np_slot *slot = np_vtime_self();
    if (slot == NULL || (flags & TASK_DETACH) || bytes < 0 || bytes > WRAPPED_MAX || alignment > 256) {
        NP_OMP_REAL(GOMP_task)(function, data, copy, bytes, alignment, condition, flags, depend, priority, detach);
        return;
    }
    np_throttle(slot);
    size_t align = alignment > 16 ? (size_t)alignment : 16, offset = round_up(sizeof(struct header), align);
    void *room = alloca(offset + (size_t)bytes + align);
    struct header *header = (struct header *)round_up((uintptr_t)room, align);
    wrap(slot, header, function, data, copy, bytes, offset, 0);
    NP_OMP_REAL(GOMP_task)(run_task, header, copy != NULL ? copy_task : NULL, (long)offset + bytes, (long)align, condition, flags, depend,
                           priority, detach);
}

/* The tasks of a taskloop are copies of one header, so each would drop the references of one: it holds none, and joins through
 * the taskgroup around it (or the next barrier). */
static void run_loop_task(void *argument) {
    struct header *header = argument;
    np_task_keep(header->parent);
    np_task_keep(header->group);
    run_task(argument);
}

#define NP_TASKLOOP(name, integer)\
    NP_EXPORT void name(void (*function)(void *), void *data, void (*copy)(void *, void *), long bytes, long alignment, unsigned flags,  \
                        unsigned long count, int priority, integer start, integer end, integer step) {                                   \
        struct np_slot *slot = np_vtime_self();                                                                                          \
        if (slot == NULL || (flags & TASK_REDUCTION) || bytes < (long)(2 * sizeof(long)) || bytes > WRAPPED_MAX || alignment > 256) {    \
            NP_OMP_REAL(name)(function, data, copy, bytes, alignment, flags, count, priority, start, end, step);                         \
            return;                                                                                                                      \
        }                                                                                                                                \
        np_throttle(slot);                                                                                                               \
        size_t align = alignment > 16 ? (size_t)alignment : 16, offset = round_up(sizeof(struct header), align);                         \
        void *room = alloca(offset + (size_t)bytes + align);                                                                             \
        struct header *header = (struct header *)round_up((uintptr_t)room, align);                                                       \
        wrap(slot, header, function, data, copy, bytes, offset, 2);                                                                      \
        uint32_t parent = header->parent, group = header->group;                                                                         \
        np_library_block_begin(slot);                                                                                                            \
        NP_OMP_REAL(name)(run_loop_task, header, copy != NULL ? copy_task : NULL, (long)offset + bytes, (long)align, flags, count,       \
                          priority, start, end, step);                                                                                   \
        if (parent != 0) {                                                                                                               \
            uint64_t end_clock = __atomic_load_n(&np_task_at(parent)->children_clock, __ATOMIC_ACQUIRE);                                 \
            if (!(flags & TASK_NOGROUP)) np_clock_wait_until(slot, end_clock, NP_SYNC_TEAM_END, (uintptr_t)function);                    \
        }                                                                                                                                \
        np_block_end(slot);                                                                                                              \
        np_task_drop(parent);                                                                                                            \
        np_task_drop(group);                                                                                                             \
    }
NP_TASKLOOP(GOMP_taskloop, long)
NP_TASKLOOP(GOMP_taskloop_ull, unsigned long long)

/* ---- waiting for tasks ---- */

static void join_children(struct np_slot *slot, uint32_t task) {
    if (task == 0) return;
    np_clock_wait_until(slot, __atomic_load_n(&np_task_at(task)->children_clock, __ATOMIC_ACQUIRE), NP_SYNC_TEAM_END, 0);
}

NP_EXPORT void GOMP_taskwait(void) {
    struct np_slot *slot = np_vtime_self();
    if (slot == NULL) {
        NP_OMP_REAL(GOMP_taskwait)();
        return;
    }
    np_library_block_begin(slot);
    NP_OMP_REAL(GOMP_taskwait)();
    join_children(slot, np_omp.task);
    np_block_end(slot);
}

NP_EXPORT void GOMP_taskwait_depend(void **depend) {
    struct np_slot *slot = np_vtime_self();
    if (slot == NULL) {
        NP_OMP_REAL(GOMP_taskwait_depend)(depend);
        return;
    }
    np_library_block_begin(slot);
    NP_OMP_REAL(GOMP_taskwait_depend)(depend);
    join_children(slot, np_omp.task);
    np_block_end(slot);
}

/* Groups nest on the thread's stack of calls; the outer one is remembered as the group task's parent. */
NP_EXPORT void GOMP_taskgroup_start(void) {
    struct np_slot *slot = np_vtime_self();
    if (slot != NULL) {
        uint32_t group = np_task_new();
        if (group != 0) {
            np_task_at(group)->parent = np_omp.group;
            np_omp.group = group;
        }
    }
    NP_OMP_REAL(GOMP_taskgroup_start)();
}

NP_EXPORT void GOMP_taskgroup_end(void) {
    struct np_slot *slot = np_vtime_self();
    if (slot == NULL) {
        NP_OMP_REAL(GOMP_taskgroup_end)();
        return;
    }
    np_library_block_begin(slot);
    NP_OMP_REAL(GOMP_taskgroup_end)();
    uint32_t group = np_omp.group;
    join_children(slot, group);
    np_block_end(slot);
    if (group == 0) return;
    struct np_task *task = np_task_at(group);
    np_omp.group = task->parent;
    /* What ended in the inner group ended in the outer one. */
    if (task->parent != 0) np_atomic_max(&np_task_at(task->parent)->children_clock, task->children_clock);
    np_task_drop(group);
}
