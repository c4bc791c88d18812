/* places.c: pages by node, as a test of a kernel with several of them: bound to each node by mbind, moved to the next by move_pages, and first touched by
 * a thread of each node, under the kernel's own event of page faults.
 *
 * Prints a line for each node: "bound NODE PAGES", "moved FROM TO PAGES", "touched NODE PAGES FAULTS": pages that move_pages finds on the (second) node, of 64;
 * samples of faults on these pages that a CPU of the node had.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGES 64
#define NODES_MAX 8
#define RING_PAGES 16
#define BIND 2      /* MPOL_BIND, linux/mempolicy.h */
#define MOVE_OWN 2  /* MPOL_MF_MOVE */
#define MAX_CPUS 64

static long page_bytes;
static int node_of_cpu[MAX_CPUS], first_cpu[NODES_MAX], nodes;

static void die(const char *what) {
    fprintf(stderr, "places: %s: %s\n", what, strerror(errno));
    exit(3);
}

/* Nodes and the range of CPUs of each, as the lab numbers them. */
static void read_nodes(void) {
    for (; nodes < NODES_MAX; nodes++) {
        char path[96];
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", nodes);
        FILE *file = fopen(path, "r");
        if (file == NULL) return;
        int first, last, found = fscanf(file, "%d-%d", &first, &last);
        fclose(file);
        if (found < 1) exit(2);
        if (found < 2) last = first;
        first_cpu[nodes] = first;
        for (int cpu = first; cpu <= last && cpu < MAX_CPUS; cpu++) node_of_cpu[cpu] = nodes;
    }
}

/* Pages without memory; never parts of large ones. */
static char *block(void) {
    char *pages = mmap(NULL, PAGES * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) die("mmap");
    madvise(pages, PAGES * page_bytes, MADV_NOHUGEPAGE);
    return pages;
}

static void touch(char *pages) {
    for (int page = 0; page < PAGES; page++) pages[page * page_bytes] = 1;
}

/* How many of the pages are on `node`; with `to` not NULL they are moved there first. */
static int on_node(char *pages, const int *to, int node) {
    void *addresses[PAGES];
    int status[PAGES], count = 0;
    for (int page = 0; page < PAGES; page++) addresses[page] = pages + page * page_bytes;
    if (to != NULL && syscall(SYS_move_pages, 0, PAGES, addresses, to, status, MOVE_OWN) != 0) die("move_pages");
    if (syscall(SYS_move_pages, 0, PAGES, addresses, NULL, status, 0) != 0) die("move_pages, asked only");
    for (int page = 0; page < PAGES; page++) count += status[page] == node;
    return count;
}

static void bind_and_move(int node) {
    char *pages = block();
    unsigned long mask = 1ul << node;
    if (syscall(SYS_mbind, pages, PAGES * page_bytes, BIND, &mask, NODES_MAX + 1, 0) != 0) die("mbind");
    touch(pages);
    printf("bound %d %d\n", node, on_node(pages, NULL, node));
    int to[PAGES], next = (node + 1) % nodes;
    for (int page = 0; page < PAGES; page++) to[page] = next;
    /* What mbind demands would hold for new pages only, but is lifted to say what is meant. */
    if (syscall(SYS_mbind, pages, PAGES * page_bytes, 0, NULL, 0, 0) != 0) die("mbind, default");
    printf("moved %d %d %d\n", node, next, on_node(pages, to, next));
}

/* The event of this thread's page faults. */
static int open_event(void) {
    struct perf_event_attr attr = {
        .type = PERF_TYPE_SOFTWARE,
        .size = sizeof attr,
        .config = PERF_COUNT_SW_PAGE_FAULTS,
        .sample_period = 1,
        .sample_type = PERF_SAMPLE_ADDR | PERF_SAMPLE_CPU,
        .disabled = 1,
        .exclude_kernel = 1,
    };
    int fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
    if (fd < 0) die("perf_event_open");
    return fd;
}

/* Samples in the ring, of `pages` and from a CPU of `node`. */
static int faults_of(const char *ring, const char *pages, int node) {
    const struct perf_event_mmap_page *control = (const void *)ring;
    const char *data = ring + page_bytes;
    uint64_t head = __atomic_load_n(&control->data_head, __ATOMIC_ACQUIRE);
    int count = 0;
    for (uint64_t at = 0; at < head;) {
        const struct perf_event_header *header = (const void *)(data + at);
        const struct { uint64_t address; uint32_t cpu, unused; } *sample = (const void *)(header + 1);
        if (header->type == PERF_RECORD_SAMPLE && sample->address - (uintptr_t)pages < (uint64_t)(PAGES * page_bytes))
            count += sample->cpu < MAX_CPUS && node_of_cpu[sample->cpu] == node;
        at += header->size;
    }
    return count;
}

static void *touch_on(void *argument) {
    int node = *(const int *)argument;
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(first_cpu[node], &cpus);
    if (sched_setaffinity(0, sizeof cpus, &cpus) != 0) die("sched_setaffinity");
    char *pages = block();
    int fd = open_event();
    char *ring = mmap(NULL, (1 + RING_PAGES) * page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ring == MAP_FAILED) die("mmap of the event's ring");
    if (syscall(SYS_ioctl, fd, PERF_EVENT_IOC_ENABLE, 0) != 0) die("enabling the event");
    touch(pages);
    if (syscall(SYS_ioctl, fd, PERF_EVENT_IOC_DISABLE, 0) != 0) die("disabling the event");
    printf("touched %d %d %d\n", node, on_node(pages, NULL, node), faults_of(ring, pages, node));
    return NULL;
}

int main(void) {
    page_bytes = sysconf(_SC_PAGESIZE);
    read_nodes();
    for (int node = 0; node < nodes; node++) bind_and_move(node);
    for (int node = 0; node < nodes; node++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, touch_on, &node) != 0) die("pthread_create");
        pthread_join(thread, NULL);
    }
    return 0;
}
