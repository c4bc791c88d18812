/* sameness.c: one call at least of every function that virtual time interposes, with what it returned and left in errno. The text
 * must be the same without the tracker, in track mode and in instrument mode. `sameness GROUP`. */
#define _GNU_SOURCE
#include "work.h"

#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

/* What calls become where they are checked (_FORTIFY_SOURCE), and one that older C libraries lack. */
extern int __poll_chk(struct pollfd *fds, nfds_t count, int milliseconds, size_t room);
extern int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask, size_t room);
extern ssize_t __read_chk(int fd, void *buffer, size_t bytes, size_t room);
extern ssize_t __pread_chk(int fd, void *buffer, size_t bytes, off_t offset, size_t room);
extern ssize_t __pread64_chk(int fd, void *buffer, size_t bytes, off64_t offset, size_t room);
extern ssize_t __recv_chk(int fd, void *buffer, size_t bytes, size_t room, int flags);
extern ssize_t __recvfrom_chk(int fd, void *buffer, size_t bytes, size_t room, int flags, struct sockaddr *from, socklen_t *length);
extern int by_epoll_pwait2(int, struct epoll_event *, int, const struct timespec *, const sigset_t *) __asm__("epoll_pwait2") __attribute__((weak));

#define SHOW(call)                                                              \
    do {                                                                        \
        errno = 0;                                                              \
        long result_ = (long)(call);                                            \
        printf("%d %s = %ld errno %d\n", __LINE__, #call, result_, errno);      \
    } while (0)
/* Ends no earlier than after `ms`, and not absurdly late. */
#define TIMED(ms, call)                                                         \
    do {                                                                        \
        double began_ = seconds(CLOCK_MONOTONIC);                               \
        SHOW(call);                                                             \
        double took_ = seconds(CLOCK_MONOTONIC) - began_;                       \
        printf("  on time %d\n", took_ >= (ms) * 0.000999 && took_ < (ms) * 0.001 + 2); \
    } while (0)
/* Ends no earlier than at the deadline, however much of the time before it was lost to other programs, and not absurdly late. */
#define UNTIL(clock, deadline, call)                                            \
    do {                                                                        \
        double began_ = seconds(clock), end_ = as_seconds(deadline);            \
        SHOW(call);                                                             \
        double now_ = seconds(clock), due_ = began_ > end_ ? began_ : end_;     \
        printf("  on time %d\n", now_ >= end_ - 1e-6 && now_ < due_ + 2);       \
    } while (0)

static double as_seconds(struct timespec time) { return (double)time.tv_sec + (double)time.tv_nsec * 1e-9; }

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return as_seconds(now);
}

static struct timespec in_ms(clockid_t clock, int ms) {
    struct timespec then;
    clock_gettime(clock, &then);
    then.tv_nsec += ms * 1000000L;
    then.tv_sec += then.tv_nsec / 1000000000;
    then.tv_nsec %= 1000000000;
    return then;
}

/* Longer than any test takes: what waits so long waits for something else. */
enum { LONG_S = 1000, LONG_MS = LONG_S * 1000 };
static const struct timespec bad_time = {0, 2000000000};

/* ---- locks ---- */

static void *in_thread(void *(*routine)(void *), void *argument) {
    pthread_t thread;
    void *value = NULL;
    pthread_create(&thread, NULL, routine, argument);
    pthread_join(thread, &value);
    return value;
}

static void *other_locks(void *argument) {
    pthread_mutex_t *mutex = argument;
    struct timespec soon = in_ms(CLOCK_REALTIME, 5), later = in_ms(CLOCK_MONOTONIC, 5);
    SHOW(pthread_mutex_trylock(mutex));
    UNTIL(CLOCK_REALTIME, soon, pthread_mutex_timedlock(mutex, &soon));
    UNTIL(CLOCK_REALTIME, soon, pthread_mutex_timedlock(mutex, &soon));
    SHOW(pthread_mutex_timedlock(mutex, &bad_time));
    later = in_ms(CLOCK_MONOTONIC, 5);
    UNTIL(CLOCK_MONOTONIC, later, pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &later));
    SHOW(pthread_mutex_clocklock(mutex, CLOCK_PROCESS_CPUTIME_ID, &later));
    return NULL;
}

