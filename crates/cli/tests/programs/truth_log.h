/* truth_log.h: the log of what a test program really did, read back by attribution.rs. Built without call-outs, so that logging itself is not
 * recorded. One file per thread: fixed-size entries in the machine's byte order. */
#ifndef TRUTH_LOG_H
#define TRUTH_LOG_H

#include <stdint.h>
#include <x86intrin.h>

#ifdef __cplusplus
extern "C" {
#endif

enum truth_type { TRUTH_BORN = 1, TRUTH_BURST = 2, TRUTH_DIED = 3 };

/* Births know everything; bursts and deaths repeat the instance and the address. */
struct truth_entry {
    uint32_t type;
    uint32_t line;
    uint64_t instance;
    uint64_t address;
    uint64_t bytes;
    uint64_t before; /* time-stamp counter */
    uint64_t after;
    char kind[16];
};

/* Opens folder/pid-tid for the calling thread; a forked child calls it anew. */
void truth_open(const char *folder);
void truth_write(const struct truth_entry *entry);
void truth_close(void);

/* Neither earlier nor later instructions cross it. */
static inline __attribute__((always_inline)) uint64_t truth_now(void) {
    _mm_mfence();
    _mm_lfence();
    uint64_t now = __rdtsc();
    _mm_lfence();
    return now;
}

#ifdef __cplusplus
}
#endif
#endif
