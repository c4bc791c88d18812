/* after_sweep.c: writes each element of an array once, then reads each once (after_optimisation.rs, which looks for the lines marked here). */
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 1 << 19 };

__attribute__((noinline)) static void fill(long *table, long count) {
    for (long i = 0; i < count; i++) {
        table[i] = i; /* written */
    }
}

__attribute__((noinline)) static long sum(const long *table, long count) {
    long found = 0;
    for (long i = 0; i < count; i++) {
        found += table[i]; /* read */
    }
    return found;
}

int main(void) {
    long *swept = malloc(COUNT * sizeof *swept);
    fill(swept, COUNT);
    printf("%ld\n", sum(swept, COUNT));
    return 0;
}
