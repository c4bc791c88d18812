/* process.c: processes: their parents, fork, exec, exit.
 *
 * A forked child inherits the arena's mapping and everything in memory, but gets a process and a slot of its own before anything else of it is
 * recorded. A program that replaces itself (exec) is recorded by its new image, which finds its old self in the arena by number. Children
 * find the tracker and the arena through their environment, which the exec hooks complete without allocating.
 */
#define _GNU_SOURCE
#include "confined.h"
#include "emulator.h"
#include "exec_target.h"
#include "syscalls.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXE_MAX 1024
#define LINE_MAX_BYTES 3072

static int quick_status;

/* -- start and end -- */

/* exe and command line in one buffer; static, because starting is single-threaded and stacks may be small. */
static char start_text[EXE_MAX + LINE_MAX_BYTES];

static size_t read_start_text(size_t *exe_bytes) {
    static size_t exe_read, line_read;
    if (np_is_confined) { /* a child: its parent's are still there */
        *exe_bytes = exe_read;
        return line_read;
    }
    long got = NP_SYS4(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", start_text, EXE_MAX);
    *exe_bytes = exe_read = got > 0 ? (size_t)got : 0;
    size_t limit = np_arena->ring_bytes / 8 < LINE_MAX_BYTES ? np_arena->ring_bytes / 8 : LINE_MAX_BYTES, bytes = 0;
    long fd = NP_SYS4(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return 0;
    while (bytes < limit && (got = NP_SYS3(SYS_read, fd, start_text + EXE_MAX + bytes, limit - bytes)) > 0) bytes += (size_t)got;
    NP_SYS1(SYS_close, fd);
    return line_read = bytes;
}

void np_process_start(struct np_slot *slot, uint64_t order, uint32_t parent_index, bool by_exec) {
    size_t exe_bytes, line_bytes = read_start_text(&exe_bytes);
    unsigned exe_words = np_words_for(exe_bytes), count = 5 + exe_words + np_words_for(line_bytes);
    uint64_t *words = np_begin(slot, NP_REC_PROCESS_START, slot->process_index, count, order != 0 ? order : np_order());
    if (words == NULL) return;
    words[2] = slot->pid | (np_is_confined ? 0 : (uint64_t)NP_SYS0(SYS_getppid)) << 32;
    words[3] = exe_bytes | (uint64_t)line_bytes << 32;
    words[4] = parent_index | (uint64_t)by_exec << 32;
    np_put_bytes(words + 5, start_text, exe_bytes);
    np_put_bytes(words + 5 + exe_words, start_text + EXE_MAX, line_bytes);
    np_commit(slot, count);
}

static void put_process_end(struct np_slot *slot, uint32_t index, uint32_t kind, int code) {
    uint64_t *words = np_begin(slot, NP_REC_PROCESS_END, index, 3, np_order());
    if (words == NULL) return;
    words[2] = kind | (uint64_t)(uint32_t)code << 32;
    np_commit(slot, 3);
}

/* Numbers of processes mean something in one namespace only. Where it is not to be found out, they are taken to be of the same. */
static bool is_of_namespace(const struct np_slot *slot, uint32_t namespace) {
    uint32_t its = np_load(slot->pid_namespace);
    return its == namespace || its == 0 || namespace == 0;
}

void np_find_pid_namespace(void) {
    struct stat status;
    if (!np_is_confined && NP_SYS4(SYS_newfstatat, AT_FDCWD, "/proc/self/ns/pid", &status, 0) == 0) np_pid_namespace = (uint32_t)status.st_ino;
}

/* Whether a process has a live thread under another number than `pid`: then a clone into its memory has that number, and by its exec the process goes on. */
static bool lives_elsewhere(uint32_t process_index, uint32_t pid) {
    uint64_t high = __atomic_load_n(&np_arena->slots_high, __ATOMIC_ACQUIRE);
    for (uint64_t index = 0; index < high; index++) {
        struct np_slot *slot = np_slot_at(index);
        if (__atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) == NP_SLOT_LIVE && np_load(slot->process_index) == process_index
            && np_load(slot->pid) != pid) return true;
    }
    return false;
}

/* The process that this one was before exec, whose slots no other process will close; its index, or NP_NONE32. */
static uint32_t close_old_image(const struct np_slot *own) {
    uint32_t found = NP_NONE32;
    uint64_t high = __atomic_load_n(&np_arena->slots_high, __ATOMIC_ACQUIRE);
    for (uint64_t index = 0; index < high; index++) {
        struct np_slot *slot = np_slot_at(index);
        if (slot == own || np_load(slot->pid) != own->pid || np_load(slot->process_index) == own->process_index) continue;
        if (!is_of_namespace(slot, own->pid_namespace)) continue;
        uint32_t expected = NP_SLOT_LIVE;
        uint32_t old_index = np_load(slot->process_index);
        if (!__atomic_compare_exchange_n(&slot->state, &expected, NP_SLOT_CLOSED, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) continue;
        np_vtime_abandoned(slot);
        if (!lives_elsewhere(old_index, own->pid)) found = old_index;
    }
    return found;
}

/* 0: the parent is in another namespace, and has no number in this one. */
static uint32_t process_of_pid(uint32_t pid) {
    if (pid == 0) return NP_NONE32;
    uint64_t high = __atomic_load_n(&np_arena->slots_high, __ATOMIC_ACQUIRE);
    for (uint64_t index = 0; index < high; index++) {
        struct np_slot *slot = np_slot_at(index);
        if (np_load(slot->pid) != pid || !is_of_namespace(slot, np_pid_namespace)) continue;
        if (__atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) == NP_SLOT_LIVE) return np_load(slot->process_index);
    }
    return NP_NONE32;
}

/* The thread of a process that said it was about to start a program, else its first one. `clock`: that thread's, or the latest of the process. */
static struct np_slot *starter_of(uint32_t pid, uint64_t *clock) {
    struct np_slot *starter = NULL, *first = NULL;
    uint64_t high = __atomic_load_n(&np_arena->slots_high, __ATOMIC_ACQUIRE), latest = 0, launched = 0;
    for (uint64_t index = 0; index < high; index++) {
        struct np_slot *slot = np_slot_at(index);
        if (np_load(slot->pid) != pid || __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) != NP_SLOT_LIVE) continue;
        if (!is_of_namespace(slot, np_pid_namespace)) continue;
        uint64_t its_clock = np_clock_of(slot), its_launch = np_load(np_scratch(slot)->launched);
        if (its_clock > latest) latest = its_clock;
        if (first == NULL || np_load(slot->tid) == pid) first = slot;
        if (its_launch <= launched) continue;
        launched = its_launch;
        starter = slot;
    }
    *clock = starter != NULL ? np_clock_of(starter) : latest;
    return starter != NULL ? starter : first;
}

