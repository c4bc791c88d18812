/* callouts.c: the entry points for plain reads and writes, with the first-stage filter inline.
 *
 * A hit costs about a dozen instructions and no stack frame: count the access, look the line up in a direct-mapped array in the thread's slot, return.
 * Everything else is tail-called (callouts_slow.c). Entry points of different widths that do the same share one body, through aliases: the
 * compilers call the `readN` and `writeN` forms only for accesses aligned to min(N, 8), so up to 8 bytes never straddle a line. A program that breaks
 * the alignment its types promise has such an access counted on its first line only. */
#include "callouts.h"

NP_EXPORT _Thread_local struct np_slot *np_callouts_slot __attribute__((tls_model("initial-exec")));

/* An alias lies where its target does, whatever it says. */
#define NP_ALIAS(result, name, parameters, target) NP_EXPORT result name parameters __attribute__((alias(#target)))

/* ---- up to 8 bytes, aligned ---- */

NP_ENTRY void __tsan_read8(void *pointer) {
    uintptr_t address = (uintptr_t)pointer;
    struct np_slot *slot = np_callouts_slot;
    if (np_unlikely(slot == NULL)) {
        np_detached_read(address);
        return;
    }
    np_add(slot->accesses, 1);
    if (np_hits_read(slot, address)) return;
    np_miss_read(address, slot);
}

NP_ENTRY void __tsan_write8(void *pointer) {
    uintptr_t address = (uintptr_t)pointer;
    struct np_slot *slot = np_callouts_slot;
    if (np_unlikely(slot == NULL)) {
        np_detached_write(address);
        return;
    }
    np_add(slot->accesses, 1);
    if (np_hits_write(slot, address)) return;
    np_miss_write(address, slot);
}

/* A read and a write of one place in one call (clang's compound form): two accesses of work, one look-up. */
NP_ENTRY void __tsan_read_write8(void *pointer) {
    uintptr_t address = (uintptr_t)pointer;
    struct np_slot *slot = np_callouts_slot;
    if (np_unlikely(slot == NULL)) {
        np_detached_write(address);
        return;
    }
    np_add(slot->accesses, 2);
    if (np_hits_write(slot, address)) return;
    np_miss_write(address, slot);
}

/* A C++ object's constructor or destructor stores its table pointer: `value` is what it stores. */
NP_ENTRY void __tsan_vptr_update(void **pointer, void *value) {
    (void)value;
    __tsan_write8(pointer);
}

NP_ALIAS(void, __tsan_read1, (void *), __tsan_read8);
NP_ALIAS(void, __tsan_read2, (void *), __tsan_read8);
NP_ALIAS(void, __tsan_read4, (void *), __tsan_read8);
NP_ALIAS(void, __tsan_write1, (void *), __tsan_write8);
NP_ALIAS(void, __tsan_write2, (void *), __tsan_write8);
NP_ALIAS(void, __tsan_write4, (void *), __tsan_write8);
NP_ALIAS(void, __tsan_read_write1, (void *), __tsan_read_write8);
NP_ALIAS(void, __tsan_read_write2, (void *), __tsan_read_write8);
NP_ALIAS(void, __tsan_read_write4, (void *), __tsan_read_write8);
NP_ALIAS(void, __tsan_volatile_read1, (void *), __tsan_read8);
NP_ALIAS(void, __tsan_volatile_read2, (void *), __tsan_read8);
NP_ALIAS(void, __tsan_volatile_read4, (void *), __tsan_read8);
NP_ALIAS(void, __tsan_volatile_read8, (void *), __tsan_read8);
NP_ALIAS(void, __tsan_volatile_write1, (void *), __tsan_write8);
NP_ALIAS(void, __tsan_volatile_write2, (void *), __tsan_write8);
NP_ALIAS(void, __tsan_volatile_write4, (void *), __tsan_write8);
NP_ALIAS(void, __tsan_volatile_write8, (void *), __tsan_write8);
NP_ALIAS(void, __tsan_vptr_read, (void **), __tsan_read8);
/* One byte cannot straddle a line, whatever its alignment. */
NP_ALIAS(void, __tsan_unaligned_read1, (void *), __tsan_read8);
NP_ALIAS(void, __tsan_unaligned_write1, (void *), __tsan_write8);
NP_ALIAS(void, __tsan_unaligned_volatile_read1, (void *), __tsan_read8);
NP_ALIAS(void, __tsan_unaligned_volatile_write1, (void *), __tsan_write8);

/* ---- accesses that may straddle two lines ---- */

