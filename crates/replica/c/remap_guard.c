/* remap_guard.c: shared mappings that may be written, collapsed for all processes of the run by the first write.
 *
 * A guarded mapping is read-only while copies exist, whatever the program asked for. Who writes to it, or asks for the right to, collapses it first: makes a
 * mark that forbids new copies, then truncates every node's copy. Truncating takes the pages out of all processes before it returns: whoever reads the
 * copy from then on gets SIGBUS, puts its original mapping back, and reads what is written there. So no process reads an old copy once the write is under
 * way, which is what makes it linearizable, and no process has to be notified, waited for or alive.
 *
 * Whoever maps such a file without a copy (not pinned, no memory) is held to the same protection. Handlers of the program for SIGSEGV and SIGBUS are kept, told
 * to it when it asks, and called for all faults that are not ours. They are only taken over once something is guarded. The signals are never blocked, also not
 * while these handlers run, which may write to guarded memory. A SIGSEGV of the program's own where it had blocked that, as inside its handler, ends it all the
 * same, as the kernel would (remap_masks.c has the sign); a SIGBUS inside its handler for SIGBUS calls that again. */
#define _GNU_SOURCE
#include "remap.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { GUARDS_MAX = 256 };

static struct guard {
    struct mapping original; /* start 0: never used */
    void *anchor;            /* the original mapping, elsewhere, untouched; NULL: it is back in its place */
    char prefix[64];         /* of its copies' names */
} guards[GUARDS_MAX];
static int guards_high;
/* Where those in force are, for whoever does not have the lock: it is held while copies are made, and across forks. An end of 0: not in force. */
static uintptr_t guarded_starts[GUARDS_MAX], guarded_ends[GUARDS_MAX];
/* Where this thread was last let try again though nothing was mended. */
static __thread uintptr_t tried_again __attribute__((tls_model("initial-exec")));
/* Taken in handlers, too: no fault is in code that holds it, as that touches no guarded memory, and no other signal comes meanwhile. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static bool has_handlers;
static struct sigaction programs_own[2]; /* SIGSEGV, SIGBUS */

static struct {
    int (*sigaction)(int, const struct sigaction *, struct sigaction *);
    void (*(*signal)(int, void (*)(int)))(int);
    void (*(*sysv_signal)(int, void (*)(int)))(int);
    void (*(*sigset)(int, void (*)(int)))(int);
    int (*sigignore)(int);
} real;

void np_guard_find_all(void) {
    np_remap_find("sigaction", &real.sigaction);
    np_remap_find("signal", &real.signal);
    np_remap_find("__sysv_signal", &real.sysv_signal);
    np_remap_find("sigset", &real.sigset);
    np_remap_find("sigignore", &real.sigignore);
}

/* What the thread that has the lock had before. */
struct held {
    uint64_t signals;
    int cancelling;
};

static struct held lock(void) {
    uint64_t all = ~0ull;
    struct held held = {0};
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &held.signals, sizeof all);
    held.cancelling = np_remap_keep_thread();
    pthread_mutex_lock(&mutex);
    return held;
}

static void unlock(struct held held) {
    pthread_mutex_unlock(&mutex);
    np_remap_let_thread_end(held.cancelling);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &held.signals, NULL, sizeof held.signals);
}

static int (*real_sigaction(void))(int, const struct sigaction *, struct sigaction *) {
    if (!real.sigaction) np_guard_find_all();
    return real.sigaction;
}

static bool is_ours(int signal) { return signal == SIGSEGV || signal == SIGBUS; }
static struct sigaction *own_of(int signal) { return &programs_own[signal == SIGBUS]; }

/* ---- collapsing ---- */

bool np_guard_prefix(int file, char *prefix, size_t size) {
    struct stat status;
    if (fstat(file, &status) != 0) return false;
    snprintf(prefix, size, "shared-%lx-%lx-", (unsigned long)status.st_dev, (unsigned long)status.st_ino);
    return true;
}

static void marker_of(const char *prefix, char *name, size_t size) { snprintf(name, size, "collapsed-%s", prefix); }

static bool is_collapsed(const char *prefix) {
    char marker[80];
    marker_of(prefix, marker, sizeof marker);
    return np_remap_is_there(marker);
}

/* The list of the copies' names is all that takes a descriptor. A program may have opened as many files as it may, and stale copies are worse than a limit that
 * is a higher one for a moment. Under the lock: nobody else does this. */
static int open_folder(void) {
    int folder = np_remap_open(".", O_RDONLY | O_DIRECTORY, 0);
    struct rlimit limit;
    if (folder >= 0 || errno != EMFILE || getrlimit(RLIMIT_NOFILE, &limit) != 0) return folder;
    struct rlimit raised = {.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) != 0) return -1;
    folder = np_remap_open(".", O_RDONLY | O_DIRECTORY, 0);
    setrlimit(RLIMIT_NOFILE, &limit);
    return folder;
}

