/* Multigrid on a cube, as the MG kernel of the NAS parallel benchmarks (Bailey et al., RNR-94-007, 1994): V-cycles towards the solution of the
 * Poisson equation with periodic boundaries, whose right-hand side is +1 in ten points and -1 in ten others.
 *
 * Parallel: every thread clears the planes on which it will work, so that first touch puts nearly all of its accesses on its own node; only
 * neighbouring planes and the small coarse grids are remote. It is one of the programs that interleaving hurts (Dashti et al.,
 * ASPLOS 2013). Serial-init: the main thread clears everything. */
#include "grid.h"
#include "openmp.h"
#include "options.h"
#include "phase.h"
#include "placement.h"
#include "random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum variant { VARIANT_PARALLEL, VARIANT_SERIAL_INIT };
static const char *const variants[] = {"parallel", "serial-init", NULL};
enum { LEVELS_MAX = 12, CHARGES = 10 };

/* The discrete Laplacian and the smoother of the report; the smoother is an approximate inverse of the Laplacian. */
static const struct stencil laplacian = {-8.0 / 3, 0, 1.0 / 6, 1.0 / 12};
static const struct stencil smoother = {-3.0 / 8, 1.0 / 32, -1.0 / 64, 0};
/* What a V-cycle must at least take off the residual. */
static const double LEAST_REDUCTION = 3;

struct settings {
    struct common_options common;
    uint64_t levels, cycles;
};

struct preset {
    uint64_t levels, cycles;
};
/* `small`: three cubes of 128 points a side, 52 MiB. */
static const struct preset presets[] = {{4, 4}, {7, 10}, {8, 5}, {9, 10}};

/* Level k has 2^(k + 1) points a side; the finest is the last. */
struct hierarchy {
    size_t levels;
    struct grid u[LEVELS_MAX], r[LEVELS_MAX];
    struct grid v; /* the right-hand side, on the finest level only */
};

static struct settings parse(int argc, char **argv) {
    struct settings settings = {.common = COMMON_OPTIONS_DEFAULT};
    const struct option_spec specs[] = {
        option_size(&settings.common),
        option_choice("variant", &settings.common.variant, variants, "who touches the grids first"),
        option_threads(&settings.common),
        option_seed(&settings.common),
        option_number("levels", &settings.levels, 3, 10, "grids; the finest has 2^N points a side"),
        option_number("cycles", &settings.cycles, 1, 15, "V-cycles"),
    };
    const struct program program = {"mg", "multigrid solution of the Poisson equation on a cube", specs, sizeof specs / sizeof *specs};
    options_parse(&program, argc, argv);
    const struct preset *preset = &presets[settings.common.size];
    if (!settings.levels) settings.levels = preset->levels;
    if (!settings.cycles) settings.cycles = preset->cycles;
    return settings;
}

static void make_grids(struct hierarchy *hierarchy, bool in_parallel) {
    for (size_t level = 0; level < hierarchy->levels; level++) {
        size_t n = (size_t)2 << level;
        double *u = aligned_alloc(PAGE_BYTES, whole_pages(grid_bytes(n)));
        hierarchy->u[level] = (struct grid){n, need_memory(u, grid_bytes(n))};
        double *r = aligned_alloc(PAGE_BYTES, whole_pages(grid_bytes(n)));
        hierarchy->r[level] = (struct grid){n, need_memory(r, grid_bytes(n))};
        grid_clear(&hierarchy->u[level], in_parallel);
        grid_clear(&hierarchy->r[level], in_parallel);
    }
    size_t n = (size_t)1 << hierarchy->levels;
    double *v = aligned_alloc(PAGE_BYTES, whole_pages(grid_bytes(n)));
    hierarchy->v = (struct grid){n, need_memory(v, grid_bytes(n))};
    grid_clear(&hierarchy->v, in_parallel);
}

/* Charges at random places, as many positive as negative: with periodic boundaries there is no solution otherwise. */
static void put_charges(const struct grid *v, uint64_t seed) {
    for (int charge = 0; charge < 2 * CHARGES;) {
        struct rng rng = rng_of(seed++, 0);
        uint32_t n = (uint32_t)v->n;
        double *point = grid_row(v, 1 + rng_below(&rng, n), 1 + rng_below(&rng, n)) + 1 + rng_below(&rng, n);
        if (*point != 0) continue;
        *point = charge < CHARGES ? 1 : -1;
        charge++;
    }
}

/* The copies around the charges, without a parallel loop that would count as work. */
static void wrap_charges(const struct grid *v) {
    size_t n = v->n, side = n + 2;
    for (size_t z = 0; z < side; z++) {
        for (size_t y = 0; y < side; y++) {
            const double *from = grid_row(v, (z + n - 1) % n + 1, (y + n - 1) % n + 1);
            double *to = grid_row(v, z, y);
            bool is_outer = z == 0 || z == n + 1 || y == 0 || y == n + 1;
            for (size_t x = 1; is_outer && x <= n; x++) {
                if (from[x] != 0) to[x] = from[x];
            }
            if (from[n] != 0) to[0] = from[n];
            if (from[1] != 0) to[n + 1] = from[1];
        }
    }
}

