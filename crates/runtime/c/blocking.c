/* blocking.c: sleeps, and waits for things outside the program (input and output, children).
 *
 * A sleep passes its time in the program's clock too; the host sleeps as well, so the program behaves as ever. Input and output pass no
 * program time of their own, since what a disk or a network would have taken on the simulated machine is unknown: the thread
 * is blocked meanwhile, and where it really waited it comes back no further behind the running threads than the window. Data through a
 * pipe carries the writer's clock. Buffers that the kernel fills or reads count as touched by the caller, as on real hardware. See
 * docs/virtual-time.md.
 */
#define _GNU_SOURCE
#include "vtime.h"

#include <aio.h>
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/msg.h>
#include <sys/random.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define REAL_WAIT_NS 50000 /* shorter calls did not wait: page cache, non-blocking descriptors */

/* ---- sleeps ---- */

static uint64_t cycles_of(const struct timespec *time) {
    if (time == NULL || time->tv_sec < 0) return 0;
    return np_cycles_of_ns((uint64_t)time->tv_sec * 1000000000ull + (uint64_t)time->tv_nsec);
}

/* Passes `cycles`, less what `left` says was not slept (NULL: all of it was). */
static void slept(struct np_slot *slot, uint64_t cycles, const struct timespec *left) {
    int saved = errno;
    uint64_t missing = left != NULL ? cycles_of(left) : 0;
    if (cycles > missing) np_clock_sleep(slot, cycles - missing, NP_SYNC_SLEEP, 0);
    np_block_end(slot);
    np_throttle(slot);
    errno = saved;
}

NP_EXPORT int nanosleep(const struct timespec *time, struct timespec *remaining) {
    struct np_slot *slot = np_vtime_caller();
    if (slot == NULL) return NP_REAL(nanosleep)(time, remaining);
    struct timespec left = {0, 0};
    np_block_begin(slot);
    int result = NP_REAL(nanosleep)(time, &left);
    /* Read once the kernel has found it readable, and before `remaining`, which may be the same, is written. */
    uint64_t cycles = result == 0 || errno == EINTR ? cycles_of(time) : 0;
    if (result != 0 && errno == EINTR && remaining != NULL) *remaining = left;
    slept(slot, cycles, result == 0 ? NULL : &left);
    return result;
}

NP_EXPORT int clock_nanosleep(clockid_t clock_id, int flags, const struct timespec *time, struct timespec *remaining) {
    struct np_slot *slot = np_vtime_caller();
    if (slot == NULL) return NP_REAL(clock_nanosleep)(clock_id, flags, time, remaining);
    struct timespec left = {0, 0};
    bool absolute = (flags & TIMER_ABSTIME) != 0;
    uint64_t began_ns = absolute ? np_monotonic_ns() : 0;
    np_block_begin(slot);
    int result = NP_REAL(clock_nanosleep)(clock_id, flags, time, absolute ? NULL : &left);
    /* As in nanosleep; until a given time, what passed is known only by then. */
    uint64_t cycles = 0;
    if (result == 0 && absolute) cycles = np_cycles_of_ns(np_monotonic_ns() - began_ns);
    else if (result == 0 || result == EINTR) cycles = cycles_of(time);
    if (result == EINTR && !absolute && remaining != NULL) *remaining = left;
    slept(slot, result == 0 || (result == EINTR && !absolute) ? cycles : 0, result == 0 ? NULL : &left);
    return result;
}

NP_EXPORT int usleep(useconds_t microseconds) {
    struct np_slot *slot = np_vtime_caller();
    if (slot == NULL) return NP_REAL(usleep)(microseconds);
    np_block_begin(slot);
    int result = NP_REAL(usleep)(microseconds);
    slept(slot, result == 0 ? np_cycles_of_ns((uint64_t)microseconds * 1000) : 0, NULL);
    return result;
}

NP_EXPORT unsigned sleep(unsigned seconds) {
    struct np_slot *slot = np_vtime_caller();
    if (slot == NULL) return NP_REAL(sleep)(seconds);
    np_block_begin(slot);
    unsigned left = NP_REAL(sleep)(seconds);
    slept(slot, np_cycles_of_ns((uint64_t)(seconds - (left < seconds ? left : seconds)) * 1000000000ull), NULL);
    return left;
}

NP_EXPORT int sched_yield(void) {
    struct np_slot *slot = np_vtime_caller();
    if (slot != NULL) {
        np_clock_advance(slot, NP_YIELD_CYCLES);
        np_throttle(slot);
    }
    return NP_REAL(sched_yield)();
}

NP_EXPORT int thrd_sleep(const struct timespec *time, struct timespec *remaining) {
    int result = clock_nanosleep(CLOCK_REALTIME, 0, time, remaining);
    return result == 0 ? 0 : result == EINTR ? -1 : -2;
}

NP_EXPORT void thrd_yield(void) {
    sched_yield();
}

/* ---- waiting for readiness: a time-out passes its time, readiness passes none ---- */

struct outside {
    struct np_slot *slot; /* NULL: pass through */
    uint64_t began_ns;
};

static struct outside outside_begin(void) {
    struct outside wait = {np_vtime_caller(), 0};
    if (wait.slot == NULL) return wait;
    int saved = errno;
    wait.began_ns = np_monotonic_ns();
    np_block_begin(wait.slot);
    errno = saved;
    return wait;
}

