/* plan_confined.c: the planner in a program that puts itself under a seccomp filter (np_is_confined, sys.h): placing takes calls that such a filter does not
 * list, so nothing is placed from then on; objects that a rule would have taken are counted as passed. */
#define _GNU_SOURCE
#include "confined.h"
#include "plan.h"

#include <stdarg.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

typedef long (*call)(long number, long a, long b, long c, long d, long e, long f);

static long first_syscall(long number, long a, long b, long c, long d, long e, long f);
static call real_syscall = first_syscall;

static void *find_syscall(const char *name) {
    uint32_t busy = np_plan_tls.busy;
    np_plan_tls.busy = 1;
    void *found = np_real(name);
    np_plan_tls.busy = busy;
    __atomic_store_n(&real_syscall, (call)found, __ATOMIC_RELEASE);
    return found;
}

static void *found_syscall;
NP_REAL_LISTED(found_syscall, "syscall", find_syscall);

static NP_COLD long first_syscall(long number, long a, long b, long c, long d, long e, long f) {
    return ((call)find_syscall("syscall"))(number, a, b, c, d, e, f);
}

/* A vfork child is in its parent's thread. */
static bool borrows_memory(void) {
    const struct np_plan_thread *thread = np_plan_tls.thread;
    return thread != NULL && thread->walker.pid != (uint32_t)NP_SYS0(SYS_getpid);
}

static NP_COLD void begin(void) {
    bool is_child = borrows_memory();
    if (!is_child) np_bind_loaded();
    np_set_confined(true, is_child);
}

NP_EXPORT __attribute__((noreturn)) void _exit(int status) {
    np_plan_all_counted();
    np_confined_child_leaves();
    NP_REAL(_exit)(status);
    __builtin_trap();
}

NP_EXPORT __attribute__((noreturn)) void _Exit(int status) {
    np_plan_all_counted();
    np_confined_child_leaves();
    NP_REAL(_Exit)(status);
    __builtin_trap();
}

static __attribute__((noinline)) long confine(long number, long a, long b, long c, long d, long e, long f) {
    bool confines = np_seccomp_confines(a, c) && !np_is_confined;
    if (confines) begin();
    long result = np_load(real_syscall)(number, a, b, c, d, e, f);
    if (confines && np_seccomp_failed(result, b)) np_confinement_failed();
    return result;
}

static void after_prctl(int option, const char *name, bool confines, long result) {
    if (confines && result != 0) np_confinement_failed();
    if (result == 0 && option == PR_SET_NAME) np_plan_renamed(name);
}

static __attribute__((noinline)) long prctl_by_number(long number, long option, long a, long b, long c, long d) {
    bool confines = (int)option == PR_SET_SECCOMP && !np_is_confined;
    if (confines) begin();
    long result = np_load(real_syscall)(number, option, a, b, c, d, 0);
    after_prctl((int)option, (const char *)a, confines, result);
    return result;
}

/* libc's syscall(). Any other call goes on by a jump: some return twice. */
NP_EXPORT __attribute__((optimize("O2", "optimize-sibling-calls"))) long
np_plan_syscall(long number, long a, long b, long c, long d, long e, long f) __asm__("syscall");
long np_plan_syscall(long number, long a, long b, long c, long d, long e, long f) {
    if (np_unlikely(number == SYS_seccomp)) return confine(number, a, b, c, d, e, f);
    if (np_unlikely(number == SYS_prctl)) return prctl_by_number(number, a, b, c, d, e);
    return np_load(real_syscall)(number, a, b, c, d, e, f);
}

NP_EXPORT int prctl(int option, ...) {
    va_list rest;
    va_start(rest, option);
    unsigned long a = va_arg(rest, unsigned long), b = va_arg(rest, unsigned long);
    unsigned long c = va_arg(rest, unsigned long), d = va_arg(rest, unsigned long);
    va_end(rest);
    bool confines = option == PR_SET_SECCOMP && !np_is_confined;
    if (confines) begin();
    int result = NP_REAL(prctl)(option, a, b, c, d);
    after_prctl(option, (const char *)a, confines, result);
    return result;
}
