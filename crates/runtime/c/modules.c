/* modules.c: the loaded binaries and their addresses.
 *
 * The loader searches a dlopen()ed library relative to its caller, which it knows by the return address; so the hook must not stand in
 * between. It only notes that something may come and jumps on. Modules are then found in two ways: the first stack that passes through one finds it
 * by _dl_find_object (no lock, safe in signal handlers), and dlsym, dlclose and exit, which take the loader's lock anyway, look at the whole list.
 */
#define _GNU_SOURCE
#include "memsim.h"
#include "python.h"
#include "track.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>

#define MAX_MODULES 2048u
#define BUILD_ID_MAX 64u

static np_find_object_function find_object; /* NULL: this C library has none */

static struct np_module modules[MAX_MODULES];
static uint64_t identities[MAX_MODULES]; /* of the same places; under the lock */
static uint32_t modules_used;
static uint32_t modules_lock;
static uint32_t scan_number;
static uint32_t list_seen; /* the latest scan that went through to its end */
static bool list_may_have_changed;
static unsigned long long adds_seen, subs_seen;

void np_modules_after_fork(void) {
    np_unlock(&modules_lock);
    np_python_after_fork();
}

void np_modules_jumped(void) {
    np_unlock_left(&modules_lock);
    np_python_jumped();
}

struct image {
    uintptr_t lo, hi, bias;
    const void *eh_frame;
    const char *path;
    const void *build_id;
    uint32_t build_id_bytes;
};

static void read_notes(struct image *image, const char *at, size_t bytes) {
    while (bytes >= sizeof(ElfW(Nhdr))) {
        const ElfW(Nhdr) *note = (const void *)at;
        size_t name = (note->n_namesz + 3u) & ~3u, content = (note->n_descsz + 3u) & ~3u, whole = sizeof *note + name + content;
        if (whole > bytes) return;
        if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && memcmp(at + sizeof *note, "GNU", 4) == 0) {
            image->build_id = at + sizeof *note + name;
            image->build_id_bytes = note->n_descsz < BUILD_ID_MAX ? note->n_descsz : BUILD_ID_MAX;
            return;
        }
        at += whole;
        bytes -= whole;
    }
}

static void read_segments(struct image *image, const ElfW(Phdr) *segments, unsigned count) {
    image->lo = UINTPTR_MAX;
    for (unsigned i = 0; i < count; i++) {
        uintptr_t begin = image->bias + segments[i].p_vaddr, end = begin + segments[i].p_memsz;
        if (segments[i].p_type == PT_LOAD) {
            if ((begin & ~(uintptr_t)4095) < image->lo) image->lo = begin & ~(uintptr_t)4095;
            if (((end + 4095) & ~(uintptr_t)4095) > image->hi) image->hi = (end + 4095) & ~(uintptr_t)4095;
        } else if (segments[i].p_type == PT_GNU_EH_FRAME) {
            image->eh_frame = (const void *)begin;
        } else if (segments[i].p_type == PT_NOTE && image->build_id == NULL) {
            read_notes(image, (const char *)begin, segments[i].p_memsz);
        }
    }
}

struct path_search { uintptr_t address; char *path; size_t size; };

static bool take_path(const struct np_maps_line *line, void *context) {
    struct path_search *search = context;
    if (search->address < line->lo || search->address >= line->hi) return true;
    if (line->path_bytes < search->size) memcpy(search->path, line->path, line->path_bytes + 1);
    return false;
}

static void put_module(struct np_slot *slot, const struct image *image, uint32_t id, const char *path, uint64_t order) {
    size_t path_bytes = strlen(path), limit = np_arena->ring_bytes / 8;
    if (path_bytes > limit) path_bytes = limit;
    unsigned path_words = np_words_for(path_bytes), count = 6 + path_words + np_words_for(image->build_id_bytes);
    uint64_t *words = np_begin(slot, NP_REC_MODULE, id, count, order);
    if (words == NULL) return;
    words[2] = image->lo;
    words[3] = image->hi - image->lo;
    words[4] = image->bias;
    words[5] = path_bytes | (uint64_t)image->build_id_bytes << 32;
    np_put_bytes(words + 6, path, path_bytes);
    np_put_bytes(words + 6 + path_words, image->build_id, image->build_id_bytes);
    np_commit(slot, count);
}

/* By its name among the mappings. */
static NP_COLD void put_unnamed_module(struct np_slot *slot, const struct image *image, uint32_t id, uint64_t order) {
    char *path = np_stack_path();
    struct path_search search = {image->lo, path, NP_MAP_PATH_BYTES};
    if (path != NULL) {
        path[0] = 0;
        np_maps_each(take_path, &search);
    }
    put_module(slot, image, id, path != NULL && path[0] != 0 ? path : image->path != NULL ? image->path : "", order);
}

