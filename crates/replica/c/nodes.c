/* nodes.c: which nodes there are, which one a thread is on, and memory on a chosen node.
 *
 * Memory is asked for with MPOL_PREFERRED and then looked at, not with MPOL_BIND: a bound range on a full node gets the process killed, a preferred one
 * spills to another node, is recognised, and given back.
 *
 * The NUMA calls go through whoever provides them in the process (a preloaded simulated machine, libnuma), else to the kernel. */
#define _GNU_SOURCE
#include "nodes.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WORD_BITS = 64, MASK_WORDS = NPR_NODES_MAX / WORD_BITS, PREFERRED = 1, MEMS_ALLOWED = 4, POPULATE_WRITE = 23 };
/* Pages that are asked for at once: on the stack, which in a program's call of mmap() may be a coroutine's. */
enum { BATCH = 128 };

typedef long mbind_function(void *, unsigned long, int, const unsigned long *, unsigned long, unsigned);
typedef long get_mempolicy_function(int *, unsigned long *, unsigned long, void *, unsigned);
typedef long move_pages_function(int, unsigned long, void **, const int *, int *, int);

uint16_t npr_node_of_cpu[NPR_CPUS_MAX];
static struct npr_nodes nodes;
static struct {
    mbind_function *mbind;
    get_mempolicy_function *get_mempolicy;
    move_pages_function *move_pages;
} calls;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- the system's calls ---- */

/* POSIX lets dlsym's result be a function; ISO C has no cast for it. */
static void look_up(const char *name, void *pointer_to_function) {
    void *found = dlsym(RTLD_DEFAULT, name);
    memcpy(pointer_to_function, &found, sizeof found);
}

static long call_get_mempolicy(unsigned long *mask, unsigned flags) {
    long done = calls.get_mempolicy ? calls.get_mempolicy(NULL, mask, NPR_NODES_MAX, NULL, flags) : -1;
    if (done == 0) return 0;
    return syscall(SYS_get_mempolicy, NULL, mask, (unsigned long)NPR_NODES_MAX, NULL, flags);
}

static long call_mbind(void *start, size_t bytes, int mode, const unsigned long *mask, unsigned long bits) {
    long done = calls.mbind ? calls.mbind(start, bytes, mode, mask, bits, 0) : -1;
    if (done == 0 || (calls.mbind && errno != ENOSYS)) return done;
    return syscall(SYS_mbind, start, bytes, mode, mask, bits, 0u);
}

static long call_move_pages(unsigned long count, void **pages, int *status) {
    long done = calls.move_pages ? calls.move_pages(0, count, pages, NULL, status, 0) : -1;
    if (done == 0 || (calls.move_pages && errno != ENOSYS)) return done;
    return syscall(SYS_move_pages, 0, count, pages, NULL, status, 0);
}

/* ---- the machine ---- */

static size_t read_file(const char *path, char *text, size_t size) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file >= 0 ? read(file, text, size - 1) : -1;
    if (file >= 0) close(file);
    text[got > 0 ? got : 0] = 0;
    return got > 0 ? (size_t)got : 0;
}

/* A list such as "0-3,8" to a mask. False: the file is not there. */
static bool read_list(const char *path, unsigned long *mask) {
    char text[4096];
    if (read_file(path, text, sizeof text) == 0) return false;
    for (char *at = text; *at >= '0' && *at <= '9';) {
        unsigned long first = strtoul(at, &at, 10), last = first;
        if (*at == '-') last = strtoul(at + 1, &at, 10);
        for (unsigned long node = first; node <= last && node < NPR_NODES_MAX; node++) mask[node / WORD_BITS] |= 1ul << (node % WORD_BITS);
        if (*at == ',') at++;
    }
    return true;
}

