/* A library in a namespace of its own allocates by a function that it is given, before and after another library came and went. With -DLIBRARY: those. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef LIBRARY
void *make_by(void *(*make)(size_t), size_t bytes) {
    void *block = make(bytes);
    __asm__ volatile("" : "+r"(block)); /* not a tail call */
    return block;
}
#else
int main(int count, char **arguments) {
    if (count != 3) return 2;
    void *own = dlmopen(LM_ID_NEWLM, arguments[1], RTLD_NOW);
    if (own == NULL) return fprintf(stderr, "%s\n", dlerror()), 3;
    void *(*make_by)(void *(*)(size_t), size_t) = (void *(*)(void *(*)(size_t), size_t))dlsym(own, "make_by");
    if (make_by == NULL) return 4;
    free(make_by(malloc, 777));
    for (int i = 0; i < 3; i++) {
        void *other = dlopen(arguments[2], RTLD_NOW);
        if (other == NULL || dlclose(other) != 0) return 5;
        free(make_by(malloc, 777));
    }
    return 0;
}
#endif
