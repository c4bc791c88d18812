/* work.h: work of a known program length, which takes host time too. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif
void numapilot_work(uint64_t cycles) __attribute__((weak));
uint64_t numapilot_clock(void) __attribute__((weak));
#ifdef __cplusplus
}
#endif

static inline uint64_t clock_now(void) {
    return numapilot_clock ? numapilot_clock() : 0;
}

static inline void work(uint64_t cycles) {
    for (uint64_t i = 0; i < cycles / 4; i++) __asm__ volatile("" ::: "memory");
    if (numapilot_work) numapilot_work(cycles);
}
