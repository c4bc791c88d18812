/* One indexer: words of documents into a hash table with posting lists, sorted and written out as a *run* whenever memory is full.
 * The scheme is pedsort's, of Psearchy (Li et al., "On the Feasibility of Peer-to-Peer Web Indexing and Search", IPTPS 2003; the
 * parallel form is in the MOSBENCH suite, Boyd-Wickizer et al., OSDI 2010): workers take files from a shared list, share nothing
 * else, and merge at the end. */
#ifndef PSEARCHY_INDEXER_H
#define PSEARCHY_INDEXER_H

#include "corpus.h"
#include "supply.h"

#include <stdint.h>

/* Runs and index files are cut into as many parts by the top bits of the word's hash; a part is merged by one worker. */
enum { PARTITION_BITS = 6, PARTITIONS = 1 << PARTITION_BITS };
enum { RUNS_MAX = 16384 };

/* Where a word was: the n-th word of a document. */
struct posting {
    uint32_t document;
    uint32_t position;
};

/* In a run and in an index file: this, then `count` postings in the order of document and position. */
struct entry {
    uint64_t hash;
    uint32_t count;
    uint32_t length;
    char word[WORD_BYTES_MAX]; /* zeros after `length` */
};

/* Written by its indexer, read by the mergers. */
struct run {
    uint64_t offsets[PARTITIONS + 1]; /* bytes in the file at which each part begins; the last: the end */
};

/* In memory that all workers share, also when they are processes. */
struct shared {
    uint32_t next_document;
    uint32_t next_partition;
    uint32_t run_count;
    uint64_t words; /* indexed */
    struct {
        uint64_t hash; /* of all that the part's index file holds */
        uint64_t words, postings;
        uint64_t fingerprint; /* sum of word_fingerprint over all postings */
    } parts[PARTITIONS];
    struct run runs[RUNS_MAX];
};

struct index_limits {
    uint32_t slots; /* of the hash table, a power of 2 */
    uint32_t blocks; /* of postings per run */
};

/* Hash of a word: the only order that runs and index files know, words breaking ties. */
uint64_t word_hash(const char *word, size_t length);
int entry_compare(uint64_t hash_a, const char *word_a, uint64_t hash_b, const char *word_b);

/* Stands for one word at one place. A sum of these over a text identifies what is where in it, in whatever order it is taken. */
uint64_t word_fingerprint(const char *word, size_t length, struct posting posting);

/* Indexes documents from the shared list until none is left, in this thread. */
void index_documents(const struct corpus *corpus, const struct index_limits *limits, struct shared *shared, struct supply *supply);

#endif
