/* Documents and their folder. */
#include "corpus.h"

#include "options.h"
#include "random.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    char path[PATH_BYTES - 32];
    size_t length; /* of path; 0: no folder */
    uint32_t counts[3];
    pid_t owner; /* a forked worker leaves the folder to its parent */
} folder;
static const char kinds[3] = {FILE_DOCUMENT, FILE_RUN, FILE_INDEX};

/* Only calls that a signal handler may make. */
void folder_path(char path[PATH_BYTES], enum file_kind kind, uint32_t number) {
    memcpy(path, folder.path, folder.length);
    char *at = path + folder.length;
    *at++ = '/';
    *at++ = (char)kind;
    for (int digit = 7; digit >= 0; digit--, number /= 10) at[digit] = (char)('0' + number % 10);
    at[8] = 0;
}

/* Safe in a signal handler. */
void folder_remove(void) {
    if (!folder.length || getpid() != folder.owner) return;
    char path[PATH_BYTES];
    for (int kind = 0; kind < 3; kind++) {
        for (uint32_t number = 0; number < folder.counts[kind]; number++) {
            folder_path(path, (enum file_kind)kinds[kind], number);
            unlink(path);
        }
    }
    rmdir(folder.path);
    folder.length = 0;
}

static void on_signal(int number) {
    int saved = errno;
    folder_remove();
    errno = saved;
    /* The handler was reset by SA_RESETHAND: this ends the process the way the sender meant. */
    raise(number);
}

void folder_make(const char *parent, uint32_t documents, uint32_t runs, uint32_t indexes) {
    if (!parent) parent = getenv("TMPDIR");
    if (!parent || !*parent) parent = "/tmp";
    int length = snprintf(folder.path, sizeof folder.path, "%s/psearchy-XXXXXX", parent);
    if (length < 0 || (size_t)length >= sizeof folder.path) fail(EXIT_USAGE, "the folder's path is too long");
    if (!mkdtemp(folder.path)) fail(EXIT_SYSTEM, "cannot make a folder in %s: %s", parent, strerror(errno));
    folder.counts[0] = documents;
    folder.counts[1] = runs;
    folder.counts[2] = indexes;
    folder.length = (size_t)length;
    folder.owner = getpid();
    fail_cleanup = folder_remove;
    atexit(folder_remove);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) sigaction(signals[i], &action, NULL);
    /* A file over the limit is an error of write(), which is reported and cleaned up after. */
    signal(SIGXFSZ, SIG_IGN);
}

size_t corpus_word(const struct corpus *corpus, uint32_t rank, char word[WORD_BYTES_MAX]) {
    uint64_t bits = mix64(corpus->seed ^ mix64(rank));
    size_t length = 1 + (bits & 7);
    for (size_t i = 0; i < length; i++) word[i] = (char)('a' + (bits >> (8 + 6 * i)) % 26);
    /* The rank itself in five letters makes every word a different one. */
    for (int i = 0; i < 5; i++, rank /= 26) word[length++] = (char)('a' + rank % 26);
    return length;
}

size_t corpus_document_bytes_max(const struct corpus *corpus) {
    return (size_t)corpus->document_bytes * 3 / 2 + WORD_BYTES_MAX + 2;
}

static uint32_t draw_rank(struct rng *rng, uint32_t octaves) {
    uint64_t bits = rng_next(rng);
    uint32_t a = (uint32_t)(((bits & 0xffff) * octaves) >> 16), b = (uint32_t)((((bits >> 16) & 0xffff) * octaves) >> 16);
    uint32_t octave = a > b ? a : b;
    return (1u << octave) - 1 + (uint32_t)((bits >> 32) & ((1u << octave) - 1));
}

void corpus_write(const struct corpus *corpus, uint32_t number, char *buffer) {
    struct rng rng = rng_of(corpus->seed, number);
    size_t wanted = corpus->document_bytes / 2 + rng_below(&rng, corpus->document_bytes + 1), used = 0;
    while (used < wanted) {
        size_t start = used;
        used += corpus_word(corpus, draw_rank(&rng, corpus->octaves), buffer + used);
        uint32_t style = rng_below(&rng, 64);
        if (style < 4) buffer[start] = (char)(buffer[start] - 'a' + 'A');
        if (style == 4) buffer[used++] = ',';
        buffer[used++] = style == 5 ? '\n' : ' ';
    }
    char path[PATH_BYTES];
    folder_path(path, FILE_DOCUMENT, number);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) fail(EXIT_SYSTEM, "cannot create %s: %s", path, strerror(errno));
    for (size_t at = 0; at < used;) {
        ssize_t written = write(fd, buffer + at, used - at);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) fail(EXIT_SYSTEM, "cannot write %s: %s", path, strerror(errno));
        at += (size_t)written;
    }
    close(fd);
}
