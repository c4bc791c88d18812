/* Allocates and frees, alone or in threads, in forked children or through exec; prints a checksum. What it does depends on its
 * arguments only:
 *   busy pairs N [EXIT]       N malloc/free pairs, exit status EXIT
 *   busy threads T N          T threads with N pairs each
 *   busy detached T N         T short detached threads with N pairs each
 *   busy tree DEPTH N         a binary tree of processes, N pairs each
 *   busy exec COUNT N         replaces itself COUNT times
 *   busy crash N              N pairs, one block of 123,457 bytes, then a null pointer
 *   busy for MILLISECONDS     200 pairs, says "ready", then works in two threads for so long
 *   busy catch                says "ready", waits for SIGINT, says "caught", exits with 7
 *   busy daemon               leaves a daemon behind that sleeps for a minute
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t pairs(long count, uint64_t seed) {
    uint64_t sum = 0, state = seed * 2654435761u + 1;
    for (long i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        size_t bytes = 16 + (state >> 33) % 2000;
        volatile unsigned char *block = malloc(bytes);
        block[0] = (unsigned char)state;
        block[bytes - 1] = (unsigned char)(state >> 8);
        sum = sum * 31 + block[0] + block[bytes - 1];
        free((void *)block);
    }
    return sum;
}

struct work { long count; uint64_t seed, sum; };

static void *worker(void *argument) {
    struct work *work = argument;
    work->sum = pairs(work->count, work->seed);
    return NULL;
}

static uint64_t threads(long count, long each) {
    pthread_t ids[64];
    struct work works[64];
    uint64_t sum = 0;
    for (long i = 0; i < count && i < 64; i++) {
        works[i] = (struct work){each, (uint64_t)i, 0};
        pthread_create(&ids[i], NULL, worker, &works[i]);
    }
    for (long i = 0; i < count && i < 64; i++) {
        pthread_join(ids[i], NULL);
        sum += works[i].sum;
    }
    return sum;
}

static atomic_long ended;

static void *detached_worker(void *argument) {
    struct work *work = argument;
    work->sum = pairs(work->count, work->seed);
    ended++;
    return NULL;
}

/* Short threads that nobody joins: each takes its own stack and thread-local storage down, at a moment when nothing of it is left to hook. */
static int detached(long count, long each) {
    static struct work works[4096];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    for (long i = 0; i < count && i < 4096; i++) {
        pthread_t id;
        works[i] = (struct work){each, (uint64_t)i, 0};
        if (pthread_create(&id, &attributes, detached_worker, &works[i]) != 0) return 1;
    }
    while (ended < count) usleep(1000);
    usleep(50000);
    return 0;
}

static int tree(long depth, long each) {
    pairs(each, (uint64_t)depth);
    if (depth == 0) return 0;
    int status, bad = 0;
    for (int i = 0; i < 2; i++)
        if (fork() == 0) _exit(tree(depth - 1, each));
    while (wait(&status) > 0) bad |= status;
    return bad != 0;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void *until(void *end) {
    while (now() < *(double *)end) pairs(500, 9);
    return NULL;
}

static volatile sig_atomic_t caught;
static void on_signal(int signal) { caught = signal; }

static int daemon_left_behind(void) {
    if (fork() == 0) {
        setsid();
        if (fork() != 0) _exit(0);
        for (int fd = 0; fd < 3; fd++) close(fd);
        sleep(60);
        _exit(0);
    }
    wait(NULL);
    return 0;
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    long a = count > 2 ? atol(words[2]) : 0, b = count > 3 ? atol(words[3]) : 0;
    if (strcmp(what, "pairs") == 0) {
        printf("%llx\n", (unsigned long long)pairs(a, 1));
        return (int)b;
    }
    if (strcmp(what, "threads") == 0) printf("%llx\n", (unsigned long long)threads(a, b));
    if (strcmp(what, "detached") == 0) return detached(a, b);
    if (strcmp(what, "tree") == 0) return tree(a, b);
    if (strcmp(what, "exec") == 0) {
        char left[32];
        printf("%ld %llx\n", a, (unsigned long long)pairs(b, (uint64_t)a));
        fflush(stdout);
        snprintf(left, sizeof left, "%ld", a - 1);
        if (a > 0) execl(words[0], words[0], "exec", left, words[3], (char *)NULL);
    }
    if (strcmp(what, "crash") == 0) {
        pairs(a, 3);
        volatile char *block = malloc(123457);
        block[0] = 1;
        *(volatile int *)(uintptr_t)(block[0] - 1) = 1;
    }
    if (strcmp(what, "for") == 0) {
        double end = now() + (double)a / 1e3;
        pthread_t other;
        pairs(200, 9);
        puts("ready");
        fflush(stdout);
        pthread_create(&other, NULL, until, &end);
        until(&end);
        pthread_join(other, NULL);
        printf("%llx\n", (unsigned long long)pairs(1000, 5));
        return 5;
    }
    if (strcmp(what, "catch") == 0) {
        signal(SIGINT, on_signal);
        puts("ready");
        fflush(stdout);
        for (int i = 0; i < 1000 && !caught; i++) usleep(10000);
        puts(caught == SIGINT ? "caught" : "nothing came");
        return 7;
    }
    if (strcmp(what, "daemon") == 0) return daemon_left_behind();
    return 0;
}
