/* allocator_symbols.c: where a mapped ELF file has allocation functions: by its symbol table, else by that of its separate debug file, else by the symbols that
 * it offers to the loader; those of Go's heap also by Go's own table.
 *
 * The file is read, not mapped: another program may cut it short at any time, and nothing here may fault. Whatever is wrong with it, it has no such
 * functions. */
#define _GNU_SOURCE
#include "allocators.h"
#include "track.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEGMENTS_MAX 64u
#define SECTIONS_MAX 4096u
#define DYNAMIC_MAX 128u
#define SYMBOLS_AT_ONCE 1024u
#define NAMES_BYTES_MAX (256ull << 20)
/* Go's linker gives functions with arguments on the stack names like this where others have theirs in registers. */
#define GO_STACK_FUNCTION "runtime.goexit.abi0"

struct file {
    int fd;
    Elf64_Ehdr header;
    Elf64_Phdr segments[SEGMENTS_MAX];
};

struct search {
    const struct file *file;
    uint64_t lo, hi, offset; /* of the mapping */
    struct np_allocator_entry *found;
    unsigned room, count;
    bool is_program, has_malloc, has_go_registers;
};

static bool read_at(int fd, void *to, size_t bytes, uint64_t offset) {
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(fd, (char *)to + done, bytes - done, (off_t)(offset + done));
        if (got == 0 || (got < 0 && errno != EINTR)) return false;
        if (got > 0) done += (size_t)got;
    }
    return true;
}

static bool read_headers(struct file *file) {
    const Elf64_Ehdr *header = &file->header;
    if (!read_at(file->fd, &file->header, sizeof file->header, 0) || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return false;
    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_machine != EM_X86_64) return false;
    if (header->e_phentsize != sizeof(Elf64_Phdr) || header->e_phnum > SEGMENTS_MAX) return false;
    if (header->e_shentsize != sizeof(Elf64_Shdr) || header->e_shnum > SECTIONS_MAX) return false;
    return read_at(file->fd, file->segments, header->e_phnum * sizeof *file->segments, header->e_phoff);
}

static bool has_library_name(const struct file *file, const Elf64_Phdr *dynamic) {
    Elf64_Dyn entries[DYNAMIC_MAX];
    size_t count = dynamic->p_filesz / sizeof *entries;
    if (count > DYNAMIC_MAX) count = DYNAMIC_MAX;
    if (!read_at(file->fd, entries, count * sizeof *entries, dynamic->p_offset)) return false;
    for (size_t i = 0; i < count && entries[i].d_tag != DT_NULL; i++)
        if (entries[i].d_tag == DT_SONAME) return true;
    return false;
}

/* An executable. One that can be loaded anywhere looks like a library, and some libraries can be run (the C library): these have a library's name. */
static bool is_program(const struct file *file) {
    bool has_interpreter = false, is_library = false;
    if (file->header.e_type == ET_EXEC) return true;
    for (unsigned i = 0; i < file->header.e_phnum; i++) {
        if (file->segments[i].p_type == PT_INTERP) has_interpreter = true;
        if (file->segments[i].p_type == PT_DYNAMIC) is_library = has_library_name(file, &file->segments[i]);
    }
    return has_interpreter && !is_library;
}

/* Where the mapping has what the file's headers give this address; 0: it is not in the mapping. */
static uint64_t address_of(const struct search *search, uint64_t value) {
    const struct file *file = search->file;
    for (unsigned i = 0; i < file->header.e_phnum; i++) {
        const Elf64_Phdr *segment = &file->segments[i];
        if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X) || value - segment->p_vaddr >= segment->p_filesz) continue;
        uint64_t at = value - segment->p_vaddr + segment->p_offset - search->offset;
        return at < search->hi - search->lo ? search->lo + at : 0;
    }
    return 0;
}

static void add(struct search *search, uint64_t address, const struct np_allocation_function *function, bool is_standard) {
    for (unsigned i = 0; i < search->count; i++)
        if (search->found[i].address == address) return; /* another name of it */
    if (search->count < search->room) search->found[search->count++] = (struct np_allocator_entry){address, function, is_standard};
}

static void take(struct search *search, const Elf64_Sym *symbol, const char *name) {
    if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || symbol->st_shndx == SHN_UNDEF) return;
    bool is_standard;
    const struct np_allocation_function *function = np_allocation_function_named(name, &is_standard);
    if (function == NULL) {
        if (strcmp(name, GO_STACK_FUNCTION) == 0) search->has_go_registers = true;
        return;
    }
    /* A function of that name that is the file's own affair replaces nothing. */
    if (is_standard && (!search->is_program || ELF64_ST_BIND(symbol->st_info) == STB_LOCAL)) return;
    uint64_t address = address_of(search, symbol->st_value);
    if (address == 0) return;
    if (is_standard && np_is_malloc(function)) search->has_malloc = true;
    add(search, address, function, is_standard);
}

