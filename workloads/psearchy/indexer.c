/* Indexing into memory, sorting, and writing of runs. */
#include "indexer.h"

#include "options.h"
#include "random.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 4096, LINE = 64, BLOCK_POSTINGS = 15, NO_BLOCK = 0 };

/* One cache line: a word and its list of blocks. Empty when count is 0. */
struct slot {
    uint64_t hash;
    uint32_t count;
    uint32_t first, last; /* blocks */
    uint32_t length;
    char word[WORD_BYTES_MAX];
};
_Static_assert(sizeof(struct slot) == LINE, "a slot is a cache line");

/* Two cache lines. Block 0 is never used: NO_BLOCK. */
struct block {
    uint32_t next;
    uint32_t used;
    struct posting postings[BLOCK_POSTINGS];
};
_Static_assert(sizeof(struct block) == 2 * LINE, "a block is two cache lines");

struct indexer {
    const struct corpus *corpus;
    const struct index_limits *limits;
    struct shared *shared;
    struct supply *supply;
    struct supply_cache cache;
    struct slot *hash_table;
    struct block *blocks;
    uint32_t words_max, words_used; /* distinct words in the table */
    uint32_t blocks_used;
};

uint64_t word_hash(const char *word, size_t length) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)word[i]) * 0x100000001b3u;
    return mix64(hash);
}

uint64_t word_fingerprint(const char *word, size_t length, struct posting posting) {
    return mix64(hash_bytes(0, word, length) ^ mix64((uint64_t)posting.document << 32 | posting.position));
}

int entry_compare(uint64_t hash_a, const char *word_a, uint64_t hash_b, const char *word_b) {
    if (hash_a != hash_b) return hash_a < hash_b ? -1 : 1;
    return memcmp(word_a, word_b, WORD_BYTES_MAX);
}

static void run_begin(struct indexer *self) {
    size_t table_bytes = (size_t)self->limits->slots * sizeof(struct slot);
    self->hash_table = supply_take(self->supply, &self->cache, OBJECT_HASH_TABLE);
    if (!self->hash_table) self->hash_table = aligned_alloc(PAGE, table_bytes);
    need_memory(self->hash_table, table_bytes);
    memset(self->hash_table, 0, table_bytes);
    size_t blocks_bytes = (size_t)self->limits->blocks * sizeof(struct block);
    self->blocks = supply_take(self->supply, &self->cache, OBJECT_BLOCKS);
    if (!self->blocks) self->blocks = aligned_alloc(PAGE, blocks_bytes);
    need_memory(self->blocks, blocks_bytes);
    self->blocks_used = 1;
    self->words_used = 0;
}

/* Merge sort of `count` records; `spare` has room for half of them. */
static void sort_slots(struct slot *records, size_t count, struct slot *spare) {
    if (count <= 8) {
        for (size_t i = 1; i < count; i++) {
            struct slot record = records[i];
            size_t at = i;
            for (; at > 0 && entry_compare(record.hash, record.word, records[at - 1].hash, records[at - 1].word) < 0; at--) {
                records[at] = records[at - 1];
            }
            records[at] = record;
        }
        return;
    }
    size_t half = count / 2;
    sort_slots(records, half, spare);
    sort_slots(records + half, count - half, spare);
    memcpy(spare, records, half * sizeof *records);
    size_t left = 0, right = half, out = 0;
    while (left < half && right < count) {
        bool take_left = entry_compare(spare[left].hash, spare[left].word, records[right].hash, records[right].word) <= 0;
        records[out++] = take_left ? spare[left++] : records[right++];
    }
    memcpy(records + out, spare + left, (half - left) * sizeof *records);
}

static void write_records(struct indexer *self, const struct slot *records, size_t count) {
    uint32_t number = __atomic_fetch_add(&self->shared->run_count, 1, __ATOMIC_RELAXED);
    if (number >= RUNS_MAX) fail(EXIT_SYSTEM, "more than %d runs; give each more --blocks", RUNS_MAX);
    struct run *run = &self->shared->runs[number];
    char path[PATH_BYTES];
    folder_path(path, FILE_RUN, number);
    FILE *file = fopen(path, "wbe");
    if (!file) fail(EXIT_SYSTEM, "cannot create %s: %s", path, strerror(errno));
    uint64_t bytes = 0;
    uint32_t part = 0;
    for (size_t i = 0; i < count; i++) {
        const struct slot *record = &records[i];
        for (uint32_t own = (uint32_t)(record->hash >> (64 - PARTITION_BITS)); part <= own; part++) run->offsets[part] = bytes;
        struct entry entry = {.hash = record->hash, .count = record->count, .length = record->length};
        memcpy(entry.word, record->word, sizeof entry.word);
        fwrite(&entry, sizeof entry, 1, file);
        for (uint32_t at = record->first; at != NO_BLOCK; at = self->blocks[at].next) {
            fwrite(self->blocks[at].postings, sizeof(struct posting), self->blocks[at].used, file);
        }
        bytes += sizeof entry + (uint64_t)record->count * sizeof(struct posting);
    }
    for (; part <= PARTITIONS; part++) run->offsets[part] = bytes;
    if (ferror(file) | fclose(file)) fail(EXIT_SYSTEM, "cannot write %s: %s", path, strerror(errno));
}

