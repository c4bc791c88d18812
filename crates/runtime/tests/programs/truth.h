/* truth.h: lets a test program say what it did, without allocating in between. */
#ifndef TRUTH_H
#define TRUTH_H

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))
static char truth_text[1 << 22];
static size_t truth_used;
static pthread_mutex_t truth_lock = PTHREAD_MUTEX_INITIALIZER;

static inline void truth(const char *format, ...) {
    va_list list;
    va_start(list, format);
    pthread_mutex_lock(&truth_lock);
    truth_used += (size_t)vsnprintf(truth_text + truth_used, sizeof truth_text - truth_used, format, list);
    truth_text[truth_used++] = '\n';
    pthread_mutex_unlock(&truth_lock);
    va_end(list);
}

static inline void truth_write(void) {
    const char *path = getenv("NP_TRUTH");
    if (path == NULL) return;
    int fd = open(path, O_WRONLY | O_APPEND);
    if (fd < 0 || write(fd, truth_text, truth_used) != (ssize_t)truth_used) abort();
    close(fd);
    truth_used = 0;
}

#define MADE(block, bytes, kind) truth("alloc %lx %zu " kind, (unsigned long)(block), (size_t)(bytes))
#define GONE(block) truth("free %lx", (unsigned long)(block))
#define CHECK(condition) do { if (!(condition)) { fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); exit(1); } } while (0)

#endif