static void take_all(struct search *search, int fd, const Elf64_Shdr *table, const char *names, uint64_t names_bytes, Elf64_Sym *symbols) {
    uint64_t count = table->sh_size / sizeof *symbols;
    for (uint64_t first = 0; first < count; first += SYMBOLS_AT_ONCE) {
        uint64_t some = count - first < SYMBOLS_AT_ONCE ? count - first : SYMBOLS_AT_ONCE;
        if (!read_at(fd, symbols, some * sizeof *symbols, table->sh_offset + first * sizeof *symbols)) return;
        for (uint64_t i = 0; i < some; i++)
            if (symbols[i].st_name < names_bytes) take(search, &symbols[i], names + symbols[i].st_name);
    }
}

static bool section_at(const struct file *file, uint32_t index, Elf64_Shdr *section) {
    return index < file->header.e_shnum && read_at(file->fd, section, sizeof *section, file->header.e_shoff + (uint64_t)index * sizeof *section);
}

/* From the file of the mapping, or its debug file. False: it has no such table. */
static bool take_table(struct search *search, const struct file *file, uint32_t type) {
    Elf64_Shdr table, names;
    uint32_t index = 0;
    while (index < file->header.e_shnum && !(section_at(file, index, &table) && table.sh_type == type)) index++;
    if (index == file->header.e_shnum || table.sh_entsize != sizeof(Elf64_Sym) || !section_at(file, table.sh_link, &names)) return false;
    if (names.sh_type != SHT_STRTAB || names.sh_size > NAMES_BYTES_MAX) return false;
    /* One byte more than the names: the last one ends, too. */
    size_t text_bytes = names.sh_size + 1, symbol_bytes = SYMBOLS_AT_ONCE * sizeof(Elf64_Sym);
    char *text = np_pages_new(text_bytes);
    Elf64_Sym *symbols = np_pages_new(symbol_bytes);
    bool is_read = text != NULL && symbols != NULL && read_at(file->fd, text, names.sh_size, names.sh_offset);
    if (is_read) take_all(search, file->fd, &table, text, names.sh_size, symbols);
    if (text != NULL) np_pages_free(text, text_bytes);
    if (symbols != NULL) np_pages_free(symbols, symbol_bytes);
    return is_read;
}

/* A section that is in memory. */
#define SECTION_NAME_BYTES 32u
static bool section_named(const struct file *file, uint32_t type, const char *name, Elf64_Shdr *section) {
    Elf64_Shdr names;
    char own[SECTION_NAME_BYTES];
    size_t bytes = strlen(name) + 1;
    if (bytes > sizeof own || !section_at(file, file->header.e_shstrndx, &names)) return false;
    for (uint32_t i = 0; i < file->header.e_shnum && section_at(file, i, section); i++) {
        if (section->sh_type != type || !(section->sh_flags & SHF_ALLOC)) continue;
        if (read_at(file->fd, own, bytes, names.sh_offset + section->sh_name) && memcmp(own, name, bytes) == 0) return true;
    }
    return false;
}

/* -- separate debug files: by build id, in the folders in which crates/symbols/src/separate.rs looks, too -- */

#define DEBUG_FOLDERS "NUMAPILOT_DEBUG_DIRS"
#define DEBUG_FOLDER "/usr/lib/debug"
#define BUILD_ID ".note.gnu.build-id"
#define BUILD_ID_MAX 32u
#define PATH_BYTES 4096u
struct build_id { Elf64_Nhdr note; char owner[4]; uint8_t bytes[BUILD_ID_MAX]; };

/* Its length in bytes; 0: the file has none. */
static uint32_t read_build_id(const struct file *file, struct build_id *id) {
    Elf64_Shdr section;
    size_t before = sizeof *id - BUILD_ID_MAX;
    if (!section_named(file, SHT_NOTE, BUILD_ID, &section) || section.sh_size <= before) return 0;
    size_t bytes = section.sh_size < sizeof *id ? section.sh_size : sizeof *id;
    if (!read_at(file->fd, id, bytes, section.sh_offset)) return 0;
    if (id->note.n_type != NT_GNU_BUILD_ID || id->note.n_namesz != sizeof id->owner || memcmp(id->owner, ELF_NOTE_GNU, sizeof id->owner) != 0) return 0;
    return id->note.n_descsz > 1 && id->note.n_descsz <= bytes - before ? id->note.n_descsz : 0;
}

