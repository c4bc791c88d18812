/* A library is unloaded unseen, as the C library does with its own, and another one is loaded to its place. Arguments: the two. Says where each was. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

static void *load(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (library == NULL) {
        puts(dlerror());
        return NULL;
    }
    printf("%p\n", dlsym(library, "nothing"));
    return library;
}

int main(int count, char **arguments) {
    void *c_library = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    if (count != 3 || c_library == NULL) return 2;
    int (*unseen_dlclose)(void *) = (int (*)(void *))dlsym(c_library, "dlclose");
    for (int i = 1; i < 3; i++) {
        void *library = load(arguments[i]);
        if (library == NULL || unseen_dlclose(library) != 0) return 3;
    }
    return 0;
}
