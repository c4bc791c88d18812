/* exec_target.c: programs that cannot be given a library of ours, and run without it.
 *
 * A preloaded library that the program's loader cannot load ends the program before main: musl's loader finds none of glibc's own symbols, and an older glibc
 * lacks versions that ours needs; a loader of another word size complains to the program's standard error. So the exec hooks look at what is started: the
 * loader that the kernel will run (PT_INTERP; a script's interpreter's) must be this process's own, or of a glibc that has what this library needs. A static
 * program loads nothing itself and passes its environment on: launchers are often static (of containers, of build systems), and what they start is
 * recorded. There is no hook that looks at it: a program of another C library that a static one starts is not helped.
 *
 * Programs built with AddressSanitizer or ThreadSanitizer end where another library was loaded before the sanitizer's.
 *
 * A process that has put itself under a seccomp filter starts programs under it. What such a program calls the filter lists, and not what we would call in it,
 * nor what it takes to look at it: it runs without us, unseen.
 *
 * A process that has given up its rights (`setpriv`, `runuser`, `su`, `gosu` before a server) or entered another root folder cannot open our file, which is in
 * a folder of the recording user's alone: the loader would say so on the program's standard error.
 */
#define _GNU_SOURCE
#include "exec_target.h"

#include "track.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#define SCRIPTS_MAX 5 /* as many interpreters in a row as the kernel takes (fs/exec.c) */
#define VERSION_PREFIX "GLIBC_2."
#if defined(__x86_64__)
#define OWN_MACHINE EM_X86_64
#else
#define OWN_MACHINE EM_AARCH64
#endif

static struct {
    bool is_known;
    char name[64]; /* of its file, without folders */
    uint64_t device, inode;
    char version[24]; /* the latest of glibc that this library needs */
} loader;

/* -- ourselves -- */

static void take_version(const char *name) {
    static unsigned latest;
    if (strncmp(name, VERSION_PREFIX, sizeof VERSION_PREFIX - 1) != 0) return;
    unsigned minor = 0;
    for (const char *at = name + sizeof VERSION_PREFIX - 1; *at >= '0' && *at <= '9'; at++) minor = minor * 10 + (unsigned)(*at - '0');
    if (minor < latest || strlen(name) >= sizeof loader.version) return;
    latest = minor;
    strcpy(loader.version, name);
}

/* Tables of versions needed, as the loader read them; it may or may not have added the base to their addresses. */
static void find_version(void) {
    const ElfW(Ehdr) *header = (const void *)np_own.lo;
    const ElfW(Phdr) *segments = (const void *)(np_own.lo + header->e_phoff);
    const ElfW(Dyn) *dynamic = NULL;
    for (unsigned i = 0; i < header->e_phnum; i++)
        if (segments[i].p_type == PT_DYNAMIC) dynamic = (const void *)(np_own.lo + segments[i].p_vaddr);
    uintptr_t needs = 0, strings = 0;
    uint64_t count = 0;
    for (; dynamic != NULL && dynamic->d_tag != DT_NULL; dynamic++) {
        uintptr_t at = dynamic->d_un.d_ptr < np_own.lo ? dynamic->d_un.d_ptr + np_own.lo : dynamic->d_un.d_ptr;
        if (dynamic->d_tag == DT_VERNEED) needs = at;
        if (dynamic->d_tag == DT_STRTAB) strings = at;
        if (dynamic->d_tag == DT_VERNEEDNUM) count = dynamic->d_un.d_val;
    }
    if (needs == 0 || strings == 0) return;
    for (const ElfW(Verneed) *need = (const void *)needs; count > 0; count--) {
        const ElfW(Vernaux) *version = (const void *)((const char *)need + need->vn_aux);
        for (unsigned i = 0; i < need->vn_cnt; i++) {
            take_version((const char *)strings + version->vna_name);
            version = (const void *)((const char *)version + version->vna_next);
        }
        need = (const void *)((const char *)need + need->vn_next);
    }
}

static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

