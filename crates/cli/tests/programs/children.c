/* Children of every making: each uses the allocator before it goes, where its memory is its own, and its parent goes on using it at once. Exits with 0. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char *quick[] = {"/bin/true", NULL};
static char *volatile block[64];

/* Blocks of one size come and go at the same addresses: a life that was missed is overlapped by the next. */
static void churn(void) {
    for (int i = 0; i < 64; i++) free(block[i]), block[i] = malloc(40);
}

static void ended(pid_t child, int status_wanted) {
    int status = -1;
    if (child <= 0 || waitpid(child, &status, 0) != child || status != status_wanted) {
        fprintf(stderr, "child %d: status %d, not %d: %s\n", (int)child, status, status_wanted, strerror(errno));
        exit(1);
    }
    churn();
}

/* -- the parent allocates while its child has not yet run any handler of a fork that was registered later -- */

static int gate[2] = {-1, -1};

static void wait_for_parent(void) {
    char byte;
    if (gate[0] >= 0) (void)!read(gate[0], &byte, 1);
}

static void early(void) {
    pthread_atfork(NULL, NULL, wait_for_parent);
}
__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = early;

static pid_t late_child(void) {
    if (pipe(gate) != 0) exit(2);
    pid_t child = fork();
    if (child == 0) {
        churn();
        _exit(3);
    }
    char *mine[64];
    for (int i = 0; i < 64; i++) mine[i] = malloc(40);
    (void)!write(gate[1], "", 1);
    for (int i = 0; i < 64; i++) free(mine[i]);
    close(gate[0]), close(gate[1]);
    gate[0] = gate[1] = -1;
    return child;
}

/* -- children that run in their parent's memory, or in a copy of it where the system has nothing else -- */

static pid_t by_vfork(int how) {
    pid_t child = vfork();
    if (child == 0) {
        churn();
        if (how == 0) execve(quick[0], quick, environ);
        if (how == 1) execv("/does/not/exist", quick);
        if (how == 2) kill(getpid(), SIGKILL);
        _exit(5);
    }
    return child;
}

static int execs(void *how) {
    churn();
    if (how != NULL) raise(SIGKILL);
    execve(quick[0], quick, environ);
    _exit(5);
}

static char stack[1 << 18] __attribute__((aligned(64)));

static pid_t by_clone(int flags, void *how) {
    return clone(execs, stack + sizeof stack, flags | SIGCHLD, how);
}

int main(void) {
    churn();
    for (int i = 0; i < 3; i++) {
        ended(late_child(), 3 << 8);
        ended(by_vfork(0), 0);
        ended(by_vfork(1), 5 << 8);
        ended(by_vfork(2), SIGKILL);
        ended(by_clone(CLONE_VM | CLONE_VFORK, NULL), 0);
        ended(by_clone(0, NULL), 0);
        pid_t child = (pid_t)syscall(SYS_fork);
        if (child == 0) {
            churn();
            _exit(6);
        }
        ended(child, 6 << 8);
        if (posix_spawn(&child, quick[0], NULL, NULL, quick, environ) != 0) return 4;
        ended(child, 0);
        /* An emulator may refuse memory shared by processes. */
        child = by_clone(CLONE_VM, NULL);
        if (child > 0) ended(child, 0);
        child = by_clone(CLONE_VM, stack);
        if (child > 0) ended(child, SIGKILL);
    }
    for (int i = 0; i < 64; i++) free(block[i]);
    return 0;
}
