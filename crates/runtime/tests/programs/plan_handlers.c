/* plan_handlers.c: a signal handler that comes while its thread has locks of the planner, and forks, maps memory, allocates and gives back. The program is the
 * one that places memory (linked with -rdynamic), and so is asked under a lock. Ends by a signal if that takes for
 * ever, which is far longer than a busy machine needs. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LARGE (1ul << 20)

static volatile sig_atomic_t is_armed, handled, wrong;
static void *volatile given;

static int maps(void) {
    char *memory = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 0;
    memory[0] = 1;
    memory = mremap(memory, LARGE, 2 * LARGE, MREMAP_MAYMOVE);
    return memory != MAP_FAILED && memory[0] == 1 && munmap(memory, 2 * LARGE) == 0;
}

static void on_signal(int number) {
    int status = 0;
    (void)number;
    handled++;
    wrong |= !maps();
    pid_t child = fork();
    if (child == 0) _exit(!maps());
    wrong |= child < 0 || waitpid(child, &status, 0) != child || status != 0;
    char *block = malloc(LARGE);
    if (block != NULL) memset(block, 2, LARGE);
    else wrong = 1;
    free(given);
    given = block;
}

long mbind(void *start, unsigned long bytes, int mode, const unsigned long *nodes, unsigned long bits, unsigned flags) {
    (void)start, (void)bytes, (void)mode, (void)nodes, (void)bits, (void)flags;
    if (!is_armed) return 0;
    is_armed = 0;
    raise(SIGUSR1);
    return 0;
}

/* The locks are free afterwards, in a child, too. */
static int goes_on(size_t bytes) {
    void *blocks[100];
    for (int i = 0; i < 100; i++)
        if ((blocks[i] = malloc(bytes)) == NULL) return 0;
    for (int i = 0; i < 100; i++) free(blocks[i]);
    return 1;
}

int main(void) {
    alarm(600);
    signal(SIGUSR1, on_signal);
    for (int i = 0; i < 50; i++) {
        int status = 0;
        given = malloc(LARGE);
        is_armed = 1;
        void *block = malloc(LARGE * 3 + (size_t)i * 65536);
        if (block == NULL || handled != i + 1 || wrong) return 3;
        free(given);
        if (!goes_on(100) || !goes_on(LARGE)) return 4;
        pid_t child = fork();
        if (child == 0) _exit(!goes_on(200) || !goes_on(LARGE));
        if (waitpid(child, &status, 0) != child || status != 0) return 5;
        if (i % 2) free(block);
    }
    return 0;
}
