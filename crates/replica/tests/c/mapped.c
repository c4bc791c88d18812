/* mapped.c: a program whose mappings are replaced under it. Maps a file privately and a sealed memfd shared, both read-only, sums them up, executes its
 * own code throughout, and shows what a write through a private mapping does.
 *
 * Usage: mapped FILE. Prints "sum FILE-SUM MEMFD-SUM", "after write BYTE BYTE-IN-FILE", then the numa_maps lines of what lies in the folder of copies,
 * each with "on_node P of Q" from move_pages() for the CPU's node. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, MEMFD_BYTES = 1 << 20, PAGES_MAX = 4096 };

static unsigned long sum(const volatile unsigned char *bytes, size_t count) {
    unsigned long sum = 0;
    for (size_t i = 0; i < count; i++) sum = sum * 31 + bytes[i];
    return sum;
}

static unsigned char *map_sealed(void) {
    int file = memfd_create("sealed", MFD_ALLOW_SEALING);
    unsigned char bytes[PAGE];
    for (int page = 0; page < MEMFD_BYTES / PAGE; page++) {
        memset(bytes, page, sizeof bytes);
        if (write(file, bytes, sizeof bytes) != sizeof bytes) return MAP_FAILED;
    }
    if (fcntl(file, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) != 0) return MAP_FAILED;
    return mmap(NULL, MEMFD_BYTES, PROT_READ, MAP_SHARED, file, 0);
}

static void tell_place(const char *line, unsigned node) {
    static void *pages[PAGES_MAX];
    static int status[PAGES_MAX];
    unsigned long start = strtoul(line, NULL, 16), end = 0;
    char head[32], text[1024];
    FILE *maps = fopen("/proc/self/maps", "r");
    snprintf(head, sizeof head, "%lx-", start);
    while (maps && fgets(text, sizeof text, maps)) {
        if (!strncmp(text, head, strlen(head))) end = strtoul(text + strlen(head), NULL, 16);
    }
    if (maps) fclose(maps);
    int count = 0, on_node = 0;
    for (; start < end && count < PAGES_MAX; start += PAGE) pages[count++] = (void *)start;
    for (int i = 0; i < count; i++) (void)*(volatile char *)pages[i];
    syscall(SYS_move_pages, 0, (unsigned long)count, pages, NULL, status, 0);
    for (int i = 0; i < count; i++) on_node += status[i] == (int)node;
    printf("node %u on_node %d of %d %s", node, on_node, count, line);
}

int main(int argc, char **argv) {
    struct stat status;
    int file = argc > 1 ? open(argv[1], O_RDONLY) : -1;
    if (file < 0 || fstat(file, &status) != 0) return 2;
    size_t bytes = (size_t)status.st_size;
    unsigned char *private = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0), *sealed = map_sealed();
    if (private == MAP_FAILED || sealed == MAP_FAILED) return 2;
    printf("sum %lx %lx\n", sum(private, bytes), sum(sealed, MEMFD_BYTES));
    unsigned char in_file, before = private[5 * PAGE];
    if (mprotect(private, bytes, PROT_READ | PROT_WRITE) != 0) return 3;
    private[5 * PAGE] = (unsigned char)(before + 1);
    if (pread(file, &in_file, 1, 5 * PAGE) != 1) return 3;
    const char *sealed_does = mprotect(sealed, PAGE, PROT_READ | PROT_WRITE) ? "refuses" : "takes it";
    printf("after write %d %d, sealed %s\n", private[5 * PAGE] - before, in_file - before, sealed_does);
    unsigned node = 0;
    getcpu(NULL, &node);
    char line[1024];
    FILE *maps = fopen("/proc/self/numa_maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        if (strstr(line, ".node")) tell_place(line, node);
    }
    return 0;
}
