/* emulator_signal.c: handlers of an emulated program get the stack that they were promised.
 *
 * QEMU (at least up to 7.2) enters a signal handler with a stack that is 8 bytes off the 16-byte alignment of the calling convention, and faults
 * where the handler then uses an aligned vector move, as compilers and the C library do. So handlers are installed behind an entry that aligns the
 * stack. Programs see their own handlers when they ask. Handlers installed by other means than sigaction and signal are left as they are. */
#define _GNU_SOURCE
#include "track.h"

#include <signal.h>

NP_HIDDEN sighandler_t np_signal_handlers[65];
/* Whatever the handler takes (a number, or three arguments) is passed on in its registers. */
NP_HIDDEN void np_signal_entry(int number);

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl np_signal_entry\n.hidden np_signal_entry\n.type np_signal_entry, @function\n"
        "np_signal_entry:\n"
        ".cfi_startproc\n"
        "  pushq %rbp\n"
        ".cfi_def_cfa_offset 16\n"
        ".cfi_offset %rbp, -16\n"
        "  movq %rsp, %rbp\n"
        ".cfi_def_cfa_register %rbp\n"
        "  andq $-16, %rsp\n"
        "  movslq %edi, %rax\n"
        "  leaq np_signal_handlers(%rip), %rcx\n"
        "  call *(%rcx,%rax,8)\n"
        "  leave\n"
        ".cfi_def_cfa %rsp, 8\n"
        "  ret\n"
        ".cfi_endproc\n"
        ".size np_signal_entry, .-np_signal_entry\n");
#else
void np_signal_entry(int number) { np_signal_handlers[number](number); } /* never installed: programs are emulated on x86-64 only */
#endif

static bool applies(int number) {
    return np_load(np_arena) != NULL && np_arena->emulated && number >= 1 && number <= 64;
}

static bool is_handler(sighandler_t handler) {
    return handler != SIG_DFL && handler != SIG_IGN && handler != SIG_ERR && handler != np_signal_entry;
}

NP_EXPORT int sigaction(int number, const struct sigaction *restrict wanted, struct sigaction *restrict old) {
    if (!applies(number)) return NP_REAL(sigaction)(number, wanted, old);
    sighandler_t before = np_signal_handlers[number];
    struct sigaction behind;
    if (wanted != NULL && is_handler(wanted->sa_handler)) {
        behind = *wanted;
        behind.sa_handler = np_signal_entry;
        np_signal_handlers[number] = wanted->sa_handler; /* first: the signal may come at once */
        wanted = &behind;
    }
    int result = NP_REAL(sigaction)(number, wanted, old);
    if (result != 0) np_signal_handlers[number] = before;
    else if (old != NULL && old->sa_handler == np_signal_entry) old->sa_handler = before;
    return result;
}

NP_EXPORT sighandler_t signal(int number, sighandler_t wanted) {
    if (!applies(number)) return NP_REAL(signal)(number, wanted);
    sighandler_t before = np_signal_handlers[number];
    bool behind = is_handler(wanted);
    if (behind) np_signal_handlers[number] = wanted;
    sighandler_t result = NP_REAL(signal)(number, behind ? np_signal_entry : wanted);
    if (result == SIG_ERR) np_signal_handlers[number] = before;
    return result == np_signal_entry ? before : result;
}
