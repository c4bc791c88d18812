/* operators.h: every form of C++'s operators new and delete, by its symbol, as lists of macro calls (included with NEW or DELETE defined); and how to find
 * the operator behind a hook. */
#ifdef NEW
/* symbol, is it the array's, parameters, arguments, alignment among them, does it throw */
NEW(_Znwm, false, (size_t bytes), (bytes), 0, true)
NEW(_Znam, true, (size_t bytes), (bytes), 0, true)
NEW(_ZnwmRKSt9nothrow_t, false, (size_t bytes, const void *tag), (bytes, tag), 0, false)
NEW(_ZnamRKSt9nothrow_t, true, (size_t bytes, const void *tag), (bytes, tag), 0, false)
NEW(_ZnwmSt11align_val_t, false, (size_t bytes, size_t alignment), (bytes, alignment), alignment, true)
NEW(_ZnamSt11align_val_t, true, (size_t bytes, size_t alignment), (bytes, alignment), alignment, true)
NEW(_ZnwmSt11align_val_tRKSt9nothrow_t, false, (size_t bytes, size_t alignment, const void *tag), (bytes, alignment, tag), alignment, false)
NEW(_ZnamSt11align_val_tRKSt9nothrow_t, true, (size_t bytes, size_t alignment, const void *tag), (bytes, alignment, tag), alignment, false)
#undef NEW
#endif

#ifdef DELETE
/* symbol, parameters, arguments */
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
#undef DELETE
#endif

#ifndef NP_OPERATORS_H
#define NP_OPERATORS_H
#include "np.h"

#include <dlfcn.h>
#include <errno.h>

/* Lists where an operator behind ours is kept. */
#define NP_OPERATOR_LISTED(place, name) NP_LISTED_IN("np_operators", place, name, NULL)
extern const struct np_real_place *np_begin_operators[] __asm__("__start_np_operators") NP_HIDDEN;
extern const struct np_real_place *np_end_operators[] __asm__("__stop_np_operators") NP_HIDDEN;

/* The operator behind ours. A library that was loaded with RTLD_LOCAL is out of RTLD_NEXT's sight. NULL: there is none. Keeps errno.
 * With the first all others are found: their library is there now, and another thread may not be able to wait for the loader (startup.c). */
static NP_COLD void *np_find_operator(const char *name, int (*close_library)(void *)) {
    static uint32_t has_all;
    int saved = errno;
    void *found = dlsym(RTLD_NEXT, name);
    void *library = found == NULL ? dlopen("libstdc++.so.6", RTLD_NOLOAD | RTLD_LAZY) : NULL;
    if (library != NULL) found = dlsym(library, name);
    if (found != NULL && !__atomic_exchange_n(&has_all, 1, __ATOMIC_RELAXED))
        for (const struct np_real_place **at = np_begin_operators; at < np_end_operators; at++)
            if (np_load(*(*at)->place) == NULL) np_store(*(*at)->place, dlsym(library != NULL ? library : RTLD_NEXT, (*at)->name));
    if (library != NULL) close_library(library);
    errno = saved;
    return found;
}
#endif
