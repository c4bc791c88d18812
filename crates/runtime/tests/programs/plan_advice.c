/* plan_advice.c: whether advice about huge pages (VmFlags hg, nh) is in force for a block of 100 MiB, and for its addresses once it is free. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 1: in force; 0: not; -1: nothing is mapped there, or the kernel does not say. */
static int is_advised(unsigned long address) {
    static char line[4096];
    int is_here = 0, advised = -1;
    FILE *file = fopen("/proc/self/smaps", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        unsigned long lo, hi;
        if (sscanf(line, "%lx-%lx ", &lo, &hi) == 2) is_here = address >= lo && address < hi;
        else if (is_here && strncmp(line, "VmFlags:", 8) == 0) advised = strstr(line, " hg") != NULL || strstr(line, " nh") != NULL;
    }
    if (file != NULL) fclose(file);
    return advised;
}

int main(void) {
    char *volatile block = malloc(100 << 20);
    unsigned long address = (unsigned long)block + (50 << 20);
    if (block == NULL) return 1;
    block[50 << 20] = 1;
    int before = is_advised(address);
    free(block);
    printf("%d %d\n", before, is_advised(address));
    return 0;
}
