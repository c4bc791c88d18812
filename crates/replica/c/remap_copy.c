/* remap_copy.c: decides whether a mapping may be replaced and by which copy, and replaces it. */
#define _GNU_SOURCE
#include "nodes.h"
#include "remap.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- may it be replaced ---- */

/* While it runs, only data is copied: code lies in caches, and profilers know it by its file. */
static bool is_named(const struct mapping *mapping) {
    if (np_settings.by_order) return !mapping->is_shared && !(mapping->protection & PROT_EXEC) && np_orders_node(mapping) >= 0;
    return np_settings.pattern && fnmatch(np_settings.pattern, mapping->path, 0) == 0;
}

bool np_remap_is_candidate(const struct mapping *mapping, bool is_program) {
    if (np_guard_applies(mapping)) return true;
    if (!strncmp(mapping->path, "/memfd:numapilot", 16)) return false;
    if (!(mapping->protection & PROT_READ) || (mapping->protection & PROT_WRITE)) return false;
    if (mapping->end - mapping->start < np_settings.bytes_min) return false;
    return np_settings.pattern || np_settings.by_order ? is_named(mapping) : is_program || mapping->is_shared;
}

enum remap_reason np_remap_judge(const struct mapping *mapping, int file) {
    if (!(mapping->protection & PROT_READ)) return REASON_UNREADABLE;
    if (mapping->is_special) return REASON_SPECIAL;
    if (mapping->has_changed_pages) return REASON_CHANGED_PAGES;
    struct stat status;
    if (file < 0 || fstat(file, &status) != 0) return REASON_FILE_NOT_OPENED;
    if (!S_ISREG(status.st_mode)) return REASON_NOT_REGULAR;
    /* The kernel shows memory files and some file systems under another device than stat(): the number of the file must do there. */
    if (status.st_ino != mapping->inode) return REASON_OTHER_FILE;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), file_end = ((uint64_t)status.st_size + page - 1) / page * page;
    if (mapping->offset + (mapping->end - mapping->start) > file_end) return REASON_BEYOND_END;
    if (!mapping->is_shared || np_guard_applies(mapping)) return REASON_NONE;
    int seals = fcntl(file, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_WRITE) || !(seals & F_SEAL_SHRINK)) return REASON_NOT_SEALED;
    return REASON_NONE;
}

/* ---- the copy ---- */

/* From the file, not from the mapping, where a truncation meanwhile would be a signal. */
static bool fill(char *to, size_t bytes, int file, uint64_t offset) {
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(file, to + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return false;
        if (got == 0) return bytes - done < (size_t)sysconf(_SC_PAGESIZE); /* the rest of the last page: zero, as mapped files have it */
        done += (size_t)got;
    }
    return true;
}

/* Writes the content into `made`, in the node's memory. REASON_NONE, or why not. */
static enum remap_reason write_copy(int made, const struct mapping *mapping, int file, int node) {
    size_t bytes = mapping->end - mapping->start;
    if (!np_remap_may_grow(bytes) || ftruncate(made, (off_t)bytes) != 0) return REASON_FILE_TOO_LARGE;
    char *content = np_remap_mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, made, 0);
    if (content == MAP_FAILED) return REASON_NO_ADDRESSES;
    enum remap_reason reason = REASON_NONE;
    /* On shared memory the policy is the file's: it places what fallocate() makes. Without that, a full file system would be a signal. */
    if (npr_nodes()->count > 1 && !npr_prefer(content, bytes, node)) reason = REASON_NODE_REFUSED;
    else if (fallocate(made, 0, 0, (off_t)bytes) != 0) reason = REASON_NO_MEMORY;
    else if (!fill(content, bytes, file, mapping->offset)) reason = REASON_FILE_UNREADABLE;
    else if (npr_nodes()->count > 1 && npr_misplaced(content, bytes, node) > 0) reason = REASON_NODE_FULL;
    munmap(content, bytes);
    return reason;
}

static bool is_unchanged(const struct stat *before, int file) {
    struct stat now;
    return fstat(file, &now) == 0 && now.st_size == before->st_size && now.st_mtim.tv_sec == before->st_mtim.tv_sec &&
           now.st_mtim.tv_nsec == before->st_mtim.tv_nsec;
}

static bool path_of(const char *name, char *path, size_t size) { return (size_t)snprintf(path, size, "%s/%s", np_settings.folder, name) < size; }

/* Not on the stack: handlers come here, and the stacks that programs give them are small. */
static __thread char path_in_folder[REMAP_PATH_MAX] __attribute__((tls_model("initial-exec")));
static bool find_path(const char *name) { return path_of(name, path_in_folder, sizeof path_in_folder); }

