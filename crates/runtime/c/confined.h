/* confined.h: which calls of seccomp() put the caller under a filter, and whether they did. Most operations, and one without a filter, only ask what the
 * kernel has. */
#ifndef NUMAPILOT_CONFINED_H
#define NUMAPILOT_CONFINED_H

#include "sys.h"

#include <linux/seccomp.h>
#include <stdbool.h>

static inline bool np_seccomp_confines(long operation, long filter) {
    return operation == SECCOMP_SET_MODE_STRICT || (operation == SECCOMP_SET_MODE_FILTER && filter != 0);
}

/* With SECCOMP_FILTER_FLAG_TSYNC a positive result is a thread that stood in the way; with a listener it is the listener's descriptor. */
static inline bool np_seccomp_failed(long result, long flags) {
    return result < 0 || (result > 0 && !(flags & SECCOMP_FILTER_FLAG_NEW_LISTENER));
}

/* The filter that was about to be set is not there. */
static inline void np_confinement_failed(void) { np_set_confined(false, false); }

/* A filter that a child sets which runs in its parent's memory (vfork) is the child's alone, but holds for all that runs there until the child is gone: to be
 * called where it executes another program or ends. (One that is killed is not seen to go.) Whether there was one, for a program that could not be executed. */
static inline bool np_confined_child_leaves(void) {
    bool leaves = np_child_is_confined;
    if (leaves) np_set_confined(false, false);
    return leaves;
}
static inline void np_confined_child_stays(bool left) {
    if (left) np_set_confined(true, true);
}

#endif
