/* threads.c: pthread programs whose program-time course is known. `threads CASE`; prints figures for the test to judge. */
#define _GNU_SOURCE
#include "work.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>

#define N 16
static uint64_t begins[N], ends[N], counts[N];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static pthread_spinlock_t spin;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static sem_t items;
static uint64_t left;
static _Atomic uint64_t next;

#define PARTS 2000
#define PART 5000

static void *share(void *argument) {
    long me = (long)argument;
    begins[me] = clock_now();
    for (int i = 0; i < PARTS; i++) work(PART);
    ends[me] = clock_now();
    return NULL;
}

/* Every thread holds the lock a quarter of its time: sixteen of them want it four times over. */
static void *saturate(void *argument) {
    long me = (long)argument;
    begins[me] = clock_now();
    for (int i = 0; i < 500; i++) {
        pthread_mutex_lock(&mutex);
        work(1000);
        pthread_mutex_unlock(&mutex);
        work(3000);
    }
    ends[me] = clock_now();
    return NULL;
}

/* One hundredth of the time: no contention worth speaking of. */
static void *touch_lock(void *argument) {
    long me = (long)argument;
    for (int i = 0; i < 500; i++) {
        pthread_mutex_lock(&mutex);
        work(100);
        pthread_mutex_unlock(&mutex);
        work(9900);
    }
    ends[me] = clock_now();
    return NULL;
}

static void *spin_saturate(void *argument) {
    long me = (long)argument;
    for (int i = 0; i < 500; i++) {
        pthread_spin_lock(&spin);
        work(1000);
        pthread_spin_unlock(&spin);
        work(3000);
    }
    ends[me] = clock_now();
    return NULL;
}

/* Readers share: they overlap entirely. */
static void *readers(void *argument) {
    long me = (long)argument;
    for (int i = 0; i < 500; i++) {
        pthread_rwlock_rdlock(&rwlock);
        work(2000);
        pthread_rwlock_unlock(&rwlock);
    }
    ends[me] = clock_now();
    return NULL;
}

static void *writers(void *argument) {
    long me = (long)argument;
    for (int i = 0; i < 200; i++) {
        pthread_rwlock_wrlock(&rwlock);
        work(2000);
        pthread_rwlock_unlock(&rwlock);
    }
    ends[me] = clock_now();
    return NULL;
}

static void *queue(void *argument) {
    long me = (long)argument;
    for (;;) {
        pthread_mutex_lock(&mutex);
        uint64_t got = left > 0 ? left-- : 0;
        pthread_mutex_unlock(&mutex);
        if (got == 0) break;
        counts[me]++;
        work(20000);
    }
    ends[me] = clock_now();
    return NULL;
}

static void *counter(void *argument) {
    long me = (long)argument;
    while (atomic_fetch_add(&next, 1) < 8000) {
        counts[me]++;
        work(20000);
    }
    ends[me] = clock_now();
    return NULL;
}

static void *meet(void *argument) {
    long me = (long)argument;
    for (int round = 0; round < 50; round++) {
        work(2000 + (uint64_t)((me * 7 + round * 5) % N) * 3000);
        pthread_barrier_wait(&barrier);
        ends[me] = clock_now();
        if (round == 49) break;
    }
    return NULL;
}

static uint64_t sent[1000], received[1000];
static void *consume_sem(void *argument) {
    for (int i = 0; i < 1000; i++) {
        sem_wait(&items);
        received[i] = clock_now();
        work(1000);
    }
    return argument;
}

static int queued;
static void *consume_cond(void *argument) {
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_lock(&mutex);
        while (queued == 0) pthread_cond_wait(&filled, &mutex);
        queued--;
        pthread_mutex_unlock(&mutex);
        received[i] = clock_now();
        work(1000);
    }
    return argument;
}

static void run(void *(*function)(void *)) {
    pthread_t threads[N];
    uint64_t begin = clock_now(), end = 0, all = 0;
    for (long i = 0; i < N; i++) pthread_create(&threads[i], NULL, function, (void *)i);
    for (int i = 0; i < N; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < N; i++) {
        if (ends[i] > end) end = ends[i];
        all += ends[i];
    }
    printf("elapsed %lu joined %lu mean_end %lu\n", end - begin, clock_now() - begin, all / N - begin);
    for (int i = 0; i < N; i++) printf("thread %d begin %lu end %lu count %lu\n", i, begins[i] - begin, ends[i] - begin, counts[i]);
}

static void produce(void *(*consumer)(void *), int with_sem) {
    pthread_t thread;
    pthread_create(&thread, NULL, consumer, NULL);
    for (int i = 0; i < 1000; i++) {
        work(i % 100 == 0 ? 400000 : 5000); /* pauses longer than the window */
        sent[i] = clock_now();
        if (with_sem) {
            sem_post(&items);
        } else {
            pthread_mutex_lock(&mutex);
            queued++;
            pthread_cond_signal(&filled);
            pthread_mutex_unlock(&mutex);
        }
    }
    pthread_join(thread, NULL);
    uint64_t worst = 0;
    for (int i = 0; i < 1000; i++)
        if (sent[i] > received[i] && sent[i] - received[i] > worst) worst = sent[i] - received[i];
    printf("early %lu total %lu\n", worst, clock_now());
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    pthread_barrier_init(&barrier, NULL, N);
    pthread_spin_init(&spin, 0);
    sem_init(&items, 0, 0);
    left = 8000;
    if (!strcmp(name, "share")) run(share);
    else if (!strcmp(name, "saturate")) run(saturate);
    else if (!strcmp(name, "touch_lock")) run(touch_lock);
    else if (!strcmp(name, "spin")) run(spin_saturate);
    else if (!strcmp(name, "readers")) run(readers);
    else if (!strcmp(name, "writers")) run(writers);
    else if (!strcmp(name, "queue")) run(queue);
    else if (!strcmp(name, "counter")) run(counter);
    else if (!strcmp(name, "barrier")) run(meet);
    else if (!strcmp(name, "sem")) produce(consume_sem, 1);
    else if (!strcmp(name, "cond")) produce(consume_cond, 0);
    else return 2;
    return 0;
}
