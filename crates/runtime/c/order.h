/* order.h: order stamps: which event of the recording came first. np.h includes this file; use np_order() and np_order_kept().
 *
 * What must hold: where one event happens before another (in the sense of C11: the first thread releases after its event, the second acquires before
 * its own), the first stamp must not be later than the second. A block goes from thread to thread in this way, by the program's own hand-over or inside
 * the allocator, so this is what makes attribution exact. A processor reads its counter out of order, so both sides need an argument:
 *
 * After what the thread has acquired. The counter must not be read before the loads that came before it are done.
 *   - Intel SDM vol. 2, RDTSC: "does not necessarily wait until all previous instructions have been executed before reading the counter";
 *     "if software requires RDTSC to be executed only after all previous instructions have executed and all previous loads are globally visible, it
 *     can execute LFENCE immediately before RDTSC". RDTSCP "does wait until all previous instructions have executed and all previous loads are
 *     globally visible".
 *   - AMD APM vol. 3, RDTSCP: "forces all older instructions to retire before reading the time-stamp counter". LFENCE does the same for RDTSC where
 *     it is dispatch serialising: MSR C001_1029[1], which Linux sets, or always, as CPUID 8000_0021 EAX[2] then says. A guest cannot read the
 *     register, so the recorder chooses: LFENCE where the processor guarantees it, else RDTSCP.
 *   - Arm ARM, "The AArch64 virtual counter": "reads of CNTVCT_EL0 can occur speculatively and out of order relative to other instructions executed on
 *     the same PE"; its example polls a word, branches on it, and needs an ISB before the read. The branch is in the example because ISB
 *     alone does not wait for a load. The branch on what was acquired is in code that we did not compile, so DSB ISHLD completes the loads instead.
 *
 * Before what the thread will release. The manuals let later instructions begin before the counter is read, but not their stores be seen:
 *   - A stamp is stored (in the ring, or by np_order_kept) before the program goes on. No other thread can see that store before its value is known, and a
 *     release makes it visible no later than itself: x86 keeps the order of stores (SDM vol. 3, "Memory Ordering"; APM vol. 1, 3.9.1: writes
 *     "cannot commit their result to memory until all previous instructions have completed in program order"), Arm orders the release after it.
 *   So no second fence is needed. A stamp that is written to the ring only after the hand-over (realloc, mremap) goes through np_order_kept.
 *
 * Equal stamps: a counter may tick more slowly than a hand-over takes (24 to 100 MHz on many Arm machines). Readers settle those by what the events say
 * (crates/flows, `ties`). Stamps that only order a thread's own events need none of this, because a ring keeps the order in which it was written.
 *
 * Where the counters of the CPUs do not agree (the kernel does not use the TSC as a clock), stamps come from one word in the arena. Relaxed is
 * enough there: two read-modify-writes of one word of which the first happens before the second are in that order in the word's own order. */
#ifndef NUMAPILOT_ORDER_H
#define NUMAPILOT_ORDER_H

#include "sys.h"
#include "wire.h"

#include <time.h>

#pragma GCC visibility push(hidden)
extern struct np_arena *np_arena;
#pragma GCC visibility pop

/* The processor's counter, read after all earlier loads. */
static inline uint64_t np_counter(uint32_t source) {
#if defined(__x86_64__)
    uint32_t low, high;
    if (__builtin_expect(source == NP_ORDER_COUNTER_P, 0)) __asm__ volatile("rdtscp" : "=a"(low), "=d"(high) : : "rcx", "memory");
    else __asm__ volatile("lfence\n\trdtsc" : "=a"(low), "=d"(high) : : "memory");
    return (uint64_t)high << 32 | low;
#elif defined(__aarch64__)
    (void)source;
    uint64_t value;
    __asm__ volatile("dsb ishld\n\tisb\n\tmrs %0, cntvct_el0" : "=r"(value) : : "memory");
    return value;
#else
#error "numapilot's runtime knows the counters of x86-64 and aarch64 only"
#endif
}

/* The stamp of an event that is written to the ring before the thread goes on. 0: not recording. */
static inline uint64_t np_order(void) {
    struct np_arena *arena = __atomic_load_n(&np_arena, __ATOMIC_RELAXED); /* what lies behind it the recorder has written before the program began */
    if (__builtin_expect(arena == NULL, 0)) return 0;
    uint32_t source = arena->order_source;
    if (__builtin_expect(source == NP_ORDER_SEQUENCE, 0)) return __atomic_add_fetch(&arena->order_sequence, 1, __ATOMIC_RELAXED);
    return np_counter(source);
}

/* The stamp of an end (of a block, of a mapping) that is written to the ring only once the call that hands over has returned. */
static inline uint64_t np_order_kept(void) {
    uint64_t order = np_order();
    volatile uint64_t kept = order; /* see above: no release that follows can be seen before this store */
    return kept;
}

/* Real time in the unit of clock stamps in track mode: of the counter, or nanoseconds where stamps are a sequence. `order`: a stamp just taken. */
static inline uint64_t np_real_clock(uint64_t order) {
    if (__builtin_expect(__atomic_load_n(&np_arena, __ATOMIC_RELAXED) == NULL || np_arena->order_source != NP_ORDER_SEQUENCE, 1)) return order;
    struct timespec now = {0, 0};
    NP_SYS2(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
