/* userfault.c: pages that the program provides itself (userfaultfd), to threads that wait for them or before any does: collectors of garbage, checkpoints,
 * virtual machines that move. The kernel takes such a page for the thread that provides it, by that thread's node and policy, and has no event of it.
 *
 * What is provided through a descriptor of another process' memory, which a fork or a socket may have brought, is not this process'. */
#define _GNU_SOURCE
#include "memsim.h"
#include "syscalls.h"
#include "track.h"

#include <linux/userfaultfd.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

/* What UFFDIO_COPY and UFFDIO_MOVE have in common, and UFFDIO_ZEROPAGE. `done`: bytes, or an error. */
struct provision { uint64_t to, from, bytes, mode; int64_t done; };
struct zeroes { uint64_t to, bytes, mode; int64_t done; };
_Static_assert(sizeof(struct provision) == sizeof(struct uffdio_copy) && sizeof(struct zeroes) == sizeof(struct uffdio_zeropage), "the kernel's");
#define MOVE _IOWR(UFFDIO, 5, struct provision)   /* UFFDIO_MOVE, from Linux 6.8 on */
#define NEW_DESCRIPTOR _IO(0xAA, 0)               /* USERFAULTFD_IOC_NEW, from Linux 6.1 on */

/* Descriptors of this process' own memory: its index, and the descriptor and 1. In a child they are nobody's. */
#define OWN_MAX 64u
static uint64_t own[OWN_MAX];

static uint64_t own_entry(int fd) { return (uint64_t)np_process_index << 32 | ((uint32_t)fd + 1); }

static void remember(int fd) {
    for (unsigned i = 0; fd >= 0 && i < OWN_MAX; i++) {
        uint64_t seen = np_load(own[i]);
        bool is_free = seen == 0 || seen >> 32 != np_process_index || seen == own_entry(fd);
        if (is_free && __atomic_compare_exchange_n(&own[i], &seen, own_entry(fd), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return;
    }
}

static bool is_own(int fd) {
    for (unsigned i = 0; i < OWN_MAX; i++)
        if (np_load(own[i]) == own_entry(fd)) return true;
    return false;
}

/* The kernel has found it readable where the call succeeded. */
static bool copy_of(void *to, const void *argument, size_t bytes, bool is_good) {
    if (is_good) {
        memcpy(to, argument, bytes);
        return true;
    }
    struct iovec target = {to, bytes}, source = {(void *)(uintptr_t)argument, bytes};
    return !np_is_confined && NP_SYS6(SYS_process_vm_readv, NP_SYS0(SYS_getpid), &target, 1, &source, 1, 0) == (long)bytes;
}

static void zeroed(struct np_slot *slot, const void *argument, bool is_good) {
    struct zeroes call;
    if (!copy_of(&call, argument, sizeof call, is_good) || call.done <= 0) return;
    /* Private memory gets the kernel's own page of zeroes, until it is written. */
    if (np_mapping_kind(slot, call.to) != NP_KIND_FRESH) np_pages_provided(slot, call.to, (size_t)call.done);
}

static void provided(struct np_slot *slot, bool moves, const void *argument, bool is_good) {
    struct provision call;
    if (!copy_of(&call, argument, sizeof call, is_good) || call.done <= 0) return;
    if (moves) np_pages_remap(call.from, call.to, (size_t)call.done, true);
    else np_pages_provided(slot, call.to, (size_t)call.done);
}

/* Where it failed with EAGAIN, it has done a part. */
static NP_COLD void after_request(int fd, unsigned long request, const void *argument, int result) {
    int saved = errno;
    bool has_done = result == 0 || saved == EAGAIN;
    struct np_slot *slot = has_done && np_load(np_arena) != NULL && np_load(np_sim.ready) && is_own(fd) ? np_self() : NULL;
    if (slot == NULL || !np_enter(slot)) return;
    if (request == UFFDIO_ZEROPAGE) zeroed(slot, argument, result == 0);
    else provided(slot, request == MOVE, argument, result == 0);
    np_leave(slot);
    errno = saved;
}

static int after_ioctl(int fd, unsigned long request, const void *argument, int result) {
    if (np_unlikely(request == UFFDIO_COPY || request == UFFDIO_ZEROPAGE || request == MOVE)) after_request(fd, request, argument, result);
    else if (np_unlikely(request == NEW_DESCRIPTOR)) remember(result);
    return result;
}

NP_EXPORT int ioctl(int fd, unsigned long request, ...) {
    va_list rest;
    va_start(rest, request);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    return after_ioctl(fd, request, argument, NP_REAL(ioctl)(fd, request, argument));
}

NP_HIDDEN long np_syscall_userfault(long number, long a, long b, long c, long d, long e, long f) {
    long result = np_syscall_real(number, a, b, c, d, e, f);
    if (number == SYS_ioctl) after_ioctl((int)a, (unsigned long)b, (const void *)c, (int)result);
    else remember((int)result);
    return result; /* of some requests it is more than an int */
}
