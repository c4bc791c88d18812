/* filled.c: buffers that the kernel fills for the emulated program: the calling thread is the first toucher of their untouched pages.
 *
 * The tracker's hooks report calls that the program makes by name; here are those that libraries make inside (fread, getline, iostreams). Before the call,
 * pages that are there without a home are asked for; after it, what was filled is the caller's. Not followed: calls that fill memory later (io_uring, which
 * QEMU's user mode lacks, and aio). */
#define _GNU_SOURCE
#include "user.h"
#include "memsim.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define PARTS_MAX 64u
#define MESSAGES_MAX 64u
#define WHOLE UINT64_MAX

typedef void (*take)(struct np_slot *slot, uintptr_t address, size_t bytes);

/* What the call under way was asked for. */
static _Thread_local struct {
    int64_t number;
    uint64_t first, second, third;
} call __attribute__((tls_model("initial-exec")));

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static void take_parts(take take, uint64_t parts, uint64_t count, uint64_t bytes) {
    struct iovec part[PARTS_MAX];
    count = least(count, PARTS_MAX);
    if (!np_read_guest(part, parts, count * sizeof *part)) return;
    for (uint64_t i = 0; i < count && bytes > 0; i++) {
        uint64_t filled = least(part[i].iov_len, bytes);
        take(np_guest.slot, (uintptr_t)part[i].iov_base, filled);
        bytes -= filled;
    }
}

static void take_message(take take, const struct msghdr *message, uint64_t bytes) {
    take_parts(take, (uint64_t)message->msg_iov, message->msg_iovlen, bytes);
}

/* `count`: messages that came in, with their lengths; WHOLE: none has yet. */
static void take_messages(take take, uint64_t count) {
    for (uint64_t i = 0; i < least(least(count, call.third), MESSAGES_MAX); i++) {
        struct mmsghdr message;
        if (!np_read_guest(&message, call.second + i * sizeof message, sizeof message)) return;
        take_message(take, &message.msg_hdr, count == WHOLE ? WHOLE : message.msg_len);
    }
}

/* The buffers of the call, as far as the first `filled` bytes (or messages) go. */
static void take_buffers(take take, uint64_t filled) {
    struct np_slot *slot = np_guest.slot;
    struct msghdr message;
    switch (call.number) {
    case SYS_read:
    case SYS_pread64:
    case SYS_recvfrom:
    case SYS_getdents64: take(slot, call.second, least(filled, call.third)); break;
    case SYS_getrandom: take(slot, call.first, least(filled, call.second)); break;
    case SYS_msgrcv: take(slot, call.second, sizeof(long) + least(filled, call.third)); break;
    case SYS_readv:
    case SYS_preadv:
    case SYS_preadv2: take_parts(take, call.second, call.third, filled); break;
    case SYS_recvmsg:
        if (np_read_guest(&message, call.second, sizeof message)) take_message(take, &message, filled);
        break;
    case SYS_recvmmsg: take_messages(take, filled); break;
    default: break;
    }
}

void np_kernel_asked(int64_t number, uint64_t first, uint64_t second, uint64_t third) {
    struct np_slot *slot = np_guest.slot;
    call.number = number;
    call.first = first;
    call.second = second;
    call.third = third;
    if (slot->in_hook || !np_pages_are_contested()) return;
    slot->in_hook = 1;
    take_buffers(np_pages_to_fill, WHOLE);
    slot->in_hook = 0;
}

void np_kernel_filled(int64_t number, int64_t result) {
    struct np_slot *slot = np_guest.slot;
    if (result < 0 || number != call.number || slot->in_hook || (result == 0 && number != SYS_msgrcv)) return;
    slot->in_hook = 1;
    take_buffers(np_pages_touched, (uint64_t)result);
    slot->in_hook = 0;
    call.number = -1;
}