void np_process_heritage(struct np_birth *birth) {
    if (np_track_only) return;
    __atomic_store_n(&np_cycles_per_access_q8, np_arena->config.cycles_per_access_q8, __ATOMIC_RELAXED); /* of which clocks are made */
    birth->heir_of = starter_of((uint32_t)NP_SYS0(SYS_getpid), &birth->creator_clock);
    if (birth->heir_of == NULL) birth->heir_of = starter_of((uint32_t)NP_SYS0(SYS_getppid), &birth->creator_clock);
}

void np_process_begin_image(struct np_slot *slot) {
    uint32_t old = close_old_image(slot);
    if (old != NP_NONE32) put_process_end(slot, old, 1, 0);
    uint32_t parent = old != NP_NONE32 ? old : process_of_pid((uint32_t)NP_SYS0(SYS_getppid));
    np_process_start(slot, 0, parent, old != NP_NONE32);
}

/* -- fork -- */

uint64_t np_raw_fork_order;

static void before_fork(void) {
    np_pages_forked();
    np_tell_callouts(NULL);
    np_tls.fork_order = np_order_kept();
}

/* Else a later fork without handlers would be taken to have been made then. */
static void after_fork_in_parent(void) {
    np_tls.fork_order = 0;
    if (np_load(np_arena) != NULL) np_pages_inherited();
    np_tell_callouts(np_tls.phase == NP_PHASE_LIVE && !np_load(np_tls_is_shared) ? np_tls.slot : NULL);
}

