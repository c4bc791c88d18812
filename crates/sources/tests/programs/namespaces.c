/* Two processes that are both the first of a namespace of process numbers of their own, at the same time, each replaced by another image.
 * Exit status 77: the system makes no such namespaces here. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCKS 200

static void allocate(void) {
    for (int i = 0; i < BLOCKS / 2; i++) free(malloc(777));
}

static int status_of(pid_t child) {
    int status;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

/* A namespace, and in it a process that becomes another program. */
static int begin(char *self) {
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) return 77;
    pid_t child = fork();
    if (child == 0) {
        usleep(200000); /* the other one is there by now */
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
    pid_t helpers[2];
    for (int i = 0; i < 2; i++)
        if ((helpers[i] = fork()) == 0) _exit(begin(arguments[0]));
    int first = status_of(helpers[0]), second = status_of(helpers[1]);
    return first != 0 ? first : second;
}