void np_exec_init(void) {
    extern void *__tls_get_addr(void *) __attribute__((visibility("default"))); /* a function of the loader */
    Dl_info info;
    struct stat status;
    if (dladdr((void *)(uintptr_t)__tls_get_addr, &info) == 0 || info.dli_fname == NULL) return;
    if (NP_SYS4(SYS_newfstatat, AT_FDCWD, info.dli_fname, &status, 0) != 0 || strlen(name_of(info.dli_fname)) >= sizeof loader.name) return;
    find_version();
    loader.device = status.st_dev;
    loader.inode = status.st_ino;
    strcpy(loader.name, name_of(info.dli_fname));
    __atomic_store_n(&loader.is_known, true, __ATOMIC_RELEASE); /* with the acquire in np_exec_fit_of: a constructor before ours may have begun threads */
}

/* -- the C library of another loader -- */

/* The name of an open file; where it ends. */
static char *put_fd(char *path, unsigned fd) {
    char digits[12], *to = stpcpy(path, "/proc/self/fd/");
    unsigned count = 0;
    do digits[count++] = (char)('0' + fd % 10);
    while ((fd /= 10) != 0);
    while (count > 0) *to++ = digits[--count];
    *to = 0;
    return to;
}

const char *np_exec_path_of_fd(int fd, char *path) {
    put_fd(path, (unsigned)fd);
    return path;
}

const char *np_exec_path_at(int fd, const char *path, char *room, size_t size) {
    if (path == NULL || path[0] == '/' || (fd == AT_FDCWD && path[0] != 0) || strlen(path) + 40 > size) return path;
    np_exec_path_of_fd(fd, room);
    if (path[0] != 0) strcat(strcat(room, "/"), path);
    return room;
}

