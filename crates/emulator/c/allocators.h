/* allocators.h: allocation functions that a program carries itself: under names of their own (je_malloc, mi_malloc, tc_malloc, _rjem_malloc), or as a malloc
 * of the executable, which is called in place of the tracker's hook.
 *
 *   allocator_names.c    which functions these are, by name, and what their arguments mean
 *   allocator_symbols.c  where a mapped file has them, by its symbol table
 *   allocator_go.c       the same by Go's own table of functions, of a program without symbols
 *   allocators.c         their calls and returns in the emulated program, and the records of the blocks */
#ifndef NUMAPILOT_ALLOCATORS_H
#define NUMAPILOT_ALLOCATORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

enum np_allocation_effect {
    NP_EFFECT_MAKES,   /* returns a new block */
    NP_EFFECT_STORES,  /* returns 0 and stores the new block's address, or something else */
    NP_EFFECT_RESIZES, /* gives a block back and returns a new one, maybe at the same place */
    NP_EFFECT_FREES,
};
#define NP_NO_ARGUMENT 0xffu

struct np_allocation_function {
    const char *name;
    uint8_t effect; /* enum np_allocation_effect */
    uint8_t kind;   /* enum np_alloc_kind */
    /* Numbers of arguments, from 0: the block that is given back or resized, or where the new one is stored; bytes; what multiplies these. */
    uint8_t block, bytes, count;
    bool is_go; /* of Go's heap: arguments in Go's registers, and nobody gives blocks back */
};

/* The function of this name, or NULL. *is_standard: the name is one of malloc's own family or of C++'s operators, which count only in an executable that
 * replaces malloc: everywhere else the tracker's hooks stand before them. */
const struct np_allocation_function *np_allocation_function_named(const char *name, bool *is_standard);
/* It is malloc itself. */
bool np_is_malloc(const struct np_allocation_function *function);

struct np_allocator_entry {
    uint64_t address; /* of its first instruction */
    const struct np_allocation_function *function;
    bool is_standard;
};

/* Allocation functions in the part of the file at `path` that is mapped to [lo, hi), from `offset` on. Their number, at most `room`. */
unsigned np_allocators_in_file(const char *path, uint64_t lo, uint64_t hi, uint64_t offset, struct np_allocator_entry *found, unsigned room);

/* Shows each function of Go's heap that Go's table of functions names, with its address. `table`: where the program has it, of so many bytes; `module`: where
 * it has the runtime's description of itself, or 0. */
typedef void (*np_go_taker)(void *context, const struct np_allocation_function *function, uint64_t address);
void np_go_table_each(uint64_t table, uint64_t bytes, uint64_t module, np_go_taker take, void *context);

#pragma GCC visibility pop
#endif
