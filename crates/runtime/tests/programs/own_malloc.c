/* A program with an allocator of its own in the executable, as with one linked statically. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static char heap[1 << 24];
static size_t used;

void *malloc(size_t bytes) {
    size_t at = used;
    used += (bytes + 31) & ~(size_t)15;
    *(size_t *)(void *)(heap + at) = bytes;
    return used <= sizeof heap ? heap + at + 16 : NULL;
}
void free(void *block) { (void)block; }
void *calloc(size_t count, size_t each) {
    void *block = malloc(count * each);
    return block != NULL ? memset(block, 0, count * each) : NULL;
}
void *realloc(void *old, size_t bytes) {
    void *block = malloc(bytes);
    if (old != NULL && block != NULL) {
        size_t had = *(size_t *)(void *)((char *)old - 16);
        memcpy(block, old, had < bytes ? had : bytes);
    }
    return block;
}

int main(void) {
    for (int i = 0; i < 100; i++) free(malloc(100));
    return 0;
}
