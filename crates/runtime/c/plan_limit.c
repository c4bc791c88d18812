/* plan_limit.c: the limit on addresses (RLIMIT_AS) that a program sets for itself. What the planner has reserved counts against it: unused addresses go before
 * the limit holds. A process that has a limit when it begins reserves little (plan_region.c). */
#define _GNU_SOURCE
#include "plan.h"

#include <sys/resource.h>

static void before(int resource, const struct rlimit *wanted) {
    if (resource == RLIMIT_AS && wanted != NULL && wanted->rlim_cur != RLIM_INFINITY) np_region_limit();
}

NP_EXPORT int setrlimit(__rlimit_resource_t resource, const struct rlimit *wanted) {
    __asm__("" : "+r"(wanted)); /* declared non-null, and yet null is an error of the system's */
    before((int)resource, wanted);
    return NP_REAL(setrlimit)(resource, wanted);
}

NP_EXPORT int prlimit(pid_t pid, enum __rlimit_resource resource, const struct rlimit *wanted, struct rlimit *old) {
    if (pid == 0 || pid == (pid_t)NP_SYS0(SYS_getpid)) before((int)resource, wanted);
    return NP_REAL(prlimit)(pid, resource, wanted, old);
}

/* The same: both kinds of limits have 64 bits. */
_Static_assert(sizeof(struct rlimit) == sizeof(struct rlimit64) && sizeof(rlim_t) == 8, "limits have 64 bits");
NP_EXPORT int setrlimit64(__rlimit_resource_t resource, const struct rlimit64 *wanted) {
    return setrlimit(resource, (const struct rlimit *)(const void *)wanted);
}

NP_EXPORT int prlimit64(pid_t pid, enum __rlimit_resource resource, const struct rlimit64 *wanted, struct rlimit64 *old) {
    return prlimit(pid, resource, (const struct rlimit *)(const void *)wanted, (struct rlimit *)(void *)old);
}
