/* The demonstration of `numapilot demo`: points arrive in chunks, and threads count how many are nearest to each of some centres.
 *
 * The main thread fills each chunk, so every page of `points` lies on its node; threads on all nodes read them. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 16, CHUNKS = 4, POINTS = 32768, DIMENSIONS = 16, CENTRES = 2 };

static float *points, *centres;
static long counts[THREADS][CENTRES];

static int nearest(const float *point) {
    int best = 0;
    float best_distance = 1e30f;
    for (int centre = 0; centre < CENTRES; centre++) {
        float distance = 0;
        for (int i = 0; i < DIMENSIONS; i++) {
            float difference = point[i] - centres[centre * DIMENSIONS + i];
            distance += difference * difference;
        }
        if (distance < best_distance) {
            best_distance = distance;
            best = centre;
        }
    }
    return best;
}

static void *work(void *argument) {
    long thread = (long)argument, share = POINTS / THREADS;
    for (long k = thread * share; k < (thread + 1) * share; k++) counts[thread][nearest(points + k * DIMENSIONS)]++;
    return NULL;
}

static void fill(float *values, int count, unsigned *state) {
    for (int i = 0; i < count; i++) {
        *state = *state * 1664525u + 1013904223u;
        values[i] = (float)(*state >> 8) / (1 << 24);
    }
}

int main(void) {
    unsigned state = 1;
    points = malloc(sizeof *points * POINTS * DIMENSIONS);
    centres = malloc(sizeof *centres * CENTRES * DIMENSIONS);
    if (!points || !centres) return 1;
    fill(centres, CENTRES * DIMENSIONS, &state);
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        pthread_t threads[THREADS];
        fill(points, POINTS * DIMENSIONS, &state);
        for (long k = 0; k < THREADS; k++)
            if (pthread_create(&threads[k], NULL, work, (void *)k)) return 1;
        for (int k = 0; k < THREADS; k++) pthread_join(threads[k], NULL);
    }
    long counted = 0;
    for (int k = 0; k < THREADS * CENTRES; k++) counted += counts[k / CENTRES][k % CENTRES];
    printf("%ld points counted\n", counted);
    free(points);
    free(centres);
    return counted != (long)CHUNKS * POINTS;
}
