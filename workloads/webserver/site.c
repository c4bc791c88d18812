/* Documents, and whole transfers over sockets. */
#include "site.h"

#include "options.h"
#include "random.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MARK_ONE_IN = 500 };

void document_text(uint64_t seed, uint32_t number, char text[TEXT_BYTES]) {
    struct rng rng = rng_of(seed, number);
    for (size_t i = 0; i < TEXT_BYTES; i += 4) {
        uint64_t bits = rng_next(&rng);
        for (size_t k = 0; k < 4; k++, bits >>= 16) {
            uint32_t draw = (uint32_t)(bits & 0xffff);
            text[i + k] = draw % MARK_ONE_IN == 0 ? VALUE_MARK : draw % 6 == 0 ? ' ' : (char)('a' + draw % 26);
        }
    }
}

void document_topics(uint64_t seed, uint32_t number, struct topic topics[DOCUMENT_TOPICS]) {
    struct rng rng = rng_of(~seed, number);
    for (size_t i = 0; i < DOCUMENT_TOPICS; i++) topics[i] = (struct topic){rng_below(&rng, TOPICS), 1 + rng_below(&rng, 8)};
}

struct site site_make(uint64_t seed, uint32_t documents) {
    size_t bytes = documents * sizeof(struct document);
    struct document *document_cache = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (document_cache == MAP_FAILED) fail(EXIT_SYSTEM, "cannot map %zu bytes: %s; choose fewer --documents", bytes, strerror(errno));
    for (uint32_t number = 0; number < documents; number++) {
        document_text(seed, number, document_cache[number].text);
        document_topics(seed, number, document_cache[number].topics);
    }
    return (struct site){seed, documents, document_cache};
}

void site_free(struct site *site) {
    munmap(site->cache, site->documents * sizeof(struct document));
}

size_t receive(int socket, void *buffer, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        ssize_t got = read(socket, (char *)buffer + done, bytes - done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail(EXIT_SYSTEM, "cannot read from a socket: %s", strerror(errno));
        if (got == 0) break;
        done += (size_t)got;
    }
    return done;
}

void transmit(int socket, const void *data, size_t bytes) {
    while (bytes > 0) {
        ssize_t sent = write(socket, data, bytes);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) fail(EXIT_SYSTEM, "cannot write to a socket: %s", strerror(errno));
        data = (const char *)data + sent;
        bytes -= (size_t)sent;
    }
}
