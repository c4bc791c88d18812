/* racing.c: a race that the thread sanitizer has to report, and to end with. The second access is made by a function of four_nodes.c with its lock held: what
 * the report itself calls of that file must not wait for the lock. */
#include "four_nodes.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>

long move_pages(int pid, unsigned long count, void **pages, const int *nodes, int *status, int flags);

static int status, is_written;

static void *write_first(void *nothing) {
    status = 1;
    __atomic_store_n(&is_written, 1, __ATOMIC_RELAXED); /* which orders nothing */
    return nothing;
}

static void *write_second(void *nothing) {
    void *page = &status;
    while (!__atomic_load_n(&is_written, __ATOMIC_RELAXED)) sched_yield();
    move_pages(0, 1, &page, NULL, &status, 0);
    return nothing;
}

int main(void) {
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, write_first, NULL);
    pthread_create(&threads[1], NULL, write_second, NULL);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    puts("over");
    return 0;
}
