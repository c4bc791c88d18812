/* Two threads load and unload libraries all the time: each other library of the program stays loaded. Arguments: rounds, then three libraries for each.
 * With -DLIBRARY: such a library. */
#ifdef LIBRARY
int nothing;
#else
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

static char **libraries;
static int rounds;

static void *run(void *argument) {
    char **own = libraries + 3 * (long)argument;
    for (int i = 0; i < rounds; i++) {
        void *library = dlopen(own[i % 3], RTLD_NOW);
        if (library == NULL) abort();
        dlsym(library, "nothing");
        dlclose(library);
    }
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 8) return 2;
    rounds = atoi(arguments[1]);
    libraries = arguments + 2;
    pthread_t threads[2];
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], NULL, run, (void *)i);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    return 0;
}
#endif
