/* A heap whose every figure is known: a list of blocks that one thread allocates and another frees, one large block that grows by realloc and is never freed,
   and short-lived blocks of each thread's own. Usage: handed BLOCKS */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct link {
    struct link *next;
    char payload[1016];
};

static long blocks;
static struct link *volatile list;
static char *volatile kept;

static void *produce(void *unused) {
    (void)unused;
    for (long i = 0; i < blocks; i++) {
        struct link *one = malloc(sizeof *one); /* LINE handed */
        one->next = list;
        list = one;
    }
    return NULL;
}

static void *consume(void *unused) {
    (void)unused;
    while (list) {
        struct link *next = list->next;
        free(list);
        list = next;
    }
    for (long i = 0; i < blocks; i++) {
        char *volatile own = malloc(64); /* LINE own */
        own[0] = 1;
        free(own);
    }
    return NULL;
}

int main(int argc, char **argv) {
    blocks = argc > 1 ? atol(argv[1]) : 1000;
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, produce, NULL);
    pthread_join(threads[0], NULL);
    kept = malloc(100000); /* LINE first */
    kept = realloc(kept, 300000); /* LINE grown */
    pthread_create(&threads[1], NULL, consume, NULL);
    pthread_join(threads[1], NULL);
    printf("%ld\n", blocks);
    return kept == NULL;
}
