/* plan_offsets.c: where the allocator puts blocks of many sizes: offset within a page for large ones, from the first small one for small ones. */
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 88172645463325252ull;
static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

int main(void) {
    static char line[64];
    setvbuf(stdout, NULL, _IONBF, 0);
    char *first = malloc(24), *kept[64] = {0};
    uintptr_t origin = (uintptr_t)first & ~4095ul;
    for (int i = 0; i < 2000; i++) {
        size_t slot = next() % 64, bytes = 1 + next() % (i % 20 == 0 ? 1u << 20 : i % 5 == 0 ? 60000 : 900);
        free(kept[slot]);
        char *block = next() % 4 == 0 ? calloc(1, bytes) : malloc(bytes);
        for (size_t k = 0; k < bytes; k++) block[k] = (char)i;
        /* Addresses differ from run to run by whole pages; within a heap, distances do not. */
        uintptr_t told = bytes >= 200000 ? (uintptr_t)block & 4095 : ((uintptr_t)block - origin) & 0xffff;
        int length = snprintf(line, sizeof line, "%zu %zu %lx\n", bytes, malloc_usable_size(block), (unsigned long)told);
        if (fwrite(line, 1, (size_t)length, stdout) != (size_t)length) return 1;
        kept[slot] = block;
    }
    return 0;
}
