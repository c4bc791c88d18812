/* Phases of a run: each is timed on stderr and announced to a recorder, if one is present. */
#ifndef WORKLOADS_PHASE_H
#define WORKLOADS_PHASE_H

#ifdef __cplusplus
extern "C" {
#endif

/* Ends the phase before, if any, and begins `name` (a literal: the pointer is kept). NULL only ends. Main thread only. */
void phase(const char *name);

/* Seconds of the monotonic clock. */
double seconds_now(void);

#ifdef __cplusplus
}
#endif
#endif
