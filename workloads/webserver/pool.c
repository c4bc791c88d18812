/* Pools as chains of blocks from malloc(). */
#include "pool.h"

#include "options.h"

#include <stdlib.h>

enum { BLOCK_BYTES = 8192, ALIGNMENT = 16 };

struct pool_block {
    struct pool_block *next;
    size_t room, used;
    _Alignas(ALIGNMENT) char data[];
};

struct pool *pool_create(void) {
    struct pool *pool = calloc(1, sizeof *pool);
    return need_memory(pool, sizeof *pool);
}

/* The block after `current` if it is large enough, else a new one in its place in the chain. */
static struct pool_block *next_block(struct pool *pool, size_t bytes) {
    struct pool_block **link = pool->current ? &pool->current->next : &pool->blocks;
    if (*link && (*link)->room >= bytes) return *link;
    size_t room = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
    struct pool_block *pool_memory = malloc(sizeof *pool_memory + room);
    need_memory(pool_memory, sizeof *pool_memory + room);
    pool_memory->next = *link;
    pool_memory->room = room;
    pool_memory->used = 0;
    *link = pool_memory;
    return pool_memory;
}

void *pool_alloc(struct pool *pool, size_t bytes) {
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct pool_block *block = pool->current;
    if (!block || block->room - block->used < bytes) {
        block = next_block(pool, bytes);
        block->used = 0;
        pool->current = block;
    }
    void *memory = block->data + block->used;
    block->used += bytes;
    return memory;
}

void pool_clear(struct pool *pool) {
    pool->current = NULL;
}

void pool_destroy(struct pool *pool) {
    while (pool->blocks) {
        struct pool_block *block = pool->blocks;
        pool->blocks = block->next;
        free(block);
    }
    free(pool);
}
