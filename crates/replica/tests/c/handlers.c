/* handlers.c: a program with handlers of its own for the faults that guarded mappings use. Maps FILE shared, writes to it, which collapses it, and then does
 * what its own handler, or nobody, is for.
 *
 * Usage: handlers FILE KIND. KIND `own`: a bad pointer, with a handler on an alternative stack of 8 KiB; `default`, `ignored`: a bad pointer ends the
 * process; `sent`: a signal that was sent; `bus`: a file that was cut short; `threads`: many threads write at once; `blocked`, `inherited`: it writes with all
 * signals blocked, by itself or by who started it; `masked`: in a handler that blocks all; `sigsuspend`, `ppoll`, `pselect`, `epoll_pwait`: in a handler that
 * ends such a wait, which blocks all others. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BYTES = 1 << 20, THREADS = 8, PAGE = 4096 };

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
static int write_while_waiting(const char *kind) {
    struct epoll_event event;
    sigset_t one, others, before;
    if (!strstr("sigsuspend ppoll pselect epoll_pwait", kind)) return 0;
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
    sigprocmask(SIG_SETMASK, &before, NULL);
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    const char *kind = argv[2];
    block_all(argv);
    int file = open(argv[1], O_RDWR);
    shared = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared == MAP_FAILED) return 2;
    if (!strcmp(kind, "threads")) write_with_threads();
    stack_t stack = {.ss_sp = malloc(8192), .ss_size = 8192};
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    if (!strcmp(kind, "default")) action.sa_handler = SIG_DFL;
    if (!strcmp(kind, "ignored")) action.sa_handler = SIG_IGN;
    sigaction(SIGSEGV, &action, NULL);
    signal(SIGBUS, on_signal);
    struct sigaction masked = {.sa_handler = write_in_handler};
    sigfillset(&masked.sa_mask);
    if (sigaction(SIGUSR1, &masked, NULL) != 0) return 2;
    int has_waited = write_while_waiting(kind);
    if (!strcmp(kind, "masked")) raise(SIGUSR1);
    else if (!has_waited) shared[5] = 7;
    printf("written %d\n", shared[5]);
    fflush(stdout);
    if (has_waited || !strcmp(kind, "blocked") || !strcmp(kind, "started") || !strcmp(kind, "masked")) return 0;
    if (!strcmp(kind, "sent")) raise(SIGSEGV);
    if (!strcmp(kind, "bus") && ftruncate(file, 0) == 0) return shared[PAGE];
    *bad_pointer = 1;
    return 1;
}
