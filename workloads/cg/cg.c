/* Conjugate gradient inside a power method, as the CG kernel of the NAS parallel benchmarks (Bailey et al., RNR-94-007, 1994): the
 * smallest eigenvalue of a random sparse symmetric positive definite matrix, by inverse iteration.
 *
 * Naive: the main thread generates the matrix and sets up the vectors, so all pages lie on its node. Parallel: every thread touches
 * first the rows on which it will work. */
#include "matrix.h"
#include "openmp.h"
#include "options.h"
#include "phase.h"
#include "random.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum variant { VARIANT_NAIVE, VARIANT_PARALLEL };
static const char *const variants[] = {"naive", "parallel", NULL};
enum { CG_STEPS = 25 };

struct settings {
    struct common_options common;
    uint64_t n, per_row, iterations;
    bool reference;
};

struct preset {
    uint64_t n, per_row, iterations;
    double zeta; /* for seed 1, by the serial reference (--reference); 0: not known */
};
static const struct preset presets[] = {
    {1400, 7, 8, 2.34365337014241},
    {75000, 33, 15, 12.7756411009631},
    {150000, 60, 15, 25.6951826971642},
    {300000, 60, 20, 0},
};

static struct settings parse(int argc, char **argv) {
    struct settings settings = {.common = COMMON_OPTIONS_DEFAULT};
    const struct option_spec specs[] = {
        option_size(&settings.common),
        option_choice("variant", &settings.common.variant, variants, "who touches the memory first"),
        option_threads(&settings.common),
        option_seed(&settings.common),
        option_number("rows", &settings.n, 16, 1u << 28, "rows of the matrix"),
        option_number("per-row", &settings.per_row, 1, 10000, "random entries left of the diagonal in each row"),
        option_number("iterations", &settings.iterations, 1, 100000, "steps of the power method, 25 of CG in each"),
        option_flag("reference", &settings.reference, "compare with a serial computation, not with the known value"),
    };
    const struct program program = {"cg", "smallest eigenvalue of a sparse matrix by conjugate gradients", specs,
                                    sizeof specs / sizeof *specs};
    options_parse(&program, argc, argv);
    const struct preset *preset = &presets[settings.common.size];
    bool known = !settings.n && !settings.per_row && !settings.iterations && settings.common.seed == 1 && preset->zeta > 0;
    settings.reference |= !known;
    if (!settings.n) settings.n = preset->n;
    if (!settings.per_row) settings.per_row = preset->per_row;
    if (!settings.iterations) settings.iterations = preset->iterations;
    return settings;
}

/* The vectors of the method, and the partial sums of its inner products. */
struct work {
    const struct matrix *matrix;
    double *x, *z, *p, *q, *r;
    /* Two in turn: a thread may still read the sums of one product while another writes those of the next. */
    double *partial[2];
};

/* The functions below are called by all threads of a team together. */

static double dot(const struct work *work, int turn, const double *left, const double *right) {
    size_t n = work->matrix->n, blocks = block_count(n);
    double *partial = work->partial[turn];
#pragma omp for schedule(static)
    for (size_t block = 0; block < blocks; block++) {
        double sum = 0;
        for (size_t i = block * BLOCK_ROWS; i < block_end(block, n); i++) sum += left[i] * right[i];
        partial[block] = sum;
    }
    double sum = 0;
    for (size_t block = 0; block < blocks; block++) sum += partial[block];
    return sum;
}

static void multiply(const struct matrix *matrix, const double *vector, double *product) {
#pragma omp for schedule(static)
    for (size_t block = 0; block < block_count(matrix->n); block++) {
        for (size_t row = block * BLOCK_ROWS; row < block_end(block, matrix->n); row++) {
            double sum = 0;
            for (size_t k = matrix->rowstr[row]; k < matrix->rowstr[row + 1]; k++) sum += matrix->a[k] * vector[matrix->colidx[k]];
            product[row] = sum;
        }
    }
}

/* CG_STEPS steps towards A z = x from z = 0. Returns the square of the residual's norm, by CG's own recurrence. */
static double conjugate_gradient(const struct work *work) {
    size_t n = work->matrix->n, blocks = block_count(n);
    double *z = work->z, *p = work->p, *q = work->q, *r = work->r;
#pragma omp for schedule(static)
    for (size_t block = 0; block < blocks; block++) {
        for (size_t i = block * BLOCK_ROWS; i < block_end(block, n); i++) {
            z[i] = q[i] = 0;
            p[i] = r[i] = work->x[i];
        }
    }
    double rho = dot(work, 0, r, r);
    for (int step = 0; step < CG_STEPS && rho > 0; step++) {
        multiply(work->matrix, p, q);
        double alpha = rho / dot(work, 1, p, q);
#pragma omp for schedule(static)
        for (size_t block = 0; block < blocks; block++) {
            for (size_t i = block * BLOCK_ROWS; i < block_end(block, n); i++) {
                z[i] += alpha * p[i];
                r[i] -= alpha * q[i];
            }
        }
        double rho_before = rho;
        rho = dot(work, 0, r, r);
        double beta = rho / rho_before;
#pragma omp for schedule(static)
        for (size_t block = 0; block < blocks; block++) {
            for (size_t i = block * BLOCK_ROWS; i < block_end(block, n); i++) p[i] = r[i] + beta * p[i];
        }
    }
    return rho;
}

