/* Calls the libraries of mimalloc (MI), tcmalloc (TC) or jemalloc by names of their own, beside malloc. */
#include <stdlib.h>
#include <string.h>

#if defined(MI)
void *mi_malloc(size_t bytes);
void *mi_realloc(void *block, size_t bytes);
void mi_free(void *block);
#define MAKE mi_malloc
#define RESIZE mi_realloc
#define FREE mi_free
#elif defined(TC)
void *tc_malloc(size_t bytes);
void *tc_realloc(void *block, size_t bytes);
void tc_free(void *block);
#define MAKE tc_malloc
#define RESIZE tc_realloc
#define FREE tc_free
#else
void *mallocx(size_t bytes, int flags);
void *rallocx(void *block, size_t bytes, int flags);
void dallocx(void *block, int flags);
#define MAKE(bytes) mallocx(bytes, 0)
#define RESIZE(block, bytes) rallocx(block, bytes, 0)
#define FREE(block) dallocx(block, 0)
#endif
#define BLOCKS 100

int main(void) {
    char *list[BLOCKS];
    char *large = MAKE(4 << 20); /* LINE large */
    memset(large, 1, 4 << 20);
    for (int i = 0; i < BLOCKS; i++) list[i] = MAKE(1000 + i); /* LINE made */
    for (int i = 0; i < BLOCKS; i++) memset(list[i], 2, 1000 + i);
    for (int i = 0; i < BLOCKS; i++) list[i] = RESIZE(list[i], 5000 + i); /* LINE resized */
    volatile char *ordinary = malloc(3 << 20); /* LINE ordinary */
    ordinary[0] = list[BLOCKS - 1][0];
    for (int i = 0; i < BLOCKS; i++) FREE(list[i]);
    int found = ordinary[0];
    FREE(large);
    free((void *)ordinary);
    return found == 2 ? 0 : 1;
}
