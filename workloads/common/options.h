/* Command-line options of the workloads: one table per program, `--name value` or `--name=value`, checked against its limits.
 * A bad option ends the program with status EXIT_USAGE and one line that says what would have been right. */
#ifndef WORKLOADS_OPTIONS_H
#define WORKLOADS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Exit statuses of every workload; 0 is a verified run. */
enum { EXIT_WRONG_RESULT = 1, EXIT_USAGE = 2, EXIT_SYSTEM = 3 };

enum option_kind { OPTION_NUMBER, OPTION_CHOICE, OPTION_FLAG, OPTION_TEXT };

struct option_spec {
    const char *name; /* without the dashes */
    const char *help;
    enum option_kind kind;
    void *value; /* uint64_t, int (index of the choice), bool or const char *, by kind; holds the default */
    uint64_t low, high; /* of a number */
    const char *const *choices; /* ends with NULL */
};

struct program {
    const char *name;
    const char *summary;
    const struct option_spec *options;
    size_t option_count;
};

/* The choices of --size, and their indices. */
extern const char *const size_names[];
enum { SIZE_TEST, SIZE_SMALL, SIZE_MEDIUM, SIZE_LARGE };

/* What every workload takes. */
struct common_options {
    int size;
    int variant;
    uint64_t threads;
    uint64_t seed;
};
#define COMMON_OPTIONS_DEFAULT {SIZE_SMALL, 0, 16, 1}
/* More threads than any machine model has CPUs for is a typing mistake. */
#define THREADS_MAX 1024u

static inline struct option_spec option_number(const char *name, uint64_t *value, uint64_t low, uint64_t high, const char *help) {
    struct option_spec spec = {name, help, OPTION_NUMBER, value, low, high, NULL};
    return spec;
}
static inline struct option_spec option_choice(const char *name, int *value, const char *const *choices, const char *help) {
    struct option_spec spec = {name, help, OPTION_CHOICE, value, 0, 0, choices};
    return spec;
}
static inline struct option_spec option_flag(const char *name, bool *value, const char *help) {
    struct option_spec spec = {name, help, OPTION_FLAG, value, 0, 0, NULL};
    return spec;
}
static inline struct option_spec option_text(const char *name, const char **value, const char *help) {
    struct option_spec spec = {name, help, OPTION_TEXT, value, 0, 0, NULL};
    return spec;
}
static inline struct option_spec option_size(struct common_options *common) {
    return option_choice("size", &common->size, size_names, "preset of the sizes below");
}
static inline struct option_spec option_threads(struct common_options *common) {
    return option_number("threads", &common->threads, 1, THREADS_MAX, "threads that share the work");
}
static inline struct option_spec option_seed(struct common_options *common) {
    return option_number("seed", &common->seed, 0, UINT64_MAX, "seed of everything random; the output depends on it alone");
}

/* --no-verify, which every workload takes: the program ends where its check would begin. The programs that these stand for check nothing, so that is the
 * run whose time compares with theirs. */
extern bool is_unverified;
/* The program's name, once its options are read. */
extern const char *program_name;

/* Reads argv into the table's values. Returns only when all options were good; --help prints the table and exits with 0. */
void options_parse(const struct program *program, int argc, char **argv);

/* Called by fail() before the process ends, if set: removes what would be left behind. */
extern void (*fail_cleanup)(void);

/* Prints `NAME: message` on stderr and ends the process at once with `status`. */
void fail(int status, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));

/* malloc and aligned memory are called where the object is born, so that its line is the program's own; this checks the result. */
void *need_memory(void *memory, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
