/* A chain of calls of known return addresses down to an allocation, compiled in every way that moves frames about. */
#include "truth.h"

#define DEPTH 12
static void *chain[DEPTH + 2];
static volatile int sink;

#if defined(WIDE)
#define LOCALS volatile char wide[96] __attribute__((aligned(64))); wide[level] = 1; sink += wide[level];
#elif defined(VARIABLE)
#define LOCALS volatile char *room = __builtin_alloca((size_t)(16 + level * 8)); room[level] = 1; sink += room[level];
#else
#define LOCALS volatile char narrow[40]; narrow[level] = 1; sink += narrow[level];
#endif

static NOINLINE void *innermost(int level) {
    LOCALS
    chain[0] = __builtin_return_address(0);
    void *block = malloc(1000 + (size_t)level);
    sink++;
    return block;
}

#define LEVEL(n, next)                                   \
    static NOINLINE void *level##n(int level) {          \
        LOCALS                                           \
        chain[n] = __builtin_return_address(0);          \
        void *block = next(level);                       \
        sink++;                                          \
        return block;                                    \
    }
LEVEL(1, innermost)
LEVEL(2, level1)
LEVEL(3, level2)
LEVEL(4, level3)
LEVEL(5, level4)
LEVEL(6, level5)
LEVEL(7, level6)
LEVEL(8, level7)
LEVEL(9, level8)
LEVEL(10, level9)

static NOINLINE int deep(int left) {
    volatile char narrow[40];
    narrow[left % 40] = 1;
    sink += narrow[left % 40];
    if (left == 0) free(malloc(7777));
    else sink += deep(left - 1);
    return sink;
}

static void say(void *block) {
    char text[512];
    size_t used = 0;
    for (int i = 0; i <= 10; i++) used += (size_t)sprintf(text + used, " %lx", (unsigned long)chain[i]);
    truth("stack %lx%s", (unsigned long)block, text);
}

static void *thread(void *argument) {
    (void)argument;
    void *block = level10(2);
    say(block);
    free(block);
    return NULL;
}

int main(void) {
    void *block = level10(1);
    say(block);
    free(block);
    /* The same stack again, and the same from elsewhere. */
    for (int i = 0; i < 100; i++) free(level10(3));
    deep(1000);
    pthread_t id;
    CHECK(pthread_create(&id, NULL, thread, NULL) == 0);
    pthread_join(id, NULL);
    truth_write();
    return 0;
}
