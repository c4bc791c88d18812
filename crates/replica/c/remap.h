/* remap.h: the parts of the preload library that gives a process node-local copies of the read-only mappings it has (docs/replication.md).
 *
 * Processes of one run that are pinned to the same node share that node's copies: files in a tmpfs folder, written once under a temporary name
 * and never changed. A mapping is replaced in one step, under the kernel's own lock: no thread sees a gap.
 *
 * Which mappings may be replaced (`np_remap_judge`): those whose content cannot differ from the copy's for anyone who keeps to POSIX.
 *   sections  MAP_PRIVATE, not writable, of a file that the process executes: code, constants
 *   private   MAP_PRIVATE, not writable, of any other regular file; only where the pattern names it
 *   sealed    MAP_SHARED, not writable, of a memfd sealed against writing
 *   guarded   MAP_SHARED, writable or not, of a file that the user's rule names: the user declares that it is only written through
 *             mappings of this run's programs; the first such write collapses all copies of all processes (remap_guard.c)
 * and none of them with pages that were changed in private, locked, watched by userfaultfd, or beyond the end of the file. */
#ifndef NUMAPILOT_REMAP_H
#define NUMAPILOT_REMAP_H

#include "remap_reasons.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HIDDEN __attribute__((visibility("hidden")))
#define REMAP_PATH_MAX 512

/* A mapping as the process has it. */
struct mapping {
    uintptr_t start, end;
    int protection;
    bool is_shared;
    uint64_t offset;
    ino_t inode;
    bool has_changed_pages; /* private copies that the process made by writing */
    bool is_special;        /* locked, device memory, left out of forks, ... */
    char path[REMAP_PATH_MAX];
};

/* Calls `visit` for each mapping of the process that has a file. False: /proc is not there. */
HIDDEN bool np_remap_each(void (*visit)(const struct mapping *mapping, void *context), void *context);

/* The mapping that [start, end) lies in, as far as /proc/self/maps tells, which is read far faster than the above. False: there is none, or no /proc. Under the
 * lock of who replaces. */
HIDDEN bool np_remap_around(uintptr_t start, uintptr_t end, struct mapping *mapping);

/* A file that is read line by line without allocating. */
struct line_reader {
    int file;
    size_t at, end;
    char bytes[4096];
};

/* The next line, without its newline, cut to `size`. False: the end. */
HIDDEN bool np_remap_next_line(struct line_reader *reader, char *line, size_t size);

/* What the user asked for. Read once from the environment. */
struct settings {
    const char *folder;  /* of the copies and of the log; NULL: the library does nothing */
    int node;            /* chosen by the user, or -1: where the process is pinned */
    size_t bytes_min;    /* smaller mappings are left */
    const char *pattern; /* of paths, or NULL: sections and sealed memfds */
    const char *shared;  /* of paths to be guarded, or NULL */
    bool by_order;       /* nothing is copied but what is ordered while the program runs (remap_orders.c) */
};
HIDDEN extern struct settings np_settings;

/* ---- remap_orders.c: another process decides, while the program runs ---- */

/* Reads what this process is to have, under the caller's lock. False: there are no orders yet. */
HIDDEN bool np_orders_read(void);

/* The node whose copy a mapping is to show, or -1: none. */
HIDDEN int np_orders_node(const struct mapping *mapping);

/* Starts the thread that waits for orders; in the child of a fork, again. */
HIDDEN void np_orders_watch(void);

/* The node that all CPUs of the process belong to, or -1. */
HIDDEN int np_remap_pinned_node(void);

/* Whether a mapping is of a kind that is replaced at all; its file need not be opened for that. `is_program`: its file is executed. */
HIDDEN bool np_remap_is_candidate(const struct mapping *mapping, bool is_program);

/* REASON_NONE: the candidate may be replaced. Else why not. `file` is open on its file, or -1. */
HIDDEN enum remap_reason np_remap_judge(const struct mapping *mapping, int file);

/* An open, read-only file with the mapping's content in the node's memory; -1 and a reason. */
HIDDEN int np_remap_copy(const struct mapping *mapping, int file, int node, enum remap_reason *reason);

/* Puts the copy in the mapping's place. REASON_NONE, or why not. */
HIDDEN enum remap_reason np_remap_put(const struct mapping *mapping, int copy);

/* Puts the mapping's own file in the place of its copy again. REASON_NONE, or why not. */
HIDDEN enum remap_reason np_remap_give_back(const struct mapping *mapping);

