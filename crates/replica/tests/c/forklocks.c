/* forklocks.c: a program whose allocator unmaps memory under a lock that it also holds across forks, and that began before the preload library. A thread
 * allocates while the program forks, again and again. Prints "forked". */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef LIBRARY
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void lock(void) { pthread_mutex_lock(&mutex); }
static void unlock(void) { pthread_mutex_unlock(&mutex); }
__attribute__((constructor)) static void start(void) { pthread_atfork(lock, unlock, unlock); }

void allocate_and_free(void) {
    lock();
    void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) munmap(memory, 4096);
    unlock();
}
#else
enum { FORKS = 500 };
extern void allocate_and_free(void);
static _Atomic int is_over;

static void *allocate(void *nothing) {
    while (!is_over) allocate_and_free();
    return nothing;
}

int main(void) {
    pthread_t thread;
    alarm(120); /* it may be busy, but not for so long */
    pthread_create(&thread, NULL, allocate, NULL);
    for (int i = 0; i < FORKS; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            allocate_and_free();
            _exit(0);
        }
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return 2;
    }
    is_over = 1;
    pthread_join(thread, NULL);
    puts("forked");
    return 0;
}
#endif
