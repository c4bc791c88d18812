/* Cubes of numbers with periodic boundaries, and the stencils of the multigrid method on them. */
#ifndef MG_GRID_H
#define MG_GRID_H

#include <stdbool.h>
#include <stddef.h>

/* n * n * n numbers, n a power of 2, with a layer of copies of the opposite side around them: indices 0 and n + 1 are the copies. */
struct grid {
    size_t n;
    double *at;
};

static inline size_t grid_side(const struct grid *grid) {
    return grid->n + 2;
}
static inline double *grid_row(const struct grid *grid, size_t z, size_t y) {
    return grid->at + (z * grid_side(grid) + y) * grid_side(grid);
}
static inline size_t grid_bytes(size_t n) {
    return (n + 2) * (n + 2) * (n + 2) * sizeof(double);
}

/* Weights of the 27 points of a stencil: the centre, its 6 faces, 12 edges, and 8 corners. */
struct stencil {
    double centre, face, edge, corner;
};

/* The functions below share planes among the threads of the default OpenMP team. */

/* Zeroes, by all threads or by the calling one: the first writer places. */
void grid_clear(struct grid *grid, bool in_parallel);
/* out = right - stencil(in); `out` may be `right`. */
void grid_residual(const struct grid *right, const struct grid *in, const struct stencil *stencil, struct grid *out);
/* out = out + stencil(in). */
void grid_smooth(const struct grid *in, const struct stencil *stencil, struct grid *out);
/* Full weighting of a grid onto one with half as many points per side, times 4: distances double there, and the stencils leave them out. */
void grid_restrict(const struct grid *fine, struct grid *coarse);
/* Adds the trilinear interpolation of a coarse grid. */
void grid_prolong(const struct grid *coarse, struct grid *fine);
/* Root of the mean square; its value does not depend on the number of threads. */
double grid_norm(const struct grid *grid);

#endif
