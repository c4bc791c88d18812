/* callouts_atomic.c: the compilers hand every atomic operation of an instrumented program to these entry points, so they must do it: the real
 * operation, with at least the order asked for, on the user's memory.
 *
 * Around it: the access is counted and filtered as any other (a read-modify-write, and a compare-exchange that fails, needs its line for writing);
 * acquiring loads, releasing stores and read-modify-writes are reported to program time. Read-modify-writes and fences are sequentially consistent
 * whatever was asked for: on x86-64 that costs nothing. */
#include "callouts.h"

#include <stdint.h>

typedef uint8_t np_a8;
typedef uint16_t np_a16;
typedef uint32_t np_a32;
typedef uint64_t np_a64;
typedef unsigned __int128 np_a128;

/* The order without the hints that gcc puts above it (hardware lock elision). */
static inline NP_TEXT int np_order_of(int order) { return order & 0xff; }
static inline NP_TEXT bool np_acquires(int order) { return np_order_of(order) != __ATOMIC_RELAXED && np_order_of(order) != __ATOMIC_RELEASE; }
static inline NP_TEXT bool np_releases(int order) { return np_order_of(order) >= __ATOMIC_RELEASE; }

/* Always inline: the registers are those of the entry point's caller. */
static inline __attribute__((always_inline)) struct np_slot *np_touch(uintptr_t address, size_t bytes, uint32_t bits) {
    struct np_slot *slot = np_callouts_slot;
    if (np_likely(slot != NULL) && ((bits & NP_ACC_WRITE) ? np_hits_write(slot, address) : np_hits_read(slot, address))) {
        np_add(slot->accesses, 1);
        return slot;
    }
    np_slow_access(address, bytes, bits | NP_ACC_ATOMIC, NP_CALLER_REGS());
    return np_callouts_slot;
}

/* Program time is informed through the tracker's functions, which an unattached program lacks: then there is no slot either. */
static inline NP_TEXT void np_told_rmw(struct np_slot *slot, uintptr_t address) {
    if (np_unlikely(slot != NULL)) np_load(np_callouts_primary)->rmw(slot, address);
}

#define NP_TOUCH_READ(pointer, bytes) np_touch((uintptr_t)(pointer), bytes, 0)
#define NP_TOUCH_WRITE(pointer, bytes) np_touch((uintptr_t)(pointer), bytes, NP_ACC_WRITE)

#define NP_FETCH(bits, name, expression)                                                                   \
    NP_ENTRY np_a##bits __tsan_atomic##bits##_fetch_##name(volatile np_a##bits *pointer, np_a##bits value, int order) { \
        (void)order;                                                                                       \
        struct np_slot *slot = NP_TOUCH_WRITE(pointer, bits / 8);                                          \
        np_told_rmw(slot, (uintptr_t)pointer);                                                             \
        return expression;                                                                                 \
    }

#define NP_COMPARE_EXCHANGE(bits, kind)                                                                    \
    NP_ENTRY int __tsan_atomic##bits##_compare_exchange_##kind(volatile np_a##bits *pointer, np_a##bits *expected, \
                                                               np_a##bits desired, int order, int failure_order) { \
        (void)order;                                                                                       \
        (void)failure_order;                                                                               \
        struct np_slot *slot = NP_TOUCH_WRITE(pointer, bits / 8);                                          \
        np_told_rmw(slot, (uintptr_t)pointer);                                                             \
        return np_compare_exchange##bits(pointer, expected, desired);                                      \
    }

/* Everything of one width, over np_load, np_store, np_swap and np_compare_exchange of that width. */
#define NP_WIDTH(bits)                                                                                     \
    NP_ENTRY np_a##bits __tsan_atomic##bits##_load(const volatile np_a##bits *pointer, int order) {        \
        struct np_slot *slot = NP_TOUCH_READ(pointer, bits / 8);                                           \
        np_a##bits value = np_load##bits(pointer);                                                         \
        if (np_unlikely(slot != NULL) && np_acquires(order)) np_load(np_callouts_primary)->acquire(slot, (uintptr_t)pointer); \
        return value;                                                                                      \
    }                                                                                                      \
    NP_ENTRY void __tsan_atomic##bits##_store(volatile np_a##bits *pointer, np_a##bits value, int order) { \
        struct np_slot *slot = NP_TOUCH_WRITE(pointer, bits / 8);                                          \
        if (np_unlikely(slot != NULL) && np_releases(order)) np_load(np_callouts_primary)->release(slot, (uintptr_t)pointer); \
        np_store##bits(pointer, value, order);                                                             \
    }                                                                                                      \
    NP_ENTRY np_a##bits __tsan_atomic##bits##_exchange(volatile np_a##bits *pointer, np_a##bits value, int order) { \
        (void)order;                                                                                       \
        struct np_slot *slot = NP_TOUCH_WRITE(pointer, bits / 8);                                          \
        np_told_rmw(slot, (uintptr_t)pointer);                                                             \
        return np_swap##bits(pointer, value);                                                              \
    }                                                                                                      \
    NP_COMPARE_EXCHANGE(bits, strong)                                                                      \
    NP_COMPARE_EXCHANGE(bits, weak)                                                                        \
    /* The value found, whether or not it was the expected one. */                                         \
    NP_ENTRY np_a##bits __tsan_atomic##bits##_compare_exchange_val(volatile np_a##bits *pointer, np_a##bits expected, \
                                                                   np_a##bits desired, int order, int failure_order) { \
        (void)order;                                                                                       \
        (void)failure_order;                                                                               \
        struct np_slot *slot = NP_TOUCH_WRITE(pointer, bits / 8);                                          \
        np_told_rmw(slot, (uintptr_t)pointer);                                                             \
        np_compare_exchange##bits(pointer, &expected, desired);                                            \
        return expected;                                                                                   \
    }

