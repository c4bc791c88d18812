/* fills.h: the part of homes.c that has the kernel fill memory by rarer calls than read(); included there, where the blocks come from. */
#include <sys/msg.h>
#include <sys/random.h>

extern ssize_t __pread_chk(int fd, void *buffer, size_t bytes, off_t offset, size_t room); /* pread, where it is checked (_FORTIFY_SOURCE) */

static void must(ssize_t bytes, size_t wanted) {
    if (bytes != (ssize_t)wanted) exit(7);
}

static void filled_by_rarer_calls(int file) {
    struct note { long type; char text[2 * PAGE - sizeof(long)]; } note = {.type = 1};
    char *flagged = half_touched(), *checked = half_touched(), *random = half_touched(), *two[3];
    struct iovec each[2] = {{flagged, BIG / 4}, {flagged + BIG / 4, 3 * BIG / 4}};
    must(preadv2(file, each, 2, 0, 0), BIG);
    must(__pread_chk(file, checked, BIG, 0, BIG), BIG);
    must(getrandom(random, BIG, 0), BIG);
    for (int i = 0; i < 3; i++) two[i] = half_touched() + BIG / 2 - PAGE; /* the second of these pages is untouched */
    int pipes[2], ends[2], queue = msgget(IPC_PRIVATE, 0600);
    struct iovec spliced = {two[0], 2 * PAGE}, parts[2] = {{two[1], PAGE}, {two[1] + PAGE, PAGE}};
    struct mmsghdr messages[2] = {{.msg_hdr = {.msg_iov = parts, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = parts + 1, .msg_iovlen = 1}}};
    if (pipe(pipes) != 0 || socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) != 0 || msgsnd(queue, &note, sizeof note.text, 0) != 0) exit(7);
    must(write(pipes[1], flagged, 2 * PAGE), 2 * PAGE);
    must(vmsplice(pipes[0], &spliced, 1, 0), 2 * PAGE);
    for (int i = 0; i < 2; i++) must(write(ends[0], flagged, PAGE), PAGE);
    must(recvmmsg(ends[1], messages, 2, 0, NULL), 2);
    must(msgrcv(queue, two[2], sizeof note.text, 0, 0), sizeof note.text);
    msgctl(queue, IPC_RMID, NULL);
    const char *const keys[] = {"flagged", "checked", "random", "spliced", "received", "queued"};
    char *const blocks[] = {flagged, checked, random, two[0], two[1], two[2]};
    for (int i = 0; i < 6; i++) print_homes(keys[i], blocks[i], i < 3 ? BIG : 2 * PAGE);
}
