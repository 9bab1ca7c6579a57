/* What is measured of libweir's channel: messages and puts.
 *
 * The server listens for the case's one connection on the address that the client reached it at,
 * and tells the port. Each end's first message says where the other may put; a run begins when both
 * have it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/channel.h>

#include "tools/bench/carrier.h"
#include "tools/bench/stopwatch.h"

#define SLEEP_MS 100
#define SPINS    4096
#define COPIED   8192 /* bytes; messages of up to so many the channel copies in any case */

struct channel_carrier {
    struct carrier carrier;
    struct weir_fabric *fabric;
    struct weir_poller *poller;
    struct weir_listener *listener; /* server */
    struct weir_connection *connection;
    struct weir_memory *memory;
    uint8_t *bytes;
    size_t span;
    struct weir_remote remote;
    bool is_ready, is_closed, is_answering, is_compared, is_wrong;
    uint64_t posted, completed, received;
    uint64_t due;             /* received when this run is over; some may come before it begins */
    struct weir_error reason; /* of the end */
};

static void done(struct weir_connection *connection, enum weir_status status, void *argument)
{
    struct channel_carrier *channel = argument;
    channel->completed += status == WEIR_OK;
}

static enum weir_status post_one(struct channel_carrier *channel)
{
    size_t size = channel->carrier.item.size;
    channel->posted++;
    if (channel->carrier.item.operation == PLAN_MESSAGE) {
        /* Of a request its answer tells. */
        bool is_answered = channel->carrier.item.measure == PLAN_LATENCY && size <= COPIED;
        channel->completed += is_answered;
        return weir_send(channel->connection, channel->bytes, size, is_answered ? NULL : done,
                         channel);
    }
    const struct weir_transfer transfer = {.memory = channel->memory,
                                           .length = size,
                                           .remote = channel->remote,
                                           .remote_offset = channel->span};
    return weir_put(channel->connection, &transfer, done, channel);
}

/* --- the connection's life --- */

static void opened(struct weir_connection *connection, void *user)
{
    struct channel_carrier *channel = user;
    uint8_t hello[WEIR_REMOTE_LENGTH];
    struct weir_remote remote = weir_memory_remote(channel->memory);
    weir_remote_pack(&remote, hello);
    weir_send(connection, hello, sizeof(hello), NULL, NULL);
}

static void received(struct weir_connection *connection, const void *bytes, size_t length,
                     void *user)
{
    struct channel_carrier *channel = user;
    if (!channel->is_ready) {
        if (length != WEIR_REMOTE_LENGTH) {
            weir_abort(connection, "not a greeting");
            return;
        }
        channel->remote = weir_remote_unpack(bytes);
        channel->is_ready = true;
        return;
    }
    channel->received++;
    if (!channel->is_compared) { /* the first only: the rest is timed */
        size_t size = channel->carrier.item.size;
        channel->is_compared = true;
        channel->is_wrong =
            length != size ||
            carrier_compare(bytes, size, !channel->carrier.control->is_server) != size;
    }
    if (channel->is_answering) {
        post_one(channel);
    }
}

static void closed(struct weir_connection *connection, const struct weir_error *reason, void *user)
{
    struct channel_carrier *channel = user;
    channel->is_closed = true;
    channel->reason = *reason;
    channel->connection = NULL;
}

static const struct weir_handler handler = {opened, received, NULL, closed};

static bool lend_memory(struct channel_carrier *channel, struct weir_error *ret_error)
{
    return weir_memory_register_for(channel->connection, channel->bytes, 2 * channel->span,
                                    WEIR_REMOTE_WRITE, &channel->memory, ret_error) == WEIR_OK;
}

static bool accepted(struct weir_connection *connection, void *user,
                     struct weir_handler *ret_handler, void **ret_user)
{
    struct channel_carrier *channel = user;
    struct weir_error error;
    if (channel->connection != NULL || channel->is_closed) {
        weir_refuse(connection, "one is connected already");
        return false;
    }
    channel->connection = connection;
    if (!lend_memory(channel, &error)) {
        channel->connection = NULL;
        weir_refuse(connection, "no memory");
        return false;
    }
    *ret_handler = handler;
    *ret_user = channel;
    return true;
}

/* --- waiting --- */

