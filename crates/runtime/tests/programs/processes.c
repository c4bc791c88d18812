/* A tree of processes: fork in fork, raw fork, vfork and exec, by name and by number, posix_spawn and exec with environments of the program's own making. */
#define _GNU_SOURCE
#include "truth.h"
#include <signal.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void join(pid_t child) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

static void leaf(void) {
    for (int i = 0; i < 100; i++) free(malloc(50));
}

static void *busy(void *stop) {
    while (!__atomic_load_n((int *)stop, __ATOMIC_ACQUIRE)) free(malloc(100)), usleep(20);
    return NULL;
}

static void forks(void) {
    void *inherited = malloc(4321);
    pid_t child = fork();
    if (child == 0) {
        free(inherited);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            leaf();
            exit(7);
        }
        join(grandchild);
        _exit(7);
    }
    join(child);
    free(inherited);
#ifdef SYS_fork
    child = (pid_t)syscall(SYS_fork);
#else
    child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
#endif
    if (child == 0) {
        leaf();
        _exit(7);
    }
    join(child);
}

int main(int count, char **arguments) {
    if (count == 2 && strcmp(arguments[1], "leaf") == 0) {
        leaf();
        return 7;
    }
    int stop = 0;
    pthread_t id;
    pthread_create(&id, NULL, busy, &stop);
    for (int i = 0; i < 10; i++) forks();
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    pthread_join(id, NULL);
    char *line[] = {arguments[0], "leaf", NULL}, *empty[] = {NULL};
    pid_t child = vfork();
    if (child == 0) {
        execve(arguments[0], line, empty);
        _exit(1);
    }
    join(child);
    for (int by_folder = 0; by_folder < 2; by_folder++) {
        child = vfork();
        if (child == 0) {
            if (by_folder) syscall(SYS_execveat, AT_FDCWD, arguments[0], line, empty, 0);
            else syscall(SYS_execve, arguments[0], line, empty);
            _exit(1);
        }
        join(child);
    }
    CHECK(posix_spawn(&child, arguments[0], NULL, NULL, line, empty) == 0);
    join(child);
    child = fork();
    if (child == 0) execle(arguments[0], arguments[0], "leaf", NULL, empty), _exit(1);
    join(child);
    /* A failed exec changes nothing. */
    CHECK(execl("/does/not/exist", "x", NULL) == -1);
    leaf();
    execv(arguments[0], line);
    return 1;
}
