/* uneasy.c: a program in an uneasy state maps a file, and reads it.
 *
 * Usage: uneasy FILE KIND. KIND `limited`: its files may have 64 KiB at most, and a signal ends it at more; `cancelled`: the thread that maps has been
 * cancelled, which ends it where it next waits, and not in a call that does not; `closed`: its standard output is closed, and a thread writes to it all the
 * while. Prints the sum of the file's bytes, and whether it is a copy that is mapped ("copy 1"). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *path;
static size_t bytes;
static const unsigned char *_Atomic mapped;
static _Atomic int is_over;

static const unsigned char *map(void) {
    struct stat status;
    int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &status) != 0) exit(2);
    bytes = (size_t)status.st_size;
    void *start = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (start == MAP_FAILED) exit(2);
    return start;
}

static int is_copy(const unsigned char *start) {
    char line[4096], head[32];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    snprintf(head, sizeof head, "%lx-", (unsigned long)start);
    while (maps && fgets(line, sizeof line, maps)) found |= !strncmp(line, head, strlen(head)) && strstr(line, ".node") != NULL;
    if (maps) fclose(maps);
    return found;
}

static void *map_when_cancelled(void *nothing) {
    pthread_cancel(pthread_self());
    int before, file = -1;
    struct stat status;
    /* Opening the file would be the end. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &status) != 0) exit(2);
    bytes = (size_t)status.st_size;
    pthread_setcancelstate(before, &before);
    mapped = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    pthread_testcancel();
    return nothing;
}

static void *write_to_nowhere(void *nothing) {
    while (!is_over) {
        if (write(STDOUT_FILENO, "WRONG", 5) > 0) continue;
    }
    return nothing;
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    path = arguments[1];
    pthread_t thread;
    int out = fcntl(STDOUT_FILENO, F_DUPFD, 100);
    if (!strcmp(arguments[2], "limited")) {
        struct rlimit limit = {65536, 65536};
        setrlimit(RLIMIT_FSIZE, &limit);
        mapped = map();
    } else if (!strcmp(arguments[2], "cancelled")) {
        void *result = NULL;
        pthread_create(&thread, NULL, map_when_cancelled, NULL);
        pthread_join(thread, &result);
        if (result != PTHREAD_CANCELED || mapped == NULL) return 3;
        alarm(60); /* nobody holds a lock that this needs */
        munmap((void *)(unsigned long)mapped, bytes);
        mapped = map();
    } else {
        close(STDOUT_FILENO);
        pthread_create(&thread, NULL, write_to_nowhere, NULL);
        int kept = open("/dev/null", O_RDONLY), file = open(path, O_RDONLY);
        struct stat status;
        /* What the program opens itself has other numbers. */
        if (kept != STDOUT_FILENO || file < 0 || fstat(file, &status) != 0 || close(kept) != 0) return 2;
        bytes = (size_t)status.st_size;
        mapped = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0);
        is_over = 1;
        pthread_join(thread, NULL);
    }
    unsigned long sum = 0;
    for (size_t i = 0; i < bytes; i++) sum = sum * 31 + mapped[i];
    dprintf(out, "sum %lx copy %d\n", sum, is_copy(mapped));
    return 0;
}
