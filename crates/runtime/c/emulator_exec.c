/* emulator_exec.c: programs that an emulated program starts are emulated too.
 *
 * The emulator passes exec on to the kernel, which would run the new program natively. So the exec and spawn hooks (process.c) come here: a dynamically linked
 * x86-64 binary, or a script of one, is started as the argument of the emulator instead. Whatever else it is (static, privileged, for another machine) runs
 * natively, as it would from a natively recorded program. No allocation: a forked child may be calling. */
#define _GNU_SOURCE
#include "emulator.h"
#include "exec_target.h"

#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/* NUMAPILOT_EMULATOR=QEMU,PLUGIN: set by the recorder for the first program, kept for all that follow. */
#define VARIABLE "NUMAPILOT_EMULATOR="
char np_emulator_env[2048 + sizeof VARIABLE];
static char qemu[1024], plugin[1024];

void np_emulator_init(const char *value) {
    const char *comma = value == NULL ? NULL : strrchr(value, ',');
    if (comma == NULL || (size_t)(comma - value) >= sizeof qemu || strlen(comma) > sizeof plugin) return;
    memcpy(plugin, comma + 1, strlen(comma));
    memcpy(qemu, value, (size_t)(comma - value));
    memcpy(np_emulator_env, VARIABLE, sizeof VARIABLE - 1);
    memcpy(np_emulator_env + sizeof VARIABLE - 1, value, strlen(value) + 1);
}

static bool is_emulated_binary(int fd, const Elf64_Ehdr *header) {
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_machine != EM_X86_64) return false;
    for (unsigned i = 0; i < header->e_phnum && i < 64; i++) {
        Elf64_Phdr segment;
        if (NP_SYS4(SYS_pread64, fd, &segment, sizeof segment, header->e_phoff + i * sizeof segment) != (long)sizeof segment) return false;
        if (segment.p_type == PT_INTERP) return true;
    }
    return false;
}

/* Looks at `path`: a binary for the emulator, or a script of one. */
static bool look(const char *path, struct np_emulated_program *program, bool is_script) {
    long fd = NP_SYS4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return false;
    union {
        Elf64_Ehdr header;
        char line[sizeof program->line];
    } head;
    memset(&head, 0, sizeof head);
    struct stat status;
    bool plain = NP_SYS2(SYS_fstat, fd, &status) == 0 && S_ISREG(status.st_mode) && !(status.st_mode & (S_ISUID | S_ISGID)) &&
                 NP_SYS4(SYS_faccessat, AT_FDCWD, path, X_OK, 0) == 0 && NP_SYS4(SYS_pread64, fd, &head, sizeof head - 1, 0) > 0;
    bool found = plain && is_emulated_binary((int)fd, &head.header);
    NP_SYS1(SYS_close, fd);
    if (found) program->binary = path;
    if (found || !plain || is_script) return found;
    memcpy(program->line, head.line, sizeof program->line);
    char *interpreter;
    if (!np_script_words(program->line, &interpreter, &program->option) || !look(interpreter, program, true)) return false;
    program->script = path;
    return true;
}

/* This name is the emulator's in the process that it starts. Asked here, where it leads, the emulator answers with the emulated program's path. */
#define SELF "/proc/self/exe"
static const char *own_path(struct np_emulated_program *program) {
    long bytes = NP_SYS4(SYS_readlinkat, AT_FDCWD, SELF, program->own, sizeof program->own);
    if (bytes <= 0 || (size_t)bytes >= sizeof program->own) return NULL;
    program->own[bytes] = 0;
    return program->own;
}

bool np_emulator_takes(const char *path, struct np_emulated_program *program) {
    if (qemu[0] == 0 || path == NULL || strcmp(path, qemu) == 0) return false;
    program->script = program->option = NULL;
    if (strcmp(path, SELF) == 0) path = own_path(program);
    return path != NULL && look(path, program, false);
}

int np_emulator_run(const struct np_emulated_program *program, char *const arguments[], char *const environment[], const char *preload,
                    np_runner run, const void *context) {
    size_t count = 0, variables = 0, at = 0, kept = 0;
    while (arguments != NULL && arguments[count] != NULL) count++;
    while (environment != NULL && environment[variables] != NULL) variables++;
    const char *line[count + 12];
    char *list[variables + 1];
    line[at++] = qemu;
    line[at++] = "-plugin";
    line[at++] = plugin;
    /* QEMU separates variables by commas: then the program runs emulated, and unrecorded. */
    if (preload != NULL && strchr(preload, ',') == NULL) {
        line[at++] = "-E";
        line[at++] = preload;
    }
    line[at++] = "-0";
    line[at++] = program->script != NULL || count == 0 ? program->binary : arguments[0];
    line[at++] = program->binary;
    if (program->option != NULL) line[at++] = program->option;
    if (program->script != NULL) line[at++] = program->script;
    for (size_t i = 1; i < count; i++) line[at++] = arguments[i];
    line[at] = NULL;
    for (size_t i = 0; i < variables; i++)
        if (strncmp(environment[i], "LD_PRELOAD=", 11) != 0) list[kept++] = environment[i];
    list[kept] = NULL;
    return run(context, qemu, (char *const *)(uintptr_t)line, list);
}
