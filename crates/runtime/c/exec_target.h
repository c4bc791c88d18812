/* exec_target.h: whether a program that is about to be started can be given a library of ours (exec_target.c). Tracker and planner have it. */
#ifndef NUMAPILOT_EXEC_TARGET_H
#define NUMAPILOT_EXEC_TARGET_H

#include <stdbool.h>
#include <stddef.h>

#pragma GCC visibility push(hidden)

/* This library's loader and what it needs of the C library; at start. */
void np_exec_init(void);
/* What a program can do with this library. */
enum np_exec_fit {
    NP_EXEC_FITS,    /* its loader loads us; or its file shows nothing: the system will refuse it, or run it by a shell */
    NP_EXEC_STATIC,  /* it loads nothing itself; what it starts may */
    NP_EXEC_FOREIGN, /* its loader cannot load us, or the program ends where it does (sanitizers) */
    NP_EXEC_CLOSED,  /* its loader ignores us (set-user-ID), or may not or cannot open our file: another user, another root folder; or this process has put
                      * itself under a seccomp filter, which stays */
};
/* Of the program at `path`. No allocation: a child that shares its parent's memory may be calling. */
enum np_exec_fit np_exec_fit_of(const char *path);
/* Whether our name has to leave its environment. */
static inline bool np_exec_must_strip(enum np_exec_fit fit) { return fit == NP_EXEC_FOREIGN || fit == NP_EXEC_CLOSED; }
/* The file that a name means to execvp; `path` has room for it. NULL: none. */
const char *np_exec_find(const char *file, char *path, size_t size);
/* "/proc/self/fd/N", in `path` (of 32 bytes). */
const char *np_exec_path_of_fd(int fd, char *path);
/* What execveat is to run; `room` is for where it lies. */
const char *np_exec_path_at(int fd, const char *path, char *room, size_t size);
/* The interpreter of "#!interpreter option" and its option, in place. False: no such line. */
bool np_script_words(char *line, char **interpreter, char **option);

/* The environment without this library: the bytes that a new LD_PRELOAD needs; 0: it is not in there. */
size_t np_exec_strip_bytes(char *const *environment);
/* `list` has room for all of the environment and its NULL, `preload` for the bytes. */
void np_exec_strip(char *const *environment, char **list, char *preload);
/* What libraries of ours need in the environment of a program which is to have them, too. */
struct np_exec_needs {
    const char *libraries[2]; /* in LD_PRELOAD, in this order, before others; NULL: none */
    char *variables[3];       /* "NAME=value"; NULL: none */
};
/* The bytes that a new LD_PRELOAD needs; 0: the environment has all of this. */
size_t np_exec_missing_bytes(char *const *environment, const struct np_exec_needs *needs);
/* `list` has room for all of the environment and NP_EXEC_ADDED more, `preload` for the bytes. */
#define NP_EXEC_ADDED 5
void np_exec_complete(char *const *environment, const struct np_exec_needs *needs, char **list, char *preload);
size_t np_exec_list_length(char *const *list);
const char *np_exec_entry(char *const *list, const char *prefix);

#pragma GCC visibility pop

/* Declares `arguments`, the argument vector of a variable-argument exec, and leaves `rest` behind its NULL. */
#define NP_EXEC_COLLECT(first)                                               \
    char *first_ = (char *)(uintptr_t)(first);                               \
    __asm__("" : "+r"(first_)); /* declared non-null, and yet null is an empty vector */ \
    va_list rest;                                                            \
    va_start(rest, first);                                                   \
    size_t count_ = first_ == NULL ? 0 : np_exec_count_arguments(rest);      \
    va_end(rest);                                                            \
    char *arguments[count_ + 1];                                             \
    arguments[0] = first_;                                                   \
    va_start(rest, first);                                                   \
    for (size_t i_ = 1; i_ <= count_; i_++) arguments[i_] = va_arg(rest, char *)

#define NP_EXEC_COUNTER                                                      \
    static size_t np_exec_count_arguments(va_list list) {                    \
        size_t count = 1;                                                    \
        while (va_arg(list, char *) != NULL) count++;                        \
        return count;                                                        \
    }

#endif
