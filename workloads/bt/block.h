/* Arithmetic of 5 x 5 blocks and of the 5 unknowns of a cell. */
#ifndef BT_BLOCK_H
#define BT_BLOCK_H

#include <stdbool.h>

enum { UNKNOWNS = 5 };
typedef double cell[UNKNOWNS];
typedef double block[UNKNOWNS][UNKNOWNS];

/* right = right - left * factor */
static inline void cell_subtract(const block left, const cell factor, cell right) {
    for (int i = 0; i < UNKNOWNS; i++) {
        double sum = 0;
        for (int k = 0; k < UNKNOWNS; k++) sum += left[i][k] * factor[k];
        right[i] -= sum;
    }
}

static inline void block_subtract(const block left, const block factor, block right) {
    for (int i = 0; i < UNKNOWNS; i++) {
        for (int j = 0; j < UNKNOWNS; j++) {
            double sum = 0;
            for (int k = 0; k < UNKNOWNS; k++) sum += left[i][k] * factor[k][j];
            right[i][j] -= sum;
        }
    }
}

/* upper = pivot^-1 * upper and right = pivot^-1 * right by Gauss-Jordan elimination without pivoting: the blocks are diagonally
 * dominant. Destroys `pivot`. */
static inline void block_solve(block pivot, block upper, cell right) {
    for (int i = 0; i < UNKNOWNS; i++) {
        double inverse = 1 / pivot[i][i];
        for (int j = i + 1; j < UNKNOWNS; j++) pivot[i][j] *= inverse;
        for (int j = 0; j < UNKNOWNS; j++) upper[i][j] *= inverse;
        right[i] *= inverse;
        for (int k = 0; k < UNKNOWNS; k++) {
            double factor = pivot[k][i];
            if (k == i) continue;
            for (int j = i + 1; j < UNKNOWNS; j++) pivot[k][j] -= factor * pivot[i][j];
            for (int j = 0; j < UNKNOWNS; j++) upper[k][j] -= factor * upper[i][j];
            right[k] -= factor * right[i];
        }
    }
}

#endif