/* Never 0 to 2, which a program may have closed: what its other threads write to its standard output meanwhile would be in the copy. */
static int above_standard(int file) {
    if (file < 0 || file > STDERR_FILENO) return file;
    int above = fcntl(file, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(file);
    return above;
}

int np_remap_open(const char *name, int flags, unsigned mode) {
    return find_path(name) ? above_standard(open(path_in_folder, flags | O_CLOEXEC | O_NOFOLLOW, mode)) : -1;
}

bool np_remap_is_there(const char *name) {
    struct stat status;
    return find_path(name) && lstat(path_in_folder, &status) == 0;
}

void np_remap_make(const char *name) {
    if (!find_path(name) || mknod(path_in_folder, S_IFREG | 0600, 0) == 0 || errno == EEXIST) return;
    int file = np_remap_open(name, O_WRONLY | O_CREAT, 0600); /* where a sandbox knows of no regular file made so */
    if (file >= 0) close(file);
}

void np_remap_empty(const char *name) {
    if (!find_path(name)) return;
    while (truncate(path_in_folder, 0) != 0 && errno == EINTR) {}
}

bool np_remap_may_grow(uint64_t bytes) {
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur;
}

/* The same name in all processes for the same content. */
static bool name_of(const struct mapping *mapping, int file, int node, char *name, size_t size) {
    struct stat status;
    if (fstat(file, &status) != 0) return false;
    char prefix[64];
    snprintf(prefix, sizeof prefix, "%lx-%lx-", (unsigned long)status.st_dev, (unsigned long)status.st_ino);
    if (np_guard_applies(mapping) && !np_guard_prefix(file, prefix, sizeof prefix)) return false;
    /* With the time of its last change: numbers of files that were deleted come again. */
    snprintf(name, size, "%s%lx.%09lx-%lx-%lx-%zx.node%d", prefix, (unsigned long)status.st_mtim.tv_sec, (unsigned long)status.st_mtim.tv_nsec,
             (unsigned long)status.st_size, (unsigned long)mapping->offset, (size_t)(mapping->end - mapping->start), node);
    return true;
}

int np_remap_copy(const struct mapping *mapping, int file, int node, enum remap_reason *reason) {
    struct stat status;
    char name[200], temporary[240], path[REMAP_PATH_MAX], temporary_path[REMAP_PATH_MAX];
    *reason = REASON_FILE_UNREADABLE;
    if (fstat(file, &status) != 0 || !name_of(mapping, file, node, name, sizeof name)) return -1;
    int copy = np_remap_open(name, O_RDONLY, 0);
    if (copy >= 0) return copy;
    snprintf(temporary, sizeof temporary, ".%s.%d", name, (int)gettid());
    *reason = REASON_FOLDER_UNWRITABLE;
    int made = np_remap_open(temporary, O_RDWR | O_CREAT | O_EXCL, 0700);
    if (made < 0 || !path_of(name, path, sizeof path) || !path_of(temporary, temporary_path, sizeof temporary_path)) return -1;
    *reason = write_copy(made, mapping, file, node);
    if (!*reason && !np_guard_applies(mapping) && !is_unchanged(&status, file)) *reason = REASON_FILE_CHANGED;
    close(made);
    if (!*reason) {
        /* Another process may have been faster: its copy is as good. */
        if (link(temporary_path, path) != 0 && errno != EEXIST) *reason = REASON_FOLDER_UNWRITABLE;
        copy = np_remap_open(name, O_RDONLY, 0);
        if (copy < 0) *reason = REASON_FOLDER_UNWRITABLE;
    }
    unlink(temporary_path);
    return copy;
}

/* ---- the replacement ---- */

enum remap_reason np_remap_put(const struct mapping *mapping, int copy) {
    size_t bytes = mapping->end - mapping->start;
    struct stat status;
    if (fstat(copy, &status) != 0 || (size_t)status.st_size != bytes) return REASON_COPY_INCOMPLETE;
    int flags = (mapping->is_shared ? MAP_SHARED : MAP_PRIVATE) | MAP_POPULATE;
    /* A guarded mapping gets its right to write back with its original. */
    void *fresh = np_remap_mmap(NULL, bytes, mapping->protection & ~PROT_WRITE, flags, copy, 0);
    if (fresh == MAP_FAILED) return errno == EPERM ? REASON_FOLDER_NOEXEC : REASON_NO_ADDRESSES;
    return np_remap_exchange(fresh, bytes, mapping->start);
}

enum remap_reason np_remap_give_back(const struct mapping *mapping) {
    size_t bytes = mapping->end - mapping->start;
    struct stat status;
    int file = open(mapping->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool is_same = file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_ino == mapping->inode;
    bool is_whole = is_same && mapping->offset + bytes <= npr_whole_pages((size_t)status.st_size);
    void *fresh = is_whole ? np_remap_mmap(NULL, bytes, mapping->protection, mapping->is_shared ? MAP_SHARED : MAP_PRIVATE, file, (off_t)mapping->offset)
                           : MAP_FAILED;
    if (file >= 0) close(file);
    if (!is_whole) return REASON_OTHER_FILE;
    if (fresh == MAP_FAILED) return REASON_NO_FILE_ADDRESSES;
    return np_remap_exchange(fresh, bytes, mapping->start);
}
