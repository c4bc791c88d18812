/* pool.h: blocks of pools for the tracker's own files. errno is kept. */
#ifndef NUMAPILOT_POOL_BLOCKS_H
#define NUMAPILOT_POOL_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* A new pool; 0: nothing is recorded. */
uint32_t np_pool_named(const char *name);
/* A block of a pool was made, by a stack and a thread that are known already. */
void np_pool_made_at(uint32_t pool, uintptr_t address, size_t bytes, uint32_t stack, uint32_t thread);
/* It is about to be given back. */
void np_pool_gone(uint32_t pool, uintptr_t address);

#pragma GCC visibility pop
#endif
