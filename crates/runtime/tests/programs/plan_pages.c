/* plan_pages.c: on a kernel with pages of 64 KiB, as arm64 has them: requests for parts of pages are errors there. This program stands for the kernel: it
 * says how large pages are, and is the one that places them. Linked with -rdynamic. Prints how many requests came, and how many of them were wrong. */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>

#define PAGE 65536ul

static unsigned requests, wrong;

unsigned long getauxval(unsigned long type) { return type == AT_PAGESZ ? PAGE : 0; }

long mbind(void *start, unsigned long bytes, int mode, const unsigned long *nodes, unsigned long bits, unsigned flags) {
    (void)mode, (void)nodes, (void)bits, (void)flags;
    requests++;
    wrong += (uintptr_t)start % PAGE != 0 || bytes % PAGE != 0;
    return 0;
}

/* Of C23: blocks that were placed are not the C library's, whose own functions of these names would end the program. */
extern void free_sized(void *block, size_t bytes) __attribute__((weak));
extern void free_aligned_sized(void *block, size_t alignment, size_t bytes) __attribute__((weak));

int main(void) {
    if (free_sized == NULL || free_aligned_sized == NULL) return 2;
    for (size_t bytes = 100; bytes < 10000000; bytes *= 10) {
        free_sized(malloc(bytes), bytes);
        free_aligned_sized(aligned_alloc(64, bytes * 64), 64, bytes * 64);
    }
    for (size_t bytes = 20000; bytes < 40000000; bytes += bytes / 3)
        if (malloc(bytes) == NULL) return 1;
    for (int i = 0; i < 1000; i++)
        if (malloc(100) == NULL) return 1;
    wrong += (uintptr_t)valloc(100000) % PAGE != 0 || (uintptr_t)pvalloc(1) % PAGE != 0 || (uintptr_t)valloc(1) % PAGE != 0;
    printf("%u %u\n", requests, wrong);
    return 0;
}
