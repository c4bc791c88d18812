/* prices.c: a complete program. Four threads look prices up all the time; now and then one changes. Each thread reads the table's copy on its own node.
 *
 *     cc prices.c -o prices $(pkg-config --cflags --libs numapilot-replica) -pthread */
#include "numapilot_replica.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { ITEMS = 100000, THREADS = 4, LOOKUPS = 200000, CHANGES = 20 };

struct prices {
    long total; /* of all items, at any time */
    long price[ITEMS];
};

static numapilot_replica *table;

static void *look_up(void *wrong) {
    unsigned item = 1;
    for (int i = 0; i < LOOKUPS; i++) {
        const struct prices *prices = numapilot_replica_enter(table, NULL);
        item = item * 1664525u + 1013904223u;
        /* Two prices are changed together, so that the total stays: a section never sees one without the other. */
        long pair = prices->price[item % ITEMS / 2 * 2] + prices->price[item % ITEMS / 2 * 2 + 1];
        if (pair != 200 || prices->total != 100L * ITEMS) __atomic_store_n((int *)wrong, 1, __ATOMIC_RELAXED);
        numapilot_replica_leave(table);
    }
    return NULL;
}

static int fail(const char *what, int error) {
    fprintf(stderr, "prices: %s: %s\n", what, strerror(-error));
    return 1;
}

int main(void) {
    static struct prices first;
    first.total = 100L * ITEMS;
    for (int i = 0; i < ITEMS; i++) first.price[i] = 100;
    int error = numapilot_replica_create(sizeof first, NULL, &table);
    if (error) return fail("create", error);
    if ((error = numapilot_replica_publish(table, &first)) != 0) return fail("publish", error);

    pthread_t threads[THREADS];
    int wrong = 0;
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, look_up, &wrong);
    for (int i = 0; i < CHANGES; i++) {
        void *draft;
        if ((error = numapilot_replica_write_begin(table, &draft)) != 0) return fail("write_begin", error);
        struct prices *prices = draft;
        prices->price[2 * i]++;
        prices->price[2 * i + 1]--;
        if ((error = numapilot_replica_write_commit(table)) != 0) return fail("write_commit", error);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);

    struct numapilot_replica_info info = {.type_size = sizeof info};
    numapilot_replica_info(table, &info);
    printf("version %llu, %u of %u nodes have a copy, %s\n", (unsigned long long)info.version, info.copies, info.nodes, wrong ? "WRONG" : "every sum right");
    if ((error = numapilot_replica_destroy(table)) != 0) return fail("destroy", error);
    return wrong;
}
