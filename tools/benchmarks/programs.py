"""C programs that are measured or serve as a load."""

FAULTS = r"""
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
static void touch(volatile char *memory, size_t bytes) { for (size_t at = 0; at < bytes; at += 4096) memory[at] = 1; }
static void again(volatile char *memory, size_t bytes) { touch(memory, bytes); madvise((void *)memory, bytes, MADV_DONTNEED); }
int main(void) {
    size_t bytes = 64u << 20;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    madvise(memory, bytes, MADV_NOHUGEPAGE);
    double start = now();
    for (int round = 0; round < 40; round++) again(memory, bytes);
    printf("%.6f\n", now() - start);
    return 0;
}
"""

STEADY_FAULTS = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
enum { PAGE = 4096, PAGES = 65536, THREADS = 4 };
static char *memory;
static double rate, seconds;
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
static void *work(void *number) {
    unsigned seed = (unsigned)(long)number + 1;
    double start = now(), done = 0;
    for (; now() < start + seconds; usleep(5000))
        for (double due = (now() - start) * rate / THREADS; done < due; done++) {
            char *at = memory + (size_t)(rand_r(&seed) % PAGES) * PAGE;
            madvise(at, PAGE, MADV_DONTNEED);
            *(volatile char *)at = 1;
        }
    return NULL;
}
int main(int count, char **words) {
    rate = count > 1 ? atof(words[1]) : 10000, seconds = count > 2 ? atof(words[2]) : 10;
    memory = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    madvise(memory, (size_t)PAGES * PAGE, MADV_NOHUGEPAGE);
    for (size_t page = 0; page < PAGES; page++) memory[page * PAGE] = 1;
    pthread_t threads[THREADS];
    for (long number = 0; number < THREADS; number++) pthread_create(&threads[number], NULL, work, (void *)number);
    for (int number = 0; number < THREADS; number++) pthread_join(threads[number], NULL);
    return 0;
}
"""

SLEEPERS = """
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <signal.h>
#include <unistd.h>
int main(int count, char **arguments) {
    int wanted = atoi(arguments[1]), made = 0;
    for (; made < wanted; made++) {
        int pid = fork();
        if (pid < 0) break;
        if (pid == 0) { prctl(PR_SET_PDEATHSIG, SIGKILL); for (;;) pause(); }
    }
    printf("%d\\n", made);
    fflush(stdout);
    for (;;) pause();
}
"""
