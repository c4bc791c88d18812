/* residency_pages.c: what backs pages, on a kernel with pages of 64 KiB (arm64): parts of pages are errors to mincore, and pagemap has a word for each of
 * its own pages. This program stands for that kernel, of which it has three pages: one of written memory, one with nothing, one of a file. It prints a
 * digit of `enum np_backing` and what mincore says for each page of 4 KiB of a range, the backing of three that are asked for alone, and the error for a
 * range of which not all is mapped. Its argument is the bytes of the kernel's pages. */
#define _GNU_SOURCE
#include "../../c/memsim.h"
#include "../../c/track.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>

/* The first of the kernel's pages, by its number. */
#define FIRST 0xaaaab00ul

static unsigned long page_bytes;
struct np_sim np_sim;
bool np_confined;

uintptr_t np_page_bytes(void) { return page_bytes; }

void np_maps_each(bool (*visit)(const struct np_maps_line *line, void *context), void *context) { (void)visit, (void)context; }

static const uint64_t entries[] = {1ull << 63 | 1ull << 56, 0, 1ull << 63 | 1ull << 61};

static long kernel(long number, unsigned long a, unsigned long b, unsigned long c, unsigned long d) {
    if (number == SYS_openat) return 7;
    if (number == SYS_close) return 0;
    bool is_mincore = number == SYS_mincore;
    if (is_mincore && a % page_bytes != 0) return -EINVAL;
    unsigned long first = is_mincore ? a / page_bytes : d / 8, count = is_mincore ? (b + page_bytes - 1) / page_bytes : c / 8;
    for (unsigned long i = 0; i < count; i++) {
        bool is_mapped = first + i >= FIRST && first + i < FIRST + 3;
        if (is_mincore && !is_mapped) return -ENOMEM;
        uint64_t entry = is_mapped ? entries[first + i - FIRST] : 0;
        if (is_mincore) ((uint8_t *)c)[i] = entry >> 63;
        else ((uint64_t *)b)[i] = entry;
    }
    return is_mincore ? 0 : (long)c;
}

#undef NP_SYS1
#undef NP_SYS3
#undef NP_SYS4
#define NP_SYS1(n, a) kernel(n, (unsigned long)(a), 0, 0, 0)
#define NP_SYS3(n, a, b, c) kernel(n, (unsigned long)(a), (unsigned long)(b), (unsigned long)(c), 0)
#define NP_SYS4(n, a, b, c, d) kernel(n, (unsigned long)(a), (unsigned long)(b), (unsigned long)(c), (unsigned long)(d))
#include "../../c/residency.c"

int main(int count, char **arguments) {
    if (count != 2 || (page_bytes = strtoul(arguments[1], NULL, 10)) < 4096) return 2;
    uint64_t each = page_bytes >> NP_PAGE_SHIFT, first = FIRST * each + each / 2, pages = 2 * each;
    enum np_backing backings[64];
    uint8_t resident[64];
    if (np_backings(first, (uint32_t)pages, backings) != pages || np_resident(first, pages, resident) != 0) return 1;
    for (uint64_t i = 0; i < pages; i++) printf("%d", backings[i]);
    printf(" ");
    for (uint64_t i = 0; i < pages; i++) printf("%d", resident[i]);
    /* One by one, as first touches ask. */
    printf(" %d%d%d", np_backing(first), np_backing(first + each), np_backing(first + pages));
    printf(" %ld\n", np_resident(first, pages + each, resident));
    return 0;
}
