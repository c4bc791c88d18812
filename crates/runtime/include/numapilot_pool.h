/* numapilot_pool.h: tells numapilot of memory pools that a program carries itself (arenas, contexts, regions, slabs; an allocator that is linked into it
 * under names of its own), so that each block of a pool is an object of its own in a recording, with the line that allocated it, and not a part of the one
 * large block or mapping that the pool got from the system.
 *
 *     np_pool pool = np_pool_create("requests");        where the pool is made
 *     np_pool_alloc(pool, block, bytes);                in the pool's own allocation function, once the block is made
 *     np_pool_free(pool, block);                        before a block is given back
 *     np_pool_reset(pool);                              before all blocks are given back at once
 *     np_pool_destroy(pool);                            before the pool is given back
 *
 * Copy this file into your program: it is a header alone, for C99 and C++11, gcc or clang, on Linux; elsewhere its functions are empty. Nothing is linked.
 * Without a recording np_pool_create returns 0, and the others compare the pool with 0 and return.
 *
 * Threads: all functions may be called from any thread at any time; the program orders the calls for one block itself, as it orders the block's own life.
 * They take no lock, allocate nothing and keep errno. Signal handlers: all but np_pool_create may be called from one, in the program or library that has
 * called np_pool_create; what happens in the midst of another record of the same thread is lost, and counted. A forked child goes on with its parent's pools.
 *
 * The function that calls np_pool_alloc counts as the pool's allocator, and the line that called it as the allocation site. What a pool gets from malloc or
 * mmap needs no call; when that memory is freed or unmapped, blocks of pools in it end with it. A pool may lie in a block of another, four deep. A block
 * that is given anew at its address (grown in place) replaces the old one.
 *
 * Licensed under MIT or Apache 2.0, at your option. Guide: docs/guides/pools.md.
 */
#ifndef NUMAPILOT_POOL_H
#define NUMAPILOT_POOL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A pool, in this process and in those that it forks. 0: none, or not recorded. */
typedef uint32_t np_pool;

#if defined(__linux__) && defined(__GNUC__)

#include <stdlib.h>

/* What the recorder offers in the program's process, under the name `numapilot_pools`. Later versions add at the end. */
struct np_pool_functions {
    uint32_t version;
    uint32_t reserved;
    np_pool (*create)(const char *name);
    void (*alloc)(np_pool pool, const void *address, size_t bytes);
    void (*free)(np_pool pool, const void *address);
    void (*reset)(np_pool pool);
    void (*destroy)(np_pool pool);
};
#define NP_POOL_VERSION 1u

/* Weak: in a program without it (linked statically, or to an older C library without libdl) there is nothing to find. Under a name of its own, so that the
 * program's own calls of dlsym are not weak with it. */
static void *np_pool_dlsym_(void *handle, const char *name) __attribute__((weakref("dlsym")));

/* One for all source files of a program or library. */
__attribute__((weak, visibility("hidden"))) const struct np_pool_functions *np_pool_found_;

/* NULL without a recording. */
static inline const struct np_pool_functions *np_pool_functions_(void) {
    const struct np_pool_functions *known = __atomic_load_n(&np_pool_found_, __ATOMIC_ACQUIRE);
    if (known != NULL) return known;
    /* A search in vain would allocate a message; this may be the program's allocator. */
    if (getenv("NUMAPILOT_ARENA") == NULL || np_pool_dlsym_ == NULL) return NULL;
    known = (const struct np_pool_functions *)np_pool_dlsym_(NULL /* RTLD_DEFAULT */, "numapilot_pools");
    if (known == NULL || known->version < NP_POOL_VERSION) return NULL;
    __atomic_store_n(&np_pool_found_, known, __ATOMIC_RELEASE);
    return known;
}

/* No call may be the last thing that a function does: the allocator's own frame would be gone from the stack. The brackets are for allocators, which have
 * macros of these names (`#define free(p) ...`). */
#define NP_POOL_CALL_(pool, function, ...)                                              \
    do {                                                                                \
        const struct np_pool_functions *functions_ = (pool) != 0 ? np_pool_functions_() : NULL; \
        if (functions_ != NULL) (functions_->function)(__VA_ARGS__);                    \
        __asm__ __volatile__("" ::: "memory");                                          \
    } while (0)

/* A new pool; `name` is copied, and cut after 200 bytes. Pools of one name share their allocation sites. */
static inline np_pool np_pool_create(const char *name) {
    const struct np_pool_functions *functions = np_pool_functions_();
    return functions != NULL ? (functions->create)(name) : 0;
}

/* `bytes` at `address` are a block of the pool now. */
static inline void np_pool_alloc(np_pool pool, const void *address, size_t bytes) { NP_POOL_CALL_(pool, alloc, pool, address, bytes); }

/* The block that begins at `address` is about to be given back. */
static inline void np_pool_free(np_pool pool, const void *address) { NP_POOL_CALL_(pool, free, pool, address); }

/* All blocks of the pool are about to be given back; the pool is used again. */
static inline void np_pool_reset(np_pool pool) { NP_POOL_CALL_(pool, reset, pool); }

/* The pool is about to end, with all its blocks. */
static inline void np_pool_destroy(np_pool pool) { NP_POOL_CALL_(pool, destroy, pool); }

#else

static inline np_pool np_pool_create(const char *name) { return (void)name, (np_pool)0; }
static inline void np_pool_alloc(np_pool pool, const void *address, size_t bytes) { (void)pool, (void)address, (void)bytes; }
static inline void np_pool_free(np_pool pool, const void *address) { (void)pool, (void)address; }
static inline void np_pool_reset(np_pool pool) { (void)pool; }
static inline void np_pool_destroy(np_pool pool) { (void)pool; }

#endif

#ifdef __cplusplus
}
#endif
#endif
