/* exec_list.c: the forms of exec that take the process's own environment, or their arguments one by one: all go on to the hooks of execve and execvpe. Part of
 * the tracker and of the planner. */
#define _GNU_SOURCE
#include "exec_target.h"
#include "np.h"

#include <stdarg.h>
#include <unistd.h>

NP_EXPORT int execv(const char *path, char *const arguments[]) {
    return execve(path, arguments, environ);
}

NP_EXPORT int execvp(const char *file, char *const arguments[]) {
    return execvpe(file, arguments, environ);
}

NP_EXEC_COUNTER

NP_EXPORT int execl(const char *path, const char *first, ...) {
    NP_EXEC_COLLECT(first);
    va_end(rest);
    return execve(path, arguments, environ);
}

NP_EXPORT int execlp(const char *file, const char *first, ...) {
    NP_EXEC_COLLECT(first);
    va_end(rest);
    return execvpe(file, arguments, environ);
}

NP_EXPORT int execle(const char *path, const char *first, ...) {
    NP_EXEC_COLLECT(first);
    char *const *environment = va_arg(rest, char *const *);
    va_end(rest);
    return execve(path, arguments, environment);
}
