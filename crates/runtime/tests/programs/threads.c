/* Threads of every making: pthreads, C11, clone without thread-local storage; ended by return, pthread_exit, cancellation; named from both sides. */
#define _GNU_SOURCE
#include "truth.h"
#include <errno.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <threads.h>

static pthread_key_t key;
static __thread void *late;

static void at_end(void *value) {
    /* Allocations of destructors belong to the thread, too. */
    free(value);
    free(late);
    late = malloc(31);
    MADE(late, 31, "Malloc");
    GONE(late);
    free(late);
    late = NULL;
}

static void use_key(void) {
    void *value = malloc(29);
    MADE(value, 29, "Malloc");
    GONE(value);
    pthread_setspecific(key, value);
    late = malloc(30);
}

static void *by_return(void *name) {
    if (name != NULL) pthread_setname_np(pthread_self(), name);
    use_key();
    return name;
}
static void *by_exit(void *name) {
    prctl(PR_SET_NAME, name);
    use_key();
    pthread_exit(name);
}
static void *by_cancel(void *ready) {
    use_key();
    __atomic_store_n((int *)ready, 1, __ATOMIC_RELEASE);
    for (;;) pause();
}
static int c11(void *argument) {
    free(malloc(1234));
    return *(int *)argument;
}
static int cloned(void *argument) {
    __atomic_store_n((int *)argument, 1, __ATOMIC_RELEASE);
    syscall(SYS_exit, 0);
    return 0;
}
static int cloned_return(void *argument) {
    __atomic_store_n((int *)argument, 1, __ATOMIC_RELEASE);
    return 0;
}

static void clones(int (*routine)(void *)) {
    size_t bytes = 1 << 16;
    char *stack = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    int done = 0, tid = 1;
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID | CLONE_PARENT_SETTID;
    CHECK(clone(NULL, stack + bytes, flags, &done, &tid, NULL, &tid) == -1 && errno == EINVAL); /* as without the tracker: no thread */
    CHECK(clone(routine, stack + bytes, flags, &done, &tid, NULL, &tid) > 0);
    while (__atomic_load_n(&tid, __ATOMIC_ACQUIRE) != 0) free(malloc(77));
    CHECK(done == 1);
    munmap(stack, bytes);
}

int main(void) {
    pthread_t id;
    void *result;
    pthread_key_create(&key, at_end);
    CHECK(pthread_create(&id, NULL, by_return, "returns") == 0 && pthread_join(id, &result) == 0 && strcmp(result, "returns") == 0);
    CHECK(pthread_create(&id, NULL, by_exit, "exits") == 0 && pthread_join(id, &result) == 0 && strcmp(result, "exits") == 0);
    int ready = 0, value = 42, c11_result = 0;
    CHECK(pthread_create(&id, NULL, by_cancel, &ready) == 0);
    while (!__atomic_load_n(&ready, __ATOMIC_ACQUIRE)) sched_yield();
    CHECK(pthread_setname_np(id, "is cancelled") == 0);
    CHECK(pthread_cancel(id) == 0 && pthread_join(id, &result) == 0 && result == PTHREAD_CANCELED);
    thrd_t c11_id;
    CHECK(thrd_create(&c11_id, c11, &value) == thrd_success && thrd_join(c11_id, &c11_result) == thrd_success && c11_result == 42);
    pthread_attr_t small;
    pthread_attr_init(&small);
    CHECK(pthread_attr_setstacksize(&small, PTHREAD_STACK_MIN + 16384) == 0);
    CHECK(pthread_create(&id, &small, by_return, NULL) == 0 && pthread_join(id, NULL) == 0);
    clones(cloned_return);
    clones(cloned);
    truth_write();
    return 0;
}
