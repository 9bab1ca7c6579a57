/* rdma_cm's events, turned into the life of connections.
 *
 * An id's context is its lane; a listening id's is its listener. Each event is copied and
 * acknowledged at once, so that an id may be destroyed while its event is handled. */
#include "weir/channel/bootstrap_cm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weir/channel/connection.h"
#include "weir/channel/listener.h"
#include "weir/error_private.h"

#define BACKLOG            1024 /* each lane of each connection is a request */
#define READS_MAX          16
#define RNR_RETRY_FOREVER  7 /* never needed: credit keeps the receiver ahead */
#define REJECT_NO_LISTENER 8 /* invalid service id [IBA 12.6.7.2] */
#define REJECT_BY_CONSUMER 28
#define PRIVATE_MAX        256
#define EVENTS_AT_ONCE     64 /* who keeps knocking does not hold up the rest */

struct event {
    enum rdma_cm_event_type kind;
    struct rdma_cm_id *id, *listen_id;
    int status;
    struct rdma_conn_param parameters;
    uint8_t private_data[PRIVATE_MAX];
};

static const struct verbs *verbs_of(const struct weir_connection *connection)
{
    return &connection->poller->fabric->library.verbs;
}

static uint8_t least(int a, int b)
{
    int value = a < b ? a : b;
    return (uint8_t)(value < 0 ? 0 : value > READS_MAX ? READS_MAX : value);
}

static void set_names(struct weir_connection *connection, struct rdma_cm_id *id)
{
    address_format(rdma_get_local_addr(id), connection->local_name);
    if (connection->is_server) {
        address_format(rdma_get_peer_addr(id), connection->peer_name);
    }
}

/* True if the address leads to the device that the fabric has open. */
static bool is_on_fabric(struct weir_connection *connection, const struct rdma_cm_id *id)
{
    struct weir_fabric *fabric = connection->poller->fabric;
    if (id->verbs == fabric->context) {
        return true;
    }
    /* The id may be gone when the next address has been tried. */
    const char *name = id->verbs != NULL && id->verbs->device != NULL
                           ? fabric->library.verbs.get_device_name(id->verbs->device)
                           : "no device";
    if (!connection_try_next(connection)) {
        connection_fail(connection, WEIR_UNREACHABLE, "reached by %s, but %s is open", name,
                        fabric->device);
    }
    return false;
}

static struct rdma_conn_param parameters_of(const struct weir_connection *connection,
                                            const uint8_t bytes[HELLO_LENGTH])
{
    const struct ibv_device_attr *device = &connection->poller->fabric->attributes;
    return (struct rdma_conn_param){
        .private_data = bytes,
        .private_data_len = HELLO_LENGTH,
        .responder_resources = least(device->max_qp_rd_atom, READS_MAX),
        .initiator_depth = least(device->max_qp_init_rd_atom, READS_MAX),
        .retry_count = LANE_RETRY_COUNT,
        .rnr_retry_count = RNR_RETRY_FOREVER,
    };
}

/* rdma_cm's own choice depends on the device, and may be seconds. A library that does not know the
 * option keeps that. */
static void set_ack_timeout(const struct weir_connection *connection, struct rdma_cm_id *id)
{
    const struct verbs *verbs = verbs_of(connection);
    uint8_t timeout = lane_ack_timeout(connection);
    if (verbs->cm_set_option != NULL) {
        verbs->cm_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
                             sizeof(timeout));
    }
}

/* --- connecting --- */

static enum weir_status begin_lane(struct weir_connection *connection, unsigned index,
                                   struct sockaddr *target, struct weir_error *ret_error)
{
    const struct verbs *verbs = verbs_of(connection);
    struct lane *lane = &connection->lanes[index];
    if (verbs->cm_create_id(connection->poller->cm_channel, &lane->id, lane, RDMA_PS_TCP) != 0) {
        return error_set(ret_error, WEIR_SYSTEM, "%s: rdma_create_id: %m", connection->peer_name);
    }
    set_ack_timeout(connection, lane->id);
    if (verbs->cm_resolve_addr(lane->id, NULL, target,
                               (int)connection->options.connect_timeout_ms) != 0) {
        bool is_short = errno == ENOMEM || errno == EMFILE || errno == ENFILE;
        return error_set(ret_error, is_short ? WEIR_SYSTEM : WEIR_UNREACHABLE, "%s: %s: %m",
                         connection->peer_name,
                         is_short ? "rdma_resolve_addr" : "no RDMA device leads there");
    }
    return WEIR_OK;
}

