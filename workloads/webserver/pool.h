/* Memory that is freed all at once: for as long as a connection lasts, or a request. A pool belongs to one thread at a time. */
#ifndef WEBSERVER_POOL_H
#define WEBSERVER_POOL_H

#include <stddef.h>

struct pool {
    struct pool *next; /* for whoever keeps lists of pools */
    struct pool_block *blocks, *current;
};

struct pool *pool_create(void);
/* `bytes` bytes aligned to 16, not initialised. */
void *pool_alloc(struct pool *pool, size_t bytes);
/* Frees everything that was allocated from the pool, but keeps its blocks for what comes next. */
void pool_clear(struct pool *pool);
void pool_destroy(struct pool *pool);

#endif
