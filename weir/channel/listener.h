/* What a listening address is, whichever bootstrap; and the acceptance of a new connection. */
#ifndef WEIR_CHANNEL_LISTENER_H
#define WEIR_CHANNEL_LISTENER_H

#include <rdma/rdma_cma.h>

#include <weir/channel.h>

#include "weir/address.h"
#include "weir/channel/poller.h"

#define LISTENER_STRANGERS_MAX      256 /* connections that are not up yet */
#define LISTENER_STRANGERS_PER_HOST 128 /* so that one host does not keep all others out */
#define LISTENER_CROWDED            "too many half-open"

struct weir_listener {
    struct weir_listener *next;
    struct weir_poller *poller;
    struct weir_channel_options options;
    weir_accept_callback *accepted;
    void *user;
    struct rdma_cm_id *id; /* rdma_cm */
    struct source tcp;     /* TCP; fd -1: none */
    struct timer pause;    /* TCP: none is accepted until then */
    struct weir_connection *strangers;
    char address[ADDRESS_TEXT_MAX];
    bool is_closed; /* takes nobody; goes when those whom it has taken are up, or not any more */
};

/* A new connection, which is a stranger until it is up or has ended. */
void listener_take(struct weir_listener *listener, struct weir_connection *connection);
/* It is a stranger no more, if it was one. */
void listener_let_go(struct weir_connection *connection);
/* Asks the user whether the new connection is welcome. */
bool listener_ask(struct weir_listener *listener, struct weir_connection *connection);
/* True if there is no room for another stranger. `peer` is an address as text, with a port. */
bool listener_is_crowded(const struct weir_listener *listener, const char *peer);
void listener_destroy(struct weir_listener *listener);
void listeners_reap(struct weir_poller *poller);

#endif
