/* filled.c: buffers that the kernel has just filled for the emulated program: the calling thread is the first toucher of their untouched pages.
 *
 * The tracker's hooks report calls that the program makes by name; here are those that libraries make inside (fread, getline, iostreams). Not followed: calls
 * that fill memory later (io_uring, which QEMU's user mode lacks, and aio). */
#define _GNU_SOURCE
#include "user.h"
#include "memsim.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define PARTS_MAX 64u

/* What the call under way was asked for. */
static _Thread_local struct {
    int64_t number;
    uint64_t address, count;
} call __attribute__((tls_model("initial-exec")));

void np_kernel_asked(int64_t number, uint64_t address, uint64_t count) {
    call.number = number;
    call.address = address;
    call.count = count;
}

static void fill_parts(uint64_t parts, uint64_t count, uint64_t bytes) {
    struct iovec part[PARTS_MAX];
    if (count > PARTS_MAX) count = PARTS_MAX;
    if (!np_read_guest(part, parts, count * sizeof *part)) return;
    for (uint64_t i = 0; i < count && bytes > 0; i++) {
        uint64_t filled = part[i].iov_len < bytes ? part[i].iov_len : bytes;
        np_pages_touched(np_guest.slot, (uintptr_t)part[i].iov_base, filled);
        bytes -= filled;
    }
}

void np_kernel_filled(int64_t number, int64_t result) {
    struct np_slot *slot = np_guest.slot;
    struct msghdr message;
    if (result <= 0 || number != call.number || slot->in_hook) return;
    slot->in_hook = 1;
    switch (number) {
    case SYS_read:
    case SYS_pread64:
    case SYS_recvfrom:
    case SYS_getdents64: np_pages_touched(slot, call.address, (uint64_t)result); break;
    case SYS_readv:
    case SYS_preadv:
    case SYS_preadv2: fill_parts(call.address, call.count, (uint64_t)result); break;
    case SYS_recvmsg:
        if (np_read_guest(&message, call.address, sizeof message)) fill_parts((uint64_t)message.msg_iov, message.msg_iovlen, (uint64_t)result);
        break;
    default: break;
    }
    slot->in_hook = 0;
    call.number = -1;
}