/* `timeout_cycles`: passed if the call timed out (0: it did not). `timed`: the same of a wait that others could have ended (NULL: it was none, or they did). */
static void outside_end_timed(const struct outside *wait, uint64_t timeout_cycles, struct np_timed *timed) {
    if (wait->slot == NULL) return;
    int saved = errno;
    if (timed != NULL) np_timed_out(timed, NP_SYNC_SLEEP, 0);
    else if (timeout_cycles > 0) np_clock_sleep(wait->slot, timeout_cycles, NP_SYNC_SLEEP, 0);
    else if (np_monotonic_ns() - wait->began_ns >= REAL_WAIT_NS) np_block_catch_up(wait->slot);
    np_block_end(wait->slot);
    np_throttle(wait->slot);
    errno = saved;
}

static void outside_end(const struct outside *wait, uint64_t timeout_cycles) {
    outside_end_timed(wait, timeout_cycles, NULL);
}

/* Runs a call that may wait outside, and gives its result. `timeout`: cycles that passed if the result is 0. */
#define OUTSIDE(type, call, timeout)                                                              \
    ({                                                                                            \
        struct outside wait_ = outside_begin();                                                   \
        type result_ = call;                                                                      \
        outside_end(&wait_, wait_.slot != NULL && result_ == 0 ? (uint64_t)(timeout) : 0);        \
        result_;                                                                                  \
    })

/* The same of a call whose time-out ends it with `error`: then the time that it took has passed. A call that does not wait may end with the same error. */
#define OUTSIDE_UNTIL(type, call, error)                                                                          \
    ({                                                                                                            \
        struct outside wait_ = outside_begin();                                                                   \
        type result_ = call;                                                                                      \
        bool timed_out_ = wait_.slot != NULL && result_ < 0 && errno == (error);                                  \
        uint64_t took_ = timed_out_ ? np_monotonic_ns() - wait_.began_ns : 0;                                     \
        outside_end(&wait_, took_ >= REAL_WAIT_NS ? np_cycles_of_ns(took_) : 0);                                  \
        result_;                                                                                                  \
    })

/* Of a function that not every C library has, or another one of its libraries: looked up when it is called. */
#define REAL_WHERE_IT_IS(name)                 \
    ({                                         \
        static __typeof__(&name) real_;        \
        NP_KEPT(real_, np_real(#name));        \
    })

static uint64_t cycles_of_ms(int milliseconds) {
    return milliseconds > 0 ? np_cycles_of_ns((uint64_t)milliseconds * 1000000ull) : 0;
}

/* Signals that come between two parts of a wait end the next part, as they would have ended the one wait that the program called: those with a handler are
 * kept back there, and let in by the part itself. */
struct kept_back {
    sigset_t own; /* the program's mask; the kernel reads and writes its first 64 signals, which are all */
    bool is_on, is_for_handled;
};

#define SIGNAL_BIT(number) (1ull << ((number) - 1))
/* Those of faults in the look itself, and two of the C library: cancellation, and a change of user ids, for which another thread waits. */
#define NEVER_KEPT_BACK                                                                                                               \
    (SIGNAL_BIT(SIGSEGV) | SIGNAL_BIT(SIGBUS) | SIGNAL_BIT(SIGFPE) | SIGNAL_BIT(SIGILL) | SIGNAL_BIT(SIGTRAP) | SIGNAL_BIT(SIGSYS) | \
     SIGNAL_BIT(32) | SIGNAL_BIT(33))

/* All of them, at once. */
static NP_COLD struct kept_back keep_back(struct np_slot *slot) {
    struct kept_back kept = {.is_on = false};
    uint64_t mask = ~NEVER_KEPT_BACK, own = 0;
    if (np_is_confined || NP_SYS4(SYS_rt_sigprocmask, SIG_BLOCK, &mask, &own, sizeof mask) != 0) return kept;
    np_vt(slot)->kept_back = mask & ~own;
    kept.is_on = true;
    memset(&kept.own, 0, sizeof kept.own);
    memcpy(&kept.own, &own, sizeof own);
    return kept;
}

/* Once there is another part, only those with a handler: one that the program ignores would be pending, and could end calls that it does not end. Most waits
 * are over when they time out, and need not ask for 64 handlers. */
static NP_COLD void keep_handled_back(struct np_slot *slot, struct kept_back *kept) {
    uint64_t own = 0, handled = 0;
    if (!kept->is_on || kept->is_for_handled) return;
    kept->is_for_handled = true;
    memcpy(&own, &kept->own, sizeof own);
    for (int number = 1; number <= 64; number++) {
        uint64_t action[8] = {0}; /* the kernel's struct, which begins with the handler */
        if (NP_SYS4(SYS_rt_sigaction, number, 0, action, sizeof own) == 0 && action[0] > (uintptr_t)SIG_IGN) handled |= SIGNAL_BIT(number);
    }
    handled &= ~(own | NEVER_KEPT_BACK);
    np_vt(slot)->kept_back = handled; /* before the first can come in again */
    uint64_t mask = own | handled;
    NP_SYS4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, 0, sizeof mask);
}

static NP_COLD void let_in(struct np_slot *slot, const struct kept_back *kept) {
    if (!kept->is_on) return;
    int saved = errno;
    np_vt(slot)->kept_back = 0;
    NP_SYS4(SYS_rt_sigprocmask, SIG_SETMASK, &kept->own, 0, sizeof(uint64_t));
    errno = saved;
}

/* What a part's call has as its mask (NULL: the one in force). */
static const sigset_t *mask_of(const struct kept_back *kept) { return kept->is_on ? &kept->own : NULL; }

/* The same for a wait for descriptors, of which there are some (`any`; without, it is a sleep): where its time-out passes, `again` is `call` for timed.part,
 * with mask_of(&kept) as its mask. A call that the program gives a mask keeps that. `repeats`: it can be called again (else `again` is ONCE), and only then are
 * signals kept back for it. */
#define READY(any, repeats, call, timeout, again)                                                                \
    ({                                                                                                           \
        struct outside wait_ = outside_begin();                                                                  \
        struct np_timed timed = {.slot = NULL};                                                                  \
        int result_ = call;                                                                                      \
        uint64_t cycles_ = wait_.slot != NULL && result_ == 0 ? (timeout) : 0;                                   \
        if (cycles_ > 0 && (any)) {                                                                              \
            struct kept_back kept = {.is_on = false};                                                            \
            if (repeats) kept = keep_back(wait_.slot);                                                           \
            timed = np_timed_since(wait_.slot, wait_.began_ns, cycles_);                                         \
            while (result_ == 0 && np_timed_goes_on(&timed, CLOCK_MONOTONIC)) {                                  \
                keep_handled_back(wait_.slot, &kept);                                                            \
                result_ = again;                                                                                 \
            }                                                                                                    \
            let_in(wait_.slot, &kept);                                                                           \
        }                                                                                                        \
        bool timed_out_ = result_ == 0;                                                                          \
        outside_end_timed(&wait_, timed_out_ ? cycles_ + NP_YIELD_CYCLES : 0, timed_out_ && timed.slot != NULL ? &timed : NULL); \
        result_;                                                                                                 \
    })

/* For a call that cannot be repeated, since it has overwritten what it was to wait for: it has timed out, and is over at the next look. */
#define ONCE(timed) ((timed).limit_ns = 0, 0)

static int part_ms(const struct np_timed *timed) { return (int)(timed->part.tv_nsec / 1000000); }

NP_EXPORT int poll(struct pollfd *fds, nfds_t count, int milliseconds) {
    return READY(count > 0, true, NP_REAL(poll)(fds, count, milliseconds), cycles_of_ms(milliseconds),
                 NP_REAL(ppoll)(fds, count, &timed.part, mask_of(&kept)));
}

NP_EXPORT int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask) {
    return READY(count > 0, true, NP_REAL(ppoll)(fds, count, timeout, mask), cycles_of(timeout),
                 NP_REAL(ppoll)(fds, count, &timed.part, mask != NULL ? mask : mask_of(&kept)));
}

