/* remap_masks.c: a fault on a blocked signal ends the process. So the signals of faults (SIGSEGV, SIGBUS) stay open in programs that may have guarded mappings
 * (remap_guard.c), by whatever name the C library takes a mask: of a thread, of one that is to be made, of a wait (in force for the handler that ends it), of a
 * context, of a timer's thread. From the start: who blocks them before something is guarded may write to it afterwards.
 *
 * What the kernel does with a program's own fault on a blocked SIGSEGV, end it, is kept: SIGSTKFLT, which nothing sends, is blocked in the place of SIGSEGV,
 * and is the sign for remap_guard.c. As a mask does, it ends with the handler, or with the siglongjmp() out of it.
 *
 * Not seen: masks by bare system calls, and those that a handler of another signal puts into the context that it returns to. */
#define _GNU_SOURCE
#include "remap.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define OUR_BITS (1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1))
#define SIGN_BIT (1ull << (SIGN_OF_BLOCKED - 1))

static struct {
    int (*pthread_sigmask)(int, const sigset_t *, sigset_t *);
    int (*sigprocmask)(int, const sigset_t *, sigset_t *);
    int (*sigblock)(int);
    int (*sigsetmask)(int);
    int (*sighold)(int);
    int (*sigrelse)(int);
    int (*sigpause)(int);
    int (*pthread_attr_setsigmask_np)(pthread_attr_t *, const sigset_t *);
    int (*setcontext)(const ucontext_t *);
    int (*swapcontext)(ucontext_t *, const ucontext_t *);
    int (*posix_spawn)(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[], char *const[]);
    int (*posix_spawnp)(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[], char *const[]);
    int (*timer_create)(clockid_t, struct sigevent *, timer_t *);
    int (*sigsuspend)(const sigset_t *);
    int (*ppoll)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);
    int (*ppoll_chk)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *, size_t);
    int (*pselect)(int, fd_set *, fd_set *, fd_set *, const struct timespec *, const sigset_t *);
    int (*epoll_pwait)(int, struct epoll_event *, int, int, const sigset_t *);
    int (*epoll_pwait2)(int, struct epoll_event *, int, const struct timespec *, const sigset_t *);
} real;

void np_masks_find_all(void) {
    np_remap_find("pthread_sigmask", &real.pthread_sigmask);
    np_remap_find("sigprocmask", &real.sigprocmask);
    np_remap_find("sigblock", &real.sigblock);
    np_remap_find("sigsetmask", &real.sigsetmask);
    np_remap_find("sighold", &real.sighold);
    np_remap_find("sigrelse", &real.sigrelse);
    np_remap_find("sigpause", &real.sigpause);
    np_remap_find("pthread_attr_setsigmask_np", &real.pthread_attr_setsigmask_np);
    np_remap_find("setcontext", &real.setcontext);
    np_remap_find("swapcontext", &real.swapcontext);
    np_remap_find("posix_spawn", &real.posix_spawn);
    np_remap_find("posix_spawnp", &real.posix_spawnp);
    np_remap_find("timer_create", &real.timer_create);
    np_remap_find("sigsuspend", &real.sigsuspend);
    np_remap_find("ppoll", &real.ppoll);
    np_remap_find("__ppoll_chk", &real.ppoll_chk);
    np_remap_find("pselect", &real.pselect);
    np_remap_find("epoll_pwait", &real.epoll_pwait);
    np_remap_find("epoll_pwait2", &real.epoll_pwait2);
}

/* The next function of a name; NULL where the C library lacks it. */
#define REAL(name) (real.name ? real.name : (np_masks_find_all(), real.name))

/* ---- which masks ---- */

static bool has_begun;

/* Constructors of libraries run before this library's, and may start threads. */
static bool is_asked_for(void) {
    const char *text = getenv("NUMAPILOT_REPLICATE_SHARED");
    return text && *text;
}

bool np_masks_are_ours(void) { return np_settings.shared || (!has_begun && is_asked_for()); }

static void put_sign(sigset_t *mask, bool is_blocked) {
    if (is_blocked) sigaddset(mask, SIGN_OF_BLOCKED);
    else sigdelset(mask, SIGN_OF_BLOCKED);
}