/* Under the lock. For all processes, all windows on the file, all nodes. Only system calls and formatting: this runs in handlers. */
static void collapse(const char *prefix) {
    struct entry { /* struct linux_dirent64 */
        uint64_t inode, offset;
        uint16_t length;
        uint8_t kind;
        char name[];
    };
    char marker_name[80];
    static char bytes[4096] __attribute__((aligned(8))); /* under the lock; handlers have small stacks */
    marker_of(prefix, marker_name, sizeof marker_name);
    np_remap_make(marker_name);
    int folder = open_folder();
    for (long got; folder >= 0 && (got = syscall(SYS_getdents64, folder, bytes, sizeof bytes)) > 0;) {
        for (long at = 0; at < got; at += ((struct entry *)(bytes + at))->length) {
            const char *name = ((struct entry *)(bytes + at))->name;
            if (!strncmp(name, prefix, strlen(prefix))) np_remap_empty(name);
        }
    }
    if (folder >= 0) close(folder);
}

/* Under the lock. Whoever reads meanwhile may take it for more than it is, and finds out under the lock. */
static void show_range(const struct guard *guard, uintptr_t start, uintptr_t end) {
    size_t at = (size_t)(guard - guards);
    __atomic_store_n(&guarded_ends[at], 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&guarded_starts[at], start, __ATOMIC_SEQ_CST);
    __atomic_store_n(&guarded_ends[at], end, __ATOMIC_SEQ_CST);
}

/* Without the lock: most calls are of other memory, and an allocator that unmaps under its own lock must not wait for a fork, which may wait for that. */
static bool may_be_guarded(uintptr_t start, size_t bytes) {
    int high = __atomic_load_n(&guards_high, __ATOMIC_ACQUIRE);
    for (int i = 0; i < high; i++) {
        uintptr_t end = __atomic_load_n(&guarded_ends[i], __ATOMIC_SEQ_CST);
        if (start < end && start + bytes > __atomic_load_n(&guarded_starts[i], __ATOMIC_SEQ_CST)) return true;
    }
    return false;
}

/* The original again, for this process. The entry stays, for threads whose faults are on their way. */
static bool restore(struct guard *guard) {
    const struct mapping *was = &guard->original;
    size_t bytes = was->end - was->start;
    if (!guard->anchor) return true;
    if (syscall(SYS_mremap, guard->anchor, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, was->start) == -1) return false;
    guard->anchor = NULL;
    show_range(guard, 0, 0);
    return true;
}

static bool overlaps(const struct guard *guard, uintptr_t start, size_t bytes) {
    return start < guard->original.end && start + bytes > guard->original.start;
}

/* One in force, or with `is_past` one that was. */
static struct guard *guard_at(uintptr_t start, size_t bytes, bool is_past) {
    for (int i = 0; i < guards_high; i++) {
        if ((guards[i].anchor == NULL) == is_past && overlaps(&guards[i], start, bytes)) return &guards[i];
    }
    return NULL;
}

static struct held held_for_fork;
void np_guard_lock(void) { held_for_fork = lock(); }
void np_guard_unlock(void) { unlock(held_for_fork); }

bool np_guard_has_any(void) { return may_be_guarded(0, SIZE_MAX); }

/* Before the program's first write: no process has a copy any more. True: the program has its mapping back. */
static bool give_back_to_writer(struct guard *guard) {
    collapse(guard->prefix);
    np_remap_log(&guard->original, -1, "collapsed", REASON_WRITTEN);
    return restore(guard);
}

void np_guard_release(uintptr_t start, size_t bytes, bool will_write) {
    if (!may_be_guarded(start, bytes)) return;
    int saved = errno;
    struct held held = lock();
    for (struct guard *guard; (guard = guard_at(start, bytes, false)) != NULL;) {
        /* What is left of a partly unmapped range may be written without our knowing. */
        if (will_write || (guard->original.protection & PROT_WRITE)) {
            collapse(guard->prefix);
            np_remap_log(&guard->original, -1, "collapsed", will_write ? REASON_MADE_WRITABLE : REASON_UNMAPPED);
        }
        if (!restore(guard)) break;
    }
    unlock(held);
    errno = saved;
}

void np_guard_fill(uintptr_t start, size_t bytes) {
    if (bytes == 0 || !may_be_guarded(start, bytes)) return;
    int saved = errno;
    struct held held = lock();
    for (int i = 0; i < guards_high; i++) {
        struct guard *guard = &guards[i];
        if (guard->anchor && overlaps(guard, start, bytes) && (guard->original.protection & PROT_WRITE)) give_back_to_writer(guard);
    }
    unlock(held);
    errno = saved;
}

