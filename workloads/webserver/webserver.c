/* A web server and its visitors: a parent that forks server processes of several threads each, with memory pools per connection and per request, as
 * the Apache web server does, and a load generator in processes of its own, over local sockets.
 *
 * Naive: threads run anywhere. The pools of a process are used by all its threads and by nobody else, so with the threads spread over
 * the nodes three quarters of the accesses on a four-node machine are remote, while the load is even: neither another
 * allocator nor interleaving helps. Pinned: each process keeps its threads on one node (MemProf: Lachaize, Lepers, Quema, USENIX ATC 2012,
 * where this made Apache/PHP a fifth faster). */
#include "client.h"
#include "options.h"
#include "phase.h"
#include "placement.h"
#include "server.h"
#include "site.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum variant { VARIANT_NAIVE, VARIANT_PINNED };
static const char *const variants[] = {"naive", "pinned", NULL};
enum { PROCESSES_MAX = 64, CLIENT_PROCESSES = 4, CHILDREN_MAX = PROCESSES_MAX + CLIENT_PROCESSES };

struct settings {
    struct common_options common;
    uint64_t processes, connections, requests, documents;
};

struct preset {
    uint64_t connections, requests, documents;
};
/* `small`: 32 MiB in the pools of the connections. */
static const struct preset presets[] = {{16, 8, 32}, {256, 40, 512}, {512, 400, 1024}, {1000, 4000, 4096}};

static struct settings parse(int argc, char **argv) {
    struct settings settings = {.common = COMMON_OPTIONS_DEFAULT, .processes = 4};
    const struct option_spec specs[] = {
        option_size(&settings.common),
        option_choice("variant", &settings.common.variant, variants, "where a process's threads run"),
        option_number("threads", &settings.common.threads, 1, THREADS_MAX, "threads of all server processes together"),
        option_seed(&settings.common),
        option_number("processes", &settings.processes, 1, PROCESSES_MAX, "server processes, at most one per thread"),
        option_number("connections", &settings.connections, 1, 100000, "visitors, each with a connection"),
        option_number("requests", &settings.requests, 1, 1000000, "requests of each visitor"),
        option_number("documents", &settings.documents, 1, 1u << 20, "documents in the shared cache"),
    };
    const struct program program = {"webserver", "web server of several processes, and its visitors", specs, sizeof specs / sizeof *specs};
    options_parse(&program, argc, argv);
    const struct preset *preset = &presets[settings.common.size];
    if (!settings.connections) settings.connections = preset->connections;
    if (!settings.requests) settings.requests = preset->requests;
    if (!settings.documents) settings.documents = preset->documents;
    if (settings.processes > settings.common.threads) settings.processes = settings.common.threads;
    if (settings.processes > settings.connections) settings.processes = settings.connections;
    return settings;
}

static pid_t children[CHILDREN_MAX];
static size_t child_count;

static void kill_children(void) {
    for (size_t i = 0; i < child_count; i++) {
        if (children[i] > 0) kill(children[i], SIGKILL);
    }
}

/* True in the child. */
static bool fork_child(void) {
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) fail(EXIT_SYSTEM, "cannot start process %zu: %s", child_count, strerror(errno));
    if (child == 0) {
        /* Only the parent ends the others. */
        fail_cleanup = NULL;
        return true;
    }
    children[child_count++] = child;
    return false;
}

/* Waits for all children; one that fails ends them all, with its status. */
static void wait_for_children(void) {
    for (size_t left = child_count; left > 0; left--) {
        int status = 0;
        pid_t child;
        do child = waitpid(-1, &status, 0);
        while (child < 0 && errno == EINTR);
        for (size_t i = 0; i < child_count; i++) {
            if (children[i] == child) children[i] = 0;
        }
        if (status) fail(WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_SYSTEM, "process %d failed", (int)child);
    }
    child_count = 0;
}

/* A socket that clients find by a name in memory only, which goes when the process does. */
static int listen_for(uint64_t connections, struct client_share *client) {
    client->address.sun_family = AF_UNIX;
    char *name = client->address.sun_path;
    int length = snprintf(name + 1, sizeof client->address.sun_path - 1, "webserver-%d", (int)getpid());
    name[0] = 0;
    client->address_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (const struct sockaddr *)&client->address, client->address_bytes) || listen(listener, (int)connections)) {
        fail(EXIT_SYSTEM, "cannot listen on a local socket: %s", strerror(errno));
    }
    return listener;
}

/* Part `part` of `parts` of 0..count begins here. */
static uint64_t part_begin(uint64_t count, uint64_t part, uint64_t parts) {
    return count * part / parts;
}

/* Forks a server process and waits until its threads have started, or it has failed: the next one's threads start after this one's. */
static void start_server(const struct site *site, struct server_share *share) {
    int ready[2];
    char byte;
    if (pipe(ready)) fail(EXIT_SYSTEM, "cannot make a pipe: %s", strerror(errno));
    if (fork_child()) {
        close(ready[0]);
        share->ready = ready[1];
        serve(site, share);
        exit(0);
    }
    close(ready[1]);
    receive(ready[0], &byte, 1);
    close(ready[0]);
}

/* All requests of all visitors; returns the sum of the answers' hashes. */
static uint64_t run(const struct settings *settings, const struct site *site) {
    size_t bytes = CLIENT_PROCESSES * sizeof(uint64_t);
    uint64_t *sums = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sums == MAP_FAILED) fail(EXIT_SYSTEM, "cannot map %zu bytes: %s", bytes, strerror(errno));
    struct client_share client = {.requests = settings->requests};
    int listener = listen_for(settings->connections, &client);
    bool is_pinned = settings->common.variant == VARIANT_PINNED && placement_node_count() > 1;
    for (uint64_t i = 0; i < settings->processes; i++) {
        uint64_t n = settings->processes, threads = settings->common.threads, connections = settings->connections;
        struct server_share share = {
            .listener = listener,
            .threads = part_begin(threads, i + 1, n) - part_begin(threads, i, n),
            .connections = part_begin(connections, i + 1, n) - part_begin(connections, i, n),
            .node = is_pinned ? (int)(i % (uint64_t)placement_node_count()) : -1,
        };
        start_server(site, &share);
    }
    for (uint64_t i = 0; i < CLIENT_PROCESSES; i++) {
        client.first = part_begin(settings->connections, i, CLIENT_PROCESSES);
        client.connections = part_begin(settings->connections, i + 1, CLIENT_PROCESSES) - client.first;
        if (fork_child()) {
            close(listener);
            sums[i] = visit_all(site, &client);
            exit(0);
        }
    }
    close(listener);
    wait_for_children();
    uint64_t sum = 0;
    for (uint64_t i = 0; i < CLIENT_PROCESSES; i++) sum += sums[i];
    munmap(sums, bytes);
    return sum;
}

int main(int argc, char **argv) {
    struct settings settings = parse(argc, argv);
    fprintf(stderr, "webserver: %s, %" PRIu64 " threads in %" PRIu64 " processes\n", variants[settings.common.variant], settings.common.threads,
            settings.processes);
    fail_cleanup = kill_children;
    /* A client that gives up must not kill the server by SIGPIPE. */
    signal(SIGPIPE, SIG_IGN);
    phase("documents");
    struct site site = site_make(settings.common.seed, (uint32_t)settings.documents);
    phase("serve");
    uint64_t checksum = run(&settings, &site);
    phase(NULL);
    printf("webserver ok connections=%" PRIu64 " requests=%" PRIu64 " checksum=%016" PRIx64 "\n", settings.connections,
           settings.connections * settings.requests, checksum);
    site_free(&site);
    return 0;
}
