/* Memory of a call's that its server may reach: registered for the connection that the call is sent
 * on, just before it is sent. Taking it back is synchronous: then no key opens it any more. */
#ifndef WEIR_RPC_SHOWN_H
#define WEIR_RPC_SHOWN_H

#include <weir/rpc.h>

#include "weir/rpc/rpc_message.h"

struct shown {
    unsigned count;
    struct weir_bulk bulk[WEIR_BULK_MAX];
    struct weir_memory *memory[WEIR_BULK_MAX]; /* NULL: not shown now */
};

/* Remembers what is to be shown. INVALID: it cannot be. */
enum weir_status shown_set(struct shown *shown, const struct weir_bulk *bulk, unsigned count);
enum weir_status shown_begin(struct shown *shown, struct weir_connection *connection,
                             struct rpc_message *message, struct weir_error *ret_error);
void shown_end(struct shown *shown);

#endif
