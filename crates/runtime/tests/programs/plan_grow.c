/* plan_grow.c: two buffers that realloc grows in turn, in steps of 64 KiB, to 64 MiB each. Prints how many MiB were in buffers that came to lie elsewhere,
 * its peak of resident memory in KiB, and its page faults, of which each copy takes some; fails where bytes got lost. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define STEP (64ul << 10)
#define STEPS 1024ul

int main(void) {
    unsigned char *buffers[2] = {NULL, NULL};
    size_t moved = 0;
    for (size_t step = 0; step < STEPS; step++) {
        for (int i = 0; i < 2; i++) {
            unsigned char *larger = realloc(buffers[i], (step + 1) * STEP);
            if (larger == NULL) return 2;
            if (larger != buffers[i]) moved += step * STEP;
            memset(larger + step * STEP, (int)(step % 251 + 1) ^ i, STEP);
            buffers[i] = larger;
        }
    }
    for (int i = 0; i < 2; i++)
        for (size_t at = 0; at < STEP * STEPS; at += 4096)
            if (buffers[i][at] != (unsigned char)((at / STEP % 251 + 1) ^ (unsigned)i)) return 3;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("%zu %ld %ld\n", moved >> 20, usage.ru_maxrss, usage.ru_minflt);
    for (int i = 0; i < 2; i++) free(realloc(buffers[i], 1000));
    return 0;
}
