/* handlers.c: a program with handlers of its own for the faults that guarded mappings use. Maps FILE shared, writes to it, which collapses it, and then does
 * what its own handler, or nobody, is for.
 *
 * Usage: handlers FILE KIND. KIND `own`: a bad pointer, with a handler on an alternative stack of 8 KiB; `default`, `ignored`: a bad pointer ends the
 * process; `sent`: a signal that was sent; `bus`: a file that was cut short; `threads`: many threads write at once; `blocked`, `inherited`: it writes with all
 * signals blocked, by itself or by who started it; `masked`: in a handler that blocks all; `sigsuspend`, `ppoll`, `pselect`, `epoll_pwait`, `sigpause`,
 * `__ppoll_chk`, `epoll_pwait2`: in a handler that ends such a wait, which blocks all others; `nested`: in its handler of a bad pointer; `sigsetmask`,
 * `sigblock`, `sighold`, `setcontext`, `swapcontext`: after it blocked all by these; `attribute`: in a thread that begins with all blocked; `early`: in one
 * that a library's constructor made so (-DLIBRARY); `timer`: in a timer's; `timers`: in that of the 21st function for timers; `spawned`: the C library itself
 * writes a child's number; `read`, `pread`, `readv`, `preadv`, `recv`, `recvfrom`, `recvmsg`, `fread`: the kernel writes, by this call; `descriptors`: it has
 * opened as many files as it may;
 * `again`: its handler of a bad pointer has one itself, and is not called again; `unblocked`: unless it unblocked the signal, by `released` with sigrelse();
 * `left`: it leaves the handler by siglongjmp(), three times; `others`: a bad pointer with all signals blocked but those of faults;
 * `__sysv_signal`, `sigset`, `bsd_signal`, `ssignal`: as `own`, with a handler that came by this name. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#ifdef LIBRARY
static char *volatile given;
static pthread_t writer;

static void *write_when_given(void *nothing) {
    while (!given) usleep(1000);
    given[5] = 7;
    return nothing;
}

/* A library's threads often begin so, to leave signals to the program's. */
__attribute__((constructor)) static void start(void) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_create(&writer, NULL, write_when_given, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void early_write(char *memory) {
    given = memory;
    pthread_join(writer, NULL);
}
#else
enum { BYTES = 1 << 20, THREADS = 8, PAGE = 4096 };

/* What the headers of some C libraries lack, or give another name. */
extern int bsd_sigpause(int mask) __asm__("sigpause");
extern int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask, size_t bytes);
extern void (*by_sysv_signal(int number, void (*handler)(int)))(int) __asm__("__sysv_signal");
extern void (*by_bsd_signal(int number, void (*handler)(int)))(int) __asm__("bsd_signal");
extern int by_epoll_pwait2(int, struct epoll_event *, int, const struct timespec *, const sigset_t *) __asm__("epoll_pwait2") __attribute__((weak));
extern int by_attribute(pthread_attr_t *, const sigset_t *) __asm__("pthread_attr_setsigmask_np") __attribute__((weak));
extern void early_write(char *memory); /* of the library that the same file makes */

static char *shared;
static volatile int *volatile bad_pointer = (volatile int *)8;

static void on_signal(int number) {
    const char *text = number == SIGBUS ? "own bus handler\n" : "own handler\n";
    if (write(1, text, strlen(text)) < 0) _exit(2);
    _exit(0);
}

static void *write_all(void *argument) {
    for (long i = (long)argument; i < BYTES; i += PAGE / 2) __atomic_fetch_add(&shared[i], 1, __ATOMIC_RELAXED);
    return NULL;
}

static void write_with_threads(void) {
    pthread_t threads[THREADS];
    int wrong = 0;
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, write_all, (void *)8);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 8; i < BYTES; i += PAGE / 2) wrong += shared[i] != THREADS;
    printf("threads %s\n", wrong ? "WRONG" : "ok");
    exit(wrong != 0);
}

static void write_and_end(int number) {
    shared[5] = 7;
    on_signal(number);
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static const char *kind;
static sigjmp_buf before_fault;

static void fault_again(int number) {
    static int calls;
    sigset_t one;
    if (write(1, "again\n", 6) != 6 || (calls++ > 0 && strcmp(kind, "again"))) on_signal(number);
    sigemptyset(&one);
    sigaddset(&one, SIGSEGV);
    if (!strcmp(kind, "unblocked")) sigprocmask(SIG_UNBLOCK, &one, NULL);
    if (!strcmp(kind, "released")) sigrelse(SIGSEGV);
    *bad_pointer = 1;
}

static void jump_out(int number) { siglongjmp(before_fault, number); }

static void leave_handlers(void) {
    for (volatile int i = 0; i < 3; i++) {
        if (sigsetjmp(before_fault, 1) == 0) *bad_pointer = 1;
        if (write(1, "left\n", 5) != 5) exit(3);
    }
    exit(0);
}

static void block_others(void) {
    sigset_t others;
    sigfillset(&others);
    sigdelset(&others, SIGSEGV);
    sigdelset(&others, SIGBUS);
    sigprocmask(SIG_SETMASK, &others, NULL);
}

static void write_in_handler(int number) { shared[5] = (char)(number - SIGUSR1 + 7); }

static void block_all(char **argv) {
    sigset_t all;
    sigfillset(&all);
    if (!strcmp(argv[2], "blocked")) pthread_sigmask(SIG_SETMASK, &all, NULL);
    if (strcmp(argv[2], "inherited") != 0) return;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, 8); /* as a starter that the library is not in */
    execl("/proc/self/exe", argv[0], argv[1], "started", (char *)NULL);
}

