/* plan_locked.c: blocks that are freed while their pages, or some of them, are locked; then calloc. Fails where bytes of it are not zero. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* `unlocked` bytes at the start are unlocked again before the block is freed. 1: a byte was dirty. */
static int round_of(size_t bytes, size_t locked, size_t unlocked) {
    unsigned char *block = malloc(bytes);
    if (block == NULL) return 1;
    if (mlock(block + bytes - locked, locked) != 0) perror("mlock");
    if (unlocked != 0) munlock(block, unlocked);
    memset(block, 0x5a, bytes);
    free(block);
    unsigned char *next = calloc(1, bytes / 2 + 1);
    if (next == NULL) return 1;
    size_t dirty = 0;
    for (size_t i = 0; i < bytes / 2 + 1; i++) dirty += next[i] != 0;
    if (dirty != 0) printf("%zu bytes, %zu of them locked: %zu bytes of calloc are not zero\n", bytes, locked, dirty);
    free(next);
    return dirty != 0;
}

int main(void) {
    /* The last is more than an arena keeps for its next block. */
    return round_of(2 << 20, 2 << 20, 0) | round_of(2 << 20, 4096, 0) | round_of(80 << 20, 1 << 20, 4096);
}