/* The debug file in this folder, opened. False: there is none, or it is of another build. */
static bool open_debug_file(struct file *debug, const char *folder, size_t folder_bytes, const struct build_id *id, uint32_t id_bytes) {
    char hex[2 * BUILD_ID_MAX + 1], path[PATH_BYTES];
    struct build_id own;
    for (uint32_t i = 0; i < id_bytes; i++) snprintf(hex + 2 * i, 3, "%02x", id->bytes[i]);
    int length = snprintf(path, sizeof path, "%.*s/.build-id/%.2s/%s.debug", (int)folder_bytes, folder, hex, hex + 2);
    if (folder_bytes >= sizeof path || length < 0 || (size_t)length >= sizeof path) return false;
    debug->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (debug->fd < 0) return false;
    if (read_headers(debug) && read_build_id(debug, &own) == id_bytes && memcmp(own.bytes, id->bytes, id_bytes) == 0) return true;
    close(debug->fd);
    return false;
}

static bool take_debug_symbols(struct search *search) {
    struct build_id id;
    struct file debug;
    bool is_taken = false;
    uint32_t id_bytes = read_build_id(search->file, &id);
    const char *at = getenv(DEBUG_FOLDERS);
    if (at == NULL) at = DEBUG_FOLDER;
    while (id_bytes != 0 && !is_taken && *at != 0) {
        size_t length = strcspn(at, ":");
        if (length != 0 && open_debug_file(&debug, at, length, &id, id_bytes)) {
            is_taken = take_table(search, &debug, SHT_SYMTAB);
            close(debug.fd);
        }
        at += length + (at[length] != 0);
    }
    return is_taken;
}

/* -- Go -- */

/* Linkers write the table among constants, or, where its addresses are the loader's to fill in, among what is constant from then on. */
static const char *const go_tables[] = {".gopclntab", ".data.rel.ro.gopclntab"};
#define GO_MODULE ".go.module"

/* What is added to the addresses in the file's headers. False: the mapping is of no code. */
static bool find_bias(const struct search *search, uint64_t *bias) {
    const struct file *file = search->file;
    for (unsigned i = 0; i < file->header.e_phnum; i++) {
        const Elf64_Phdr *segment = &file->segments[i];
        if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X)) continue;
        if (segment->p_offset + segment->p_filesz <= search->offset || segment->p_offset >= search->offset + (search->hi - search->lo)) continue;
        *bias = search->lo - search->offset + segment->p_offset - segment->p_vaddr;
        return true;
    }
    return false;
}

static void take_go(void *context, const struct np_allocation_function *function, uint64_t address) {
    struct search *search = context;
    if (address - search->lo >= search->hi - search->lo) return;
    search->has_go_registers = true;
    add(search, address, function, false);
}

static void take_go_table(struct search *search) {
    Elf64_Shdr table, module;
    uint64_t bias;
    for (unsigned i = 0; i < search->count; i++)
        if (search->found[i].function->is_go) return;
    unsigned kind = 0;
    while (kind < sizeof go_tables / sizeof *go_tables && !section_named(search->file, SHT_PROGBITS, go_tables[kind], &table)) kind++;
    if (kind == sizeof go_tables / sizeof *go_tables || !find_bias(search, &bias)) return;
    bool has_module = section_named(search->file, SHT_PROGBITS, GO_MODULE, &module);
    np_go_table_each(bias + table.sh_addr, table.sh_size, has_module ? bias + module.sh_addr : 0, take_go, search);
}

/* Without a malloc of its own an executable's other functions of these names are no allocator's; and arguments must be where they are looked for. */
static unsigned keep_sound(const struct search *search) {
    unsigned kept = 0;
    for (unsigned i = 0; i < search->count; i++) {
        const struct np_allocator_entry *entry = &search->found[i];
        if ((!entry->is_standard || search->has_malloc) && (!entry->function->is_go || search->has_go_registers)) search->found[kept++] = *entry;
    }
    return kept;
}

unsigned np_allocators_in_file(const char *path, uint64_t lo, uint64_t hi, uint64_t offset, struct np_allocator_entry *found, unsigned room) {
    struct file file = {.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
    if (file.fd < 0) return 0;
    struct search search = {.file = &file, .lo = lo, .hi = hi, .offset = offset, .found = found, .room = room};
    if (read_headers(&file)) {
        search.is_program = is_program(&file);
        if (!take_table(&search, &file, SHT_SYMTAB) && !take_debug_symbols(&search)) take_table(&search, &file, SHT_DYNSYM);
        take_go_table(&search);
    }
    close(file.fd);
    return keep_sound(&search);
}
