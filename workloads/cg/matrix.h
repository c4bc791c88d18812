/* A random sparse symmetric positive definite matrix in compressed sparse rows. */
#ifndef CG_MATRIX_H
#define CG_MATRIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Rows per block of work and of partial sums, so that results do not depend on the number of threads. */
enum { BLOCK_ROWS = 128 };

struct matrix {
    size_t n;
    size_t nonzeros;
    size_t *rowstr; /* n + 1: where each row begins in colidx and a */
    uint32_t *colidx;
    double *a;
};

/* `per_row` random entries left of the diagonal in each row, mirrored; the diagonal exceeds the sum of its row's absolute values by 1.
 * The calling thread writes everything; with `place_by_rows` the threads of an OpenMP team touch their rows' memory before. */
struct matrix matrix_make(size_t n, size_t per_row, uint64_t seed, bool place_by_rows);
void matrix_free(struct matrix *matrix);

/* A vector of n numbers, placed in the same way; not initialised. */
double *vector_make(size_t n, bool place_by_rows);

static inline size_t block_count(size_t n) {
    return (n + BLOCK_ROWS - 1) / BLOCK_ROWS;
}
static inline size_t block_end(size_t block, size_t n) {
    size_t end = (block + 1) * BLOCK_ROWS;
    return end < n ? end : n;
}

#endif