/* ---- faults ---- */

/* True: the access may be tried again. */
static bool mend(int signal, const siginfo_t *info) {
    if (info->si_code <= 0) return false; /* sent by a process */
    uintptr_t address = (uintptr_t)info->si_addr;
    struct held held = lock();
    struct guard *guard = guard_at(address, 1, false);
    bool is_write_fault = signal == SIGSEGV && info->si_code == SEGV_ACCERR, is_mended = false;
    if (guard && is_write_fault && (guard->original.protection & PROT_WRITE)) {
        is_mended = give_back_to_writer(guard);
    } else if (guard && signal == SIGBUS && is_collapsed(guard->prefix)) {
        is_mended = restore(guard);
    } else if (!guard && guard_at(address, 1, true) && tried_again != address) {
        /* Another thread mended it while this one's signal was on its way. Once: a fault of the program's own comes again. */
        tried_again = address;
        is_mended = true;
    }
    unlock(held);
    return is_mended;
}

/* As the kernel would have done without us. */
static void pass_on(int signal, siginfo_t *info, void *context) {
    struct sigaction own = *own_of(signal);
    sigset_t *mask = &((ucontext_t *)context)->uc_sigmask; /* of the kernel's size: nothing but single signals may be touched */
    bool was_blocked = sigismember(mask, SIGN_OF_BLOCKED) == 1;
    bool is_blocked = was_blocked && signal == SIGSEGV && info->si_code > 0;
    if (own.sa_flags & SA_RESETHAND) own_of(signal)->sa_handler = SIG_DFL;
    if (is_blocked || own.sa_handler == SIG_DFL || (own.sa_handler == SIG_IGN && info->si_code > 0)) {
        /* The access is tried again and ends the process; what was sent is sent again. */
        struct sigaction fatal = {.sa_handler = SIG_DFL};
        real_sigaction()(signal, &fatal, NULL);
        if (info->si_code <= 0) syscall(SYS_tgkill, getpid(), gettid(), signal);
        return;
    }
    if (own.sa_handler == SIG_IGN) return;
    if (own.sa_flags & SA_SIGINFO) own.sa_sigaction(signal, info, context);
    else own.sa_handler(signal);
    /* The handler may have changed it. */
    if (was_blocked && sigismember(mask, SIGN_OF_BLOCKED) == 1) sigaddset(mask, SIGSEGV);
    np_masks_open(mask);
}

static void on_fault(int signal, siginfo_t *info, void *context) {
    int saved = errno;
    bool is_mended = mend(signal, info);
    errno = saved;
    if (!is_mended) pass_on(signal, info, context);
}

/* ---- the program's handlers ---- */

static int install(int signal) {
    const struct sigaction *own = own_of(signal);
    struct sigaction ours = {.sa_sigaction = on_fault, .sa_mask = own->sa_mask};
    ours.sa_flags = SA_SIGINFO | SA_NODEFER | (own->sa_flags & (SA_ONSTACK | SA_RESTART)); /* the program's handler may write to guarded memory */
    np_masks_open(&ours.sa_mask);
    if (signal == SIGSEGV && !(own->sa_flags & SA_NODEFER)) sigaddset(&ours.sa_mask, SIGN_OF_BLOCKED);
    return real_sigaction()(signal, &ours, NULL);
}

static void take_over(void) {
    if (has_handlers) return;
    has_handlers = true;
    for (int i = 0; i < 2; i++) {
        int signal = i ? SIGBUS : SIGSEGV;
        real_sigaction()(signal, NULL, own_of(signal));
        install(signal);
    }
}

/* For another signal. While its handler runs, what `sa_mask` says is blocked. */
static int act_on_other(int signal, const struct sigaction *wanted, struct sigaction *before) {
    if (!wanted || !np_masks_are_ours()) return real_sigaction()(signal, wanted, before);
    struct sigaction open = *wanted;
    np_masks_open(&open.sa_mask);
    return real_sigaction()(signal, &open, before);
}

EXPORT int sigaction(int signal, const struct sigaction *wanted, struct sigaction *before) {
    if (!is_ours(signal)) return act_on_other(signal, wanted, before);
    struct held held = lock();
    int result = 0;
    if (!has_handlers) {
        result = real_sigaction()(signal, wanted, before);
    } else {
        struct sigaction was = *own_of(signal);
        if (wanted) {
            *own_of(signal) = *wanted;
            result = install(signal);
        }
        if (before) *before = was;
    }
    unlock(held);
    return result;
}

EXPORT void (*signal(int number, void (*handler)(int)))(int) {
    if (!real.signal) np_guard_find_all();
    if (!is_ours(number)) return real.signal(number, handler); /* it knows what siginterrupt() asked for */
    struct sigaction wanted = {.sa_handler = handler, .sa_flags = SA_RESTART}, before;
    return sigaction(number, &wanted, &before) == 0 ? before.sa_handler : SIG_ERR;
}

