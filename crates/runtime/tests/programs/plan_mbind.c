/* With -DSHIM: an mbind that says at the end into how many pieces of one node each memory was cut, and how many MiB went to nodes 0 and 1.
 * Else a program that allocates MIB of blocks of BYTES, and once more, for each pair of arguments; BYTES 0: one block, which grows in steps of 64 KiB. */
#ifdef SHIM
#include <stdio.h>

static unsigned long last_end, pieces, bytes_on[3];
static int last_node = -1;

long mbind(void *start, unsigned long bytes, int mode, const unsigned long *nodes, unsigned long bits, unsigned flags) {
    (void)mode, (void)bits, (void)flags;
    int node = nodes != NULL && *nodes != 0 ? __builtin_ctzl(*nodes) : 2;
    if (node > 2) node = 2;
    pieces += node != last_node || (unsigned long)start != last_end;
    last_node = node;
    last_end = (unsigned long)start + bytes;
    bytes_on[node] += bytes;
    return 0;
}

__attribute__((destructor)) static void tell(void) {
    fprintf(stderr, "%lu %lu %lu\n", pieces, bytes_on[0] >> 20, bytes_on[1] >> 20);
}
#else
#include <stdlib.h>

int main(int count, char **arguments) {
    for (int i = 1; i + 1 < count; i += 2) {
        size_t mib = strtoul(arguments[i], NULL, 0), bytes = strtoul(arguments[i + 1], NULL, 0);
        char *grown = NULL;
        for (size_t size = 65536; bytes == 0 && size <= mib << 20; size += 65536)
            if ((grown = realloc(grown, size)) == NULL) return 1;
        for (size_t k = 0; bytes != 0 && k < (mib << 20) / bytes; k++)
            if (malloc(bytes) == NULL) return 1;
    }
    return 0;
}
#endif