NP_EXPORT int select(int count, fd_set *readable, fd_set *writable, fd_set *exceptional, struct timeval *timeout) {
    /* glibc reads the timeout as we do; before the call, since Linux writes the rest back. */
    struct timespec time = {0, 0};
    if (timeout != NULL) time = (struct timespec){timeout->tv_sec, timeout->tv_usec * 1000};
    return READY(count > 0, false, NP_REAL(select)(count, readable, writable, exceptional, timeout), cycles_of(&time), ONCE(timed));
}

NP_EXPORT int pselect(int count, fd_set *readable, fd_set *writable, fd_set *exceptional, const struct timespec *timeout,
                      const sigset_t *mask) {
    return READY(count > 0, false, NP_REAL(pselect)(count, readable, writable, exceptional, timeout, mask), cycles_of(timeout), ONCE(timed));
}

NP_EXPORT int epoll_wait(int fd, struct epoll_event *events, int count, int milliseconds) {
    return READY(true, true, NP_REAL(epoll_wait)(fd, events, count, milliseconds), cycles_of_ms(milliseconds),
                 NP_REAL(epoll_pwait)(fd, events, count, part_ms(&timed), mask_of(&kept)));
}

NP_EXPORT int epoll_pwait(int fd, struct epoll_event *events, int count, int milliseconds, const sigset_t *mask) {
    return READY(true, true, NP_REAL(epoll_pwait)(fd, events, count, milliseconds, mask), cycles_of_ms(milliseconds),
                 NP_REAL(epoll_pwait)(fd, events, count, part_ms(&timed), mask != NULL ? mask : mask_of(&kept)));
}

/* Newer than some C libraries. */
extern int epoll_pwait2(int fd, struct epoll_event *events, int count, const struct timespec *timeout, const sigset_t *mask);

NP_EXPORT int epoll_pwait2(int fd, struct epoll_event *events, int count, const struct timespec *timeout, const sigset_t *mask) {
    __typeof__(&epoll_pwait2) real = REAL_WHERE_IT_IS(epoll_pwait2);
    if (real == NULL) return errno = ENOSYS, -1;
    return READY(true, true, real(fd, events, count, timeout, mask), cycles_of(timeout),
                 NP_REAL(epoll_pwait)(fd, events, count, part_ms(&timed), mask != NULL ? mask : mask_of(&kept)));
}

/* What these become where they are checked (_FORTIFY_SOURCE), as all programs are that some distributions build. */
extern int __poll_chk(struct pollfd *fds, nfds_t count, int milliseconds, size_t room);
extern int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask, size_t room);

NP_EXPORT int __poll_chk(struct pollfd *fds, nfds_t count, int milliseconds, size_t room) {
    return READY(count > 0, true, NP_REAL(__poll_chk)(fds, count, milliseconds, room), cycles_of_ms(milliseconds),
                 NP_REAL(ppoll)(fds, count, &timed.part, mask_of(&kept)));
}

