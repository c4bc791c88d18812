/* A signal handler that jumps out of whatever the program does, as time limits and interpreters' Ctrl-C do; then, without signals, 1000 blocks of 777 bytes.
 * Argument "deep": the blocks are made far below the place that it jumps to; "allocator": it jumps out of the allocator, which must be one that bears that. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>

#define JUMPS 3000
#define ALLOCATOR_JUMPS 500
static sigjmp_buf home;
static volatile int jumps;

static void on_alarm(int number) {
    (void)number;
    jumps++;
    siglongjmp(home, 1);
}

static __attribute__((noinline)) void allocate(void) {
    for (int i = 0; i < 1000; i++) {
        void *volatile block = malloc(777);
        free(block);
    }
}

static __attribute__((noinline)) void allocate_deep(void) {
    volatile char room[100000];
    memset((void *)room, 1, sizeof room);
    allocate();
}

int main(int count, char **arguments) {
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, NULL);
    sigsetjmp(home, 1);
    setitimer(ITIMER_REAL, &often, NULL);
    bool allocates = count == 2 && strcmp(arguments[1], "allocator") == 0;
    while (allocates && jumps < ALLOCATOR_JUMPS) free(malloc(50));
    /* System calls alone, which a jump may leave: a jump out of the C library's malloc is the program's own fault. */
    while (!allocates && jumps < JUMPS) munmap(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
    setitimer(ITIMER_REAL, &never, NULL);
    if (count == 2 && strcmp(arguments[1], "deep") == 0) allocate_deep();
    else allocate();
    return 0;
}
