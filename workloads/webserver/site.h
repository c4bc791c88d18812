/* What the server serves, and how client and server talk. Both sides know the site; nothing else is shared by their code. */
#ifndef WEBSERVER_SITE_H
#define WEBSERVER_SITE_H

#include <stddef.h>
#include <stdint.h>

enum {
    TEXT_BYTES = 8192,   /* of a document's text */
    DOCUMENT_TOPICS = 64, /* per document */
    TOPICS = 32768,      /* all; a visitor's interest in each is counted */
    REQUEST_BYTES_MAX = 1024,
    HEAD_BYTES = 128, /* of an answer, padded with blanks */
    VALUE_MARK = '@', /* in a text: here goes the visitor's score, in decimal */
};

struct topic {
    uint32_t topic, weight;
};

/* A document in the cache that all server processes share. */
struct document {
    char text[TEXT_BYTES];
    struct topic topics[DOCUMENT_TOPICS];
};

struct site {
    uint64_t seed;
    uint32_t documents;
    struct document *cache;
};

/* The document itself is a function of seed and number. Texts are letters, blanks, and VALUE_MARK about every 500 bytes. */
void document_text(uint64_t seed, uint32_t number, char text[TEXT_BYTES]);
void document_topics(uint64_t seed, uint32_t number, struct topic topics[DOCUMENT_TOPICS]);

/* The calling process writes all documents into memory that its children will share. */
struct site site_make(uint64_t seed, uint32_t documents);
void site_free(struct site *site);

/* All of `bytes`, or the end of the stream: the number of bytes that came. Failures end the process. */
size_t receive(int socket, void *buffer, size_t bytes);
void transmit(int socket, const void *data, size_t bytes);

#endif
