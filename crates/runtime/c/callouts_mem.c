/* callouts_mem.c: block copies, fills and comparisons.
 *
 * gcc leaves calls to memcpy and its kin to the C library, clang (since 16) calls `__tsan_memcpy`. `numapilot cc` links with `--wrap=NAME` for every
 * name below, so calls from the linked objects arrive here; whatever a shared library copies by itself is that library's. Each function accounts the
 * blocks, then tail-calls the real one.
 *
 * A comparison that finds a difference is accounted by the first line of each side: how far it read is not known. */
#include "callouts.h"


static inline __attribute__((always_inline)) void np_block_read(const void *pointer, size_t bytes) {
    struct np_slot *slot = np_callouts_slot;
    uintptr_t address = (uintptr_t)pointer;
    if (np_likely(slot != NULL && np_in_one_line(address, bytes)) && np_hits_read(slot, address)) {
        np_add(slot->accesses, np_range_work(bytes));
    } else if (slot != NULL || np_is_tracked()) {
        np_slow_access(address, bytes, NP_ACC_RANGE, NP_CALLER_REGS());
    }
}

static inline __attribute__((always_inline)) void np_block_write(const void *pointer, size_t bytes) {
    struct np_slot *slot = np_callouts_slot;
    uintptr_t address = (uintptr_t)pointer;
    if (np_likely(slot != NULL && np_in_one_line(address, bytes)) && np_hits_write(slot, address)) {
        np_add(slot->accesses, np_range_work(bytes));
    } else if (slot != NULL || np_is_tracked()) {
        np_slow_access(address, bytes, NP_ACC_WRITE | NP_ACC_RANGE, NP_CALLER_REGS());
    }
}

/* What `--wrap` resolves: __real_NAME is the C library's NAME, also inside this archive. */
#define NP_WRAP(result, name, parameters) \
    extern result __real_##name parameters; \
    NP_EXPORT NP_WRAPPED_TEXT result __wrap_##name parameters

NP_WRAP(void *, memcpy, (void *to, const void *from, size_t bytes)) {
    np_block_read(from, bytes);
    np_block_write(to, bytes);
    return __real_memcpy(to, from, bytes);
}

NP_WRAP(void *, memmove, (void *to, const void *from, size_t bytes)) {
    np_block_read(from, bytes);
    np_block_write(to, bytes);
    return __real_memmove(to, from, bytes);
}

NP_WRAP(void *, mempcpy, (void *to, const void *from, size_t bytes)) {
    np_block_read(from, bytes);
    np_block_write(to, bytes);
    return __real_mempcpy(to, from, bytes);
}

NP_WRAP(void *, memset, (void *to, int value, size_t bytes)) {
    np_block_write(to, bytes);
    return __real_memset(to, value, bytes);
}

/* The fortified forms abort when the destination is known to be too small: before anything is accounted, as nothing is accessed. */
NP_WRAP(void *, __memcpy_chk, (void *to, const void *from, size_t bytes, size_t room)) {
    if (np_likely(bytes <= room)) {
        np_block_read(from, bytes);
        np_block_write(to, bytes);
    }
    return __real___memcpy_chk(to, from, bytes, room);
}

NP_WRAP(void *, __memmove_chk, (void *to, const void *from, size_t bytes, size_t room)) {
    if (np_likely(bytes <= room)) {
        np_block_read(from, bytes);
        np_block_write(to, bytes);
    }
    return __real___memmove_chk(to, from, bytes, room);
}

NP_WRAP(void *, __memset_chk, (void *to, int value, size_t bytes, size_t room)) {
    if (np_likely(bytes <= room)) np_block_write(to, bytes);
    return __real___memset_chk(to, value, bytes, room);
}

static inline NP_TEXT size_t np_compared(size_t bytes, bool equal) {
    return equal || bytes < 8 ? bytes : 8;
}

NP_WRAP(int, memcmp, (const void *left, const void *right, size_t bytes)) {
    int order = __real_memcmp(left, right, bytes);
    np_block_read(left, np_compared(bytes, order == 0));
    np_block_read(right, np_compared(bytes, order == 0));
    return order;
}

NP_WRAP(int, bcmp, (const void *left, const void *right, size_t bytes)) {
    int differ = __real_bcmp(left, right, bytes);
    np_block_read(left, np_compared(bytes, differ == 0));
    np_block_read(right, np_compared(bytes, differ == 0));
    return differ;
}

NP_WRAP(void *, memchr, (const void *block, int value, size_t bytes)) {
    void *found = __real_memchr(block, value, bytes);
    np_block_read(block, found == NULL ? bytes : (size_t)((char *)found - (const char *)block) + 1);
    return found;
}

NP_WRAP(size_t, strlen, (const char *text)) {
    size_t length = __real_strlen(text);
    np_block_read(text, length + 1);
    return length;
}

NP_WRAP(char *, strcpy, (char *to, const char *from)) {
    size_t bytes = __real_strlen(from) + 1;
    np_block_read(from, bytes);
    np_block_write(to, bytes);
    return __real_memcpy(to, from, bytes);
}

NP_WRAP(int, strcmp, (const char *left, const char *right)) {
    int order = __real_strcmp(left, right);
    size_t bytes = order == 0 ? __real_strlen(left) + 1 : 1;
    np_block_read(left, bytes);
    np_block_read(right, bytes);
    return order;
}

/* ---- clang's names ---- */

NP_ENTRY void *__tsan_memcpy(void *to, const void *from, size_t bytes) { return __wrap_memcpy(to, from, bytes); }
NP_ENTRY void *__tsan_memmove(void *to, const void *from, size_t bytes) { return __wrap_memmove(to, from, bytes); }
NP_ENTRY void *__tsan_memset(void *to, int value, size_t bytes) { return __wrap_memset(to, value, bytes); }
