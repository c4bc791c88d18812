/* plan_pins.c: who may run where, under a rule that pins the main thread.
 *
 *   plan_pins image FILE   writes a plan image: the process's first thread to the first CPU that it may use
 *   plan_pins named FILE   the same for threads of a name of 15 bytes
 *   plan_pins second FILE  the same for the second thread that is created
 *   plan_pins late         creates four threads; prints for how many CPUs each is allowed. Behind a library from this file with -DSHIM, which must see the
 *                          symbols of the program (-rdynamic), each begins after those that are created later
 *   plan_pins nested       a thread creates a thread, which prints for how many CPUs it is allowed
 *   plan_pins rename       takes a longer name that begins so; prints for how many CPUs it is allowed then
 *   plan_pins              prints for how many CPUs main thread, a worker, its forked child and a child of the main thread are allowed; a worker that
 *                          was created with CPUs of its own, and a worker of a main thread that has moved itself */
#define _GNU_SOURCE
#include "plan_wire.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef SHIM
#include <dlfcn.h>

extern int turn;
struct late { int turn; void *(*routine)(void *); void *argument; };

static void *wait_for_turn(void *given) {
    struct late late = *(struct late *)given;
    free(given);
    while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) != late.turn) usleep(1000);
    return late.routine(late.argument);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *), void *argument) {
    static int created;
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, "pthread_create");
    struct late *late = malloc(sizeof *late);
    *late = (struct late){++created, routine, argument};
    return real(thread, attributes, wait_for_turn, late);
}
#else
static int write_image(const char *path, const char *which) {
    int is_named = strcmp(which, "named") == 0;
    static struct { struct np_plan plan; struct np_plan_place place; } image;
    struct np_plan *plan = &image.plan;
    plan->magic = NP_PLAN_MAGIC;
    plan->version = NP_PLAN_VERSION;
    plan->bytes = sizeof image;
    plan->memory_nodes = 1;
    plan->thread_count = 1;
    plan->threads = sizeof *plan;
    plan->rules = plan->processes = plan->modules = plan->code = plan->statics = sizeof image;
    plan->min_size = UINT64_MAX;
    image.place.start_pattern = NP_PLAN_NO_PATTERN;
    image.place.range_count = !is_named; /* order 0 */
    if (strcmp(which, "second") == 0) image.place.order[0].first = image.place.order[0].last = 2;
    if (is_named) strcpy(image.place.name, "WorkerThreadPoo");
    cpu_set_t own;
    sched_getaffinity(0, sizeof own, &own);
    int first = 0;
    while (!CPU_ISSET(first, &own)) first++;
    image.place.cpus[first / 64] = 1ull << (first % 64);
    FILE *file = fopen(path, "wb");
    return file != NULL && fwrite(&image, sizeof image, 1, file) == 1 && fclose(file) == 0 ? 0 : 1;
}

static int cpus(void) {
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    return CPU_COUNT(&set);
}

static int of_child(void) {
    pid_t child = fork();
    if (child == 0) _exit(cpus());
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

static int worker_forks;
static void *work(void *result) {
    *(int *)result = cpus();
    if (worker_forks) ((int *)result)[1] = of_child();
    return NULL;
}

static void run_one(int *results, const pthread_attr_t *attributes) {
    pthread_t thread;
    if (pthread_create(&thread, attributes, work, results) != 0) exit(3);
    pthread_join(thread, NULL);
}

#define LATE 4
int turn = LATE;

static void *work_late(void *result) {
    *(int *)result = cpus();
    __atomic_fetch_sub(&turn, 1, __ATOMIC_RELEASE);
    return NULL;
}

static int run_late(void) {
    pthread_t threads[LATE];
    int results[LATE];
    for (int i = 0; i < LATE; i++)
        if (pthread_create(&threads[i], NULL, work_late, &results[i]) != 0) return 3;
    for (int i = 0; i < LATE; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < LATE; i++) printf("%d ", results[i]);
    return 0;
}

static void *nest(void *result) {
    run_one(result, NULL);
    return NULL;
}

static int run_nested(void) {
    pthread_t thread;
    int result;
    if (pthread_create(&thread, NULL, nest, &result) != 0) return 3;
    pthread_join(thread, NULL);
    printf("%d\n", result);
    return 0;
}

int main(int count, char **arguments) {
    if (count == 2 && strcmp(arguments[1], "nested") == 0) return run_nested();
    if (count == 2 && strcmp(arguments[1], "late") == 0) return run_late();
    if (count == 3) return write_image(arguments[2], arguments[1]);
    if (count == 2) {
        prctl(PR_SET_NAME, "WorkerThreadPool-1");
        printf("%d\n", cpus());
        return 0;
    }
    int results[2];
    worker_forks = 1;
    run_one(results, NULL);
    printf("main %d worker %d its child %d child of main %d\n", cpus(), results[0], results[1], of_child());
    worker_forks = 0;
    /* Of CPUs that the program itself asks for, none is taken back: two of them, where there are so many. */
    cpu_set_t two;
    CPU_ZERO(&two);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&two) < 2; cpu++) CPU_SET(cpu, &two);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (pthread_attr_setaffinity_np(&attributes, sizeof two, &two) == 0) run_one(results, &attributes);
    printf("by attribute %d", results[0]);
    if (sched_setaffinity(0, sizeof two, &two) != 0) return 4;
    run_one(results, NULL);
    printf(" after moving %d\n", results[0]);
    return 0;
}
#endif