/* Older names, by which the C library would put the program's handler in the place of ours. __sysv_signal() is what strict C (-std=c11) makes of signal(). */
EXPORT void (*bsd_signal(int number, void (*handler)(int)))(int) { return signal(number, handler); }
EXPORT void (*ssignal(int number, void (*handler)(int)))(int) { return signal(number, handler); }

static void (*handled_before(int number, void (*handler)(int), int flags))(int) {
    struct sigaction wanted = {.sa_handler = handler, .sa_flags = flags}, before;
    return sigaction(number, &wanted, &before) == 0 ? before.sa_handler : SIG_ERR;
}

EXPORT void (*__sysv_signal(int number, void (*handler)(int)))(int) {
    if (!real.sysv_signal) np_guard_find_all();
    bool is_kept = is_ours(number) && np_masks_are_ours();
    return is_kept ? handled_before(number, handler, (int)(SA_RESETHAND | SA_NODEFER)) : real.sysv_signal(number, handler);
}
EXPORT void (*sysv_signal(int number, void (*handler)(int)))(int) { return __sysv_signal(number, handler); }

EXPORT void (*sigset(int number, void (*handler)(int)))(int) {
    struct sigaction now;
    if (!real.sigset) np_guard_find_all();
    if (!is_ours(number) || !np_masks_are_ours()) return real.sigset(number, handler);
    if (handler == SIG_HOLD) return sigaction(number, NULL, &now) == 0 ? now.sa_handler : SIG_ERR; /* it stays open */
    if (number == SIGSEGV) np_masks_open_here();
    return handled_before(number, handler, 0);
}

EXPORT int sigignore(int number) {
    if (!real.sigignore) np_guard_find_all();
    if (!is_ours(number) || !np_masks_are_ours()) return real.sigignore(number);
    return handled_before(number, SIG_IGN, 0) == SIG_ERR ? -1 : 0;
}

/* ---- guarding ---- */

bool np_guard_applies(const struct mapping *mapping) {
    /* What numapilot itself shares with its programs is written from outside of them. */
    if (!strncmp(mapping->path, "/memfd:numapilot", 16)) return false;
    return mapping->is_shared && np_settings.shared && fnmatch(np_settings.shared, mapping->path, 0) == 0;
}

/* REASON_NONE: replaced. Else the original is there still, and why. */
static enum remap_reason put_copy(const char *prefix, const struct mapping *mapping, int file, int node) {
    enum remap_reason reason = REASON_NONE;
    if (is_collapsed(prefix)) return REASON_IS_COLLAPSED;
    if (node < 0) return REASON_NOT_PINNED;
    int copy = np_remap_copy(mapping, file, node, &reason);
    if (copy < 0) return reason;
    reason = np_remap_put(mapping, copy);
    close(copy);
    return reason;
}

static struct guard *free_guard(void) {
    int at = 0;
    while (at < guards_high && guards[at].anchor) at++;
    if (at == GUARDS_MAX) return NULL;
    if (at == guards_high) __atomic_store_n(&guards_high, at + 1, __ATOMIC_RELEASE);
    return &guards[at];
}

enum remap_reason np_guard_put(const struct mapping *mapping, int file, int node, enum remap_reason reason) {
    char prefix[64];
    if (!np_guard_prefix(file, prefix, sizeof prefix)) return REASON_FILE_GONE;
    size_t bytes = mapping->end - mapping->start;
    struct held held = lock();
    take_over();
    struct guard *guard = reason ? NULL : free_guard();
    void *anchor = guard ? np_remap_mmap(NULL, bytes, mapping->protection, MAP_SHARED, file, (off_t)mapping->offset) : MAP_FAILED;
    if (anchor == MAP_FAILED) {
        /* Not guarded, it may be written unseen: then no process may have a copy. */
        collapse(prefix);
        np_remap_log(mapping, -1, "collapsed", REASON_NOT_GUARDED);
        unlock(held);
        return reason ? reason : REASON_TOO_MANY_GUARDS;
    }
    *guard = (struct guard){.original = *mapping, .anchor = anchor};
    strcpy(guard->prefix, prefix);
    show_range(guard, mapping->start, mapping->end);
    reason = put_copy(prefix, mapping, file, node);
    if (reason) syscall(SYS_mprotect, mapping->start, bytes, mapping->protection & ~PROT_WRITE);
    /* Looked at last: a collapse that came too early to truncate our copy has left its mark before. */
    if (is_collapsed(prefix)) {
        restore(guard);
        reason = REASON_IS_COLLAPSED;
    }
    unlock(held);
    return reason;
}