static bool has_text(const char *path, const char *text) {
    long fd = NP_SYS4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    struct stat status;
    bool found = false;
    if (fd < 0) return false;
    if (NP_SYS2(SYS_fstat, fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
        size_t bytes = (size_t)status.st_size;
        long at = NP_SYS6(SYS_mmap, 0, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (at > 0 || at < -4095) {
            found = memmem((const void *)at, bytes, text, strlen(text) + 1) != NULL;
            NP_SYS2(SYS_munmap, at, bytes);
        }
    }
    NP_SYS1(SYS_close, fd);
    return found;
}

/* The C library lies beside its loader. */
static bool has_our_version(long loader_fd) {
    char link[32], path[1100];
    put_fd(link, (unsigned)loader_fd);
    long bytes = NP_SYS4(SYS_readlinkat, AT_FDCWD, link, path, 1024);
    if (bytes <= 0 || bytes >= 1024) return false;
    path[bytes] = 0;
    char *slash = strrchr(path, '/');
    if (slash == NULL || loader.version[0] == 0) return false;
    strcpy(slash + 1, "libc.so.6");
    return has_text(path, loader.version);
}

static bool loader_takes_us(const char *path) {
    struct stat status;
    long fd = NP_SYS4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0) return true; /* the kernel will not find it either */
    bool takes = NP_SYS2(SYS_fstat, fd, &status) == 0 && status.st_dev == loader.device && status.st_ino == loader.inode;
    if (!takes && strcmp(name_of(path), loader.name) == 0) takes = has_our_version(fd);
    NP_SYS1(SYS_close, fd);
    return takes;
}

/* -- the program -- */

/* The loader takes a library by LD_PRELOAD only for a program that has the rights of who starts it (AT_SECURE; security/commoncap.c, bprm_fill_uid in
 * fs/exec.c). A process that has set its effective user starts all programs so; file systems and processes that take no new rights (nosuid,
 * PR_SET_NO_NEW_PRIVS: containers, systemd units) start none so by the file's bits. */
static bool is_secure(long fd) {
    uid_t user = (uid_t)NP_SYS0(SYS_geteuid);
    gid_t group = (gid_t)NP_SYS0(SYS_getegid);
    if ((uid_t)NP_SYS0(SYS_getuid) != user || (gid_t)NP_SYS0(SYS_getgid) != group) return true;
    struct stat status;
    struct statfs mounted;
    if (NP_SYS1(SYS_prctl, PR_GET_NO_NEW_PRIVS) == 1 || NP_SYS2(SYS_fstat, fd, &status) != 0) return false;
    if (NP_SYS2(SYS_fstatfs, fd, &mounted) == 0 && (mounted.f_flags & ST_NOSUID)) return false;
    bool by_user = (status.st_mode & S_ISUID) && status.st_uid != user;
    bool by_group = (status.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && status.st_gid != group;
    return by_user || by_group || (user != 0 && NP_SYS4(SYS_fgetxattr, fd, "security.capability", 0, 0) > 0);
}

static bool is_ours_closed(void) {
    if (np_own_path[0] == 0) return false;
    long fd = NP_SYS4(SYS_openat, AT_FDCWD, np_own_path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd >= 0) NP_SYS1(SYS_close, fd);
    return fd == -EACCES || fd == -EPERM || fd == -ENOENT; /* not: out of descriptors */
}

static enum np_exec_fit loader_fit(const char *path, long program) {
    if (!loader_takes_us(path)) return NP_EXEC_FOREIGN;
    return is_secure(program) || is_ours_closed() ? NP_EXEC_CLOSED : NP_EXEC_FITS;
}

#define SEGMENTS_MAX 64u
#define ENTRIES_MAX 256u /* of a dynamic section */

/* The first segment of this type, or with `address` != 0 that of the file which is mapped there. */
static bool find_segment(long fd, const Elf64_Ehdr *header, uint32_t type, uint64_t address, Elf64_Phdr *segment) {
    for (unsigned i = 0; i < header->e_phnum && i < SEGMENTS_MAX; i++) {
        if (NP_SYS4(SYS_pread64, fd, segment, sizeof *segment, header->e_phoff + i * sizeof *segment) != (long)sizeof *segment) return false;
        if (segment->p_type == type && (address == 0 || address - segment->p_vaddr < segment->p_filesz)) return true;
    }
    return false;
}

/* The first library that the program names, and where its names begin, as addresses count. */
static bool read_dynamic(long fd, const Elf64_Phdr *dynamic, uint64_t *first, uint64_t *names) {
    bool has_first = false, has_names = false;
    for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= dynamic->p_filesz && at < ENTRIES_MAX * sizeof(Elf64_Dyn);) {
        Elf64_Dyn entries[16];
        long got = NP_SYS4(SYS_pread64, fd, entries, sizeof entries, dynamic->p_offset + at), count = got / (long)sizeof *entries;
        if (count <= 0) break;
        for (long i = 0; i < count; i++, at += sizeof *entries) {
            if (entries[i].d_tag == DT_NULL) return has_first && has_names;
            if (entries[i].d_tag == DT_STRTAB) *names = entries[i].d_un.d_ptr;
            if (entries[i].d_tag == DT_NEEDED && !has_first) *first = entries[i].d_un.d_val;
            has_names |= entries[i].d_tag == DT_STRTAB;
            has_first |= entries[i].d_tag == DT_NEEDED;
        }
    }
    return has_first && has_names;
}

/* AddressSanitizer's library ends the program where another one was loaded before it, ThreadSanitizer's cannot be called before it has started. Each is the
 * first that its programs name. */
static bool needs_to_be_first(long fd, const Elf64_Ehdr *header) {
    static const char *const libraries[] = {"libasan.so",         "libclang_rt.asan", "libhwasan.so",
                                            "libclang_rt.hwasan", "libtsan.so",       "libclang_rt.tsan"};
    Elf64_Phdr segment;
    uint64_t first = 0, names = 0;
    char name[32] = {0};
    if (!find_segment(fd, header, PT_DYNAMIC, 0, &segment) || !read_dynamic(fd, &segment, &first, &names)) return false;
    if (!find_segment(fd, header, PT_LOAD, names, &segment)) return false;
    if (NP_SYS4(SYS_pread64, fd, name, sizeof name - 1, names - segment.p_vaddr + segment.p_offset + first) <= 0) return false;
    for (unsigned i = 0; i < sizeof libraries / sizeof *libraries; i++)
        if (strncmp(name, libraries[i], strlen(libraries[i])) == 0) return true;
    return false;
}

static enum np_exec_fit binary_fit(long fd, const char *path, const Elf64_Ehdr *header) {
    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_machine != OWN_MACHINE) return NP_EXEC_FOREIGN;
    Elf64_Phdr segment;
    /* Static; or a loader that is started by its name, with the program as an argument. */
    if (!find_segment(fd, header, PT_INTERP, 0, &segment)) return strncmp(name_of(path), "ld-", 3) != 0 ? NP_EXEC_STATIC : loader_fit(path, fd);
    char interpreter[512];
    size_t bytes = segment.p_filesz < sizeof interpreter ? segment.p_filesz : sizeof interpreter - 1;
    long got = NP_SYS4(SYS_pread64, fd, interpreter, bytes, segment.p_offset);
    if (got <= 0) return NP_EXEC_FITS;
    interpreter[got] = 0;
    enum np_exec_fit fit = loader_fit(interpreter, fd);
    return fit == NP_EXEC_FITS && needs_to_be_first(fd, header) ? NP_EXEC_FOREIGN : fit;
}

