/* The load generator: visitors that ask for one page after another. */
#ifndef WEBSERVER_CLIENT_H
#define WEBSERVER_CLIENT_H

#include "site.h"

#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

/* One process's share of the visitors. */
struct client_share {
    struct sockaddr_un address;
    socklen_t address_bytes;
    uint64_t first, connections; /* visitors first to first + connections - 1 */
    uint64_t requests;           /* of each */
};

/* Makes all requests and checks all answers. Returns the sum of their hashes, which does not depend on how visitors are shared out. */
uint64_t visit_all(const struct site *site, const struct client_share *share);

#endif
