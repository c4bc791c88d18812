/* arm_chain.c: walks of unwind.c on 64-bit Arm without unwinding data, by frames' records alone: from a function of the first thread, and of another.
 * Prints "THREAD FRAMES FLAGS" for each: the frames of the program itself are three and two, those of its C library come on top.
 */
#define _GNU_SOURCE
#include "track.h"

#include <pthread.h>
#include <stdio.h>

struct np_own np_own;
static struct np_slot slot;
static struct np_memo memo;
static uintptr_t frames[128];

const void *np_module_eh_frame(struct np_slot *of, uintptr_t pc) {
    (void)of, (void)pc;
    return NULL;
}

/* The caller's registers: its return address and frame pointer stand in this function's record. */
static __attribute__((noinline)) void check(const char *thread) {
    pthread_attr_t attr;
    void *low;
    size_t bytes;
    uint32_t flags;
    uint64_t hash;
    const uintptr_t *record = __builtin_frame_address(0);
    if (pthread_getattr_np(pthread_self(), &attr) != 0 || pthread_attr_getstack(&attr, &low, &bytes) != 0) return;
    slot.stack_lo = (uintptr_t)low;
    slot.stack_hi = (uintptr_t)low + bytes;
    memo.regs = (struct np_regs){.pc = record[1], .sp = (uintptr_t)(record + 2), .fp = record[0]};
    unsigned count = np_unwind(&slot, &memo, frames, 128, &flags, &hash);
    printf("%s %u %u\n", thread, count, flags);
}

static __attribute__((noinline)) void *inner(void *thread) {
    check(thread);
    return thread;
}

int main(void) {
    pthread_t thread;
    inner("first");
    if (pthread_create(&thread, NULL, inner, "other") != 0) return 1;
    return pthread_join(thread, NULL);
}
