/* A signal handler that jumps out of whatever the program does, as time limits and interpreters' Ctrl-C do; then, without signals, 1000 blocks of 777 bytes.
 * Argument "deep": the blocks are made far below the place that it jumps to; "allocator": it jumps out of the allocator, which must be one that bears that. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define JUMPS 3000
#define ALLOCATOR_JUMPS 500
/* Calls that wait for a jump, at most: all that are made must have room in the arena, however long a busy machine keeps the sender from running. */
#define CALLS 10
static sigjmp_buf home;
static pthread_t jumper;
static int wanted = JUMPS;
static volatile bool asked, granted;
static volatile int jumps;

static void on_alarm(int number) {
    (void)number;
    jumps++;
    siglongjmp(home, 1);
}

/* Sends signals, each a moment after the program was told of it, and after the jump of the one before: a timer may tick every 4 ms only. */
static void *send(void *nothing) {
    unsigned random = 1;
    for (int seen; (seen = jumps) < wanted;) {
        while (!asked) sched_yield();
        asked = false;
        granted = true;
        for (volatile unsigned i = random >> 20; i > 0; i--) {}
        random = random * 1103515245 + 12345;
        pthread_kill(jumper, SIGALRM);
        while (jumps == seen) sched_yield();
    }
    return nothing;
}

/* Until the sender has a CPU. */
static void ask(void) {
    asked = true;
    while (!granted) sched_yield();
    granted = false;
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
    static bool allocates;
    static pthread_t sender;
    sigaction(SIGALRM, &action, NULL);
    allocates = count == 2 && strcmp(arguments[1], "allocator") == 0;
    if (allocates) wanted = ALLOCATOR_JUMPS;
    jumper = pthread_self();
    if (pthread_create(&sender, NULL, send, NULL) != 0) return 2;
    sigsetjmp(home, 1);
    while (jumps < wanted) {
        ask();
        /* System calls alone, which a jump may leave: a jump out of the C library's malloc is the program's own fault. */
        for (int i = 0; i < CALLS; i++) {
            if (allocates) free(malloc(50));
            else munmap(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
        }
    }
    pthread_join(sender, NULL);
    if (count == 2 && strcmp(arguments[1], "deep") == 0) allocate_deep();
    else allocate();
    return 0;
}
