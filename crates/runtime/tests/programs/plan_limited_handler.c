/* plan_limited_handler.c: a signal handler that asks for more memory than there is (`ulimit -v`), so that the planner looks what it can give back, while its
 * thread makes and gives back blocks that the planner places. Ends by a signal if that takes for ever: where other programs have the CPUs, each of the signals
 * comes some milliseconds after the one before. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SIGNALS = 20000 };

static volatile sig_atomic_t handled;

static void on_signal(int number) {
    (void)number;
    handled++;
    void *memory = mmap(NULL, 1ul << 45, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory != MAP_FAILED) _exit(3);
}

/* In a process of its own, so that the other one has one thread. */
static void send(pid_t to) {
    while (getppid() == to && kill(to, SIGUSR1) == 0) usleep(1);
    _exit(0);
}

int main(void) {
    alarm(600);
    signal(SIGUSR1, on_signal);
    pid_t self = getpid();
    if (fork() == 0) send(self);
    void *blocks[64] = {0};
    for (unsigned i = 0; handled < SIGNALS; i++) {
        free(blocks[i % 64]);
        blocks[i % 64] = malloc(((size_t)i * 7919 % 97 + 1) << 14);
        if (blocks[i % 64] == NULL) return 2;
    }
    return 0;
}
