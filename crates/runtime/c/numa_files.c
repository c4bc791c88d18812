/* numa_files.c: the simulated machine as programs see it, files: the lists of nodes and CPUs in sysfs and /proc/cpuinfo, which the recorder has written into
 * a folder (np_config.machine_files), and files about the process itself (numa_proc.c).
 *
 * Each hook makes the program's own call first: afterwards the path is known to be readable memory, and whatever else was asked for stays untouched.
 * Only where the path names one of these files the call is made again, for its copy. Files that the machine's description cannot fill are not there.
 * Calls that could write are left alone, and so are programs that run on the real machine. A folder that was opened by a descriptor is the
 * copy, so what is looked up relative to it needs nothing. What the C library opens from inside passes by: the list of CPUs that it needs is numa_cpus.c's. */
#define _GNU_SOURCE
#include "memsim.h"
#include "numa_proc.h"
#include "track.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROOM_BYTES (NP_PATH_MAX + 256)

/* Without the first slash. */
static const char *const copied[] = {"sys/devices/system/node", "sys/devices/system/cpu", "sys/bus/node/devices", "sys/bus/cpu/devices", "proc/cpuinfo"};

static bool is_copied(const char *path) {
    for (unsigned i = 0; i < sizeof copied / sizeof *copied; i++) {
        size_t bytes = strlen(copied[i]);
        if (strncmp(path, copied[i], bytes) == 0 && (path[bytes] == 0 || path[bytes] == '/')) return true;
    }
    return false;
}

/* How a path may begin that leads to one of them from a folder on its way. */
static bool may_lead_there(const char *path) {
    static const char *const beginnings[] = {"sys/", "proc/", "devices/", "system/", "bus/", "node", "cpu", "self/", "status", "numa_maps", "fs/"};
    for (unsigned i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
        if (strncmp(path, beginnings[i], strlen(beginnings[i])) == 0) return true;
    return false;
}

/* The path from the root on, without its first slash; NULL: none of ours begins like it. Programs look relative to a descriptor of /, /proc or a folder of /sys
 * (hwloc, util-linux): then it is put together in `room`. */
static const char *from_root(int folder, const char *path, char room[ROOM_BYTES]) {
    if (path[0] == '/') return path[1] == 's' || path[1] == 'p' ? path + 1 : NULL;
    if (folder < 0 || !may_lead_there(path)) return NULL;
    char link[32];
    np_decimal(np_append(link, "/proc/self/fd/"), (uint64_t)folder);
    long bytes = NP_SYS4(SYS_readlinkat, AT_FDCWD, link, room, ROOM_BYTES);
    size_t more = strlen(path);
    if (bytes < 1 || bytes + more + 2 > ROOM_BYTES || room[0] != '/') return NULL;
    if (bytes > 1) room[bytes++] = '/';
    memcpy(room + bytes, path, more + 1);
    return room + 1;
}

/* What a path leads to on the simulated machine: the copy of a file, a file about the process itself, or neither. */
struct shown {
    const char *copy; /* NULL: there is none */
    enum np_proc_file file;
};

/* `room` takes the copy's path. */
static struct shown shown_at(int folder, const char *path, char room[ROOM_BYTES]) {
    char whole[ROOM_BYTES];
    struct shown shown = {NULL, NP_PROC_OTHER};
    const char *wanted = from_root(folder, path, whole);
    if (wanted == NULL) return shown;
    bool has_copy = is_copied(wanted);
    enum np_proc_file file = has_copy ? NP_PROC_OTHER : np_proc_file_of(wanted);
    if ((!has_copy && file == NP_PROC_OTHER) || !np_is_simulated()) return shown;
    shown.file = file;
    size_t root = strnlen(np_arena->config.machine_files, NP_PATH_MAX), bytes = strlen(wanted);
    if (!has_copy || root == 0 || root == NP_PATH_MAX || root + bytes + 2 > ROOM_BYTES) return shown;
    memcpy(room, np_arena->config.machine_files, root);
    room[root] = '/';
    memcpy(room + root + 1, wanted, bytes + 1);
    shown.copy = room;
    return shown;
}

static const char *copy_of(int folder, const char *path, char room[ROOM_BYTES]) { return shown_at(folder, path, room).copy; }

static inline bool is_unreadable(bool failed) { return failed && errno == EFAULT; }

/* ---- open ---- */

/* The descriptor of the copy, under the number of the one that the program's own call gave, where it gave one. */
static int take_over(int fd, long instead, int flags) {
    if (instead < 0) {
        if (fd >= 0) NP_SYS1(SYS_close, fd);
        errno = (int)-instead;
        return -1;
    }
    if (fd < 0) return (int)instead;
    NP_SYS3(SYS_dup3, instead, fd, flags & O_CLOEXEC);
    NP_SYS1(SYS_close, instead);
    return fd;
}

static int opened(int fd, int folder, const char *path, int flags) {
    if (fd >= 0 && (flags & O_TRUNC)) np_file_emptied(fd);
    if (is_unreadable(fd < 0) || (flags & (O_ACCMODE | O_CREAT | O_TRUNC)) != O_RDONLY) return fd;
    char room[ROOM_BYTES];
    struct shown shown = shown_at(folder, path, room);
    if (shown.copy != NULL) return take_over(fd, NP_SYS4(SYS_openat, AT_FDCWD, shown.copy, flags, 0), flags);
    if (shown.file == NP_PROC_OTHER || (flags & O_PATH)) return fd;
    long instead = np_proc_open(shown.file, fd, flags);
    return instead < 0 ? fd : take_over(fd, instead, flags);
}

#define MODE_OF_CALL(mode)                               \
    mode_t mode = 0;                                     \
    if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE) { \
        va_list list;                                    \
        va_start(list, flags);                           \
        mode = va_arg(list, mode_t);                     \
        va_end(list);                                    \
    }
