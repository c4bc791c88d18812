/* timeouts.c: waits with a time-out, for a thread that takes fifty times as long in host time as in its own, as emulated ones do. Prints how much
 * program time each took. */
#define _GNU_SOURCE
#include "sys.h"
#include "wire.h"
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
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 20, ROUND_CYCLES = 25000, TIMEOUT_NS = 4000000 };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t begun;
static sem_t items;
static _Atomic int word;
static int done, pipes[2];
static const char *way;

static int is(const char *name) { return strcmp(way, name) == 0; }

static struct timespec in_ns(clockid_t clock, long ns) {
    struct timespec then;
    clock_gettime(clock, &then);
    then.tv_nsec += ns;
    then.tv_sec += then.tv_nsec / 1000000000;
    then.tv_nsec %= 1000000000;
    return then;
}

/* Half a millisecond on a host's CPU. */
static void spin(void) {
    struct timespec begin, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while ((now.tv_sec - begin.tv_sec) * 1000000000L + now.tv_nsec - begin.tv_nsec < 500000);
}

static void *slow(void *argument) {
    if (is("mutex")) pthread_mutex_lock(&mutex);
    if (is("rwlock")) pthread_rwlock_wrlock(&rwlock);
    pthread_barrier_wait(&begun);
    for (int i = 0; i < ROUNDS; i++) {
        spin();
        if (numapilot_work) numapilot_work(ROUND_CYCLES);
    }
    if (is("mutex")) pthread_mutex_unlock(&mutex);
    if (is("rwlock")) pthread_rwlock_unlock(&rwlock);
    if (is("semaphore")) sem_post(&items);
    word = 1;
    if (is("futex")) syscall(SYS_futex, &word, FUTEX_WAKE, 1, NULL, NULL, 0);
    if (is("poll") && write(pipes[1], "", 1) != 1) abort();
    if (!is("condition")) return argument;
    pthread_mutex_lock(&mutex);
    done = 1;
    pthread_cond_signal(&condition);
    pthread_mutex_unlock(&mutex);
    return argument;
}

/* A wait that ended well leaves errno alone, whatever its earlier parts did. */
static int kept(int is_over) {
    if (is_over && errno != 0) abort();
    return is_over;
}

/* 1: the wait is over; 0: it timed out. */
static int waited(pthread_t thread) {
    struct timespec until = in_ns(CLOCK_REALTIME, TIMEOUT_NS), part = {0, TIMEOUT_NS};
    struct pollfd fd = {pipes[0], POLLIN, 0};
    char byte;
    errno = 0;
    if (is("mutex")) return pthread_mutex_timedlock(&mutex, &until) == 0;
    if (is("rwlock")) return pthread_rwlock_timedrdlock(&rwlock, &until) == 0;
    if (is("semaphore")) return kept(sem_timedwait(&items, &until) == 0);
    if (is("join")) return pthread_timedjoin_np(thread, NULL, &until) == 0;
    if (is("futex")) return kept(syscall(SYS_futex, &word, FUTEX_WAIT, 0, &part, NULL, 0) == 0) || errno == EAGAIN;
    if (is("poll")) return poll(&fd, 1, TIMEOUT_NS / 1000000) == 1 && read(pipes[0], &byte, 1) == 1;
    pthread_mutex_lock(&mutex);
    if (!done) pthread_cond_timedwait(&condition, &mutex, &until);
    int over = done;
    pthread_mutex_unlock(&mutex);
    return over;
}

/* Sleeps in a read, or ends: it ends no wait of others. */
static void *idle(void *argument) {
    char byte;
    if (read(pipes[0], &byte, 1) != 1) abort();
    return argument;
}

/* Gets past the end of others' waits, but only when that has long passed in host time. */
static void *passing(void *argument) {
    for (int i = 0; i < ROUNDS; i++) {
        spin();
        if (numapilot_work) numapilot_work(i + 1 < ROUNDS ? ROUND_CYCLES : 10 * TIMEOUT_NS);
    }
    return argument;
}

/* Goes on for longer than such a wait is made to last. */
static void *endless(void *argument) {
    for (int i = 0; i < 4 * ROUNDS; i++) {
        spin();
        if (numapilot_work) numapilot_work(ROUND_CYCLES / 25);
    }
    return argument;
}