static void *other_unlocks(void *argument) {
    SHOW(pthread_mutex_unlock(argument));
    return NULL;
}

static void *dies_with(void *argument) {
    SHOW(pthread_mutex_lock(argument));
    return NULL;
}

static void mutex_kinds(void) {
    static const int kinds[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ADAPTIVE_NP};
    for (int i = 0; i < 4; i++) {
        pthread_mutexattr_t attributes;
        pthread_mutex_t mutex;
        struct timespec soon = in_ms(CLOCK_REALTIME, 5);
        pthread_mutexattr_init(&attributes);
        pthread_mutexattr_settype(&attributes, kinds[i]);
        pthread_mutex_init(&mutex, &attributes);
        SHOW(pthread_mutex_lock(&mutex));
        SHOW(pthread_mutex_trylock(&mutex));
        if (kinds[i] == PTHREAD_MUTEX_RECURSIVE || kinds[i] == PTHREAD_MUTEX_ERRORCHECK) {
            SHOW(pthread_mutex_lock(&mutex));
            SHOW(pthread_mutex_timedlock(&mutex, &soon));
            in_thread(other_unlocks, &mutex);
        }
        in_thread(other_locks, &mutex);
        SHOW(pthread_mutex_unlock(&mutex));
        if (kinds[i] == PTHREAD_MUTEX_RECURSIVE) {
            SHOW(pthread_mutex_unlock(&mutex));
            SHOW(pthread_mutex_unlock(&mutex));
            SHOW(pthread_mutex_unlock(&mutex));
        }
        if (kinds[i] == PTHREAD_MUTEX_ERRORCHECK) SHOW(pthread_mutex_unlock(&mutex));
        SHOW(pthread_mutex_destroy(&mutex));
    }
}

static void robust(void) {
    pthread_mutexattr_t attributes;
    pthread_mutex_t mutex;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&mutex, &attributes);
    in_thread(dies_with, &mutex);
    SHOW(pthread_mutex_lock(&mutex) == EOWNERDEAD);
    SHOW(pthread_mutex_consistent(&mutex));
    SHOW(pthread_mutex_unlock(&mutex));
    in_thread(dies_with, &mutex);
    SHOW(pthread_mutex_trylock(&mutex));
    SHOW(pthread_mutex_unlock(&mutex));
    SHOW(pthread_mutex_lock(&mutex));
    SHOW(pthread_mutex_trylock(&mutex));
    pthread_mutex_destroy(&mutex);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&mutex, &attributes);
    SHOW(pthread_mutex_lock(&mutex));
    in_thread(other_locks, &mutex);
    SHOW(pthread_mutex_unlock(&mutex));
    in_thread(dies_with, &mutex);
    SHOW(pthread_mutex_lock(&mutex));
}

static void *other_reads(void *argument) {
    pthread_rwlock_t *lock = argument;
    struct timespec soon = in_ms(CLOCK_REALTIME, 5);
    SHOW(pthread_rwlock_tryrdlock(lock));
    SHOW(pthread_rwlock_trywrlock(lock));
    UNTIL(CLOCK_REALTIME, soon, pthread_rwlock_timedwrlock(lock, &soon));
    soon = in_ms(CLOCK_MONOTONIC, 5);
    UNTIL(CLOCK_MONOTONIC, soon, pthread_rwlock_clockwrlock(lock, CLOCK_MONOTONIC, &soon));
    SHOW(pthread_rwlock_timedwrlock(lock, &bad_time));
    soon = in_ms(CLOCK_REALTIME, 5);
    int timed = pthread_rwlock_timedrdlock(lock, &soon);
    SHOW(timed);
    soon = in_ms(CLOCK_MONOTONIC, 5);
    int clocked = pthread_rwlock_clockrdlock(lock, CLOCK_MONOTONIC, &soon);
    SHOW(clocked);
    if (timed == 0) SHOW(pthread_rwlock_unlock(lock) + pthread_rwlock_unlock(lock) + pthread_rwlock_unlock(lock));
    return NULL;
}

