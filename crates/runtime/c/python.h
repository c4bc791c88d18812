/* python.h: frames of a Python interpreter in this process (python.c), and where they are found (python_find.c). */
#ifndef NUMAPILOT_PYTHON_H
#define NUMAPILOT_PYTHON_H

#include "track.h"

/* How an interpreter's memory is laid out: offsets in bytes; NP_PYTHON_NONE: there is no such field. */
#define NP_PYTHON_NONE 0xffffu
struct np_python_layout {
    uint16_t minor;
    uint16_t innermost;  /* of a thread state: its innermost frame, or what has it at in_cframe */
    uint16_t in_cframe;
    uint16_t code, back; /* of a frame */
    uint16_t at;         /* of a frame: the instruction; a pointer, or an int where there is no code_start */
    uint16_t owner;
    uint16_t name, file, table, first_line, code_start; /* of code */
    uint16_t ascii, compact;                            /* of a string: where its text begins */
};
/* What the tracker knows of the interpreter; the emulator's plugin reads it, too. */
struct np_python_known {
    const struct np_python_layout *layout; /* NULL: there is none, or none that is known; once known it stays, as other threads read by it */
    uint32_t given_up;                     /* it is not laid out so */
    uintptr_t code_type, text_type, bytes_type;
    uintptr_t evaluator_lo, evaluator_hi;
};
extern const struct np_python_known *np_python;
void np_python_give_up(void);
/* The calling thread's state in the interpreter. *is_held: it holds the lock. 0: it is none of the interpreter's, or, in the plugin, was not seen there. */
uintptr_t np_python_thread(bool *is_held);

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
/* One of these native frames is the interpreter's. */
bool np_python_is_among(const uintptr_t *frames, unsigned count);
/* Where the calling thread, of this slot, is in Python code. False: in none that can be read. Mixes into *hash what tells its stacks apart. Takes no lock.
 * *is_python: the thread belongs to an interpreter, so that equal native frames may be of different Python functions. */
bool np_python_walk(const struct np_slot *slot, struct np_python *stack, uint64_t *hash, bool *is_python);
/* For np_python_merge to work in. */
struct np_python_room {
    uintptr_t found[NP_PYTHON_FRAMES], rest[128];
    char name[512], file[2048];
};
/* Puts these functions in the place of the interpreter's own frames among `count` return addresses (the plugin: behind the first), each in the form of
 * NP_CODE_FRAME. At most `max` in all;
 * more set bit 0 of *flags. Returns their number; 0: the record of one was lost, and *frames and *flags are as before. */
unsigned np_python_merge(struct np_slot *slot, const struct np_python *stack, struct np_python_room *room, uintptr_t *frames, unsigned count, unsigned max,
                         uint32_t *flags);

#endif
