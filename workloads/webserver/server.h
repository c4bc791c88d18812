/* The server processes. */
#ifndef WEBSERVER_SERVER_H
#define WEBSERVER_SERVER_H

#include "site.h"

#include <stdint.h>

/* One process's share. */
struct server_share {
    int listener;
    int ready; /* written to, and closed, when all threads have started */
    uint64_t threads, connections;
    int node; /* to which all of its threads are pinned; -1: not pinned */
};

/* Starts the threads, accepts the connections, serves them until the clients have closed them all, and returns. The calling thread is one of them. */
void serve(const struct site *site, const struct server_share *share);

#endif