NP_EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask, size_t room) {
    return READY(count > 0, true, NP_REAL(__ppoll_chk)(fds, count, timeout, mask, room), cycles_of(timeout),
                 NP_REAL(ppoll)(fds, count, &timed.part, mask != NULL ? mask : mask_of(&kept)));
}

/* ---- signals: as the main threads of servers wait ---- */

NP_EXPORT int sigwait(const sigset_t *set, int *number) {
    return OUTSIDE(int, NP_REAL(sigwait)(set, number), 0);
}

NP_EXPORT int sigwaitinfo(const sigset_t *set, siginfo_t *info) {
    return OUTSIDE(int, NP_REAL(sigwaitinfo)(set, info), 0);
}

NP_EXPORT int sigtimedwait(const sigset_t *set, siginfo_t *info, const struct timespec *timeout) {
    struct outside wait = outside_begin();
    int result = NP_REAL(sigtimedwait)(set, info, timeout);
    outside_end(&wait, wait.slot != NULL && result < 0 && errno == EAGAIN ? cycles_of(timeout) + NP_YIELD_CYCLES : 0);
    return result;
}

NP_EXPORT int sigsuspend(const sigset_t *mask) {
    return OUTSIDE(int, NP_REAL(sigsuspend)(mask), 0);
}

NP_EXPORT int pause(void) {
    return OUTSIDE(int, NP_REAL(pause)(), 0);
}

/* ---- children ---- */

static pid_t waited(struct np_slot *slot, pid_t child) {
    int saved = errno;
    if (slot != NULL && child > 0)
        np_clock_wait_until(slot, np_shared_get(NP_SHARED_PROCESS | (uint64_t)child), NP_SYNC_JOIN, (uint64_t)child);
    errno = saved;
    return child;
}

NP_EXPORT pid_t waitpid(pid_t pid, int *status, int options) {
    return waited(np_vtime_caller(), OUTSIDE(pid_t, NP_REAL(waitpid)(pid, status, options), 0));
}

NP_EXPORT pid_t wait(int *status) {
    return waited(np_vtime_caller(), OUTSIDE(pid_t, NP_REAL(wait)(status), 0));
}

NP_EXPORT pid_t wait3(int *status, int options, struct rusage *usage) {
    return waited(np_vtime_caller(), OUTSIDE(pid_t, NP_REAL(wait3)(status, options, usage), 0));
}

NP_EXPORT pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage) {
    return waited(np_vtime_caller(), OUTSIDE(pid_t, NP_REAL(wait4)(pid, status, options, usage), 0));
}

NP_EXPORT int waitid(idtype_t type, id_t id, siginfo_t *info, int options) {
    int result = OUTSIDE(int, NP_REAL(waitid)(type, id, info, options), 0);
    if (result == 0 && info != NULL && (options & WEXITED)) waited(np_vtime_caller(), info->si_pid);
    return result;
}

/* ---- descriptors ---- */

/* Key of the pipe behind a descriptor, 0 for anything else. */
static uint64_t pipe_key(int fd) {
    struct stat status;
    if (np_is_confined) return 0;
    long result = np_sys(SYS_fstat, fd, (long)&status, 0, 0, 0, 0);
    if (result != 0 || !S_ISFIFO(status.st_mode)) return 0;
    return NP_SHARED_PIPE | ((uint64_t)status.st_dev << 40 ^ (uint64_t)status.st_ino);
}

#define PARTS_AT_ONCE 16
#define PARTS_MAX 1024 /* IOV_MAX */

/* What the program points to, before the kernel has found it readable. */
static bool copy_of(void *to, const void *from, size_t bytes) {
    struct iovec target = {to, bytes}, source = {(void *)(uintptr_t)from, bytes};
    return !np_is_confined && NP_SYS6(SYS_process_vm_readv, NP_SYS0(SYS_getpid), &target, 1, &source, 1, 0) == (long)bytes;
}

/* Data is to come in to all of these. */
static void to_come_in(const struct iovec *parts, size_t count) {
    struct iovec copies[PARTS_AT_ONCE];
    if (!np_pages_are_contested() || count > PARTS_MAX) return;
    for (size_t at = 0; at < count; at += PARTS_AT_ONCE) {
        size_t some = count - at < PARTS_AT_ONCE ? count - at : PARTS_AT_ONCE;
        if (!copy_of(copies, parts + at, some * sizeof *copies)) return;
        for (size_t i = 0; i < some; i++) np_to_fill((uintptr_t)copies[i].iov_base, copies[i].iov_len);
    }
}

static void message_to_come_in(const struct msghdr *message) {
    struct msghdr copy;
    if (np_pages_are_contested() && copy_of(&copy, message, sizeof copy)) to_come_in(copy.msg_iov, copy.msg_iovlen);
}

/* Bytes were put in place from this CPU. */
static void put_in_place(struct np_slot *slot, const struct iovec *parts, size_t count, ssize_t bytes, struct np_regs caller) {
    int saved = errno;
    size_t left = (size_t)bytes;
    for (size_t i = 0; i < count && left > 0; i++) {
        size_t part = parts[i].iov_len < left ? parts[i].iov_len : left;
        if (np_enter(slot)) {
            np_pages_touched(slot, (uintptr_t)parts[i].iov_base, part);
            np_leave(slot);
        }
        np_access_range(slot, (uintptr_t)parts[i].iov_base, part, NP_ACC_WRITE | NP_ACC_RANGE, caller);
        left -= part;
    }
    errno = saved;
}