/* Runs callbacks; polls or sleeps, as the case says, while none is due. */
static bool turn(struct channel_carrier *channel, unsigned *spins, uint64_t *since_ns,
                 struct weir_error *ret_error)
{
    bool is_blocked = channel->carrier.item.is_blocked;
    int count = weir_poll(channel->poller, is_blocked ? SLEEP_MS : 0);
    if (channel->is_closed) {
        return control_error(ret_error, channel->reason.status, "%s", channel->reason.message);
    }
    if (count > 0) {
        *spins = 0;
        *since_ns = 0;
        return carrier_may_go_on(ret_error);
    }
    return (!is_blocked && ++*spins % SPINS != 0) ||
           carrier_may_wait(&channel->carrier, since_ns, ret_error);
}

static bool wait_until(struct channel_carrier *channel, const uint64_t *counter, uint64_t wanted,
                       struct weir_error *ret_error)
{
    unsigned spins = 0;
    uint64_t since_ns = 0;
    while (*counter < wanted) {
        if (!turn(channel, &spins, &since_ns, ret_error)) {
            return false;
        }
    }
    return true;
}

static bool ready(struct carrier *carrier, struct weir_error *ret_error)
{
    struct channel_carrier *channel = (struct channel_carrier *)carrier;
    unsigned spins = 0;
    uint64_t since_ns = 0;
    while (!channel->is_ready) {
        if (!turn(channel, &spins, &since_ns, ret_error)) {
            return false;
        }
    }
    channel->is_answering = carrier->item.measure == PLAN_LATENCY && carrier->control->is_server &&
                            carrier->item.operation == PLAN_MESSAGE;
    return true;
}

/* --- what is measured --- */

static bool one_by_one(struct channel_carrier *channel, uint64_t count, struct histogram *samples,
                       struct weir_error *ret_error)
{
    bool is_message = channel->carrier.item.operation == PLAN_MESSAGE;
    const uint64_t *counter = is_message ? &channel->received : &channel->completed;
    uint64_t base = *counter, last = stopwatch_ticks(), took = 0;
    for (uint64_t i = 1; i <= count; i++) {
        if (post_one(channel) != WEIR_OK) {
            return control_error(ret_error, WEIR_STATE, "the channel takes no more");
        }
        if (i > 1) {
            histogram_add(samples, stopwatch_ns(took)); /* of the one before, while there is time */
        }
        if (!wait_until(channel, counter, base + i, ret_error)) {
            return false;
        }
        uint64_t now = stopwatch_ticks();
        took = now - last;
        last = now;
    }
    histogram_add(samples, stopwatch_ns(took));
    return wait_until(channel, &channel->completed, channel->posted, ret_error);
}

static bool stream(struct channel_carrier *channel, uint64_t to_post, uint64_t to_receive,
                   struct weir_error *ret_error)
{
    uint64_t last = channel->posted + to_post;
    channel->due += to_receive;
    unsigned spins = 0;
    uint64_t since_ns = 0;
    while (channel->completed < last || channel->received < channel->due) {
        while (channel->posted < last &&
               channel->posted - channel->completed < channel->carrier.item.depth) {
            if (post_one(channel) != WEIR_OK) {
                return control_error(ret_error, WEIR_STATE, "the channel takes no more");
            }
        }
        if (!turn(channel, &spins, &since_ns, ret_error)) {
            return false;
        }
    }
    return true;
}

static bool run(struct carrier *carrier, uint64_t count, struct histogram *samples,
                struct weir_error *ret_error)
{
    struct channel_carrier *channel = (struct channel_carrier *)carrier;
    const struct plan_case *item = &carrier->item;
    bool is_server = carrier->control->is_server, is_message = item->operation == PLAN_MESSAGE;
    if (item->measure == PLAN_BANDWIDTH) {
        bool posts = !is_server || item->both_ways;
        bool receives = is_message && (is_server || item->both_ways);
        return stream(channel, posts ? count : 0, receives ? count : 0, ret_error);
    }
    if (!is_server) {
        return one_by_one(channel, count, samples, ret_error);
    }
    if (!is_message) {
        return true;
    }
    /* The answers are posted by `received`. */
    return wait_until(channel, &channel->completed, channel->posted + count, ret_error);
}

