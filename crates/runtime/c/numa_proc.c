/* numa_proc.c: /proc/self/status, /proc/self/numa_maps and the cpusets of control groups on the simulated machine. Written into a file in memory when they are
 * opened.
 *
 * Every control group may use all CPUs and nodes of that machine. status is the kernel's, but for the CPUs and nodes that the thread may use. numa_maps has
 * the kernel's mappings with the simulated homes of their pages; of policies only the default is told, as homes are what they led to. Formats:
 * fs/proc/task_mmu.c, fs/proc/array.c, kernel/cgroup/cpuset.c. */
#define _GNU_SOURCE
#include "numa_proc.h"

#include "memsim.h"
#include "track.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* ---- text ---- */

char *np_append(char *to, const char *text) {
    size_t bytes = strlen(text);
    memcpy(to, text, bytes + 1);
    return to + bytes;
}

static char *number(char *to, uint64_t value, unsigned base, unsigned width) {
    char digits[24];
    unsigned count = 0;
    do {
        digits[count++] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value != 0 || count < width);
    while (count > 0) *to++ = digits[--count];
    *to = 0;
    return to;
}

char *np_decimal(char *to, uint64_t value) { return number(to, value, 10, 1); }

#define STATUS_BYTES 8192
/* In pages of its own: the stacks of coroutines are small. */
struct out {
    long fd;
    long error;
    uint64_t room; /* how much larger the file may become */
    size_t used;
    char text[4096];
    char status[STATUS_BYTES]; /* the kernel's file */
};

static void flush(struct out *out) {
    /* Past the limit it would be no error, but a signal that ends the program (SIGXFSZ). */
    if (out->used > out->room) out->error = -EFBIG;
    else out->room -= out->used;
    for (size_t done = 0; done < out->used && out->error == 0;) {
        long wrote = NP_SYS3(SYS_write, out->fd, out->text + done, out->used - done);
        if (wrote > 0) done += (size_t)wrote;
        else if (wrote != -EINTR) out->error = wrote < 0 ? wrote : -EIO;
    }
    out->used = 0;
}

static void put_bytes(struct out *out, const char *text, size_t bytes) {
    for (size_t part; bytes > 0; text += part, bytes -= part) {
        if (out->used == sizeof out->text) flush(out);
        part = sizeof out->text - out->used < bytes ? sizeof out->text - out->used : bytes;
        memcpy(out->text + out->used, text, part);
        out->used += part;
    }
}

static void put(struct out *out, const char *text) { put_bytes(out, text, strlen(text)); }

static void put_number(struct out *out, const char *before, uint64_t value) {
    char digits[24];
    np_decimal(digits, value);
    put(out, before);
    put(out, digits);
}

/* ---- status ---- */

/* A set as a mask of at least `words` words of 32 bits. */
static void put_mask(struct out *out, const uint64_t *set, uint32_t set_words, uint32_t words) {
    uint32_t needed = set_words;
    while (needed > 1 && set[needed - 1] == 0) needed--;
    needed *= 2;
    for (uint32_t word = words > needed ? words : needed; word-- > 0;) {
        char digits[16];
        number(digits, word / 2 < set_words ? (uint32_t)(set[word / 2] >> (word % 2 * 32)) : 0, 16, 8);
        put(out, digits);
        if (word > 0) put(out, ",");
    }
}

static void put_list(struct out *out, const uint64_t *set, uint32_t set_words) {
    const char *between = "";
    for (uint32_t bit = 0, bits = set_words * 64; bit < bits; bit++) {
        if (!(set[bit / 64] >> (bit % 64) & 1)) continue;
        uint32_t last = bit;
        while (last + 1 < bits && (set[(last + 1) / 64] >> ((last + 1) % 64) & 1)) last++;
        put_number(out, between, bit);
        if (last > bit) put_number(out, "-", last);
        between = ",";
        bit = last;
    }
}

