// 32-byte vectors of AVX2. Compiled with -mavx2 -mfma, called only where the processor has both.
#include "kernels.h"

#include <immintrin.h>

#define NP_NAME np_kernels_avx2
#define VEC __m256d
#define WIDTH 4
#define LOAD(p) _mm256_load_pd(p)
#define STORE(p, v) _mm256_store_pd((p), (v))
#define STREAM(p, v) _mm256_stream_pd((p), (v))
#define FENCE _mm_sfence()
#define SET(x) _mm256_set1_pd(x)
#define ADD(x, y) _mm256_add_pd((x), (y))
#define SUB(x, y) _mm256_sub_pd((x), (y))
#define MUL(x, y) _mm256_mul_pd((x), (y))

static double sum_of(__m256d v) {
    double out[4] __attribute__((aligned(32)));
    _mm256_store_pd(out, v);
    return out[0] + out[1] + out[2] + out[3];
}
#define SUM(v) sum_of(v)
#include "kernels.inc"
