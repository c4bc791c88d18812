/* Loads a library, and calls it. Ends by a signal if that takes for ever, which is far longer than a busy machine needs. */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

int main(int count, char **arguments) {
    if (count != 2) return 2;
    alarm(600);
    void *library = dlopen(arguments[1], RTLD_NOW);
    if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 3;
    int (*answer)(void) = (int (*)(void))dlsym(library, "early_answer");
    return answer != NULL && answer() == 42 ? 0 : 4;
}
