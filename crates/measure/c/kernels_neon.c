// 16-byte vectors of NEON (every 64-bit Arm). Streaming stores go in pairs (STNP); that they pass the caches by is a hint that many cores do not take.
#include "kernels.h"

#include <arm_neon.h>

#define NP_NAME np_kernels_neon
#define VEC float64x2_t
#define WIDTH 2
#define LOAD(p) vld1q_f64(p)
#define STORE(p, v) vst1q_f64((p), (v))
#define FENCE ((void)0)
#define SET(x) vdupq_n_f64(x)
#define ADD(x, y) vaddq_f64((x), (y))
#define SUB(x, y) vsubq_f64((x), (y))
#define MUL(x, y) vmulq_f64((x), (y))
#define SUM(v) vaddvq_f64(v)

// STNP stores two registers; here the halves of one, so that the loops keep their shape.
static inline void stream(double *to, float64x2_t value) {
    __asm__ volatile("stnp %d1, %d2, %0" : "=Q"(*(double(*)[2])to) : "w"(vget_low_f64(value)), "w"(vget_high_f64(value)));
}
#define STREAM(p, v) stream((p), (v))
#include "kernels.inc"
