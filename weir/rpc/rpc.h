/* What the parts of one poller's rpc share.
 *
 *     rpc ---- procedures            by number
 *      |------ targets --- calls     we are the client: target.h, call.h, shown.h
 *      |------ clients --- requests  we are the server: client.h, request.h
 *      `------ deadlines, pools
 *
 * All that ends at a time of its own is in one heap, for which one timer of the poller's is set. */
#ifndef WEIR_RPC_RPC_H
#define WEIR_RPC_RPC_H

#include <stdbool.h>
#include <stdint.h>

#include <weir/rpc.h>

#include "weir/channel/timer.h"
#include "weir/rpc/pool.h"
#include "weir/rpc/procedure.h"

struct client;

struct weir_rpc {
    struct weir_poller *poller;
    struct weir_rpc_options options; /* defaults filled in */
    struct procedures procedures;
    struct timers deadlines;
    uint64_t armed_ns; /* for when the poller's timer is set */
    uint64_t now_ns;   /* as last read: some while ago, but for what is being done now */
    bool is_ending;
    struct weir_target *targets; /* destroyed ones, too, until their connection has ended */
    struct weir_listener *listener;
    struct client *clients; /* also those that are gone, while a handler has requests of theirs */
    const struct arriving *arriving;
    struct weir_server_statistics statistics;
    struct pool calls, requests, moves;
    struct chunks chunks;
};

/* The request whose handler is being called, and its bytes. */
struct arriving {
    struct weir_request *request;
    const void *bytes;
    size_t length;
};

uint64_t rpc_read_clock(struct weir_rpc *rpc);
/* Calls timer->fire then, and unsets it before. Sets it anew if it is set. False: no memory; then
 * it may fire late. */
bool rpc_set_deadline(struct weir_rpc *rpc, struct timer *timer, uint64_t deadline_ns);
void rpc_forget_deadline(struct weir_rpc *rpc, struct timer *timer);

#endif