static void rwlocks(void) {
    pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
    SHOW(pthread_rwlock_rdlock(&lock));
    SHOW(pthread_rwlock_rdlock(&lock));
    in_thread(other_reads, &lock);
    SHOW(pthread_rwlock_unlock(&lock));
    SHOW(pthread_rwlock_unlock(&lock));
    SHOW(pthread_rwlock_wrlock(&lock));
    SHOW(pthread_rwlock_wrlock(&lock));
    SHOW(pthread_rwlock_rdlock(&lock));
    SHOW(pthread_rwlock_trywrlock(&lock));
    in_thread(other_reads, &lock);
    SHOW(pthread_rwlock_unlock(&lock));
    for (int i = 0; i < 7; i++) SHOW(pthread_rwlock_rdlock(&lock));
    for (int i = 0; i < 7; i++) SHOW(pthread_rwlock_unlock(&lock));
    SHOW(pthread_rwlock_trywrlock(&lock));
    SHOW(pthread_rwlock_unlock(&lock));
    pthread_spinlock_t spin;
    pthread_spin_init(&spin, 0);
    SHOW(pthread_spin_lock(&spin));
    SHOW(pthread_spin_trylock(&spin));
    SHOW(pthread_spin_unlock(&spin));
    SHOW(pthread_spin_trylock(&spin));
    SHOW(pthread_spin_unlock(&spin));
}

static void conditions(void) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER, monotonic;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&monotonic, &attributes);
    SHOW(pthread_cond_signal(&condition));
    SHOW(pthread_cond_broadcast(&condition));
    pthread_mutex_lock(&mutex);
    struct timespec soon = in_ms(CLOCK_REALTIME, 5);
    UNTIL(CLOCK_REALTIME, soon, pthread_cond_timedwait(&condition, &mutex, &soon));
    UNTIL(CLOCK_REALTIME, soon, pthread_cond_timedwait(&condition, &mutex, &soon));
    SHOW(pthread_cond_timedwait(&condition, &mutex, &bad_time));
    soon = in_ms(CLOCK_MONOTONIC, 5);
    UNTIL(CLOCK_MONOTONIC, soon, pthread_cond_timedwait(&monotonic, &mutex, &soon));
    soon = in_ms(CLOCK_MONOTONIC, 5);
    UNTIL(CLOCK_MONOTONIC, soon, pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &soon));
    SHOW(pthread_mutex_trylock(&mutex));
    SHOW(pthread_mutex_unlock(&mutex));
}

static void semaphores(void) {
    sem_t semaphore;
    SHOW(sem_init(&semaphore, 0, 0x80000000u));
    SHOW(sem_init(&semaphore, 0, 1));
    SHOW(sem_wait(&semaphore));
    SHOW(sem_trywait(&semaphore));
    struct timespec soon = in_ms(CLOCK_REALTIME, 5);
    UNTIL(CLOCK_REALTIME, soon, sem_timedwait(&semaphore, &soon));
    SHOW(sem_timedwait(&semaphore, &bad_time));
    soon = in_ms(CLOCK_MONOTONIC, 5);
    UNTIL(CLOCK_MONOTONIC, soon, sem_clockwait(&semaphore, CLOCK_MONOTONIC, &soon));
    SHOW(sem_post(&semaphore));
    SHOW(sem_timedwait(&semaphore, &bad_time));
    SHOW(sem_init(&semaphore, 0, 0x7fffffff));
    SHOW(sem_post(&semaphore));
}

/* ---- barriers, once, join, C11 ---- */

static pthread_barrier_t barrier;
static int once_runs;
static void *at_barrier(void *argument) {
    (void)argument;
    return (void *)(long)(pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD);
}
static void count_once(void) { once_runs++; errno = 77; }
static sem_t released;
static void *stays(void *argument) {
    while (sem_wait(&released) != 0) continue;
    return argument;
}
static int c11_thread(void *argument) { return *(int *)argument; }

