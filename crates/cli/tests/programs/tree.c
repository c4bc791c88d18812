/* A tree of processes as servers are: a main process, a worker with a title of its own, and the worker's helper. Worker and helper touch fresh memory
 * all the time, and 4 MiB that all of them share. The main process prints the three process ids, and takes orders, a line each: "fork" starts another
 * child and prints its id, "orphan" ends the worker, so that the helper gets another parent, "end" ends them all. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SHARED = 4 << 20, FRESH = 64 << 12 };

static char *shared;

static void touch_memory(void) {
    char *fresh = mmap(NULL, FRESH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED) exit(1);
    memset(fresh, 1, FRESH);
    for (size_t at = 0; at < SHARED; at += 4096) shared[at]++;
    munmap(fresh, FRESH);
    usleep(5000);
}

static void work(void) {
    for (;;) touch_memory();
}

int main(int argc, char **argv) {
    (void)argc;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    shared = mmap(NULL, SHARED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int ids[2];
    if (shared == MAP_FAILED || pipe(ids)) return 1;
    pid_t worker = fork();
    if (worker == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        strcpy(argv[0], "tree: worker");
        pid_t helper = fork();
        if (helper == 0) work();
        if (write(ids[1], &helper, sizeof helper) != sizeof helper) return 1;
        work();
    }
    pid_t helper;
    if (read(ids[0], &helper, sizeof helper) != sizeof helper) return 1;
    printf("%d %d %d\n", getpid(), worker, helper);
    fflush(stdout);
    char line[16];
    pid_t late = 0;
    while (fgets(line, sizeof line, stdin)) {
        if (!strncmp(line, "fork", 4)) {
            late = fork();
            if (late == 0) work();
            printf("%d\n", late);
            fflush(stdout);
        } else if (!strncmp(line, "orphan", 6)) {
            kill(worker, SIGKILL);
            waitpid(worker, NULL, 0);
        } else {
            break;
        }
        touch_memory();
    }
    kill(helper, SIGKILL);
    kill(worker, SIGKILL);
    if (late) kill(late, SIGKILL);
    return 0;
}