struct sets {
    uint64_t cpus[NP_MAX_CPUS / 64];
    uint64_t nodes[1];
};

/* Words in the mask of a line, which libnuma takes for the size of the kernel's masks. */
static uint32_t words_of(const char *line, size_t bytes) {
    uint32_t words = 1;
    for (size_t i = 0; i < bytes; i++) words += line[i] == ',';
    return words;
}

static bool begins(const char *line, size_t bytes, const char *name) {
    size_t length = strlen(name);
    return bytes > length && memcmp(line, name, length) == 0;
}

static void put_status_line(struct out *out, const char *line, size_t bytes, const struct sets *sets) {
    if (begins(line, bytes, "Cpus_allowed:\t")) {
        put(out, "Cpus_allowed:\t");
        put_mask(out, sets->cpus, NP_MAX_CPUS / 64, words_of(line, bytes));
    } else if (begins(line, bytes, "Cpus_allowed_list:\t")) {
        put(out, "Cpus_allowed_list:\t");
        put_list(out, sets->cpus, NP_MAX_CPUS / 64);
    } else if (begins(line, bytes, "Mems_allowed:\t")) {
        put(out, "Mems_allowed:\t");
        put_mask(out, sets->nodes, 1, words_of(line, bytes));
    } else if (begins(line, bytes, "Mems_allowed_list:\t")) {
        put(out, "Mems_allowed_list:\t");
        put_list(out, sets->nodes, 1);
    } else {
        put_bytes(out, line, bytes);
        return;
    }
    put(out, "\n");
}

static void write_status(struct out *out, int real) {
    char *text = out->status;
    long filled = 0, got = 1;
    while (got > 0 && filled < STATUS_BYTES) {
        got = NP_SYS4(SYS_pread64, real, text + filled, STATUS_BYTES - filled, filled);
        if (got > 0) filled += got;
    }
    if (filled <= 0 || filled == STATUS_BYTES) {
        out->error = -EIO;
        return;
    }
    struct sets sets = {{0}, {np_numa_nodes()}};
    np_numa_allowed_cpus(sets.cpus);
    for (long at = 0; at < filled;) {
        const char *end = memchr(text + at, '\n', (size_t)(filled - at));
        size_t bytes = end != NULL ? (size_t)(end + 1 - (text + at)) : (size_t)(filled - at);
        put_status_line(out, text + at, bytes, &sets);
        at += (long)bytes;
    }
}

/* ---- numa_maps ---- */

static uint64_t count_homes(uint64_t first, uint64_t end, uint64_t homes[NP_MAX_NODES]) {
    uint64_t all = 0;
    for (uint64_t page = first; page < end && page >> NP_LEAF_BITS < NP_LEAVES;) {
        if (__atomic_load_n(&np_leaves[page >> NP_LEAF_BITS], __ATOMIC_ACQUIRE) == NULL) {
            page = ((page >> NP_LEAF_BITS) + 1) << NP_LEAF_BITS;
            continue;
        }
        int home = np_page_query(page << NP_PAGE_SHIFT);
        if (home >= 0 && home < NP_MAX_NODES) {
            homes[home]++;
            all++;
        }
        page++;
    }
    return all;
}

static bool put_mapping(const struct np_maps_line *line, void *context) {
    struct out *out = context;
    char digits[24];
    number(digits, line->lo, 16, 8);
    put(out, digits);
    put(out, " default");
    if (line->path_bytes >= 5 && memcmp(line->path, "[heap", 5) == 0) put(out, " heap");
    else if (line->path_bytes >= 6 && memcmp(line->path, "[stack", 6) == 0) put(out, " stack");
    else if (line->inode != 0) {
        put(out, " file=");
        put_bytes(out, line->path, line->path_bytes);
    }
    uint64_t homes[NP_MAX_NODES] = {0}, all = count_homes(line->lo >> NP_PAGE_SHIFT, line->hi >> NP_PAGE_SHIFT, homes);
    if (all != 0) {
        put_number(out, line->inode != 0 && line->perms[3] == 's' ? " mapped=" : " anon=", all);
        put_number(out, " dirty=", all);
        for (uint32_t node = 0; node < NP_MAX_NODES; node++) {
            if (homes[node] == 0) continue;
            put_number(out, " N", node);
            put_number(out, "=", homes[node]);
        }
        put(out, " kernelpagesize_kB=4");
    }
    put(out, "\n");
    return out->error == 0;
}

