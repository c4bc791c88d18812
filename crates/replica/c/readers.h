/* readers.h: the process's readers: a record for each thread, and the lock over what a fork must find whole. */
#ifndef NPR_READERS_H
#define NPR_READERS_H

#include "nodes.h"
#include "protocol.h"

/* Before anything else. Both are called under the lock: in the child of a fork, and by each thread that has read, when it ends. */
NPR_HIDDEN void npr_start(void (*after_fork)(void), void (*at_thread_end)(void));

/* Held for a few instructions at a time, and across a fork. */
NPR_HIDDEN void npr_lock(void);
NPR_HIDDEN void npr_unlock(void);

NPR_HIDDEN extern struct npr_domain npr_the_domain;
NPR_HIDDEN extern uint32_t npr_span; /* npr_nodes()->span, for readers */
static inline struct npr_domain *npr_domain(void) { return &npr_the_domain; }

/* This thread's record; NULL before its first section. Initial-exec: no call into the loader, which a signal handler could not bear. */
NPR_HIDDEN extern __thread struct npr_reader *npr_self __attribute__((tls_model("initial-exec")));
NPR_HIDDEN void npr_enter_first(void);
NPR_HIDDEN void npr_leave_stray(void);

static inline void npr_enter(void) {
    struct npr_reader *self = npr_self;
    if (__builtin_expect(self != NULL, 1)) npr_pin(npr_domain(), self);
    else npr_enter_first();
}

static inline void npr_leave(void) {
    struct npr_reader *self = npr_self;
    if (__builtin_expect(self != NULL, 1)) npr_unpin(self);
    else npr_leave_stray();
}

/* The epoch that this thread noted when it entered the section it is in: what is replaced later waits for it. 0: it is in none. */
NPR_HIDDEN npr_word npr_inside_since(void);

#endif
