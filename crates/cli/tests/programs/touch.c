/* Touches known pages from known lines and threads, and says what it did: the truth for tests of engine `fault`.
 *
 * touch             all of it
 * touch storm N     touches N pages while its parent (the recorder) is stopped, so that the kernel's rings overflow
 * touch wait        touches `before`, waits for a line on standard input, touches `after`
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096L
#define TOUCH(base, from, to) for (long page = (from); page < (to); page++) ((volatile char *)(base))[page * PAGE + 64] = 1

static char statics[64 * PAGE] __attribute__((aligned(4096)));
static char *heap;
static long tids[2];

static long faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

static long resident(char *base, long pages) {
    unsigned char *core = calloc((size_t)pages, 1);
    long count = 0;
    if (mincore(base, (size_t)(pages * PAGE), core) == 0)
        for (long page = 0; page < pages; page++) count += core[page] & 1;
    free(core);
    return count;
}

static char *fresh(long pages) {
    char *base = mmap(NULL, (size_t)(pages * PAGE), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(base, (size_t)(pages * PAGE), MADV_NOHUGEPAGE);
    return base;
}

static void *first(void *unused) {
    tids[0] = syscall(SYS_gettid);
    TOUCH(heap, 1, 100); /* LINE first */
    return unused;
}

static void *second(void *unused) {
    tids[1] = syscall(SYS_gettid);
    TOUCH(heap, 100, 300); /* LINE second */
    return unused;
}

static void all(void) {
    pthread_t thread;
    heap = malloc(400 * PAGE);
    pthread_create(&thread, NULL, first, NULL);
    pthread_join(thread, NULL);
    pthread_create(&thread, NULL, second, NULL);
    pthread_join(thread, NULL);
    char *mapped = fresh(500);
    long before = faults();
    TOUCH(mapped, 0, 500); /* LINE mapped */
    long of_mapped = faults() - before;
    TOUCH(statics, 0, 64); /* LINE statics */
    long of_blocks = 0;
    for (int round = 0; round < 200; round++) {
        /* The same addresses again and again: each block's pages belong to that block. */
        char *block = malloc(64 * PAGE);
        before = faults();
        TOUCH(block, 1, 60); /* LINE block */
        of_blocks += faults() - before;
        free(block);
    }
    printf("{\"first\": %ld, \"second\": %ld, \"main\": %d, \"mapped_faults\": %ld, \"mapped_resident\": %ld, \"block_faults\": %ld}\n", tids[0], tids[1],
           getpid(), of_mapped, resident(mapped, 500), of_blocks);
}

int main(int count, char **arguments) {
    if (count > 2 && strcmp(arguments[1], "storm") == 0) {
        long pages = atol(arguments[2]);
        char *base = fresh(pages);
        kill(getppid(), SIGSTOP);
        TOUCH(base, 0, pages);
        kill(getppid(), SIGCONT);
    } else if (count > 1 && strcmp(arguments[1], "wait") == 0) {
        char *before = fresh(200), *after = fresh(300), line[16];
        TOUCH(before, 0, 200);
        puts("ready");
        fflush(stdout);
        if (fgets(line, sizeof line, stdin) == NULL) return 1;
        TOUCH(after, 0, 300); /* LINE after */
    } else {
        all();
    }
    return 0;
}
