/* A k-way merge by (hash, word); the postings of one word, which several runs may hold, are put in order. */
#include "merger.h"

#include "options.h"
#include "random.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { READ_AHEAD = 16384 };

/* One part of one run, read in order. */
struct source {
    int fd;
    uint64_t at, end; /* bytes in the file */
    size_t begin, filled; /* of what is buffered */
    struct entry entry; /* the current one */
    bool done;
    char buffer[READ_AHEAD];
};

static int run_fds[RUNS_MAX];

void merge_open(const struct shared *shared) {
    struct rlimit files;
    if (!getrlimit(RLIMIT_NOFILE, &files) && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    for (uint32_t run = 0; run < shared->run_count; run++) {
        char path[PATH_BYTES];
        folder_path(path, FILE_RUN, run);
        run_fds[run] = open(path, O_RDONLY | O_CLOEXEC);
        if (run_fds[run] < 0) fail(EXIT_SYSTEM, "cannot open %s: %s; fewer runs (more --blocks) need fewer files", path, strerror(errno));
    }
}

void merge_close(const struct shared *shared) {
    for (uint32_t run = 0; run < shared->run_count; run++) close(run_fds[run]);
}

static void source_read(struct source *source, void *target, size_t bytes) {
    char *out = target;
    while (bytes) {
        if (source->begin == source->filled) {
            uint64_t left = source->end - source->at;
            size_t wanted = left < READ_AHEAD ? (size_t)left : READ_AHEAD;
            ssize_t got = wanted ? pread(source->fd, source->buffer, wanted, (off_t)source->at) : 0;
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) fail(EXIT_SYSTEM, "a run is shorter than was written: %s", got ? strerror(errno) : "end of file");
            source->at += (uint64_t)got;
            source->begin = 0;
            source->filled = (size_t)got;
        }
        size_t chunk = source->filled - source->begin < bytes ? source->filled - source->begin : bytes;
        memcpy(out, source->buffer + source->begin, chunk);
        source->begin += chunk;
        out += chunk;
        bytes -= chunk;
    }
}

/* To the next entry, past whose postings the caller has read. */
static void source_next(struct source *source) {
    source->done = source->begin == source->filled && source->at == source->end;
    if (!source->done) source_read(source, &source->entry, sizeof source->entry);
}

static bool source_before(const struct source *a, const struct source *b) {
    if (a->done || b->done) return !a->done && b->done;
    return entry_compare(a->entry.hash, a->entry.word, b->entry.hash, b->entry.word) < 0;
}

/* Restores the heap order of `heap` below `at`; heap[0] is the least. */
static void sift(struct source **heap, size_t count, size_t at) {
    for (;;) {
        size_t least = at, left = 2 * at + 1;
        if (left < count && source_before(heap[left], heap[least])) least = left;
        if (left + 1 < count && source_before(heap[left + 1], heap[least])) least = left + 1;
        if (least == at) return;
        struct source *swapped = heap[at];
        heap[at] = heap[least];
        heap[least] = swapped;
        at = least;
    }
}

static int posting_compare(const void *left, const void *right) {
    const struct posting *a = left, *b = right;
    if (a->document != b->document) return a->document < b->document ? -1 : 1;
    return (a->position > b->position) - (a->position < b->position);
}

struct merge {
    struct source *sources;
    struct source **heap;
    size_t count;
    struct posting *postings; /* of the current word */
    size_t room;
};

/* Takes the least word from all sources that have it, with all its postings. False: no word is left. */
static bool merge_word(struct merge *merge, struct entry *word) {
    if (!merge->count || merge->heap[0]->done) return false;
    *word = merge->heap[0]->entry;
    word->count = 0;
    for (;;) {
        struct source *least = merge->heap[0];
        if (least->done || entry_compare(least->entry.hash, least->entry.word, word->hash, word->word)) break;
        size_t needed = (size_t)word->count + least->entry.count;
        if (needed > merge->room) {
            merge->room = needed * 2;
            merge->postings = realloc(merge->postings, merge->room * sizeof(struct posting));
            need_memory(merge->postings, merge->room * sizeof(struct posting));
        }
        source_read(least, merge->postings + word->count, least->entry.count * sizeof(struct posting));
        word->count = (uint32_t)needed;
        source_next(least);
        sift(merge->heap, merge->count, 0);
    }
    qsort(merge->postings, word->count, sizeof(struct posting), posting_compare);
    return true;
}

