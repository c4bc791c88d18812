/* Locks its memory in every way, and prints what each call said and how many KiB are locked then; without privilege where the argument is "limited". */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#ifndef MCL_ONFAULT
#define MCL_ONFAULT 4
#endif

static long locked_kib(void) {
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "VmLck: %ld", &kib) == 1) break;
    if (file != NULL) fclose(file);
    return kib;
}

int main(int count, char **arguments) {
    static const int ways[] = {MCL_CURRENT, MCL_CURRENT | MCL_FUTURE, MCL_FUTURE, MCL_CURRENT | MCL_ONFAULT, 0, 64};
    if (count == 2 && strcmp(arguments[1], "limited") == 0) {
        struct rlimit limit = {8 << 20, 8 << 20};
        if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return 3;
        if (geteuid() == 0 && setuid(65534) != 0) return 4;
    }
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        errno = 0;
        int result = mlockall(ways[i]);
        int error = errno;
        void *page = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        printf("%d %d %ld\n", result, error, locked_kib());
        munmap(page, 1 << 20);
        munlockall();
    }
    return 0;
}