static void lives(void) {
    pthread_t threads[3], stayer;
    long serial = 0;
    SHOW(pthread_barrier_init(&barrier, NULL, 0));
    SHOW(pthread_barrier_init(&barrier, NULL, 3));
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, at_barrier, NULL);
    for (int i = 0; i < 3; i++) {
        void *value;
        pthread_join(threads[i], &value);
        serial += (long)value;
    }
    SHOW(serial);
    pthread_once_t once = PTHREAD_ONCE_INIT;
    SHOW(pthread_once(&once, count_once));
    SHOW(pthread_once(&once, count_once));
    SHOW(once_runs);
    void *value = NULL;
    /* It cannot end before it is released, however late this thread comes. */
    sem_init(&released, 0, 0);
    pthread_create(&stayer, NULL, stays, (void *)5);
    struct timespec soon = in_ms(CLOCK_REALTIME, 2), later = in_ms(CLOCK_MONOTONIC, 2);
    SHOW(pthread_tryjoin_np(stayer, &value));
    UNTIL(CLOCK_REALTIME, soon, pthread_timedjoin_np(stayer, &value, &soon));
    UNTIL(CLOCK_MONOTONIC, later, pthread_clockjoin_np(stayer, &value, CLOCK_MONOTONIC, &later));
    sem_post(&released);
    SHOW(pthread_join(stayer, &value));
    SHOW(value);
    SHOW(pthread_join(pthread_self(), NULL));
}

static void c11(void) {
    mtx_t mutex;
    cnd_t condition;
    thrd_t thread;
    int value = 9, result = 0;
    once_flag flag = ONCE_FLAG_INIT;
    SHOW(mtx_init(&mutex, mtx_timed | mtx_recursive));
    SHOW(cnd_init(&condition));
    SHOW(mtx_lock(&mutex));
    SHOW(mtx_trylock(&mutex));
    SHOW(mtx_unlock(&mutex));
    struct timespec soon = in_ms(CLOCK_REALTIME, 5);
    UNTIL(CLOCK_REALTIME, soon, cnd_timedwait(&condition, &mutex, &soon));
    SHOW(cnd_timedwait(&condition, &mutex, &bad_time));
    SHOW(cnd_signal(&condition));
    SHOW(cnd_broadcast(&condition));
    SHOW(mtx_timedlock(&mutex, &soon));
    SHOW(mtx_unlock(&mutex));
    SHOW(mtx_unlock(&mutex));
    SHOW(thrd_create(&thread, c11_thread, &value));
    SHOW(thrd_join(thread, &result));
    SHOW(result);
    call_once(&flag, count_once);
    call_once(&flag, count_once);
    SHOW(once_runs);
    struct timespec ms = {0, 2000000};
    TIMED(2, thrd_sleep(&ms, NULL));
    SHOW(thrd_sleep(&bad_time, NULL));
    thrd_yield();
    SHOW(sched_yield());
}

/* ---- sleeps and input ---- */

static void on_signal(int number) { (void)number; }

/* A signal in `ms`, that interrupts what waits, and more of them later: on a busy machine the first one may come before anybody waits. 0: none any more. */
static void alarm_ms(int ms) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGALRM, &action, NULL);
    struct timespec then = {0, ms * 1000000L}, again = {0, 5 * ms * 1000000L};
    struct itimerspec when = {.it_value = then, .it_interval = again};
    static timer_t timer;
    static int made;
    if (!made++) timer_create(CLOCK_MONOTONIC, NULL, &timer);
    timer_settime(timer, 0, &when, NULL);
}
#define INTERRUPTED(call) do { alarm_ms(10); SHOW(call); alarm_ms(0); } while (0)

