/* taken.c: while the preload library copies a file that this program maps, another of its threads puts something else in the file's place. What it put
 * there must stay. Arguments: the file, the folder of copies, and `unseen` where no hook sees it, as what dlclose() and malloc() do by themselves. Ends
 * with status 8 where the other thread came too late, because the machine is busy. */
#define _GNU_SOURCE
#include "copying.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *file_path, *folder_path;
static int is_unseen;
static size_t bytes;
static unsigned char *_Atomic taken;
static _Atomic int is_mapped, is_late;

/* Something else in the file's place. */
static void *replace(void *start) {
    int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (is_unseen) return (void *)syscall(SYS_mmap, start, bytes, protection, flags, -1, 0);
    munmap(start, bytes);
    return mmap(start, bytes, protection, flags, -1, 0);
}

static void *take(void *nothing) {
    while (!is_copying(folder_path) && !is_mapped) usleep(100);
    if ((is_late = is_mapped)) return nothing;
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start;
        if (!strstr(line, file_path) || sscanf(line, "%lx-", &start) != 1) continue;
        void *own = replace((void *)start);
        if (own == MAP_FAILED) exit(2);
        memset(own, 0x5a, bytes);
        taken = own;
        is_late = !is_copying(folder_path); /* or it may have been over before this */
        break;
    }
    if (maps) fclose(maps);
    return nothing;
}

int main(int count, char **arguments) {
    struct stat status;
    file_path = arguments[1];
    folder_path = arguments[2];
    is_unseen = count > 3;
    int file = open(file_path, O_RDONLY);
    if (count < 3 || file < 0 || fstat(file, &status) != 0) return 3;
    bytes = (size_t)status.st_size;
    pthread_t thread;
    pthread_create(&thread, NULL, take, NULL);
    mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    is_mapped = 1;
    pthread_join(thread, NULL);
    if (is_late) return 8;
    if (!taken) return 4;
    for (size_t i = 0; i < bytes; i++) {
        if (taken[i] != 0x5a) return 5;
    }
    puts("kept");
    return 0;
}
