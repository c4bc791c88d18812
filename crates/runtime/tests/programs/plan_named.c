/* plan_named.c: a block, and a thread that is named by its creator after it began ("nobody", which rules of plan_image hand over to). */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

static sem_t began, end;

static void *work(void *argument) {
    sem_post(&began);
    sem_wait(&end);
    return argument;
}

int main(void) {
    char *block = malloc(1 << 20);
    pthread_t thread;
    if (block == NULL || sem_init(&began, 0, 0) != 0 || sem_init(&end, 0, 0) != 0) return 2;
    memset(block, 1, 1 << 20);
    if (pthread_create(&thread, NULL, work, NULL) != 0) return 3;
    sem_wait(&began);
    if (pthread_setname_np(thread, "nobody") != 0) return 4;
    sem_post(&end);
    pthread_join(thread, NULL);
    return block[1 << 19] == 1 ? 0 : 5;
}
