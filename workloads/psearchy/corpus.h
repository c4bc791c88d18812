/* The text that is indexed: deterministic documents in a temporary folder, which is removed however the program ends.
 * Words are drawn by rank, higher octaves of ranks more often than in Zipf's law, so that the tail exercises memory. */
#ifndef PSEARCHY_CORPUS_H
#define PSEARCHY_CORPUS_H

#include <stddef.h>
#include <stdint.h>

enum { PATH_BYTES = 4096 };
/* Kinds of file in the folder; the letter begins the name. */
enum file_kind { FILE_DOCUMENT = 'd', FILE_RUN = 'r', FILE_INDEX = 'i' };
/* Longer words are cut. The generator's are shorter. */
enum { WORD_BYTES_MAX = 40 };

struct corpus {
    uint64_t seed;
    uint32_t documents;
    uint32_t document_bytes; /* mean; a document has half to one and a half times as many */
    uint32_t octaves; /* the vocabulary has 2^octaves - 1 words */
};

/* Makes the folder inside `parent` (NULL: $TMPDIR or /tmp) and arranges for its removal, with up to `documents` documents, `runs`
 * runs and `indexes` index files, at exit, at a failure and at SIGINT, SIGTERM and SIGHUP. */
void folder_make(const char *parent, uint32_t documents, uint32_t runs, uint32_t indexes);
/* Does nothing in a forked child. */
void folder_remove(void);
/* Path of a file in the folder. */
void folder_path(char path[PATH_BYTES], enum file_kind kind, uint32_t number);

/* The word of a rank, not terminated; returns its length. */
size_t corpus_word(const struct corpus *corpus, uint32_t rank, char word[WORD_BYTES_MAX]);
/* Bytes of the longest document. */
size_t corpus_document_bytes_max(const struct corpus *corpus);
/* Writes document `number`; `buffer` has corpus_document_bytes_max() bytes. */
void corpus_write(const struct corpus *corpus, uint32_t number, char *buffer);

#endif
