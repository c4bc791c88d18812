/* A program with an allocator of its own: behind a prefix, as jemalloc is built into others, or (REPLACES) as the executable's malloc. */
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#ifdef REPLACES
#define NAME(name) name
#else
#define NAME(name) je_##name
#endif
#define OWN __attribute__((noinline)) /* not one function of the program and the allocator */
#define PART (64ul << 20)
#define BYTES (1ul << 20)
#define SMALL_BLOCKS 1000

static char *next, *end;
static volatile long freed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static char *carve(size_t bytes, size_t alignment) {
    pthread_mutex_lock(&lock);
    if (next == NULL) {
        next = mmap(NULL, PART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        end = next + PART;
    }
    char *block = (char *)(((size_t)next + 16 + alignment - 1) & ~(alignment - 1));
    next = block + bytes;
    pthread_mutex_unlock(&lock);
    if (block + bytes > end) return NULL;
    ((size_t *)(void *)block)[-1] = bytes;
    return block;
}
OWN void *NAME(malloc)(size_t bytes) { return carve(bytes, 16); }
OWN void NAME(free)(void *block) { freed += block != NULL; }
/* Ends with a jump to the C library, so that the return instruction is none of this file. */
OWN void *NAME(calloc)(size_t count, size_t each) {
    void *block = carve(count * each, 16);
    return block != NULL ? memset(block, 0, count * each) : NULL;
}
/* What it calls in turn is not the program's. */
OWN void *NAME(realloc)(void *old, size_t bytes) {
    void *block = NAME(malloc)(bytes);
    if (old == NULL || block == NULL) return block;
    size_t had = ((size_t *)old)[-1];
    memcpy(block, old, had < bytes ? had : bytes);
    NAME(free)(old);
    return block;
}
OWN int NAME(posix_memalign)(void **block, size_t alignment, size_t bytes) {
    *block = carve(bytes, alignment);
    return *block == NULL ? 12 : 0;
}

static void *worker(void *unused) {
    char *by_thread = NAME(malloc)(BYTES); /* LINE by_thread */
    memset(by_thread, 1, BYTES);
    NAME(free)(by_thread);
    return unused;
}

int main(void) {
    pthread_t thread;
    char *first = NAME(malloc)(BYTES); /* LINE first */
    memset(first, 1, BYTES);
    char *cleared = NAME(calloc)(BYTES / 64, 64);     /* LINE cleared */
    char *grown = NAME(realloc)(first, 2 * BYTES);    /* LINE grown */
    void *aligned;
    if (NAME(posix_memalign)(&aligned, 4096, BYTES) != 0) return 1; /* LINE aligned */
    memset(aligned, 2, BYTES);
    for (int i = 0; i < SMALL_BLOCKS; i++) {
        char *small = NAME(malloc)(100); /* LINE small */
        *(volatile char *)small = 1;
        NAME(free)(small);
    }
    pthread_create(&thread, NULL, worker, NULL);
    pthread_join(thread, NULL);
    int sum = cleared[BYTES - 1] + grown[0] + ((char *)aligned)[0];
    NAME(free)(cleared);
    NAME(free)(grown);
    NAME(free)(aligned);
    dprintf(1, "%d\n", sum);
    return 0;
}
