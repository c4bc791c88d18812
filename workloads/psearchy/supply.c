/* Free lists of the indexers' objects. */
#include "supply.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>

struct free_object {
    struct free_object *next;
};

/* One process has one supply. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void supply_init(struct supply *supply, bool is_private) {
    *supply = (struct supply){.is_private = is_private};
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
    if (supply->is_private) return pop(&cache->own[kind]);
    pthread_mutex_lock(&lock);
    void *object = pop(&supply->shared[kind]);
    pthread_mutex_unlock(&lock);
    return object;
}

void supply_give(struct supply *supply, struct supply_cache *cache, enum object_kind kind, void *object) {
    if (supply->is_private) {
        push(&cache->own[kind], object);
        return;
    }
    pthread_mutex_lock(&lock);
    push(&supply->shared[kind], object);
    pthread_mutex_unlock(&lock);
}

void supply_drain(struct supply *supply, struct supply_cache *cache) {
    struct free_object **lists = cache ? cache->own : supply->shared;
    for (int kind = 0; kind < OBJECT_KINDS; kind++) {
        for (void *object = pop(&lists[kind]); object; object = pop(&lists[kind])) free(object);
    }
}