#define OPEN(name)                                                                                                          \
    NP_EXPORT int name(const char *path, int flags, ...) {                                                                  \
        MODE_OF_CALL(mode)                                                                                                  \
        return opened(NP_REAL_AS(int (*)(const char *, int, ...), name)(path, flags, mode), AT_FDCWD, path, flags);         \
    }
#define OPENAT(name)                                                                                                        \
    NP_EXPORT int name(int folder, const char *path, int flags, ...) {                                                      \
        MODE_OF_CALL(mode)                                                                                                  \
        return opened(NP_REAL_AS(int (*)(int, const char *, int, ...), name)(folder, path, flags, mode), folder, path, flags); \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

/* What calls without a mode become where they are checked (_FORTIFY_SOURCE). */
#define OPEN_2(name)                                                                                                        \
    NP_EXPORT int name(const char *path, int flags) {                                                                       \
        return opened(NP_REAL_AS(int (*)(const char *, int), name)(path, flags), AT_FDCWD, path, flags);                    \
    }
#define OPENAT_2(name)                                                                                                      \
    NP_EXPORT int name(int folder, const char *path, int flags) {                                                           \
        return opened(NP_REAL_AS(int (*)(int, const char *, int), name)(folder, path, flags), folder, path, flags);         \
    }
OPEN_2(__open_2)
OPEN_2(__open64_2)
OPENAT_2(__openat_2)
OPENAT_2(__openat64_2)

/* ---- streams ---- */

static FILE *streamed(FILE *stream, const char *path, const char *mode, FILE *(*real)(const char *, const char *)) {
    if (stream != NULL && mode[0] == 'w') np_file_emptied(fileno(stream));
    if (is_unreadable(stream == NULL) || mode[0] != 'r' || strchr(mode, '+') != NULL) return stream;
    char room[ROOM_BYTES];
    struct shown shown = shown_at(AT_FDCWD, path, room);
    if (shown.copy == NULL && shown.file == NP_PROC_OTHER) return stream;
    FILE *instead = NULL;
    if (shown.copy != NULL) instead = real(shown.copy, mode);
    else {
        long fd = np_proc_open(shown.file, stream != NULL ? fileno(stream) : -1, strchr(mode, 'e') != NULL ? O_CLOEXEC : 0);
        if (fd < 0) return stream;
        instead = fdopen((int)fd, mode);
        if (instead == NULL) NP_SYS1(SYS_close, fd);
    }
    int saved = errno;
    if (stream != NULL) fclose(stream);
    errno = saved;
    return instead;
}

#define FOPEN(name)                                                                                            \
    NP_EXPORT FILE *name(const char *restrict path, const char *restrict mode) {                               \
        FILE *(*real)(const char *, const char *) = NP_REAL_AS(FILE *(*)(const char *, const char *), name);   \
        return streamed(real(path, mode), path, mode, real);                                                   \
    }
FOPEN(fopen)
FOPEN(fopen64)

/* ---- folders ---- */

NP_EXPORT DIR *opendir(const char *path) {
    DIR *(*real)(const char *) = NP_REAL(opendir);
    DIR *folder = real(path);
    char room[ROOM_BYTES];
    const char *copy = is_unreadable(folder == NULL) ? NULL : copy_of(AT_FDCWD, path, room);
    if (copy == NULL) return folder;
    DIR *instead = real(copy);
    int saved = errno;
    if (folder != NULL) closedir(folder);
    errno = saved;
    return instead;
}

/* It calls back: it must be called once. */
#define SCANDIR(name, entry)                                                                                                        \
    NP_EXPORT int name(const char *restrict path, struct entry ***restrict names, int (*choose)(const struct entry *),             \
                       int (*compare)(const struct entry **, const struct entry **)) {                                             \
        char room[ROOM_BYTES];                                                                                                      \
        const char *copy = NP_SYS3(SYS_faccessat, AT_FDCWD, path, F_OK) == -EFAULT ? NULL : copy_of(AT_FDCWD, path, room);          \
        return NP_REAL(name)(copy != NULL ? copy : path, names, choose, compare);                                                   \
    }
SCANDIR(scandir, dirent)
SCANDIR(scandir64, dirent64)

/* ---- questions about a path: parameters, arguments with its copy, the folder it is relative to, the result's type ---- */

#define ASK(type, name, folder, parameters, as, call, again)                         \
    NP_EXPORT type name parameters {                                                 \
        __typeof__(type (*) as) real = NP_REAL_AS(type(*) as, name);                 \
        if (real == NULL) {                                                          \
            errno = ENOSYS;                                                          \
            return -1;                                                               \
        }                                                                            \
        type result = real call;                                                     \
        char room[ROOM_BYTES];                                                       \
        const char *copy = is_unreadable(result < 0) ? NULL : copy_of(folder, path, room); \
        return copy != NULL ? real again : result;                                   \
    }
ASK(int, access, AT_FDCWD, (const char *path, int mode), (const char *, int), (path, mode), (copy, mode))
ASK(int, faccessat, folder, (int folder, const char *path, int mode, int flags), (int, const char *, int, int), (folder, path, mode, flags),
    (folder, copy, mode, flags))
ASK(ssize_t, readlink, AT_FDCWD, (const char *restrict path, char *restrict target, size_t bytes), (const char *, char *, size_t), (path, target, bytes),
    (copy, target, bytes))
ASK(ssize_t, readlinkat, folder, (int folder, const char *restrict path, char *restrict target, size_t bytes), (int, const char *, char *, size_t),
    (folder, path, target, bytes), (folder, copy, target, bytes))
ASK(int, statx, folder, (int folder, const char *restrict path, int flags, unsigned mask, struct statx *restrict status),
    (int, const char *, int, unsigned, struct statx *), (folder, path, flags, mask, status), (folder, copy, flags, mask, status))

#define STAT(name, kind) \
    ASK(int, name, AT_FDCWD, (const char *restrict path, struct kind *restrict status), (const char *, struct kind *), (path, status), (copy, status))
STAT(stat, stat)
STAT(stat64, stat64)
STAT(lstat, stat)
STAT(lstat64, stat64)
#define STATAT(name, kind)                                                                                                                  \
    ASK(int, name, folder, (int folder, const char *restrict path, struct kind *restrict status, int flags), (int, const char *, struct kind *, int), \
        (folder, path, status, flags), (folder, copy, status, flags))
STATAT(fstatat, stat)
STATAT(fstatat64, stat64)
/* Of programs that were built for glibc before 2.33. */
#define XSTAT(name, kind)                                                                                                    \
    ASK(int, name, AT_FDCWD, (int version, const char *path, struct kind *status), (int, const char *, struct kind *),       \
        (version, path, status), (version, copy, status))
XSTAT(__xstat, stat)
XSTAT(__xstat64, stat64)
XSTAT(__lxstat, stat)
XSTAT(__lxstat64, stat64)
