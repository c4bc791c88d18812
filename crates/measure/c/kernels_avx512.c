// 64-byte vectors of AVX-512F: a whole line each, so that a streaming store never waits for the rest of one.
#include "kernels.h"

#include <immintrin.h>

#define NP_NAME np_kernels_avx512
#define VEC __m512d
#define WIDTH 8
#define LOAD(p) _mm512_load_pd(p)
#define STORE(p, v) _mm512_store_pd((p), (v))
#define STREAM(p, v) _mm512_stream_pd((p), (v))
#define FENCE _mm_sfence()
#define SET(x) _mm512_set1_pd(x)
#define ADD(x, y) _mm512_add_pd((x), (y))
#define SUB(x, y) _mm512_sub_pd((x), (y))
#define MUL(x, y) _mm512_mul_pd((x), (y))
#define SUM(v) _mm512_reduce_add_pd(v)
#include "kernels.inc"
