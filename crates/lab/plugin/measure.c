/* measure.c: runs a command in the guest as the region of interest: `measure begin|marked COMMAND ARGUMENTS...`. Its own accesses are not counted; with
 * `marked`, only what the command itself marks is.
 *
 * Before, it lets the plugin find the running task (mark.h): the offset of the kernel's pointer to it from kallsyms, those of its numbers from BTF
 * (Documentation/bpf/btf.rst). Where it cannot, processes stay unknown, and it says so. */
#define _GNU_SOURCE
#include "mark.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SYMBOLS "/proc/kallsyms"
#define TYPES "/sys/kernel/btf/vmlinux"

/* ---- kallsyms: `pcpu_hot` begins with the pointer from 6.2 to 6.14; before and after it is `current_task` ---- */

static bool find_current(uint64_t *offset) {
    char line[512], name[256], kind;
    unsigned long long value;
    bool found = false;
    FILE *file = fopen(SYMBOLS, "r");
    if (file == NULL) return false;
    while (!found && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "%llx %c %255s", &value, &kind, name) != 3) continue;
        found = strcmp(name, "pcpu_hot") == 0 || strcmp(name, "current_task") == 0;
    }
    fclose(file);
    *offset = value;
    return found;
}

/* ---- BTF ---- */

struct btf_header {
    uint16_t magic;
    uint8_t version, flags;
    uint32_t header_bytes, types_offset, types_bytes, names_offset, names_bytes;
};
struct btf_type {
    uint32_t name, info, size;
};
struct btf_member {
    uint32_t name, type, offset;
};
enum { BTF_MAGIC = 0xeb9f, KIND_STRUCT = 4 };

/* Bytes that follow a type: by its kind, per member and once. */
static const struct {
    uint8_t each, once;
} extra[32] = {[1] = {0, 4},  [3] = {0, 12}, [4] = {12, 0},  [5] = {12, 0}, [6] = {8, 0},
               [13] = {8, 0}, [14] = {0, 4}, [15] = {12, 0}, [17] = {0, 4}, [19] = {12, 0}};

static uint8_t *read_types(size_t *size) {
    FILE *file = fopen(TYPES, "r");
    size_t room = 64u << 20;
    uint8_t *bytes = file == NULL ? NULL : malloc(room);
    *size = bytes == NULL ? 0 : fread(bytes, 1, room, file);
    if (file != NULL) fclose(file);
    return bytes;
}

static bool member_offsets(const uint8_t *members, unsigned count, const char *names, uint32_t names_bytes, struct np_mark_kernel *kernel) {
    unsigned found = 0;
    for (unsigned i = 0; i < count; i++) {
        struct btf_member member;
        memcpy(&member, members + i * sizeof member, sizeof member);
        if (member.name >= names_bytes) return false;
        uint32_t *into = strcmp(names + member.name, "pid") == 0 ? &kernel->tid : strcmp(names + member.name, "tgid") == 0 ? &kernel->pid : NULL;
        if (into == NULL) continue;
        *into = (member.offset & 0xffffff) / 8;
        found++;
    }
    return found == 2;
}

static bool find_offsets(const uint8_t *bytes, size_t size, struct np_mark_kernel *kernel) {
    struct btf_header header;
    if (size < sizeof header) return false;
    memcpy(&header, bytes, sizeof header);
    uint64_t names_at = (uint64_t)header.header_bytes + header.names_offset, types_at = (uint64_t)header.header_bytes + header.types_offset;
    if (header.magic != BTF_MAGIC || names_at + header.names_bytes > size || types_at + header.types_bytes > size) return false;
    const char *names = (const char *)bytes + names_at;
    if (header.names_bytes == 0 || names[header.names_bytes - 1] != 0) return false;
    const uint8_t *at = bytes + types_at, *end = at + header.types_bytes;
    while ((size_t)(end - at) >= sizeof(struct btf_type)) {
        struct btf_type type;
        memcpy(&type, at, sizeof type);
        at += sizeof type;
        unsigned kind = type.info >> 24 & 31, count = type.info & 0xffff;
        size_t more = (size_t)extra[kind].each * count + extra[kind].once;
        if (more > (size_t)(end - at)) return false;
        if (kind == KIND_STRUCT && type.name < header.names_bytes && strcmp(names + type.name, "task_struct") == 0)
            return member_offsets(at, count, names, header.names_bytes, kernel);
        at += more;
    }
    return false;
}

static void tell_kernel(void) {
    static struct np_mark_kernel kernel;
    size_t size;
    uint8_t *types = read_types(&size);
    bool found = types != NULL && find_offsets(types, size, &kernel) && find_current(&kernel.current);
    free(types);
    if (found) np_mark(NP_MARK_KERNEL, &kernel);
    else fprintf(stderr, "measure: cannot find the kernel's task structure (needs %s and %s, as root): accesses have no process\n", SYMBOLS, TYPES);
}

int main(int count, char **arguments) {
    int status = 0;
    if (count < 3) {
        fprintf(stderr, "usage: measure begin|marked COMMAND [ARGUMENTS...]\n");
        return 2;
    }
    tell_kernel();
    np_mark(NP_MARK_NOT_ME, NULL);
    if (strcmp(arguments[1], "begin") == 0) np_mark(NP_MARK_BEGIN, NULL);
    /* Shares our address space until it runs the command. */
    pid_t child = vfork();
    if (child == 0) {
        execvp(arguments[2], arguments + 2);
        /* As the shell does. */
        dprintf(2, "measure: cannot run %s: %s\n", arguments[2], strerror(errno));
        _exit(errno == ENOENT ? 127 : 126);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    np_mark(NP_MARK_END, NULL);
    if (child < 0) {
        fprintf(stderr, "measure: cannot start a process: %s\n", strerror(errno));
        return 126;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
