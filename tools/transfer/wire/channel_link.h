/* A transfer's link over a weir channel, behind a guard (trust/guard.h) or without one.
 *
 * With a guard the link opens when the peer has proven who it is and the server has let the client
 * in, and every message is sealed from then on; where chunks are sealed, too, the transfer works in
 * memory that no key reaches, and what crosses is between two others. */
#ifndef TOOLS_TRANSFER_CHANNEL_LINK_H
#define TOOLS_TRANSFER_CHANNEL_LINK_H

#include "tools/transfer/wire/link.h"

/* The channel's options that both ends of a transfer use. */
extern const struct weir_channel_options channel_link_options;
/* The connection's handler; its user is the link. */
extern const struct weir_handler channel_link_handler;

struct guard;

/* Who lets peers in: a server whose link has a guard. Its link gets a user only in `admit`. */
struct channel_link_door {
    void *user;
    /* The peer has proven that it is who guard_name calls so. NULL: it may go on, and a session
     * has been made for the link; else why not, for the peer. */
    const char *(*admit)(void *user, const char *name);
    /* Instead of the session's end, of one that was not let in: why. The connection is gone. */
    void (*left_outside)(void *user, const char *why);
};

/* `guard` is the link's; NULL: whoever comes is believed. `door` is copied, and with a server's
 * guard only. NULL: no memory, and the guard is gone, too. */
struct link *channel_link_create(struct guard *guard, const struct channel_link_door *door);
/* The connection it is for, before the connection's first event. */
void channel_link_attach(struct link *link, struct weir_connection *connection);
/* There is a connection, but a guard has not let the peer in, or the peer's us. */
bool channel_link_is_outside(const struct link *link);
/* There is one, and both are in. */
bool channel_link_is_open(const struct link *link);
/* There was one, and in the handshake one of the two said no to the other. */
bool channel_link_was_refused(const struct link *link);
/* It has closed, and nobody meant it: no side has found anything wrong with the other. */
bool channel_link_was_lost(const struct link *link);
/* NULL once it has closed. */
struct weir_connection *channel_link_connection(struct link *link);
/* After it closed, or when the poller has been destroyed. */
void channel_link_destroy(struct link *link);

#endif
