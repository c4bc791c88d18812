/* memory.c: memory of our own, by unrecorded system calls. The kernel ignores the descriptor of anonymous memory, so it says whose this is to whoever
 * watches the program's system calls: it may lie where the program had memory before (crates/lab/homes/launcher.c). */
#define _GNU_SOURCE
#include "track.h"

#include <sys/mman.h>

#define OUR_DESCRIPTOR (-2)

#ifndef NP_PLUGIN
bool np_is_confined;
#endif

void *np_pages_new(size_t bytes) {
    long at = NP_SYS6(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, OUR_DESCRIPTOR, 0);
    return at < 0 && at > -4096 ? NULL : (void *)at;
}

void np_pages_free(void *pages, size_t bytes) {
    NP_SYS2(SYS_munmap, pages, bytes);
}
