/* objects.c: the objects that are followed, and where they lie.
 *
 * A reference in the virtual machine is an address, also where fields of objects are narrower, and the collectors that are followed (hotspot.c) move objects
 * only in a pause. In a pause all Java threads stand still, so its end is the moment at which every object is looked for again, by the weak references: no
 * thread of the program runs between a move and its record.
 *
 * A Java thread may be here during a pause, because to the virtual machine it runs foreign code: the lock keeps it from reading an address while a collection
 * begins. An object that is added during a pause is looked for at its end.
 *
 * What a collection has done to objects is stamped with its beginning, so that the collector's own writes, with which it first touches pages, belong to the
 * object that it puts there; but not before the collector has last mapped memory, because what lies there begins with that. A new object begins before the
 * virtual machine has cleared it, for the same reason: between two pauses nothing else comes to lie where an object is allocated.
 */
#include "objects.h"
#include "lock.h"

#include <string.h>

static const struct np_java_functions *recorder;
static uint32_t lock;
/* Pauses under way: one may begin within another. */
static uint32_t pauses;
/* Stamp of the pause's beginning, or of the last one's end. */
static uint64_t since;
static struct np_object objects[NP_OBJECTS_MAX];
static uint32_t used;
static void *dead[NP_OBJECTS_MAX];
static uint32_t dead_used;
static uint64_t dropped;
/* Collections are no longer reported, so that nobody knows when an address can be read. */
static bool has_ended;

void np_objects_use(const struct np_java_functions *functions) {
    recorder = functions;
    since = recorder->order();
}

uint64_t np_objects_settled(void) {
    np_agent_lock(&lock);
    uint64_t settled = since;
    np_agent_unlock(&lock);
    return settled;
}

static uintptr_t referred(const void *reference) { return __atomic_load_n((const uintptr_t *)reference, __ATOMIC_RELAXED); }
static uintptr_t place_of(const struct np_object *object) { return referred((void *)((uintptr_t)object->weak & ~NP_WEAK_BITS)); }

static void make(struct np_object *object, uintptr_t address, uint64_t order) {
    object->address = address;
    recorder->made(object->pool, address, object->bytes, object->stack, object->thread, order, np_java_sample(object->interval, object->was_made));
    object->was_made = true;
}

static void end(struct np_object *object) {
    if (object->address != 0) recorder->gone(object->pool, object->address, since);
    object->address = 0;
}

bool np_objects_add(struct np_object object, void *local, uint32_t *count) {
    np_agent_lock(&lock);
    bool fits = used < NP_OBJECTS_MAX && !has_ended;
    if (fits) {
        struct np_object *added = &objects[used++];
        *added = object;
        if (added->earliest < since) added->earliest = since;
        if (pauses == 0) make(added, referred(local), recorder->cleared(added->earliest, added->bytes));
    } else if (!has_ended) {
        dropped++;
    }
    *count = used;
    np_agent_unlock(&lock);
    return fits;
}

void np_objects_collection_begins(void) {
    np_agent_lock(&lock);
    if (pauses++ == 0) since = recorder->order();
    np_agent_unlock(&lock);
}

/* Ends what died or moved, before anything is made where it was. */
static void end_what_left(void) {
    for (uint32_t i = 0; i < used;) {
        struct np_object *object = &objects[i];
        uintptr_t now = place_of(object);
        if (now != object->address) end(object);
        if (now == 0 && dead_used < NP_OBJECTS_MAX) {
            dead[dead_used++] = object->weak;
            *object = objects[--used];
        } else {
            i++;
        }
    }
}

void np_objects_collection_ends(void) {
    np_agent_lock(&lock);
    if (pauses > 0) pauses--;
    end_what_left();
    uint64_t moved = recorder->mapped(since);
    for (uint32_t i = 0; i < used; i++) {
        struct np_object *object = &objects[i];
        uintptr_t now = place_of(object);
        if (object->address == 0 && now != 0) make(object, now, moved > object->earliest ? moved : object->earliest);
    }
    since = recorder->order();
    np_agent_unlock(&lock);
}

unsigned np_objects_dead(void **references, unsigned max) {
    if (__atomic_load_n(&dead_used, __ATOMIC_RELAXED) == 0) return 0;
    np_agent_lock(&lock);
    unsigned taken = dead_used < max ? dead_used : max;
    __atomic_store_n(&dead_used, dead_used - taken, __ATOMIC_RELAXED);
    memcpy(references, dead + dead_used, taken * sizeof *references);
    np_agent_unlock(&lock);
    return taken;
}

bool np_objects_peek(void *local, void *weak, uintptr_t *by_local, uintptr_t *by_weak, uint32_t words[5]) {
    np_agent_lock(&lock);
    bool is_still = pauses == 0;
    if (is_still) {
        *by_local = referred(local);
        *by_weak = referred((void *)((uintptr_t)weak & ~NP_WEAK_BITS));
        bool is_address = *by_local == *by_weak && *by_local % 8 == 0 && *by_local >= 4096 && *by_local < NP_ADDRESS_END;
        if (is_address) memcpy(words, (const void *)*by_local, 5 * sizeof *words);
        else memset(words, 0, 5 * sizeof *words);
    }
    np_agent_unlock(&lock);
    return is_still;
}

uint64_t np_objects_end(void) {
    np_agent_lock(&lock);
    has_ended = true;
    uint64_t found = dropped;
    np_agent_unlock(&lock);
    return found;
}
