/* plan_huge.c: huge pages (hugetlb) of 2 MiB, of which the kernel places no parts. With -DSHIM: an mmap that gives their addresses without the pages, which
 * need not be there, and an mbind that says at the end how many requests came, and how many of them were for parts. Else a program that maps some. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HUGE (2ul << 20)

#ifdef SHIM
static unsigned requests, parts;

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    if (!(flags & MAP_HUGETLB)) return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
    flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    long at = syscall(SYS_mmap, NULL, bytes + 2 * HUGE, protection, flags, -1, 0);
    return at == -1 ? MAP_FAILED : (void *)(((uintptr_t)at + HUGE - 1) & -HUGE);
}

long mbind(void *start, unsigned long bytes, int mode, const unsigned long *nodes, unsigned long bits, unsigned flags) {
    (void)mode, (void)nodes, (void)bits, (void)flags;
    requests++;
    parts += (uintptr_t)start % HUGE != 0 || bytes % HUGE != 0;
    return 0;
}

__attribute__((destructor)) static void tell(void) {
    fprintf(stderr, "%u %u\n", requests, parts);
}
#else
int main(void) {
    for (size_t mib = 5; mib < 30; mib += 6)
        if (mmap(NULL, mib << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | 21 << 26, -1, 0) == MAP_FAILED) return 1;
    return 0;
}
#endif
