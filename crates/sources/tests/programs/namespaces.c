/* Two processes that are both the first of a namespace of process numbers of their own, at the same time, each replaced by another image.
 * Exit status 77: the system makes no such namespaces here. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCKS 200

static int *there; /* how many have a namespace, or cannot get one; shared */

static void wait_for_the_other(void) {
    __atomic_add_fetch(there, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(there, __ATOMIC_SEQ_CST) < 2) usleep(1000);
}

static void allocate(void) {
    for (int i = 0; i < BLOCKS / 2; i++) free(malloc(777));
}

static int status_of(pid_t child) {
    int status;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

/* A namespace, and in it a process that becomes another program. */
static int begin(char *self) {
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) {
        wait_for_the_other();
        return 77;
    }
    pid_t child = fork();
    if (child <= 0) wait_for_the_other();
    if (child == 0) {
        execl(self, self, "inner", NULL);
        _exit(98);
    }
    return status_of(child);
}

int main(int count, char **arguments) {
    if (count == 2 && strcmp(arguments[1], "inner") == 0) {
        if (getpid() != 1) return 97;
        allocate();
        usleep(800000);
        allocate();
        return 0;
    }
    there = mmap(NULL, sizeof *there, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (there == MAP_FAILED) return 96;
    pid_t helpers[2];
    for (int i = 0; i < 2; i++)
        if ((helpers[i] = fork()) == 0) _exit(begin(arguments[0]));
    int first = status_of(helpers[0]), second = status_of(helpers[1]);
    return first != 0 ? first : second;
}
