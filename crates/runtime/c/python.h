/* python.h: frames of a Python interpreter in this process (python.c). */
#ifndef NUMAPILOT_PYTHON_H
#define NUMAPILOT_PYTHON_H

#include "track.h"

/* Looks for an interpreter in this library, which is loaded, or, for NULL, among the program's global symbols. Takes the loader's lock. */
void np_python_find(const char *library);
/* In a forked child. */
void np_python_after_fork(void);
void np_python_jumped(void);

#define NP_PYTHON_FRAMES 96u
/* The Python functions that a thread is in, innermost first, by their code and the instruction that each is at. */
struct np_python {
    uint32_t count;
    bool is_cut;     /* there are more */
    bool is_careful; /* how the interpreter's memory is laid out is not proved yet */
    bool by_kernel;  /* it may go while it is read, so the kernel reads it */
    struct { uintptr_t code; uint64_t unit; } frames[NP_PYTHON_FRAMES];
};
/* Where the calling thread, of this slot, is in Python code. False: in none that can be read. Mixes into *hash what tells its stacks apart. Takes no lock.
 * *is_python: the thread belongs to an interpreter, so that equal native frames may be of different Python functions. */
bool np_python_walk(const struct np_slot *slot, struct np_python *stack, uint64_t *hash, bool *is_python);
/* For np_python_merge to work in. */
struct np_python_room {
    uintptr_t found[NP_PYTHON_FRAMES], rest[128];
    char name[512], file[2048];
};
/* Puts these functions in the place of the interpreter's own frames among `count` return addresses, each in the form of NP_CODE_FRAME. At most `max` in all;
 * more set bit 0 of *flags. Returns their number; 0: the record of one was lost, and *frames and *flags are as before. */
unsigned np_python_merge(struct np_slot *slot, const struct np_python *stack, struct np_python_room *room, uintptr_t *frames, unsigned count, unsigned max,
                         uint32_t *flags);

#endif