/* How many waits were counted that ended too early in program time. */
static uint64_t counted(void) {
    const char *path = getenv("NUMAPILOT_ARENA");
    uint64_t count = 0;
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0 || pread(fd, &count, sizeof count, offsetof(struct np_arena, early_timeouts)) != sizeof count) return UINT64_MAX;
    close(fd);
    return count;
}

/* A wait that nobody ends: what it took. */
static uint64_t nobody(void *(*other)(void *), long timeout_ns) {
    pthread_t thread;
    pthread_create(&thread, NULL, other, NULL);
    uint64_t begin = clock_now();
    struct timespec until = in_ns(CLOCK_REALTIME, timeout_ns);
    pthread_mutex_lock(&mutex);
    if (pthread_cond_timedwait(&condition, &mutex, &until) != ETIMEDOUT) abort();
    uint64_t elapsed = clock_now() - begin;
    pthread_mutex_unlock(&mutex);
    if (other == idle && write(pipes[1], "", 1) != 1) abort();
    pthread_join(thread, NULL);
    return elapsed;
}

extern int __poll_chk(struct pollfd *fds, nfds_t count, int milliseconds, size_t room); /* poll, where it is checked (_FORTIFY_SOURCE) */
extern int by_epoll_pwait2(int, struct epoll_event *, int, const struct timespec *, const sigset_t *) __asm__("epoll_pwait2") __attribute__((weak));

/* Rarer waits that nobody ends: what each took. The system may lack queues, and the C library epoll_pwait2. */
static void rarer(void) {
    struct timespec part = {0, TIMEOUT_NS}, until;
    struct pollfd fd = {pipes[0], POLLIN, 0};
    struct epoll_event event = {.events = EPOLLIN};
    struct sembuf down = {0, -1, 0};
    struct mq_attr room = {.mq_maxmsg = 1, .mq_msgsize = 8};
    struct aiocb incoming = {.aio_fildes = pipes[0], .aio_nbytes = 1};
    const struct aiocb *list[] = {&incoming};
    char name[32], text[8];
    int epoll = epoll_create1(0), id = semget(IPC_PRIVATE, 1, 0600);
    snprintf(name, sizeof name, "/timeouts-%d", (int)getpid());
    mqd_t queue = mq_open(name, O_RDWR | O_CREAT, 0600, &room);
    mq_unlink(name);
    uint64_t begin = clock_now();
    if (__poll_chk(&fd, 1, TIMEOUT_NS / 1000000, sizeof fd) != 0) abort();
    printf("checked %lu ", clock_now() - begin);
    begin = clock_now();
    if (by_epoll_pwait2 ? by_epoll_pwait2(epoll, &event, 1, &part, NULL) : epoll_wait(epoll, &event, 1, TIMEOUT_NS / 1000000)) abort();
    printf("fine %lu ", clock_now() - begin);
    begin = clock_now();
    if (id >= 0 ? semtimedop(id, &down, 1, &part) != -1 || errno != EAGAIN : nanosleep(&part, NULL) != 0) abort();
    if (id >= 0) semctl(id, 0, IPC_RMID);
    printf("semaphores %lu ", clock_now() - begin);
    begin = clock_now();
    until = in_ns(CLOCK_REALTIME, TIMEOUT_NS);
    if (queue >= 0 ? mq_timedreceive(queue, text, sizeof text, NULL, &until) != -1 || errno != ETIMEDOUT : nanosleep(&part, NULL) != 0) abort();
    printf("queue %lu ", clock_now() - begin);
    incoming.aio_buf = text;
    if (aio_read(&incoming) != 0) abort();
    begin = clock_now();
    if (aio_suspend(list, 1, &part) != -1 || errno != EAGAIN) abort();
    printf("suspended %lu ", clock_now() - begin);
    if (write(pipes[1], "", 1) != 1 || aio_suspend(list, 1, NULL) != 0) abort();
}