bool np_script_words(char *line, char **interpreter, char **option) {
    if (line[0] != '#' || line[1] != '!') return false;
    line[strcspn(line, "\n")] = 0;
    char *at = line + 2 + strspn(line + 2, " \t");
    *interpreter = at;
    at += strcspn(at, " \t");
    if (*at != 0) *at++ = 0;
    at += strspn(at, " \t");
    size_t bytes = strlen(at);
    while (bytes > 0 && (at[bytes - 1] == ' ' || at[bytes - 1] == '\t' || at[bytes - 1] == '\r')) at[--bytes] = 0;
    *option = bytes != 0 ? at : NULL;
    return **interpreter == '/';
}

enum np_exec_fit np_exec_fit_of(const char *path) {
    union {
        Elf64_Ehdr header;
        char line[256];
    } head;
    char next[sizeof head.line];
    if (np_is_confined) return NP_EXEC_CLOSED; /* not to be looked at; nor does the filter, which goes with it, list what we would call there */
    if (!__atomic_load_n(&loader.is_known, __ATOMIC_ACQUIRE)) return NP_EXEC_FITS;
    for (int scripts = 0; path != NULL && scripts < SCRIPTS_MAX; scripts++) {
        long fd = NP_SYS4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
        if (fd < 0) return NP_EXEC_FITS;
        memset(&head, 0, sizeof head);
        long got = NP_SYS4(SYS_pread64, fd, &head, sizeof head - 1, 0);
        bool is_binary = got >= (long)sizeof head.header && memcmp(head.header.e_ident, ELFMAG, SELFMAG) == 0;
        enum np_exec_fit fit = is_binary ? binary_fit(fd, path, &head.header) : NP_EXEC_FITS;
        NP_SYS1(SYS_close, fd);
        char *interpreter, *option;
        if (is_binary || got <= 2 || !np_script_words(head.line, &interpreter, &option)) return fit;
        memcpy(next, interpreter, strlen(interpreter) + 1);
        path = next;
    }
    return NP_EXEC_FITS;
}

/* By the rules of execvp: the first file of that name that can be run, on PATH. */
const char *np_exec_find(const char *file, char *path, size_t size) {
    if (file == NULL || *file == 0) return NULL;
    if (strchr(file, '/') != NULL || np_is_confined) return file;
    const char *folders = getenv("PATH");
    if (folders == NULL) folders = "/bin:/usr/bin";
    for (const char *at = folders;; at++) {
        size_t length = strcspn(at, ":"), bytes = length + 1 + strlen(file) + 1;
        if (bytes <= size) {
            struct stat status;
            memcpy(path, at, length);
            path[length] = '/';
            strcpy(path + length + (length != 0), file);
            bool is_file = NP_SYS4(SYS_newfstatat, AT_FDCWD, path, &status, 0) == 0 && S_ISREG(status.st_mode);
            if (is_file && NP_SYS4(SYS_faccessat, AT_FDCWD, path, X_OK, 0) == 0) return path;
        }
        at += length;
        if (*at == 0) return NULL;
    }
}

/* -- the environment -- */

size_t np_exec_list_length(char *const *list) {
    size_t length = 0;
    while (list != NULL && list[length] != NULL) length++;
    return length;
}

const char *np_exec_entry(char *const *list, const char *prefix) {
    size_t bytes = strlen(prefix);
    for (; list != NULL && *list != NULL; list++)
        if (strncmp(*list, prefix, bytes) == 0) return *list;
    return NULL;
}

size_t np_exec_strip_bytes(char *const *environment) {
    const char *preload = np_exec_entry(environment, "LD_PRELOAD=");
    return preload != NULL && np_own_path[0] != 0 && strstr(preload, np_own_path) != NULL ? strlen(preload) + 1 : 0;
}