/* Data came in: from a pipe, it was written at the writer's clock. */
static ssize_t came_in(struct np_slot *slot, int fd, const struct iovec *parts, int count, ssize_t bytes, struct np_regs caller) {
    if (slot == NULL || bytes <= 0) return bytes;
    int saved = errno;
    uint64_t key = pipe_key(fd);
    if (key != 0) np_clock_wait_until(slot, np_shared_get(key), NP_SYNC_IO, (uint64_t)fd);
    errno = saved;
    put_in_place(slot, parts, (size_t)count, bytes, caller);
    return bytes;
}

/* Data goes out: a pipe's reader is no earlier than now. */
static void goes_out(struct np_slot *slot, int fd) {
    if (slot == NULL) return;
    int saved = errno;
    np_throttle(slot);
    np_share_charge(slot);
    uint64_t key = pipe_key(fd);
    if (key != 0) np_shared_set(key, np_clock_of(slot));
    errno = saved;
}

/* It went out: its bytes were read from this CPU. Only now are the program's pointers known to be good. */
static ssize_t went_out(struct np_slot *slot, const struct iovec *parts, int count, ssize_t bytes, struct np_regs caller) {
    if (slot == NULL || bytes <= 0) return bytes;
    int saved = errno;
    size_t left = (size_t)bytes;
    for (int i = 0; i < count && left > 0; i++) {
        size_t part = parts[i].iov_len < left ? parts[i].iov_len : left;
        np_access_range(slot, (uintptr_t)parts[i].iov_base, part, NP_ACC_RANGE, caller);
        left -= part;
    }
    errno = saved;
    return bytes;
}

NP_EXPORT ssize_t read(int fd, void *buffer, size_t bytes) {
    struct iovec part = {buffer, bytes};
    np_to_fill((uintptr_t)buffer, bytes);
    ssize_t got = OUTSIDE(ssize_t, NP_REAL(read)(fd, buffer, bytes), 0);
    return came_in(np_vtime_self_live(), fd, &part, 1, got, NP_CALLER_REGS());
}

NP_EXPORT ssize_t pread(int fd, void *buffer, size_t bytes, off_t offset) {
    struct iovec part = {buffer, bytes};
    np_to_fill((uintptr_t)buffer, bytes);
    ssize_t got = OUTSIDE(ssize_t, NP_REAL(pread)(fd, buffer, bytes, offset), 0);
    return came_in(np_vtime_self_live(), fd, &part, 1, got, NP_CALLER_REGS());
}

NP_EXPORT ssize_t pread64(int fd, void *buffer, size_t bytes, off64_t offset) {
    struct iovec part = {buffer, bytes};
    np_to_fill((uintptr_t)buffer, bytes);
    ssize_t got = OUTSIDE(ssize_t, NP_REAL(pread64)(fd, buffer, bytes, offset), 0);
    return came_in(np_vtime_self_live(), fd, &part, 1, got, NP_CALLER_REGS());
}

NP_EXPORT ssize_t readv(int fd, const struct iovec *parts, int count) {
    if (count > 0) to_come_in(parts, (size_t)count);
    ssize_t got = OUTSIDE(ssize_t, NP_REAL(readv)(fd, parts, count), 0);
    return came_in(np_vtime_self_live(), fd, parts, count, got, NP_CALLER_REGS());
}

NP_EXPORT ssize_t preadv(int fd, const struct iovec *parts, int count, off_t offset) {
    if (count > 0) to_come_in(parts, (size_t)count);
    ssize_t got = OUTSIDE(ssize_t, NP_REAL(preadv)(fd, parts, count, offset), 0);
    return came_in(np_vtime_self_live(), fd, parts, count, got, NP_CALLER_REGS());
}

NP_EXPORT ssize_t preadv64(int fd, const struct iovec *parts, int count, off64_t offset) {
    if (count > 0) to_come_in(parts, (size_t)count);
    ssize_t got = OUTSIDE(ssize_t, NP_REAL(preadv64)(fd, parts, count, offset), 0);
    return came_in(np_vtime_self_live(), fd, parts, count, got, NP_CALLER_REGS());
}

NP_EXPORT ssize_t recv(int fd, void *buffer, size_t bytes, int flags) {
    struct iovec part = {buffer, bytes};
    np_to_fill((uintptr_t)buffer, bytes);
    ssize_t got = OUTSIDE(ssize_t, NP_REAL(recv)(fd, buffer, bytes, flags), 0);
    return came_in(np_vtime_self_live(), fd, &part, 1, got, NP_CALLER_REGS());
}

NP_EXPORT ssize_t recvfrom(int fd, void *restrict buffer, size_t bytes, int flags, struct sockaddr *restrict from, socklen_t *restrict length) {
    struct iovec part = {buffer, bytes};
    np_to_fill((uintptr_t)buffer, bytes);
    ssize_t got = OUTSIDE(ssize_t, NP_REAL(recvfrom)(fd, buffer, bytes, flags, from, length), 0);
    return came_in(np_vtime_self_live(), fd, &part, 1, got, NP_CALLER_REGS());
}

NP_EXPORT ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
    message_to_come_in(message);
    ssize_t got = OUTSIDE(ssize_t, NP_REAL(recvmsg)(fd, message, flags), 0);
    if (got <= 0) return got;
    return came_in(np_vtime_self_live(), fd, message->msg_iov, (int)message->msg_iovlen, got, NP_CALLER_REGS());
}

