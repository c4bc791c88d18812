/* The agent's table of objects (java/objects.c) with references of a virtual machine that is played here: words that a collection changes. */
#include "../../java/objects.c"

#include "truth.h"

#include <stdio.h>

/* Where objects are, as the recorder knows it: their number by address; 0: none. */
static uint32_t there[256];
static unsigned mades;
/* Stamps count from 1; that of the last record. */
static uint64_t now, last;

static uint64_t order(void) { return ++now; }
/* When the collector last mapped memory. */
static uint64_t last_mapping;
static uint64_t mapped(uint64_t earliest) { return earliest > last_mapping ? earliest : last_mapping + 1; }
static uint64_t cleared(uint64_t earliest, size_t bytes) { return bytes == 16 ? earliest : 0; }

/* The sample that each object's last record had. */
static uint64_t samples[8];

static void made(uint32_t pool, uintptr_t address, size_t bytes, uint32_t stack, uint32_t thread, uint64_t order, uint64_t sample) {
    CHECK(bytes == 16 && stack == pool + 100 && thread == pool + 200 && address < 256 && there[address] == 0 && order > 0 && order <= now);
    there[address] = pool;
    last = order;
    mades++;
    if (pool < 8) samples[pool] = sample;
}

static void gone(uint32_t pool, uintptr_t address, uint64_t order) {
    CHECK(there[address] == pool && order > 0 && order <= now);
    there[address] = 0;
    last = order;
}

static const struct np_java_functions functions = {.order = order, .mapped = mapped, .cleared = cleared, .made = made, .gone = gone};
/* The words that weak references point to; index: the object's number. */
static uintptr_t places[NP_OBJECTS_MAX + 2];

static void *weak_of(uint32_t number) { return (char *)&places[number] + 1; }

static bool follow(uint32_t number, uintptr_t address) {
    uint32_t count;
    places[number] = address;
    uintptr_t local = address;
    struct np_object object = {.weak = weak_of(number), .bytes = 16, .pool = number, .stack = number + 100, .thread = number + 200, .interval = 64};
    return np_objects_add(object, &local, &count);
}

static void collect(void (*moves)(void)) {
    np_objects_collection_begins();
    if (moves != NULL) moves();
    np_objects_collection_ends();
}

static void swap(void) { places[1] = 20, places[2] = 10; }
static void kill_first(void) { places[1] = 0; }
static void into_its_place(void) { places[2] = 20; }

static void into_new_memory(void) {
    last_mapping = order();
    order();
    places[2] = 40;
}

static void nest(void) {
    np_objects_collection_begins();
    CHECK(follow(3, 30) && there[30] == 0); /* in a pause nobody knows where it is */
    places[3] = 31;
    np_objects_collection_ends();
}

static void objects_change_places(void) {
    uint64_t began = now;
    CHECK(follow(1, 10) && follow(2, 20) && there[10] == 1 && there[20] == 2 && last == began); /* from the last pause's end on */
    CHECK(samples[1] == np_java_sample(64, 0) && samples[2] == samples[1]);
    np_objects_collection_begins();
    uint64_t pause = now;
    order();
    swap();
    np_objects_collection_ends();
    CHECK(there[20] == 1 && there[10] == 2 && mades == 4 && last == pause && np_objects_settled() > pause);
    CHECK(samples[1] == np_java_sample(64, 1) && samples[2] == samples[1]); /* the same objects, elsewhere */
}

static void others_stay(void) {
    unsigned before = mades;
    collect(NULL);
    CHECK(mades == before && there[20] == 1 && there[10] == 2);
    collect(kill_first);
    CHECK(there[20] == 0 && there[10] == 2);
    collect(into_its_place);
    CHECK(there[20] == 2 && there[10] == 0 && mades == before + 1);
    collect(into_new_memory);
    CHECK(there[20] == 0 && there[40] == 2 && last == last_mapping + 1);
    collect(into_its_place);
    void *references[2];
    CHECK(np_objects_dead(references, 2) == 1 && references[0] == weak_of(1) && np_objects_dead(references, 2) == 0);
}

static void pauses_nest(void) {
    collect(nest);
    CHECK(there[31] == 3 && there[20] == 2 && there[30] == 0 && samples[3] == np_java_sample(64, 0)); /* its first place */
}

static void there_is_an_end(void) {
    uint32_t number = 4;
    np_objects_collection_begins(); /* so that none has a place */
    while (used < NP_OBJECTS_MAX) CHECK(follow(number++, 0));
    CHECK(!follow(number, 0) && dropped == 1);
    np_objects_collection_ends();
    CHECK(used == 2 && dead_used == NP_OBJECTS_MAX - 2);
    uint32_t more = number;
    np_objects_collection_begins();
    for (uint32_t i = 4; i < 10; i++) CHECK(follow(i, 0));
    np_objects_collection_ends();
    CHECK(dead_used == NP_OBJECTS_MAX && used == 6 && more == number); /* no room for more that have died: they wait in the table */
    void *references[8];
    CHECK(np_objects_dead(references, 8) == 8);
    collect(NULL);
    CHECK(used == 2);
}

/* Once the virtual machine has ended, a thread that is still about to add an object adds none: a collection may be under way that nobody reports. */
static void the_end_is_final(void) {
    unsigned before = mades;
    CHECK(np_objects_end() == 1);
    CHECK(!follow(4, 50) && there[50] == 0 && mades == before && np_objects_end() == 1);
}

int main(void) {
    np_objects_use(&functions);
    objects_change_places();
    others_stay();
    pauses_nest();
    there_is_an_end();
    the_end_is_final();
    return 0;
}