/* One step of the power method; returns the estimate of the eigenvalue and makes x the normalised z. */
static double power_step(const struct work *work) {
    double zeta = 0;
#pragma omp parallel
    {
        conjugate_gradient(work);
        double xz = dot(work, 1, work->x, work->z), zz = dot(work, 0, work->z, work->z);
        double scale = 1 / sqrt(zz);
#pragma omp for schedule(static)
        for (size_t block = 0; block < block_count(work->matrix->n); block++) {
            for (size_t i = block * BLOCK_ROWS; i < block_end(block, work->matrix->n); i++) work->x[i] = scale * work->z[i];
        }
#pragma omp master
        zeta = 1 / xz;
    }
    return zeta;
}

/* The whole computation again: one thread, plain loops, other order of summation. */
static double reference_zeta(const struct matrix *matrix, uint64_t iterations) {
    size_t n = matrix->n;
    double *vectors = calloc(5 * n, sizeof(double));
    need_memory(vectors, 5 * n * sizeof(double));
    double *x = vectors, *z = x + n, *p = z + n, *q = p + n, *r = q + n, zeta = 0;
    for (size_t i = 0; i < n; i++) x[i] = 1;
    for (uint64_t iteration = 0; iteration < iterations; iteration++) {
        long double rho = 0;
        for (size_t i = 0; i < n; i++) {
            z[i] = 0;
            p[i] = r[i] = x[i];
            rho += (long double)r[i] * r[i];
        }
        for (int step = 0; step < CG_STEPS && rho > 0; step++) {
            long double pq = 0, rho_after = 0;
            for (size_t i = 0; i < n; i++) {
                long double sum = 0;
                for (size_t k = matrix->rowstr[i + 1]; k-- > matrix->rowstr[i];) sum += (long double)matrix->a[k] * p[matrix->colidx[k]];
                q[i] = (double)sum;
                pq += sum * p[i];
            }
            double alpha = (double)(rho / pq);
            for (size_t i = 0; i < n; i++) {
                z[i] += alpha * p[i];
                r[i] -= alpha * q[i];
                rho_after += (long double)r[i] * r[i];
            }
            double beta = (double)(rho_after / rho);
            for (size_t i = 0; i < n; i++) p[i] = r[i] + beta * p[i];
            rho = rho_after;
        }
        long double xz = 0, zz = 0;
        for (size_t i = 0; i < n; i++) {
            xz += (long double)x[i] * z[i];
            zz += (long double)z[i] * z[i];
        }
        for (size_t i = 0; i < n; i++) x[i] = (double)(z[i] / sqrtl(zz));
        zeta = (double)(1 / xz);
    }
    free(vectors);
    return zeta;
}

/* |b - A z| / |b| of the last system, whose right-hand side was `b` before the step. */
static double relative_residual(const struct work *work, const double *b) {
    const struct matrix *matrix = work->matrix;
    double error = 0, size = 0;
    for (size_t row = 0; row < matrix->n; row++) {
        double sum = 0;
        for (size_t k = matrix->rowstr[row]; k < matrix->rowstr[row + 1]; k++) sum += matrix->a[k] * work->z[matrix->colidx[k]];
        error += (b[row] - sum) * (b[row] - sum);
        size += b[row] * b[row];
    }
    return sqrt(error / size);
}

static void verify(const struct settings *settings, const struct work *work, double zeta, double residual) {
    /* 25 steps reduce the error by this much at the least, for the spread of eigenvalues that the generator gives. */
    if (!(residual < 1e-3)) fail(EXIT_WRONG_RESULT, "wrong result: the relative residual is %g", residual);
    double expected = settings->reference ? reference_zeta(work->matrix, settings->iterations) : presets[settings->common.size].zeta;
    if (!(fabs(zeta - expected) <= 1e-9 * fabs(expected))) {
        fail(EXIT_WRONG_RESULT, "wrong result: zeta is %.15g, the reference %.15g", zeta, expected);
    }
}

int main(int argc, char **argv) {
    struct settings settings = parse(argc, argv);
    bool by_rows = settings.common.variant == VARIANT_PARALLEL;
    fprintf(stderr, "cg: %s, %" PRIu64 " threads\n", variants[settings.common.variant], settings.common.threads);
    openmp_start(settings.common.threads);
    phase("matrix");
    struct matrix matrix = matrix_make(settings.n, settings.per_row, settings.common.seed, by_rows);
    size_t n = matrix.n;
    double *x = vector_make(n, by_rows), *z = vector_make(n, by_rows), *p = vector_make(n, by_rows);
    double *q = vector_make(n, by_rows), *r = vector_make(n, by_rows), *b = vector_make(n, by_rows);
    double *partial = calloc(2 * block_count(n), sizeof(double));
    need_memory(partial, 2 * block_count(n) * sizeof(double));
    struct work work = {&matrix, x, z, p, q, r, {partial, partial + block_count(n)}};
    for (size_t i = 0; i < n; i++) {
        x[i] = 1;
        z[i] = p[i] = q[i] = r[i] = 0;
    }
    phase("solve");
    double zeta = 0;
    for (uint64_t iteration = 0; iteration < settings.iterations; iteration++) {
        if (iteration + 1 == settings.iterations) {
            for (size_t i = 0; i < n; i++) b[i] = x[i];
        }
        zeta = power_step(&work);
    }
    phase_verify();
    double residual = relative_residual(&work, b);
    verify(&settings, &work, zeta, residual);
    phase(NULL);
    fprintf(stderr, "  relative residual %.3g\n", residual);
    printf("cg ok rows=%zu nonzeros=%zu iterations=%" PRIu64 " zeta=%.15g checksum=%016" PRIx64 "\n", n, matrix.nonzeros,
           settings.iterations, zeta, hash_bytes(0, x, n * sizeof(double)));
    double *const vectors[] = {x, z, p, q, r, b, partial};
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) free(vectors[i]);
    matrix_free(&matrix);
    return 0;
}
