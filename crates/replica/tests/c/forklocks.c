/* forklocks.c: a program whose allocator unmaps memory under a lock that it also holds across forks, and that began before the preload library. A thread
 * allocates while the program forks, again and again. A signal comes during the first fork. Argument: a file, which it maps shared, and again when the signal
 * comes. Prints "forked". */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef LIBRARY
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void lock(void) { pthread_mutex_lock(&mutex); }
static void unlock(void) { pthread_mutex_unlock(&mutex); }
static void prepare(void) {
    static int forks;
    lock();
    if (forks++ == 0) raise(SIGUSR1);
}
__attribute__((constructor)) static void start(void) { pthread_atfork(prepare, unlock, unlock); }

void allocate_and_free(void) {
    lock();
    void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) munmap(memory, 4096);
    unlock();
}
#else
enum { FORKS = 200, PAGE = 4096 };
extern void allocate_and_free(void);
static _Atomic int is_over;
static int file, maps;

static void map_file(int number) {
    int protection = number == SIGUSR1 ? PROT_READ : PROT_READ | PROT_WRITE;
    maps += mmap(NULL, PAGE, protection, MAP_SHARED, file, 0) != MAP_FAILED;
}

static void *allocate(void *nothing) {
    while (!is_over) {
        allocate_and_free();
        sched_yield(); /* who waits for the lock must get it now and then */
    }
    return nothing;
}

int main(int count, char **arguments) {
    pthread_t thread;
    file = count == 2 ? open(arguments[1], O_RDWR) : -1;
    alarm(120); /* it may be busy, but not for so long */
    map_file(0);
    signal(SIGUSR1, map_file);
    pthread_create(&thread, NULL, allocate, NULL);
    for (int i = 0; i < FORKS; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            alarm(120);
            allocate_and_free();
            _exit(0);
        }
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return 2;
    }
    is_over = 1;
    pthread_join(thread, NULL);
    if (maps != 2) return 3;
    puts("forked");
    return 0;
}
#endif