static void merge_part(struct shared *shared, struct merge *merge, uint32_t part) {
    for (size_t run = 0; run < merge->count; run++) {
        struct source *source = &merge->sources[run];
        source->fd = run_fds[run];
        source->at = shared->runs[run].offsets[part];
        source->end = shared->runs[run].offsets[part + 1];
        source->begin = source->filled = 0;
        source_next(source);
        merge->heap[run] = source;
    }
    for (size_t at = merge->count; at-- > 0;) sift(merge->heap, merge->count, at);
    char path[PATH_BYTES];
    folder_path(path, FILE_INDEX, part);
    FILE *file = fopen(path, "wbe");
    if (!file) fail(EXIT_SYSTEM, "cannot create %s: %s", path, strerror(errno));
    uint64_t hash = 0, words = 0, postings = 0, fingerprint = 0;
    struct entry word;
    while (merge_word(merge, &word)) {
        size_t bytes = word.count * sizeof(struct posting);
        fwrite(&word, sizeof word, 1, file);
        fwrite(merge->postings, 1, bytes, file);
        hash = hash_bytes(hash_bytes(hash, &word, sizeof word), merge->postings, bytes);
        for (uint32_t i = 0; i < word.count; i++) fingerprint += word_fingerprint(word.word, word.length, merge->postings[i]);
        words++;
        postings += word.count;
    }
    if (ferror(file) | fclose(file)) fail(EXIT_SYSTEM, "cannot write %s: %s", path, strerror(errno));
    shared->parts[part].hash = hash;
    shared->parts[part].words = words;
    shared->parts[part].postings = postings;
    shared->parts[part].fingerprint = fingerprint;
}

void merge_parts(struct shared *shared) {
    struct merge merge = {.count = shared->run_count};
    size_t bytes = (merge.count + 1) * (sizeof(struct source) + sizeof(struct source *));
    merge.sources = malloc((merge.count + 1) * sizeof(struct source));
    merge.heap = malloc((merge.count + 1) * sizeof(struct source *));
    need_memory(merge.sources, bytes);
    need_memory(merge.heap, bytes);
    for (;;) {
        uint32_t part = __atomic_fetch_add(&shared->next_partition, 1, __ATOMIC_RELAXED);
        if (part >= PARTITIONS) break;
        merge_part(shared, &merge, part);
    }
    free(merge.sources);
    free(merge.heap);
    free(merge.postings);
}

uint64_t answer_hash(uint64_t hash, struct posting posting) {
    return mix64(hash ^ ((uint64_t)posting.document << 32 | posting.position));
}

struct answer query(const char *word, size_t length) {
    struct answer answer = {0, 0};
    char padded[WORD_BYTES_MAX] = {0};
    memcpy(padded, word, length);
    uint64_t hash = word_hash(word, length);
    char path[PATH_BYTES];
    folder_path(path, FILE_INDEX, (uint32_t)(hash >> (64 - PARTITION_BITS)));
    FILE *file = fopen(path, "rbe");
    if (!file) fail(EXIT_SYSTEM, "cannot open %s: %s", path, strerror(errno));
    struct entry entry;
    while (fread(&entry, sizeof entry, 1, file) == 1) {
        if (!entry_compare(entry.hash, entry.word, hash, padded)) {
            struct posting posting;
            for (; answer.postings < entry.count && fread(&posting, sizeof posting, 1, file) == 1; answer.postings++) {
                answer.hash = answer_hash(answer.hash, posting);
            }
            break;
        }
        if (fseek(file, (long)(entry.count * sizeof(struct posting)), SEEK_CUR)) break;
    }
    fclose(file);
    return answer;
}
