/* atomics.c: every atomic operation of every width, from four threads at once, with results that only real atomicity gives. Prints OK. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS 4
#define ROUNDS 20000

typedef unsigned __int128 u128;

#define CHECK(condition)                                                   \
    do {                                                                   \
        if (!(condition)) {                                                \
            printf("line %d: %s\n", __LINE__, #condition);                 \
            exit(1);                                                       \
        }                                                                  \
    } while (0)

#define WIDTH(name, type)                                                                   \
    static type name##_sum, name##_bits, name##_cas, name##_lock;                           \
    static long name##_guarded;                                                             \
    static void name##_work(unsigned me) {                                                  \
        type one = (type)1 << me;                                                           \
        for (int i = 0; i < ROUNDS; i++) {                                                  \
            __atomic_fetch_add(&name##_sum, 3, __ATOMIC_RELAXED);                           \
            __atomic_fetch_sub(&name##_sum, 2, __ATOMIC_ACQ_REL);                           \
            CHECK(!(__atomic_fetch_or(&name##_bits, one, __ATOMIC_SEQ_CST) & one));         \
            CHECK(__atomic_fetch_and(&name##_bits, (type)~one, __ATOMIC_SEQ_CST) & one);    \
            CHECK(!(__atomic_fetch_xor(&name##_bits, one, __ATOMIC_RELEASE) & one));        \
            CHECK(__atomic_fetch_xor(&name##_bits, one, __ATOMIC_ACQUIRE) & one);           \
            type seen = __atomic_load_n(&name##_cas, __ATOMIC_ACQUIRE);                     \
            while (!__atomic_compare_exchange_n(&name##_cas, &seen, (type)(seen + 1), i & 1, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) \
                ;                                                                           \
            if (i % 16 == 0) {                                                              \
                while (__atomic_exchange_n(&name##_lock, 1, __ATOMIC_ACQUIRE)) sched_yield(); \
                name##_guarded++;                                                           \
                __atomic_store_n(&name##_lock, 0, __ATOMIC_RELEASE);                        \
            }                                                                               \
        }                                                                                   \
    }                                                                                       \
    static void name##_check(void) {                                                        \
        CHECK(name##_sum == (type)((type)THREADS * ROUNDS));                                \
        CHECK(name##_cas == (type)((type)THREADS * ROUNDS));                                \
        CHECK(name##_bits == 0);                                                            \
        CHECK(name##_guarded == THREADS * (ROUNDS / 16));                                   \
        type value = (type)12;                                                              \
        CHECK(__atomic_fetch_nand(&value, 10, __ATOMIC_SEQ_CST) == 12 && value == (type)~(type)8); \
        type expected = 5;                                                                  \
        CHECK(!__atomic_compare_exchange_n(&value, &expected, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)); \
        CHECK(expected == value);                                                           \
        __atomic_store_n(&value, 7, __ATOMIC_SEQ_CST);                                      \
        CHECK(__atomic_load_n(&value, __ATOMIC_SEQ_CST) == 7);                              \
    }

#include <sched.h>
WIDTH(a8, uint8_t)
WIDTH(a16, uint16_t)
WIDTH(a32, uint32_t)
WIDTH(a64, uint64_t)
WIDTH(a128, u128)

static void *work(void *argument) {
    unsigned me = (unsigned)(uintptr_t)argument;
    a8_work(me);
    a16_work(me);
    a32_work(me);
    a64_work(me);
    a128_work(me);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    a8_check();
    a16_check();
    a32_check();
    a64_check();
    a128_check();
    puts("OK");
    return 0;
}