/* Scans of several threads overlap: a module was met by the latest of them, whichever comes to it last. */
static void seen_by(struct np_module *module, uint32_t scan) {
    if ((int32_t)(scan - module->seen) > 0) module->seen = scan;
}

/* Tells a module from one that lay in its place before: the C library unloads some by itself, programs may call the real dlclose, and between a dlclose and our
 * look at the list another thread may load. */
static uint64_t identity_of(const struct image *image) {
    const uint8_t *build_id = image->build_id;
    uint64_t hash = np_hash_step(NP_HASH_FACTOR, image->hi - image->lo);
    for (const char *at = image->path != NULL ? image->path : ""; *at != 0; at++) hash = np_hash_step(hash, (uint8_t)*at);
    for (uint32_t i = 0; i < image->build_id_bytes; i++) hash = np_hash_step(hash, build_id[i]);
    return hash;
}

static void put_module_end(struct np_slot *slot, const struct np_module *gone, uint64_t order) {
    uint64_t *words = np_begin(slot, NP_REC_MODULE_END, gone->id, 2, order);
    if (words != NULL) np_commit(slot, 2);
    np_pages_settle(gone->lo, gone->hi - gone->lo);
}

/* Writes the module's record unless it is known. Whoever enters it into the table writes the record, stamped before; and before that the end of a module that
 * has left its place unseen. `scan`: the one that met it. False: another thread has the table, and does not let go of it. */
static bool announce(struct np_slot *slot, const struct image *image, uint32_t scan) {
    uint64_t order = np_order_kept(), identity = identity_of(image);
    if (!np_lock(&modules_lock)) return false;
    struct np_module *place = NULL, gone = {0};
    for (uint32_t i = 0; i < modules_used; i++) {
        if (modules[i].lo == image->lo) {
            if (identities[i] != identity) {
                place = &modules[i];
                gone = *place;
                np_store(place->lo, 0);
                break;
            }
            seen_by(&modules[i], scan);
            np_unlock(&modules_lock);
            return true;
        }
        if (modules[i].lo == 0 && place == NULL) place = &modules[i];
    }
    if (place == NULL && modules_used < MAX_MODULES) place = &modules[modules_used];
    uint32_t id = __atomic_fetch_add(&np_arena->next_module_id, 1, __ATOMIC_RELAXED);
    if (place != NULL) {
        np_store(place->hi, image->hi);
        np_store(place->eh_frame, image->eh_frame);
        place->id = id;
        place->seen = scan;
        identities[place - modules] = identity;
        __atomic_store_n(&place->lo, image->lo, __ATOMIC_RELEASE);
        if (place == &modules[modules_used]) __atomic_store_n(&modules_used, modules_used + 1, __ATOMIC_RELEASE);
    }
    np_unlock(&modules_lock);
    if (gone.lo != 0) {
        np_unwind_modules_changed();
        put_module_end(slot, &gone, order);
    }
    /* The main program has no name in the loader's list, and a relative one means nothing to a reader elsewhere. */
    if (image->path == NULL || image->path[0] != '/') put_unnamed_module(slot, image, id, order);
    else put_module(slot, image, id, image->path, order);
    return true;
}

/* -- the whole list -- */

struct scan { struct np_slot *slot; uint32_t number; bool changed, is_partial; unsigned long long adds, subs; char python[512]; };

static int visit(struct dl_phdr_info *info, size_t size, void *context) {
    struct scan *scan = context;
    bool is_first = scan->number == 0;
    /* Numbered here, where the loader's lock is held: a later number looked at a later list. */
    if (is_first) scan->number = __atomic_add_fetch(&scan_number, 1, __ATOMIC_RELAXED);
    if (is_first && size >= offsetof(struct dl_phdr_info, dlpi_subs) + sizeof info->dlpi_subs) {
        if (info->dlpi_adds == np_load(adds_seen) && info->dlpi_subs == np_load(subs_seen)) return 1;
        scan->adds = info->dlpi_adds;
        scan->subs = info->dlpi_subs;
    }
    scan->changed = true;
    if (info->dlpi_name != NULL && strstr(info->dlpi_name, "libpython3") != NULL && strlen(info->dlpi_name) < sizeof scan->python)
        strcpy(scan->python, info->dlpi_name);
    struct image image = {.bias = info->dlpi_addr, .path = info->dlpi_name};
    read_segments(&image, info->dlpi_phdr, info->dlpi_phnum);
    if (image.hi > image.lo && !announce(scan->slot, &image, scan->number)) scan->is_partial = true;
    return 0;
}

