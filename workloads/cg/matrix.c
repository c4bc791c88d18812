/* Generation and placement of the matrix. */
#include "matrix.h"

#include "options.h"
#include "placement.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>

/* Touches the pages that hold each block's rows, given as offsets in bytes, from the thread that will work on the block. */
static void touch_range(char *memory, size_t from, size_t to) {
    for (size_t at = whole_pages(from); at < to; at += PAGE_BYTES) ((volatile char *)memory)[at] = 0;
}

static void touch_vector(double *vector, size_t n) {
#pragma omp parallel for schedule(static)
    for (size_t block = 0; block < block_count(n); block++) {
        touch_range((char *)vector, block * BLOCK_ROWS * sizeof(double), block_end(block, n) * sizeof(double));
    }
}

static void touch_matrix(struct matrix *matrix) {
#pragma omp parallel for schedule(static)
    for (size_t block = 0; block < block_count(matrix->n); block++) {
        size_t from = matrix->rowstr[block * BLOCK_ROWS], to = matrix->rowstr[block_end(block, matrix->n)];
        touch_range((char *)matrix->a, from * sizeof(double), to * sizeof(double));
        touch_range((char *)matrix->colidx, from * sizeof(uint32_t), to * sizeof(uint32_t));
    }
}

double *vector_make(size_t n, bool place_by_rows) {
    double *vector = aligned_alloc(PAGE_BYTES, whole_pages(n * sizeof(double)));
    need_memory(vector, n * sizeof(double));
    if (place_by_rows) touch_vector(vector, n);
    return vector;
}

/* Calls for each entry left of the diagonal draw the same numbers in every pass. */
static uint32_t draw_column(struct rng *rng, size_t row) {
    return rng_below(rng, (uint32_t)row);
}

static double draw_value(struct rng *rng) {
    return rng_unit(rng) * 2 - 1;
}

struct matrix matrix_make(size_t n, size_t per_row, uint64_t seed, bool place_by_rows) {
    struct matrix matrix = {.n = n};
    size_t *rowstr = aligned_alloc(PAGE_BYTES, whole_pages((n + 1) * sizeof(size_t)));
    need_memory(rowstr, (n + 1) * sizeof(size_t));
    /* Entries per row: the diagonal, its own, and the mirror images of lower rows' entries. */
    for (size_t row = 0; row <= n; row++) rowstr[row] = row < n;
    for (size_t row = 1; row < n; row++) {
        struct rng rng = rng_of(seed, row);
        rowstr[row] += per_row;
        for (size_t i = 0; i < per_row; i++) {
            rowstr[draw_column(&rng, row)]++;
            draw_value(&rng);
        }
    }
    size_t total = 0;
    for (size_t row = 0; row <= n; row++) {
        size_t count = rowstr[row];
        rowstr[row] = total;
        total += count;
    }
    matrix.rowstr = rowstr;
    matrix.nonzeros = total;
    uint32_t *colidx = aligned_alloc(PAGE_BYTES, whole_pages(total * sizeof(uint32_t)));
    matrix.colidx = need_memory(colidx, total * sizeof(uint32_t));
    double *a = aligned_alloc(PAGE_BYTES, whole_pages(total * sizeof(double)));
    matrix.a = need_memory(a, total * sizeof(double));
    if (place_by_rows) touch_matrix(&matrix);

    size_t *filled = calloc(n, sizeof(size_t));
    double *absolute_sum = calloc(n, sizeof(double));
    need_memory(filled, n * sizeof(size_t));
    need_memory(absolute_sum, n * sizeof(double));
    for (size_t row = 1; row < n; row++) {
        struct rng rng = rng_of(seed, row);
        for (size_t i = 0; i < per_row; i++) {
            uint32_t column = draw_column(&rng, row);
            double value = draw_value(&rng);
            size_t at = rowstr[row] + filled[row]++, mirror = rowstr[column] + filled[column]++;
            colidx[at] = column;
            colidx[mirror] = (uint32_t)row;
            a[at] = a[mirror] = value;
            absolute_sum[row] += fabs(value);
            absolute_sum[column] += fabs(value);
        }
    }
    for (size_t row = 0; row < n; row++) {
        size_t at = rowstr[row] + filled[row];
        colidx[at] = (uint32_t)row;
        a[at] = absolute_sum[row] + 1;
    }
    free(filled);
    free(absolute_sum);
    return matrix;
}

void matrix_free(struct matrix *matrix) {
    free(matrix->rowstr);
    free(matrix->colidx);
    free(matrix->a);
}