/* A wait that a slow thread ends. */
static uint64_t somebody(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, slow, NULL);
    pthread_barrier_wait(&begun);
    uint64_t begin = clock_now();
    while (!waited(thread)) continue;
    uint64_t elapsed = clock_now() - begin;
    if (!is("join")) pthread_join(thread, NULL);
    if (is("mutex")) pthread_mutex_unlock(&mutex);
    if (is("rwlock")) pthread_rwlock_unlock(&rwlock);
    word = 0;
    return elapsed;
}

/* ---- signals that come between two parts of a wait, where the runtime reads the clock ---- */

static _Thread_local volatile int is_signalled, is_cancelled;
static _Atomic int stop;
static int quiet[2];
static void nothing(int number) { (void)number; }

static int is_blocked(void) {
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    return sigismember(&mask, SIGUSR1);
}

/* The runtime's, too. The signal's handler has run when this returns, unless the signal is blocked, as it is between two parts. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    long result = np_sys(SYS_clock_gettime, clock, (long)now, 0, 0, 0, 0);
    if (is_signalled) raise(SIGUSR1);
    if (is_cancelled && is_blocked()) pthread_cancel(pthread_self());
    if (result < 0) errno = (int)-result;
    return result < 0 ? -1 : 0;
}

static void *behind(void *argument) {
    while (!stop) {
        spin();
        if (numapilot_work) numapilot_work(1);
    }
    return argument;
}

static void clean(void *was_blocked) {
    is_cancelled = 0;
    sched_yield();
    *(int *)was_blocked = is_blocked();
}

static void *cancelled(void *was_blocked) {
    struct pollfd fd = {quiet[0], POLLIN, 0};
    pthread_cleanup_push(clean, was_blocked);
    is_cancelled = 1;
    poll(&fd, 1, 1);
    pthread_cleanup_pop(0);
    return NULL;
}

/* 1: a thread that is cancelled there cleans up with its own mask. */
static int cleaned(void) {
    pthread_t threads[2];
    int was_blocked = 2;
    stop = 0;
    pthread_create(&threads[0], NULL, behind, NULL);
    pthread_create(&threads[1], NULL, cancelled, &was_blocked);
    pthread_join(threads[1], NULL);
    stop = 1;
    pthread_join(threads[0], NULL);
    return was_blocked == 0;
}

/* 1: the signal has ended the wait, which nobody else ends, and the program's mask is what it was. */
static int interrupted(int kind) {
    pthread_t thread;
    int epoll = epoll_create1(0);
    struct timespec part = {0, 1000000};
    struct epoll_event event = {.events = EPOLLIN};
    sigset_t mask, after;
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, quiet[0], &event) != 0) abort();
    struct pollfd fd = {quiet[0], POLLIN, 0};
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    stop = 0;
    pthread_create(&thread, NULL, behind, NULL);
    is_signalled = 1;
    int result = kind == 0 ? poll(&fd, 1, 1) : kind == 1 ? ppoll(&fd, 1, &part, &mask)
               : kind == 2 ? epoll_wait(epoll, &event, 1, 1) : epoll_pwait(epoll, &event, 1, 1, NULL);
    int is_right = result == -1 && errno == EINTR;
    is_signalled = 0;
    stop = 1;
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    for (int number = 1; number < NSIG; number++) is_right &= sigismember(&mask, number) == sigismember(&after, number);
    pthread_join(thread, NULL);
    close(epoll);
    return is_right;
}

int main(void) {
    const char *const ways[] = {"condition", "semaphore", "mutex", "rwlock", "futex", "poll", "join"};
    pthread_barrier_init(&begun, NULL, 2);
    sem_init(&items, 0, 0);
    if (pipe(pipes) != 0 || pipe(quiet) != 0 || signal(SIGUSR1, nothing) == SIG_ERR) return 1;
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        way = ways[i];
        printf("%s %lu ", way, somebody());
    }
    printf("idle %lu passing %lu ", nobody(idle, TIMEOUT_NS), nobody(passing, TIMEOUT_NS));
    uint64_t before = counted(), early = nobody(endless, TIMEOUT_NS / 20);
    printf("early %lu counted %lu ", early, counted() - before);
    rarer();
    printf("interrupted %d cleaned %d\n", interrupted(0) + interrupted(1) + interrupted(2) + interrupted(3), cleaned());
    return 0;
}
