/* plan_bind.c: libraries that are loaded with RTLD_DEEPBIND.
 *
 * Their calls of free go to the C library's own, past ours, which aborts when it is given a block of a rule ("free(): invalid pointer"). So what takes
 * blocks (free, realloc, ...) is bound to ours in them, once they are loaded. The loader searches a library relative to its caller, which it knows by the
 * return address; a hook of dlopen must not stand in between, and so cannot see the end of a load. It takes note and jumps on; the libraries are looked
 * at before the program can ask for a function of theirs (dlsym), and at the next load. Under a recording the tracker stands before us: it passes loads on,
 * tells of searches, and what is bound is bound to its functions, which come to ours.
 */
#define _GNU_SOURCE
#include "plan.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__x86_64__)
enum { SLOT = R_X86_64_JUMP_SLOT, ENTRY = R_X86_64_GLOB_DAT, WORD = R_X86_64_64 };
#else
enum { SLOT = R_AARCH64_JUMP_SLOT, ENTRY = R_AARCH64_GLOB_DAT, WORD = R_AARCH64_ABS64 };
#endif

/* `real`: the definition behind ours; the first one's says that all are there. Without cfree, with which nothing has been linked for years: a lookup that
 * fails leaves a message in the heap. */
static struct { const char *name; uintptr_t ours, real; } takers[] = {
    {"free", 0, 0}, {"realloc", 0, 0}, {"reallocarray", 0, 0}, {"malloc_usable_size", 0, 0},
};
#define MOST_TRIES 1000u
#define TAKERS (sizeof takers / sizeof takers[0])

static bool is_deep;   /* a library was loaded so, or is being loaded */
static uint64_t seen_adds;

struct image {
    uintptr_t bias, low, high, relro_low, relro_high;
    const ElfW(Sym) *symbols;
    const char *strings;
    const ElfW(Rela) *tables[2];
    size_t bytes[2];
};
/* Where the tracker is loaded, if it is: it stands before us, and what it is given it records and passes on. */
extern char numapilot_tracker_callouts[] __attribute__((weak, visibility("default")));
static struct np_own_range tracker;

static bool is_of_us(uintptr_t function) {
    return (function >= np_own.lo && function < np_own.hi) || (function >= tracker.lo && function < tracker.hi);
}

struct looking { uint64_t adds; bool has_other_allocator, is_unfinished; };

/* -- one library -- */

/* glibc has made addresses of these numbers; in the kernel's own image it has not, and read_image refuses that. */
static void read_dynamic(struct image *image, const ElfW(Dyn) *dynamic) {
    for (; dynamic->d_tag != DT_NULL; dynamic++) {
        uintptr_t value = dynamic->d_un.d_ptr;
        switch (dynamic->d_tag) {
        case DT_SYMTAB: image->symbols = (const void *)value; break;
        case DT_STRTAB: image->strings = (const void *)value; break;
        case DT_RELA: image->tables[0] = (const void *)value; break;
        case DT_RELASZ: image->bytes[0] = value; break;
        case DT_JMPREL: image->tables[1] = (const void *)value; break;
        case DT_PLTRELSZ: image->bytes[1] = value; break;
        }
    }
}

static bool read_image(struct image *image, const struct dl_phdr_info *info) {
    *image = (struct image){.bias = info->dlpi_addr, .low = UINTPTR_MAX};
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t low = info->dlpi_addr + segment->p_vaddr, high = low + segment->p_memsz;
        if (segment->p_type == PT_LOAD && low < image->low) image->low = low;
        if (segment->p_type == PT_LOAD && high > image->high) image->high = high;
        if (segment->p_type == PT_GNU_RELRO) {
            image->relro_low = low & -np_page_bytes();
            image->relro_high = high & -np_page_bytes();
        }
        if (segment->p_type == PT_DYNAMIC) read_dynamic(image, (const void *)low);
    }
    bool is_own = image->low <= (uintptr_t)takers && (uintptr_t)takers < image->high;
    return !is_own && (uintptr_t)image->symbols >= image->low && (uintptr_t)image->symbols < image->high && image->strings != NULL;
}