static void run_end(struct indexer *self) {
    size_t sort_bytes = (size_t)self->words_max * sizeof(struct slot) * 3 / 2 + PAGE;
    sort_bytes -= sort_bytes % PAGE;
    struct slot *sort_temporary = supply_take(self->supply, &self->cache, OBJECT_SORT_TEMPORARY);
    if (!sort_temporary) sort_temporary = aligned_alloc(PAGE, sort_bytes);
    need_memory(sort_temporary, sort_bytes);
    size_t count = 0;
    for (size_t i = 0; i < self->limits->slots; i++) {
        if (self->hash_table[i].count) sort_temporary[count++] = self->hash_table[i];
    }
    /* What follows needs the copies only: another indexer may have the memory. */
    supply_give(self->supply, &self->cache, OBJECT_HASH_TABLE, self->hash_table);
    sort_slots(sort_temporary, count, sort_temporary + self->words_max);
    write_records(self, sort_temporary, count);
    supply_give(self->supply, &self->cache, OBJECT_BLOCKS, self->blocks);
    supply_give(self->supply, &self->cache, OBJECT_SORT_TEMPORARY, sort_temporary);
}

/* `word` has zeros after `length`. */
static void add_word(struct indexer *self, const char word[WORD_BYTES_MAX], size_t length, struct posting posting) {
    if (self->words_used == self->words_max || self->blocks_used == self->limits->blocks) {
        run_end(self);
        run_begin(self);
    }
    uint64_t hash = word_hash(word, length);
    size_t mask = self->limits->slots - 1, at = (size_t)hash & mask;
    struct slot *slot = &self->hash_table[at];
    while (slot->count && entry_compare(slot->hash, slot->word, hash, word)) slot = &self->hash_table[at = (at + 1) & mask];
    if (!slot->count) {
        slot->hash = hash;
        slot->length = (uint32_t)length;
        memcpy(slot->word, word, WORD_BYTES_MAX);
        slot->first = slot->last = NO_BLOCK;
        self->words_used++;
    }
    struct block *block = &self->blocks[slot->last];
    if (slot->last == NO_BLOCK || block->used == BLOCK_POSTINGS) {
        uint32_t fresh = self->blocks_used++;
        if (slot->last == NO_BLOCK) slot->first = fresh;
        else block->next = fresh;
        slot->last = fresh;
        block = &self->blocks[fresh];
        block->next = NO_BLOCK;
        block->used = 0;
    }
    block->postings[block->used++] = posting;
    slot->count++;
}

static size_t read_document(uint32_t number, char *buffer, size_t room) {
    char path[PATH_BYTES];
    folder_path(path, FILE_DOCUMENT, number);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) fail(EXIT_SYSTEM, "cannot open %s: %s", path, strerror(errno));
    size_t used = 0;
    for (;;) {
        ssize_t got = read(fd, buffer + used, room - used);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail(EXIT_SYSTEM, "cannot read %s: %s", path, strerror(errno));
        if (got == 0) break;
        used += (size_t)got;
    }
    close(fd);
    return used;
}

/* Letters and digits make words, upper case is folded. Returns the number of words. */
static uint32_t index_text(struct indexer *self, uint32_t document, const char *text, size_t bytes) {
    uint32_t position = 0;
    for (size_t at = 0; at < bytes;) {
        char word[WORD_BYTES_MAX] = {0};
        size_t length = 0;
        for (; at < bytes; at++) {
            char c = text[at];
            if (c >= 'A' && c <= 'Z') c = (char)(c - 'A' + 'a');
            if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))) break;
            if (length < WORD_BYTES_MAX) word[length++] = c;
        }
        if (length) add_word(self, word, length, (struct posting){document, position++});
        at++;
    }
    return position;
}

void index_documents(const struct corpus *corpus, const struct index_limits *limits, struct shared *shared, struct supply *supply) {
    struct indexer self = {.corpus = corpus, .limits = limits, .shared = shared, .supply = supply};
    self.words_max = limits->slots / 4 * 3;
    size_t text_bytes = corpus_document_bytes_max(corpus);
    char *text = malloc(text_bytes);
    need_memory(text, text_bytes);
    run_begin(&self);
    uint64_t words = 0;
    for (;;) {
        uint32_t document = __atomic_fetch_add(&shared->next_document, 1, __ATOMIC_RELAXED);
        if (document >= corpus->documents) break;
        words += index_text(&self, document, text, read_document(document, text, text_bytes));
    }
    run_end(&self);
    __atomic_fetch_add(&shared->words, words, __ATOMIC_RELAXED);
    free(text);
    supply_drain(&self.cache);
}
