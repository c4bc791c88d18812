/* pool.h: blocks of pools for the tracker's own files. errno is kept. */
#ifndef NUMAPILOT_POOL_BLOCKS_H
#define NUMAPILOT_POOL_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* A new pool with a stamp of the past, which becomes later where the thread began after that; 0: it was not recorded. */
uint32_t np_pool_named(const char *name, uint64_t *order);
/* A block of a pool was made at this stamp, by a stack and a thread that are known already. `sample`: word 5 of its record; 0: it is no sample. */
void np_pool_made_at(uint32_t pool, uintptr_t address, size_t bytes, uint32_t stack, uint32_t thread, uint64_t order, uint64_t sample);
/* It was given back. */
void np_pool_gone(uint32_t pool, uintptr_t address, uint64_t order);

#pragma GCC visibility pop
#endif