enum weir_status bootstrap_cm_connect(struct weir_connection *connection, struct sockaddr *target,
                                      struct weir_error *ret_error)
{
    return begin_lane(connection, 0, target, ret_error);
}

static void address_resolved(struct lane *lane)
{
    struct weir_connection *connection = lane->connection;
    if (is_on_fabric(connection, lane->id) &&
        verbs_of(connection)
                ->cm_resolve_route(lane->id, (int)connection->options.connect_timeout_ms) != 0 &&
        !connection_try_next(connection)) {
        connection_fail(connection, WEIR_UNREACHABLE, "no route: %m");
    }
}

static enum weir_status add_lane(struct lane *lane, struct weir_error *ret_error)
{
    struct weir_connection *connection = lane->connection;
    if (lane->index > 0) {
        return connection_add_lane(connection, lane->index, ret_error);
    }
    set_names(connection, lane->id);
    enum weir_status status = connection_prepare(connection, ret_error);
    if (status == WEIR_OK) {
        status = connection_add_lane(connection, 0, ret_error);
    }
    if (status == WEIR_OK) {
        status = connection_post_receives(connection, ret_error);
    }
    return status;
}

static void route_resolved(struct lane *lane)
{
    struct weir_connection *connection = lane->connection;
    struct weir_error error;
    enum weir_status status = add_lane(lane, &error);
    if (status != WEIR_OK) {
        connection_fail(connection, status, "%s", error.message);
        return;
    }
    struct hello hello = connection->local;
    hello.purpose = lane->index == 0 ? HELLO_CONNECT : HELLO_LANE;
    hello.lane = lane->index;
    hello.token = connection->token;
    uint8_t bytes[HELLO_LENGTH];
    hello_pack(&hello, bytes);
    struct rdma_conn_param parameters = parameters_of(connection, bytes);
    if (verbs_of(connection)->cm_connect(lane->id, &parameters) != 0) {
        connection_fail(connection, WEIR_SYSTEM, "rdma_connect: %m");
    }
}

static void check_all_up(struct weir_connection *connection)
{
    for (unsigned i = 0; i <= connection->lane_count; i++) {
        if (!connection->lanes[i].is_up) {
            return;
        }
    }
    connection_opened(connection);
}

/* The answer to the message lane's connect: now the other lanes. */
static void accepted_by_peer(struct weir_connection *connection, const struct event *event)
{
    const char *wrong =
        hello_parse(event->private_data, event->parameters.private_data_len, &connection->peer);
    if (wrong == NULL && connection->peer.purpose != HELLO_ACCEPT) {
        wrong = "its answer is none";
    }
    if (wrong != NULL) {
        connection_fail(connection, WEIR_PROTOCOL, "%s", wrong);
        return;
    }
    connection_answered(connection);
    connection_agree(connection);
    connection->token = connection->peer.token;
    struct weir_error error;
    for (unsigned i = 1; i <= connection->lane_count; i++) {
        enum weir_status status =
            begin_lane(connection, i, rdma_get_peer_addr(connection->lanes[0].id), &error);
        if (status != WEIR_OK) {
            connection_fail(connection, status, "lane %u: %s", i, error.message);
            return;
        }
    }
}

static void established(struct lane *lane, const struct event *event)
{
    struct weir_connection *connection = lane->connection;
    if (connection->state != CONNECTION_CONNECTING) {
        return;
    }
    lane->is_up = true;
    if (lane->index == 0 && !connection->is_server) {
        accepted_by_peer(connection, event);
    }
    if (connection->state == CONNECTION_CONNECTING) {
        check_all_up(connection);
    }
}

