/* plan_deep.c: a library that is loaded with RTLD_DEEPBIND, and gives back and resizes blocks of the program. With LIBRARY defined: the library.
 *
 *   plan_deep LIBRARY now|lazy */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef LIBRARY
void give(void *block) { free(block); }
void *resize(void *block, size_t bytes) { return realloc(block, bytes); }
size_t size_of(void *block) { return malloc_usable_size(block); }
void (*const table[])(void *) = {free};
void give_by_table(void *block) { table[0](block); }
void *own(void) { return malloc(100); }
#else
void (*volatile taken)(void *) = free; /* in a program with fixed addresses, an entry of its own */
int main(int count, char **arguments) {
    if (count < 3 || taken == NULL) return 2;
    char *early = malloc(1 << 20);
    void *library = dlopen(arguments[1], RTLD_DEEPBIND | (strcmp(arguments[2], "now") == 0 ? RTLD_NOW : RTLD_LAZY));
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 3;
    }
    void (*give)(void *) = (void (*)(void *))dlsym(library, "give");
    void (*give_by_table)(void *) = (void (*)(void *))dlsym(library, "give_by_table");
    void *(*resize)(void *, size_t) = (void *(*)(void *, size_t))dlsym(library, "resize");
    size_t (*size_of)(void *) = (size_t (*)(void *))dlsym(library, "size_of");
    void *(*own)(void) = (void *(*)(void))dlsym(library, "own");
    if (size_of(early) < 1 << 20) return 4;
    early = resize(early, 3 << 20);
    memset(early, 1, 3 << 20);
    give(early);
    give(malloc(100));
    give_by_table(malloc(5000));
    give(own());
    free(own());
    return 0;
}
#endif