/* `room`: what is known of the buffer, where the call is checked (_FORTIFY_SOURCE). */
#define CHECKED(name, parameters, arguments)                                                    \
    extern ssize_t name parameters;                                                             \
    NP_EXPORT ssize_t name parameters {                                                         \
        struct iovec part = {buffer, bytes};                                                    \
        np_to_fill((uintptr_t)buffer, bytes);                                                   \
        ssize_t got = OUTSIDE(ssize_t, NP_REAL(name) arguments, 0);                             \
        return came_in(np_vtime_self_live(), fd, &part, 1, got, NP_CALLER_REGS());              \
    }
CHECKED(__read_chk, (int fd, void *buffer, size_t bytes, size_t room), (fd, buffer, bytes, room))
CHECKED(__pread_chk, (int fd, void *buffer, size_t bytes, off_t offset, size_t room), (fd, buffer, bytes, offset, room))
CHECKED(__pread64_chk, (int fd, void *buffer, size_t bytes, off64_t offset, size_t room), (fd, buffer, bytes, offset, room))
CHECKED(__recv_chk, (int fd, void *buffer, size_t bytes, size_t room, int flags), (fd, buffer, bytes, room, flags))
CHECKED(__recvfrom_chk,
        (int fd, void *restrict buffer, size_t bytes, size_t room, int flags, struct sockaddr *restrict from, socklen_t *restrict length),
        (fd, buffer, bytes, room, flags, from, length))

#define READS_PARTS(name, offset_type)                                                                  \
    NP_EXPORT ssize_t name(int fd, const struct iovec *parts, int count, offset_type offset, int flags) { \
        if (count > 0) to_come_in(parts, (size_t)count);                                                \
        ssize_t got = OUTSIDE(ssize_t, NP_REAL(name)(fd, parts, count, offset, flags), 0);              \
        return came_in(np_vtime_self_live(), fd, parts, count, got, NP_CALLER_REGS());                  \
    }
READS_PARTS(preadv2, off_t)
READS_PARTS(preadv64v2, off64_t)

NP_EXPORT int recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags, struct timespec *timeout) {
    for (unsigned i = 0; np_pages_are_contested() && i < count && i < PARTS_MAX; i++) message_to_come_in(&messages[i].msg_hdr);
    int got = OUTSIDE(int, NP_REAL(recvmmsg)(fd, messages, count, flags, timeout), 0);
    for (int i = 0; i < got; i++) {
        const struct msghdr *message = &messages[i].msg_hdr;
        came_in(np_vtime_self_live(), fd, message->msg_iov, (int)message->msg_iovlen, (ssize_t)messages[i].msg_len, NP_CALLER_REGS());
    }
    return got;
}

/* One buffer that was filled without a descriptor that could be a pipe. */
static void filled(void *buffer, ssize_t bytes, struct np_regs caller) {
    struct np_slot *slot = bytes > 0 ? np_vtime_self_live() : NULL;
    struct iovec part = {buffer, (size_t)bytes};
    if (slot != NULL) put_in_place(slot, &part, 1, bytes, caller);
}

NP_EXPORT ssize_t getrandom(void *buffer, size_t bytes, unsigned flags) {
    np_to_fill((uintptr_t)buffer, bytes);
    ssize_t got = NP_REAL(getrandom)(buffer, bytes, flags);
    filled(buffer, got, NP_CALLER_REGS());
    return got;
}

/* Memory of another process, as message libraries copy between processes of a host; or of this one. */
NP_EXPORT ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long locals, const struct iovec *remote, unsigned long remotes,
                                   unsigned long flags) {
    to_come_in(local, locals);
    ssize_t got = NP_REAL(process_vm_readv)(pid, local, locals, remote, remotes, flags);
    struct np_slot *slot = got > 0 ? np_vtime_self_live() : NULL;
    if (slot != NULL) put_in_place(slot, local, locals, got, NP_CALLER_REGS());
    return got;
}

/* What it fills in another process, that one finds there without a first toucher. */
NP_EXPORT ssize_t process_vm_writev(pid_t pid, const struct iovec *local, unsigned long locals, const struct iovec *remote, unsigned long remotes,
                                    unsigned long flags) {
    struct np_slot *slot = np_vtime_self_live();
    bool is_own = slot != NULL && slot->pid == (uint32_t)pid;
    if (is_own) to_come_in(remote, remotes);
    ssize_t sent = NP_REAL(process_vm_writev)(pid, local, locals, remote, remotes, flags);
    if (is_own && sent > 0) put_in_place(slot, remote, remotes, sent, NP_CALLER_REGS());
    return sent;
}

NP_EXPORT ssize_t write(int fd, const void *buffer, size_t bytes) {
    struct iovec part = {(void *)(uintptr_t)buffer, bytes};
    goes_out(np_vtime_caller(), fd);
    ssize_t sent = OUTSIDE(ssize_t, NP_REAL(write)(fd, buffer, bytes), 0);
    return went_out(np_vtime_self_live(), &part, 1, sent, NP_CALLER_REGS());
}

NP_EXPORT ssize_t pwrite(int fd, const void *buffer, size_t bytes, off_t offset) {
    struct iovec part = {(void *)(uintptr_t)buffer, bytes};
    goes_out(np_vtime_caller(), fd);
    ssize_t sent = OUTSIDE(ssize_t, NP_REAL(pwrite)(fd, buffer, bytes, offset), 0);
    return went_out(np_vtime_self_live(), &part, 1, sent, NP_CALLER_REGS());
}

