/* Loads and unloads a library many times, and prints by how many KiB its memory has grown. Arguments: the library, rounds. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static long resident_kib(void) {
    long all, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%ld %ld", &all, &resident) != 2) exit(3);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void load(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (library == NULL) exit(4);
    free(malloc(1000));
    dlclose(library);
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    for (int i = 0; i < 10; i++) load(arguments[1]);
    long before = resident_kib();
    for (int i = 0; i < atoi(arguments[2]); i++) load(arguments[1]);
    printf("%ld\n", resident_kib() - before);
    return 0;
}
