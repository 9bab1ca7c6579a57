/* A client that is served: its connection, what of its requests is with the handlers.
 *
 * Two counts bound it. What it has asked and not been answered is no more than it was welcome for,
 * or it has broken the protocol. What the handlers have of it, also what it has canceled, decides
 * whether it hears BUSY.
 *
 * It outlives its connection as long as a handler has a request of it. */
#ifndef WEIR_RPC_CLIENT_H
#define WEIR_RPC_CLIENT_H

#include <stdbool.h>

#include <weir/rpc.h>

#include "weir/rpc/rpc_message.h"

#define PEER_NAME_MAX 80

struct client {
    struct client *next, *previous;
    struct weir_rpc *rpc;
    struct weir_connection *connection; /* NULL: gone */
    struct weir_request *requests;      /* with the handlers */
    unsigned owed;                      /* answers */
    unsigned held;                      /* requests */
    char peer[PEER_NAME_MAX];
};

/* Sends an answer: `message`, and what goes with it. */
enum weir_status client_send(struct client *client, const struct rpc_message *message,
                             const struct weir_piece *pieces, unsigned count);
/* The same of an answer that is short, and must be given: else the connection ends. */
void client_send_surely(struct client *client, const struct rpc_message *message,
                        const struct weir_piece *pieces, unsigned count);
/* One of its requests was given back. */
void client_release(struct client *client);
/* Ends all of an rpc's. */
void clients_fini(struct weir_rpc *rpc);

#endif
