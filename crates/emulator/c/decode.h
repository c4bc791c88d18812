/* decode.h: as much of x86-64's instruction encoding as says how an instruction touches memory. */
#ifndef NUMAPILOT_DECODE_H
#define NUMAPILOT_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* When in doubt, NP_SHAPE_ANY: then every access that it makes is seen, only that their number is not known beforehand. */
enum np_shape {
    NP_SHAPE_ANY,    /* no, one or several accesses */
    NP_SHAPE_NONE,   /* surely none */
    NP_SHAPE_STACK,  /* only at the top of the stack (push, pop, call, return), or at a constant distance from rsp */
    NP_SHAPE_ONE,    /* exactly one load or store */
    NP_SHAPE_UPDATE, /* one load and one store at the same place */
    NP_SHAPE_LOCKED, /* the same, atomically */
};

enum np_shape np_decode(const uint8_t *bytes, size_t size);
/* Bytes of each step of a repeated movs or stos, 0 for other instructions. */
unsigned np_decode_step(const uint8_t *bytes, size_t size);

#endif
