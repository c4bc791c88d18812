/* Parsing, checking and printing of the workloads' options. */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const size_names[] = {"test", "small", "medium", "large", NULL};

void (*fail_cleanup)(void);
const char *program_name = "workload";
bool is_unverified;

void fail(int status, const char *format, ...) {
    char message[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    fprintf(stderr, "%s: %s\n", program_name, message);
    fflush(NULL);
    if (fail_cleanup) fail_cleanup();
    /* exit() would run destructors under threads that are still at work. */
    _exit(status);
}

void *need_memory(void *memory, size_t bytes) {
    if (!memory) fail(EXIT_SYSTEM, "cannot allocate %zu bytes; choose a smaller --size", bytes);
    return memory;
}

static void join_choices(char *text, size_t room, const char *const *choices) {
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; choices[i] && used < room; i++) {
        used += (size_t)snprintf(text + used, room - used, "%s%s", i ? "|" : "", choices[i]);
    }
}

static void print_help(const struct program *program) {
    printf("%s: %s\n\nUsage: %s [options]\n\nOptions:\n", program->name, program->summary, program->name);
    for (size_t i = 0; i < program->option_count; i++) {
        const struct option_spec *spec = &program->options[i];
        char left[256], choices[200] = "";
        switch (spec->kind) {
        case OPTION_NUMBER:
            snprintf(left, sizeof left, "--%s N", spec->name);
            printf("  %-34s %s", left, spec->help);
            if (*(uint64_t *)spec->value) printf(" [%" PRIu64 "]", *(uint64_t *)spec->value);
            break;
        case OPTION_CHOICE:
            join_choices(choices, sizeof choices, spec->choices);
            snprintf(left, sizeof left, "--%s %s", spec->name, choices);
            printf("  %-34s %s [%s]", left, spec->help, spec->choices[*(int *)spec->value]);
            break;
        case OPTION_FLAG:
            snprintf(left, sizeof left, "--%s", spec->name);
            printf("  %-34s %s", left, spec->help);
            break;
        case OPTION_TEXT:
            snprintf(left, sizeof left, "--%s TEXT", spec->name);
            printf("  %-34s %s", left, spec->help);
            break;
        }
        putchar('\n');
    }
    printf("  %-34s %s\n", "--no-verify", "end where the check of the result would begin");
    printf("  %-34s %s\n", "--help", "this text");
    printf("\nExit status: 0 verified result, %d wrong result, %d bad option, %d the system refused something\n", EXIT_WRONG_RESULT,
           EXIT_USAGE, EXIT_SYSTEM);
}

static void set_number(const struct option_spec *spec, const char *text) {
    char *end = NULL;
    errno = 0;
    /* strtoull takes "-1" for 2^64 - 1, and blanks: only digits are a number here. */
    uint64_t number = isdigit((unsigned char)text[0]) ? strtoull(text, &end, 10) : 0;
    if (!end || *end || errno) fail(EXIT_USAGE, "--%s takes a whole number, not `%s`", spec->name, text);
    if (number < spec->low || number > spec->high) {
        fail(EXIT_USAGE, "--%s must lie between %" PRIu64 " and %" PRIu64 ", not %s", spec->name, spec->low, spec->high, text);
    }
    *(uint64_t *)spec->value = number;
}

static void set_choice(const struct option_spec *spec, const char *text) {
    for (int i = 0; spec->choices[i]; i++) {
        if (!strcmp(spec->choices[i], text)) {
            *(int *)spec->value = i;
            return;
        }
    }
    char choices[200];
    join_choices(choices, sizeof choices, spec->choices);
    fail(EXIT_USAGE, "--%s must be one of %s, not `%s`", spec->name, choices, text);
}

static const struct option_spec *find(const struct program *program, const char *name, size_t length) {
    for (size_t i = 0; i < program->option_count; i++) {
        const char *candidate = program->options[i].name;
        if (strlen(candidate) == length && !memcmp(candidate, name, length)) return &program->options[i];
    }
    return NULL;
}

void options_parse(const struct program *program, int argc, char **argv) {
    program_name = program->name;
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        if (!strcmp(argument, "--help") || !strcmp(argument, "-h")) {
            print_help(program);
            exit(0);
        }
        if (!strcmp(argument, "--no-verify")) {
            is_unverified = true;
            continue;
        }
        const char *equals = strchr(argument, '=');
        size_t length = equals ? (size_t)(equals - argument) : strlen(argument);
        const struct option_spec *spec =
            length > 2 && !strncmp(argument, "--", 2) ? find(program, argument + 2, length - 2) : NULL;
        if (!spec) fail(EXIT_USAGE, "no such option: `%s` (--help lists them)", argument);
        if (spec->kind == OPTION_FLAG) {
            if (equals) fail(EXIT_USAGE, "--%s takes no value", spec->name);
            *(bool *)spec->value = true;
            continue;
        }
        const char *value = equals ? equals + 1 : argv[++i]; /* argv ends with NULL */
        if (!value || !*value) fail(EXIT_USAGE, "--%s needs a value", spec->name);
        if (spec->kind == OPTION_NUMBER) set_number(spec, value);
        if (spec->kind == OPTION_CHOICE) set_choice(spec, value);
        if (spec->kind == OPTION_TEXT) *(const char **)spec->value = value;
    }
}