/* The signal is there before the wait, which lets it in. 0: it is no such kind. */
static int write_while_waiting(void) {
    struct epoll_event event;
    sigset_t one, others, before;
    if (!strstr("sigsuspend ppoll pselect epoll_pwait sigpause __ppoll_chk epoll_pwait2", kind)) return 0;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    sigfillset(&others);
    sigdelset(&others, SIGUSR1);
    sigprocmask(SIG_BLOCK, &one, &before);
    raise(SIGUSR1);
    if (!strcmp(kind, "sigsuspend")) sigsuspend(&others);
    if (!strcmp(kind, "ppoll")) ppoll(NULL, 0, NULL, &others);
    if (!strcmp(kind, "pselect")) pselect(0, NULL, NULL, NULL, NULL, &others);
    if (!strcmp(kind, "epoll_pwait")) epoll_pwait(epoll_create1(0), &event, 1, -1, &others);
    if (!strcmp(kind, "sigpause")) bsd_sigpause(~(1 << (SIGUSR1 - 1)));
    if (!strcmp(kind, "__ppoll_chk")) __ppoll_chk(NULL, 0, NULL, &others, 0);
    if (!strcmp(kind, "epoll_pwait2") && by_epoll_pwait2) by_epoll_pwait2(epoll_create1(0), &event, 1, NULL, &others);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return 1;
}

static void *write_here(void *nothing) {
    shared[5] = 7;
    return nothing;
}

static void write_in_thread(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    if (by_attribute) by_attribute(&attributes, &all);
    if (pthread_create(&thread, &attributes, write_here, NULL) == 0) pthread_join(thread, NULL);
}

/* The context that was left is entered twice: what a function before the C library's had on the stack would be gone at the second time. */
static void write_in_context(int is_swapped) {
    ucontext_t here, left;
    volatile int entered = 0;
    getcontext(&here);
    if (entered++ == 0) {
        sigfillset(&here.uc_sigmask);
        if (is_swapped) swapcontext(&left, &here);
        setcontext(&here);
    }
    shared[5] = 7;
    if (is_swapped && entered++ < 6) {
        sigfillset(&left.uc_sigmask);
        setcontext(&left);
    }
}

static sem_t timed;

static void write_in_time(union sigval value) {
    shared[5] = (char)value.sival_int;
    sem_post(&timed);
}

static void write_by_timer(void) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = write_in_time, .sigev_value.sival_int = 7};
    struct itimerspec soon = {.it_value.tv_nsec = 1000000};
    timer_t timer;
    sem_init(&timed, 0, 0);
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 || timer_settime(timer, 0, &soon, NULL) != 0) exit(3);
    sem_wait(&timed);
}

/* These are never called: their timers are not set. */
#define NEVER(at) static void never_##at(union sigval value) { shared[at] = (char)value.sival_int; }
#define FOUR(DO, row) DO(row##1) DO(row##2) DO(row##3) DO(row##4)
#define TWENTY(DO) FOUR(DO, 1) FOUR(DO, 2) FOUR(DO, 3) FOUR(DO, 4) FOUR(DO, 5)
#define NAME(at) never_##at,
TWENTY(NEVER)

static void write_by_last_timer(void) {
    void (*const never[])(union sigval) = {TWENTY(NAME)};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
        struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = never[i]};
        timer_t timer;
        if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) exit(3);
    }
    write_by_timer();
}

/* From a file and a socket that hold sevens. 0: it is no such kind. */
static int have_it_written(void) {
    enum { MANY = 65536 };
    static char sevens[MANY];
    struct iovec parts[2] = {{shared + 4, 1}, {shared + 5, 1}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    if (!strstr("read pread readv preadv recv recvfrom recvmsg fread", kind)) return 0;
    int file = memfd_create("sevens", 0), sockets[2];
    memset(sevens, 7, MANY);
    if (write(file, sevens, MANY) != MANY || lseek(file, 0, SEEK_SET) != 0) exit(3);
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets) != 0 || send(sockets[1], sevens, 2, 0) != 2) exit(3);
    ssize_t got = 0;
    if (!strcmp(kind, "read")) got = read(file, shared + 5, 1);
    if (!strcmp(kind, "pread")) got = pread(file, shared + 5, 1, 1);
    if (!strcmp(kind, "readv")) got = readv(file, parts, 2);
    if (!strcmp(kind, "preadv")) got = preadv(file, parts, 2, 1);
    if (!strcmp(kind, "recv")) got = recv(sockets[0], shared + 5, 1, 0);
    if (!strcmp(kind, "recvfrom")) got = recvfrom(sockets[0], shared + 5, 1, 0, NULL, NULL);
    if (!strcmp(kind, "recvmsg")) got = recvmsg(sockets[0], &message, 0);
    if (!strcmp(kind, "fread")) got = (ssize_t)fread(shared, 1, MANY, fdopen(file, "r"));
    printf("got %zd\n", got);
    return 1;
}