#define NP_STRADDLING(read_name, write_name, read_write_name, bytes)                       \
    NP_ENTRY void read_name(void *pointer) {                                               \
        uintptr_t address = (uintptr_t)pointer;                                            \
        struct np_slot *slot = np_callouts_slot;                                           \
        if (np_likely(slot != NULL && np_in_one_line(address, bytes)) && np_hits_read(slot, address)) { \
            np_add(slot->accesses, 1);                                                              \
            return;                                                                        \
        }                                                                                  \
        np_slow_read_range(address, bytes);                                                \
    }                                                                                      \
    NP_ENTRY void write_name(void *pointer) {                                              \
        uintptr_t address = (uintptr_t)pointer;                                            \
        struct np_slot *slot = np_callouts_slot;                                           \
        if (np_likely(slot != NULL && np_in_one_line(address, bytes)) && np_hits_write(slot, address)) { \
            np_add(slot->accesses, 1);                                                              \
            return;                                                                        \
        }                                                                                  \
        np_slow_write_range(address, bytes);                                               \
    }                                                                                      \
    NP_ENTRY void read_write_name(void *pointer) {                                         \
        uintptr_t address = (uintptr_t)pointer;                                            \
        struct np_slot *slot = np_callouts_slot;                                           \
        if (np_likely(slot != NULL)) np_add(slot->accesses, 1);                                     \
        write_name(pointer);                                                               \
        (void)address;                                                                     \
    }

NP_STRADDLING(__tsan_unaligned_read2, __tsan_unaligned_write2, __tsan_unaligned_read_write2, 2)
NP_STRADDLING(__tsan_unaligned_read4, __tsan_unaligned_write4, __tsan_unaligned_read_write4, 4)
NP_STRADDLING(__tsan_unaligned_read8, __tsan_unaligned_write8, __tsan_unaligned_read_write8, 8)
NP_STRADDLING(__tsan_unaligned_read16, __tsan_unaligned_write16, __tsan_unaligned_read_write16, 16)

NP_ALIAS(void, __tsan_unaligned_read_write1, (void *), __tsan_read_write8);
NP_ALIAS(void, __tsan_read16, (void *), __tsan_unaligned_read16);
NP_ALIAS(void, __tsan_write16, (void *), __tsan_unaligned_write16);
NP_ALIAS(void, __tsan_read_write16, (void *), __tsan_unaligned_read_write16);
NP_ALIAS(void, __tsan_volatile_read16, (void *), __tsan_unaligned_read16);
NP_ALIAS(void, __tsan_volatile_write16, (void *), __tsan_unaligned_write16);
NP_ALIAS(void, __tsan_unaligned_volatile_read2, (void *), __tsan_unaligned_read2);
NP_ALIAS(void, __tsan_unaligned_volatile_read4, (void *), __tsan_unaligned_read4);
NP_ALIAS(void, __tsan_unaligned_volatile_read8, (void *), __tsan_unaligned_read8);
NP_ALIAS(void, __tsan_unaligned_volatile_read16, (void *), __tsan_unaligned_read16);
NP_ALIAS(void, __tsan_unaligned_volatile_write2, (void *), __tsan_unaligned_write2);
NP_ALIAS(void, __tsan_unaligned_volatile_write4, (void *), __tsan_unaligned_write4);
NP_ALIAS(void, __tsan_unaligned_volatile_write8, (void *), __tsan_unaligned_write8);
NP_ALIAS(void, __tsan_unaligned_volatile_write16, (void *), __tsan_unaligned_write16);

/* ---- blocks: structure copies, and every vector access of gcc that is not 16 bytes or not aligned ---- */

NP_ENTRY void __tsan_read_range(void *pointer, size_t bytes) {
    uintptr_t address = (uintptr_t)pointer;
    struct np_slot *slot = np_callouts_slot;
    if (np_likely(slot != NULL && np_in_one_line(address, bytes)) && np_hits_read(slot, address)) {
        np_add(slot->accesses, np_range_work(bytes - 1));
        return;
    }
    np_slow_read_range(address, bytes);
}

NP_ENTRY void __tsan_write_range(void *pointer, size_t bytes) {
    uintptr_t address = (uintptr_t)pointer;
    struct np_slot *slot = np_callouts_slot;
    if (np_likely(slot != NULL && np_in_one_line(address, bytes)) && np_hits_write(slot, address)) {
        np_add(slot->accesses, np_range_work(bytes - 1));
        return;
    }
    np_slow_write_range(address, bytes);
}
