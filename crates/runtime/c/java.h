/* java.h: what the tracker offers to the agent in a Java virtual machine (java/agent.c), which finds it under the name `numapilot_java`. Both are built and
 * unpacked together, so the version is only compared, never negotiated.
 */
#ifndef NUMAPILOT_JAVA_H
#define NUMAPILOT_JAVA_H

#include "wire.h"

#include <stddef.h>

/* A line of a method's source, from an index of its bytecode on. */
struct np_java_line { uint16_t from, line; };

struct np_java_functions {
    uint32_t version;
    uint32_t reserved;
    /* The virtual machine has loaded the agent. False: nothing is recorded. */
    int (*begin)(void);
    /* Its objects, or some of them, are not followed; the recording says why. */
    void (*trouble)(enum np_java_trouble what, const char *text);
    /* So many objects were not followed because too many were already. */
    void (*dropped)(uint64_t objects);
    /* A stamp of now. */
    uint64_t (*order)(void);
    /* A pool for the objects of a class, from *order on, which may become later; 0: none. */
    uint32_t (*pool)(const char *class_name, uint64_t *order);
    /* A number for a method; 0: it cannot be recorded now. */
    uint32_t (*method)(const char *name, const char *file, const struct np_java_line *lines, size_t count);
    /* A number for a stack of frames (np_java_frame), innermost first; 0: it cannot be recorded now. */
    uint32_t (*stack)(const uint64_t *frames, unsigned count, int is_cut);
    /* The number of the calling thread. */
    uint32_t (*thread)(void);
    /* The first stamp, not before `earliest`, after which no memory was mapped: what lay there before that is gone with it. */
    uint64_t (*mapped)(uint64_t earliest);
    /* A stamp before so many bytes were cleared for an object that has just been allocated; nothing else has been there since `earliest`. */
    uint64_t (*cleared)(uint64_t earliest, size_t bytes);
    /* An object of the pool, which this thread has allocated, lies there from this stamp on. `sample`: np_java_sample. */
    void (*made)(uint32_t pool, uintptr_t address, size_t bytes, uint32_t stack, uint32_t thread, uint64_t order, uint64_t sample);
    /* It ends, or moves. */
    void (*gone)(uint32_t pool, uintptr_t address, uint64_t order);
    /* The calling thread's name, which is longer than the kernel's names are. */
    void (*thread_name)(const char *name);
};
#define NP_JAVA_VERSION 2u
#define NP_JAVA_SYMBOL "numapilot_java"

/* How an object was sampled: one for so many bytes that a thread allocates, on average (0: each one); `is_moved`: this is a later place of it. */
static inline uint64_t np_java_sample(uint32_t interval, int is_moved) {
    return interval | (uint64_t)(is_moved ? NP_POOL_MOVED : NP_POOL_SAMPLED) << 32;
}

/* A place in a method. Bytecode has fewer than 65,536 bytes; what lies outside of it (a native method) is its beginning. */
static inline uint64_t np_java_frame(uint32_t method, int64_t index) {
    uint64_t unit = index >= 0 && index < NP_CODE_UNITS ? (uint64_t)index : 0;
    return NP_JAVA_FRAME | (uint64_t)method << NP_CODE_SHIFT | unit;
}

#endif
