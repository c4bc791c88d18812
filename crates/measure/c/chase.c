// Loops whose every step waits for the one before: a chase through memory, several chases side by side, and a spin in a register.
#include "dispatch.h"

#define TIMES_4(X) X X X X
#define TIMES_16(X) TIMES_4(TIMES_4(X))
#define TIMES_64(X) TIMES_4(TIMES_16(X))
#define TIMES_100(X) TIMES_64(X) TIMES_16(X) TIMES_16(X) TIMES_4(X)

// A hundred to a turn, as lat_mem_rd has it: with a power of two each load of the loop meets the same places again and again, prefetchers that go by the
// load's address in the program learn them, and strided walks look a fifth to a half faster than they are.
void *np_chase(void *start, size_t loads) {
    void **p = start;
    for (size_t done = 0; done < loads; done += NP_CHASE_UNROLL) {
        TIMES_100(p = (void **)*p;)
    }
    return (void *)p;
}

// Each chain's load waits for that chain's last one only; the processor overlaps as many chains as it can.
void np_chase_many(void **ends, size_t rounds) {
    void *p[NP_CHAINS];
    for (int chain = 0; chain < NP_CHAINS; chain++) p[chain] = ends[chain];
    for (size_t done = 0; done < rounds; done++) {
        for (int chain = 0; chain < NP_CHAINS; chain++) p[chain] = *(void **)p[chain];
    }
    for (int chain = 0; chain < NP_CHAINS; chain++) ends[chain] = p[chain];
}

// An exclusive or with a register: one cycle on every processor we know, and none that renames it away (as newer ones do with small additions).
unsigned long np_spin(unsigned long steps) {
    unsigned long value = steps, key = steps | 1;
    for (unsigned long done = 0; done < steps; done += NP_SPIN_UNROLL) {
        TIMES_64(value ^= key; __asm__ volatile("" : "+r"(value), "+r"(key));)
    }
    return value;
}
