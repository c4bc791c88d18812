/* allocator_go.c: where a program has the functions of Go's heap, by Go's own table of functions, which a stripped program keeps: its runtime needs it.
 *
 * The layout is that of Go 1.18 and later (runtime/symtab.go, internal/abi/symtab.go; crates/symbols/src/go_table.rs reads the same from files). Older
 * tables do not tell whether functions have their arguments in registers. The table is read in the program's memory, where the loader has put its addresses
 * in; whatever is wrong with it, there are no such functions. */
#include "allocators.h"
#include "track.h"
#include "user.h"

#include <string.h>

#define MAGIC_1_18 0xfffffff0u
#define MAGIC_1_20 0xfffffff1u
#define TABLE_BYTES_MAX (256ull << 20)
#define FUNCTIONS_MAX (4ull << 20)
#define NAME_BYTES_MAX 256u
#define POINTER_BYTES 8u

struct header {
    uint32_t magic;
    uint8_t zero[2], quantum, pointer_bytes;
    uint64_t functions, files;
    uint64_t text; /* the first address that the index counts from; 0 from Go 1.26 on */
    /* Distances from the header. */
    uint64_t names, units, file_names, values, index;
};
/* The index ends with where the code does. */
struct indexed { uint32_t entry, function; };
struct function { uint32_t entry, name; };

/* The beginning of the runtime's own description (runtime.moduledata): where its table lies, six slices, and: */
struct module { uint64_t table, slices[6 * 3], findfunctab, first, end, text; };

static bool is_known(const struct header *header, uint64_t bytes) {
    if (header->magic != MAGIC_1_18 && header->magic != MAGIC_1_20) return false;
    if (header->zero[0] != 0 || header->zero[1] != 0 || header->pointer_bytes != POINTER_BYTES || header->functions > FUNCTIONS_MAX) return false;
    return header->names < bytes && header->index < bytes && (bytes - header->index) / sizeof(struct indexed) >= header->functions;
}

/* Where the code begins that the table describes; 0: not known. */
static uint64_t text_of(const struct header *header, uint64_t table, uint64_t module_address) {
    struct module module;
    if (header->text != 0) return header->text;
    if (module_address == 0 || !np_read_guest(&module, module_address, sizeof module) || module.table != table) return 0;
    return module.text;
}

/* The text that begins there, which ends within the table; NULL: none, or one that is longer than any name looked for. Damage can have all functions name
 * the same text without an end. */
static const char *name_at(const char *data, uint64_t bytes, uint64_t at) {
    if (at >= bytes) return NULL;
    uint64_t most = bytes - at < NAME_BYTES_MAX ? bytes - at : NAME_BYTES_MAX;
    return memchr(data + at, 0, most) != NULL ? data + at : NULL;
}

static void each(const char *data, uint64_t bytes, const struct header *header, uint64_t text, np_go_taker take, void *context) {
    for (uint64_t i = 0; i < header->functions; i++) {
        struct indexed indexed;
        struct function function;
        memcpy(&indexed, data + header->index + i * sizeof indexed, sizeof indexed);
        uint64_t at = header->index + indexed.function;
        if (at > bytes - sizeof function) continue;
        memcpy(&function, data + at, sizeof function);
        const char *name = name_at(data, bytes, header->names + function.name);
        bool is_standard;
        const struct np_allocation_function *found = name != NULL ? np_allocation_function_named(name, &is_standard) : NULL;
        if (found != NULL && found->is_go) take(context, found, text + indexed.entry);
    }
}

void np_go_table_each(uint64_t table, uint64_t bytes, uint64_t module, np_go_taker take, void *context) {
    struct header header;
    if (bytes < sizeof header || bytes > TABLE_BYTES_MAX || !np_read_guest(&header, table, sizeof header) || !is_known(&header, bytes)) return;
    uint64_t text = text_of(&header, table, module);
    char *data = text != 0 ? np_pages_new(bytes) : NULL;
    if (data == NULL) return;
    if (np_read_guest(data, table, bytes)) each(data, bytes, &header, text, take, context);
    np_pages_free(data, bytes);
}