/* ---- cpusets ---- */

static void write_cpuset(struct out *out, enum np_proc_file file) {
    struct sets sets = {{0}, {np_numa_nodes()}};
    np_numa_every_cpu(sets.cpus);
    if (file == NP_PROC_CPUS) put_list(out, sets.cpus, NP_MAX_CPUS / 64);
    else put_list(out, sets.nodes, 1);
    put(out, "\n");
}

/* ---- which, and opening ---- */

/* Behind "proc/": "self", "thread-self", or the process's number; what follows the slash, or NULL. */
static const char *behind_self(const char *path) {
    if (strncmp(path, "self/", 5) == 0) return path + 5;
    if (strncmp(path, "thread-self/", 12) == 0) return path + 12;
    char own[24];
    size_t bytes = (size_t)(np_decimal(own, (uint64_t)NP_SYS0(SYS_getpid)) - own);
    return strncmp(path, own, bytes) == 0 && path[bytes] == '/' ? path + bytes + 1 : NULL;
}

/* Of cgroup v2, and of v1 wherever it is mounted there. */
static enum np_proc_file cpuset_file(const char *path) {
    const char *name = strrchr(path, '/');
    name = name != NULL ? name + 1 : path;
    if (strcmp(name, "cpuset.cpus.effective") == 0 || strcmp(name, "cpuset.cpus") == 0 || strcmp(name, "cpuset.effective_cpus") == 0) return NP_PROC_CPUS;
    if (strcmp(name, "cpuset.mems.effective") == 0 || strcmp(name, "cpuset.mems") == 0 || strcmp(name, "cpuset.effective_mems") == 0) return NP_PROC_NODES;
    return NP_PROC_OTHER;
}

enum np_proc_file np_proc_file_of(const char *path) {
    if (strncmp(path, "sys/fs/cgroup/", 14) == 0) return cpuset_file(path);
    const char *name = strncmp(path, "proc/", 5) == 0 ? behind_self(path + 5) : NULL;
    if (name == NULL) return NP_PROC_OTHER;
    if (strcmp(name, "status") == 0) return NP_PROC_STATUS;
    return strcmp(name, "numa_maps") == 0 ? NP_PROC_NUMA_MAPS : NP_PROC_OTHER;
}

static void write_file(struct out *out, enum np_proc_file file, int real) {
    if (file == NP_PROC_STATUS) write_status(out, real);
    else if (file == NP_PROC_NUMA_MAPS) np_maps_each(put_mapping, out);
    else write_cpuset(out, file);
    flush(out);
    if (out->error == 0 && NP_SYS3(SYS_lseek, out->fd, 0, 0) < 0) out->error = -EIO;
}

long np_proc_open(enum np_proc_file file, int real, int flags) {
    if (file != NP_PROC_NUMA_MAPS && real < 0) return -ENOENT;
    long fd = NP_SYS2(SYS_memfd_create, "numapilot", flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
    if (fd < 0) return fd;
    struct out *out = np_pages_new(sizeof *out);
    long error = -ENOMEM;
    if (out != NULL) {
        struct rlimit limit;
        out->room = NP_SYS2(SYS_getrlimit, RLIMIT_FSIZE, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
        out->fd = fd;
        write_file(out, file, real);
        error = out->error;
        np_pages_free(out, sizeof *out);
    }
    if (error == 0) return fd;
    NP_SYS1(SYS_close, fd);
    return error;
}
