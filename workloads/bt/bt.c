/* Block-tridiagonal solver, as the BT application of the NAS parallel benchmarks (Bailey et al., RNR-94-007, 1994): a system of five nonlinear
 * diffusion equations on a cube goes to its steady state by approximate factorisation (Beam and Warming, 1978): in each time step one implicit
 * sweep per dimension, every grid line a block-tridiagonal system with 5 x 5 blocks that depend on the solution.
 *
 * Parallel: every thread sets up the planes on which it will work. The sweeps along x and y stay in a plane; only those along z cross the
 * planes of all threads. First touch serves it well and interleaving hurts (Dashti et al., ASPLOS 2013). Serial-init: the main thread
 * sets up everything. */
#include "block.h"
#include "openmp.h"
#include "options.h"
#include "phase.h"
#include "placement.h"
#include "random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum variant { VARIANT_PARALLEL, VARIANT_SERIAL_INIT };
static const char *const variants[] = {"parallel", "serial-init", NULL};
enum dimension { ALONG_X, ALONG_Y, ALONG_Z };

/* Every one of the first twenty steps takes at least this part off the error: smooth errors shrink by a third in each, and the start's is smooth. */
static const double LEAST_REDUCTION = 0.25;
enum { STEPS_MAX = 20 };

struct settings {
    struct common_options common;
    uint64_t side, steps;
};

struct preset {
    uint64_t side, steps;
};
/* `small`: u, rhs and forcing have 22 MiB each, and each of 16 threads the same number of planes. */
static const struct preset presets[] = {{12, 10}, {82, 2}, {102, 10}, {162, 20}};

/* side * side * side cells; those on the surface keep their values. Rows and planes have an odd number of cells: with powers of 2 the cells
 * of a line along z would compete for a few sets of every cache. */
struct field {
    size_t side;
    size_t stride; /* from row to row; the planes have as many rows */
    cell *u, *rhs, *forcing;
    block coupling; /* how the unknowns diffuse into one another */
    double step;    /* of time, over the square of a cell's width */
};

/* One line's system: lower[i] x[i-1] + pivot[i] x[i] + upper[i] x[i+1] = right[i]. Each thread has its own. */
struct line {
    block *lower, *pivot, *upper;
    cell *right;
};

static struct settings parse(int argc, char **argv) {
    struct settings settings = {.common = COMMON_OPTIONS_DEFAULT};
    const struct option_spec specs[] = {
        option_size(&settings.common),
        option_choice("variant", &settings.common.variant, variants, "who touches the fields first"),
        option_threads(&settings.common),
        option_seed(&settings.common),
        option_number("side", &settings.side, 6, 1000, "cells along each side of the cube"),
        option_number("steps", &settings.steps, 1, STEPS_MAX, "time steps"),
    };
    const struct program program = {"bt", "block-tridiagonal solver of a diffusion system on a cube", specs, sizeof specs / sizeof *specs};
    options_parse(&program, argc, argv);
    const struct preset *preset = &presets[settings.common.size];
    if (!settings.side) settings.side = preset->side;
    if (!settings.steps) settings.steps = preset->steps;
    return settings;
}

static inline size_t index_of(const struct field *field, size_t z, size_t y, size_t x) {
    return (z * field->stride + y) * field->stride + x;
}

/* The steady state: polynomials of the place, others for each unknown and seed, values between 1 and 2. */
static void exact(const struct field *field, uint64_t seed, size_t z, size_t y, size_t x, cell value) {
    double scale = 1 / (double)(field->side - 1), a = (double)x * scale, b = (double)y * scale, c = (double)z * scale;
    for (int i = 0; i < UNKNOWNS; i++) {
        struct rng rng = rng_of(seed, (uint64_t)i);
        double p = rng_unit(&rng), q = rng_unit(&rng), r = rng_unit(&rng);
        value[i] = 1 + 0.25 * (p * a * a + q * b * (1 - b) + r * c * c * c + a * b * c);
    }
}

/* Diffusion grows with the value: by the mean of the five unknowns. */
static inline double diffusivity(const cell value) {
    double sum = 0;
    for (int i = 0; i < UNKNOWNS; i++) sum += value[i];
    return 0.5 + 0.1 * sum;
}

/* out = step * (diffusivity * coupling * second differences of u), the change that one explicit step would make. */
static void diffuse(const struct field *field, size_t z, size_t y, size_t x, cell out) {
    size_t at = index_of(field, z, y, x), row = field->stride, plane = row * row;
    const cell *u = field->u;
    cell sum;
    for (int i = 0; i < UNKNOWNS; i++) {
        sum[i] = u[at - 1][i] + u[at + 1][i] + u[at - row][i] + u[at + row][i] + u[at - plane][i] + u[at + plane][i] - 6 * u[at][i];
    }
    double factor = field->step * diffusivity(u[at]);
    for (int i = 0; i < UNKNOWNS; i++) {
        double coupled = 0;
        for (int k = 0; k < UNKNOWNS; k++) coupled += field->coupling[i][k] * sum[k];
        out[i] = factor * coupled;
    }
}

