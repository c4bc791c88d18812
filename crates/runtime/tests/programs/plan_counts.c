/* plan_counts.c: blocks of 1,000 bytes in a process that ends, or becomes another program, in every way. Argument: which. Prints how many blocks it made, with
 * its children. */
#define _GNU_SOURCE
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 10 }; /* fewer than the planner takes at once */

static char *own_path;
static volatile int is_ready;

static void make(void) {
    for (int i = 0; i < BLOCKS; i++)
        if (malloc(1000) == NULL) abort();
}

static void say(int count) {
    char text[16];
    if (write(1, text, (size_t)snprintf(text, sizeof text, "%d\n", count * BLOCKS)) < 0) abort();
}

static void become_leaf(void) { execl(own_path, own_path, "leaf", NULL); }

static void await(pid_t child) {
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) abort();
}

/* As servers do that make the environment of the programs which they start. */
static void become_bare_leaf(void) {
    char *empty[] = {NULL};
    execle(own_path, own_path, "leaf", NULL, empty);
}

static void spawn_bare_leaf(void) {
    char *line[] = {own_path, "leaf", NULL};
    pid_t child = 0;
    if (clearenv() != 0 || posix_spawn(&child, own_path, NULL, NULL, line, environ) != 0) abort();
    await(child);
}

static void *waits(void *unused) {
    (void)unused;
    make();
    __atomic_store_n(&is_ready, 1, __ATOMIC_RELEASE);
    for (;;) pause();
    return NULL;
}

static void on_vfork(int becomes) {
    pid_t child = vfork();
    if (child == 0) {
        if (becomes) execl(own_path, own_path, "leaf", NULL);
        else execl("/nonexistent", "/nonexistent", NULL);
        _exit(becomes);
    }
    await(child);
}

int main(int count, char **arguments) {
    const char *name = count == 2 ? arguments[1] : "";
    own_path = arguments[0];
    make();
    if (strcmp(name, "leaf") == 0) _exit(0);
    if (strcmp(name, "_exit") == 0) say(1), _exit(0);
    if (strcmp(name, "quick") == 0) say(1), quick_exit(0);
    if (strcmp(name, "exec") == 0) say(2), become_leaf();
    if (strcmp(name, "bare") == 0) say(2), become_bare_leaf();
    if (strcmp(name, "bare spawned") == 0) spawn_bare_leaf(), say(2), exit(0);
    if (strcmp(name, "failed") == 0) execl("/nonexistent", "/nonexistent", NULL), make(), say(2), exit(0);
    if (strcmp(name, "vfork") == 0) on_vfork(0), make(), say(2), exit(0);
    if (strcmp(name, "spawned") == 0) on_vfork(1), make(), say(3), exit(0);
    if (strcmp(name, "fork") == 0) {
        pid_t child = fork();
        if (child == 0) make(), _exit(0);
        await(child);
        say(2);
        return 0;
    }
    if (strcmp(name, "raw") == 0) { /* without the C library's handlers: its own blocks may be missing, but its parent's must not count twice */
        pid_t child = (pid_t)syscall(SYS_fork);
        if (child == 0) exit(0);
        await(child);
        say(1);
        return 0;
    }
    if (strcmp(name, "threads") == 0) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, waits, NULL) != 0) return 2;
        while (!__atomic_load_n(&is_ready, __ATOMIC_ACQUIRE)) {}
        say(3);
        become_leaf();
    }
    return 3;
}
