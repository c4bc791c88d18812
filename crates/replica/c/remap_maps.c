/* remap_maps.c: the process's mappings, from /proc/self/smaps, without allocating: this runs before main() and inside mmap(). */
#define _GNU_SOURCE
#include "remap.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Flags of smaps (fs/proc/task_mmu.c, show_smap_vma_flags): locked, device memory, raw frames, huge pages, not for children, wiped for them, mixed
 * frames, watched by userfaultfd. */
static const char *const SPECIAL[] = {"lo", "io", "pf", "ht", "dc", "wf", "mm", "um", "uw", "ui"};

bool np_remap_next_line(struct line_reader *reader, char *line, size_t size) {
    size_t length = 0;
    for (;;) {
        if (reader->at == reader->end) {
            ssize_t got = read(reader->file, reader->bytes, sizeof reader->bytes);
            if (got <= 0) return false;
            reader->at = 0;
            reader->end = (size_t)got;
        }
        char byte = reader->bytes[reader->at++];
        if (byte == '\n') break;
        if (length + 1 < size) line[length++] = byte;
    }
    line[length] = 0;
    return true;
}

/* "7f00-7f01 r-xp 00001000 08:01 1234   /path" */
static bool parse_head(const char *line, struct mapping *mapping) {
    unsigned long start, end, offset, inode;
    char modes[5];
    int path_at = 0;
    if (sscanf(line, "%lx-%lx %4s %lx %*s %lu %n", &start, &end, modes, &offset, &inode, &path_at) < 5) return false;
    memset(mapping, 0, sizeof *mapping);
    mapping->start = start;
    mapping->end = end;
    mapping->protection = (modes[0] == 'r' ? PROT_READ : 0) | (modes[1] == 'w' ? PROT_WRITE : 0) | (modes[2] == 'x' ? PROT_EXEC : 0);
    mapping->is_shared = modes[3] == 's';
    mapping->offset = offset;
    mapping->inode = inode;
    /* A path too long to keep is no path. */
    if (path_at > 0 && strlen(line + path_at) < sizeof mapping->path) strcpy(mapping->path, line + path_at);
    return true;
}

static void parse_detail(const char *line, struct mapping *mapping) {
    if (!strncmp(line, "Anonymous:", 10) || !strncmp(line, "Swap:", 5)) {
        /* Swapped pages of a private mapping were changed ones. */
        if (!mapping->is_shared && strtoul(strchr(line, ':') + 1, NULL, 10) > 0) mapping->has_changed_pages = true;
    } else if (!strncmp(line, "VmFlags:", 8)) {
        for (size_t i = 0; i < sizeof SPECIAL / sizeof *SPECIAL; i++) {
            char word[5] = {' ', SPECIAL[i][0], SPECIAL[i][1], ' ', 0};
            if (strstr(line + 8, word)) mapping->is_special = true;
        }
    }
}

bool np_remap_around(uintptr_t start, uintptr_t end, struct mapping *mapping) {
    static struct line_reader reader; /* under the caller's lock: the program may have called on a small stack */
    static char line[REMAP_PATH_MAX + 128];
    reader.file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    reader.at = reader.end = 0;
    if (reader.file < 0) return false;
    bool is_found = false;
    while (!is_found && np_remap_next_line(&reader, line, sizeof line)) is_found = parse_head(line, mapping) && mapping->start <= start && mapping->end >= end;
    close(reader.file);
    return is_found;
}

bool np_remap_each(void (*visit)(const struct mapping *mapping, void *context), void *context) {
    struct line_reader reader = {.file = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC)};
    if (reader.file < 0) return false;
    static const char DETAILS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    struct mapping mapping = {0};
    char line[REMAP_PATH_MAX + 128];
    while (np_remap_next_line(&reader, line, sizeof line)) {
        if (strchr(DETAILS, line[0])) {
            parse_detail(line, &mapping);
            continue;
        }
        if (mapping.inode != 0) visit(&mapping, context);
        if (!parse_head(line, &mapping)) mapping.inode = 0;
    }
    if (mapping.inode != 0) visit(&mapping, context);
    close(reader.file);
    return true;
}
