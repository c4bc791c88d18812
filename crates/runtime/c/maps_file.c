/* maps_file.c: the process's mappings, as the kernel lists them. By system calls only. Part of the tracker, of the planner and of the emulator's plugin.
 */
#define _GNU_SOURCE
#include "track.h"

#include <fcntl.h>
#include <string.h>

static bool hex(const char **at, uint64_t *value) {
    const char *start = *at;
    for (*value = 0;; (*at)++) {
        char c = **at;
        if (c >= '0' && c <= '9') *value = *value << 4 | (uint64_t)(c - '0');
        else if (c >= 'a' && c <= 'f') *value = *value << 4 | (uint64_t)(c - 'a' + 10);
        else return *at != start;
    }
}

/* `text` ends with a zero byte. "lo-hi rwxp offset dev inode   path" */
static bool parse_line(const char *text, struct np_maps_line *line) {
    uint64_t lo, hi;
    if (!hex(&text, &lo) || *text++ != '-' || !hex(&text, &hi) || *text++ != ' ') return false;
    line->lo = lo;
    line->hi = hi;
    for (int i = 0; i < 4; i++)
        if ((line->perms[i] = *text++) == 0) return false;
    if (*text++ != ' ' || !hex(&text, &line->offset)) return false;
    while (*text == ' ') text++;
    while (*text != ' ' && *text != 0) text++;
    while (*text == ' ') text++;
    for (line->inode = 0; *text >= '0' && *text <= '9'; text++) line->inode = line->inode * 10 + (uint64_t)(*text - '0');
    while (*text == ' ') text++;
    line->path = text;
    line->path_bytes = strlen(text);
    return true;
}

#define MAPS_BUFFER_BYTES (4096u + 512u)

/* Not on the stack: it may be a coroutine's, a signal handler's, or that of a thread that the program has measured for its own calls. One for whoever comes
 * first; others (in a signal handler, in another thread) get theirs from the kernel. */
static char maps_buffer[MAPS_BUFFER_BYTES];
static bool maps_buffer_is_taken;

static char *take_buffer(void) {
    if (!__atomic_exchange_n(&maps_buffer_is_taken, true, __ATOMIC_ACQUIRE)) return maps_buffer;
    return np_pages_new(MAPS_BUFFER_BYTES);
}

static void give_buffer(char *buffer) {
    if (buffer == maps_buffer) __atomic_store_n(&maps_buffer_is_taken, false, __ATOMIC_RELEASE);
    else np_pages_free(buffer, MAPS_BUFFER_BYTES);
}

static void each_line(char *buffer, bool (*visit)(const struct np_maps_line *line, void *context), void *context) {
    long fd = NP_SYS4(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return;
    size_t filled = 0;
    bool more = true;
    while (more) {
        long got = NP_SYS3(SYS_read, fd, buffer + filled, MAPS_BUFFER_BYTES - 1 - filled);
        if (got <= 0) break;
        filled += (size_t)got;
        char *begin = buffer, *end;
        while (more && (end = memchr(begin, '\n', filled - (size_t)(begin - buffer))) != NULL) {
            struct np_maps_line line;
            *end = 0;
            if (parse_line(begin, &line)) more = visit(&line, context);
            begin = end + 1;
        }
        filled -= (size_t)(begin - buffer);
        memmove(buffer, begin, filled);
        if (filled >= MAPS_BUFFER_BYTES - 1) break; /* a path longer than the kernel's limit: not a maps file */
    }
    NP_SYS1(SYS_close, fd);
}

void np_maps_each(bool (*visit)(const struct np_maps_line *line, void *context), void *context) {
    if (np_is_confined) return;
    char *buffer = take_buffer();
    if (buffer == NULL) return;
    each_line(buffer, visit, context);
    give_buffer(buffer);
}
