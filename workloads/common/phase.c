/* Timing and announcement of phases. */
#include "phase.h"

#include "options.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* A recorder that wants the phases defines it; without one the address is NULL. */
extern void numapilot_mark(const char *name) __attribute__((weak));

static const char *current_name;
static double current_start;

double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void phase(const char *name) {
    double now = seconds_now();
    if (current_name) fprintf(stderr, "  %-10s %8.3f s\n", current_name, now - current_start);
    current_name = name;
    current_start = now;
    if (name && numapilot_mark) numapilot_mark(name);
}

void phase_verify(void) {
    if (is_unverified) {
        phase(NULL);
        printf("%s unverified\n", program_name);
        if (fail_cleanup) fail_cleanup();
        exit(0);
    }
    phase("verify");
}
