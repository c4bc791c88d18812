/* confined.c: programs that put themselves under a seccomp filter: sandboxed children of servers, browsers, file viewers.
 *
 * Such a filter lists what the program itself calls, and kills for anything else. The tracker sees it come, as prctl (thread.c) and as a call by number
 * (syscall.c), and from then on leaves out every call that it can (np_is_confined, sys.h). What is lost by that is said in the trace.
 */
#define _GNU_SOURCE
#include "confined.h"
#include "syscalls.h"
#include "track.h"

static void note(void) {
    static const char text[] = "warning: the program restricts its system calls from here on (seccomp); the tracker makes none in its place: "
                               "stacks of new threads, and what allocators map, may be missing";
    struct np_slot *slot = np_load(np_arena) != NULL ? np_slot_here() : NULL;
    if (slot == NULL || !np_enter(slot)) return;
    np_put_mark(slot, text, sizeof text - 1);
    np_leave(slot);
}

/* A vfork child has its parent's slot. */
static bool borrows_memory(void) {
    const struct np_slot *slot = np_load(np_arena) != NULL ? np_tls.slot : NULL;
    return slot != NULL && *np_fork_canary && slot->pid != (uint32_t)NP_SYS0(SYS_getpid);
}

void np_confinement_begins(void) {
    bool is_child = borrows_memory();
    if (!is_child) note();
    np_set_confined(true, is_child);
}

/* seccomp() by number, as libseccomp calls it. */
NP_HIDDEN long np_syscall_seccomp(long number, long a, long b, long c, long d, long e, long f) {
    bool confines = np_seccomp_confines(a, c) && !np_is_confined;
    if (confines) np_confinement_begins();
    long result = np_syscall_real(number, a, b, c, d, e, f);
    if (confines && np_seccomp_failed(result, b)) np_confinement_failed();
    return result;
}
