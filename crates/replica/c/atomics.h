/* atomics.h: the few atomic operations that the protocol is made of, on words of 64 bits. Under NPR_MODEL the model checker supplies them, and
 * runs the same protocol under every interleaving (tests/c/model.c). */
#ifndef NPR_ATOMICS_H
#define NPR_ATOMICS_H

#include <stdint.h>

typedef uint64_t npr_word;

#ifdef NPR_MODEL

npr_word npr_load(const npr_word *from);             /* acquire */
npr_word npr_own(const npr_word *from);              /* of a word that only this thread writes */
void npr_store(npr_word *to, npr_word value);        /* release: may wait in the store buffer */
npr_word npr_add(npr_word *to, npr_word value);      /* sequentially consistent; the sum */
npr_word npr_swap(npr_word *to, npr_word value);     /* sequentially consistent; the value before */
void npr_light_barrier(int has_heavy);               /* the reader's half of a store-load barrier */
int npr_heavy_barrier(int has_heavy);                /* the writer's half; 0: it did not happen */
static inline void npr_compiler_barrier(void) {}

#else

#include <linux/membarrier.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline npr_word npr_load(const npr_word *from) { return __atomic_load_n(from, __ATOMIC_ACQUIRE); }
static inline npr_word npr_own(const npr_word *from) { return __atomic_load_n(from, __ATOMIC_RELAXED); }
static inline void npr_store(npr_word *to, npr_word value) { __atomic_store_n(to, value, __ATOMIC_RELEASE); }
static inline npr_word npr_add(npr_word *to, npr_word value) { return __atomic_add_fetch(to, value, __ATOMIC_SEQ_CST); }
static inline npr_word npr_swap(npr_word *to, npr_word value) { return __atomic_exchange_n(to, value, __ATOMIC_SEQ_CST); }
static inline void npr_compiler_barrier(void) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

/* Readers pay nothing where the kernel can interrupt all running threads of the process for the writer (membarrier, Linux 4.14). */
static inline void npr_light_barrier(bool has_heavy) {
    npr_compiler_barrier();
    if (__builtin_expect(!has_heavy, 0)) __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline bool npr_register_barrier(void) {
    long offered = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    if (offered < 0 || !(offered & MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return false;
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

/* False: the barrier did not happen, and nothing may be concluded from what is read next. */
static inline bool npr_heavy_barrier(bool has_heavy) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (!has_heavy) return true;
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0) return true;
    return npr_register_barrier() && syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
}

#endif
#endif
