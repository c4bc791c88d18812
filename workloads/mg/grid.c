/* Stencils on periodic grids. Every loop over planes has the same static schedule, so that a thread keeps to its planes. */
#include "grid.h"

#include "options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void grid_clear(struct grid *grid, bool in_parallel) {
    size_t n = grid->n, plane = grid_side(grid) * grid_side(grid);
    /* The same planes as all other loops give a thread; the outer two go with their neighbours. */
#pragma omp parallel for schedule(static) if (in_parallel)
    for (size_t z = 1; z <= n; z++) {
        size_t first = z == 1 ? 0 : z, last = z == n ? n + 1 : z;
        memset(grid->at + first * plane, 0, (last - first + 1) * plane * sizeof(double));
    }
}

/* Copies the opposite sides into the outer layer: first within each plane, then the two outermost planes. */
static void wrap(struct grid *grid) {
    size_t n = grid->n, side = grid_side(grid);
#pragma omp parallel for schedule(static)
    for (size_t z = 1; z <= n; z++) {
        for (size_t y = 1; y <= n; y++) {
            double *row = grid_row(grid, z, y);
            row[0] = row[n];
            row[n + 1] = row[1];
        }
        memcpy(grid_row(grid, z, 0), grid_row(grid, z, n), side * sizeof(double));
        memcpy(grid_row(grid, z, n + 1), grid_row(grid, z, 1), side * sizeof(double));
    }
#pragma omp parallel for schedule(static)
    for (size_t y = 0; y < side; y++) {
        memcpy(grid_row(grid, 0, y), grid_row(grid, n, y), side * sizeof(double));
        memcpy(grid_row(grid, n + 1, y), grid_row(grid, 1, y), side * sizeof(double));
    }
}

/* The four rows next to row (z, y), and the four diagonal ones, added up per column: each sum then serves three points of the row. */
static void add_rows(const struct grid *grid, size_t z, size_t y, double *next, double *diagonal) {
    const double *below = grid_row(grid, z - 1, y), *above = grid_row(grid, z + 1, y);
    const double *before = grid_row(grid, z, y - 1), *after = grid_row(grid, z, y + 1);
    const double *corner[4] = {grid_row(grid, z - 1, y - 1), grid_row(grid, z - 1, y + 1), grid_row(grid, z + 1, y - 1),
                               grid_row(grid, z + 1, y + 1)};
    for (size_t x = 0; x < grid_side(grid); x++) {
        next[x] = below[x] + above[x] + before[x] + after[x];
        diagonal[x] = corner[0][x] + corner[1][x] + corner[2][x] + corner[3][x];
    }
}

/* out = base + factor * stencil(in). */
static void apply(const struct grid *base, double factor, const struct grid *in, const struct stencil *stencil, struct grid *out) {
    size_t n = in->n;
    double centre = factor * stencil->centre, face = factor * stencil->face, edge = factor * stencil->edge, corner = factor * stencil->corner;
#pragma omp parallel
    {
        double *next = malloc(2 * grid_side(in) * sizeof *next);
        need_memory(next, 2 * grid_side(in) * sizeof *next);
        double *diagonal = next + grid_side(in);
#pragma omp for schedule(static)
        for (size_t z = 1; z <= n; z++) {
            for (size_t y = 1; y <= n; y++) {
                add_rows(in, z, y, next, diagonal);
                const double *row = grid_row(in, z, y), *from = grid_row(base, z, y);
                double *to = grid_row(out, z, y);
                for (size_t x = 1; x <= n; x++) {
                    to[x] = from[x] + centre * row[x] + face * (row[x - 1] + row[x + 1] + next[x]) +
                            edge * (next[x - 1] + next[x + 1] + diagonal[x]) + corner * (diagonal[x - 1] + diagonal[x + 1]);
                }
            }
        }
        free(next);
    }
    wrap(out);
}

void grid_residual(const struct grid *right, const struct grid *in, const struct stencil *stencil, struct grid *out) {
    apply(right, -1, in, stencil, out);
}

void grid_smooth(const struct grid *in, const struct stencil *stencil, struct grid *out) {
    apply(out, 1, in, stencil, out);
}

void grid_restrict(const struct grid *fine, struct grid *coarse) {
#pragma omp parallel
    {
        double *next = malloc(2 * grid_side(fine) * sizeof *next);
        need_memory(next, 2 * grid_side(fine) * sizeof *next);
        double *diagonal = next + grid_side(fine);
#pragma omp for schedule(static)
        for (size_t z = 1; z <= coarse->n; z++) {
            for (size_t y = 1; y <= coarse->n; y++) {
                add_rows(fine, 2 * z, 2 * y, next, diagonal);
                const double *row = grid_row(fine, 2 * z, 2 * y);
                double *to = grid_row(coarse, z, y);
                for (size_t x = 1; x <= coarse->n; x++) {
                    size_t at = 2 * x;
                    to[x] = 0.5 * row[at] + 0.25 * (row[at - 1] + row[at + 1] + next[at]) +
                            0.125 * (next[at - 1] + next[at + 1] + diagonal[at]) + 0.0625 * (diagonal[at - 1] + diagonal[at + 1]);
                }
            }
        }
        free(next);
    }
    wrap(coarse);
}

/* A fine point with an even index lies on a coarse one, with an odd index between two: the mean of the two named here. */
void grid_prolong(const struct grid *coarse, struct grid *fine) {
#pragma omp parallel for schedule(static)
    for (size_t z = 1; z <= fine->n; z++) {
        for (size_t y = 1; y <= fine->n; y++) {
            const double *rows[4] = {grid_row(coarse, z / 2, y / 2), grid_row(coarse, z / 2, (y + 1) / 2), grid_row(coarse, (z + 1) / 2, y / 2),
                                     grid_row(coarse, (z + 1) / 2, (y + 1) / 2)};
            double *to = grid_row(fine, z, y);
            for (size_t x = 1; x <= fine->n; x++) {
                size_t left = x / 2, right = (x + 1) / 2;
                double sum = 0;
                for (int i = 0; i < 4; i++) sum += rows[i][left] + rows[i][right];
                to[x] += 0.125 * sum;
            }
        }
    }
    wrap(fine);
}

double grid_norm(const struct grid *grid) {
    double *plane_sums = calloc(grid->n, sizeof *plane_sums), sum = 0;
    need_memory(plane_sums, grid->n * sizeof *plane_sums);
#pragma omp parallel for schedule(static)
    for (size_t z = 1; z <= grid->n; z++) {
        double plane = 0;
        for (size_t y = 1; y <= grid->n; y++) {
            const double *row = grid_row(grid, z, y);
            for (size_t x = 1; x <= grid->n; x++) plane += row[x] * row[x];
        }
        plane_sums[z - 1] = plane;
    }
    for (size_t z = 0; z < grid->n; z++) sum += plane_sums[z];
    free(plane_sums);
    return sqrt(sum / ((double)grid->n * (double)grid->n * (double)grid->n));
}
