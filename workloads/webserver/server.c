/* A server process: threads that take whichever connection has a request. What belongs to a connection lives in a pool that it was given when it
 * came; what a request needs comes from a pool out of the process's stock, which is cleared and put back afterwards. So every thread
 * of a process works in the memory of all its connections, and no other process ever does. */
#include "server.h"

#include "options.h"
#include "placement.h"
#include "pool.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

struct connection {
    int socket;
    struct pool *pool;
    uint32_t *interests; /* TOPICS counts: of the visitor in each topic; NULL before the first request */
    uint64_t requests;
};

struct process {
    const struct site *site;
    int poller, finished; /* `finished` becomes readable when the last connection has gone, and stays so */
    uint64_t open;        /* connections */
    pthread_mutex_t stock_lock;
    struct pool *stock; /* pools for requests */
};

struct header {
    struct header *next;
    const char *name, *value;
};

static struct pool *stock_take(struct process *process) {
    pthread_mutex_lock(&process->stock_lock);
    struct pool *pool = process->stock;
    if (pool) process->stock = pool->next;
    pthread_mutex_unlock(&process->stock_lock);
    return pool ? pool : pool_create();
}

static void stock_give(struct process *process, struct pool *pool) {
    pool_clear(pool);
    pthread_mutex_lock(&process->stock_lock);
    pool->next = process->stock;
    process->stock = pool;
    pthread_mutex_unlock(&process->stock_lock);
}

/* Cuts the request into lines and these into names and values. The first header is the request line: its value is the path. */
static struct header *parse_request(struct pool *pool, const char *request, size_t bytes) {
    char *text = pool_alloc(pool, bytes + 1);
    memcpy(text, request, bytes);
    text[bytes] = 0;
    struct header *headers = NULL, **link = &headers;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *value = strchr(line, ' ');
        if (!value) fail(EXIT_WRONG_RESULT, "wrong result: a request has the header `%s`", line);
        *value++ = 0;
        struct header *header = pool_alloc(pool, sizeof *header);
        *header = (struct header){NULL, line, value};
        *link = header;
        link = &header->next;
    }
    return headers;
}

static uint64_t number_in(const struct header *headers, const char *name, const char *prefix) {
    for (const struct header *header = headers; header; header = header->next) {
        if (!strcmp(header->name, name) && !strncmp(header->value, prefix, strlen(prefix))) {
            return strtoull(header->value + strlen(prefix), NULL, 10);
        }
    }
    fail(EXIT_WRONG_RESULT, "wrong result: a request has no header `%s %s`", name, prefix);
}

/* Adds the document's topics to the visitor's interests. The score is the sum of the squares of all of them. */
static uint64_t update_interests(struct connection *connection, const struct document *document) {
    if (!connection->interests) {
        connection->interests = pool_alloc(connection->pool, TOPICS * sizeof *connection->interests);
        memset(connection->interests, 0, TOPICS * sizeof *connection->interests);
    }
    uint32_t *interests = connection->interests;
    for (size_t i = 0; i < DOCUMENT_TOPICS; i++) interests[document->topics[i].topic] += document->topics[i].weight;
    uint64_t score = 0;
    for (size_t topic = 0; topic < TOPICS; topic++) score += (uint64_t)interests[topic] * interests[topic];
    return score;
}

/* The page: the text with the score in place of each mark. Returns its length. */
static size_t render(const struct document *document, const char *score, char *page) {
    size_t used = 0, digits = strlen(score);
    for (size_t i = 0; i < TEXT_BYTES; i++) {
        if (document->text[i] != VALUE_MARK) {
            page[used++] = document->text[i];
            continue;
        }
        memcpy(page + used, score, digits);
        used += digits;
    }
    return used;
}

static void answer(const struct site *site, struct connection *connection, struct pool *pool, const char *request, size_t bytes) {
    struct header *headers = parse_request(pool, request, bytes);
    uint64_t number = number_in(headers, "GET", "/page/"), visit = number_in(headers, "Cookie:", "visit=");
    if (number >= site->documents || visit != connection->requests) {
        fail(EXIT_WRONG_RESULT, "wrong result: request %" PRIu64 " of a connection is number %" PRIu64 ", for document %" PRIu64,
             connection->requests, visit, number);
    }
    connection->requests++;
    const struct document *document = &site->cache[number];
    char *score = pool_alloc(pool, 32);
    snprintf(score, 32, "%" PRIu64, update_interests(connection, document));
    /* Every byte may be a mark. */
    char *page = pool_alloc(pool, HEAD_BYTES + TEXT_BYTES * strlen(score));
    size_t length = render(document, score, page + HEAD_BYTES);
    char head[HEAD_BYTES + 1];
    int used = snprintf(head, sizeof head, "200 length=%zu visit=%" PRIu64 " score=%s", length, visit, score);
    memset(page, ' ', HEAD_BYTES);
    memcpy(page, head, (size_t)used);
    transmit(connection->socket, page, HEAD_BYTES + length);
}