struct page { uintptr_t address; bool is_writable; };
static bool holds_page(const struct np_maps_line *line, void *context) {
    struct page *page = context;
    if (page->address < line->lo || page->address >= line->hi) return true;
    page->is_writable = line->perms[1] == 'w';
    return false;
}

/* False: not now, or the kernel refused. What the loader protects once it is done with a library, and is writable, it is at work on. */
static bool bind_to(const struct image *image, uintptr_t *slot, uintptr_t target) {
    uintptr_t at = (uintptr_t)slot;
    if (at < image->relro_low || at >= image->relro_high) {
        __atomic_store_n(slot, target, __ATOMIC_RELAXED);
        return true;
    }
    if (np_is_confined) return false; /* bound before, unless it was loaded since: then its calls of free stay the C library's */
    struct page page = {at, true};
    np_maps_each(holds_page, &page);
    if (page.is_writable || NP_SYS3(SYS_mprotect, at & -np_page_bytes(), np_page_bytes(), PROT_READ | PROT_WRITE) != 0) return false;
    __atomic_store_n(slot, target, __ATOMIC_RELAXED);
    NP_SYS3(SYS_mprotect, at & -np_page_bytes(), np_page_bytes(), PROT_READ);
    return true;
}

static void bind_one(const struct image *image, const ElfW(Rela) *entry, struct looking *all) {
    uint32_t type = ELF64_R_TYPE(entry->r_info);
    if (type != SLOT && type != ENTRY && type != WORD) return;
    const ElfW(Sym) *symbol = &image->symbols[ELF64_R_SYM(entry->r_info)];
    if (symbol->st_shndx != SHN_UNDEF || symbol->st_name == 0) return;
    uintptr_t *slot = (uintptr_t *)(image->bias + entry->r_offset);
    uintptr_t now = __atomic_load_n(slot, __ATOMIC_RELAXED);
    /* A call that was not bound yet leads into the library's own table of calls. */
    bool is_unbound = type == SLOT && now >= image->low && now < image->high;
    for (unsigned i = 0; i < TAKERS; i++) {
        if (now != takers[i].real && (!is_unbound || all->has_other_allocator)) continue;
        if (takers[i].real == 0 || strcmp(image->strings + symbol->st_name, takers[i].name) != 0) continue;
        if (!bind_to(image, slot, takers[i].ours)) all->is_unfinished = true;
    }
}

static int bind_library(struct dl_phdr_info *info, size_t bytes, void *context) {
    (void)bytes;
    struct image image;
    if (!read_image(&image, info)) return 0;
    for (unsigned table = 0; table < 2; table++)
        for (size_t i = 0; image.tables[table] != NULL && i < image.bytes[table] / sizeof(ElfW(Rela)); i++)
            bind_one(&image, &image.tables[table][i], context);
    return 0;
}

/* -- all libraries -- */

/* Whose calls of free might go to a third allocator is left alone until they are bound. */
static int look_for_allocators(struct dl_phdr_info *info, size_t bytes, void *context) {
    struct looking *all = context;
    if (bytes >= sizeof *info) all->adds = info->dlpi_adds;
    struct image image;
    if (!read_image(&image, info)) return 0;
    for (unsigned table = 0; table < 2; table++) {
        for (size_t i = 0; image.tables[table] != NULL && i < image.bytes[table] / sizeof(ElfW(Rela)); i++) {
            if (ELF64_R_TYPE(image.tables[table][i].r_info) != SLOT && ELF64_R_TYPE(image.tables[table][i].r_info) != ENTRY) continue;
            const ElfW(Sym) *symbol = &image.symbols[ELF64_R_SYM(image.tables[table][i].r_info)];
            bool is_free = symbol->st_name != 0 && strcmp(image.strings + symbol->st_name, "free") == 0;
            uintptr_t now = is_free ? *(uintptr_t *)(image.bias + image.tables[table][i].r_offset) : 0;
            bool is_known = now == takers[0].ours || now == takers[0].real || is_of_us(now);
            if (is_free && !is_known && (symbol->st_shndx != SHN_UNDEF || now < image.low || now >= image.high)) all->has_other_allocator = true;
        }
    }
    return 0;
}

