/* Merging of runs into index files, one per part of the hash space, and queries on them. */
#ifndef PSEARCHY_MERGER_H
#define PSEARCHY_MERGER_H

#include "indexer.h"

/* Opens all runs for reading; what merge_parts uses, in this process and in children forked later. */
void merge_open(const struct shared *shared);
void merge_close(const struct shared *shared);
/* Merges parts from the shared list until none is left, in this thread. */
void merge_parts(struct shared *shared);

/* Postings of a word by its index file: their number and the hash of their sequence. A word not found has none. */
struct answer {
    uint64_t postings;
    uint64_t hash;
};
struct answer query(const char *word, size_t length);
/* The hash of a sequence of postings, one by one; begins with 0. */
uint64_t answer_hash(uint64_t hash, struct posting posting);

#endif
