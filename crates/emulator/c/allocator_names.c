/* allocator_names.c: names of allocation functions, and what their arguments mean.
 *
 * jemalloc's build gives all its public functions a prefix of the builder's choice; known are those of its manual, of Redis, of Rust's crates and of DuckDB.
 * Not followed: functions that change a block where it is (xallocx, mi_expand), and those that give back many at once (mi_heap_destroy). */
#include "allocators.h"
#include "wire.h"

#include <string.h>

#define NONE NP_NO_ARGUMENT
#define MAKES(name, bytes) {name, NP_EFFECT_MAKES, NP_ALLOC_MALLOC, NONE, bytes, NONE, false}
#define ALIGNS(name, bytes) {name, NP_EFFECT_MAKES, NP_ALLOC_ALIGNED, NONE, bytes, NONE, false}
#define CLEARS(name, bytes, count) {name, NP_EFFECT_MAKES, NP_ALLOC_CALLOC, NONE, bytes, count, false}
#define MAKES_MANY(name, bytes, count) {name, NP_EFFECT_MAKES, NP_ALLOC_MALLOC, NONE, bytes, count, false}
#define STORES(name, bytes) {name, NP_EFFECT_STORES, NP_ALLOC_ALIGNED, 0, bytes, NONE, false}
#define RESIZES(name, block, bytes, count) {name, NP_EFFECT_RESIZES, NP_ALLOC_REALLOC, block, bytes, count, false}
#define NEW(name) {name, NP_EFFECT_MAKES, NP_ALLOC_NEW, NONE, 0, NONE, false}
#define NEW_ARRAY(name) {name, NP_EFFECT_MAKES, NP_ALLOC_NEW_ARRAY, NONE, 0, NONE, false}
#define FREES(name) {name, NP_EFFECT_FREES, NP_ALLOC_MALLOC, 0, NONE, NONE, false}

/* malloc's family: in an executable that replaces it, and behind a prefix of jemalloc's. malloc comes first. */
static const struct np_allocation_function standard[] = {
    MAKES("malloc", 0), CLEARS("calloc", 1, 0), RESIZES("realloc", 0, 1, NONE), RESIZES("reallocarray", 0, 2, 1), FREES("free"), FREES("cfree"),
    FREES("free_sized"), FREES("free_aligned_sized"), ALIGNS("aligned_alloc", 1), ALIGNS("memalign", 1), STORES("posix_memalign", 2),
    ALIGNS("valloc", 0), ALIGNS("pvalloc", 0),
};

static const struct np_allocation_function operators[] = {
    NEW("_Znwm"), NEW("_ZnwmRKSt9nothrow_t"), NEW("_ZnwmSt11align_val_t"), NEW("_ZnwmSt11align_val_tRKSt9nothrow_t"),
    NEW_ARRAY("_Znam"), NEW_ARRAY("_ZnamRKSt9nothrow_t"), NEW_ARRAY("_ZnamSt11align_val_t"), NEW_ARRAY("_ZnamSt11align_val_tRKSt9nothrow_t"),
    FREES("_ZdlPv"), FREES("_ZdlPvm"), FREES("_ZdlPvRKSt9nothrow_t"), FREES("_ZdlPvSt11align_val_t"), FREES("_ZdlPvmSt11align_val_t"),
    FREES("_ZdlPvSt11align_val_tRKSt9nothrow_t"),
    FREES("_ZdaPv"), FREES("_ZdaPvm"), FREES("_ZdaPvRKSt9nothrow_t"), FREES("_ZdaPvSt11align_val_t"), FREES("_ZdaPvmSt11align_val_t"),
    FREES("_ZdaPvSt11align_val_tRKSt9nothrow_t"),
};

/* What jemalloc offers besides, with a prefix or without. */
static const struct np_allocation_function jemalloc[] = {
    MAKES("mallocx", 0), RESIZES("rallocx", 0, 1, NONE), FREES("dallocx"), FREES("sdallocx"),
};
static const char *const prefixes[] = {"je_", "_rjem_", "rjem_", "duckdb_je_", "jemalloc_"};