/* Whether a module begins here now, in whatever namespace: the loader's list is that of ours alone (dlmopen makes others). */
static bool is_loaded(uintptr_t lo) {
    struct np_found_object found;
    return find_object != NULL && find_object((void *)lo, &found) == 0 && (uintptr_t)found.map_start == lo;
}

/* What this scan did not meet, nor a later one: another thread may have announced a module that came since, or be looking just now. Only now does the
 * list count as seen: a scan that begins meanwhile looks for itself. */
static void end_unseen(const struct scan *scan) {
    struct np_slot *slot = scan->slot;
    struct np_module gone[64];
    uint32_t count = 0;
    if (!np_lock(&modules_lock)) return;
    for (uint32_t i = 0; i < modules_used && count < 64; i++) {
        if (modules[i].lo == 0 || (int32_t)(modules[i].seen - scan->number) >= 0 || is_loaded(modules[i].lo)) continue;
        gone[count++] = modules[i];
        np_store(modules[i].lo, 0);
    }
    if (count < 64 && (int32_t)(scan->number - list_seen) > 0) {
        list_seen = scan->number;
        np_store(adds_seen, scan->adds);
        np_store(subs_seen, scan->subs);
    }
    np_unlock(&modules_lock);
    for (uint32_t i = 0; i < count; i++) put_module_end(slot, &gone[i], np_order());
}

void np_modules_scan(struct np_slot *slot) {
    __atomic_store_n(&list_may_have_changed, false, __ATOMIC_RELAXED);
    struct scan scan = {.slot = slot};
    dl_iterate_phdr(visit, &scan);
    if (scan.changed && !scan.is_partial) end_unseen(&scan);
    if (scan.python[0] != 0) np_python_find(scan.python);
}

void np_modules_init(struct np_slot *slot) {
    find_object = (np_find_object_function)np_real("_dl_find_object");
    np_modules_scan(slot);
    np_python_find(NULL);
}

/* -- by address -- */

struct np_modules np_modules(void) {
    return (struct np_modules){modules, &modules_used};
}

const void *np_module_eh_frame(struct np_slot *slot, uintptr_t pc) {
    struct np_found_object found;
    if (find_object == NULL) return np_known_eh_frame(np_modules(), pc);
    if (find_object((void *)pc, &found) != 0) return NULL;
    uint32_t used = __atomic_load_n(&modules_used, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < used; i++)
        if (np_load(modules[i].lo) == (uintptr_t)found.map_start && np_load(modules[i].eh_frame) == found.eh_frame) return found.eh_frame;
    const ElfW(Ehdr) *header = found.map_start;
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 && header->e_phoff < 4096) {
        struct image image = {.bias = found.link_map->l_addr, .path = found.link_map->l_name};
        read_segments(&image, (const void *)((const char *)header + header->e_phoff), header->e_phnum);
        announce(slot, &image, np_load(scan_number)); /* of a scan that is under way nobody knows whether it would have met it */
    }
    return found.eh_frame;
}

/* -- hooks -- */

static void scan_if_changed(void) {
    struct np_slot *slot = __atomic_load_n(&list_may_have_changed, __ATOMIC_RELAXED) ? np_self() : NULL;
    if (slot == NULL || !np_enter(slot)) return;
    np_modules_scan(slot);
    np_leave(slot);
}

static void note_change(void) {
    if (np_load(np_arena) == NULL) return;
    __atomic_store_n(&list_may_have_changed, true, __ATOMIC_RELAXED);
    np_mappings_changed();
}

/* The three below end in a jump, so that the loader sees the program's return address (a test holds us to it). */
#define JUMPS __attribute__((optimize("O2", "optimize-sibling-calls")))

NP_EXPORT JUMPS void *dlopen(const char *path, int mode) {
    np_before_threads();
    __typeof__(&dlopen) real = NP_REAL(dlopen);
    scan_if_changed();
    note_change();
    return real(path, mode);
}

NP_EXPORT JUMPS void *dlmopen(Lmid_t space, const char *path, int mode) {
    np_before_threads();
    __typeof__(&dlmopen) real = NP_REAL(dlmopen);
    note_change();
    return real(space, path, mode);
}

NP_EXPORT JUMPS void *dlsym(void *restrict handle, const char *restrict name) {
    if (np_unlikely(np_load(list_may_have_changed))) scan_if_changed();
    np_planner_before_lookup();
    return np_real_dlsym()(handle, name);
}

NP_EXPORT int dlclose(void *handle) {
    struct np_slot *slot = np_self();
    if (slot != NULL) np_unwind_modules_changed();
    int result = NP_REAL(dlclose)(handle);
    if (slot == NULL || !np_enter(slot)) return result;
    np_modules_scan(slot);
    np_unwind_modules_changed();
    np_leave(slot);
    return result;
}
