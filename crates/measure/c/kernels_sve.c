// Arm's vectors of whatever length the processor has (SVE, 128 to 2048 bits). Compiled with -march=armv8-a+sve, called only where HWCAP shows it.
#include "kernels.h"

#include <arm_sve.h>

#define NP_NAME np_kernels_sve
#define VEC svfloat64_t
#define WIDTH svcntd()
#define ALL svptrue_b64()
#define LOAD(p) svld1_f64(ALL, (p))
#define STORE(p, v) svst1_f64(ALL, (p), (v))
#define STREAM(p, v) svstnt1_f64(ALL, (p), (v))
#define FENCE ((void)0)
#define SET(x) svdup_n_f64(x)
#define ADD(x, y) svadd_f64_x(ALL, (x), (y))
#define SUB(x, y) svsub_f64_x(ALL, (x), (y))
#define MUL(x, y) svmul_f64_x(ALL, (x), (y))
#define SUM(v) svaddv_f64(ALL, (v))
#include "kernels.inc"