/* The child's only thread has the number of its process. */
static uint32_t own_pid_of_child(void) { return np_is_confined ? np_own_tid() : (uint32_t)NP_SYS0(SYS_getpid); }

void np_process_after_fork(void) {
    if (np_load(np_arena) == NULL || (*np_fork_canary && np_tls.forked_pid == own_pid_of_child())) return;
    int saved = errno;
    struct np_tls *tls = &np_tls;
    struct np_slot *parent = tls->slot;
    struct np_birth birth = {.parent_thread = NP_NONE32, .order = tls->fork_order != 0 ? tls->fork_order : np_raw_fork_order};
    if (birth.order == 0) birth.order = np_order();
    if (parent != NULL) {
        birth.parent_thread = parent->thread_index;
        birth.creator_clock = np_track_only ? 0 : np_stamp_clock(parent);
    }
    uint32_t parent_index = np_process_index;
    *np_fork_canary = 1;
    tls->forked_pid = own_pid_of_child();
    np_pages_forked();
    np_find_pid_namespace();
    tls->slot = NULL;
    memcpy(birth.name, tls->name, sizeof birth.name); /* a child has its parent's */
    memset(tls->name, 0, sizeof tls->name);
    np_store(tls->has_new_name, false);
    np_thread_after_fork();
    np_modules_after_fork();
    np_limit_after_fork();
    np_process_index = __atomic_fetch_add(&np_arena->next_process_index, 1, __ATOMIC_RELAXED);
    struct np_slot *slot = np_thread_begin(&birth);
    if (slot != NULL && slot->stack_hi == 0 && parent != NULL) { /* the mappings were not to be looked at */
        slot->stack_lo = parent->stack_lo;
        slot->stack_hi = parent->stack_hi;
    }
    if (slot != NULL) {
        slot->in_hook = 1;
        /* Its memory is its parent's as of the fork: what the parent has done since (it does not wait for us) is not in it. */
        np_process_start(slot, birth.order, parent_index, false);
        np_pages_inherited();
        slot->in_hook = 0;
    }
    tls->fork_order = np_raw_fork_order = 0;
    errno = saved;
}

/* -- exit -- */

/* The system is about to end the process' other threads, wherever they are. */
static void abandon_threads(const struct np_slot *own) {
    uint64_t high = __atomic_load_n(&np_arena->slots_high, __ATOMIC_ACQUIRE);
    for (uint64_t index = 0; index < high; index++) {
        struct np_slot *slot = np_slot_at(index);
        if (slot != own && np_load(slot->process_index) == own->process_index
            && __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) == NP_SLOT_LIVE) np_vtime_abandoned(slot);
    }
}

/* Possibly in a signal handler: takes no lock of the loader's. A record that it interrupts is never finished, and never missed. */
static void at_end(int code) {
    struct np_slot *slot = np_tls.slot;
    if (slot == NULL || !*np_fork_canary) return;
    np_guard(slot);
    np_counters(slot, true);
    put_process_end(slot, slot->process_index, 0, code);
    abandon_threads(slot);
    np_thread_end(false);
}

static void on_process_exit(int code, void *unused) {
    (void)unused;
    struct np_slot *slot = np_self_if_live();
    if (slot != NULL && np_enter(slot)) {
        np_modules_scan(slot);
        np_leave(slot);
    }
    at_end(code);
}

static void on_quick_exit(void) {
    at_end(quick_status);
}

void np_process_init(void) {
    pthread_atfork(before_fork, after_fork_in_parent, np_process_after_fork);
    /* Registered before the loader's own handler, hence run after every other library's destructors. */
    on_exit(on_process_exit, NULL);
    at_quick_exit(on_quick_exit);
}

NP_EXPORT __attribute__((noreturn)) void quick_exit(int status) {
    quick_status = status;
    NP_REAL(quick_exit)(status);
    __builtin_unreachable();
}

