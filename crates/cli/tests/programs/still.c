/* Memory that lies still: known pages on every node, then nothing moves until a signal. Statically linked, so that no library's pages come or go.
 *
 * still NODES: block k has 100 + 7k pages, bound to node k; one more block of 64 pages is interleaved; the heap (brk) has 50 pages touched.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096L
enum { BIND = 2, INTERLEAVE = 3 };

static void block(long pages, int mode, unsigned long nodes) {
    char *base = mmap(NULL, (size_t)(pages * PAGE), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) exit(3);
    madvise(base, (size_t)(pages * PAGE), MADV_NOHUGEPAGE);
    if (syscall(SYS_mbind, base, pages * PAGE, mode, &nodes, 64UL, 0U) != 0) exit(4);
    for (long page = 0; page < pages; page++) ((volatile char *)base)[page * PAGE] = 1;
}

int main(int count, char **arguments) {
    int nodes = count > 1 ? atoi(arguments[1]) : 1;
    for (int node = 0; node < nodes; node++) block(100 + 7L * node, BIND, 1UL << node);
    block(64, INTERLEAVE, (1UL << nodes) - 1);
    char *heap = sbrk(50 * PAGE);
    for (long page = 0; page < 50; page++) ((volatile char *)heap)[page * PAGE] = 1;
    /* Written before the pause by the simplest means: no buffer of stdio's that comes to lie somewhere. */
    if (write(1, "ready\n", 6) != 6) return 5;
    for (;;) pause();
}
