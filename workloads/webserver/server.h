/* The server processes. */
#ifndef WEBSERVER_SERVER_H
#define WEBSERVER_SERVER_H

#include "site.h"

#include <stdint.h>

/* One process's share. */
struct server_share {
    int listener;
    uint64_t threads, connections;
    int node; /* to which all of its threads are pinned; -1: not pinned */
};

/* Accepts the connections, serves them with all threads until the clients have closed them all, and returns. The calling thread is one of them. */
void serve(const struct site *site, const struct server_share *share);

#endif
