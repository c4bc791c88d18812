/* plan_turns.c: a program that forks while another of its threads maps memory that a rule gives to one node after the other, and whose child then does the
 * same. Ends by a signal if that takes for ever, which is far longer than a busy machine needs. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 65536, FORKS = 500, THREADS = 6 };

static int map(void) {
    void *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory != MAP_FAILED && munmap(memory, BYTES) == 0;
}

static void *maps(void *stop) {
    while (!__atomic_load_n((int *)stop, __ATOMIC_ACQUIRE))
        if (!map()) return stop;
    return NULL;
}

int main(void) {
    int stop = 0;
    void *result;
    pthread_t threads[THREADS];
    alarm(600);
    /* From some number on there are too many mappings to cut them, and whose turn it is has to be known. */
    for (int i = 0; i < 40000; i++)
        if (!map()) return 2;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, maps, &stop) != 0) return 2;
    for (int i = 0; i < FORKS; i++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0) {
            alarm(600);
            _exit(!map());
        }
        if (waitpid(child, &status, 0) != child || status != 0) return 3;
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < THREADS; i++)
        if (pthread_join(threads[i], &result) != 0 || result != NULL) return 4;
    return 0;
}
