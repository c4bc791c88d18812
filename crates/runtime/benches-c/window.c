/* window.c: sixteen threads that compute in memory of their own; prints what processor time that took. */
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>

#define N 16
static int numbers[N][4096];

static void *compute(void *argument) {
    int *mine = numbers[(long)argument];
    for (int round = 0; round < 3000; round++)
        for (int i = 0; i < 4096; i++) mine[i] += round ^ i;
    return NULL;
}

int main(void) {
    pthread_t threads[N];
    struct rusage used;
    for (long i = 0; i < N; i++) pthread_create(&threads[i], NULL, compute, (void *)i);
    for (int i = 0; i < N; i++) pthread_join(threads[i], NULL);
    getrusage(RUSAGE_SELF, &used);
    printf("cpu_us %ld\n", (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000L + used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    return 0;
}
