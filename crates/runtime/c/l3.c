/* l3.c: the shared caches. One array of tags per L3, in the arena, shared by all threads (of all recorded processes) whose model CPU uses that L3.
 *
 * Neither inclusive nor exclusive: a line that comes from memory or from another cache is put in, is replaced at random, and neither event touches the
 * private filters. Written lines are taken out of the other L3s through the directory. Tags are plain words: two threads that replace the same way at
 * the same moment lose one of the two lines. */
#include "memsim.h"

void np_l3_drop(uint32_t l3_index, uintptr_t line) {
    struct np_l3_place place = np_l3_place(l3_index, line);
    uint32_t found = np_find_tag(place.set, np_sim.l3_ways, place.tag, 0);
    if (found != 0) np_store(place.set[__builtin_ctz(found)], 0);
}
