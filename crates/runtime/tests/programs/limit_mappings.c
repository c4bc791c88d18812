/* Whether a mapping of this many MiB can be had, where nothing else was asked for before. Arguments: MiB; how: at once (mmap), or grown to that (mremap). */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MIB (1ul << 20)

int main(int count, char **arguments) {
    if (count != 3) return 2;
    size_t bytes = strtoul(arguments[1], NULL, 0) * MIB, first = strcmp(arguments[2], "mremap") == 0 ? MIB : bytes;
    void *mapping = mmap(NULL, first, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping != MAP_FAILED && first != bytes) mapping = mremap(mapping, first, bytes, MREMAP_MAYMOVE);
    puts(mapping != MAP_FAILED ? "has it" : "fails");
    return 0;
}