/* u becomes the exact steady state, and forcing what keeps it there; then the inner cells of u are disturbed. */
static void set_up(struct field *field, uint64_t seed, bool in_parallel) {
    size_t side = field->side;
#pragma omp parallel for schedule(static) if (in_parallel)
    for (size_t z = 0; z < side; z++) {
        size_t plane = index_of(field, z, 0, 0), cells = field->stride * field->stride;
        memset(field->u[plane], 0, cells * sizeof(cell));
        memset(field->rhs[plane], 0, cells * sizeof(cell));
        memset(field->forcing[plane], 0, cells * sizeof(cell));
        for (size_t y = 0; y < side; y++) {
            for (size_t x = 0; x < side; x++) exact(field, seed, z, y, x, field->u[index_of(field, z, y, x)]);
        }
    }
#pragma omp parallel for schedule(static) if (in_parallel)
    for (size_t z = 1; z < side - 1; z++) {
        for (size_t y = 1; y < side - 1; y++) {
            for (size_t x = 1; x < side - 1; x++) diffuse(field, z, y, x, field->forcing[index_of(field, z, y, x)]);
        }
    }
    double scale = 1 / (double)(side - 1);
#pragma omp parallel for schedule(static) if (in_parallel)
    for (size_t z = 1; z < side - 1; z++) {
        for (size_t y = 1; y < side - 1; y++) {
            for (size_t x = 1; x < side - 1; x++) {
                double a = (double)x * scale, b = (double)y * scale, c = (double)z * scale;
                double bump = 4 * a * (1 - a) * b * (1 - b) * c * (1 - c);
                for (int i = 0; i < UNKNOWNS; i++) field->u[index_of(field, z, y, x)][i] += bump * (i % 2 ? -1 : 1);
            }
        }
    }
}

static void compute_rhs(struct field *field) {
    size_t side = field->side;
#pragma omp parallel for schedule(static)
    for (size_t z = 1; z < side - 1; z++) {
        for (size_t y = 1; y < side - 1; y++) {
            for (size_t x = 1; x < side - 1; x++) {
                size_t at = index_of(field, z, y, x);
                diffuse(field, z, y, x, field->rhs[at]);
                for (int i = 0; i < UNKNOWNS; i++) field->rhs[at][i] -= field->forcing[at][i];
            }
        }
    }
}

/* The system of one line: (1 - step * diffusivity * coupling * second difference) x = rhs, with x = 0 at both ends. */
static void line_set_up(const struct field *field, size_t first, size_t stride, struct line *line) {
    for (size_t i = 1; i < field->side - 1; i++) {
        size_t at = first + i * stride;
        double factor = field->step * diffusivity(field->u[at]);
        for (int j = 0; j < UNKNOWNS; j++) {
            for (int k = 0; k < UNKNOWNS; k++) {
                double entry = factor * field->coupling[j][k];
                line->lower[i][j][k] = -entry;
                line->upper[i][j][k] = -entry;
                line->pivot[i][j][k] = 2 * entry + (j == k);
            }
            line->right[i][j] = field->rhs[at][j];
        }
    }
}

/* Solves a line by block elimination and back substitution; the solution replaces the line's rhs. */
static void line_solve(struct field *field, size_t first, size_t stride, struct line *line) {
    size_t last = field->side - 2;
    line_set_up(field, first, stride, line);
    for (size_t i = 1; i <= last; i++) {
        if (i > 1) {
            cell_subtract(line->lower[i], line->right[i - 1], line->right[i]);
            block_subtract(line->lower[i], line->upper[i - 1], line->pivot[i]);
        }
        block_solve(line->pivot[i], line->upper[i], line->right[i]);
    }
    for (size_t i = last; i >= 1; i--) {
        if (i < last) cell_subtract(line->upper[i], line->right[i + 1], line->right[i]);
        memcpy(field->rhs[first + i * stride], line->right[i], sizeof(cell));
    }
}

/* One thread's room for a line; the arrays are its own and stay in its cache. */
static struct line line_make(size_t side) {
    block *lhs = malloc(3 * side * sizeof *lhs);
    need_memory(lhs, 3 * side * sizeof *lhs);
    cell *right = malloc(side * sizeof *right);
    need_memory(right, side * sizeof *right);
    return (struct line){lhs, lhs + side, lhs + 2 * side, right};
}

static void line_free(struct line *line) {
    free(line->lower);
    free(line->right);
}

/* All lines of one direction. Threads share planes of equal z, for the direction z rows of equal y. */
static void sweep(struct field *field, enum dimension along) {
    size_t side = field->side, row = field->stride, plane = row * row;
    /* Of the two dimensions across the lines, threads share the outer one. */
    size_t outer = along == ALONG_Z ? row : plane, inner = along == ALONG_X ? row : 1;
    size_t stride = along == ALONG_X ? 1 : along == ALONG_Y ? row : plane;
#pragma omp parallel
    {
        struct line line = line_make(side);
#pragma omp for schedule(static)
        for (size_t i = 1; i < side - 1; i++) {
            for (size_t j = 1; j < side - 1; j++) line_solve(field, i * outer + j * inner, stride, &line);
        }
        line_free(&line);
    }
}

