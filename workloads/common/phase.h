/* Phases of a run: each is timed on stderr and announced to a recorder, if one is present. */
#ifndef WORKLOADS_PHASE_H
#define WORKLOADS_PHASE_H

#ifdef __cplusplus
extern "C" {
#endif

/* Ends the phase before, if any, and begins `name` (a literal: the pointer is kept). NULL only ends. Main thread only. */
void phase(const char *name);

/* Begins the phase "verify", a program's last. With --no-verify it does not return: the process ends well, and says that nothing was verified. */
void phase_verify(void);

/* Seconds of the monotonic clock. */
double seconds_now(void);

#ifdef __cplusplus
}
#endif
#endif