/* A vfork child leaves this way too, in its parent's memory: it has nothing to end. */
static bool is_own_process(void) {
    return np_tls.slot != NULL && (np_is_confined ? !np_child_is_confined : np_tls.slot->pid == (uint32_t)NP_SYS0(SYS_getpid));
}

NP_EXPORT __attribute__((noreturn)) void _exit(int status) {
    np_planner_ends();
    if (is_own_process()) at_end(status);
    np_confined_child_leaves();
    NP_SYS1(SYS_exit_group, status);
    __builtin_trap();
}

NP_EXPORT __attribute__((noreturn)) void _Exit(int status) {
    np_planner_ends();
    if (is_own_process()) at_end(status);
    np_confined_child_leaves();
    NP_SYS1(SYS_exit_group, status);
    __builtin_trap();
}

/* -- exec and spawn: children keep the tracker even in an environment of the program's making -- */

/* For recording, and for a plan. */
static struct np_exec_needs own_needs(void) {
    struct np_exec_needs needs = {.libraries = {np_own_path}, .variables = {np_arena_env, np_emulator_env[0] != 0 ? np_emulator_env : NULL}};
    np_planner_needs(&needs);
    return needs;
}

static size_t missing_bytes(char *const *environment, const struct np_exec_needs *needs) {
    return np_load(np_arena) == NULL || np_own_path[0] == 0 ? 0 : np_exec_missing_bytes(environment, needs);
}

