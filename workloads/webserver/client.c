/* Visitors: what they ask for, and what the answers must be. */
#include "client.h"

#include "options.h"
#include "random.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COMPARE_ONE_IN = 8, PAGE_BYTES_MAX = TEXT_BYTES * 20 };

struct visitor {
    int socket;
    uint32_t *interests;
    uint64_t score;
};

static uint32_t document_of(const struct site *site, uint64_t visitor, uint64_t visit) {
    struct rng rng = rng_of(site->seed ^ mix64(visitor), visit);
    /* The product of two uniform numbers: some documents are asked for often, most hardly ever. */
    return (uint32_t)(rng_unit(&rng) * rng_unit(&rng) * site->documents);
}

static void ask(int socket, uint32_t document, uint64_t visit) {
    char request[REQUEST_BYTES_MAX];
    int bytes = snprintf(request, sizeof request,
                         "GET /page/%" PRIu32 " HTTP/1.1\nHost: localhost\nUser-Agent: load-generator\nAccept: text/plain\n"
                         "Accept-Language: en\nConnection: keep-alive\nCookie: visit=%" PRIu64 "\n\n",
                         document, visit);
    transmit(socket, request, (size_t)bytes);
}

/* What the server works out by adding up all interests, from the change alone. */
static void expect(const struct site *site, struct visitor *visitor, uint32_t document) {
    struct topic topics[DOCUMENT_TOPICS];
    document_topics(site->seed, document, topics);
    for (size_t i = 0; i < DOCUMENT_TOPICS; i++) {
        uint64_t before = visitor->interests[topics[i].topic], after = before + topics[i].weight;
        visitor->interests[topics[i].topic] = (uint32_t)after;
        visitor->score += after * after - before * before;
    }
}

/* Compares a page with the document as it is generated. */
static bool is_page_of(const struct site *site, uint32_t document, uint64_t score, const char *page, size_t bytes) {
    char text[TEXT_BYTES], value[32];
    document_text(site->seed, document, text);
    size_t digits = (size_t)snprintf(value, sizeof value, "%" PRIu64, score), at = 0;
    for (size_t i = 0; i < TEXT_BYTES; i++) {
        const char *expected = text[i] == VALUE_MARK ? value : &text[i];
        size_t length = text[i] == VALUE_MARK ? digits : 1;
        if (bytes - at < length || memcmp(page + at, expected, length)) return false;
        at += length;
    }
    return at == bytes;
}

/* Takes an answer and checks it; returns its hash. */
static uint64_t check(const struct site *site, struct visitor *visitor, uint64_t number, uint64_t visit, char *page) {
    char head[HEAD_BYTES + 1] = "";
    uint32_t document = document_of(site, number, visit);
    size_t length = 0;
    uint64_t answered = 0, score = 0;
    expect(site, visitor, document);
    if (receive(visitor->socket, head, HEAD_BYTES) != HEAD_BYTES) fail(EXIT_SYSTEM, "the server closed connection %" PRIu64, number);
    if (sscanf(head, "200 length=%zu visit=%" SCNu64 " score=%" SCNu64, &length, &answered, &score) != 3 || length > PAGE_BYTES_MAX) {
        fail(EXIT_WRONG_RESULT, "wrong result: visitor %" PRIu64 " gets the answer `%s`", number, head);
    }
    if (answered != visit || score != visitor->score) {
        fail(EXIT_WRONG_RESULT, "wrong result: visitor %" PRIu64 " has the score %" PRIu64 " after visit %" PRIu64 ", not %" PRIu64 " after %" PRIu64, number,
             score, answered, visitor->score, visit);
    }
    if (receive(visitor->socket, page, length) != length) fail(EXIT_SYSTEM, "the server closed connection %" PRIu64, number);
    if (visit % COMPARE_ONE_IN == 0 && !is_page_of(site, document, score, page, length)) {
        fail(EXIT_WRONG_RESULT, "wrong result: visitor %" PRIu64 " gets another page than document %" PRIu32, number, document);
    }
    return hash_bytes(mix64(number) ^ score, page, length);
}

uint64_t visit_all(const struct site *site, const struct client_share *share) {
    struct visitor *visitors = calloc(share->connections, sizeof *visitors);
    need_memory(visitors, share->connections * sizeof *visitors);
    char *page = malloc(PAGE_BYTES_MAX);
    need_memory(page, PAGE_BYTES_MAX);
    for (uint64_t i = 0; i < share->connections; i++) {
        struct visitor *visitor = &visitors[i];
        visitor->interests = calloc(TOPICS, sizeof *visitor->interests);
        need_memory(visitor->interests, TOPICS * sizeof *visitor->interests);
        visitor->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (visitor->socket < 0 || connect(visitor->socket, (const struct sockaddr *)&share->address, share->address_bytes)) {
            fail(EXIT_SYSTEM, "cannot connect visitor %" PRIu64 ": %s; choose fewer --connections", share->first + i, strerror(errno));
        }
    }
    uint64_t sum = 0;
    for (uint64_t visit = 0; visit < share->requests; visit++) {
        for (uint64_t i = 0; i < share->connections; i++) ask(visitors[i].socket, document_of(site, share->first + i, visit), visit);
        for (uint64_t i = 0; i < share->connections; i++) sum += check(site, &visitors[i], share->first + i, visit, page);
    }
    for (uint64_t i = 0; i < share->connections; i++) {
        close(visitors[i].socket);
        free(visitors[i].interests);
    }
    free(visitors);
    free(page);
    return sum;
}
