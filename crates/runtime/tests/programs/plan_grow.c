/* plan_grow.c: two buffers that realloc grows in turn, in steps of 64 KiB, to 64 MiB each. Prints its processor time in milliseconds and its peak of
 * resident memory in KiB; fails where bytes got lost. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define STEP (64ul << 10)
#define STEPS 1024ul

int main(void) {
    unsigned char *buffers[2] = {NULL, NULL};
    for (size_t step = 0; step < STEPS; step++) {
        for (int i = 0; i < 2; i++) {
            unsigned char *larger = realloc(buffers[i], (step + 1) * STEP);
            if (larger == NULL) return 2;
            memset(larger + step * STEP, (int)(step % 251 + 1) ^ i, STEP);
            buffers[i] = larger;
        }
    }
    for (int i = 0; i < 2; i++)
        for (size_t at = 0; at < STEP * STEPS; at += 4096)
            if (buffers[i][at] != (unsigned char)((at / STEP % 251 + 1) ^ (unsigned)i)) return 3;
    struct timespec used;
    struct rusage usage;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    getrusage(RUSAGE_SELF, &usage);
    printf("%ld %ld\n", (long)(used.tv_sec * 1000 + used.tv_nsec / 1000000), usage.ru_maxrss);
    for (int i = 0; i < 2; i++) free(realloc(buffers[i], 1000));
    return 0;
}
