// For every processor: vectors of 16 bytes, which compilers map to the baseline's own (SSE2, NEON, VSX, ...) or take apart. Only where the baseline has a
// store that passes the caches by does STREAM differ from STORE.
#include "kernels.h"

typedef double VEC __attribute__((vector_size(16), aligned(16), may_alias));

#define NP_NAME np_kernels_portable
#define WIDTH 2
#define LOAD(p) (*(const VEC *)(p))
#define STORE(p, v) (*(VEC *)(p) = (v))
#if defined(__SSE2__)
#include <emmintrin.h>
#define STREAM(p, v) _mm_stream_pd((p), (__m128d)(v))
#define FENCE _mm_sfence()
#else
#define STREAM STORE
#define FENCE ((void)0)
#endif
#define SET(x) ((VEC){(x), (x)})
#define ADD(x, y) ((x) + (y))
#define SUB(x, y) ((x) - (y))
#define MUL(x, y) ((x) * (y))
#define SUM(v) ((v)[0] + (v)[1])
#include "kernels.inc"
