/* The active side's beginning: a name's addresses are tried in turn. What follows is
 * connection.c's. */
#include <stdlib.h>
#include <string.h>

#include "weir/channel/bootstrap_cm.h"
#include "weir/channel/bootstrap_tcp.h"
#include "weir/channel/connection.h"
#include "weir/channel/timer.h"
#include "weir/error_private.h"

#define PAUSE_LEAST_MS 10u

/* Undoes what was begun with the address before. */
static void forget_attempt(struct weir_connection *connection)
{
    for (unsigned i = 0; i <= LANES_MAX; i++) {
        lane_destroy(&connection->lanes[i]);
        connection->lanes[i].connection = connection;
        connection->lanes[i].index = (uint8_t)i;
    }
    buffers_fini(&connection->buffers);
    bootstrap_tcp_leave(connection);
    connection->tcp = (struct tcp_link){.source.fd = -1};
    connection->is_flushed = false;
}

static uint64_t milliseconds_left(const struct weir_connection *connection)
{
    uint64_t passed_ms = (clock_now_ns() - connection->started_ns) / 1000000u;
    uint64_t total_ms = connection->options.connect_timeout_ms;
    return passed_ms < total_ms ? total_ms - passed_ms : 1;
}

static void set_share_of_time(struct weir_connection *connection)
{
    uint64_t left_ms = milliseconds_left(connection);
    unsigned left = connection->target_count - connection->target_next + 1;
    poller_set_timer(connection->poller, &connection->life, left_ms / left + 1);
}

/* Begins with the next address that the system does not refuse at once. */
static enum weir_status try_targets(struct weir_connection *connection,
                                    struct weir_error *ret_error)
{
    enum weir_status status = WEIR_ADDRESS;
    while (status != WEIR_OK && connection->target_next < connection->target_count) {
        struct sockaddr *target =
            (struct sockaddr *)&connection->targets[connection->target_next++];
        forget_attempt(connection);
        address_format(target, connection->peer_name);
        set_share_of_time(connection);
        status = connection->options.bootstrap == WEIR_BOOTSTRAP_CM
                     ? bootstrap_cm_connect(connection, target, ret_error)
                     : bootstrap_tcp_connect(connection, target, ret_error);
    }
    return status;
}

bool connection_try_next(struct weir_connection *connection)
{
    struct weir_error error;
    char tried[ADDRESS_TEXT_MAX];
    memcpy(tried, connection->peer_name, sizeof(tried));
    if (connection->state == CONNECTION_CONNECTING && connection->peer.purpose == 0 &&
        try_targets(connection, &error) == WEIR_OK) {
        return true;
    }
    memcpy(connection->peer_name, tried, sizeof(tried)); /* what is told next is of that one */
    return false;
}

void connection_answered(struct weir_connection *connection)
{
    if (!connection->is_flushed) {
        poller_set_timer(connection->poller, &connection->life, milliseconds_left(connection));
    }
}

/* Many that were refused at once come back one after the other, and ever later. */
bool connection_try_again(struct weir_connection *connection, const char *words)
{
    unsigned base_ms = PAUSE_LEAST_MS
                       << (connection->repetitions < 5 ? connection->repetitions : 5);
    uint64_t pause_ms = base_ms + clock_now_ns() / 1000 % base_ms;
    if (connection->state != CONNECTION_CONNECTING || connection->peer.purpose != 0 ||
        pause_ms >= milliseconds_left(connection)) {
        return false;
    }
    forget_attempt(connection);
    weir_refuse(connection, words);
    connection->repetitions++;
    connection->target_next--;
    return poller_set_timer(connection->poller, &connection->life, pause_ms);
}

void connection_refused(struct weir_connection *connection, const struct hello *refusal)
{
    if ((refusal->status == WEIR_UNREACHABLE && connection_try_next(connection)) ||
        (refusal->status == WEIR_STATE && connection_try_again(connection, refusal->words))) {
        return;
    }
    connection_fail(connection, WEIR_REFUSED, "the peer refused the connection (%s)",
                    refusal->words[0] != 0 ? refusal->words
                                           : weir_status_name((enum weir_status)refusal->status));
}

enum weir_status connection_begin(struct weir_poller *poller,
                                  const struct sockaddr_storage *targets, unsigned target_count,
                                  const struct weir_channel_options *resolved,
                                  struct weir_connection **ret_connection,
                                  struct weir_error *ret_error)
{
    struct weir_connection *connection = NULL;
    enum weir_status status = connection_create(poller, resolved, &connection, ret_error);
    if (status != WEIR_OK) {
        return status;
    }
    connection->targets = malloc(target_count * sizeof(*targets));
    if (connection->targets == NULL) {
        connection_destroy(connection);
        return error_set(ret_error, WEIR_NO_MEMORY, "no memory");
    }
    memcpy(connection->targets, targets, target_count * sizeof(*targets));
    connection->target_count = target_count;
    connection_fill_hello(connection, HELLO_CONNECT, resolved->lanes);
    status = try_targets(connection, ret_error);
    if (status != WEIR_OK) {
        connection_destroy(connection);
        return status;
    }
    *ret_connection = connection;
    return WEIR_OK;
}

enum weir_status weir_connect(struct weir_poller *poller, const char *address,
                              const struct weir_channel_options *options,
                              const struct weir_handler *handler, void *user,
                              struct weir_connection **ret_connection, struct weir_error *ret_error)
{
    struct weir_channel_options resolved;
    struct sockaddr_storage targets[ADDRESSES_MAX];
    unsigned count;
    enum weir_status status =
        connection_resolve_options(poller->fabric, options, &resolved, ret_error);
    if (status == WEIR_OK) {
        status = address_resolve(address, false, targets, &count, ret_error);
    }
    struct weir_connection *connection = NULL;
    if (status == WEIR_OK) {
        status = connection_begin(poller, targets, count, &resolved, &connection, ret_error);
    }
    if (status != WEIR_OK) {
        return status;
    }
    if (handler != NULL) {
        connection->handler = *handler;
    }
    connection->user = user;
    if (ret_connection != NULL) {
        *ret_connection = connection;
    }
    return WEIR_OK;
}