/* Puts a new mapping in the place of the one that is at work, or unmaps it where that is no longer what it was. REASON_NONE, or why not. */
HIDDEN enum remap_reason np_remap_exchange(void *fresh, size_t bytes, uintptr_t start);

/* A file in the folder, opened anew each time: programs close files that they do not know, and then use their numbers. */
HIDDEN int np_remap_open(const char *name, int flags, unsigned mode);

/* Without a descriptor, for a process that may have no more of them: whether there is such a file; an empty one, if there is none; its content gone, if there
 * is one. */
HIDDEN bool np_remap_is_there(const char *name);
HIDDEN void np_remap_make(const char *name);
HIDDEN void np_remap_empty(const char *name);

/* Whether a file may have so many bytes. Past this limit (`ulimit -f`) a write is no mere error, but a signal that ends the program. */
HIDDEN bool np_remap_may_grow(uint64_t bytes);

/* A thread that another one has cancelled (pthread_cancel) ends where it next opens, reads or writes a file. Not where we do so: inside a call that is no such
 * place, with our locks held. */
static inline int np_remap_keep_thread(void) {
    int before = PTHREAD_CANCEL_ENABLE;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static inline void np_remap_let_thread_end(int before) { pthread_setcancelstate(before, &before); }

/* ---- remap_guard.c: mappings that may be written ---- */

HIDDEN bool np_guard_applies(const struct mapping *mapping);

/* What the names of all copies of a guarded file begin with. False: its file is gone. */
HIDDEN bool np_guard_prefix(int file, char *name, size_t size);

/* Replaces a mapping that the user's rule names; without a node (-1) or a copy it only protects it. `reason`: why it may not even be tried, then all
 * processes' copies of the file are collapsed. REASON_NONE, or why there is no copy. */
HIDDEN enum remap_reason np_guard_put(const struct mapping *mapping, int file, int node, enum remap_reason reason);

/* Before the program changes [start, start + bytes) itself: takes guarded mappings there back to what they were. `will_write`: collapses them for all. */
HIDDEN void np_guard_release(uintptr_t start, size_t bytes, bool will_write);

/* Whether something is guarded here. */
HIDDEN bool np_guard_has_any(void);

/* Before the kernel fills [start, start + bytes) for the program: a store there would be a fault that is mended, this is an error (EFAULT). */
HIDDEN void np_guard_fill(uintptr_t start, size_t bytes);

/* Held across a fork. */
HIDDEN void np_guard_lock(void);
HIDDEN void np_guard_unlock(void);

/* ---- remap_masks.c: the signals of faults stay open ---- */

/* At the start, once the settings are read: this thread's are open from then on. */
HIDDEN void np_masks_begin(void);

/* Whether something may be guarded: else masks are the program's own affair. */
HIDDEN bool np_masks_are_ours(void);

/* Blocked where the program has blocked SIGSEGV, which stays open. */
enum { SIGN_OF_BLOCKED = SIGSTKFLT };

/* Takes the signals of faults out, and puts the sign in for SIGSEGV. */
HIDDEN void np_masks_open(sigset_t *mask);

/* The same of this thread's mask, without the sign. */
HIDDEN void np_masks_open_here(void);

/* Finds all that remap_masks.c stands before. */
HIDDEN void np_masks_find_all(void);

/* ---- remap_fill.c: calls that fill memory ---- */

/* Finds all that remap_fill.c stands before. */
HIDDEN void np_fill_find_all(void);

/* One line to the log: pid, node, "replaced", "left", "collapsed" or "given-back", bytes, the address, the reason's word (remap_reasons.h), the path. */
HIDDEN void np_remap_log(const struct mapping *mapping, int node, const char *action, enum remap_reason reason);

/* The next function of this name: the C library's, or that of another library that stands before it. */
HIDDEN void np_remap_find(const char *name, void *pointer_to_function);

/* Finds all that remap_guard.c stands before. */
HIDDEN void np_guard_find_all(void);

/* Whether this thread is at work for us: its calls are our own. */
HIDDEN bool np_remap_is_busy(void);

/* The C library's own, not the hook. */
HIDDEN void *np_remap_mmap(void *start, size_t bytes, int protection, int flags, int file, off_t offset);

/* numapilot_remap_now(), by another name for our own. */
HIDDEN void np_remap_obey(void);

#endif
