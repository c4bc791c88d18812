/* memory.c: memory of our own, by unrecorded system calls. The kernel ignores MAP_DENYWRITE, so it says whose this is to whoever watches the program's system
 * calls: it may lie where the program had memory before (crates/lab/homes/launcher.c). Nothing less usual will do: valgrind ends where the descriptor of
 * anonymous memory is below -1. */
#define _GNU_SOURCE
#include "track.h"

#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#define OUR_FLAGS (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_DENYWRITE)

#ifndef NP_PLUGIN
bool np_confined, np_child_confined;
#endif

#ifndef NP_PLUGIN
#define LARGE_BYTES (1ul << 20) /* smaller ones are soon in use as a whole */

struct np_own_range *np_own_range_add(uintptr_t lo, uintptr_t hi) {
    for (unsigned i = 0; i < NP_OWN_RANGES; i++) {
        uintptr_t none = 0;
        if (!__atomic_compare_exchange_n(&np_own_ranges[i].lo, &none, lo, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) continue;
        np_store(np_own_ranges[i].hi, hi);
        return &np_own_ranges[i];
    }
    return NULL;
}

static void forget_range(uintptr_t lo) {
    for (unsigned i = 0; i < NP_OWN_RANGES; i++) {
        if (np_load(np_own_ranges[i].lo) != lo) continue;
        np_store(np_own_ranges[i].hi, 0);
        np_store(np_own_ranges[i].lo, 0);
    }
}
#endif

/* Whoever gets addresses comes after those who gave them back: the kernel's lock of the address space orders the two. A sanitizer, which sees no bare system
 * call, is told so page by page (crates/runtime/tests/race.rs). */
#ifdef __SANITIZE_THREAD__
void __tsan_acquire(void *address);
void __tsan_release(void *address);
static void order_pages(uintptr_t pages, size_t bytes, void (*tell)(void *)) {
    for (uintptr_t at = pages; at < pages + bytes; at += 1ul << NP_PAGE_SHIFT) tell((void *)at);
}
#define PAGES_CAME(pages, bytes) order_pages(pages, bytes, __tsan_acquire)
#define PAGES_GO(pages, bytes) order_pages(pages, bytes, __tsan_release)
#else
#define PAGES_CAME(pages, bytes) ((void)0)
#define PAGES_GO(pages, bytes) ((void)0)
#endif

static void *map(size_t bytes, int protection) {
    long at = NP_SYS6(SYS_mmap, 0, bytes, protection, OUR_FLAGS, -1, 0);
    if (at < 0 && at > -4096) return NULL;
    PAGES_CAME((uintptr_t)at, bytes);
#ifndef NP_PLUGIN
    if (bytes >= LARGE_BYTES) np_own_range_add((uintptr_t)at, (uintptr_t)at + bytes);
#endif
    return (void *)at;
}

void *np_pages_new(size_t bytes) { return map(bytes, PROT_READ | PROT_WRITE); }

void *np_pages_reserve(size_t bytes) { return map(bytes, PROT_READ); }

void np_pages_free(void *pages, size_t bytes) {
#ifndef NP_PLUGIN
    if (bytes >= LARGE_BYTES) forget_range((uintptr_t)pages);
#endif
    PAGES_GO((uintptr_t)pages, bytes);
    NP_SYS2(SYS_munmap, pages, bytes);
}

uintptr_t np_page_bytes(void) {
    static uintptr_t known;
    uintptr_t bytes = np_load(known);
    if (np_likely(bytes != 0)) return bytes;
    bytes = getauxval(AT_PAGESZ);
    if (bytes == 0) bytes = 1ul << NP_PAGE_SHIFT;
    np_store(known, bytes);
    return bytes;
}

uint64_t np_number_in(const char *path) {
    char text[32] = {0};
    uint64_t number = 0;
    long fd = NP_SYS4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return 0;
    NP_SYS3(SYS_read, fd, text, sizeof text - 1);
    NP_SYS1(SYS_close, fd);
    for (const char *at = text; *at >= '0' && *at <= '9'; at++) number = number * 10 + (uint64_t)(*at - '0');
    return number;
}

uint64_t np_bytes_mapped(void) { return np_number_in("/proc/self/statm") * np_page_bytes(); }