#define NP_NATIVE_WIDTH(bits)                                                                              \
    static inline NP_TEXT np_a##bits np_load##bits(const volatile np_a##bits *pointer) { return __atomic_load_n(pointer, __ATOMIC_SEQ_CST); } \
    static inline NP_TEXT void np_store##bits(volatile np_a##bits *pointer, np_a##bits value, int order) {         \
        if (np_order_of(order) == __ATOMIC_SEQ_CST) __atomic_store_n(pointer, value, __ATOMIC_SEQ_CST);    \
        else __atomic_store_n(pointer, value, __ATOMIC_RELEASE);                                           \
    }                                                                                                      \
    static inline NP_TEXT np_a##bits np_swap##bits(volatile np_a##bits *pointer, np_a##bits value) {               \
        return __atomic_exchange_n(pointer, value, __ATOMIC_SEQ_CST);                                      \
    }                                                                                                      \
    static inline NP_TEXT int np_compare_exchange##bits(volatile np_a##bits *pointer, np_a##bits *expected, np_a##bits desired) { \
        return __atomic_compare_exchange_n(pointer, expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
    }                                                                                                      \
    NP_WIDTH(bits)                                                                                         \
    NP_FETCH(bits, add, __atomic_fetch_add(pointer, value, __ATOMIC_SEQ_CST))                              \
    NP_FETCH(bits, sub, __atomic_fetch_sub(pointer, value, __ATOMIC_SEQ_CST))                              \
    NP_FETCH(bits, and, __atomic_fetch_and(pointer, value, __ATOMIC_SEQ_CST))                              \
    NP_FETCH(bits, or, __atomic_fetch_or(pointer, value, __ATOMIC_SEQ_CST))                                \
    NP_FETCH(bits, xor, __atomic_fetch_xor(pointer, value, __ATOMIC_SEQ_CST))                              \
    NP_FETCH(bits, nand, __atomic_fetch_nand(pointer, value, __ATOMIC_SEQ_CST))

NP_NATIVE_WIDTH(8)
NP_NATIVE_WIDTH(16)
NP_NATIVE_WIDTH(32)
NP_NATIVE_WIDTH(64)

/* ---- 16 bytes: only a compare-exchange exists (cmpxchg16b; a load-exclusive loop on AArch64), all else is made of it ----
 * Inline, without libatomic, which the program may not link. A load that finds zero stores zero back: as libatomic does, and for the same reason 16-byte
 * atomics in read-only memory do not work. */
#if defined(__x86_64__)
static inline NP_TEXT np_a128 np_swap_if_equal(volatile np_a128 *pointer, np_a128 expected, np_a128 desired) {
    uint64_t low = (uint64_t)expected, high = (uint64_t)(expected >> 64);
    __asm__ volatile("lock cmpxchg16b %2"
                     : "+a"(low), "+d"(high), "+m"(*pointer)
                     : "b"((uint64_t)desired), "c"((uint64_t)(desired >> 64))
                     : "cc", "memory");
    return (np_a128)high << 64 | low;
}
#else
static inline NP_TEXT np_a128 np_swap_if_equal(volatile np_a128 *pointer, np_a128 expected, np_a128 desired) {
    return __sync_val_compare_and_swap(pointer, expected, desired);
}
#endif

static inline NP_TEXT np_a128 np_load128(const volatile np_a128 *pointer) {
    return np_swap_if_equal((volatile np_a128 *)(uintptr_t)pointer, 0, 0);
}

static inline NP_TEXT int np_compare_exchange128(volatile np_a128 *pointer, np_a128 *expected, np_a128 desired) {
    np_a128 found = np_swap_if_equal(pointer, *expected, desired);
    if (found == *expected) return 1;
    *expected = found;
    return 0;
}

#define NP_LOOP128(new_value)                                           \
    ({                                                                  \
        np_a128 old = np_load128(pointer);                              \
        while (!np_compare_exchange128(pointer, &old, new_value)) {     \
        }                                                               \
        old;                                                            \
    })

static inline NP_TEXT np_a128 np_swap128(volatile np_a128 *pointer, np_a128 value) { return NP_LOOP128(value); }
static inline NP_TEXT void np_store128(volatile np_a128 *pointer, np_a128 value, int order) {
    (void)order;
    np_swap128(pointer, value);
}

NP_WIDTH(128)
NP_FETCH(128, add, NP_LOOP128(old + value))
NP_FETCH(128, sub, NP_LOOP128(old - value))
NP_FETCH(128, and, NP_LOOP128(old & value))
NP_FETCH(128, or, NP_LOOP128(old | value))
NP_FETCH(128, xor, NP_LOOP128(old ^ value))
NP_FETCH(128, nand, NP_LOOP128(~(old & value)))

NP_ENTRY void __tsan_atomic_thread_fence(int order) {
    (void)order;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

NP_ENTRY void __tsan_atomic_signal_fence(int order) {
    (void)order;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}
