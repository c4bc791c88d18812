/* limit.c: the limit on addresses (RLIMIT_AS) that a program sets for itself: batch runners, test harnesses, shells (`ulimit -v`).
 *
 * The arena and tables of ours count against it. A process that has such a limit when it begins is recorded only where they take little of it (core.c). One
 * that sets it later has them already, and could find itself with no addresses at all: so the limit is set higher by what is ours, and told as the program set
 * it.
 * A program that is executed gets it as it was set; one that is spawned has the higher one, and so is the hard limit of both. */
#define _GNU_SOURCE
#include "track.h"

#include <sys/resource.h>

/* As the program set it, and as it is in force; equal limits are the system's own. */
static struct rlimit given, in_force;
static uint32_t lock;

static uint64_t own_bytes(void) {
    uint64_t bytes = 0;
    for (unsigned i = 0; i < NP_OWN_RANGES; i++) {
        uintptr_t lo = np_load(np_own_ranges[i].lo), hi = np_load(np_own_ranges[i].hi);
        if (lo != 0 && hi > lo) bytes += hi - lo;
    }
    return bytes;
}

static rlim_t raised(rlim_t limit, uint64_t bytes) { return limit < RLIM_INFINITY - bytes ? limit + bytes : limit; }

/* What to ask the system for. A hard limit that the program keeps or lowers must not come to lie above the present one, which only root may raise. */
static struct rlimit higher(const struct rlimit *wanted) {
    uint64_t bytes = own_bytes();
    struct rlimit now, result = {raised(wanted->rlim_cur, bytes), raised(wanted->rlim_max, bytes)};
    bool is_known = NP_SYS2(SYS_getrlimit, RLIMIT_AS, &now) == 0;
    if (is_known && wanted->rlim_max <= now.rlim_max && result.rlim_max > now.rlim_max) result.rlim_max = now.rlim_max;
    if (wanted->rlim_cur <= wanted->rlim_max && result.rlim_cur > result.rlim_max) result.rlim_cur = result.rlim_max;
    return result;
}

/* Whether the call is about this process' addresses, and it is recorded. */
static bool is_about_us(pid_t pid, int resource) {
    return resource == RLIMIT_AS && np_load(np_arena) != NULL && !np_is_confined && (pid == 0 || pid == (pid_t)NP_SYS0(SYS_getpid));
}

static void tell(struct rlimit *limits) {
    if (!np_lock(&lock)) return;
    bool is_ours = limits->rlim_cur == in_force.rlim_cur && limits->rlim_max == in_force.rlim_max;
    if (is_ours && in_force.rlim_max != 0) *limits = given;
    np_unlock(&lock);
}

void np_limit_after_fork(void) { np_unlock(&lock); }

void np_limit_jumped(void) { np_unlock_left(&lock); }

static void remember(const struct rlimit *wanted, const struct rlimit *set) {
    if (!np_lock(&lock)) return;
    given = *wanted;
    in_force = *set;
    np_unlock(&lock);
}

NP_EXPORT int prlimit(pid_t pid, enum __rlimit_resource resource, const struct rlimit *wanted, struct rlimit *before) {
    if (!is_about_us(pid, (int)resource)) return NP_REAL(prlimit)(pid, resource, wanted, before);
    struct rlimit set = wanted != NULL ? higher(wanted) : (struct rlimit){0, 0};
    int result = NP_REAL(prlimit)(pid, resource, wanted != NULL ? &set : NULL, before);
    if (result != 0) return result;
    if (before != NULL) tell(before);
    if (wanted != NULL) remember(wanted, &set);
    return 0;
}

NP_EXPORT int setrlimit(__rlimit_resource_t resource, const struct rlimit *wanted) {
    __asm__("" : "+r"(wanted)); /* declared non-null, and yet null is an error of the system's */
    if (wanted == NULL || !is_about_us(0, (int)resource)) return NP_REAL(setrlimit)(resource, wanted);
    struct rlimit set = higher(wanted);
    int result = NP_REAL(setrlimit)(resource, &set);
    if (result == 0) remember(wanted, &set);
    return result;
}

NP_EXPORT int getrlimit(__rlimit_resource_t resource, struct rlimit *limits) {
    int result = NP_REAL(getrlimit)(resource, limits);
    if (result == 0 && is_about_us(0, (int)resource)) tell(limits);
    return result;
}

/* The same: both kinds of limits have 64 bits. */
_Static_assert(sizeof(struct rlimit) == sizeof(struct rlimit64) && sizeof(rlim_t) == 8, "limits have 64 bits");
NP_EXPORT int prlimit64(pid_t pid, enum __rlimit_resource resource, const struct rlimit64 *wanted, struct rlimit64 *before) {
    return prlimit(pid, resource, (const struct rlimit *)(const void *)wanted, (struct rlimit *)(void *)before);
}

NP_EXPORT int setrlimit64(__rlimit_resource_t resource, const struct rlimit64 *wanted) {
    return setrlimit(resource, (const struct rlimit *)(const void *)wanted);
}

NP_EXPORT int getrlimit64(__rlimit_resource_t resource, struct rlimit64 *limits) {
    return getrlimit(resource, (struct rlimit *)(void *)limits);
}

/* -- exec: what is ours goes with the image -- */

/* What this process has and what an image gets. False: no limit of the program's is in force, or another thread is at it. */
static bool both(struct rlimit *own, struct rlimit *image) {
    if (!np_lock(&lock)) return false;
    *own = in_force;
    *image = (struct rlimit){given.rlim_cur < own->rlim_max ? given.rlim_cur : own->rlim_max, own->rlim_max};
    np_unlock(&lock);
    return own->rlim_max != 0;
}

/* From one limit to another, if that is still the one in force. Also in a vfork child, which has its own limits in its parent's memory. */
static void change(const struct rlimit *from, const struct rlimit *to) {
    struct rlimit now;
    if (np_is_confined) return;
    if (NP_SYS2(SYS_getrlimit, RLIMIT_AS, &now) != 0 || now.rlim_cur != from->rlim_cur || now.rlim_max != from->rlim_max) return;
    NP_SYS2(SYS_setrlimit, RLIMIT_AS, to);
}

void np_limit_before_exec(void) {
    struct rlimit own, image;
    if (both(&own, &image)) change(&own, &image);
}

void np_limit_exec_failed(void) {
    struct rlimit own, image;
    if (both(&own, &image)) change(&image, &own);
}