void np_masks_open(sigset_t *mask) {
    put_sign(mask, sigismember(mask, SIGSEGV) == 1);
    sigdelset(mask, SIGSEGV);
    sigdelset(mask, SIGBUS);
}

void np_masks_open_here(void) {
    uint64_t ours = OUR_BITS | SIGN_BIT;
    syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &ours, NULL, sizeof ours);
}

/* A program starts with the signals blocked that its starter's thread had blocked. */
void np_masks_begin(void) {
    has_begun = true;
    if (np_settings.shared) np_masks_open_here();
}

static const sigset_t *without_ours(int how, const sigset_t *set, sigset_t *changed) {
    if (!set || !np_masks_are_ours()) return set;
    *changed = *set;
    if (how == SIG_UNBLOCK) put_sign(changed, sigismember(set, SIGSEGV) == 1);
    else np_masks_open(changed);
    return changed;
}

/* What the program is told of its mask, and may ask for again. */
static int told(int result, sigset_t *before) {
    if (result == 0 && before && np_masks_are_ours() && sigismember(before, SIGN_OF_BLOCKED) == 1) sigaddset(before, SIGSEGV);
    return result;
}

/* ---- masks of threads ---- */

EXPORT int pthread_sigmask(int how, const sigset_t *set, sigset_t *before) {
    sigset_t changed;
    return told(REAL(pthread_sigmask)(how, without_ours(how, set, &changed), before), before);
}

EXPORT int sigprocmask(int how, const sigset_t *set, sigset_t *before) {
    sigset_t changed;
    return told(REAL(sigprocmask)(how, without_ours(how, set, &changed), before), before);
}

/* The older names, which the C library does not pass on to those above. Their masks are the first 32 signals. */
static int number_without_ours(int mask) {
    unsigned open = (unsigned)mask & ~(unsigned)(OUR_BITS | SIGN_BIT), sign = (unsigned)mask & 1u << (SIGSEGV - 1) ? (unsigned)SIGN_BIT : 0;
    return np_masks_are_ours() ? (int)(open | sign) : mask;
}

EXPORT int sigblock(int mask) { return REAL(sigblock)(number_without_ours(mask)); }
EXPORT int sigsetmask(int mask) { return REAL(sigsetmask)(number_without_ours(mask)); }
EXPORT int sighold(int number) { return (number == SIGSEGV || number == SIGBUS) && np_masks_are_ours() ? 0 : REAL(sighold)(number); }

EXPORT int sigrelse(int number) {
    if (number == SIGSEGV && np_masks_are_ours()) np_masks_open_here();
    return REAL(sigrelse)(number);
}

EXPORT int pthread_attr_setsigmask_np(pthread_attr_t *attributes, const sigset_t *set) {
    sigset_t changed;
    if (!REAL(pthread_attr_setsigmask_np)) return ENOSYS;
    return real.pthread_attr_setsigmask_np(attributes, without_ours(SIG_SETMASK, set, &changed));
}

/* A context's mask is put in force by instructions of the C library's. getcontext() wrote it, so it can be written, and a copy of a context is none. The C
 * library's function is jumped to: nothing of ours may be on the stack that a context goes on with. */
static void open_context(const ucontext_t *context) {
    sigset_t *mask = (sigset_t *)(uintptr_t)&context->uc_sigmask;
    bool has_any = sigismember(mask, SIGSEGV) == 1 || sigismember(mask, SIGBUS) == 1 || sigismember(mask, SIGN_OF_BLOCKED) == 1;
    if (has_any && np_masks_are_ours()) np_masks_open(mask);
}

EXPORT int setcontext(const ucontext_t *context) {
    int (*next)(const ucontext_t *) = REAL(setcontext);
    open_context(context);
    return next(context);
}

EXPORT int swapcontext(ucontext_t *left, const ucontext_t *entered) {
    int (*next)(ucontext_t *, const ucontext_t *) = REAL(swapcontext);
    open_context(entered);
    return next(left, entered);
}

