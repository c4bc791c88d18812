/* A program whose own malloc and free wrap the next ones, as counting and checking wrappers do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 10
#define BYTES 123457

static void *(*next_malloc)(size_t bytes);
static void (*next_free)(void *block);
static volatile long calls;

void *malloc(size_t bytes) {
    if (next_malloc == NULL) next_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    void *block = next_malloc(bytes);
    calls++;
    return block;
}

void free(void *block) {
    if (next_free == NULL) next_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
    next_free(block);
    calls++;
}

int main(void) {
    long sum = 0;
    for (int i = 0; i < BLOCKS; i++) {
        char *block = malloc((size_t)(BYTES + i));
        memset(block, 1, (size_t)(BYTES + i));
        sum += block[i];
        free(block);
    }
    dprintf(1, "%ld\n", sum);
    return calls >= 2 * BLOCKS ? 0 : 1;
}
