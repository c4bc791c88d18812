/* cache_load.c: a load for memcached, with values that can be checked.
 *
 * usage: cache_load SOCKET fill|get CLIENTS KEYS BYTES REQUESTS SEED
 *
 * Each of CLIENTS connections has KEYS long keys of its own, whose values of BYTES bytes follow from the key. `fill` stores them, client after client, so that
 * one client's items lie together. `get` has a process for each client, which asks REQUESTS times for eight of them, drawn by SEED, keeps AHEAD such
 * requests on their way, and compares each value with what it must be. A line of JSON says how long that took by this machine's clock, how many values
 * were missing or wrong, and the checksum of all that was received (FNV-1a of words of 8 bytes), which is the same for the same arguments whatever else
 * happens. Exit status 1 where a value was missing or wrong, 2 where the server does not answer. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS_MAX = 64, BYTES_MAX = 4096, LINE = 512, TOGETHER = 8, AHEAD = 4 };
/* A client's number and a key's, of 200 bytes together (memcached takes 250): the server's own code compares and copies keys, but leaves values to the
 * kernel. With short keys it would touch little more of a client's data than one line of each item's head. */
#define KEY "%03u:%0196u"

struct client {
    FILE *in, *out;
    uint64_t random;
    unsigned asked[AHEAD][TOGETHER];
    uint64_t sum, missing, wrong;
};
/* Shared by the clients' processes. */
static struct client *clients;

__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("cache_load: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(2);
}

/* splitmix64 */
static uint64_t next(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static void make_value(char *value, unsigned bytes, unsigned client, unsigned key) {
    uint64_t state = (uint64_t)client << 32 | key;
    for (unsigned i = 0; i < bytes; i += 8) {
        uint64_t word = next(&state);
        memcpy(value + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

static void dial(struct client *client, const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) fail("the socket's path is too long: %s", path);
    strcpy(address.sun_path, path);
    int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0 || connect(descriptor, (struct sockaddr *)&address, sizeof address) != 0) fail("nobody answers at %s", path);
    client->in = fdopen(descriptor, "r");
    client->out = fdopen(dup(descriptor), "w");
    if (client->in == NULL || client->out == NULL) fail("no memory for a connection");
}

static void read_line(struct client *client, char line[LINE]) {
    if (fgets(line, LINE, client->in) == NULL) fail("the server has hung up");
}

static void fill(unsigned count, unsigned keys, unsigned bytes) {
    char value[BYTES_MAX], line[LINE];
    for (unsigned c = 0; c < count; c++) {
        for (unsigned key = 0; key < keys; key++) {
            make_value(value, bytes, c, key);
            fprintf(clients[c].out, "set " KEY " 0 0 %u\r\n", c, key, bytes);
            fwrite(value, 1, bytes, clients[c].out);
            fputs("\r\n", clients[c].out);
            fflush(clients[c].out);
            read_line(&clients[c], line);
            if (strcmp(line, "STORED\r\n") != 0) fail("set: %s", line);
        }
    }
}

static void add(struct client *client, const char *bytes, size_t count) {
    for (size_t i = 0; i < count; i += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, count - i < 8 ? count - i : 8);
        client->sum = (client->sum ^ word) * 0x100000001b3u;
    }
}

static void receive_value(unsigned number, unsigned key, unsigned bytes, const char *line) {
    struct client *client = &clients[number];
    char value[BYTES_MAX + 2], wanted[BYTES_MAX];
    unsigned of, named, got;
    if (sscanf(line, "VALUE %u:%u %*u %u", &of, &named, &got) != 3 || got > BYTES_MAX) fail("get: %s", line);
    if (fread(value, 1, got + 2, client->in) != got + 2) fail("the server has hung up");
    add(client, value, got);
    make_value(wanted, bytes, number, key);
    client->wrong += of != number || named != key || got != bytes || memcmp(value, wanted, bytes) != 0;
}

/* The server leaves out what it does not have: what comes after that counts as wrong. */
static void receive(unsigned number, const unsigned *asked, unsigned bytes) {
    char line[LINE];
    unsigned at = 0;
    for (;;) {
        read_line(&clients[number], line);
        add(&clients[number], line, strlen(line));
        if (strcmp(line, "END\r\n") == 0) break;
        if (at == TOGETHER) fail("more values than keys: %s", line);
        receive_value(number, asked[at++], bytes, line);
    }
    clients[number].missing += TOGETHER - at;
}

static void ask(struct client *client, unsigned number, unsigned *asked, unsigned keys) {
    fputs("get", client->out);
    for (unsigned at = 0; at < TOGETHER; at++) {
        asked[at] = (unsigned)(next(&client->random) % keys);
        fprintf(client->out, " " KEY, number, asked[at]);
    }
    fputs("\r\n", client->out);
    fflush(client->out);
}

static void get(unsigned number, unsigned keys, unsigned bytes, unsigned requests) {
    struct client *client = &clients[number];
    client->sum = 0xcbf29ce484222325u;
    for (unsigned turn = 0; turn < requests + AHEAD; turn++) {
        if (turn >= AHEAD) receive(number, client->asked[turn % AHEAD], bytes);
        if (turn < requests) ask(client, number, client->asked[turn % AHEAD], keys);
    }
}

/* Each client in a process of its own. */
static void get_all(unsigned count, unsigned keys, unsigned bytes, unsigned requests) {
    for (unsigned c = 0; c < count; c++) {
        pid_t child = fork();
        if (child < 0) fail("no process for a client");
        if (child > 0) continue;
        get(c, keys, bytes, requests);
        _exit(0);
    }
    for (unsigned c = 0; c < count; c++) {
        int status;
        if (wait(&status) < 0 || status != 0) fail("a client has failed");
    }
}

static unsigned number(const char *text, unsigned most) {
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*text == 0 || *end != 0 || value > most) fail("no number up to %u: %s", most, text);
    return (unsigned)value;
}

int main(int words, char **word) {
    if (words != 8 || (strcmp(word[2], "fill") != 0 && strcmp(word[2], "get") != 0)) fail("usage: SOCKET fill|get CLIENTS KEYS BYTES REQUESTS SEED");
    unsigned count = number(word[3], CLIENTS_MAX), keys = number(word[4], 1u << 24), bytes = number(word[5], BYTES_MAX);
    unsigned requests = number(word[6], 1u << 30), seed = number(word[7], UINT32_MAX);
    if (keys == 0) fail("no keys");
    clients = mmap(NULL, CLIENTS_MAX * sizeof *clients, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (clients == MAP_FAILED) fail("no memory for the clients");
    for (unsigned c = 0; c < count; c++) {
        dial(&clients[c], word[1]);
        clients[c].random = (uint64_t)seed << 32 | c;
    }
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    if (strcmp(word[2], "fill") == 0)
        fill(count, keys, bytes);
    else
        get_all(count, keys, bytes, requests);
    clock_gettime(CLOCK_MONOTONIC, &end);
    uint64_t sum = 0, missing = 0, wrong = 0;
    for (unsigned c = 0; c < count; c++) {
        sum = sum * 0x100000001b3u ^ clients[c].sum;
        missing += clients[c].missing;
        wrong += clients[c].wrong;
    }
    double seconds = (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
    printf("{\"requests\":%u,\"seconds\":%.6f,\"missing\":%" PRIu64 ",\"wrong\":%" PRIu64 ",\"checksum\":\"%016" PRIx64 "\"}\n",
           count * (strcmp(word[2], "fill") == 0 ? keys : requests), seconds, missing, wrong, sum);
    return missing + wrong != 0;
}