static const struct np_allocation_function own[] = {
    /* gperftools' tcmalloc */
    MAKES("tc_malloc", 0), MAKES("tc_malloc_skip_new_handler", 0), CLEARS("tc_calloc", 1, 0), RESIZES("tc_realloc", 0, 1, NONE),
    ALIGNS("tc_memalign", 1), STORES("tc_posix_memalign", 2), ALIGNS("tc_valloc", 0), ALIGNS("tc_pvalloc", 0),
    FREES("tc_free"), FREES("tc_free_sized"), FREES("tc_cfree"),
    NEW("tc_new"), NEW("tc_new_nothrow"), NEW("tc_new_aligned"), NEW("tc_new_aligned_nothrow"),
    NEW_ARRAY("tc_newarray"), NEW_ARRAY("tc_newarray_nothrow"), NEW_ARRAY("tc_newarray_aligned"), NEW_ARRAY("tc_newarray_aligned_nothrow"),
    FREES("tc_delete"), FREES("tc_delete_sized"), FREES("tc_delete_nothrow"), FREES("tc_delete_aligned"), FREES("tc_delete_sized_aligned"),
    FREES("tc_delete_aligned_nothrow"),
    FREES("tc_deletearray"), FREES("tc_deletearray_sized"), FREES("tc_deletearray_nothrow"), FREES("tc_deletearray_aligned"),
    FREES("tc_deletearray_sized_aligned"), FREES("tc_deletearray_aligned_nothrow"),
    /* mimalloc */
    MAKES("mi_malloc", 0), MAKES("mi_malloc_small", 0), CLEARS("mi_zalloc", 0, NONE), CLEARS("mi_zalloc_small", 0, NONE), CLEARS("mi_calloc", 1, 0),
    MAKES_MANY("mi_mallocn", 1, 0), RESIZES("mi_realloc", 0, 1, NONE), RESIZES("mi_reallocf", 0, 1, NONE), RESIZES("mi_reallocn", 0, 2, 1),
    RESIZES("mi_reallocarray", 0, 2, 1), RESIZES("mi_rezalloc", 0, 1, NONE), RESIZES("mi_recalloc", 0, 2, 1),
    ALIGNS("mi_malloc_aligned", 0), ALIGNS("mi_malloc_aligned_at", 0), ALIGNS("mi_zalloc_aligned", 0), ALIGNS("mi_zalloc_aligned_at", 0),
    CLEARS("mi_calloc_aligned", 1, 0), CLEARS("mi_calloc_aligned_at", 1, 0), RESIZES("mi_realloc_aligned", 0, 1, NONE),
    RESIZES("mi_realloc_aligned_at", 0, 1, NONE), RESIZES("mi_rezalloc_aligned", 0, 1, NONE), ALIGNS("mi_aligned_alloc", 1), ALIGNS("mi_memalign", 1),
    STORES("mi_posix_memalign", 2), ALIGNS("mi_valloc", 0), ALIGNS("mi_pvalloc", 0), MAKES("mi_heap_malloc", 1), MAKES("mi_heap_malloc_small", 1),
    CLEARS("mi_heap_zalloc", 1, NONE), CLEARS("mi_heap_calloc", 2, 1), RESIZES("mi_heap_realloc", 1, 2, NONE), ALIGNS("mi_heap_malloc_aligned", 1),
    NEW("mi_new"), NEW("mi_new_nothrow"), NEW("mi_new_aligned"), NEW("mi_new_aligned_nothrow"), {"mi_new_n", NP_EFFECT_MAKES, NP_ALLOC_NEW, NONE, 1, 0, false},
    RESIZES("mi_new_realloc", 0, 1, NONE), RESIZES("mi_new_reallocn", 0, 2, 1),
    FREES("mi_free"), FREES("mi_cfree"), FREES("mi_free_size"), FREES("mi_free_size_aligned"), FREES("mi_free_aligned"),
};

/* Go's heap, since its functions take their arguments in registers (Go 1.17): mallocgc(bytes, type, clear). Blocks are given back by the collector, a page of
 * them at a time. */
static const struct np_allocation_function go[] = {{"runtime.mallocgc", NP_EFFECT_MAKES, NP_ALLOC_MALLOC, NONE, 0, NONE, true}};
/* With the same arguments: what the compiler calls in its place for one size or class of sizes, whose number ends the name (Go 1.26, of programs built with
 * GOEXPERIMENT=sizespecializedmalloc; runtime/malloc_generated.go). */
static const char *const go_sized[] = {"runtime.mallocgcSmallScanNoHeaderSC", "runtime.mallocgcSmallNoScanSC", "runtime.mallocgcTinySize"};

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const struct np_allocation_function *in(const struct np_allocation_function *list, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i].name, name) == 0) return &list[i];
    return NULL;
}

static const struct np_allocation_function *behind_prefix(const char *name) {
    for (size_t i = 0; i < COUNT(prefixes); i++) {
        size_t length = strlen(prefixes[i]);
        if (strncmp(name, prefixes[i], length) != 0) continue;
        const struct np_allocation_function *found = in(standard, COUNT(standard), name + length);
        if (found == NULL) found = in(jemalloc, COUNT(jemalloc), name + length);
        if (found != NULL) return found;
    }
    return NULL;
}

static const struct np_allocation_function *of_go(const char *name) {
    for (size_t i = 0; i < COUNT(go_sized); i++) {
        size_t length = strlen(go_sized[i]);
        if (strncmp(name, go_sized[i], length) == 0 && name[length] != 0 && strspn(name + length, "0123456789") == strlen(name + length)) return &go[0];
    }
    return in(go, COUNT(go), name);
}

const struct np_allocation_function *np_allocation_function_named(const char *name, bool *is_standard) {
    const struct np_allocation_function *found = in(standard, COUNT(standard), name);
    if (found == NULL) found = in(operators, COUNT(operators), name);
    *is_standard = found != NULL;
    if (found == NULL) found = behind_prefix(name);
    if (found == NULL) found = in(jemalloc, COUNT(jemalloc), name);
    if (found == NULL) found = of_go(name);
    return found != NULL ? found : in(own, COUNT(own), name);
}

bool np_is_malloc(const struct np_allocation_function *function) { return function == &standard[0]; }
