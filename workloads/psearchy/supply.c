/* The indexers' objects: the C library's one heap, or free lists of each thread. */
#include "supply.h"

#include <limits.h>
#include <malloc.h>
#include <stddef.h>
#include <stdlib.h>

struct free_object {
    struct free_object *next;
};

/* Blocks up to this size come from the heap and not from mappings of their own: the most that glibc allows. */
#define HEAP_BLOCK_BYTES_MAX (32 << 20)

void supply_init(struct supply *supply, bool is_private) {
    *supply = (struct supply){.is_private = is_private};
    if (is_private) return;
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_THRESHOLD, HEAP_BLOCK_BYTES_MAX);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
}

static void *pop(struct free_object **list) {
    struct free_object *object = *list;
    if (object) *list = object->next;
    return object;
}

static void push(struct free_object **list, void *memory) {
    struct free_object *object = memory;
    object->next = *list;
    *list = object;
}

void *supply_take(struct supply *supply, struct supply_cache *cache, enum object_kind kind) {
    return supply->is_private ? pop(&cache->own[kind]) : NULL;
}

void supply_give(struct supply *supply, struct supply_cache *cache, enum object_kind kind, void *object) {
    if (supply->is_private) push(&cache->own[kind], object);
    else free(object);
}

void supply_drain(struct supply_cache *cache) {
    for (int kind = 0; kind < OBJECT_KINDS; kind++) {
        for (void *object = pop(&cache->own[kind]); object; object = pop(&cache->own[kind])) free(object);
    }
}