static void rejected(struct weir_connection *connection, const struct event *event)
{
    struct hello answer;
    if (connection->is_server) { /* what it asked for itself: it has given up */
        connection_disconnected(connection);
        return;
    }
    size_t length = event->parameters.private_data_len;
    const char *wrong = hello_parse(event->private_data, length, &answer);
    if (hello_is_of_another_version(event->private_data, length)) {
        connection_fail(connection, WEIR_PROTOCOL, "%s", wrong);
    } else if (wrong == NULL && answer.purpose == HELLO_REFUSE) {
        connection_refused(connection, &answer);
    } else if (event->status == REJECT_NO_LISTENER || event->status == -ECONNREFUSED) {
        if (!connection_try_next(connection)) {
            connection_fail(connection, WEIR_REFUSED, "nobody listens there");
        }
    } else if (event->status == REJECT_BY_CONSUMER) {
        connection_fail(connection, WEIR_REFUSED, "the peer refused the connection");
    } else {
        connection_fail(connection, WEIR_REFUSED, "the connection was rejected (reason %d)",
                        event->status);
    }
}

/* --- listening --- */

enum weir_status bootstrap_cm_listen(struct weir_listener *listener, struct sockaddr *local,
                                     struct weir_error *ret_error)
{
    struct weir_poller *poller = listener->poller;
    const struct verbs *verbs = &poller->fabric->library.verbs;
    if (verbs->cm_create_id(poller->cm_channel, &listener->id, listener, RDMA_PS_TCP) != 0) {
        listener->id = NULL;
        return error_set(ret_error, WEIR_SYSTEM, "rdma_create_id: %m");
    }
    int off = 0;
    if (address_is_all_of_v6(local) && verbs->cm_set_option != NULL) { /* whatever bindv6only is */
        verbs->cm_set_option(listener->id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &off,
                             sizeof(off));
    }
    if (verbs->cm_bind_addr(listener->id, local) != 0 ||
        verbs->cm_listen(listener->id, BACKLOG) != 0) {
        bool is_elsewhere = errno == ENODEV || errno == EADDRNOTAVAIL;
        return error_set(ret_error, WEIR_ADDRESS, "%s: cannot listen: %s", listener->address,
                         is_elsewhere ? "no RDMA device here has this address" : strerror(errno));
    }
    struct sockaddr_storage bound;
    memcpy(&bound, local, address_length(local));
    if (bound.ss_family == AF_INET6) {
        ((struct sockaddr_in6 *)&bound)->sin6_port = verbs->cm_get_src_port(listener->id);
    } else {
        ((struct sockaddr_in *)&bound)->sin_port = verbs->cm_get_src_port(listener->id);
    }
    address_format((struct sockaddr *)&bound, listener->address);
    return WEIR_OK;
}

void bootstrap_cm_unlisten(struct weir_listener *listener)
{
    if (listener->id != NULL) {
        listener->poller->fabric->library.verbs.cm_destroy_id(listener->id);
        listener->id = NULL;
    }
}

static void reject(const struct verbs *verbs, struct rdma_cm_id *id, enum weir_status status,
                   const char *words)
{
    struct hello hello = {.purpose = HELLO_REFUSE, .status = (uint8_t)status};
    snprintf(hello.words, sizeof(hello.words), "%s", words);
    uint8_t bytes[HELLO_LENGTH];
    hello_pack(&hello, bytes);
    verbs->cm_reject(id, bytes, HELLO_LENGTH);
}

static void turn_away(const struct verbs *verbs, struct rdma_cm_id *id, enum weir_status status,
                      const char *words)
{
    reject(verbs, id, status, words);
    verbs->cm_destroy_id(id);
}