static void sleeping(void) {
    struct timespec ms = {0, 2000000}, rest = {LONG_S, 0}, left = {7, 7}, soon;
    TIMED(2, nanosleep(&ms, &left));
    SHOW(left.tv_sec);
    SHOW(nanosleep(&bad_time, NULL));
    SHOW(nanosleep((struct timespec *)8, NULL));
    INTERRUPTED(nanosleep(&rest, &rest));
    SHOW(rest.tv_sec < LONG_S && rest.tv_sec > LONG_S / 2);
    soon = in_ms(CLOCK_MONOTONIC, 3);
    UNTIL(CLOCK_MONOTONIC, soon, clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &soon, NULL));
    SHOW(clock_nanosleep(CLOCK_MONOTONIC, 0, &bad_time, NULL));
    rest.tv_sec = LONG_S;
    INTERRUPTED(clock_nanosleep(CLOCK_REALTIME, 0, &rest, &left));
    SHOW(left.tv_sec < LONG_S && left.tv_sec > LONG_S / 2);
    soon = in_ms(CLOCK_MONOTONIC, LONG_MS);
    INTERRUPTED(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &soon, NULL));
    TIMED(2, usleep(2000));
    INTERRUPTED(usleep(LONG_S * 1000000u));
    INTERRUPTED(sleep(LONG_S) > LONG_S / 2);
    SHOW(sleep(0));
}

static void interrupted_waits(void) {
    sem_t semaphore;
    int pipes[2];
    char byte;
    struct timespec soon = in_ms(CLOCK_REALTIME, LONG_MS);
    struct pollfd waits = {.events = POLLIN};
    sem_init(&semaphore, 0, 0);
    if (pipe(pipes) != 0) return;
    waits.fd = pipes[0];
    INTERRUPTED(sem_wait(&semaphore));
    INTERRUPTED(sem_timedwait(&semaphore, &soon));
    INTERRUPTED(read(pipes[0], &byte, 1));
    INTERRUPTED(poll(&waits, 1, -1));
    INTERRUPTED(poll(&waits, 1, LONG_MS));
    INTERRUPTED(select(0, NULL, NULL, NULL, NULL));
    INTERRUPTED(wait(NULL));
    uint32_t word = 5;
    INTERRUPTED(syscall(SYS_futex, &word, FUTEX_WAIT, 5, NULL, NULL, 0));
    struct timespec ms = {0, 5000000};
    TIMED(5, syscall(SYS_futex, &word, FUTEX_WAIT, 5, &ms, NULL, 0));
    SHOW(syscall(SYS_futex, &word, FUTEX_WAIT, 6, NULL, NULL, 0));
    SHOW(syscall(SYS_futex, &word, FUTEX_WAKE, 1, NULL, NULL, 0));
    SHOW(syscall(SYS_futex, &word, FUTEX_WAIT, 5, (void *)8, NULL, 0));
    SHOW(syscall(SYS_getpid) == getpid());
    SHOW(syscall(-1));
}

static void readiness(void) {
    int pipes[2], poller = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    struct timespec ms = {0, 3000000};
    struct timeval wait_ms = {0, 3000};
    if (pipe(pipes) != 0) return;
    struct pollfd one = {.fd = pipes[0], .events = POLLIN};
    epoll_ctl(poller, EPOLL_CTL_ADD, pipes[0], &event);
    for (int round = 0; round < 2; round++) {
        double least = round == 0 ? 3 : 0;
        fd_set set;
        FD_ZERO(&set);
        FD_SET(pipes[0], &set);
        TIMED(least, poll(&one, 1, 3));
        TIMED(least, ppoll(&one, 1, &ms, NULL));
        /* What is left is told: nothing where the time ran out, much where there was something to read. */
        wait_ms = (struct timeval){round == 0 ? 0 : LONG_S, 3000};
        TIMED(least, select(pipes[0] + 1, &set, NULL, NULL, &wait_ms));
        SHOW(wait_ms.tv_sec == 0 && wait_ms.tv_usec == 0);
        FD_SET(pipes[0], &set);
        TIMED(least, pselect(pipes[0] + 1, &set, NULL, NULL, &ms, NULL));
        TIMED(least, epoll_wait(poller, &event, 1, 3));
        TIMED(least, epoll_pwait(poller, &event, 1, 3, NULL));
        TIMED(least, __poll_chk(&one, 1, 3, sizeof one));
        TIMED(least, __ppoll_chk(&one, 1, &ms, NULL, sizeof one));
        if (by_epoll_pwait2) TIMED(least, by_epoll_pwait2(poller, &event, 1, &ms, NULL));
        SHOW(write(pipes[1], "x", 1));
    }
    SHOW(poll(NULL, 0, 0));
    SHOW(poll((struct pollfd *)8, 1, 0));
    SHOW(__poll_chk((struct pollfd *)8, 1, 0, 8));
    SHOW(epoll_wait(pipes[0], &event, 1, 0));
    if (by_epoll_pwait2) SHOW(by_epoll_pwait2(poller, &event, 1, &bad_time, NULL));
    SHOW(select(-1, NULL, NULL, NULL, NULL));
}

