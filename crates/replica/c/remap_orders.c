/* remap_orders.c: copies that another process requests while the program runs (`numapilot balance --replicate`).
 *
 * Two files in the run's folder. `orders` says what is to be, whole each time, replaced in one step: a line per mapping, "pid node inode path". `bell` is
 * one counter, raised after each change; a thread of this library sleeps on it (a futex: next to no processor time until it is rung) and then makes the
 * process's mappings what the orders say, also back to what they were. It blocks every signal of the program's, whose handlers so never run on it. */
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
#include <time.h>
#include <unistd.h>

enum { ORDERS_MAX = 64, STACK_BYTES = 256 << 10, PAUSE_S = 1 };
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

/* The process's first thread, and the clock of its processor time, which has its number. */
static pthread_t first_thread;
static clockid_t first_clock;
static bool has_watched, is_first_known;

static void know_first_thread(void) {
    if (!has_watched) first_thread = pthread_self();
    has_watched = true;
    /* In the child of another thread's fork it is that one, whose description is gone when it ends. */
    is_first_known = pthread_equal(first_thread, pthread_self()) && pthread_getcpuclockid(first_thread, &first_clock) == 0;
}

/* By no system call, which a sandbox might not know. */
static bool has_first_ended(void) {
    clockid_t now;
    return is_first_known && (pthread_getcpuclockid(first_thread, &now) != 0 || now != first_clock);
}

/* A program whose first thread has ended (pthread_exit) ends with the last of the others, with status 0; this one is none of its. */
static void end_with_program(void) {
    char text[512], state;
    long threads;
    int file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t got = file >= 0 ? read(file, text, sizeof text - 1) : 0;
    if (file >= 0) close(file);
    text[got > 0 ? got : 0] = 0;
    const char *name_end = strrchr(text, ')');
    /* The third and the twentieth of its fields (proc(5)): the first thread is there, ended, as long as another one is. */
    const char *fields = " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %ld";
    if (name_end && sscanf(name_end + 1, fields, &state, &threads) == 2 && state == 'Z' && threads == 2) exit(0);
}

/* Until the bell is rung; meanwhile it is seen, now and then, whether the program has ended. Not private: another process rings it. False: nobody can wait. */
static bool sleep_until_rung(const uint32_t *bell, uint32_t heard) {
    for (;;) {
        struct timespec pause = {.tv_sec = PAUSE_S};
        if (syscall(SYS_futex, bell, FUTEX_WAIT, heard, &pause, NULL, 0) == 0 || errno == EAGAIN || errno == EINTR) return true;
        if (errno != ETIMEDOUT) return false;
        if (has_first_ended()) end_with_program();
    }
}

static void *watch(void *context) {
    const uint32_t *bell = context;
    prctl(PR_SET_NAME, "numapilot-copy");
    for (;;) {
        /* Read before obeying: what is rung meanwhile ends the next sleep at once. */
        uint32_t heard = __atomic_load_n(bell, __ATOMIC_ACQUIRE);
        go_to_main_thread();
        np_remap_obey();
        if (!sleep_until_rung(bell, heard)) return NULL;
    }
}

void np_orders_watch(void) {
    int saved = errno, cancelling = np_remap_keep_thread(), file = np_remap_open("bell", O_RDONLY, 0);
    struct stat status;
    bool is_whole = file >= 0 && fstat(file, &status) == 0 && status.st_size >= (off_t)sizeof(uint32_t);
    know_first_thread();
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
