/* remap.c: when the preload library acts: at the program's start, when it maps a file, when it pins itself to another node, and on request; or, where
 * it is to go by orders (remap_orders.c), when there are new ones.
 *
 * Environment: NUMAPILOT_REPLICATE_FOLDER (tmpfs, this user's; without it nothing happens), _PATTERN and _SHARED (of paths), _NODE, _MIN_BYTES,
 * _BY_ORDER. Hooks keep the C library's results and errno. */
#define _GNU_SOURCE
#include "nodes.h"
#include "remap.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { BYTES_MIN = 64 << 10, REPLACED_MAX = 512, PROGRAMS_MAX = 512 };

struct settings np_settings = {.node = -1, .bytes_min = BYTES_MIN};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread bool is_busy __attribute__((tls_model("initial-exec")));

/* What was replaced, as it was, for the day when the process goes to another node. Under the lock. */
static struct replaced {
    struct mapping original;
    ino_t copy;
    int node;
} replaced[REPLACED_MAX];
static int replaced_count;
static int node_now = -1;

/* ---- the mapping at work ---- */

/* A copy takes seconds to make, and the program runs on. What it does meanwhile to the addresses of the mapping that is at work makes the copy useless: its
 * calls and the exchange exclude each other, and each such call leaves a mark. Signals wait: their handlers may unmap, too. What the C library unmaps and maps
 * by itself (dlclose, malloc), and bare system calls, leave no mark: so what is there is looked at once more, right before the exchange. */
static pthread_mutex_t exchange = PTHREAD_MUTEX_INITIALIZER;
static struct {
    uintptr_t start, end;
    bool is_changed;
    bool was_seen;      /* what was around it before the copy was made; else /proc is not there */
    struct mapping was;
} at_work;

static uint64_t lock_exchange(void) {
    uint64_t all = ~(uint64_t)0, before = 0;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all);
    pthread_mutex_lock(&exchange);
    return before;
}

static void unlock_exchange(uint64_t before) {
    int saved = errno;
    pthread_mutex_unlock(&exchange);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
    errno = saved;
}

static void begin_work(const struct mapping *mapping) {
    uint64_t signals = lock_exchange();
    at_work.start = mapping->start;
    at_work.end = mapping->end;
    at_work.is_changed = at_work.was_seen = false;
    unlock_exchange(signals);
}

/* Before it is found to be what was listed: a change between the two would not be seen. */
static void look_at_work(void) { at_work.was_seen = np_remap_around(at_work.start, at_work.end, &at_work.was); }

/* Neighbours may have joined it or left. */
static bool is_as_it_was(void) {
    static struct mapping now; /* under `lock`, as at_work.was */
    const struct mapping *was = &at_work.was;
    if (!at_work.was_seen) return true;
    return np_remap_around(at_work.start, at_work.end, &now) && now.inode == was->inode && now.offset - now.start == was->offset - was->start &&
           now.protection == was->protection && now.is_shared == was->is_shared && !strcmp(now.path, was->path);
}

struct change {
    uint64_t signals;
    bool has_begun;
};

static struct change begin_change(void *start, size_t bytes) {
    struct change change = {.has_begun = np_settings.folder && !is_busy};
    if (!change.has_begun) return change;
    change.signals = lock_exchange();
    if ((uintptr_t)start < at_work.end && (uintptr_t)start + bytes > at_work.start) at_work.is_changed = true;
    return change;
}

static void end_change(struct change change) {
    if (change.has_begun) unlock_exchange(change.signals);
}

enum remap_reason np_remap_exchange(void *fresh, size_t bytes, uintptr_t start) {
    enum remap_reason reason = REASON_MAPPING_CHANGED;
    uint64_t signals = lock_exchange();
    /* Takes the old mapping away and puts the new one there at once: a thread that reads meanwhile waits for the page. */
    if (!at_work.is_changed && is_as_it_was()) {
        bool is_done = mremap(fresh, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)start) != MAP_FAILED;
        reason = is_done ? REASON_NONE : REASON_MOVE_REFUSED;
    }
    unlock_exchange(signals);
    if (reason) munmap(fresh, bytes);
    return reason;
}

struct sought {
    const struct mapping *mapping;
    bool is_there;
};

