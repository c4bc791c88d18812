/* omp.h: what sync_gomp.c, sync_gomp_task.c and sync_ompt.c share: teams and tasks in program time. */
#ifndef NUMAPILOT_OMP_H
#define NUMAPILOT_OMP_H

#include "vtime.h"

#pragma GCC visibility push(hidden)

/* Clocks of one team (one execution of a parallel region). All grow only. */
struct np_team {
    uint64_t fork_clock;
    uint64_t end_clock;        /* latest end of a member's share */
    /* Latest arrival at barrier g is latest[g % 2]: a thread that arrives at g + 2 has seen all members leave g. Never reset, as clocks only grow. */
    uint64_t latest[2];
    uint64_t single_clock;     /* end of the last single with copyprivate */
    uint64_t ordered_clock;    /* end of the last ordered section */
};

/* A task's clocks, counted by reference: its children may outlive it. Index 0: none. */
struct np_task {
    uint64_t children_clock; /* latest end of a child (of any descendant, for a taskgroup) */
    uint64_t start_clock;    /* of its creation */
    uint32_t references;
    uint32_t parent;         /* the creating task; of a group: the group around it */
    /* Only with OMPT, where a task has no frame of ours on the stack: */
    uint32_t group;
    uint32_t depth;          /* open blocks of the thread that runs it, resumed at its end */
    uint32_t outer_task, outer_group, outer_at_barrier;
};
uint32_t np_task_new(void);
void np_task_keep(uint32_t task);
void np_task_drop(uint32_t task);
struct np_task *np_task_at(uint32_t task);

/* Where this thread is in OpenMP terms. */
struct np_omp {
    struct np_team *team;
    uint64_t barriers;   /* passed in this team */
    uint32_t task;       /* np_task of the current task; 0: none of its own yet */
    uint32_t group;      /* of the innermost taskgroup */
    uint32_t at_barrier; /* inside one, where tasks may run */
};
extern _Thread_local struct np_omp np_omp __attribute__((tls_model("initial-exec")));

/* A function of the OpenMP library behind us, kept at its place once it is found; NULL if there is none. The first time, all that NP_OMP_REAL lists are looked
 * for: whoever begins the first region may hold the loader's lock, in a library's constructor, and the region's other threads would wait for that. */
void *np_omp_find(const struct np_real_place *real);

/* A barrier of the current team around the call that waits. */
void np_team_arrive(struct np_slot *slot);
void np_team_leave(struct np_slot *slot, enum np_sync_kind kind);

#define NP_OMP_REAL(name)                                                                    \
    ({                                                                                       \
        static __typeof__(&name) real_;                                                      \
        NP_LISTED_IN("np_omp_reals", real_, #name, NULL);                                    \
        __typeof__(&name) found_ = np_load(real_);                                           \
        if (np_unlikely(found_ == NULL)) found_ = (__typeof__(&name))np_omp_find(&listed_);  \
        found_;                                                                              \
    })

#pragma GCC visibility pop
#endif
