/* Where the indexers' three kinds of object come from and go back to.
 *
 * shared: one list of free objects per kind for the whole process, last in first out, as a buffer pool has. An indexer then works in
 *   memory that another thread touched first, on another node.
 * private: each thread keeps its own; they never change hands. */
#ifndef PSEARCHY_SUPPLY_H
#define PSEARCHY_SUPPLY_H

#include <stdbool.h>

enum object_kind { OBJECT_HASH_TABLE, OBJECT_SORT_TEMPORARY, OBJECT_BLOCKS, OBJECT_KINDS };

struct free_object; /* begins each object while it is free */
struct supply {
    struct free_object *shared[OBJECT_KINDS];
    bool is_private;
};
/* One per indexer. */
struct supply_cache {
    struct free_object *own[OBJECT_KINDS];
};

void supply_init(struct supply *supply, bool is_private);
/* NULL: none is free, the caller allocates one. Contents are left over from the last use. */
void *supply_take(struct supply *supply, struct supply_cache *cache, enum object_kind kind);
/* The object, from malloc or aligned_alloc, may be taken by whoever comes next. */
void supply_give(struct supply *supply, struct supply_cache *cache, enum object_kind kind, void *object);
/* Frees an indexer's own objects, or (cache NULL) the shared ones. */
void supply_drain(struct supply *supply, struct supply_cache *cache);

#endif