static void compare(const struct mapping *found, void *context) {
    struct sought *sought = context;
    const struct mapping *is = sought->mapping;
    if (found->start != is->start) return;
    sought->is_there = found->end == is->end && found->inode == is->inode && found->offset == is->offset && found->protection == is->protection &&
                       found->is_shared == is->is_shared && found->has_changed_pages == is->has_changed_pages;
}

/* Whether the list of mappings, part of which was read some time ago, still holds for this one, which is at work. From begin_work() on, changes leave a mark;
 * those that leave none are seen before the exchange, from here on. */
static bool is_still(const struct mapping *mapping) {
    struct sought sought = {.mapping = mapping};
    look_at_work();
    np_remap_each(compare, &sought);
    return sought.is_there;
}

void *np_remap_mmap(void *start, size_t bytes, int protection, int flags, int file, off_t offset) {
    return (void *)syscall(SYS_mmap, start, bytes, protection, flags, file, offset);
}

#define WORD(name, word) [REASON_##name] = word,
static const char *const REASON_WORDS[] = {REMAP_REASONS(WORD)};
#undef WORD

void np_remap_log(const struct mapping *mapping, int node, const char *action, enum remap_reason reason) {
    static __thread char line[REMAP_PATH_MAX + 256] __attribute__((tls_model("initial-exec")));
    int length = snprintf(line, sizeof line, "%d\t%d\t%s\t%zu\t%lx\t%s\t%s\n", (int)getpid(), node, action,
                          (size_t)(mapping->end - mapping->start), (unsigned long)mapping->start, REASON_WORDS[reason], mapping->path);
    int log = np_remap_open("log", O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (log < 0) return;
    struct stat status;
    bool has_room = fstat(log, &status) == 0 && np_remap_may_grow((uint64_t)status.st_size + sizeof line);
    /* Appended whole. A full disk loses the line and nothing else. */
    if (has_room && length > 0 && write(log, line, (size_t)length < sizeof line ? (size_t)length : sizeof line - 1) < 0) length = 0;
    close(log);
}

/* ---- where the process is ---- */

int np_remap_pinned_node(void) {
    unsigned long allowed[NPR_CPUS_MAX / 64] = {0};
    long bytes = syscall(SYS_sched_getaffinity, 0, sizeof allowed, allowed);
    for (uint32_t i = 0; bytes > 0 && i < npr_nodes()->count; i++) {
        char path[96];
        bool is_inside = true, has_any = false;
        for (uint32_t cpu = 0; cpu < (uint32_t)bytes * 8 && is_inside; cpu++) {
            if (!(allowed[cpu / 64] >> (cpu % 64) & 1)) continue;
            snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpu%u", npr_nodes()->id[i], cpu);
            is_inside = access(path, F_OK) == 0;
            has_any |= is_inside;
        }
        if (is_inside && has_any) return npr_nodes()->id[i];
    }
    return -1;
}

/* ---- replacing ---- */

static void remember(const struct mapping *mapping, int copy, int node) {
    struct stat status;
    int at = 0;
    while (at < replaced_count && replaced[at].original.start != mapping->start) at++;
    if (at == REPLACED_MAX || fstat(copy, &status) != 0) return;
    if (at == replaced_count) replaced_count++;
    replaced[at].original = *mapping;
    replaced[at].copy = status.st_ino;
    replaced[at].node = node;
}

/* Orders name it no longer. */
static void give_back(int at) {
    const struct mapping original = replaced[at].original;
    int node = replaced[at].node;
    enum remap_reason reason = np_remap_give_back(&original);
    if (!reason) replaced[at] = replaced[--replaced_count];
    np_remap_log(&original, node, reason ? "left" : "given-back", reason);
}

/* Pages here and there are looked at; they are mapped for that. False where nothing is known. */
static bool is_here(const struct mapping *mapping, int node) {
    enum { SAMPLES = 64, POPULATE_READ = 22 };
    size_t page = npr_whole_pages(1), pages = (mapping->end - mapping->start) / page;
    int on_node = 0, elsewhere = 0;
    for (size_t i = 0; i < SAMPLES && i < pages; i++) {
        char *at = (char *)mapping->start + pages * i / (pages < SAMPLES ? pages : SAMPLES) * page;
        madvise(at, page, POPULATE_READ);
        elsewhere += npr_misplaced(at, page, node) > 0;
        on_node += npr_placed(at, page, node) > 0;
    }
    return on_node > 0 && on_node >= 9 * elsewhere;
}

/* `mapping` says what file it was before any replacement. */
static void replace(const struct mapping *mapping, int file, int node) {
    enum remap_reason reason = np_remap_judge(mapping, file);
    if (np_guard_applies(mapping)) reason = np_guard_put(mapping, file, node, reason);
    /* Pages that are here already need no copy, unless the user said where. */
    else if (!reason && np_settings.node < 0 && is_here(mapping, node)) reason = REASON_ALREADY_THERE;
    else if (!reason) {
        int copy = np_remap_copy(mapping, file, node, &reason);
        if (copy >= 0) {
            reason = np_remap_put(mapping, copy);
            if (!reason) remember(mapping, copy, node);
            close(copy);
        }
    }
    np_remap_log(mapping, node, reason ? "left" : "replaced", reason);
}

struct scan {
    int node, count;
    ino_t programs[PROGRAMS_MAX];
};

static void note_program(const struct mapping *mapping, void *context) {
    struct scan *scan = context;
    bool is_known = scan->count > 0 && scan->programs[scan->count - 1] == mapping->inode;
    if ((mapping->protection & PROT_EXEC) && !is_known && scan->count < PROGRAMS_MAX) scan->programs[scan->count++] = mapping->inode;
}

static bool is_program(const struct scan *scan, ino_t inode) {
    for (int i = 0; i < scan->count; i++) {
        if (scan->programs[i] == inode) return true;
    }
    return false;
}

static void visit(const struct mapping *found, void *context) {
    struct scan *scan = context;
    struct mapping mapping = *found;
    bool is_of_program = is_program(scan, mapping.inode);
    int node = scan->node, known = -1;
    /* A copy of ours: what it stands for. Anything else at that address is no longer what was replaced. */
    for (int i = 0; i < replaced_count; i++) {
        if (replaced[i].copy != found->inode || replaced[i].original.start != found->start || replaced[i].original.end != found->end) continue;
        mapping = replaced[i].original;
        mapping.protection = found->protection;
        mapping.has_changed_pages = found->has_changed_pages;
        is_of_program = true;
        known = i;
    }
    if (np_settings.by_order) {
        node = np_orders_node(&mapping);
        begin_work(found);
        if (node < 0 && known >= 0 && is_still(found)) give_back(known);
        if (node < 0 || (known >= 0 && replaced[known].node == node)) return;
    }
    /* Files of other kinds are not even opened: some are devices. */
    if (!np_remap_is_candidate(&mapping, is_of_program)) return;
    struct stat status;
    bool is_file = mapping.path[0] == '/' && stat(mapping.path, &status) == 0 && S_ISREG(status.st_mode);
    int file = is_file ? open(mapping.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    begin_work(found);
    if (is_still(found)) replace(&mapping, file, node);
    if (file >= 0) close(file);
}

/* Under the lock. Each mapping is replaced while the list of them is being read: the kernel goes on after the last address that it reported. */
static void scan_all(void) {
    static struct scan scan;
    scan.node = node_now;
    scan.count = 0;
    np_remap_each(note_program, &scan);
    np_remap_each(visit, &scan);
}

static int wanted_node(void) {
    if (np_settings.by_order) return -1;
    return np_settings.node >= 0 ? np_settings.node : npr_nodes()->count > 1 ? np_remap_pinned_node() : -1;
}

/* The number of mappings that are replaced now, or -1 where there is nothing to do: not asked for, one node, or not pinned to one. */
EXPORT int numapilot_remap_now(void) {
    if (!np_settings.folder || is_busy) return -1;
    int saved = errno, cancelling = np_remap_keep_thread();
    is_busy = true;
    pthread_mutex_lock(&lock);
    node_now = wanted_node();
    bool has_work = np_settings.by_order ? np_orders_read() : node_now >= 0;
    if (has_work) scan_all();
    int count = has_work ? replaced_count : -1;
    pthread_mutex_unlock(&lock);
    is_busy = false;
    np_remap_let_thread_end(cancelling);
    errno = saved;
    return count;
}

void np_remap_obey(void) { numapilot_remap_now(); }
bool np_remap_is_busy(void) { return is_busy; }

/* ---- the program's calls ---- */

static void consider(void *start, size_t bytes, int protection, int flags, int file, off_t offset) {
    bool is_shared = (flags & MAP_TYPE) == MAP_SHARED || (flags & MAP_TYPE) == MAP_SHARED_VALIDATE;
    struct stat status;
    if (!np_settings.folder || is_busy || (node_now < 0 && !np_settings.shared)) return;
    if (file < 0 || (flags & (MAP_ANONYMOUS | MAP_LOCKED | MAP_HUGETLB | MAP_GROWSDOWN))) return;
    bool is_small = bytes < np_settings.bytes_min && !(is_shared && np_settings.shared);
    if (is_small || fstat(file, &status) != 0) return;
    struct mapping mapping = {.start = (uintptr_t)start, .end = (uintptr_t)start + npr_whole_pages(bytes), .protection = protection,
                              .is_shared = is_shared, .offset = (uint64_t)offset, .inode = status.st_ino};
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, mapping.path, sizeof mapping.path - 1);
    mapping.path[length > 0 ? length : 0] = 0;
    if (!np_remap_is_candidate(&mapping, false) || (node_now < 0 && !np_guard_applies(&mapping))) return;
    int cancelling = np_remap_keep_thread();
    is_busy = true;
    pthread_mutex_lock(&lock);
    begin_work(&mapping);
    look_at_work();
    replace(&mapping, file, node_now);
    pthread_mutex_unlock(&lock);
    is_busy = false;
    np_remap_let_thread_end(cancelling);
}

static struct {
    void *(*mmap)(void *, size_t, int, int, int, off_t);
    int (*munmap)(void *, size_t);
    int (*mprotect)(void *, size_t, int);
    void *(*mremap)(void *, size_t, size_t, int, ...);
    int (*sched_setaffinity)(pid_t, size_t, const cpu_set_t *);
} real;

void np_remap_find(const char *name, void *pointer_to_function) {
    bool was_busy = is_busy;
    is_busy = true;
    void *found = dlsym(RTLD_NEXT, name);
    memcpy(pointer_to_function, &found, sizeof found);
    is_busy = was_busy;
}

/* At the start: dlsym() takes the loader's lock, which a thread in dlopen() holds while constructors run; one of those may wait for a thread that is the
 * first to call a hook. Or at the first call of a hook, where that comes before the start. */
static void find_all(void) {
    np_remap_find("mmap", &real.mmap);
    np_remap_find("munmap", &real.munmap);
    np_remap_find("mprotect", &real.mprotect);
    np_remap_find("mremap", &real.mremap);
    np_remap_find("sched_setaffinity", &real.sched_setaffinity);
    np_guard_find_all();
    np_masks_find_all();
    np_fill_find_all();
}

EXPORT void *mmap(void *start, size_t bytes, int protection, int flags, int file, off_t offset) {
    /* While dlsym() itself maps something: straight to the kernel. */
    if (!real.mmap && !is_busy) find_all();
    if ((flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) == MAP_FIXED && !is_busy) np_guard_release((uintptr_t)start, bytes, false);
    struct change change = {0};
    if (flags & MAP_FIXED) change = begin_change(start, bytes);
    void *result = real.mmap ? real.mmap(start, bytes, protection, flags, file, offset) : np_remap_mmap(start, bytes, protection, flags, file, offset);
    end_change(change);
    if (result == MAP_FAILED) return result;
    int saved = errno;
    consider(result, bytes, protection, flags, file, offset);
    errno = saved;
    return result;
}

EXPORT void *mmap64(void *start, size_t bytes, int protection, int flags, int file, off_t offset) __attribute__((alias("mmap")));

EXPORT int munmap(void *start, size_t bytes) {
    if (!real.munmap && !is_busy) find_all();
    if (!is_busy) np_guard_release((uintptr_t)start, bytes, false);
    struct change change = begin_change(start, bytes);
    int result = real.munmap ? real.munmap(start, bytes) : (int)syscall(SYS_munmap, start, bytes);
    end_change(change);
    return result;
}

EXPORT int mprotect(void *start, size_t bytes, int protection) {
    if (!real.mprotect && !is_busy) find_all();
    if (!is_busy) np_guard_release((uintptr_t)start, bytes, (protection & PROT_WRITE) != 0);
    struct change change = begin_change(start, bytes);
    int result = real.mprotect ? real.mprotect(start, bytes, protection) : (int)syscall(SYS_mprotect, start, bytes, protection);
    end_change(change);
    return result;
}

EXPORT void *mremap(void *start, size_t bytes, size_t new_bytes, int flags, ...) {
    va_list more;
    va_start(more, flags);
    void *to = flags & MREMAP_FIXED ? va_arg(more, void *) : NULL;
    va_end(more);
    if (!is_busy) {
        np_guard_release((uintptr_t)start, bytes, false);
        if (to) np_guard_release((uintptr_t)to, new_bytes, false);
    }
    if (!real.mremap && !is_busy) find_all();
    struct change change = begin_change(start, bytes);
    if (to) end_change(begin_change(to, new_bytes));
    void *result = real.mremap ? real.mremap(start, bytes, new_bytes, flags, to) : (void *)syscall(SYS_mremap, start, bytes, new_bytes, flags, to);
    end_change(change);
    return result;
}

EXPORT int sched_setaffinity(pid_t pid, size_t bytes, const cpu_set_t *set) {
    if (!real.sched_setaffinity) find_all();
    int result = real.sched_setaffinity(pid, bytes, set);
    /* The main thread's place is the process's. */
    if (result == 0 && np_settings.folder && !np_settings.by_order && (pid == 0 || pid == getpid()) && gettid() == getpid()) numapilot_remap_now();
    return result;
}

/* ---- life ---- */

/* A handler may fork in the middle of a copy, which its thread makes under the lock, and goes on with afterwards, in parent and child: who holds a lock is in
 * it. For a fork, all locks are held with signals blocked. */
static __thread bool has_locked_for_fork __attribute__((tls_model("initial-exec")));
/* Under the lock. A handler that comes while this thread has it for the fork, and maps a file, would wait for it. */
static uint64_t signals_before_fork;

static void before_fork(void) {
    uint64_t all = ~(uint64_t)0, before = 0;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all);
    has_locked_for_fork = __atomic_load_n(&lock.__data.__owner, __ATOMIC_RELAXED) != gettid();
    if (has_locked_for_fork) pthread_mutex_lock(&lock);
    signals_before_fork = before;
    np_guard_lock();
}

