/* plan_jumps.c: a signal handler jumps out of the planner's part in a mmap, which is a system call to the program. The program is the one that places memory
 * (linked with -rdynamic), and so is asked in the midst of that. Argument: "alternate" for handlers on a stack of their own. Prints how many mappings and
 * blocks were placed afterwards, of the same thread and of another one. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LARGE = 1 << 20, ROUNDS = 10 };

static volatile sig_atomic_t is_armed, placed, placed_within;
static sigjmp_buf before;

static void map(void) {
    if (mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) abort();
}

/* The mapping under way may go on, as far as the planner knows: what is mapped here is not placed. */
static void on_signal(int number) {
    (void)number;
    int so_far = placed;
    map();
    placed_within += placed - so_far;
    siglongjmp(before, 1);
}

long mbind(void *start, unsigned long bytes, int mode, const unsigned long *nodes, unsigned long bits, unsigned flags) {
    (void)start, (void)bytes, (void)mode, (void)nodes, (void)bits, (void)flags;
    if (is_armed) {
        is_armed = 0;
        raise(SIGUSR1);
    }
    placed++;
    return 0;
}

static void jump(void) {
    if (sigsetjmp(before, 1) != 0) return;
    is_armed = 1;
    map();
    abort(); /* not asked */
}

static void *use(void *unused) {
    for (int i = 0; i < ROUNDS; i++) map();
    return unused;
}

int main(int count, char **arguments) {
    (void)arguments;
    static char room[1 << 16];
    stack_t alternate = {.ss_sp = room, .ss_size = sizeof room};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = count > 1 ? SA_ONSTACK : 0};
    alarm(600);
    if (sigaltstack(&alternate, NULL) != 0 || sigaction(SIGUSR1, &action, NULL) != 0) return 2;
    jump();
    placed = 0;
    use(NULL);
    int mappings = placed;
    jump();
    placed = 0;
    void *block = malloc(LARGE);
    int blocks = placed;
    jump();
    placed = 0;
    pthread_t thread;
    if (pthread_create(&thread, NULL, use, NULL) != 0 || pthread_join(thread, NULL) != 0) return 3;
    printf("%d %d %d within %d\n", mappings, blocks, placed, placed_within);
    free(block);
    return 0;
}
