/* plan_holes.c: the price of a block for which none of COUNT free places is large enough, in nanoseconds of processor time. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

int main(int count, char **arguments) {
    size_t holes = count > 1 ? strtoul(arguments[1], NULL, 0) : 1000;
    void **blocks = malloc(2 * holes * sizeof *blocks);
    for (size_t i = 0; i < 2 * holes; i++) blocks[i] = malloc(20000);
    for (size_t i = 0; i < 2 * holes; i += 2) free(blocks[i]);
    double start = now();
    for (size_t i = 0; i < 2000; i++)
        if (malloc(100000) == NULL) return 2;
    printf("%.0f\n", (now() - start) / 2000);
    return 0;
}