/* One request: up to an empty line. False at the end of the connection. */
static bool handle_request(struct process *process, struct connection *connection) {
    struct pool *pool = stock_take(process);
    char *request = pool_alloc(pool, REQUEST_BYTES_MAX);
    size_t bytes = 0;
    while (bytes < 2 || memcmp(request + bytes - 2, "\n\n", 2)) {
        ssize_t got = bytes < REQUEST_BYTES_MAX ? read(connection->socket, request + bytes, REQUEST_BYTES_MAX - bytes) : 0;
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail(EXIT_SYSTEM, "cannot read from a socket: %s", strerror(errno));
        if (got == 0) break;
        bytes += (size_t)got;
    }
    if (bytes) answer(process->site, connection, pool, request, bytes);
    stock_give(process, pool);
    return bytes > 0;
}

/* The visitor has gone. Sockets are closed when all threads have ended: another one may still be returning from the call that asked to be told. */
static void end_connection(struct process *process, struct connection *connection) {
    pool_destroy(connection->pool);
    if (__atomic_sub_fetch(&process->open, 1, __ATOMIC_ACQ_REL)) return;
    uint64_t one = 1;
    transmit(process->finished, &one, sizeof one);
}

/* Requests one notification of the connection's next request. */
static void watch(struct process *process, int how, int descriptor, struct connection *connection) {
    struct epoll_event event = {.events = EPOLLIN | (connection ? EPOLLONESHOT : 0), .data.ptr = connection};
    if (epoll_ctl(process->poller, how, descriptor, &event)) fail(EXIT_SYSTEM, "cannot watch a socket: %s", strerror(errno));
}

static void *worker_main(void *argument) {
    struct process *process = argument;
    for (;;) {
        struct epoll_event event;
        int count = epoll_wait(process->poller, &event, 1, -1);
        if (count < 0 && errno != EINTR) fail(EXIT_SYSTEM, "cannot wait for requests: %s", strerror(errno));
        if (count <= 0) continue;
        struct connection *connection = event.data.ptr;
        if (!connection) return NULL;
        if (handle_request(process, connection)) watch(process, EPOLL_CTL_MOD, connection->socket, connection);
        else end_connection(process, connection);
    }
}

static void accept_all(struct process *process, int listener, struct connection *connections, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        int socket;
        do socket = accept(listener, NULL, NULL);
        while (socket < 0 && errno == EINTR);
        if (socket < 0) fail(EXIT_SYSTEM, "cannot accept connection %" PRIu64 ": %s; choose fewer --connections", i, strerror(errno));
        connections[i] = (struct connection){.socket = socket, .pool = pool_create()};
        watch(process, EPOLL_CTL_ADD, socket, &connections[i]);
    }
}

void serve(const struct site *site, const struct server_share *share) {
    if (share->node >= 0) placement_pin(share->node);
    struct process process = {.site = site, .poller = epoll_create1(EPOLL_CLOEXEC), .finished = eventfd(0, EFD_CLOEXEC)};
    if (process.poller < 0 || process.finished < 0) fail(EXIT_SYSTEM, "cannot wait for sockets: %s", strerror(errno));
    pthread_mutex_init(&process.stock_lock, NULL);
    struct connection *connections = calloc(share->connections, sizeof *connections);
    need_memory(connections, share->connections * sizeof *connections);
    watch(&process, EPOLL_CTL_ADD, process.finished, NULL);
    process.open = share->connections;
    pthread_t threads[THREADS_MAX];
    for (uint64_t i = 1; i < share->threads; i++) {
        int error = pthread_create(&threads[i], NULL, worker_main, &process);
        if (error) fail(EXIT_SYSTEM, "cannot start thread %" PRIu64 ": %s; choose fewer --threads", i, strerror(error));
    }
    transmit(share->ready, "", 1);
    close(share->ready);
    accept_all(&process, share->listener, connections, share->connections);
    worker_main(&process);
    for (uint64_t i = 1; i < share->threads; i++) pthread_join(threads[i], NULL);
    for (uint64_t i = 0; i < share->connections; i++) close(connections[i].socket);
    while (process.stock) {
        struct pool *pool = process.stock;
        process.stock = pool->next;
        pool_destroy(pool);
    }
    free(connections);
    pthread_mutex_destroy(&process.stock_lock);
    close(process.poller);
    close(process.finished);
}
