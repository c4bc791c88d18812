/* residency.c: what backs a page by the kernel's report: nothing yet, its shared zero page, a page of a file, or memory that was written.
 *
 * Three sources, none of which leaves a descriptor behind: mincore (is anything there), /proc/self/pagemap (the zero page is present, of no file, and
 * never mapped exclusively: fs/proc/task_mmu.c; whether another process has a page, too), and /proc/self/maps (would a read of nothing get the zero page; may
 * others map what is mapped there). docs/instrument.md, "Homes".
 *
 * The kernel's pages may be larger than ours (arm64: 16 or 64 KiB). It is asked by its own, and what it says of one holds for all of ours in it. */
#include "memsim.h"
#include "track.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define PAGEMAP_EXCLUSIVE (1ull << 56)
#define PAGEMAP_FILE (1ull << 61) /* or shared */
#define PAGEMAP_PRESENT (1ull << 63)

/* Those of the kernel's pages that hold some of ours. */
struct kernel_pages { uint64_t first, count; unsigned shift; /* log2 of ours in each */ };

static struct kernel_pages kernel_pages(uint64_t page, uint64_t pages) {
    unsigned shift = (unsigned)__builtin_ctzl(np_page_bytes()) - NP_PAGE_SHIFT;
    uint64_t first = page >> shift;
    return (struct kernel_pages){first, ((page + pages + (1ull << shift) - 1) >> shift) - first, shift};
}

/* Of our page `page + i`: its place among these, which is i at most. So a list of theirs is made one of ours in place, from its end on. */
static uint64_t place_in(const struct kernel_pages *theirs, uint64_t page, uint64_t i) { return ((page + i) >> theirs->shift) - theirs->first; }

long np_resident(uint64_t page, uint64_t pages, uint8_t *vector) {
    if (np_is_confined) return -EPERM;
    struct kernel_pages theirs = kernel_pages(page, pages);
    unsigned shift = NP_PAGE_SHIFT + theirs.shift;
    long result = NP_SYS3(SYS_mincore, theirs.first << shift, theirs.count << shift, vector);
    for (uint64_t i = theirs.shift > 0 && result == 0 ? pages : 0; i-- > 0;) vector[i] = vector[place_in(&theirs, page, i)];
    return result;
}

