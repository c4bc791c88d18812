/* Every C allocation function: what it returns, how it is aligned, what it leaves in errno, and what the tracker should have seen. */
#define _GNU_SOURCE
#include "truth.h"
#include <errno.h>
#include <malloc.h>

static void give_back(void *block) {
    errno = 4711;
    GONE(block);
    free(block);
    CHECK(errno == 4711);
}

static void plain(void) {
    errno = 4711;
    char *a = malloc(100);
    CHECK(errno == 4711 && a != NULL && (uintptr_t)a % 16 == 0);
    MADE(a, 100, "Malloc");
    int *b = calloc(10, sizeof *b);
    CHECK(errno == 4711);
    for (int i = 0; i < 10; i++) CHECK(b[i] == 0);
    MADE(b, 40, "Calloc");
    void *none = malloc(0);
    MADE(none, 0, "Malloc");
    void *big = malloc((size_t)5 << 30);
    CHECK(big != NULL);
    MADE(big, (size_t)5 << 30, "Malloc");
    give_back(big);
    give_back(none);
    give_back(b);
    give_back(a);
    free(NULL);
}

static void aligned(void) {
    for (size_t alignment = 16; alignment <= 65536; alignment *= 4) {
        void *a = aligned_alloc(alignment, alignment * 3), *b = memalign(alignment, 77), *c = NULL;
        errno = 4711;
        CHECK(posix_memalign(&c, alignment, 99) == 0 && errno == 4711);
        CHECK((uintptr_t)a % alignment == 0 && (uintptr_t)b % alignment == 0 && (uintptr_t)c % alignment == 0);
        MADE(a, alignment * 3, "Aligned");
        MADE(b, 77, "Aligned");
        MADE(c, 99, "Aligned");
        give_back(c);
        give_back(b);
        give_back(a);
    }
    void *kept = (void *)0x1234;
    errno = 4711;
    CHECK(posix_memalign(&kept, 3, 10) == EINVAL && kept == (void *)0x1234);
    void *page = valloc(5), *pages = pvalloc(5);
    CHECK((uintptr_t)page % 4096 == 0 && (uintptr_t)pages % 4096 == 0);
    MADE(page, 5, "Aligned");
    MADE(pages, 4096, "Aligned");
    give_back(page);
    give_back(pages);
}

/* Of C23: where the C library lacks them, the tracker's alone. */
extern void free_sized(void *block, size_t bytes) __attribute__((weak));
extern void free_aligned_sized(void *block, size_t alignment, size_t bytes) __attribute__((weak));

static void sized(void) {
    void *a = malloc(40), *b = aligned_alloc(64, 128);
    MADE(a, 40, "Malloc");
    MADE(b, 128, "Aligned");
    CHECK(free_sized != NULL && free_aligned_sized != NULL);
    errno = 4711;
    GONE(a);
    free_sized(a, 40);
    GONE(b);
    free_aligned_sized(b, 64, 128);
    free_sized(NULL, 1);
    free_aligned_sized(NULL, 64, 1);
    CHECK(errno == 4711);
}

static void resized(void) {
    char *a = realloc(NULL, 30);
    MADE(a, 30, "Realloc");
    strcpy(a, "kept");
    GONE(a);
    char *b = realloc(a, 100000);
    CHECK(strcmp(b, "kept") == 0);
    MADE(b, 100000, "Realloc");
    GONE(b);
    char *c = realloc(b, 10);
    MADE(c, 10, "Realloc");
    /* A failed one leaves the old block alive. */
    errno = 0;
    CHECK(realloc(c, PTRDIFF_MAX) == NULL && errno == ENOMEM && strcmp(c, "kept") == 0);
    CHECK(reallocarray(c, SIZE_MAX / 2, 3) == NULL && errno == ENOMEM);
    GONE(c);
    char *d = reallocarray(c, 5, 7);
    CHECK(strcmp(d, "kept") == 0);
    MADE(d, 35, "Realloc");
    GONE(d);
    void *none = realloc(d, 0);
    if (none != NULL) MADE(none, 0, "Realloc"), give_back(none);
    char *huge = malloc(1 << 20);
    MADE(huge, 1 << 20, "Malloc");
    GONE(huge);
    char *larger = realloc(huge, 16 << 20);
    MADE(larger, 16 << 20, "Realloc");
    give_back(larger);
}

static void by_the_library(void) {
    char *copy = strdup("a copy"), *text = NULL, *line = NULL;
    MADE(copy, 7, "Malloc");
    CHECK(asprintf(&text, "%d blocks", 3) == 8);
    truth("address %lx", (unsigned long)text);
    FILE *file = tmpfile();
    fputs("one line\n", file);
    rewind(file);
    size_t room = 0;
    CHECK(getline(&line, &room, file) == 9);
    truth("address %lx", (unsigned long)line);
    GONE(line);
    free(line);
    fclose(file);
    give_back(text);
    give_back(copy);
}

int main(void) {
    plain();
    aligned();
    sized();
    resized();
    by_the_library();
    CHECK(malloc(PTRDIFF_MAX) == NULL && errno == ENOMEM);
    CHECK(calloc(SIZE_MAX / 2, 4) == NULL);
    truth_write();
    return 0;
}
