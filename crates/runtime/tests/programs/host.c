/* Loads a plugin by a name that only this program's own RUNPATH resolves, again and again; RTLD_NEXT must mean what it means without us. */
#define _GNU_SOURCE
#include "truth.h"
#include <dlfcn.h>

static char *(*next_strdup)(const char *);
char *strdup(const char *text) {
    if (next_strdup == NULL) next_strdup = (char *(*)(const char *))dlsym(RTLD_NEXT, "strdup");
    CHECK(next_strdup != NULL && next_strdup != strdup);
    return next_strdup(text);
}

int main(void) {
    for (int i = 0; i < 5; i++) {
        void *plugin = dlopen("libplugin-host.so", RTLD_NOW | (i % 2 ? RTLD_GLOBAL : RTLD_LOCAL));
        if (plugin == NULL) fprintf(stderr, "%s\n", dlerror());
        CHECK(plugin != NULL);
        void *(*make)(void) = (void *(*)(void))dlsym(plugin, "plugin_make");
        CHECK(make != NULL);
        void *block = make();
        MADE(block, 555, "Malloc");
        GONE(block);
        free(block);
        CHECK(dlclose(plugin) == 0);
    }
    char *copy = strdup("x");
    free(copy);
    truth_write();
    return 0;
}