/* Entries of /proc/self/pagemap, NP_BACKINGS_MAX at most: how many. 0: it cannot be read here. */
static uint32_t read_pagemap(uint64_t page, uint32_t pages, uint64_t *entries) {
    if (np_is_confined) return 0;
    if (pages > NP_BACKINGS_MAX) pages = NP_BACKINGS_MAX;
    long fd = NP_SYS4(SYS_openat, AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return 0;
    struct kernel_pages theirs = kernel_pages(page, pages);
    long got = NP_SYS4(SYS_pread64, fd, entries, theirs.count * 8, theirs.first * 8);
    NP_SYS1(SYS_close, fd);
    if (got != (long)theirs.count * 8) return 0;
    for (uint32_t i = theirs.shift > 0 ? pages : 0; i-- > 0;) entries[i] = entries[place_in(&theirs, page, i)];
    return pages;
}

/* Pages that a fork made common look as the zero page does: after one, nothing is taken for it. */
static enum np_backing backing_of(uint64_t entry) {
    if (!(entry & PAGEMAP_PRESENT)) return NP_BACKING_NONE;
    if (entry & PAGEMAP_FILE) return NP_BACKING_FILE;
    return (entry & PAGEMAP_EXCLUSIVE) || __atomic_load_n(&np_sim.forked, __ATOMIC_RELAXED) ? NP_BACKING_PAGE : NP_BACKING_ZERO;
}

uint32_t np_backings(uint64_t page, uint32_t pages, enum np_backing *backings) {
    uint64_t entries[NP_BACKINGS_MAX];
    pages = read_pagemap(page, pages, entries);
    for (uint32_t i = 0; i < pages; i++) backings[i] = backing_of(entries[i]);
    return pages;
}

/* do_wp_page (mm/memory.c): a page that is mapped once is written as it is, also where a fork has made the mapping read-only. What was given back since the
 * fork, or swapped, is a new page in any case, and one of a file is copied for its first writer. */
static enum np_write_effect effect_of(uint64_t entry) {
    bool is_alone = (entry & PAGEMAP_PRESENT) && (entry & PAGEMAP_EXCLUSIVE) && !(entry & PAGEMAP_FILE);
    return is_alone ? NP_WRITE_KEEPS : NP_WRITE_COPIES;
}

uint32_t np_write_effects(uint64_t page, uint32_t pages, enum np_write_effect *effects) {
    uint64_t entries[NP_BACKINGS_MAX];
    pages = read_pagemap(page, pages, entries);
    for (uint32_t i = 0; i < pages; i++) effects[i] = effect_of(entries[i]);
    return pages;
}

#ifndef NP_PLUGIN
enum np_backing np_backing(uint64_t page) {
    uint8_t resident = 1;
    if (np_resident(page, 1, &resident) == 0 && !(resident & 1)) return NP_BACKING_NONE;
    enum np_backing backing;
    /* Resident and not mapped: in the page cache (or on its way from swap), where this access finds it. */
    return np_backings(page, 1, &backing) == 0 ? NP_BACKING_PAGE : backing == NP_BACKING_NONE ? NP_BACKING_FILE : backing;
}

/* Mappings that may have changed their kind; what threads remember of an older count is no longer true. */
static uint32_t mappings_generation = 1;
/* Mappings that have ended. */
static uint32_t mappings_ended;

void np_mappings_changed(void) { __atomic_fetch_add(&mappings_generation, 1, __ATOMIC_RELAXED); }

void np_mappings_ended(void) { __atomic_fetch_add(&mappings_ended, 1, __ATOMIC_RELAXED); }

/* The count that a memory of a mapping of this kind goes by. Where fresh memory has ended, what comes next is fresh, too, or counted: allocators give back and
 * map so often that the list is not to be read after each. */
static uint32_t generation_of(uint32_t kind, uint32_t changed, uint32_t ended) { return kind == NP_KIND_FRESH ? changed : changed + ended; }

static bool begins_with(const struct np_maps_line *line, const char *name) {
    return line->path_bytes >= strlen(name) && memcmp(line->path, name, strlen(name)) == 0;
}

/* Shared anonymous memory is a file to the kernel, which no other process can open (shmem_zero_setup of mm/shmem.c).
 * Private memory of huge pages is a file, too, of which there are no pages but those that are the process's own. */
static enum np_mapping_kind kind_of(const struct np_maps_line *line) {
    if (line->perms[3] == 's') return begins_with(line, "/dev/zero") ? NP_KIND_FAMILY : NP_KIND_COMMON;
    if (line->inode == 0) return NP_KIND_FRESH;
    return line->perms[1] == 'w' && !begins_with(line, "/anon_hugepage") ? NP_KIND_COPIED : NP_KIND_OTHER;
}

static bool take_kind(const struct np_maps_line *line, void *context) {
    struct np_sim_slot *sim = context;
    if (sim->kind_low < line->lo || sim->kind_low >= line->hi) return true;
    sim->kind_low = line->lo;
    sim->kind_high = line->hi;
    sim->kind = kind_of(line);
    return false;
}

/* do_anonymous_page (mm/memory.c): only a private anonymous mapping answers a read of nothing by the zero page; shared memory takes a page. */
enum np_mapping_kind np_mapping_kind(struct np_slot *slot, uintptr_t address) {
    struct np_sim_slot *sim = np_ss(slot);
    uint32_t changed = __atomic_load_n(&mappings_generation, __ATOMIC_RELAXED), ended = __atomic_load_n(&mappings_ended, __ATOMIC_RELAXED);
    if (sim->kind_generation != generation_of(sim->kind, changed, ended) || address < sim->kind_low || address >= sim->kind_high) {
        sim->kind_low = address;
        sim->kind_high = 0;
        sim->kind = NP_KIND_OTHER;
        np_maps_each(take_kind, sim);
        sim->kind_generation = sim->kind_high != 0 ? generation_of(sim->kind, changed, ended) : 0;
    }
    return (enum np_mapping_kind)sim->kind;
}
#endif
