/* plan_forks.c: a library that registers handlers for forks before the planner's constructor runs (linked with -z initfirst): they allocate, as the C library's
 * allocator allows, and take a lock under which others allocate; and a program that forks, with it. Ends by a signal if that takes for
 * ever, which is far longer than a busy machine needs. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef LIBRARY

static void *volatile kept[200];
static volatile int failed;

/* Many, so that none of them is at hand. */
static void allocate(void) {
    for (int i = 0; i < 200; i++) {
        free(kept[i]);
        size_t bytes = i % 2 ? 100000 + (size_t)i * 500 : 100 + (size_t)i * 50;
        kept[i] = malloc(bytes);
        if (kept[i] != NULL) memset(kept[i], i, bytes);
        else failed = 1;
    }
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void prepare(void) {
    allocate();
    pthread_mutex_lock(&lock);
    allocate();
}

static void after(void) {
    allocate();
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void construct(void) { pthread_atfork(prepare, after, after); }

int forks_use(void) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 20; i++) free(malloc(20000 + (size_t)i * 10000));
    pthread_mutex_unlock(&lock);
    return failed;
}

#else

int forks_use(void);

static void *uses(void *stop) {
    while (!__atomic_load_n((int *)stop, __ATOMIC_ACQUIRE))
        if (forks_use() != 0) return stop;
    return NULL;
}

int main(void) {
    int stop = 0;
    void *result;
    pthread_t thread;
    alarm(600);
    if (pthread_create(&thread, NULL, uses, &stop) != 0) return 2;
    for (int i = 0; i < 10; i++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0) {
            free(malloc(1 << 20));
            _exit(forks_use());
        }
        if (waitpid(child, &status, 0) != child || status != 0) return 3;
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    return pthread_join(thread, &result) != 0 || result != NULL;
}

#endif
