/* A timer's signals come into the middle of everything, and their handler allocates: wrong by the standard, done all the same.
 * (The C library's own allocator cannot stand it, so the program brings one that can, behind ours.) */
#define _GNU_SOURCE
#include "truth.h"
#include <signal.h>
#include <sys/time.h>

static volatile int handled;
static void *(*volatile make)(size_t) = malloc;

static void on_signal(int number) {
    (void)number;
    void *block = make(64);
    free(block);
    handled++;
}

int main(int count, char **arguments) {
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    if (count == 2 && strcmp(arguments[1], "alternate") == 0) {
        static char alternate[65536];
        stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
        CHECK(sigaltstack(&stack, NULL) == 0);
        action.sa_flags = SA_ONSTACK;
    }
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval often = {{0, 200}, {0, 200}};
    setitimer(ITIMER_REAL, &often, NULL);
    int rounds = 0;
    for (; handled < 500; rounds++) {
        void *block = make(100 + (size_t)(rounds % 100));
        free(block);
        if (rounds % 100 == 0) usleep(1);
    }
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
    truth("rounds %d", rounds);
    truth("handled %d", (int)handled);
    truth_write();
    return 0;
}