static void after_fork(void) {
    uint64_t before = signals_before_fork;
    np_guard_unlock();
    if (has_locked_for_fork) pthread_mutex_unlock(&lock);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
}

/* `exchange` is not held across a fork: an allocator that unmaps under its own lock would wait for the fork, and the fork for that lock. What it keeps apart
 * is single system calls, and whoever exchanges has `lock`. A thread of the parent's that had it is not here. */
static void after_fork_in_child(void) {
    pthread_mutex_init(&exchange, NULL);
    after_fork();
    if (np_settings.by_order) np_orders_watch();
}

static long number_in(const char *name, long otherwise) {
    const char *text = getenv(name);
    char *end = NULL;
    long value = text ? strtol(text, &end, 10) : otherwise;
    return text && (end == text || *end || value < 0) ? otherwise : value;
}

/* Only a folder of the user's own: others could swap code there. */
static const char *own_folder(const char *path) {
    struct stat status;
    bool is_own = path && lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() && !(status.st_mode & 077);
    return is_own && strlen(path) < REMAP_PATH_MAX / 2 ? strdup(path) : NULL;
}

static const char *copy_of_text(const char *name) {
    const char *text = getenv(name);
    return text && *text ? strdup(text) : NULL;
}

__attribute__((constructor)) static void begin(void) {
    int saved = errno;
    find_all();
    np_settings.folder = own_folder(getenv("NUMAPILOT_REPLICATE_FOLDER"));
    if (np_settings.folder) np_settings.shared = copy_of_text("NUMAPILOT_REPLICATE_SHARED");
    np_masks_begin();
    if (np_settings.folder) {
        np_settings.pattern = copy_of_text("NUMAPILOT_REPLICATE_PATTERN");
        np_settings.bytes_min = (size_t)number_in("NUMAPILOT_REPLICATE_MIN_BYTES", BYTES_MIN);
        np_settings.node = (int)number_in("NUMAPILOT_REPLICATE_NODE", -1);
        np_settings.by_order = number_in("NUMAPILOT_REPLICATE_BY_ORDER", 0) == 1;
        pthread_atfork(before_fork, after_fork, after_fork_in_child);
        numapilot_remap_now();
        if (np_settings.by_order) np_orders_watch();
    }
    errno = saved;
}
