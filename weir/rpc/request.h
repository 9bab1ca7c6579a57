/* A request with its handler: from its arrival until it is answered, and no pull or push of it is
 * under way. That its client is gone changes nothing about that. */
#ifndef WEIR_RPC_REQUEST_H
#define WEIR_RPC_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include <weir/rpc.h>

#include "weir/rpc/rpc_message.h"

struct client;

struct weir_request {
    struct weir_request *next, *previous; /* of the client's */
    struct client *client;
    struct weir_procedure *procedure;
    unsigned place; /* the client's */
    unsigned timeout_ms;
    bool is_owed;           /* an answer to it */
    bool is_refused;        /* which is to be said when nothing is under way */
    enum weir_status state; /* of who waits for the answer */
    unsigned moves;         /* under way */
    struct chunk *held;
    size_t held_length;
    weir_gone_callback *gone;
    void *gone_argument;
    uint32_t refusal_code;
    struct chunk *refusal; /* its words, ended by a zero; NULL: none */
    unsigned bulk_count;
    struct rpc_bulk bulk[WEIR_BULK_MAX]; /* last: only bulk_count of them are set */
};

/* A pull or push under way. */
struct move {
    struct weir_request *request;
    weir_moved_callback *moved;
    void *argument;
    size_t length;
    bool is_push;
};

/* NULL: no memory. */
struct weir_request *request_create(struct client *client, struct weir_procedure *procedure,
                                    const struct rpc_message *message);
void request_free(struct weir_request *request);
/* Its client does not wait for the answer any more to what has that place. If there is none, it
 * crossed that word. */
void request_cancel(struct client *client, unsigned place);
/* The client's connection has ended. */
void requests_lose(struct client *client, enum weir_status why);
/* One of its moves is over, of which the handler hears next, and may answer then. Was it the last,
 * what waited for that is said; of a request that was refused nothing is left. */
void request_move_ended(struct weir_request *request);

#endif
