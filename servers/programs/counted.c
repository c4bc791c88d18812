/* counted.c: a library to preload: the lab's plugin counts the accesses of the processes that load it and of their forks, and of no others
 * (crates/lab/plugin/mark.h). Where no plugin listens, it does nothing. */
#include "mark.h"

#include <pthread.h>
#include <stddef.h>

static void count_me(void) { np_mark(NP_MARK_ONLY_ME, NULL); }

__attribute__((constructor)) static void start(void) {
    count_me();
    /* Of no consequence where it fails: the fork is then not counted, and the tests see no accesses of it. */
    (void)pthread_atfork(NULL, NULL, count_me);
}