/* The C library writes the child's number while it has all signals blocked. */
#define SPAWN(name)                                                                                                                             \
    EXPORT int name(pid_t *restrict number, const char *restrict path, const posix_spawn_file_actions_t *restrict actions,                     \
                    const posix_spawnattr_t *restrict attributes, char *const arguments[restrict], char *const environment[restrict]) {        \
        pid_t child = 0;                                                                                                                        \
        int result = REAL(name)(&child, path, actions, attributes, arguments, environment);                                                    \
        if (result == 0 && number) *number = child;                                                                                             \
        return result;                                                                                                                          \
    }
SPAWN(posix_spawn)
SPAWN(posix_spawnp)

/* ---- timers ---- */

/* The C library runs a timer's function in a thread with nearly all signals blocked. So one of these stands in for it: a program has few such functions. They
 * have octal numbers, eight in a row. */
typedef void (*notify)(union sigval value);
static notify notified[64];
#define STAND_IN(at) static void stand_in_##at(union sigval value) { np_masks_open_here(); __atomic_load_n(&notified[at], __ATOMIC_ACQUIRE)(value); }
#define ROW(DO, row) \
    DO(0##row##0) DO(0##row##1) DO(0##row##2) DO(0##row##3) DO(0##row##4) DO(0##row##5) DO(0##row##6) DO(0##row##7)
#define EACH(DO) ROW(DO, 0) ROW(DO, 1) ROW(DO, 2) ROW(DO, 3) ROW(DO, 4) ROW(DO, 5) ROW(DO, 6) ROW(DO, 7)
#define NAME(at) stand_in_##at,
EACH(STAND_IN)
static const notify stand_ins[] = {EACH(NAME)};
_Static_assert(sizeof stand_ins == sizeof notified, "one for each");

static notify stand_in_for(notify function) {
    for (size_t i = 0; i < sizeof stand_ins / sizeof *stand_ins; i++) {
        notify taken = NULL;
        if (__atomic_compare_exchange_n(&notified[i], &taken, function, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) || taken == function) return stand_ins[i];
    }
    return function;
}

EXPORT int timer_create(clockid_t clock_id, struct sigevent *event, timer_t *timer) {
    if (!REAL(timer_create)) return errno = ENOSYS, -1;
    if (!event || event->sigev_notify != SIGEV_THREAD || !event->sigev_notify_function || !np_masks_are_ours()) {
        return real.timer_create(clock_id, event, timer);
    }
    struct sigevent changed = *event;
    changed.sigev_notify_function = stand_in_for(event->sigev_notify_function);
    return real.timer_create(clock_id, &changed, timer);
}

/* ---- masks of waits ---- */

EXPORT int sigsuspend(const sigset_t *set) {
    sigset_t changed;
    return REAL(sigsuspend)(without_ours(SIG_SETMASK, set, &changed));
}

/* As in BSD; <signal.h> makes another function of this name, which takes a signal and only opens it. */
extern int bsd_sigpause(int mask) __asm__("sigpause");
EXPORT int bsd_sigpause(int mask) { return REAL(sigpause)(number_without_ours(mask)); }

EXPORT int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *set) {
    sigset_t changed;
    return REAL(ppoll)(fds, count, timeout, without_ours(SIG_SETMASK, set, &changed));
}

/* What calls become where they are checked (_FORTIFY_SOURCE). */
EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *set, size_t bytes) {
    sigset_t changed;
    return REAL(ppoll_chk)(fds, count, timeout, without_ours(SIG_SETMASK, set, &changed), bytes);
}

EXPORT int pselect(int count, fd_set *readable, fd_set *writable, fd_set *exceptional, const struct timespec *timeout, const sigset_t *set) {
    sigset_t changed;
    return REAL(pselect)(count, readable, writable, exceptional, timeout, without_ours(SIG_SETMASK, set, &changed));
}

EXPORT int epoll_pwait(int file, struct epoll_event *events, int count, int milliseconds, const sigset_t *set) {
    sigset_t changed;
    return REAL(epoll_pwait)(file, events, count, milliseconds, without_ours(SIG_SETMASK, set, &changed));
}

EXPORT int epoll_pwait2(int file, struct epoll_event *events, int count, const struct timespec *timeout, const sigset_t *set) {
    sigset_t changed;
    if (!REAL(epoll_pwait2)) return errno = ENOSYS, -1;
    return real.epoll_pwait2(file, events, count, timeout, without_ours(SIG_SETMASK, set, &changed));
}
