/* objects.h: the objects that are followed, and where they lie. */
#ifndef NUMAPILOT_JAVA_OBJECTS_H
#define NUMAPILOT_JAVA_OBJECTS_H

#include "../c/java.h"

#include <stdbool.h>

/* Weak references keep what kind they are in their low bits (JNIHandles::TypeTag); the rest is the address of a reference. */
#define NP_WEAK_BITS ((uintptr_t)3)

struct np_object {
    void *weak;        /* a weak global reference of ours */
    uintptr_t address; /* as the recorder knows it; 0: not yet */
    uint64_t bytes;
    uint64_t earliest; /* stamp before which it must not begin */
    uint32_t pool, stack, thread;
    uint32_t interval; /* the one in so many bytes that it was sampled by */
    bool was_made;     /* the recorder has had a place of it */
};

void np_objects_use(const struct np_java_functions *functions);
/* Stamp of the last pause's end: what has been allocated since lies where nothing else has been since then. */
uint64_t np_objects_settled(void);
/* Follows an object, to which `local` is a local reference of the calling thread. False: too many are followed, or none any more; the weak reference stays
 * the caller's. */
bool np_objects_add(struct np_object object, void *local, uint32_t *count);
/* From the collector's thread, in its pause. */
void np_objects_collection_begins(void);
void np_objects_collection_ends(void);
/* Weak references of objects that have died, which now are the caller's; at most `max`. */
unsigned np_objects_dead(void **references, unsigned max);
/* Reads the object's address by both references between two collections; false: a collection is under way. */
bool np_objects_peek(void *local, void *weak, uintptr_t *by_local, uintptr_t *by_weak, uint32_t words[5]);
/* No object is followed from here on. Returns how many were not, because too many were already. */
uint64_t np_objects_end(void);

#define NP_OBJECTS_MAX (1u << 16)

#endif
