/* torture.c: all primitives at once for some milliseconds of program time (the argument; 500: thousands of windows, each of which may take a busy host
 * ten milliseconds), with waits that nobody sees (a futex called by its instruction, pipes). */
#define _GNU_SOURCE
#include "work.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define N 12
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static pthread_spinlock_t spin;
static sem_t tokens;
static int pipes[2];
static _Atomic int hidden, stop, user_lock;
static _Atomic long rounds;

static void hidden_wait(void) {
    struct timespec limit = {0, 3000000};
#if defined(__x86_64__)
    long result;
    register long r10 __asm__("r10") = (long)&limit;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_futex), "D"(&hidden), "S"(FUTEX_WAIT), "d"(0), "r"(r10) : "rcx", "r11", "memory");
#else
    register long number __asm__("x8") = SYS_futex, x0 __asm__("x0") = (long)&hidden;
    register long x1 __asm__("x1") = FUTEX_WAIT, x2 __asm__("x2") = 0, x3 __asm__("x3") = (long)&limit;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(number), "r"(x1), "r"(x2), "r"(x3) : "memory");
#endif
}

static void step(unsigned kind, unsigned *seed) {
    struct timespec soon;
    char byte = 0;
    switch (kind) {
    case 0: pthread_mutex_lock(&mutex); work(3000); pthread_cond_broadcast(&turn); pthread_mutex_unlock(&mutex); break;
    case 1:
        pthread_mutex_lock(&mutex);
        clock_gettime(CLOCK_REALTIME, &soon);
        soon.tv_nsec += 1000000;
        if (soon.tv_nsec >= 1000000000) { soon.tv_nsec -= 1000000000; soon.tv_sec++; }
        pthread_cond_timedwait(&turn, &mutex, &soon);
        pthread_mutex_unlock(&mutex);
        break;
    case 2: pthread_rwlock_rdlock(&rwlock); work(2000); pthread_rwlock_unlock(&rwlock); break;
    case 3: pthread_rwlock_wrlock(&rwlock); work(1000); pthread_rwlock_unlock(&rwlock); break;
    case 4: pthread_spin_lock(&spin); work(500); pthread_spin_unlock(&spin); break;
    case 5: sem_post(&tokens); break;
    case 6: sem_trywait(&tokens); if (write(pipes[1], &byte, 1) != 1) abort(); break; /* so that readers are never all that is left */
    case 7: if (write(pipes[1], &byte, 1) == 1) work(100); break;
    case 8: if (read(pipes[0], &byte, 1) == 1) work(100); break; /* only after one's own write or another's: see main */
    case 9: hidden_wait(); break;
    case 10: while (atomic_exchange(&user_lock, 1)) sched_yield(); work(4000); atomic_store(&user_lock, 0); break;
    case 11: usleep(200); break;
    default: work(10000 + rand_r(seed) % 200000); break;
    }
}

static void *churn(void *argument) {
    unsigned seed = 17 + (unsigned)(long)argument;
    while (!stop) {
        step((unsigned)rand_r(&seed) % 16, &seed);
        atomic_fetch_add(&rounds, 1);
    }
    return argument;
}

int main(int argc, char **argv) {
    pthread_t threads[N];
    pthread_spin_init(&spin, 0);
    sem_init(&tokens, 0, 3);
    if (pipe(pipes) != 0) return 1;
    for (long i = 0; i < N; i++) pthread_create(&threads[i], NULL, churn, (void *)i);
    usleep(1000 * (argc > 1 ? (unsigned)atoi(argv[1]) : 500));
    stop = 1;
    for (int i = 0; i < 4 * N; i++)
        if (write(pipes[1], "", 1) != 1) return 1; /* whoever reads gets something */
    for (int i = 0; i < N; i++) pthread_join(threads[i], NULL);
    printf("rounds %ld\n", rounds);
    return rounds > 1000 ? 0 : 1;
}
