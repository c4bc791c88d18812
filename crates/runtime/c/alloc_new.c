/* alloc_new.c: C++'s operators new and delete, in all forms.
 *
 * They go on to the program's own operators (the next definition in load order, or libstdc++'s where that was loaded out of sight), so that replaced ones
 * keep working, and are recorded once, by the outermost. Without any C++ library they go to malloc. operator new may throw: the exception passes
 * through our frames, and a personality routine takes the "inside the allocator" mark back.
 */
#define _GNU_SOURCE
#include "operators.h"
#include "track.h"

#include <dlfcn.h>
#include <stdlib.h>

#define URC_CONTINUE_UNWIND 8
#define UA_CLEANUP_PHASE 2

__attribute__((used)) NP_HIDDEN int np_new_personality(int version, int actions, uint64_t class, void *exception, void *context) {
    (void)version, (void)class, (void)exception, (void)context;
    if (actions & UA_CLEANUP_PHASE) np_alloc_thrown(NP_CALLER_REGS());
    return URC_CONTINUE_UNWIND;
}

static NP_COLD void *find_operator(const char *name) { return np_find_operator(name, NP_REAL(dlclose)); }

static NP_COLD void *without_operator(size_t bytes, size_t alignment, bool throws) {
    void *block = alignment != 0 ? aligned_alloc(alignment, bytes) : malloc(bytes != 0 ? bytes : 1);
    /* No C++ library could throw bad_alloc. */
    if (block == NULL && throws) abort();
    return block;
}

/* A hook for one form. */
#define NEW(name, is_array, parameters, arguments, alignment, throws)                                     \
    void *name parameters;                                                                            \
    NP_EXPORT void *name parameters {                                                                 \
        static void *(*found) parameters;                                                             \
        NP_OPERATOR_LISTED(found, #name);                                                             \
        void *(*real) parameters = np_load(found);                                                    \
        __asm__ volatile(".cfi_personality 0x1b, np_new_personality");                                \
        if (np_unlikely(real == NULL)) {                                                              \
            real = find_operator(#name);                                                              \
            np_store(found, real);                                                                    \
        }                                                                                             \
        if (np_unlikely(real == NULL)) {                                                              \
            if (np_alloc_is_inside()) return without_operator(bytes, alignment, throws);              \
            np_alloc_enter();                                                                         \
            void *made = without_operator(bytes, alignment, throws);                                  \
            np_alloc_leave();                                                                         \
            return np_alloc_made(made, bytes, is_array ? NP_ALLOC_NEW_ARRAY : NP_ALLOC_NEW, NP_CALLER_REGS());\
        }                                                                                             \
        if (np_alloc_is_inside()) return np_alloc_nested(real arguments, bytes);                      \
        np_alloc_enter();                                                                             \
        void *block = real arguments;                                                                 \
        np_alloc_leave();                                                                             \
        return np_alloc_made(block, bytes, is_array ? NP_ALLOC_NEW_ARRAY : NP_ALLOC_NEW, NP_CALLER_REGS());\
    }

#include "operators.h"

#define DELETE(name, parameters, arguments)                                                           \
    void name parameters;                                                                             \
    NP_EXPORT void name parameters {                                                                  \
        static void (*found) parameters;                                                              \
        NP_OPERATOR_LISTED(found, #name);                                                             \
        void (*real) parameters = np_load(found);                                                     \
        if (block == NULL) return;                                                                    \
        if (np_unlikely(real == NULL)) {                                                              \
            real = find_operator(#name);                                                              \
            np_store(found, real);                                                                    \
            if (real == NULL) {                                                                       \
                free(block);                                                                          \
                return;                                                                               \
            }                                                                                         \
        }                                                                                             \
        if (np_alloc_is_inside()) {                                                                   \
            np_alloc_nested_free(block);                                                              \
            real arguments;                                                                           \
            return;                                                                                   \
        }                                                                                             \
        np_alloc_freed(block, np_order());                                                            \
        uint64_t began = np_alloc_going();                                                            \
        np_tls.outer_block = block;                                                                   \
        np_alloc_enter();                                                                             \
        real arguments;                                                                               \
        np_alloc_leave();                                                                             \
        np_alloc_gone(block, began);                                                                  \
    }

#include "operators.h"
