/* plan_rush.c: threads that are refused a mapping at the same moment, where the planner has enough in reserve for all of them (`ulimit -v`). In each of many
 * children, so that each has the reserve whole. Prints in how many of them some thread was told that there is no memory. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, CHILDREN = 200 };
#define MIB (1ul << 20)
#define SHARE (128 * MIB) /* of each thread */

static void *map(size_t bytes) { return mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0); }

static unsigned waiting = THREADS;

static void *rush(void *unused) {
    (void)unused;
    __atomic_fetch_sub(&waiting, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&waiting, __ATOMIC_ACQUIRE) != 0) {}
    return map(SHARE) == MAP_FAILED ? "no memory" : NULL;
}

/* Leaves less than one share. */
static int fill(void) {
    struct rlimit limit;
    unsigned long pages;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%lu", &pages) != 1 || getrlimit(RLIMIT_AS, &limit) != 0) return 0;
    fclose(file);
    return map(limit.rlim_cur - pages * (size_t)sysconf(_SC_PAGESIZE) - SHARE / 2) != MAP_FAILED;
}

static int child(void) {
    pthread_t threads[THREADS];
    pthread_attr_t small;
    int failed = 0;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 1 * MIB);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], &small, rush, NULL) != 0) return 9;
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        failed |= result != NULL;
    }
    return failed;
}

int main(void) {
    int refused = 0;
    if (!fill()) return 2;
    for (int i = 0; i < CHILDREN; i++) {
        int status;
        pid_t pid = fork();
        if (pid == 0) _exit(child());
        if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) > 1) return 3;
        refused += WEXITSTATUS(status);
    }
    printf("%d\n", refused);
    return 0;
}
