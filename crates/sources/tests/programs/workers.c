/* workers COUNT STORES [KILL]: threads that store so often each, say so, and are still alive when the process ends: main returns, or
 * kills the process if there is a third argument. */
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static sem_t done;
static long stores;

static void *worker(void *memory) {
    volatile char *bytes = memory;
    for (long i = 0; i < stores; i++) bytes[i * 64 % (1 << 20)] = (char)i;
    sem_post(&done);
    for (;;) pause();
}

int main(int count, char **words) {
    long workers = count > 1 ? atol(words[1]) : 1;
    stores = count > 2 ? atol(words[2]) : 1;
    sem_init(&done, 0, 0);
    for (long i = 0; i < workers; i++) {
        pthread_t id;
        if (pthread_create(&id, NULL, worker, malloc(1 << 20)) != 0) return 1;
        pthread_detach(id);
    }
    for (long i = 0; i < workers; i++) sem_wait(&done);
    if (count > 3) kill(getpid(), SIGKILL);
    return 0;
}
