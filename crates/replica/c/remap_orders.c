/* remap_orders.c: copies that another process requests while the program runs (`numapilot balance --replicate`).
 *
 * Two files in the run's folder. `orders` says what is to be, whole each time, replaced in one step: a line per mapping, "pid node inode path". `bell` is
 * one counter, raised after each change; a thread of this library sleeps on it (a futex: no processor time until it is rung) and then makes the process's
 * mappings what the orders say, also back to what they were. The thread blocks every signal of the program's, so that its handlers never run on it. */
#define _GNU_SOURCE
#include "nodes.h"
#include "remap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ORDERS_MAX = 64, STACK_BYTES = 256 << 10 };
/* Two signals of the C library's, for cancelling and for a change of user or group (setuid): whoever changes that waits until every thread has done so. */
#define LIBRARYS_OWN (1ull << (32 - 1) | 1ull << (33 - 1))

static struct order {
    int node;
    ino_t inode;
    char path[REMAP_PATH_MAX];
} orders[ORDERS_MAX];
static int order_count;

bool np_orders_read(void) {
    static struct line_reader reader; /* under the caller's lock, as `orders` */
    static char line[REMAP_PATH_MAX + 64];
    reader = (struct line_reader){.file = np_remap_open("orders", O_RDONLY, 0)};
    order_count = 0;
    if (reader.file < 0) return false;
    while (order_count < ORDERS_MAX && np_remap_next_line(&reader, line, sizeof line)) {
        int pid, node, path_at = 0;
        unsigned long inode;
        if (sscanf(line, "%d %d %lu %n", &pid, &node, &inode, &path_at) != 3 || path_at == 0 || pid != getpid()) continue;
        if (strlen(line + path_at) >= REMAP_PATH_MAX) continue;
        orders[order_count] = (struct order){.node = node, .inode = (ino_t)inode};
        strcpy(orders[order_count++].path, line + path_at);
    }
    close(reader.file);
    return true;
}

int np_orders_node(const struct mapping *mapping) {
    for (int i = 0; i < order_count; i++) {
        if (orders[i].inode == mapping->inode && !strcmp(orders[i].path, mapping->path)) return orders[i].node;
    }
    return -1;
}

/* Where the program runs: copies are then made there, and the process is seen on one node. */
static void go_to_main_thread(void) {
    unsigned long allowed[NPR_CPUS_MAX / 64] = {0};
    long bytes = syscall(SYS_sched_getaffinity, getpid(), sizeof allowed, allowed);
    if (bytes > 0) syscall(SYS_sched_setaffinity, 0, bytes, allowed);
}

static void *watch(void *context) {
    uint32_t *bell = context;
    prctl(PR_SET_NAME, "numapilot-copy");
    for (;;) {
        /* Read before obeying: what is rung meanwhile ends the next sleep at once. */
        uint32_t heard = __atomic_load_n(bell, __ATOMIC_ACQUIRE);
        go_to_main_thread();
        np_remap_obey();
        /* Not private: the bell is rung by another process. */
        long slept = syscall(SYS_futex, bell, FUTEX_WAIT, heard, NULL, NULL, 0);
        if (slept != 0 && errno != EAGAIN && errno != EINTR) return NULL;
    }
}

void np_orders_watch(void) {
    int saved = errno, cancelling = np_remap_keep_thread(), file = np_remap_open("bell", O_RDONLY, 0);
    struct stat status;
    bool is_whole = file >= 0 && fstat(file, &status) == 0 && status.st_size >= (off_t)sizeof(uint32_t);
    void *bell = is_whole ? np_remap_mmap(NULL, npr_whole_pages(1), PROT_READ, MAP_SHARED, file, 0) : MAP_FAILED;
    if (file >= 0) close(file);
    pthread_attr_t attributes;
    if (bell != MAP_FAILED && pthread_attr_init(&attributes) == 0) {
        pthread_t thread;
        uint64_t all = ~LIBRARYS_OWN, before = 0;
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        pthread_attr_setstacksize(&attributes, STACK_BYTES);
        syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all);
        /* Where no thread can be had, the process keeps what it has: whoever gave the orders hears nothing of it, and knows. */
        if (pthread_create(&thread, &attributes, watch, bell) != 0) munmap(bell, npr_whole_pages(1));
        syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
        pthread_attr_destroy(&attributes);
    }
    np_remap_let_thread_end(cancelling);
    errno = saved;
}
