/* Where the indexers' three kinds of object come from and go back to.
 *
 * shared: from one heap of the C library for all threads, as in programs whose allocator has no arenas per thread. Each object is its thread's
 *   alone, but its memory was often touched first by another thread, on another node.
 * private: each thread keeps its own; they never change hands. */
#ifndef PSEARCHY_SUPPLY_H
#define PSEARCHY_SUPPLY_H

#include <stdbool.h>

enum object_kind { OBJECT_HASH_TABLE, OBJECT_SORT_TEMPORARY, OBJECT_BLOCKS, OBJECT_KINDS };

struct free_object; /* begins each object while it is free */
struct supply {
    bool is_private;
};
/* One per indexer. */
struct supply_cache {
    struct free_object *own[OBJECT_KINDS];
};

void supply_init(struct supply *supply, bool is_private);
/* NULL: none is free, the caller allocates one. Contents are left over from the last use. */
void *supply_take(struct supply *supply, struct supply_cache *cache, enum object_kind kind);
/* The object, from malloc or aligned_alloc, is kept for the next time (private), or freed. */
void supply_give(struct supply *supply, struct supply_cache *cache, enum object_kind kind, void *object);
/* Frees the objects that an indexer has kept. */
void supply_drain(struct supply_cache *cache);

#endif