static void transfers(void) {
    char buffer[64] = "";
    int sockets[2], file = memfd_create("file", 0), event = eventfd(0, EFD_NONBLOCK), timer = timerfd_create(CLOCK_MONOTONIC, 0);
    struct iovec parts[2] = {{buffer, 4}, {buffer + 32, 4}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    struct itimerspec when = {.it_value = {0, 3000000}};
    uint64_t count = 3;
    SHOW(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets));
    SHOW(recv(sockets[0], buffer, 4, 0));
    SHOW(send(sockets[1], "abcdefghijklmnopqrstuvwxyz", 24, 0));
    SHOW(recv(sockets[0], buffer, 4, 0));
    SHOW(recvfrom(sockets[0], buffer, 4, 0, NULL, NULL));
    SHOW(recvmsg(sockets[0], &message, 0));
    SHOW(readv(sockets[0], parts, 2));
    SHOW(buffer[32]);
    SHOW(read(sockets[0], (char *)8, 4));
    SHOW(sendto(sockets[1], "ab", 2, 0, NULL, 0));
    SHOW(sendmsg(sockets[1], &message, 0));
    SHOW(sendmsg(sockets[1], (struct msghdr *)8, 0));
    SHOW(writev(sockets[1], parts, 2));
    SHOW(writev(sockets[1], (struct iovec *)8, 2));
    SHOW(writev(sockets[1], parts, -1));
    SHOW(recvmsg(sockets[0], (struct msghdr *)8, 0));
    SHOW(write(-1, "x", 1));
    SHOW(write(sockets[1], (char *)8, 1));
    SHOW(pwrite(file, "0123456789", 10, 0));
    SHOW(pwrite64(file, "ab", 2, 4));
    SHOW(pread(file, buffer, 64, 2));
    SHOW(pread64(file, buffer, 64, 6));
    SHOW(buffer[0]);
    SHOW(pread(sockets[0], buffer, 1, 0));
    SHOW(flock(file, LOCK_EX));
    SHOW(flock(-1, LOCK_EX));
    SHOW(accept(sockets[0], NULL, NULL));
    SHOW(accept4(-1, NULL, NULL, 0));
    SHOW(connect(-1, NULL, 0));
    SHOW(read(event, &count, 8));
    SHOW(write(event, &count, 8));
    SHOW(read(event, &count, 8));
    SHOW(count);
    timerfd_settime(timer, 0, &when, NULL);
    TIMED(2, read(timer, &count, 8));
    SHOW(count);
    struct { long type; char text[8]; } note = {1, "hello"};
    int queue = msgget(IPC_PRIVATE, 0600);
    if (queue >= 0) {
        SHOW(msgrcv(queue, &note, 8, 0, IPC_NOWAIT));
        SHOW(msgsnd(queue, &note, 6, 0));
        SHOW(msgrcv(queue, &note, 8, 0, 0));
        msgctl(queue, IPC_RMID, NULL);
    }
}

