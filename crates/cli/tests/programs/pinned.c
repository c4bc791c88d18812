/* Touches fresh pages on one CPU, from a function that says when: the truth for the test of CPUs that go offline and come back.
 *
 * pinned before|after CPU PAGES
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096L

/* A pause now and then: no ring has to hold all of it. */
#define TOUCH(base, pages)                                 \
    for (long page = 0; page < (pages); page++) {          \
        ((volatile char *)(base))[page * PAGE] = 1;        \
        if (page % 100 == 99) usleep(1000);                \
    }

__attribute__((noinline)) static void touched_before(char *base, long pages) { TOUCH(base, pages) }
__attribute__((noinline)) static void touched_after(char *base, long pages) { TOUCH(base, pages) }

int main(int count, char **words) {
    if (count != 4) return 2;
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(atoi(words[2]), &only);
    if (sched_setaffinity(0, sizeof only, &only) != 0) return perror("sched_setaffinity"), 1;
    long pages = atol(words[3]);
    char *base = mmap(NULL, (size_t)(pages * PAGE), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return perror("mmap"), 1;
    madvise(base, (size_t)(pages * PAGE), MADV_NOHUGEPAGE);
    if (strcmp(words[1], "before") == 0)
        touched_before(base, pages);
    else
        touched_after(base, pages);
    return 0;
}
