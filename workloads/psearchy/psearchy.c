/* A parallel indexer of text files: workers (threads, or processes) index documents into private memory, then merge what they wrote.
 *
 * Each worker's hash table, sort temporary and posting blocks are used by it alone. Naive: they are allocated and
 * freed for each run, from one heap for all threads; from a worker's second run on it works in memory that others placed. Local: a worker keeps its own. */
#include "indexer.h"
#include "merger.h"
#include "options.h"
#include "phase.h"
#include "random.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum variant { VARIANT_NAIVE, VARIANT_LOCAL };
static const char *const variants[] = {"naive", "local", NULL};
enum { QUERIES = 16 };

struct settings {
    struct common_options common;
    uint64_t documents, bytes, octaves, slots, blocks;
    bool processes;
    const char *folder;
};

/* What the workers have in common. */
struct job {
    struct corpus corpus;
    struct index_limits limits;
    struct shared *shared;
    struct supply supply;
    uint64_t workers;
    bool processes;
    /* The current phase's work of one worker. */
    void (*work)(struct job *job);
};

struct preset {
    uint64_t documents, bytes, octaves, slots, blocks;
};
/* `small`: with 16 workers each fills its memory nearly twice, so that almost half of the indexing is done in recycled memory. */
static const struct preset presets[] = {
    {64, 8192, 12, 4096, 2048},
    {1200, 65536, 16, 65536, 57344},
    {6144, 65536, 17, 131072, 262144},
    {49152, 65536, 18, 262144, 524288},
};

static struct settings parse(int argc, char **argv) {
    struct settings settings = {.common = COMMON_OPTIONS_DEFAULT};
    const struct option_spec specs[] = {
        option_size(&settings.common),
        option_choice("variant", &settings.common.variant, variants, "whose memory a worker gets"),
        option_threads(&settings.common),
        option_seed(&settings.common),
        option_flag("processes", &settings.processes, "workers are processes, not threads"),
        option_text("folder", &settings.folder, "where to make the temporary folder [$TMPDIR or /tmp]"),
        option_number("documents", &settings.documents, 1, 1000000, "documents to index"),
        option_number("bytes", &settings.bytes, 64, 1u << 24, "mean bytes of a document"),
        option_number("octaves", &settings.octaves, 4, 22, "the vocabulary has 2^N - 1 words"),
        option_number("slots", &settings.slots, 1024, 1u << 24, "slots of a hash table, a power of 2"),
        option_number("blocks", &settings.blocks, 1024, 1u << 26, "posting blocks of a run, 128 bytes each, a multiple of 32"),
    };
    const struct program program = {"psearchy", "parallel indexer of text files", specs, sizeof specs / sizeof *specs};
    options_parse(&program, argc, argv);
    const struct preset *preset = &presets[settings.common.size];
    if (!settings.documents) settings.documents = preset->documents;
    if (!settings.bytes) settings.bytes = preset->bytes;
    if (!settings.octaves) settings.octaves = preset->octaves;
    if (!settings.slots) settings.slots = preset->slots;
    if (!settings.blocks) settings.blocks = preset->blocks;
    if (settings.slots & (settings.slots - 1)) fail(EXIT_USAGE, "--slots must be a power of 2, not %" PRIu64, settings.slots);
    if (settings.blocks % 32) fail(EXIT_USAGE, "--blocks must be a multiple of 32, not %" PRIu64, settings.blocks);
    return settings;
}

static void *thread_main(void *argument) {
    struct job *job = argument;
    job->work(job);
    return NULL;
}

static void run_threads(struct job *job) {
    pthread_t threads[THREADS_MAX];
    for (uint64_t i = 0; i < job->workers; i++) {
        int error = pthread_create(&threads[i], NULL, thread_main, job);
        if (error) fail(EXIT_SYSTEM, "cannot start thread %" PRIu64 ": %s; choose fewer --threads", i, strerror(error));
    }
    for (uint64_t i = 0; i < job->workers; i++) pthread_join(threads[i], NULL);
}

static void run_processes(struct job *job) {
    fflush(NULL);
    pid_t children[THREADS_MAX];
    for (uint64_t i = 0; i < job->workers; i++) {
        children[i] = fork();
        if (children[i] < 0) fail(EXIT_SYSTEM, "cannot start process %" PRIu64 ": %s; choose fewer --threads", i, strerror(errno));
        if (children[i] == 0) {
            job->work(job);
            exit(0);
        }
    }
    bool failed = false;
    for (uint64_t i = 0; i < job->workers; i++) {
        int status = 0;
        while (waitpid(children[i], &status, 0) < 0 && errno == EINTR) continue;
        failed |= status != 0;
    }
    if (failed) fail(EXIT_SYSTEM, "a worker process failed");
}

static void run_phase(struct job *job, const char *name, void (*work)(struct job *)) {
    phase(name);
    job->work = work;
    if (job->processes) run_processes(job);
    else run_threads(job);
}

static void work_generate(struct job *job) {
    size_t bytes = corpus_document_bytes_max(&job->corpus);
    char *document = malloc(bytes);
    need_memory(document, bytes);
    for (;;) {
        uint32_t number = __atomic_fetch_add(&job->shared->next_document, 1, __ATOMIC_RELAXED);
        if (number >= job->corpus.documents) break;
        corpus_write(&job->corpus, number, document);
    }
    free(document);
}

static void work_index(struct job *job) {
    index_documents(&job->corpus, &job->limits, job->shared, &job->supply);
}

