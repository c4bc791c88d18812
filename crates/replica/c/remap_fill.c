/* remap_fill.c: calls that have the kernel write to memory of the program: where that is guarded (remap_guard.c), and so read-only for a while, they would fail
 * with EFAULT. So what they may fill is collapsed first. More than they do fill may be named to them, and nothing may come: then a copy was lost for nothing.
 *
 * Not seen: bare system calls, what the kernel does later (io_uring, aio), and results of other calls, which are mostly small and on the stack. */
#define _GNU_SOURCE
#include "remap.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { PARTS_AT_ONCE = 16, PARTS_MAX = 1024 /* IOV_MAX */ };

static struct {
    ssize_t (*read)(int, void *, size_t);
    ssize_t (*pread)(int, void *, size_t, off_t);
    ssize_t (*readv)(int, const struct iovec *, int);
    ssize_t (*preadv)(int, const struct iovec *, int, off_t);
    ssize_t (*recv)(int, void *, size_t, int);
    ssize_t (*recvfrom)(int, void *, size_t, int, struct sockaddr *, socklen_t *);
    ssize_t (*recvmsg)(int, struct msghdr *, int);
    size_t (*fread)(void *, size_t, size_t, FILE *);
} real;

void np_fill_find_all(void) {
    np_remap_find("read", &real.read);
    np_remap_find("pread", &real.pread);
    np_remap_find("readv", &real.readv);
    np_remap_find("preadv", &real.preadv);
    np_remap_find("recv", &real.recv);
    np_remap_find("recvfrom", &real.recvfrom);
    np_remap_find("recvmsg", &real.recvmsg);
    np_remap_find("fread", &real.fread);
}

#define REAL(name) (real.name ? real.name : (np_fill_find_all(), real.name))

static void will_fill(const void *buffer, size_t bytes) {
    if (!np_remap_is_busy()) np_guard_fill((uintptr_t)buffer, bytes);
}

/* What the program points to, which nobody has found readable yet. Where the system refuses this, the call is left alone. */
static bool copy_of(void *to, const void *from, size_t bytes) {
    struct iovec target = {to, bytes}, source = {(void *)(uintptr_t)from, bytes};
    return syscall(SYS_process_vm_readv, getpid(), &target, 1ul, &source, 1ul, 0ul) == (long)bytes;
}

static void will_fill_parts(const struct iovec *parts, size_t count) {
    struct iovec copies[PARTS_AT_ONCE];
    if (!np_guard_has_any() || np_remap_is_busy() || count > PARTS_MAX) return;
    int saved = errno;
    for (size_t at = 0; at < count; at += PARTS_AT_ONCE) {
        size_t some = count - at < PARTS_AT_ONCE ? count - at : PARTS_AT_ONCE;
        if (!copy_of(copies, parts + at, some * sizeof *copies)) break;
        for (size_t i = 0; i < some; i++) will_fill(copies[i].iov_base, copies[i].iov_len);
    }
    errno = saved;
}

static void will_fill_message(const struct msghdr *message) {
    struct msghdr copy;
    if (!np_guard_has_any() || np_remap_is_busy()) return;
    int saved = errno;
    bool is_good = copy_of(&copy, message, sizeof copy);
    errno = saved;
    if (is_good) will_fill_parts(copy.msg_iov, copy.msg_iovlen);
}

EXPORT ssize_t read(int file, void *buffer, size_t bytes) {
    will_fill(buffer, bytes);
    return REAL(read)(file, buffer, bytes);
}

EXPORT ssize_t pread(int file, void *buffer, size_t bytes, off_t offset) {
    will_fill(buffer, bytes);
    return REAL(pread)(file, buffer, bytes, offset);
}

EXPORT ssize_t pread64(int file, void *buffer, size_t bytes, off_t offset) __attribute__((alias("pread")));

EXPORT ssize_t readv(int file, const struct iovec *parts, int count) {
    if (count > 0) will_fill_parts(parts, (size_t)count);
    return REAL(readv)(file, parts, count);
}

EXPORT ssize_t preadv(int file, const struct iovec *parts, int count, off_t offset) {
    if (count > 0) will_fill_parts(parts, (size_t)count);
    return REAL(preadv)(file, parts, count, offset);
}

EXPORT ssize_t preadv64(int file, const struct iovec *parts, int count, off_t offset) __attribute__((alias("preadv")));

EXPORT ssize_t recv(int file, void *buffer, size_t bytes, int flags) {
    will_fill(buffer, bytes);
    return REAL(recv)(file, buffer, bytes, flags);
}

EXPORT ssize_t recvfrom(int file, void *restrict buffer, size_t bytes, int flags, struct sockaddr *restrict from, socklen_t *restrict length) {
    will_fill(buffer, bytes);
    return REAL(recvfrom)(file, buffer, bytes, flags, from, length);
}

EXPORT ssize_t recvmsg(int file, struct msghdr *message, int flags) {
    will_fill_message(message);
    return REAL(recvmsg)(file, message, flags);
}

/* Of much at once, the C library has the kernel fill the program's memory. */
EXPORT size_t fread(void *restrict buffer, size_t size, size_t count, FILE *restrict stream) {
    size_t bytes;
    if (!__builtin_mul_overflow(size, count, &bytes)) will_fill(buffer, bytes);
    return REAL(fread)(buffer, size, count, stream);
}