/* The program runs as it would without us; the recorder says so. */
static void note_unrecorded(const char *path, enum np_exec_fit fit) {
    if (np_load(np_arena) == NULL || path == NULL || fit == NP_EXEC_FITS) return;
    struct np_arena *arena = np_arena;
    uint32_t none = 0, why = (uint32_t)fit - NP_EXEC_STATIC;
    if (__atomic_compare_exchange_n(&arena->unrecorded_named[why], &none, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
        memcpy(arena->unrecorded_name[why], path, strnlen(path, sizeof arena->unrecorded_name[why] - 1));
        __atomic_store_n(&arena->unrecorded_named[why], 2, __ATOMIC_RELEASE);
    }
    __atomic_fetch_add(&arena->unrecorded_programs[why], 1, __ATOMIC_RELEASE);
}

/* Declares `completed`: `given`, or a copy of it on this function's stack (no allocation: a vfork child may be calling): completed for a program that can be
 * recorded, without this library for one that cannot load it. `fit_`: which it is. */
#define COMPLETE(given, program)                                             \
    enum np_exec_fit fit_ = np_exec_fit_of(program);                         \
    bool strips_ = np_exec_must_strip(fit_);                                 \
    struct np_exec_needs needs_ = own_needs();                               \
    size_t preload_size_ = strips_ ? np_exec_strip_bytes(given) : missing_bytes(given, &needs_); \
    char preload_[preload_size_ + 1];                                        \
    char *list_[preload_size_ != 0 ? np_exec_list_length(given) + NP_EXEC_ADDED : 1]; \
    char *const *completed = (given);                                        \
    if (preload_size_ != 0) {                                                \
        if (strips_) np_exec_strip((given), list_, preload_);                \
        else np_exec_complete((given), &needs_, list_, preload_);            \
        completed = list_;                                                   \
    }                                                                        \
    note_unrecorded(program, fit_)

/* Also in a vfork child, which has its parent's slot. */
static void before_launch(void) {
    struct np_slot *slot = np_tls.slot;
    if (slot != NULL && *np_fork_canary) np_store(np_scratch(slot)->launched, np_order());
}

/* Whether a confined child left its parent's memory, for not_executed. */
static bool before_exec(void) {
    struct np_slot *slot = is_own_process() ? np_self() : NULL;
    if (slot != NULL) np_counters(slot, true);
    before_launch();
    np_planner_ends();
    np_limit_before_exec();
    return np_confined_child_leaves();
}

static int not_executed(bool left, int result) {
    np_confined_child_stays(left);
    np_limit_exec_failed();
    return result;
}

static int exec_now(const void *context, const char *path, char *const arguments[], char *const environment[]) {
    (void)context;
    return NP_REAL(execve)(path, arguments, environment);
}

NP_EXPORT int execve(const char *path, char *const arguments[], char *const environment[]) {
    COMPLETE(environment, path);
    bool left = before_exec();
    struct np_emulated_program program;
    if (!strips_ && np_emulator_takes(path, &program))
        return not_executed(left, np_emulator_run(&program, arguments, completed, np_exec_entry(completed, "LD_PRELOAD="), exec_now, NULL));
    return not_executed(left, NP_REAL(execve)(path, arguments, completed));
}

NP_EXPORT int execvpe(const char *file, char *const arguments[], char *const environment[]) {
    char room[1024];
    const char *found = np_exec_find(file, room, sizeof room);
    COMPLETE(environment, found);
    bool left = before_exec();
    struct np_emulated_program program;
    if (!strips_ && np_emulator_takes(found, &program))
        return not_executed(left, np_emulator_run(&program, arguments, completed, np_exec_entry(completed, "LD_PRELOAD="), exec_now, NULL));
    return not_executed(left, NP_REAL(execvpe)(file, arguments, completed));
}

NP_EXPORT int fexecve(int fd, char *const arguments[], char *const environment[]) {
    char path[32];
    COMPLETE(environment, np_exec_path_of_fd(fd, path));
    bool left = before_exec();
    return not_executed(left, NP_REAL(fexecve)(fd, arguments, completed));
}

NP_EXPORT int execveat(int fd, const char *path, char *const arguments[], char *const environment[], int flags) {
    char room[1024];
    COMPLETE(environment, np_exec_path_at(fd, path, room, sizeof room));
    bool left = before_exec();
    long result = np_sys(SYS_execveat, fd, (long)path, (long)arguments, (long)completed, flags, 0);
    errno = (int)-result;
    return not_executed(left, -1);
}

NP_OWN(execve);
NP_OWN(execveat);

NP_HIDDEN long np_syscall_exec(long number, long a, long b, long c, long d, long e) {
    if (number == SYS_execve) return np_own_execve((const char *)a, (char *const *)b, (char *const *)c);
    return np_own_execveat((int)a, (const char *)b, (char *const *)c, (char *const *)d, (int)e);
}

struct spawn {
    pid_t *pid;
    const posix_spawn_file_actions_t *actions;
    const posix_spawnattr_t *attributes;
};

static int spawn_now(const void *context, const char *path, char *const arguments[], char *const environment[]) {
    const struct spawn *spawn = context;
    return NP_REAL(posix_spawn)(spawn->pid, path, spawn->actions, spawn->attributes, arguments, environment);
}

NP_EXPORT int posix_spawn(pid_t *restrict pid, const char *restrict path, const posix_spawn_file_actions_t *restrict actions,
                          const posix_spawnattr_t *restrict attributes, char *const arguments[restrict], char *const environment[restrict]) {
    COMPLETE(environment, path);
    struct np_emulated_program program;
    struct spawn spawn = {pid, actions, attributes};
    before_launch();
    if (!strips_ && np_emulator_takes(path, &program))
        return np_emulator_run(&program, arguments, completed, np_exec_entry(completed, "LD_PRELOAD="), spawn_now, &spawn);
    return NP_REAL(posix_spawn)(pid, path, actions, attributes, arguments, completed);
}

NP_EXPORT int posix_spawnp(pid_t *restrict pid, const char *restrict file, const posix_spawn_file_actions_t *restrict actions,
                           const posix_spawnattr_t *restrict attributes, char *const arguments[restrict], char *const environment[restrict]) {
    char room[1024];
    const char *found = np_exec_find(file, room, sizeof room);
    COMPLETE(environment, found);
    struct np_emulated_program program;
    struct spawn spawn = {pid, actions, attributes};
    before_launch();
    if (!strips_ && np_emulator_takes(found, &program))
        return np_emulator_run(&program, arguments, completed, np_exec_entry(completed, "LD_PRELOAD="), spawn_now, &spawn);
    return NP_REAL(posix_spawnp)(pid, file, actions, attributes, arguments, completed);
}