/* Accepts one lane, whose queue pair is made here. */
static enum weir_status accept_lane(struct lane *lane, const struct event *event,
                                    struct weir_error *ret_error)
{
    struct weir_connection *connection = lane->connection;
    enum weir_status status = add_lane(lane, ret_error);
    if (status != WEIR_OK) {
        return status;
    }
    struct hello hello = connection->local;
    hello.lane = lane->index;
    hello.token = connection->token;
    uint8_t bytes[HELLO_LENGTH];
    hello_pack(&hello, bytes);
    struct rdma_conn_param parameters = parameters_of(connection, bytes);
    parameters.responder_resources =
        least(parameters.responder_resources, event->parameters.responder_resources);
    parameters.initiator_depth =
        least(parameters.initiator_depth, event->parameters.initiator_depth);
    set_ack_timeout(connection, lane->id);
    if (verbs_of(connection)->cm_accept(lane->id, &parameters) != 0) {
        return errno == EINVAL /* its request is there no more */
                   ? error_set(ret_error, WEIR_PEER_LOST,
                               "the peer went away before the connection was up (rdma_accept: %m)")
                   : error_set(ret_error, WEIR_SYSTEM, "rdma_accept: %m");
    }
    return WEIR_OK;
}

static void take_connect(struct weir_listener *listener, const struct event *event,
                         const struct hello *hello)
{
    struct weir_poller *poller = listener->poller;
    const struct verbs *verbs = &poller->fabric->library.verbs;
    struct weir_connection *connection;
    char peer[ADDRESS_TEXT_MAX];
    address_format(&event->id->route.addr.dst_addr, peer);
    if (listener_is_crowded(listener, peer)) {
        turn_away(verbs, event->id, WEIR_STATE, LISTENER_CROWDED);
        return;
    }
    if (connection_create(poller, &listener->options, &connection, NULL) != WEIR_OK) {
        turn_away(verbs, event->id, WEIR_NO_MEMORY, "");
        return;
    }
    listener_take(listener, connection);
    connection->is_server = true;
    connection->peer = *hello;
    connection->lanes[0].id = event->id;
    event->id->context = &connection->lanes[0];
    set_names(connection, event->id);
    if (!connection_choose_token(connection)) {
        return;
    }
    connection_fill_hello(connection, HELLO_ACCEPT, listener->options.lanes);
    connection_agree(connection);
    if (!is_on_fabric(connection, event->id)) {
        reject(verbs, event->id, WEIR_UNREACHABLE, "not this server's device");
        return;
    }
    if (!listener_ask(listener, connection)) {
        connection_fail(connection, WEIR_REFUSED, "refused");
        reject(verbs, event->id, WEIR_REFUSED, connection->refusal);
        return;
    }
    struct weir_error error;
    enum weir_status status = connection->state == CONNECTION_CONNECTING
                                  ? accept_lane(&connection->lanes[0], event, &error)
                                  : WEIR_OK;
    if (status != WEIR_OK) {
        connection_fail(connection, status, "%s", error.message);
    }
}

static void take_lane(struct weir_listener *listener, const struct event *event,
                      const struct hello *hello)
{
    const struct verbs *verbs = &listener->poller->fabric->library.verbs;
    struct weir_connection *connection = listener->strangers;
    while (connection != NULL && connection->token != hello->token) {
        connection = connection->next_stranger;
    }
    if (connection == NULL || hello->lane == 0 || hello->lane > connection->lane_count ||
        connection->lanes[hello->lane].id != NULL) {
        turn_away(verbs, event->id, WEIR_PROTOCOL, "");
        return;
    }
    struct lane *lane = &connection->lanes[hello->lane];
    lane->id = event->id;
    event->id->context = lane;
    struct weir_error error;
    if (!is_on_fabric(connection, event->id)) {
        return;
    }
    enum weir_status status = accept_lane(lane, event, &error);
    if (status != WEIR_OK) {
        connection_fail(connection, status, "%s", error.message);
    }
}

