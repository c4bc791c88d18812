// What Rust calls (src/kernels.rs declares the same).
#ifndef NUMAPILOT_MEASURE_DISPATCH_H
#define NUMAPILOT_MEASURE_DISPATCH_H

#include "kernels.h"

// Whether this variant was compiled in and runs here.
int np_isa_works(enum np_isa isa);

// Runs a kernel of a variant that works here; anything else runs the portable one.
double np_run_kernel(enum np_isa isa, enum np_kernel kernel, double *a, double *b, double *c, size_t count, double q);

// Follows pointers for `loads` steps (rounded up to a multiple of NP_CHASE_UNROLL) and returns where it ends: every load waits for the one before.
void *np_chase(void *start, size_t loads);
enum { NP_CHASE_UNROLL = 100 };

// The same of NP_CHAINS chains at once, `rounds` steps of each; `ends` says where they are, before and after. More chains than any core keeps misses
// outstanding, and few enough that the instructions between two loads of one chain fit into the reorder buffers of today.
enum { NP_CHAINS = 32 };
void np_chase_many(void **ends, size_t rounds);

// `steps` dependent one-cycle operations: its time is the core's clock, whatever memory does.
unsigned long np_spin(unsigned long steps);
enum { NP_SPIN_UNROLL = 64 };

#endif
