/* forked.c: while the preload library copies a file for this program's main thread, a signal's handler forks there, as crash reporters and supervisors do.
 * Ends by SIGALRM if that takes for ever, with status 8 where the signal came too late, because the machine is busy. Arguments: the file, the folder of
 * copies. */
#define _GNU_SOURCE
#include "copying.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *folder_path;
static pthread_t main_thread;
static volatile int is_mapped, is_late, children;

static void on_signal(int number) {
    (void)number;
    if ((is_late = is_mapped)) return;
    int status = -1;
    pid_t child = fork();
    if (child == 0) _exit(7);
    if (waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7) children++;
}

static void *interrupt(void *nothing) {
    while (!is_copying(folder_path) && !is_mapped) usleep(100);
    pthread_kill(main_thread, SIGUSR1);
    return nothing;
}

int main(int count, char **arguments) {
    struct stat status;
    if (count < 3) return 3;
    folder_path = arguments[2];
    int file = open(arguments[1], O_RDONLY);
    if (file < 0 || fstat(file, &status) != 0) return 3;
    alarm(60);
    signal(SIGUSR1, on_signal);
    main_thread = pthread_self();
    pthread_t thread;
    pthread_create(&thread, NULL, interrupt, NULL);
    const unsigned char *content = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    is_mapped = 1;
    pthread_join(thread, NULL);
    if (is_late) return 8;
    if (content == MAP_FAILED || children != 1) return 4;
    for (off_t i = 0; i < status.st_size; i += 4096) {
        if (content[i] != 7) return 5;
    }
    /* The lock is free again: another mapping, and another child. */
    if (mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0) == MAP_FAILED) return 6;
    pid_t child = fork();
    if (child == 0) _exit(0);
    int ended = -1;
    if (waitpid(child, &ended, 0) != child || ended != 0) return 6;
    puts("forked");
    return 0;
}