static void discover(void) {
    look_up("mbind", &calls.mbind);
    look_up("get_mempolicy", &calls.get_mempolicy);
    look_up("move_pages", &calls.move_pages);
    unsigned long allowed[MASK_WORDS] = {0}, kernel_allowed[MASK_WORDS] = {0}, with_cpus[MASK_WORDS] = {0};
    if (call_get_mempolicy(allowed, MEMS_ALLOWED) != 0) allowed[0] = 1;
    /* Where the machine that the process sees is not the kernel's, sysfs speaks of another one. */
    bool is_kernels = syscall(SYS_get_mempolicy, NULL, kernel_allowed, (unsigned long)NPR_NODES_MAX, NULL, MEMS_ALLOWED) != 0 ||
                      memcmp(allowed, kernel_allowed, sizeof allowed) == 0;
    bool is_filtered = is_kernels && read_list("/sys/devices/system/node/has_cpu", with_cpus);
    for (uint32_t node = 0; node < NPR_NODES_MAX; node++) {
        unsigned long bit = 1ul << (node % WORD_BITS);
        if (!(allowed[node / WORD_BITS] & bit) || (is_filtered && !(with_cpus[node / WORD_BITS] & bit))) continue;
        nodes.id[nodes.count++] = (uint16_t)node;
        nodes.span = node + 1;
    }
    if (nodes.count == 0) nodes = (struct npr_nodes){.count = 1, .span = 1};
}

const struct npr_nodes *npr_nodes(void) {
    pthread_once(&once, discover);
    return &nodes;
}

uint32_t npr_distance(int from, int to) {
    char path[64], text[4096];
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/distance", from);
    if (from == to) return 10;
    if (read_file(path, text, sizeof text) == 0) return 255;
    /* One number for each online node; with holes in the numbering this is the wrong column, and only the choice of a neighbour is worse. */
    char *at = text;
    for (int column = 0; *at; column++) {
        uint32_t distance = (uint32_t)strtoul(at, &at, 10);
        if (column == to) return distance;
        while (*at == ' ' || *at == '\n') at++;
    }
    return 255;
}

uint32_t npr_ask_node(int cpu) {
    unsigned asked_cpu = 0, node = 0;
    if (getcpu(&asked_cpu, &node) != 0) return 0;
    if (node >= NPR_NODES_MAX) node = 0;
    if ((int)asked_cpu == cpu && asked_cpu < NPR_CPUS_MAX) __atomic_store_n(&npr_node_of_cpu[asked_cpu], (uint16_t)(node + 1), __ATOMIC_RELAXED);
    return node;
}

/* ---- memory ---- */

size_t npr_whole_pages(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

bool npr_prefer(void *start, size_t bytes, int node) {
    unsigned long mask[MASK_WORDS] = {0};
    mask[node / WORD_BITS] = 1ul << (node % WORD_BITS);
    /* The kernel reads one bit less than it is told. */
    return call_mbind(start, bytes, PREFERRED, mask, (unsigned long)node + 2) == 0;
}

/* Pages of the first batch from `at` on that are on the node, or elsewhere. Returns the batch's end. */
static const char *ask_batch(const char *at, const char *end, int node, size_t *placed, size_t *misplaced) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *pages[BATCH];
    int status[BATCH];
    unsigned long count = 0;
    for (; at < end && count < BATCH; at += page) pages[count++] = (void *)(uintptr_t)at;
    if (call_move_pages(count, pages, status) != 0) return end;
    for (unsigned long i = 0; i < count; i++) {
        *placed += status[i] == node;
        *misplaced += status[i] >= 0 && status[i] != node;
    }
    return at;
}

size_t npr_misplaced(const void *start, size_t bytes, int node) {
    size_t placed = 0, misplaced = 0;
    const char *at = start, *end = at + bytes;
    while (at < end && misplaced == 0) at = ask_batch(at, end, node, &placed, &misplaced);
    return misplaced;
}

size_t npr_placed(const void *start, size_t bytes, int node) {
    size_t placed = 0, misplaced = 0;
    ask_batch(start, (const char *)start + bytes, node, &placed, &misplaced);
    return placed;
}

void *npr_map_on(size_t bytes, int node) {
    size_t length = npr_whole_pages(bytes);
    if (length < bytes) return NULL;
    void *start = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return NULL;
    bool is_refused = npr_nodes()->count > 1 && !npr_prefer(start, length, node);
    /* Made now, so that memory that is not there is an error here and no signal later. Kernels before 5.14 do not know the call. */
    if (is_refused || (madvise(start, length, POPULATE_WRITE) != 0 && errno != EINVAL)) {
        munmap(start, length);
        return NULL;
    }
    return start;
}
