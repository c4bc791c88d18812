/* plan_exec.c: programs that this one starts: those that cannot be given the planner run without it, as without a plan, and are counted (exec_target.c). The
 * others have the plan, too, also in an environment of the program's making. */
#define _GNU_SOURCE
#include "confined.h"
#include "exec_target.h"
#include "plan.h"

#include <spawn.h>
#include <string.h>
#include <unistd.h>

/* What a program that this one starts needs for the plan. */
static struct np_exec_needs own_needs(void) {
    return (struct np_exec_needs){.libraries = {np_own_path}, .variables = {np_plan_environment}};
}

static size_t missing_bytes(char *const *environment, const struct np_exec_needs *needs) {
    return np_plan_is_there() && np_own_path[0] != 0 && np_plan_environment[0] != 0 ? np_exec_missing_bytes(environment, needs) : 0;
}

/* Declares `kept`: `given`, or a copy of it on this function's stack: completed where the program has made an environment of its own, without this library for
 * a program that cannot load it. */
#define KEEP(given, program)                                                 \
    enum np_exec_fit fit_ = np_exec_fit_of(program);                         \
    bool strips_ = np_exec_must_strip(fit_);                                 \
    struct np_exec_needs needs_ = own_needs();                               \
    size_t bytes_ = strips_ ? np_exec_strip_bytes(given) : missing_bytes(given, &needs_); \
    char preload_[bytes_ + 1];                                               \
    char *list_[bytes_ != 0 ? np_exec_list_length(given) + NP_EXEC_ADDED : 1]; \
    char *const *kept = (given);                                             \
    if (bytes_ != 0) {                                                       \
        if (strips_) np_exec_strip((given), list_, preload_);                \
        else np_exec_complete((given), &needs_, list_, preload_);            \
        kept = list_;                                                        \
    }                                                                        \
    if (fit_ != NP_EXEC_FITS && np_plan_is_there()) np_plan_count(&np_plan->unplaced_programs, 1)

/* Whether a confined child left its parent's memory. */
static bool leaves(void) {
    np_plan_all_counted();
    return np_confined_child_leaves();
}

static int not_executed(bool left, int result) {
    np_confined_child_stays(left);
    return result;
}

NP_EXPORT int execve(const char *path, char *const arguments[], char *const environment[]) {
    KEEP(environment, path);
    bool left = leaves();
    return not_executed(left, NP_REAL(execve)(path, arguments, kept));
}

NP_EXPORT int execvpe(const char *file, char *const arguments[], char *const environment[]) {
    char room[1024];
    KEEP(environment, np_exec_find(file, room, sizeof room));
    bool left = leaves();
    return not_executed(left, NP_REAL(execvpe)(file, arguments, kept));
}

NP_EXPORT int fexecve(int fd, char *const arguments[], char *const environment[]) {
    char path[32];
    KEEP(environment, np_exec_path_of_fd(fd, path));
    bool left = leaves();
    return not_executed(left, NP_REAL(fexecve)(fd, arguments, kept));
}

NP_EXPORT int execveat(int fd, const char *path, char *const arguments[], char *const environment[], int flags) {
    char room[1024];
    KEEP(environment, np_exec_path_at(fd, path, room, sizeof room));
    bool left = leaves();
    long result = np_sys(SYS_execveat, fd, (long)path, (long)arguments, (long)kept, flags, 0);
    errno = (int)-result;
    return not_executed(left, -1);
}

NP_EXPORT int posix_spawn(pid_t *restrict pid, const char *restrict path, const posix_spawn_file_actions_t *restrict actions,
                          const posix_spawnattr_t *restrict attributes, char *const arguments[restrict], char *const environment[restrict]) {
    KEEP(environment, path);
    return NP_REAL(posix_spawn)(pid, path, actions, attributes, arguments, kept);
}

NP_EXPORT int posix_spawnp(pid_t *restrict pid, const char *restrict file, const posix_spawn_file_actions_t *restrict actions,
                           const posix_spawnattr_t *restrict attributes, char *const arguments[restrict], char *const environment[restrict]) {
    char room[1024];
    KEEP(environment, np_exec_find(file, room, sizeof room));
    return NP_REAL(posix_spawnp)(pid, file, actions, attributes, arguments, kept);
}
