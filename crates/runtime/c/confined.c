/* confined.c: programs that put themselves under a seccomp filter: sandboxed children of servers, browsers, file viewers.
 *
 * Such a filter lists what the program itself calls, and kills for anything else. The tracker sees it come, as prctl (thread.c) and as a call by number
 * (syscall.c), and from then on leaves out every call that it can (np_is_confined, sys.h). What is lost by that is said in the trace.
 */
#define _GNU_SOURCE
#include "syscalls.h"
#include "track.h"

#include <linux/seccomp.h>

void np_confinement_begins(void) {
    static const char text[] = "warning: the program restricts its system calls from here on (seccomp); the tracker makes none in its place: "
                               "stacks of new threads, and what allocators map, may be missing";
    struct np_slot *slot = np_arena != NULL ? np_slot_here() : NULL;
    if (slot != NULL && np_enter(slot)) {
        np_put_mark(slot, text, sizeof text - 1);
        np_leave(slot);
    }
    np_is_confined = true;
}

/* seccomp() by number, as libseccomp calls it. Most other operations, and one without a filter, only ask what the kernel has. */
NP_HIDDEN long np_syscall_seccomp(long number, long a, long b, long c, long d, long e, long f) {
    bool confines = (a == SECCOMP_SET_MODE_STRICT || (a == SECCOMP_SET_MODE_FILTER && c != 0)) && !np_is_confined;
    if (confines) np_confinement_begins();
    long result = np_syscall_real(number, a, b, c, d, e, f);
    /* With SECCOMP_FILTER_FLAG_TSYNC a positive result is a thread that stood in the way; with a listener it is the listener's descriptor. */
    if (confines && (result < 0 || (result > 0 && !(b & SECCOMP_FILTER_FLAG_NEW_LISTENER)))) np_is_confined = false;
    return result;
}