NP_EXPORT ssize_t pwrite64(int fd, const void *buffer, size_t bytes, off64_t offset) {
    struct iovec part = {(void *)(uintptr_t)buffer, bytes};
    goes_out(np_vtime_caller(), fd);
    ssize_t sent = OUTSIDE(ssize_t, NP_REAL(pwrite64)(fd, buffer, bytes, offset), 0);
    return went_out(np_vtime_self_live(), &part, 1, sent, NP_CALLER_REGS());
}

NP_EXPORT ssize_t writev(int fd, const struct iovec *parts, int count) {
    goes_out(np_vtime_caller(), fd);
    ssize_t sent = OUTSIDE(ssize_t, NP_REAL(writev)(fd, parts, count), 0);
    return went_out(np_vtime_self_live(), parts, count, sent, NP_CALLER_REGS());
}

NP_EXPORT ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    goes_out(np_vtime_caller(), fd);
    ssize_t sent = OUTSIDE(ssize_t, NP_REAL(pwritev)(fd, parts, count, offset), 0);
    return went_out(np_vtime_self_live(), parts, count, sent, NP_CALLER_REGS());
}

NP_EXPORT ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
    goes_out(np_vtime_caller(), fd);
    ssize_t sent = OUTSIDE(ssize_t, NP_REAL(pwritev64)(fd, parts, count, offset), 0);
    return went_out(np_vtime_self_live(), parts, count, sent, NP_CALLER_REGS());
}

#define WRITES_PARTS(name, offset_type)                                                                 \
    NP_EXPORT ssize_t name(int fd, const struct iovec *parts, int count, offset_type offset, int flags) { \
        goes_out(np_vtime_caller(), fd);                                                                \
        ssize_t sent = OUTSIDE(ssize_t, NP_REAL(name)(fd, parts, count, offset, flags), 0);             \
        return went_out(np_vtime_self_live(), parts, count, sent, NP_CALLER_REGS());                    \
    }
WRITES_PARTS(pwritev2, off_t)
WRITES_PARTS(pwritev64v2, off64_t)

NP_EXPORT ssize_t send(int fd, const void *buffer, size_t bytes, int flags) {
    struct iovec part = {(void *)(uintptr_t)buffer, bytes};
    goes_out(np_vtime_caller(), fd);
    ssize_t sent = OUTSIDE(ssize_t, NP_REAL(send)(fd, buffer, bytes, flags), 0);
    return went_out(np_vtime_self_live(), &part, 1, sent, NP_CALLER_REGS());
}

NP_EXPORT ssize_t sendto(int fd, const void *buffer, size_t bytes, int flags, const struct sockaddr *to, socklen_t length) {
    struct iovec part = {(void *)(uintptr_t)buffer, bytes};
    goes_out(np_vtime_caller(), fd);
    ssize_t sent = OUTSIDE(ssize_t, NP_REAL(sendto)(fd, buffer, bytes, flags, to, length), 0);
    return went_out(np_vtime_self_live(), &part, 1, sent, NP_CALLER_REGS());
}

NP_EXPORT ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    goes_out(np_vtime_caller(), fd);
    ssize_t sent = OUTSIDE(ssize_t, NP_REAL(sendmsg)(fd, message, flags), 0);
    if (sent <= 0) return sent;
    return went_out(np_vtime_self_live(), message->msg_iov, (int)message->msg_iovlen, sent, NP_CALLER_REGS());
}

NP_EXPORT int sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags) {
    goes_out(np_vtime_caller(), fd);
    int sent = OUTSIDE(int, NP_REAL(sendmmsg)(fd, messages, count, flags), 0);
    for (int i = 0; i < sent; i++) {
        const struct msghdr *message = &messages[i].msg_hdr;
        went_out(np_vtime_self_live(), message->msg_iov, (int)message->msg_iovlen, (ssize_t)messages[i].msg_len, NP_CALLER_REGS());
    }
    return sent;
}

/* From a pipe into memory, which is filled; or the other way, where the kernel takes the pages as they are. */
NP_EXPORT ssize_t vmsplice(int fd, const struct iovec *parts, size_t count, unsigned flags) {
    bool is_in = !np_is_confined && (NP_SYS3(SYS_fcntl, fd, F_GETFL, 0) & O_ACCMODE) == O_RDONLY;
    if (is_in) to_come_in(parts, count);
    else goes_out(np_vtime_caller(), fd);
    ssize_t moved = OUTSIDE(ssize_t, NP_REAL(vmsplice)(fd, parts, count, flags), 0);
    if (is_in) return came_in(np_vtime_self_live(), fd, parts, (int)count, moved, NP_CALLER_REGS());
    return moved;
}

/* Between two descriptors: no memory of the program is touched. What comes from one pipe goes into the other no earlier than it came. */
#define MOVES(name, parameters, from, to, arguments)                                            \
    NP_EXPORT ssize_t name parameters {                                                         \
        goes_out(np_vtime_caller(), to);                                                        \
        ssize_t moved = OUTSIDE(ssize_t, NP_REAL(name) arguments, 0);                           \
        came_in(np_vtime_self_live(), from, NULL, 0, moved, NP_CALLER_REGS());                  \
        if (moved > 0) goes_out(np_vtime_caller(), to);                                         \
        return moved;                                                                           \
    }
MOVES(splice, (int from, off64_t *from_at, int to, off64_t *to_at, size_t bytes, unsigned flags), from, to, (from, from_at, to, to_at, bytes, flags))
MOVES(tee, (int from, int to, size_t bytes, unsigned flags), from, to, (from, to, bytes, flags))
MOVES(sendfile, (int to, int from, off_t *from_at, size_t bytes), from, to, (to, from, from_at, bytes))
MOVES(sendfile64, (int to, int from, off64_t *from_at, size_t bytes), from, to, (to, from, from_at, bytes))

