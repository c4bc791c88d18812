/* numa_proc.h: files about the process itself, as the simulated machine's kernel would write them, and writing text without the C library. */
#ifndef NUMAPILOT_NUMA_PROC_H
#define NUMAPILOT_NUMA_PROC_H

#include "np.h"

enum np_proc_file { NP_PROC_OTHER, NP_PROC_STATUS, NP_PROC_NUMA_MAPS, NP_PROC_CPUS, NP_PROC_NODES /* of a control group */ };

/* Which of them a path is, given without its first slash: of this process by whatever name, of any control group. */
NP_HIDDEN enum np_proc_file np_proc_file_of(const char *path);
/* A descriptor of the file as it is now, or -errno: then the real one has to do. `real`: a descriptor of the kernel's own, -1 where there is none; its
 * offset is not moved. `flags`: of them O_CLOEXEC counts. */
NP_HIDDEN long np_proc_open(enum np_proc_file file, int real, int flags);

/* Both write a terminating zero and return where it is. */
NP_HIDDEN char *np_append(char *to, const char *text);
NP_HIDDEN char *np_decimal(char *to, uint64_t value);

#endif