static void rarer_transfers(void) {
    char buffer[64] = "";
    int pipes[2], others[2], sockets[2], file = memfd_create("file", 0);
    struct iovec parts[2] = {{buffer, 4}, {buffer + 32, 4}};
    struct mmsghdr messages[2] = {{.msg_hdr = {.msg_iov = parts, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = parts + 1, .msg_iovlen = 1}}};
    off_t at = 3;
    if (pipe(pipes) != 0 || pipe(others) != 0 || socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, sockets) != 0) return;
    SHOW(pwrite(file, "0123456789abcdef", 16, 0));
    SHOW(lseek(file, 0, SEEK_SET));
    SHOW(__read_chk(file, buffer, 4, sizeof buffer));
    SHOW(buffer[3]);
    SHOW(__pread_chk(file, buffer, 8, 2, sizeof buffer));
    SHOW(__pread64_chk(file, buffer, 8, 12, sizeof buffer));
    SHOW(buffer[0]);
    SHOW(__pread_chk(file, (char *)8, 8, 2, sizeof buffer));
    SHOW(preadv2(file, parts, 2, 1, 0));
    SHOW(buffer[32]);
    SHOW(preadv64v2(file, parts, 2, 10, 0));
    SHOW(preadv2(file, (struct iovec *)8, 2, 0, 0));
    SHOW(preadv2(file, parts, 2, 0, 0x40000000));
    SHOW(pwritev2(file, parts, 2, 20, 0));
    SHOW(pwritev64v2(file, parts, 2, 2, 0));
    SHOW(pwritev2(file, (struct iovec *)8, 2, 0, 0));
    SHOW(sendmmsg(sockets[0], messages, 2, 0));
    SHOW(messages[1].msg_len);
    SHOW(recvmmsg(sockets[1], messages, 1, 0, NULL));
    SHOW(recvmmsg(sockets[1], messages, 2, 0, NULL));
    SHOW(recvmmsg(sockets[1], messages, 2, 0, NULL));
    SHOW(recvmmsg(sockets[1], (struct mmsghdr *)8, 2, 0, NULL));
    SHOW(sendmmsg(sockets[0], (struct mmsghdr *)8, 2, 0));
    SHOW(send(sockets[0], "abc", 3, 0) + send(sockets[0], "de", 2, 0));
    SHOW(__recv_chk(sockets[1], buffer, 8, sizeof buffer, 0));
    SHOW(__recvfrom_chk(sockets[1], buffer, 8, sizeof buffer, 0, NULL, NULL));
    SHOW(__recv_chk(sockets[1], buffer, 8, sizeof buffer, 0));
    SHOW(vmsplice(pipes[1], parts, 2, 0));
    SHOW(tee(pipes[0], others[1], 8, 0));
    SHOW(splice(pipes[0], NULL, others[1], NULL, 4, 0));
    SHOW(vmsplice(pipes[0], parts, 1, 0));
    SHOW(vmsplice(-1, parts, 1, 0));
    SHOW(vmsplice(pipes[0], (struct iovec *)8, 1, 0));
    SHOW(splice(pipes[0], NULL, -1, NULL, 4, 0));
    SHOW(sendfile(others[1], file, &at, 4));
    SHOW(at);
    SHOW(sendfile64(others[1], file, NULL, 2));
    SHOW(read(others[0], buffer, sizeof buffer));
    SHOW(getrandom(buffer, 16, 0));
    // Not with a wrong buffer: from version 2.41 on the C library writes it itself, where the kernel offers that, and crashes.
    SHOW(getrandom(buffer, 16, ~0u));
    SHOW(fsync(file));
    SHOW(fsync(-1));
    SHOW(fdatasync(file));
    SHOW(lockf(file, F_LOCK, 0));
    SHOW(lockf64(-1, F_LOCK, 0));
    struct flock lock = {.l_type = F_UNLCK};
    SHOW(fcntl(file, F_SETLKW, &lock));
    lock.l_type = F_WRLCK;
    SHOW(fcntl(file, F_OFD_SETLKW, &lock));
    SHOW(fcntl(-1, F_SETLKW, &lock));
    SHOW(fcntl(file, F_SETLKW, (struct flock *)8));
    SHOW(fcntl(file, F_SETFD, FD_CLOEXEC));
    SHOW(fcntl64(file, F_GETFD));
}

