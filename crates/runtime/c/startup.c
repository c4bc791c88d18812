/* startup.c: what a preloaded library needs before anything else works: its environment, its own image, the real functions. By system calls
 * and the loader's tables only. Part of the tracker and of the planner.
 */
#define _GNU_SOURCE
#include "track.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

struct np_own np_own;
char np_own_path[4096];

/* -- the environment and our own image -- */

static const char *after_prefix(const char *entry, const char *prefix) {
    size_t length = strlen(prefix);
    return strncmp(entry, prefix, length) == 0 ? entry + length : NULL;
}

const char *np_initial_environment(const char *prefix) {
    extern void *__libc_stack_end __attribute__((visibility("default")));
    if (__libc_stack_end == NULL) return NULL;
    char **words = (char **)__libc_stack_end + 1;
    while (*words != NULL) words++;
    for (words++; *words != NULL; words++) {
        const char *value = after_prefix(*words, prefix);
        if (value != NULL) return value;
    }
    return NULL;
}

void np_find_ourselves(void) {
    extern const char np_image_begin[] __asm__("__ehdr_start") NP_HIDDEN;
    const ElfW(Ehdr) *header = (const void *)np_image_begin;
    const ElfW(Phdr) *segments = (const void *)(np_image_begin + header->e_phoff);
    extern const char np_begin_trampolines[] __asm__("__start_np_trampolines") NP_HIDDEN;
    extern const char np_end_trampolines[] __asm__("__stop_np_trampolines") NP_HIDDEN;
    np_own.trampolines_lo = (uintptr_t)np_begin_trampolines;
    np_own.trampolines_hi = (uintptr_t)np_end_trampolines;
    np_own.lo = np_own.hi = (uintptr_t)np_image_begin;
    for (unsigned i = 0; i < header->e_phnum; i++) {
        uintptr_t end = np_own.lo + segments[i].p_vaddr + segments[i].p_memsz;
        if (segments[i].p_type == PT_LOAD && end > np_own.hi) np_own.hi = end;
    }
    np_own_range_add(np_own.lo, np_own.hi); /* tables of ours, mostly */
    Dl_info info;
    if (dladdr(np_image_begin, &info) != 0 && info.dli_fname != NULL && strlen(info.dli_fname) < sizeof np_own_path)
        memcpy(np_own_path, info.dli_fname, strlen(info.dli_fname) + 1);
}

/* -- real functions -- */

void *np_real(const char *name) {
    int saved = errno;
    void *found = dlsym(RTLD_NEXT, name);
    errno = saved;
    return found;
}

static np_dlsym_function real_dlsym;

static NP_COLD void find_dlsym(void) {
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    np_dlsym_function found = NULL;
    for (unsigned i = 0; i < 3 && found == NULL; i++) found = (np_dlsym_function)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    np_store(real_dlsym, found);
    if (found == NULL) __builtin_trap(); /* no C library that has dlvsym lacks dlsym */
}

np_dlsym_function np_real_dlsym(void) {
    if (np_unlikely(np_load(real_dlsym) == NULL)) find_dlsym();
    return np_load(real_dlsym);
}

/* -- before there are threads --
 *
 * dlsym takes the loader's lock. Whoever is in dlopen holds it, constructors of the library included: one that starts a thread and waits for it would wait
 * for ever if a hook in that thread then looked for its function, for which the program itself needs no lock. So all functions are found by a thread that is
 * about to take that lock itself (dlopen), or before there is another thread. */

extern const struct np_real_place *np_begin_reals[] __asm__("__start_np_reals") NP_HIDDEN;
extern const struct np_real_place *np_end_reals[] __asm__("__stop_np_reals") NP_HIDDEN;

bool np_reals_find(void) {
    bool has_all = true;
    for (const struct np_real_place **at = np_begin_reals; at < np_end_reals; at++) {
        const struct np_real_place *real = *at;
        if (np_load(*real->place) != NULL) continue;
        void *found = real->find(real->name);
        np_store(*real->place, found);
        has_all &= found != NULL;
    }
    return has_all;
}
