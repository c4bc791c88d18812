/* Memory that one thread touches first and threads on every node read: the truth for tests of engine `fault` on several nodes.
 *
 * nodes NODES CPUS_PER_NODE SECONDS
 *
 * The main thread, on node 0, touches `shared`. Then a reader on each node touches a block of its own, and reads its slice of `shared` again and again.
 * Where the kernel says that the pages are (move_pages with no target nodes, numa_maps) is printed right after the first touch and at the end.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096L
#define SLICE 256L
#define OWN 64L
#define MAX_NODES 16

static char *shared, *own[MAX_NODES];
static long tids[MAX_NODES];
static int nodes, cpus_per_node;
static double seconds;
static pthread_barrier_t touched;

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) exit(3);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Between inaccessible pages, because the kernel would merge adjacent mappings, and numa_maps would show one line. */
static char *fresh(long pages) {
    char *base = mmap(NULL, (size_t)((pages + 2) * PAGE), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED || mprotect(base + PAGE, (size_t)(pages * PAGE), PROT_READ | PROT_WRITE) != 0) exit(3);
    madvise(base + PAGE, (size_t)(pages * PAGE), MADV_NOHUGEPAGE);
    return base + PAGE;
}

/* Pages of a block by node, as move_pages and as numa_maps have it. */
static void where(const char *name, char *base, long pages) {
    void **at = malloc((size_t)pages * sizeof *at);
    int *status = malloc((size_t)pages * sizeof *status);
    long asked[MAX_NODES] = {0}, mapped[MAX_NODES] = {0};
    for (long page = 0; page < pages; page++) at[page] = base + page * PAGE;
    if (syscall(SYS_move_pages, 0, pages, at, NULL, status, 0) != 0) exit(3);
    for (long page = 0; page < pages; page++)
        if (status[page] >= 0 && status[page] < MAX_NODES) asked[status[page]]++;
    char line[1024];
    FILE *file = fopen("/proc/self/numa_maps", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (strtoul(line, NULL, 16) != (unsigned long)base) continue;
        for (int node = 0; node < nodes; node++) {
            char key[16];
            snprintf(key, sizeof key, " N%d=", node);
            char *found = strstr(line, key);
            if (found) mapped[node] = atol(found + strlen(key));
        }
    }
    if (file) fclose(file);
    for (int table = 0; table < 2; table++) {
        printf("\"%s_%s\": [", name, table ? "numa_maps" : "move_pages");
        for (int node = 0; node < nodes; node++) printf("%s%ld", node ? ", " : "", table ? mapped[node] : asked[node]);
        printf("], ");
    }
    free(at);
    free(status);
}

static void *reader(void *argument) {
    long node = (long)argument, sum = 0;
    pin((int)node * cpus_per_node);
    tids[node] = syscall(SYS_gettid);
    for (long page = 0; page < OWN; page++) ((volatile char *)own[node])[page * PAGE] = 1; /* LINE own */
    pthread_barrier_wait(&touched);
    pthread_barrier_wait(&touched);
    volatile char *slice = shared + node * SLICE * PAGE;
    for (double end = now() + seconds; now() < end;)
        for (long page = 0; page < SLICE; page++) sum += slice[page * PAGE + 64]; /* LINE read */
    return (void *)sum;
}

int main(int count, char **arguments) {
    if (count != 4) return 2;
    nodes = atoi(arguments[1]), cpus_per_node = atoi(arguments[2]), seconds = atof(arguments[3]);
    if (nodes < 1 || nodes > MAX_NODES) return 2;
    pin(0);
    pthread_barrier_init(&touched, NULL, (unsigned)nodes + 1);
    shared = fresh(nodes * SLICE);
    for (long page = 0; page < nodes * SLICE; page++) ((volatile char *)shared)[page * PAGE] = 1; /* LINE shared */
    printf("{\"main\": %d, \"base\": %lu, \"slice\": %ld, \"own\": %ld, ", getpid(), (unsigned long)shared, SLICE, OWN);
    where("shared", shared, nodes * SLICE);
    pthread_t threads[MAX_NODES];
    for (long node = 0; node < nodes; node++) {
        own[node] = fresh(OWN);
        pthread_create(&threads[node], NULL, reader, (void *)node);
    }
    pthread_barrier_wait(&touched);
    for (int node = 0; node < nodes; node++) {
        char name[16];
        snprintf(name, sizeof name, "own%d", node);
        where(name, own[node], OWN);
    }
    pthread_barrier_wait(&touched);
    for (int node = 0; node < nodes; node++) pthread_join(threads[node], NULL);
    where("end", shared, nodes * SLICE);
    printf("\"tids\": [");
    for (int node = 0; node < nodes; node++) printf("%s%ld", node ? ", " : "", tids[node]);
    printf("]}\n");
    return 0;
}