static int count_adds(struct dl_phdr_info *info, size_t bytes, void *context) {
    if (bytes >= sizeof *info) *(uint64_t *)context = info->dlpi_adds;
    return 1;
}

static NP_COLD void bind_new_libraries(void) {
    uint64_t adds = 0;
    dl_iterate_phdr(count_adds, &adds);
    if (adds != 0 && adds == __atomic_load_n(&seen_adds, __ATOMIC_RELAXED)) return;
    struct looking all = {0};
    dl_iterate_phdr(look_for_allocators, &all);
    dl_iterate_phdr(bind_library, &all);
    /* What the kernel refuses for good is not tried for ever. */
    static uint32_t tries;
    if (!all.is_unfinished || __atomic_add_fetch(&tries, 1, __ATOMIC_RELAXED) > MOST_TRIES) __atomic_store_n(&seen_adds, all.adds, __ATOMIC_RELAXED);
}

static int find_tracker(struct dl_phdr_info *info, size_t bytes, void *context) {
    (void)bytes, (void)context;
    struct image image;
    uintptr_t inside = (uintptr_t)numapilot_tracker_callouts;
    if (!read_image(&image, info) || inside < image.low || inside >= image.high) return 0;
    tracker = (struct np_own_range){image.low, image.high};
    return 1;
}

/* A program with fixed addresses that takes the address of a function has an entry of its own for it (undefined, with a value), which leads to the first
 * definition. Whose that is, another function of the family tells: what defines one of them defines all. */
static bool leads_to_us(uintptr_t function) {
    if (is_of_us(function)) return true;
    Dl_info info;
    const ElfW(Sym) *symbol = NULL;
    if (dladdr1((void *)function, &info, (void **)&symbol, RTLD_DL_SYMENT) == 0 || symbol == NULL || symbol->st_shndx != SHN_UNDEF) return false;
    return is_of_us((uintptr_t)realloc) || is_of_us((uintptr_t)calloc) || is_of_us((uintptr_t)malloc);
}

void np_bind_init(void) {
    if (np_plan->min_size > np_plan->max_size) return;
    uintptr_t ours[TAKERS] = {(uintptr_t)free, (uintptr_t)realloc, (uintptr_t)reallocarray, (uintptr_t)malloc_usable_size};
    if (numapilot_tracker_callouts != NULL) dl_iterate_phdr(find_tracker, NULL);
    if (!leads_to_us(ours[0])) return; /* the program has an allocator of its own: none of its blocks is ours */
    for (unsigned i = TAKERS; i-- > 0;) {
        takers[i].ours = ours[i];
        __atomic_store_n(&takers[i].real, (uintptr_t)np_real(takers[i].name), __ATOMIC_RELEASE); /* with the acquire in dlopen */
    }
}

/* -- hooks. They end in a jump: see above -- */

#define JUMPS __attribute__((optimize("O2", "optimize-sibling-calls")))

static NP_COLD void look(void) {
    uint32_t busy = np_plan_tls.busy;
    int saved = errno;
    np_plan_tls.busy = 1;
    bind_new_libraries();
    np_plan_tls.busy = busy;
    errno = saved;
}

void np_bind_loaded(void) {
    /* With the release in dlopen: the takers, which that thread saw. */
    if (np_unlikely(__atomic_load_n(&is_deep, __ATOMIC_ACQUIRE))) look();
}

NP_EXPORT JUMPS void *dlopen(const char *path, int mode) {
    np_plan_before_threads();
    __typeof__(&dlopen) real = NP_REAL(dlopen);
    if (np_unlikely(mode & RTLD_DEEPBIND) && __atomic_load_n(&takers[0].real, __ATOMIC_ACQUIRE) != 0) __atomic_store_n(&is_deep, true, __ATOMIC_RELEASE);
    np_bind_loaded();
    return real(path, mode);
}

NP_EXPORT JUMPS void *dlsym(void *restrict handle, const char *restrict name) {
    np_bind_loaded();
    return np_real_dlsym()(handle, name);
}