static bool check(struct carrier *carrier, uint64_t count, struct weir_error *ret_error)
{
    struct channel_carrier *channel = (struct channel_carrier *)carrier;
    const struct plan_case *item = &carrier->item;
    bool is_server = carrier->control->is_server;
    if (item->operation == PLAN_PUT && (is_server || item->both_ways)) {
        channel->is_wrong =
            carrier_compare(channel->bytes + channel->span, item->size, !is_server) != item->size;
    } else if (item->operation == PLAN_MESSAGE && !channel->is_compared &&
               (is_server || item->both_ways || item->measure == PLAN_LATENCY)) {
        channel->is_wrong = true;
    }
    return !channel->is_wrong ||
           control_error(ret_error, WEIR_PROTOCOL, "%s of %zu B arrived wrong",
                         plan_operation_name(item->operation), item->size);
}

/* --- making --- */

static void destroy(struct carrier *carrier)
{
    struct channel_carrier *channel = (struct channel_carrier *)carrier;
    if (channel->connection != NULL) {
        weir_abort(channel->connection, "measured");
        weir_poll(channel->poller, 0);
    }
    weir_poller_destroy(channel->poller);
    weir_memory_deregister(channel->memory);
    carrier_unmap(channel->bytes, channel->span);
    free(channel);
}

static json_t *describe(const struct carrier *carrier)
{
    const struct channel_carrier *channel = (const struct channel_carrier *)carrier;
    return json_pack("{s:s}", "address",
                     channel->listener != NULL ? weir_listener_address(channel->listener) : "");
}

static struct weir_channel_options options_for(const struct carrier *carrier)
{
    size_t size = carrier->item.size;
    return (struct weir_channel_options){
        .eager_length = COPIED,
        .message_length_max = size > WEIR_REMOTE_LENGTH ? size : WEIR_REMOTE_LENGTH,
        .connect_timeout_ms = PATIENCE_S * 1000,
        .silence_timeout_ms = PATIENCE_S * 1000,
    };
}

static bool attach(struct carrier *carrier, const json_t *peer, struct weir_error *ret_error)
{
    struct channel_carrier *channel = (struct channel_carrier *)carrier;
    if (carrier->control->is_server) {
        return true;
    }
    const char *told = json_string_value(json_object_get(peer, "address"));
    const char *port = told != NULL ? strrchr(told, ':') : NULL;
    char host[CONTROL_ADDRESS_MAX], address[CONTROL_ADDRESS_MAX + 8];
    if (port == NULL || !control_peer(carrier->control, host)) {
        return control_error(ret_error, WEIR_PROTOCOL, "the other end names no channel");
    }
    snprintf(address, sizeof(address), "%s%.6s", host, port);
    const struct weir_channel_options options = options_for(carrier);
    return weir_connect(channel->poller, address, &options, &handler, channel, &channel->connection,
                        ret_error) == WEIR_OK &&
           lend_memory(channel, ret_error);
}

static bool create(struct channel_carrier *channel, struct weir_error *ret_error)
{
    struct control *control = channel->carrier.control;
    channel->bytes = carrier_map(&channel->carrier, &channel->span, ret_error);
    if (channel->bytes == NULL ||
        weir_poller_create(channel->fabric, &channel->poller, ret_error) != WEIR_OK) {
        return false;
    }
    if (!control->is_server) {
        return true;
    }
    struct sockaddr_storage local;
    char host[CONTROL_ADDRESS_MAX], address[CONTROL_ADDRESS_MAX + 4];
    if (!control_local(control, &local, host)) {
        return control_error(ret_error, WEIR_SYSTEM, "no address of this end");
    }
    const struct weir_channel_options options = options_for(&channel->carrier);
    snprintf(address, sizeof(address), "%s:0", host);
    return weir_listen(channel->poller, address, &options, accepted, channel, &channel->listener,
                       ret_error) == WEIR_OK;
}

struct carrier *channel_carrier_create(struct weir_fabric *fabric, struct control *control,
                                       const struct plan_case *item, struct weir_error *ret_error)
{
    static const struct carrier_operations operations = {describe, attach, ready,
                                                         run,      check,  destroy};
    struct channel_carrier *channel = calloc(1, sizeof(*channel));
    if (channel == NULL) {
        control_error(ret_error, WEIR_NO_MEMORY, "no memory");
        return NULL;
    }
    channel->carrier = (struct carrier){&operations, *item, control};
    channel->fabric = fabric;
    if (!create(channel, ret_error)) {
        destroy(&channel->carrier);
        return NULL;
    }
    return &channel->carrier;
}