/* 0: it is no such kind. */
static int write_without_descriptors(void) {
    struct rlimit limit;
    if (strcmp(kind, "descriptors") || getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
    limit.rlim_cur = 64;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) exit(3);
    while (dup(1) >= 0) {}
    shared[5] = 7;
    getrlimit(RLIMIT_NOFILE, &limit);
    printf("limit %lu\n", (unsigned long)limit.rlim_cur);
    return 1;
}

static void spawn_into_memory(void) {
    pid_t *number = (pid_t *)(shared + PAGE);
    char *const arguments[] = {"true", NULL}, *const environment[] = {NULL};
    if (posix_spawnp(number, "true", NULL, NULL, arguments, environment) != 0 || waitpid(*number, NULL, 0) != *number) exit(3);
    shared[5] = 7;
}

/* Writes with all signals blocked. 0: it is no such kind. */
static int write_blocked(void) {
    if (!strcmp(kind, "attribute")) return write_in_thread(), 1;
    if (!strcmp(kind, "timer")) return write_by_timer(), 1;
    if (!strcmp(kind, "timers")) return write_by_last_timer(), 1;
    if (!strcmp(kind, "early")) return early_write(shared), 1;
    if (!strcmp(kind, "spawned")) return spawn_into_memory(), 1;
    if (!strcmp(kind, "setcontext") || !strcmp(kind, "swapcontext")) return write_in_context(!strcmp(kind, "swapcontext")), 1;
    if (!strcmp(kind, "sigsetmask")) sigsetmask(-1);
    else if (!strcmp(kind, "sigblock")) sigblock(-1);
    else if (!strcmp(kind, "sighold")) sighold(SIGSEGV);
    else return 0;
    shared[5] = 7;
    return 1;
}

static void handle_faults(void) {
    size_t room = strcmp(kind, "own") ? 65536 : 8192; /* of more than one fault */
    stack_t stack = {.ss_sp = malloc(room), .ss_size = room};
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    if (!strcmp(kind, "default")) action.sa_handler = SIG_DFL;
    if (!strcmp(kind, "ignored")) action.sa_handler = SIG_IGN;
    if (!strcmp(kind, "nested")) action.sa_handler = write_and_end;
    if (strstr("again unblocked released", kind)) action.sa_handler = fault_again;
    if (!strcmp(kind, "left")) action.sa_handler = jump_out;
    if (!strcmp(kind, "__sysv_signal")) by_sysv_signal(SIGSEGV, on_signal);
    else if (!strcmp(kind, "sigset")) sigset(SIGSEGV, on_signal);
    else if (!strcmp(kind, "bsd_signal")) by_bsd_signal(SIGSEGV, on_signal);
    else if (!strcmp(kind, "ssignal")) ssignal(SIGSEGV, on_signal);
    else sigaction(SIGSEGV, &action, NULL);
    signal(SIGBUS, on_signal);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    kind = argv[2];
    block_all(argv);
    int file = open(argv[1], O_RDWR);
    shared = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared == MAP_FAILED) return 2;
    if (!strcmp(kind, "threads")) write_with_threads();
    handle_faults();
    struct sigaction masked = {.sa_handler = write_in_handler};
    sigfillset(&masked.sa_mask);
    if (sigaction(SIGUSR1, &masked, NULL) != 0) return 2;
    int has_written = write_while_waiting() || write_blocked() || have_it_written() || write_without_descriptors();
    if (!strcmp(kind, "nested")) *bad_pointer = 1;
    if (!strcmp(kind, "masked")) raise(SIGUSR1);
    else if (!has_written) shared[5] = 7;
    printf("written %d\n", shared[5]);
    fflush(stdout);
    if (has_written || !strcmp(kind, "blocked") || !strcmp(kind, "started") || !strcmp(kind, "masked")) return 0;
    if (!strcmp(kind, "sent")) raise(SIGSEGV);
    if (!strcmp(kind, "bus") && ftruncate(file, 0) == 0) return shared[PAGE];
    if (!strcmp(kind, "left")) leave_handlers();
    if (!strcmp(kind, "others")) block_others();
    *bad_pointer = 1;
    return 1;
}
#endif