static void queues(void) {
    int id = semget(IPC_PRIVATE, 1, 0600), pipes[2];
    struct sembuf up = {0, 1, 0}, down = {0, -1, 0}, look = {0, -1, IPC_NOWAIT};
    struct timespec ms = {0, 3000000}, soon;
    char name[32], text[8] = "", byte;
    if (id >= 0) {
        SHOW(semop(id, &up, 1));
        SHOW(semop(id, &down, 1));
        SHOW(semop(id, &look, 1));
        TIMED(3, semtimedop(id, &down, 1, &ms));
        SHOW(semtimedop(id, &look, 1, &ms));
        SHOW(semtimedop(id, &down, 1, &bad_time));
        INTERRUPTED(semop(id, &down, 1));
        semctl(id, 0, IPC_RMID);
    }
    snprintf(name, sizeof name, "/sameness-%d", (int)getpid());
    struct mq_attr room = {.mq_maxmsg = 1, .mq_msgsize = sizeof text};
    mqd_t queue = mq_open(name, O_RDWR | O_CREAT, 0600, &room);
    if (queue >= 0) {
        mq_unlink(name);
        SHOW(mq_send(queue, "abc", 3, 1));
        soon = in_ms(CLOCK_REALTIME, 3);
        UNTIL(CLOCK_REALTIME, soon, mq_timedsend(queue, "de", 2, 1, &soon));
        SHOW(mq_receive(queue, text, sizeof text, NULL));
        SHOW(text[2]);
        soon = in_ms(CLOCK_REALTIME, 3);
        UNTIL(CLOCK_REALTIME, soon, mq_timedreceive(queue, text, sizeof text, NULL, &soon));
        SHOW(mq_receive(queue, text, 1, NULL));
        SHOW(mq_receive(-1, text, sizeof text, NULL));
        INTERRUPTED(mq_receive(queue, text, sizeof text, NULL));
        mq_close(queue);
    }
    if (pipe(pipes) != 0) return;
    struct aiocb incoming = {.aio_fildes = pipes[0], .aio_buf = &byte, .aio_nbytes = 1};
    const struct aiocb *list[] = {&incoming};
    SHOW(aio_read(&incoming));
    TIMED(3, aio_suspend(list, 1, &ms));
    SHOW(write(pipes[1], "x", 1));
    SHOW(aio_suspend(list, 1, NULL));
    SHOW(aio_return(&incoming));
    SHOW(aio_suspend64((const struct aiocb64 *const *)list, 1, &ms));
}

/* ---- children ---- */

static pid_t child(int code) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        usleep(2000);
        _exit(code);
    }
    return pid;
}

static void children(void) {
    int status = 0;
    struct rusage usage;
    siginfo_t info;
    pid_t pid = child(3);
    SHOW(waitpid(pid, &status, 0) == pid);
    SHOW(status);
    pid = child(4);
    SHOW(wait(&status) == pid);
    SHOW(status);
    pid = child(5);
    SHOW(wait3(&status, 0, &usage) == pid);
    pid = child(6);
    SHOW(wait4(pid, &status, 0, &usage) == pid);
    SHOW(status);
    pid = child(7);
    SHOW(waitid(P_PID, (id_t)pid, &info, WEXITED));
    SHOW(info.si_status);
    SHOW(waitpid(-1, &status, 0));
    SHOW(waitid(P_ALL, 0, &info, WEXITED | WNOHANG));
    SHOW(waitpid(-1, &status, 12345678));
    fflush(stdout);
    SHOW(system("exit 9"));
    FILE *output = popen("echo from a shell", "r");
    char text[64] = "";
    SHOW(fgets(text, sizeof text, output) != NULL);
    printf("%s", text);
    SHOW(pclose(output));
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } groups[] = {{"mutexes", mutex_kinds}, {"robust", robust}, {"rwlocks", rwlocks}, {"conditions", conditions}, {"semaphores", semaphores},
                  {"lives", lives}, {"c11", c11}, {"sleeping", sleeping}, {"interrupted", interrupted_waits}, {"readiness", readiness},
                  {"transfers", transfers}, {"rarer", rarer_transfers}, {"queues", queues}, {"children", children}};
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (unsigned i = 0; i < sizeof groups / sizeof *groups; i++) {
        if (argc > 1 && strcmp(argv[1], groups[i].name) != 0) continue;
        printf("%s\n", groups[i].name);
        groups[i].run();
    }
    return 0;
}
