/* Pools whose every block is known, and walked once: one in a mapping, used twice; one in a block of malloc, with another in it, which end with that block.
   Built with crates/runtime/include on the path. */
#define _GNU_SOURCE
#include <numapilot_pool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define BYTES (12ul << 20)

struct region {
    np_pool pool;
    char *memory;
    size_t used;
};

static struct region region_in(const char *name, char *memory) {
    return (struct region){np_pool_create(name), memory, 0};
}

static __attribute__((noinline)) char *region_take(struct region *region, size_t bytes) {
    char *block = region->memory + region->used;
    region->used += bytes;
    np_pool_alloc(region->pool, block, bytes);
    return block;
}

static __attribute__((noinline)) void walk(volatile char *memory) {
    for (size_t at = 0; at < BYTES; at += 64) memory[at]++;
}

int main(void) {
    char *mapping = mmap(NULL, 2 * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); /* LINE mapping */
    if (mapping == MAP_FAILED) return 1;
    struct region mapped = region_in("mapped", mapping);
    char *first = region_take(&mapped, BYTES); /* LINE first */
    walk(first);
    walk(mapping + BYTES);
    np_pool_reset(mapped.pool);
    mapped.used = 0;
    char *second = region_take(&mapped, BYTES); /* LINE second */
    walk(second);
    char *chunk = malloc(2 * BYTES); /* LINE chunk */
    struct region outer = region_in("outer", chunk);
    char *whole = region_take(&outer, 2 * BYTES); /* LINE whole */
    struct region inner = region_in("inner", whole);
    char *part = region_take(&inner, BYTES); /* LINE part */
    walk(part);
    walk(whole + BYTES);
    free(chunk);
    char *after = malloc(2 * BYTES); /* LINE after */
    walk(after);
    printf("%d\n", first[0] + second[0] + after[0]);
    np_pool_destroy(mapped.pool);
    return 0;
}
