/* alloc_new.c: C++'s operators new and delete, in all forms.
 *
 * They go on to the program's own operators (the next definition in load order, or libstdc++'s where that was loaded out of sight), so that replaced ones
 * keep working, and are recorded once, by the outermost. Without any C++ library they go to malloc. operator new may throw: the exception passes
 * through our frames, and a personality routine takes the "inside the allocator" mark back.
 */
#define _GNU_SOURCE
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

/* The operator behind ours. A library that was loaded with RTLD_LOCAL is out of RTLD_NEXT's sight. */
static NP_COLD void *find_operator(const char *name) {
    int saved = errno;
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL) {
        void *library = dlopen("libstdc++.so.6", RTLD_NOLOAD | RTLD_LAZY);
        if (library != NULL) {
            found = dlsym(library, name);
            NP_REAL(dlclose)(library);
        }
    }
    errno = saved;
    return found;
}

static NP_COLD void *without_operator(size_t bytes, size_t alignment, bool throws) {
    void *block = alignment != 0 ? aligned_alloc(alignment, bytes) : malloc(bytes != 0 ? bytes : 1);
    /* Nobody is there who could throw bad_alloc. */
    if (block == NULL && throws) abort();
    return block;
}

/* A hook for one form: its parameters, its arguments, the alignment among them, and whether it throws. */
#define NEW(name, kind, parameters, arguments, alignment, throws)                                     \
    void *name parameters;                                                                            \
    NP_EXPORT void *name parameters {                                                                 \
        static void *(*real) parameters;                                                              \
        __asm__ volatile(".cfi_personality 0x1b, np_new_personality");                                \
        if (np_unlikely(real == NULL)) real = find_operator(#name);                                   \
        if (np_unlikely(real == NULL)) {                                                              \
            if (np_tls.in_alloc) return without_operator(bytes, alignment, throws);                   \
            np_tls.in_alloc = 1;                                                                      \
            void *made = without_operator(bytes, alignment, throws);                                  \
            np_tls.in_alloc = 0;                                                                      \
            return np_alloc_made(made, bytes, kind, NP_CALLER_REGS());                                \
        }                                                                                             \
        if (np_unlikely(np_tls.in_alloc)) return np_alloc_nested(real arguments, bytes);              \
        np_tls.in_alloc = 1;                                                                          \
        __atomic_signal_fence(__ATOMIC_SEQ_CST);                                                      \
        void *block = real arguments;                                                                 \
        __atomic_signal_fence(__ATOMIC_SEQ_CST);                                                      \
        np_tls.in_alloc = 0;                                                                          \
        return np_alloc_made(block, bytes, kind, NP_CALLER_REGS());                                   \
    }

NEW(_Znwm, NP_ALLOC_NEW, (size_t bytes), (bytes), 0, true)
NEW(_Znam, NP_ALLOC_NEW_ARRAY, (size_t bytes), (bytes), 0, true)
NEW(_ZnwmRKSt9nothrow_t, NP_ALLOC_NEW, (size_t bytes, const void *tag), (bytes, tag), 0, false)
NEW(_ZnamRKSt9nothrow_t, NP_ALLOC_NEW_ARRAY, (size_t bytes, const void *tag), (bytes, tag), 0, false)
NEW(_ZnwmSt11align_val_t, NP_ALLOC_NEW, (size_t bytes, size_t alignment), (bytes, alignment), alignment, true)
NEW(_ZnamSt11align_val_t, NP_ALLOC_NEW_ARRAY, (size_t bytes, size_t alignment), (bytes, alignment), alignment, true)
NEW(_ZnwmSt11align_val_tRKSt9nothrow_t, NP_ALLOC_NEW, (size_t bytes, size_t alignment, const void *tag), (bytes, alignment, tag), alignment, false)
NEW(_ZnamSt11align_val_tRKSt9nothrow_t, NP_ALLOC_NEW_ARRAY, (size_t bytes, size_t alignment, const void *tag), (bytes, alignment, tag), alignment, false)

#define DELETE(name, parameters, arguments)                                                           \
    void name parameters;                                                                             \
    NP_EXPORT void name parameters {                                                                  \
        static void (*real) parameters;                                                               \
        if (block == NULL) return;                                                                    \
        if (np_unlikely(real == NULL) && (real = find_operator(#name)) == NULL) {                     \
            free(block);                                                                              \
            return;                                                                                   \
        }                                                                                             \
        if (np_unlikely(np_tls.in_alloc)) {                                                           \
            np_alloc_nested_free(block);                                                              \
            real arguments;                                                                           \
            return;                                                                                   \
        }                                                                                             \
        np_alloc_freed(block, np_order());                                                            \
        np_tls.outer_block = block;                                                                   \
        np_tls.in_alloc = 1;                                                                          \
        __atomic_signal_fence(__ATOMIC_SEQ_CST);                                                      \
        real arguments;                                                                               \
        __atomic_signal_fence(__ATOMIC_SEQ_CST);                                                      \
        np_tls.in_alloc = 0;                                                                          \
    }

DELETE(_ZdlPv, (void *block), (block))
DELETE(_ZdaPv, (void *block), (block))
DELETE(_ZdlPvm, (void *block, size_t bytes), (block, bytes))
DELETE(_ZdaPvm, (void *block, size_t bytes), (block, bytes))
DELETE(_ZdlPvRKSt9nothrow_t, (void *block, const void *tag), (block, tag))
DELETE(_ZdaPvRKSt9nothrow_t, (void *block, const void *tag), (block, tag))
DELETE(_ZdlPvSt11align_val_t, (void *block, size_t alignment), (block, alignment))
DELETE(_ZdaPvSt11align_val_t, (void *block, size_t alignment), (block, alignment))
DELETE(_ZdlPvmSt11align_val_t, (void *block, size_t bytes, size_t alignment), (block, bytes, alignment))
DELETE(_ZdaPvmSt11align_val_t, (void *block, size_t bytes, size_t alignment), (block, bytes, alignment))
DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t, (void *block, size_t alignment, const void *tag), (block, alignment, tag))
DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t, (void *block, size_t alignment, const void *tag), (block, alignment, tag))
