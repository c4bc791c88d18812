/* again.c: touches the pages of one heap block again and again, giving them back in between, so that page faults go on for as long as it runs: until its
 * input ends. Writes its number to the file that is named. */
#define _GNU_SOURCE
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 1024 };

int main(int count, char **arguments) {
    if (count != 2) return 2;
    char *hot_block = malloc((PAGES + 1) * PAGE);
    if (hot_block == NULL) return 1;
    volatile char *first = (char *)(((uintptr_t)hot_block + PAGE - 1) & ~(uintptr_t)(PAGE - 1));
    madvise((void *)first, PAGES * PAGE, MADV_NOHUGEPAGE);
    char name[4096];
    snprintf(name, sizeof name, "%s.tmp", arguments[1]);
    FILE *file = fopen(name, "w");
    if (file == NULL || fprintf(file, "%d\n", (int)getpid()) < 0 || fclose(file) != 0 || rename(name, arguments[1]) != 0) return 1;
    struct pollfd input = {.fd = 0, .events = POLLIN};
    while (poll(&input, 1, 20) == 0) {
        for (int page = 0; page < PAGES; page++) first[(size_t)page * PAGE] = 1;
        madvise((void *)first, PAGES * PAGE, MADV_DONTNEED);
    }
    free(hot_block);
    return 0;
}
