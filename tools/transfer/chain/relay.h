/* A receiver's part in a fan-out (docs/fanout.md): to its session it is the link, though what the
 * source sends comes by another connection, from whom feeds this one, and goes on to the next.
 *
 * Each chunk is fetched out of the reach of whoever feeds this one, and compared with its digest,
 * before it is believed or goes on. A frame is held until all behind have it, so that whoever is
 * fed from here can be replaced. */
#ifndef TOOLS_TRANSFER_RELAY_H
#define TOOLS_TRANSFER_RELAY_H

#include <stdbool.h>

#include "tools/transfer/chain/hop.h"
#include "tools/transfer/wire/link.h"

struct relay;

/* How connections to others are had; of a process, or of one of a test's. */
struct hop_dialer {
    /* Begins to connect to one of the target's addresses. NULL: see ret_why. */
    struct link *(*dial)(void *user, const struct hop_target *target, unsigned address,
                         char ret_why[HOP_WHY_LENGTH]);
    /* The link is not needed any more, closed or not. */
    void (*drop)(void *user, struct link *link);
    void *user;
};

/* The relays of one process. */
struct relay_host {
    struct hop_dialer dialer;
    bool (*random)(void *bytes, size_t length);
    bool guarded; /* who comes has proven its secret before */
    struct relay *relays;
};

/* Becomes the user of the link to the source. NULL: no memory, or no random bytes. */
struct relay *relay_create(struct relay_host *host, struct link *source);
/* What comes of it is ended, too. */
void relay_destroy(struct relay *relay);
/* The session's. */
struct link *relay_link(struct relay *relay);

/* Whoever is awaited by a secret of this name; NULL: nobody. */
const struct secret *relay_secret(const struct relay_host *host, const char *name);

/* One who came with ATTACH, by the secret of this name, or "" without one. From then on `link` is
 * the relay's: its events are to be told below, as long as *holder is not NULL. False: it is not
 * awaited. */
bool relay_attach(struct relay_host *host, const char *name, const void *bytes, size_t length,
                  struct link *link, struct relay **holder);
void relay_received(struct relay *relay, const void *bytes, size_t length);
void relay_noticed(struct relay *relay, uint32_t notice, size_t length);
void relay_closed(struct relay *relay, const char *why);

#endif