NP_EXPORT int fsync(int fd) {
    return OUTSIDE(int, NP_REAL(fsync)(fd), 0);
}

NP_EXPORT int fdatasync(int fd) {
    return OUTSIDE(int, NP_REAL(fdatasync)(fd), 0);
}

NP_EXPORT int accept(int fd, struct sockaddr *restrict address, socklen_t *restrict length) {
    return OUTSIDE(int, NP_REAL(accept)(fd, address, length), 0);
}

NP_EXPORT int accept4(int fd, struct sockaddr *restrict address, socklen_t *restrict length, int flags) {
    return OUTSIDE(int, NP_REAL(accept4)(fd, address, length, flags), 0);
}

NP_EXPORT int connect(int fd, const struct sockaddr *address, socklen_t length) {
    return OUTSIDE(int, NP_REAL(connect)(fd, address, length), 0);
}

NP_EXPORT int flock(int fd, int operation) {
    return OUTSIDE(int, NP_REAL(flock)(fd, operation), 0);
}

NP_EXPORT int lockf(int fd, int operation, off_t bytes) {
    return OUTSIDE(int, NP_REAL(lockf)(fd, operation, bytes), 0);
}

NP_EXPORT int lockf64(int fd, int operation, off64_t bytes) {
    return OUTSIDE(int, NP_REAL(lockf64)(fd, operation, bytes), 0);
}

/* The commands that wait. Of all others only the argument goes on, whichever it is. */
NP_EXPORT int fcntl(int fd, int command, ...) {
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    __typeof__(&fcntl) real = NP_REAL(fcntl);
    if (np_likely(command != F_SETLKW && command != F_OFD_SETLKW)) return real(fd, command, argument);
    return OUTSIDE(int, real(fd, command, argument), 0);
}

/* Newer than some C libraries; where it is, it is the same function. */
extern int fcntl64(int fd, int command, ...);
NP_EXPORT int fcntl64(int fd, int command, ...) __attribute__((alias("fcntl")));

/* ---- queues and semaphores of the system, transfers under way: whose clocks meet there is not followed ---- */

NP_EXPORT ssize_t msgrcv(int queue, void *message, size_t bytes, long type, int flags) {
    np_to_fill((uintptr_t)message, sizeof(long) + bytes);
    ssize_t got = OUTSIDE(ssize_t, NP_REAL(msgrcv)(queue, message, bytes, type, flags), 0);
    if (got >= 0) filled(message, (ssize_t)sizeof(long) + got, NP_CALLER_REGS());
    return got;
}

NP_EXPORT int msgsnd(int queue, const void *message, size_t bytes, int flags) {
    return OUTSIDE(int, NP_REAL(msgsnd)(queue, message, bytes, flags), 0);
}

NP_EXPORT ssize_t mq_receive(mqd_t queue, char *message, size_t bytes, unsigned *priority) {
    np_to_fill((uintptr_t)message, bytes);
    ssize_t got = OUTSIDE(ssize_t, REAL_WHERE_IT_IS(mq_receive)(queue, message, bytes, priority), 0);
    filled(message, got, NP_CALLER_REGS());
    return got;
}

NP_EXPORT ssize_t mq_timedreceive(mqd_t queue, char *restrict message, size_t bytes, unsigned *restrict priority, const struct timespec *restrict until) {
    np_to_fill((uintptr_t)message, bytes);
    ssize_t got = OUTSIDE_UNTIL(ssize_t, REAL_WHERE_IT_IS(mq_timedreceive)(queue, message, bytes, priority, until), ETIMEDOUT);
    filled(message, got, NP_CALLER_REGS());
    return got;
}

NP_EXPORT int mq_send(mqd_t queue, const char *message, size_t bytes, unsigned priority) {
    return OUTSIDE(int, REAL_WHERE_IT_IS(mq_send)(queue, message, bytes, priority), 0);
}

NP_EXPORT int mq_timedsend(mqd_t queue, const char *message, size_t bytes, unsigned priority, const struct timespec *until) {
    return OUTSIDE_UNTIL(int, REAL_WHERE_IT_IS(mq_timedsend)(queue, message, bytes, priority, until), ETIMEDOUT);
}

NP_EXPORT int semop(int id, struct sembuf *operations, size_t count) {
    return OUTSIDE(int, NP_REAL(semop)(id, operations, count), 0);
}

NP_EXPORT int semtimedop(int id, struct sembuf *operations, size_t count, const struct timespec *timeout) {
    /* Without a time-out it is IPC_NOWAIT that ends it so, however long the host took for that. */
    return OUTSIDE_UNTIL(int, NP_REAL(semtimedop)(id, operations, count, timeout), timeout != NULL ? EAGAIN : 0);
}

NP_EXPORT int aio_suspend(const struct aiocb *const list[], int count, const struct timespec *timeout) {
    return OUTSIDE_UNTIL(int, REAL_WHERE_IT_IS(aio_suspend)(list, count, timeout), EAGAIN);
}

NP_EXPORT int aio_suspend64(const struct aiocb64 *const list[], int count, const struct timespec *timeout) {
    return OUTSIDE_UNTIL(int, REAL_WHERE_IT_IS(aio_suspend64)(list, count, timeout), EAGAIN);
}
