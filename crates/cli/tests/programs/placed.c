/* placed.c: allocates objects of every kind, touches them, and prints where the kernel says that each one's pages are:
 *
 *   NAME POLICY-OF-ITS-MAPPING PAGES-ON-NODE-0 PAGES-ON-NODE-1 ...
 *
 * and in the end a sum of all bytes, which no placement may change. The policy is the second word of the mapping's line in /proc/self/numa_maps. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NODES 8
#define BIG (1ul << 20)

char static_table[BIG] __attribute__((aligned(4096)));
static uint64_t sum;

static void policy_of(const void *object, char *policy) {
    static char line[8192];
    unsigned long best = 0;
    strcpy(policy, "?");
    FILE *maps = fopen("/proc/self/numa_maps", "r");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        unsigned long start;
        char word[64];
        if (sscanf(line, "%lx %63s", &start, word) == 2 && start <= (unsigned long)object && start >= best) {
            best = start;
            strcpy(policy, word);
        }
    }
    if (maps != NULL) fclose(maps);
}

static void show(const char *name, const char *object, size_t bytes) {
    int counts[NODES] = {0};
    for (size_t at = 0; at < bytes; at += 4096) {
        void *page = (void *)((uintptr_t)(object + at) & ~4095ul);
        int status = -1;
        if (syscall(SYS_move_pages, 0, 1ul, &page, NULL, &status, 0) == 0 && status >= 0 && status < NODES) counts[status]++;
    }
    char policy[64];
    policy_of(object, policy);
    printf("%s %s", name, policy);
    for (int node = 0; node < 4; node++) printf(" %d", counts[node]);
    printf("\n");
    for (size_t i = 0; i < bytes; i += 4096) sum += (unsigned char)object[i];
}

#define MAKE(name, bytes)                                     \
    __attribute__((noinline)) static char *make_##name(void) { \
        char *object = malloc(bytes);                         \
        memset(object, 1, bytes);                             \
        return object;                                        \
    }
MAKE(interleaved, BIG)
MAKE(on_two, BIG)
MAKE(strict, BIG)
MAKE(split, BIG)
MAKE(weighted, BIG)
MAKE(inbox, BIG)
MAKE(plain, BIG)

static char *small_blocks[512];
__attribute__((noinline)) static void make_small(void) {
    for (int i = 0; i < 512; i++) memset(small_blocks[i] = malloc(1000), 1, 1000);
}
__attribute__((noinline)) static char *make_mapping(void) {
    char *object = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(object, 1, BIG);
    return object;
}

static char *local_objects[4];
static void *local_worker(void *number) {
    size_t index = (size_t)number;
    /* The worker allocates; the main thread touches first. */
    local_objects[index] = malloc(BIG);
    return NULL;
}

static void *consumer(void *inbox) {
    unsigned cpu, node;
    syscall(SYS_getcpu, &cpu, &node, NULL);
    printf("consumer runs on %u\n", node);
    show("inbox_after", inbox, BIG);
    return NULL;
}

int main(void) {
    memset(static_table, 1, BIG);
    show("interleaved", make_interleaved(), BIG);
    show("on_two", make_on_two(), BIG);
    show("strict", make_strict(), BIG);
    show("split", make_split(), BIG);
    show("weighted", make_weighted(), BIG);
    show("mapping", make_mapping(), BIG);
    show("static_table", static_table, BIG);
    show("plain", make_plain(), BIG);
    make_small();
    int on_three = 0;
    for (int i = 0; i < 512; i++) {
        void *page = (void *)((uintptr_t)small_blocks[i] & ~4095ul);
        int status = -1;
        syscall(SYS_move_pages, 0, 1ul, &page, NULL, &status, 0);
        on_three += status == 3;
    }
    char policy[64];
    policy_of(small_blocks[0], policy);
    printf("small %s %d of 512 on 3\n", policy, on_three);
    char *inbox = make_inbox();
    show("inbox_before", inbox, BIG);
    pthread_t thread;
    for (size_t i = 0; i < 4; i++) {
        pthread_create(&thread, NULL, local_worker, (void *)i);
        pthread_join(thread, NULL);
        memset(local_objects[i], 1, BIG);
        char name[32];
        snprintf(name, sizeof name, "local_%zu", i);
        show(name, local_objects[i], BIG);
    }
    pthread_create(&thread, NULL, consumer, inbox);
    pthread_join(thread, NULL);
    printf("sum %lu\n", (unsigned long)sum);
    return 0;
}