static void add_change(struct field *field) {
    size_t side = field->side;
#pragma omp parallel for schedule(static)
    for (size_t z = 1; z < side - 1; z++) {
        for (size_t at = index_of(field, z, 0, 0); at < index_of(field, z + 1, 0, 0); at++) {
            for (int i = 0; i < UNKNOWNS; i++) field->u[at][i] += field->rhs[at][i];
        }
    }
}

/* Greatest distance from the steady state. */
static double error_of(const struct field *field, uint64_t seed) {
    double error = 0;
    size_t side = field->side;
    for (size_t z = 0; z < side; z++) {
        for (size_t y = 0; y < side; y++) {
            for (size_t x = 0; x < side; x++) {
                cell value;
                exact(field, seed, z, y, x, value);
                for (int i = 0; i < UNKNOWNS; i++) error = fmax(error, fabs(field->u[index_of(field, z, y, x)][i] - value[i]));
            }
        }
    }
    return error;
}

/* One line of each direction: what line_solve() leaves must satisfy the line's own equations. */
static void verify_lines(struct field *field, uint64_t seed) {
    size_t side = field->side, middle = side / 2, strides[] = {1, field->stride, field->stride * field->stride};
    struct line line = line_make(side);
    for (enum dimension along = ALONG_X; along <= ALONG_Z; along++) {
        size_t stride = strides[along], first = index_of(field, middle, middle, middle) - middle * stride;
        for (size_t i = 0; i < side; i++) {
            struct rng rng = rng_of(seed, i);
            for (int k = 0; k < UNKNOWNS; k++) field->rhs[first + i * stride][k] = i && i < side - 1 ? rng_unit(&rng) : 0;
        }
        line_solve(field, first, stride, &line);
        for (size_t i = 1; i < side - 1; i++) {
            struct rng rng = rng_of(seed, i);
            cell *x = &field->rhs[first + i * stride];
            double factor = field->step * diffusivity(field->u[first + i * stride]);
            for (int j = 0; j < UNKNOWNS; j++) {
                double left = x[0][j];
                for (int k = 0; k < UNKNOWNS; k++) {
                    left -= factor * field->coupling[j][k] * ((*(x - stride))[k] - 2 * x[0][k] + (*(x + stride))[k]);
                }
                double right = rng_unit(&rng);
                if (!(fabs(left - right) <= 1e-11)) fail(EXIT_WRONG_RESULT, "wrong result: a line's equation gives %.15g, not %.15g", left, right);
            }
        }
    }
    line_free(&line);
}

int main(int argc, char **argv) {
    struct settings settings = parse(argc, argv);
    fprintf(stderr, "bt: %s, %" PRIu64 " threads\n", variants[settings.common.variant], settings.common.threads);
    openmp_start(settings.common.threads);
    phase("fields");
    size_t stride = settings.side | 1, cells = settings.side * stride * stride;
    struct field field = {.side = settings.side, .stride = stride, .step = 0.02 * (double)((settings.side - 1) * (settings.side - 1))};
    /* Positive definite and not diagonal. */
    for (int i = 0; i < UNKNOWNS; i++) {
        for (int k = 0; k < UNKNOWNS; k++) field.coupling[i][k] = i == k ? 1 : 0.1 / (1 + abs(i - k)) * (i < k ? 1 : 0.5);
    }
    cell *u = aligned_alloc(PAGE_BYTES, whole_pages(cells * sizeof *u));
    field.u = need_memory(u, cells * sizeof *u);
    cell *rhs = aligned_alloc(PAGE_BYTES, whole_pages(cells * sizeof *rhs));
    field.rhs = need_memory(rhs, cells * sizeof *rhs);
    cell *forcing = aligned_alloc(PAGE_BYTES, whole_pages(cells * sizeof *forcing));
    field.forcing = need_memory(forcing, cells * sizeof *forcing);
    set_up(&field, settings.common.seed, settings.common.variant == VARIANT_PARALLEL);
    double error = error_of(&field, settings.common.seed), first = error;

    phase("solve");
    for (uint64_t step = 0; step < settings.steps; step++) {
        compute_rhs(&field);
        for (enum dimension along = ALONG_X; along <= ALONG_Z; along++) sweep(&field, along);
        add_change(&field);
    }
    phase_verify();
    error = error_of(&field, settings.common.seed);
    fprintf(stderr, "  error %.3g, %.3g at first\n", error, first);
    uint64_t checksum = hash_bytes(0, u, cells * sizeof *u);
    verify_lines(&field, settings.common.seed);
    if (!(error <= first * pow(1 - LEAST_REDUCTION, (double)settings.steps))) {
        fail(EXIT_WRONG_RESULT, "wrong result: the error is %g after %" PRIu64 " steps, %g at first", error, settings.steps, first);
    }
    phase(NULL);
    printf("bt ok cells=%" PRIu64 " steps=%" PRIu64 " error=%.6e checksum=%016" PRIx64 "\n", settings.side * settings.side * settings.side,
           settings.steps, error, checksum);
    free(u);
    free(rhs);
    free(forcing);
    return 0;
}
