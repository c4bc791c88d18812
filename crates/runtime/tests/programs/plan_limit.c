/* Whether this many MiB can still be had, each time at once: by malloc, and by mmap. Argument: MiB. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

int main(int count, char **arguments) {
    if (count != 2) return 2;
    size_t bytes = strtoul(arguments[1], NULL, 0) << 20;
    errno = 0;
    void *volatile block = malloc(bytes);
    printf("malloc %s %d\n", block != NULL ? "has it" : "fails", errno);
    free(block);
    void *mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    printf("mmap %s\n", mapping != MAP_FAILED ? "has it" : "fails");
    return 0;
}