#define PRELOAD_NAME "LD_PRELOAD="
#define PRELOAD_NAME_BYTES (sizeof PRELOAD_NAME - 1)

/* Puts a library behind those that are in `preload`, which ends at `to`; the new end. */
static char *put_library(const char *preload, char *to, const char *library, size_t bytes) {
    if (to != preload + PRELOAD_NAME_BYTES) *to++ = ':';
    return mempcpy(to, library, bytes);
}

/* Others' libraries stay, in their order. */
static char *put_others(const char *preload, char *to, const char *old, const char *const *ours, size_t count) {
    for (const char *at = old != NULL ? old + PRELOAD_NAME_BYTES : ""; *at != 0;) {
        size_t bytes = strcspn(at, ": ");
        bool is_ours = false;
        for (size_t i = 0; i < count; i++) is_ours |= ours[i] != NULL && bytes == strlen(ours[i]) && memcmp(at, ours[i], bytes) == 0;
        if (bytes != 0 && !is_ours) to = put_library(preload, to, at, bytes);
        at += bytes;
        if (*at != 0) at++;
    }
    *to = 0;
    return to;
}

void np_exec_strip(char *const *environment, char **list, char *preload) {
    const char *old = np_exec_entry(environment, PRELOAD_NAME), *own = np_own_path;
    const char *end = put_others(preload, stpcpy(preload, PRELOAD_NAME), old, &own, 1);
    for (; *environment != NULL; environment++)
        if (*environment != old) *list++ = *environment;
        else if (end != preload + PRELOAD_NAME_BYTES) *list++ = preload;
    *list = NULL;
}

/* With its '='. */
static size_t name_bytes(const char *variable) { return strcspn(variable, "=") + 1; }

/* Which of the needed variables an entry of the environment is; NULL: none. */
static const char *needed_by_name(const struct np_exec_needs *needs, const char *entry) {
    for (size_t i = 0; i < sizeof needs->variables / sizeof *needs->variables; i++)
        if (needs->variables[i] != NULL && strncmp(entry, needs->variables[i], name_bytes(needs->variables[i])) == 0) return needs->variables[i];
    return NULL;
}

/* Of two entries of one name, programs find the first. */
static bool has_variable(char *const *environment, const char *variable) {
    for (; environment != NULL && *environment != NULL; environment++)
        if (strncmp(*environment, variable, name_bytes(variable)) == 0) return strcmp(*environment, variable) == 0;
    return false;
}

size_t np_exec_missing_bytes(char *const *environment, const struct np_exec_needs *needs) {
    const char *preload = np_exec_entry(environment, PRELOAD_NAME);
    size_t bytes = sizeof PRELOAD_NAME + (preload != NULL ? strlen(preload) : 0);
    bool has_all = true;
    for (size_t i = 0; i < sizeof needs->libraries / sizeof *needs->libraries; i++) {
        if (needs->libraries[i] == NULL) continue;
        bytes += strlen(needs->libraries[i]) + 1;
        has_all &= preload != NULL && strstr(preload, needs->libraries[i]) != NULL;
    }
    for (size_t i = 0; i < sizeof needs->variables / sizeof *needs->variables; i++)
        has_all &= needs->variables[i] == NULL || has_variable(environment, needs->variables[i]);
    return has_all ? 0 : bytes;
}

void np_exec_complete(char *const *environment, const struct np_exec_needs *needs, char **list, char *preload) {
    const size_t libraries = sizeof needs->libraries / sizeof *needs->libraries;
    char *to = stpcpy(preload, PRELOAD_NAME);
    for (size_t i = 0; i < libraries; i++)
        if (needs->libraries[i] != NULL) to = put_library(preload, to, needs->libraries[i], strlen(needs->libraries[i]));
    put_others(preload, to, np_exec_entry(environment, PRELOAD_NAME), needs->libraries, libraries);
    for (; environment != NULL && *environment != NULL; environment++)
        if (strncmp(*environment, PRELOAD_NAME, PRELOAD_NAME_BYTES) != 0 && needed_by_name(needs, *environment) == NULL) *list++ = *environment;
    *list++ = preload;
    for (size_t i = 0; i < sizeof needs->variables / sizeof *needs->variables; i++)
        if (needs->variables[i] != NULL) *list++ = needs->variables[i];
    *list = NULL;
}