static void take_request(struct weir_poller *poller, const struct event *event)
{
    const struct verbs *verbs = &poller->fabric->library.verbs;
    struct weir_listener *listener = event->listen_id->context;
    struct hello hello;
    const char *wrong =
        hello_parse(event->private_data, event->parameters.private_data_len, &hello);
    if (wrong != NULL || (hello.purpose != HELLO_CONNECT && hello.purpose != HELLO_LANE)) {
        turn_away(verbs, event->id, WEIR_PROTOCOL, "");
    } else if (hello.purpose == HELLO_CONNECT && listener->is_closed) {
        turn_away(verbs, event->id, WEIR_REFUSED, "nobody listens any more");
    } else if (hello.purpose == HELLO_CONNECT) {
        take_connect(listener, event, &hello);
    } else {
        take_lane(listener, event, &hello);
    }
}

/* --- events --- */

static void take_event(struct weir_poller *poller, const struct event *event)
{
    if (event->kind == RDMA_CM_EVENT_CONNECT_REQUEST) {
        take_request(poller, event);
        return;
    }
    struct lane *lane = event->id->context;
    if (lane == NULL || lane->id != event->id) {
        return; /* a listener's, or one of an id that is gone */
    }
    struct weir_connection *connection = lane->connection;
    switch (event->kind) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        address_resolved(lane);
        break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        route_resolved(lane);
        break;
    case RDMA_CM_EVENT_ESTABLISHED:
        established(lane, event);
        break;
    case RDMA_CM_EVENT_REJECTED:
        rejected(connection, event);
        break;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
        if (!connection_try_next(connection)) {
            connection_fail(connection, WEIR_UNREACHABLE, "no RDMA path leads there: %s",
                            strerror(abs(event->status)));
        }
        break;
    case RDMA_CM_EVENT_UNREACHABLE:
        if (!connection_try_next(connection)) {
            connection_fail(connection, WEIR_UNREACHABLE,
                            "no answer to the connection request for %.1f s",
                            connection_age(connection));
        }
        break;
    case RDMA_CM_EVENT_CONNECT_ERROR: /* the peer's yes could not be acted upon, or was withdrawn */
        if (!connection_try_next(connection)) {
            connection_fail(connection, WEIR_UNREACHABLE,
                            "the connection failed before it was up: %s",
                            strerror(abs(event->status)));
        }
        break;
    case RDMA_CM_EVENT_DISCONNECTED:
        connection_disconnected(connection);
        break;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
        connection_fail(connection, WEIR_SYSTEM, "the RDMA device was removed");
        break;
    default:
        break;
    }
}

void bootstrap_cm_events(struct weir_poller *poller)
{
    const struct verbs *verbs = &poller->fabric->library.verbs;
    struct rdma_cm_event *raw;
    for (unsigned i = 0; i < EVENTS_AT_ONCE && verbs->cm_get_event(poller->cm_channel, &raw) == 0;
         i++) {
        struct event event = {
            .kind = raw->event,
            .id = raw->id,
            .listen_id = raw->listen_id,
            .status = raw->status,
            .parameters = raw->param.conn,
        };
        size_t length = raw->param.conn.private_data != NULL ? raw->param.conn.private_data_len : 0;
        length = length > sizeof(event.private_data) ? sizeof(event.private_data) : length;
        if (length > 0) {
            memcpy(event.private_data, raw->param.conn.private_data, length);
        }
        event.parameters.private_data = event.private_data;
        event.parameters.private_data_len = (uint8_t)(length > UINT8_MAX ? UINT8_MAX : length);
        verbs->cm_ack_event(raw);
        take_event(poller, &event);
    }
}

void bootstrap_cm_leave(struct weir_connection *connection)
{
    const struct verbs *verbs = verbs_of(connection);
    for (unsigned i = 0; i <= LANES_MAX; i++) {
        struct lane *lane = &connection->lanes[i];
        if (lane->id != NULL && lane->is_up) {
            verbs->cm_disconnect(lane->id);
        } else if (lane->id != NULL && connection->is_server && lane->pair == NULL &&
                   connection->reason.status != WEIR_REFUSED) {
            reject(verbs, lane->id, connection->reason.status, connection->refusal);
        }
    }
}
