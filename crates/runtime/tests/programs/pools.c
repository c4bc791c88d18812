/* Memory pools of the program's own: each call that it makes, in order, is said in the truth. Usage: pools, or pools unrecorded (without a recorder). */
#include <stdlib.h>

#define free(block) own_free(block) /* allocators have macros of such names */
#include "../../include/numapilot_pool.h"
#undef free

#include "truth.h"

#include <errno.h>
#include <sys/wait.h>

#define THREADS 8
#define EACH 2000
#define LONG_NAME 300

static char memory[1 << 20];

static NOINLINE void *take(np_pool pool, size_t at, size_t bytes) {
    errno = 77;
    np_pool_alloc(pool, memory + at, bytes);
    CHECK(errno == 77);
    truth("made %lx %zu in %u", (unsigned long)(memory + at), bytes, pool);
    return memory + at;
}

static NOINLINE void give(np_pool pool, void *block) {
    truth("given %lx in %u", (unsigned long)block, pool);
    np_pool_free(pool, block);
}

static void *many(void *argument) {
    np_pool pool = *(np_pool *)argument;
    static size_t next = 4096;
    for (int i = 0; i < EACH; i++) {
        size_t at = __atomic_fetch_add(&next, 32, __ATOMIC_RELAXED);
        np_pool_alloc(pool, memory + at, 32);
        if (i % 2) np_pool_free(pool, memory + at);
    }
    return NULL;
}

int main(int argc, char **argv) {
    (void)argv;
    char name[LONG_NAME + 1];
    memset(name, 'n', LONG_NAME);
    name[LONG_NAME] = 0;
    np_pool first = np_pool_create("first"), second = np_pool_create(name), none = np_pool_create(NULL);
    if (argc > 1) {
        CHECK(first == 0 && second == 0 && none == 0);
        np_pool_alloc(first, memory, 8);
        np_pool_free(first, memory);
        np_pool_reset(first);
        np_pool_destroy(first);
        return 0;
    }
    CHECK(first != 0 && second != first && none != second && none != first);
    truth("pool %u first", first);
    truth("pool %u %.200s", second, name);
    truth("pool %u ", none);
    void *blocks[3];
    for (int i = 0; i < 3; i++) blocks[i] = take(first, 64 * (size_t)i, 64); /* one line: one stack */
    void *other = take(second, 1024, 0);
    give(first, blocks[1]);
    give(second, other);
    np_pool_alloc(first, NULL, 8); /* none of these is a block */
    np_pool_free(first, NULL);
    np_pool_alloc(0, memory, 8);
    truth("reset %u", first);
    np_pool_reset(first);
    take(first, 0, 100);
    truth("destroyed %u", second);
    np_pool_destroy(second);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, many, &none);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    pid_t child = fork();
    if (child == 0) {
        np_pool own = np_pool_create("of the child");
        CHECK(own > none);
        np_pool_reset(first);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    truth_write();
    return 0;
}
