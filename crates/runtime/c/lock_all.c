/* lock_all.c: mlockall, by which servers and real-time programs keep their memory from being paged out. Part of the tracker and of the planner.
 *
 * The kernel counts all of a process's addresses against its limit, and fills what it locks: with a recording's shared memory and a plan's reserved
 * addresses, a program without privilege would be refused, and one with it would take a gigabyte more. So what is ours stays out: first everything is locked
 * as it is touched (MCL_ONFAULT), which fills nothing; then ours is let go, and the rest is filled. */
#define _GNU_SOURCE
#include "track.h"

#include <sys/mman.h>
#include <sys/resource.h>

#ifndef MCL_ONFAULT
#define MCL_ONFAULT 4
#endif
#define LOCK_ONFAULT 1 /* MLOCK_ONFAULT */

struct np_own_range np_own_ranges[NP_OWN_RANGES];
const struct np_own_range *np_other_ranges; /* of the planner behind the tracker */

static const struct np_own_range *range_at(unsigned i) {
    if (i < NP_OWN_RANGES) return &np_own_ranges[i];
    return np_other_ranges != NULL ? &np_other_ranges[i - NP_OWN_RANGES] : NULL;
}

/* How many bytes they are. */
static uint64_t unlock_ours(void) {
    uint64_t bytes = 0;
    for (unsigned i = 0; i < 2 * NP_OWN_RANGES; i++) {
        const struct np_own_range *range = range_at(i);
        uintptr_t lo = range != NULL ? np_load(range->lo) : 0, hi = range != NULL ? np_load(range->hi) : 0;
        if (lo == 0 || hi <= lo) continue;
        NP_SYS2(SYS_munlock, lo, hi - lo);
        bytes += hi - lo;
    }
    return bytes;
}

/* Locks what of the range is not ours; what cannot be filled is passed over, as by the kernel. */
static void lock_rest(uintptr_t lo, uintptr_t hi, int how) {
    while (lo < hi) {
        uintptr_t end = hi, next = hi;
        for (unsigned i = 0; i < 2 * NP_OWN_RANGES; i++) {
            const struct np_own_range *range = range_at(i);
            uintptr_t own_lo = range != NULL ? np_load(range->lo) : 0, own_hi = range != NULL ? np_load(range->hi) : 0;
            if (own_lo == 0 || own_hi <= lo || own_lo >= end) continue;
            end = own_lo > lo ? own_lo : lo;
            next = own_hi;
        }
        if (end > lo) NP_SYS3(SYS_mlock2, lo, end - lo, how);
        lo = next < hi ? next : hi;
    }
}

static bool lock_line(const struct np_maps_line *line, void *context) {
    lock_rest(line->lo, line->hi, *(int *)context);
    return true;
}

/* By the kernel's rule (mm/mlock.c), but for what is ours. */
static bool is_allowed(void) {
    struct rlimit limit;
    uint64_t bytes = np_bytes_mapped(), ours = unlock_ours();
    if (bytes <= ours || NP_SYS2(SYS_getrlimit, RLIMIT_MEMLOCK, &limit) != 0) return false;
    return bytes - ours <= limit.rlim_cur;
}

static int lock_all(int flags) {
    int how = flags & MCL_ONFAULT ? LOCK_ONFAULT : 0;
    long result = NP_SYS1(SYS_mlockall, flags | MCL_ONFAULT);
    if (result == -EINVAL) return (int)NP_SYS1(SYS_mlockall, flags); /* wrong flags, or a kernel before 4.4 */
    if (result != 0 && (result != -ENOMEM || !is_allowed())) return (int)result;
    if (result == 0) unlock_ours();
    if (result != 0 || how == 0) np_maps_each(lock_line, &how);
    /* What is to come is locked as the program asked. */
    if (flags & MCL_FUTURE) NP_SYS1(SYS_mlockall, flags & ~MCL_CURRENT);
    return 0;
}

NP_EXPORT int mlockall(int flags) {
    bool is_plain = !(flags & MCL_CURRENT) || np_is_confined;
    int result = is_plain ? (int)NP_SYS1(SYS_mlockall, flags) : lock_all(flags);
    if (result == 0) return 0;
    errno = -result;
    return -1;
}