/* Down to the coarsest grid with the residual, and up again with corrections. */
static void v_cycle(struct hierarchy *hierarchy, bool in_parallel) {
    size_t top = hierarchy->levels - 1;
    struct grid *u = hierarchy->u, *r = hierarchy->r;
    for (size_t level = top; level > 0; level--) grid_restrict(&r[level], &r[level - 1]);
    grid_clear(&u[0], in_parallel);
    grid_smooth(&r[0], &smoother, &u[0]);
    for (size_t level = 1; level <= top; level++) {
        if (level < top) grid_clear(&u[level], in_parallel);
        grid_prolong(&u[level - 1], &u[level]);
        grid_residual(level < top ? &r[level] : &hierarchy->v, &u[level], &laplacian, &r[level]);
        grid_smooth(&r[level], &smoother, &u[level]);
    }
    grid_residual(&hierarchy->v, &u[top], &laplacian, &r[top]);
}

/* The residual by its definition, point by point, without the copies around the grid. */
static double reference_norm(const struct grid *v, const struct grid *u) {
    const double weights[4] = {laplacian.centre, laplacian.face, laplacian.edge, laplacian.corner};
    size_t n = v->n;
    double sum = 0;
    for (size_t z = 0; z < n; z++) {
        for (size_t y = 0; y < n; y++) {
            const double *rows[9];
            for (size_t i = 0; i < 9; i++) rows[i] = grid_row(u, (z + n + i / 3 - 1) % n + 1, (y + n + i % 3 - 1) % n + 1) + 1;
            for (size_t x = 0; x < n; x++) {
                size_t left = (x + n - 1) % n, right = (x + 1) % n;
                double product = 0;
                for (size_t i = 0; i < 9; i++) {
                    size_t away = (i / 3 != 1) + (i % 3 != 1);
                    product += weights[away] * rows[i][x] + weights[away + 1 < 4 ? away + 1 : 3] * (rows[i][left] + rows[i][right]);
                }
                double residual = grid_row(v, z + 1, y + 1)[x + 1] - product;
                sum += residual * residual;
            }
        }
    }
    return sqrt(sum / ((double)n * (double)n * (double)n));
}

static void verify(const struct settings *settings, const struct hierarchy *hierarchy, double first, double last) {
    double reference = reference_norm(&hierarchy->v, &hierarchy->u[hierarchy->levels - 1]);
    /* Residuals are differences of numbers near 1; their rounding is of this size. */
    if (!(fabs(last - reference) <= 1e-9 * reference + 1e-17)) {
        fail(EXIT_WRONG_RESULT, "wrong result: the residual is %.15g, by definition %.15g", last, reference);
    }
    double bound = first * pow(LEAST_REDUCTION, -(double)settings->cycles);
    if (!(last <= bound)) fail(EXIT_WRONG_RESULT, "wrong result: the residual is %g, the bound %g", last, bound);
}

int main(int argc, char **argv) {
    struct settings settings = parse(argc, argv);
    fprintf(stderr, "mg: %s, %" PRIu64 " threads\n", variants[settings.common.variant], settings.common.threads);
    openmp_start(settings.common.threads);
    phase("grids");
    struct hierarchy hierarchy = {.levels = settings.levels};
    bool in_parallel = settings.common.variant == VARIANT_PARALLEL;
    make_grids(&hierarchy, in_parallel);
    put_charges(&hierarchy.v, settings.common.seed);
    wrap_charges(&hierarchy.v);
    const struct grid *u = &hierarchy.u[hierarchy.levels - 1], *r = &hierarchy.r[hierarchy.levels - 1];
    phase("solve");
    grid_residual(&hierarchy.v, u, &laplacian, &hierarchy.r[hierarchy.levels - 1]);
    double first = grid_norm(r);
    for (uint64_t cycle = 0; cycle < settings.cycles; cycle++) v_cycle(&hierarchy, in_parallel);
    double last = grid_norm(r);
    phase_verify();
    verify(&settings, &hierarchy, first, last);
    phase(NULL);
    fprintf(stderr, "  residual %.3g, %.3g at first\n", last, first);
    printf("mg ok points=%zu cycles=%" PRIu64 " residual=%.9e checksum=%016" PRIx64 "\n", u->n * u->n * u->n, settings.cycles, last,
           hash_bytes(0, u->at, grid_bytes(u->n)));
    for (size_t level = 0; level < hierarchy.levels; level++) {
        free(hierarchy.u[level].at);
        free(hierarchy.r[level].at);
    }
    free(hierarchy.v.at);
    return 0;
}