static void work_merge(struct job *job) {
    merge_parts(job->shared);
}

/* A query word, and its count by a plain scan of all text. */
struct question {
    char word[WORD_BYTES_MAX];
    size_t length;
    struct answer scanned;
};

/* Scans one document character by character, with nothing of the indexer's code. Returns its number of words. */
static uint64_t scan_document(uint32_t document, struct question *questions, uint64_t *fingerprint) {
    char path[PATH_BYTES];
    folder_path(path, FILE_DOCUMENT, document);
    FILE *file = fopen(path, "rbe");
    if (!file) fail(EXIT_SYSTEM, "cannot open %s: %s", path, strerror(errno));
    char word[WORD_BYTES_MAX];
    size_t length = 0;
    uint32_t position = 0;
    for (int c = 0; c != EOF;) {
        c = getc_unlocked(file);
        int folded = c | 0x20;
        if ((c >= '0' && c <= '9') || (folded >= 'a' && folded <= 'z' && c != EOF)) {
            if (length < WORD_BYTES_MAX) word[length++] = (char)(c <= '9' ? c : folded);
            continue;
        }
        if (!length) continue;
        for (int q = 0; q < QUERIES; q++) {
            struct question *question = &questions[q];
            if (question->length == length && !memcmp(question->word, word, length)) {
                question->scanned.postings++;
                question->scanned.hash = answer_hash(question->scanned.hash, (struct posting){document, position});
            }
        }
        *fingerprint += word_fingerprint(word, length, (struct posting){document, position});
        position++;
        length = 0;
    }
    fclose(file);
    return position;
}

/* The index must hold every word of the text at its places and nothing else, and answer as the scan does, for words of all frequencies. */
static void verify(const struct job *job) {
    phase_verify();
    struct question questions[QUERIES] = {0};
    for (uint32_t q = 0; q < QUERIES; q++) {
        /* Ranks from the most frequent to the rarest octave; the last word exists nowhere. */
        uint32_t octave = q * job->corpus.octaves / QUERIES;
        uint32_t rank = (1u << octave) - 1 + (uint32_t)(mix64(job->corpus.seed + q) & ((1u << octave) - 1));
        if (q == QUERIES - 1) rank = 1u << job->corpus.octaves;
        questions[q].length = corpus_word(&job->corpus, rank, questions[q].word);
    }
    uint64_t words = 0, postings = 0, scanned = 0, indexed = 0;
    for (uint32_t document = 0; document < job->corpus.documents; document++) words += scan_document(document, questions, &scanned);
    for (int part = 0; part < PARTITIONS; part++) {
        postings += job->shared->parts[part].postings;
        indexed += job->shared->parts[part].fingerprint;
    }
    if (words != postings || words != job->shared->words) {
        fail(EXIT_WRONG_RESULT, "wrong result: %" PRIu64 " postings of %" PRIu64 " words", postings, words);
    }
    if (scanned != indexed) fail(EXIT_WRONG_RESULT, "wrong result: the index has words in other places than the text");
    for (int q = 0; q < QUERIES; q++) {
        struct answer found = query(questions[q].word, questions[q].length), scanned = questions[q].scanned;
        if (found.postings != scanned.postings || found.hash != scanned.hash) {
            fail(EXIT_WRONG_RESULT, "wrong result: `%.*s` has %" PRIu64 " postings in the index, %" PRIu64 " in the text (or others)",
                 (int)questions[q].length, questions[q].word, found.postings, scanned.postings);
        }
    }
}

static void print_summary(const struct job *job) {
    uint64_t checksum = 0, distinct = 0;
    for (int part = 0; part < PARTITIONS; part++) {
        checksum = mix64(checksum ^ job->shared->parts[part].hash);
        distinct += job->shared->parts[part].words;
    }
    fprintf(stderr, "  %" PRIu32 " runs\n", job->shared->run_count);
    printf("psearchy ok documents=%" PRIu32 " words=%" PRIu64 " distinct=%" PRIu64 " checksum=%016" PRIx64 "\n", job->corpus.documents,
           job->shared->words, distinct, checksum);
}

int main(int argc, char **argv) {
    struct settings settings = parse(argc, argv);
    fprintf(stderr, "psearchy: %s, %" PRIu64 " %s\n", variants[settings.common.variant], settings.common.threads,
            settings.processes ? "processes" : "threads");
    struct job job = {
        .corpus = {settings.common.seed, (uint32_t)settings.documents, (uint32_t)settings.bytes, (uint32_t)settings.octaves},
        .limits = {(uint32_t)settings.slots, (uint32_t)settings.blocks},
        .workers = settings.common.threads,
        .processes = settings.processes,
    };
    supply_init(&job.supply, settings.common.variant == VARIANT_LOCAL);
    job.shared = mmap(NULL, sizeof *job.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (job.shared == MAP_FAILED) fail(EXIT_SYSTEM, "cannot map %zu bytes: %s", sizeof *job.shared, strerror(errno));
    folder_make(settings.folder, job.corpus.documents, RUNS_MAX, PARTITIONS);

    run_phase(&job, "generate", work_generate);
    job.shared->next_document = 0;
    run_phase(&job, "index", work_index);
    merge_open(job.shared);
    run_phase(&job, "merge", work_merge);
    merge_close(job.shared);
    verify(&job);
    phase(NULL);
    print_summary(&job);
    munmap(job.shared, sizeof *job.shared);
    return 0;
}
