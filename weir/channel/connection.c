/* The life of a connection. */
#include "weir/channel/connection.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "weir/channel/bootstrap_cm.h"
#include "weir/channel/bootstrap_tcp.h"
#include "weir/channel/listener.h"
#include "weir/channel/timer.h"
#include "weir/error_private.h"

#define ABORT_MS   300 /* for the reason to reach the peer */
#define FLUSHED_MS 200 /* for the cause of a dead queue pair to be told */

static unsigned value_or(unsigned value, unsigned otherwise)
{
    return value != 0 ? value : otherwise;
}

/* Names the first option that is not within its bounds; "bootstrap" counts as a number, too. */
static enum weir_status check_bounds(const struct weir_channel_options *options,
                                     struct weir_error *ret_error)
{
    const struct {
        const char *name;
        size_t value, least, most;
    } bounds[] = {
        {"bootstrap", options->bootstrap, WEIR_BOOTSTRAP_CM, WEIR_BOOTSTRAP_TCP},
        {"lanes", options->lanes, 0, LANES_MAX},
        {"eager_length", options->eager_length, 64, (size_t)16 << 20},
        {"eager_buffers", options->eager_buffers, 1, WINDOW_MAX},
        {"message_length_max", options->message_length_max, 1, MESSAGE_LENGTH_MAX},
        {"silence_timeout_ms", options->silence_timeout_ms, 100, UINT32_MAX},
    };
    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
        if (bounds[i].value < bounds[i].least || bounds[i].value > bounds[i].most) {
            return error_set(ret_error, WEIR_INVALID,
                             "the channel option %s is %zu, and may be %zu to %zu", bounds[i].name,
                             bounds[i].value, bounds[i].least, bounds[i].most);
        }
    }
    return WEIR_OK;
}

enum weir_status connection_resolve_options(const struct weir_fabric *fabric,
                                            const struct weir_channel_options *options,
                                            struct weir_channel_options *ret_options,
                                            struct weir_error *ret_error)
{
    static const struct weir_channel_options defaults;
    struct weir_channel_options resolved = options != NULL ? *options : defaults;
    resolved.eager_length = resolved.eager_length != 0 ? resolved.eager_length : 8192;
    resolved.eager_buffers = value_or(resolved.eager_buffers, 64);
    resolved.message_length_max =
        resolved.message_length_max != 0 ? resolved.message_length_max : (size_t)64 << 20;
    resolved.connect_timeout_ms = value_or(resolved.connect_timeout_ms, 5000);
    resolved.silence_timeout_ms = value_or(resolved.silence_timeout_ms, 5000);
    uint32_t depth_max = (uint32_t)fabric->attributes.max_qp_wr;
    if (check_bounds(&resolved, ret_error) != WEIR_OK) {
        return WEIR_INVALID;
    }
    if (resolved.eager_buffers + CREDIT_RESERVE > depth_max) {
        return error_set(ret_error, WEIR_INVALID, "%s takes %u receives on a queue pair, not %u",
                         fabric->device, depth_max, resolved.eager_buffers + CREDIT_RESERVE);
    }
    if (resolved.bootstrap == WEIR_BOOTSTRAP_CM && fabric->cm_contexts == NULL) {
        return error_set(ret_error, WEIR_UNSUPPORTED, "%s: rdma_cm is not available",
                         fabric->device);
    }
    *ret_options = resolved;
    return WEIR_OK;
}

static void life_over(struct timer *timer);

enum weir_status connection_create(struct weir_poller *poller,
                                   const struct weir_channel_options *options,
                                   struct weir_connection **ret_connection,
                                   struct weir_error *ret_error)
{
    struct weir_connection *connection = calloc(1, sizeof(*connection));
    if (connection == NULL) {
        return error_set(ret_error, WEIR_NO_MEMORY, "no memory");
    }
    connection->poller = poller;
    connection->options = *options;
    connection->started_ns = clock_now_ns();
    connection->life.fire = life_over;
    connection->tcp.source.fd = -1;
    for (unsigned i = 0; i <= LANES_MAX; i++) {
        connection->lanes[i].connection = connection;
        connection->lanes[i].index = (uint8_t)i;
    }
    sender_init(connection);
    receiver_init(connection);
    transfers_init(connection);
    enum weir_status status = domain_create(poller->fabric, &connection->domain, ret_error);
    if (status != WEIR_OK) {
        free(connection);
        return status;
    }
    if (!poller_set_timer(poller, &connection->life, options->connect_timeout_ms)) {
        domain_release(connection->domain);
        free(connection);
        return error_set(ret_error, WEIR_NO_MEMORY, "no memory");
    }
    connection->next = poller->connections;
    if (connection->next != NULL) {
        connection->next->previous = connection;
    }
    poller->connections = connection;
    *ret_connection = connection;
    return WEIR_OK;
}

static void unlink_connection(struct weir_connection *connection)
{
    if (connection->previous != NULL) {
        connection->previous->next = connection->next;
    } else {
        connection->poller->connections = connection->next;
    }
    if (connection->next != NULL) {
        connection->next->previous = connection->previous;
    }
}

double connection_age(const struct weir_connection *connection)
{
    return (double)(clock_now_ns() - connection->started_ns) / 1e9;
}

/* --- opening --- */

bool connection_choose_token(struct weir_connection *connection)
{
    if (getrandom(&connection->token, sizeof(connection->token), 0) !=
        (ssize_t)sizeof(connection->token)) {
        connection_fail(connection, WEIR_SYSTEM, "no random token: %m");
        return false;
    }
    return true;
}

void connection_fill_hello(struct weir_connection *connection, enum hello_purpose purpose,
                           unsigned lanes)
{
    /* A WRITE's completion there does not say that the peer's memory has it; only what follows in
     * the same stream does [RFC 5040 5.5]. So a notice cannot come by another queue pair. */
    if (connection->poller->fabric->is_iwarp) {
        lanes = 0;
    }
    connection->local = (struct hello){
        .purpose = purpose,
        .lanes = (uint8_t)lanes,
        .lacks_immediate = connection->poller->fabric->is_iwarp,
        .eager_length = (uint32_t)connection->options.eager_length,
        .window = connection->options.eager_buffers,
        .message_length_max = (uint32_t)connection->options.message_length_max,
        .token = connection->token,
    };
}

enum weir_status connection_prepare(struct weir_connection *connection,
                                    struct weir_error *ret_error)
{
    uint32_t payload = connection->local.eager_length > MESSAGE_TEXT_MAX
                           ? connection->local.eager_length
                           : MESSAGE_TEXT_MAX;
    return buffers_init(&connection->buffers, connection->domain, MESSAGE_HEADER_LENGTH + payload,
                        connection->local.window + CREDIT_RESERVE, SENDER_BUFFERS + SENDER_RESERVE,
                        ret_error);
}

void connection_agree(struct weir_connection *connection)
{
    credit_init(&connection->credit, connection->local.window, connection->peer.window);
    connection->lane_count = connection->local.lanes < connection->peer.lanes
                                 ? connection->local.lanes
                                 : connection->peer.lanes;
}

enum weir_status connection_add_lane(struct weir_connection *connection, unsigned index,
                                     struct weir_error *ret_error)
{
    struct lane *lane = &connection->lanes[index];
    uint32_t messages = index == 0 ? SENDER_BUFFERS + SENDER_RESERVE : 0;
    uint32_t receives = index == 0 ? connection->buffers.receive_count : 0;
    return lane_create(lane, connection, (uint8_t)index, messages + TRANSFER_BUSY + 1, receives,
                       ret_error);
}

enum weir_status connection_post_receives(struct weir_connection *connection,
                                          struct weir_error *ret_error)
{
    for (uint32_t i = 0; i < connection->buffers.receive_count; i++) {
        if (!lane_post_receives(&connection->lanes[0], &i, 1)) {
            return error_set(ret_error, connection->reason.status, "%s",
                             connection->reason.message);
        }
    }
    return WEIR_OK;
}

/* A peer that is alive but takes nothing must not hold us for ever. Of a queue pair that the device
 * gave up nothing more comes, and the limit is shorter already. */
static void limit_closing(struct weir_connection *connection)
{
    if (!connection->is_flushed) {
        poller_set_timer(connection->poller, &connection->life,
                         connection->options.silence_timeout_ms);
    }
}

static void begin_closing(struct weir_connection *connection)
{
    connection->state = CONNECTION_CLOSING;
    connection->progress_seen = connection->progress;
    limit_closing(connection);
}

void connection_opened(struct weir_connection *connection)
{
    if (connection->state != CONNECTION_CONNECTING) {
        return;
    }
    connection->state = CONNECTION_OPEN;
    listener_let_go(connection);
    if (!connection->is_flushed) {
        timers_cancel(&connection->poller->timers, &connection->life);
    }
    keepalive_start(connection);
    if (connection->handler.opened != NULL) {
        connection->poller->callbacks++;
        connection->handler.opened(connection, connection->user);
    }
    if (connection->wants_close && connection->state == CONNECTION_OPEN) {
        begin_closing(connection);
    }
    sender_advance(connection);
    receiver_advance(connection);
}

/* --- ending --- */

void connection_end(struct weir_connection *connection)
{
    struct weir_poller *poller = connection->poller;
    if (connection->state == CONNECTION_ENDED) {
        return;
    }
    connection->state = CONNECTION_ENDED;
    connection->next_ended = poller->ended;
    poller->ended = connection;
    listener_let_go(connection);
    poller_note_end(poller);
}

/* Each side has what the other sent: what fails from now on is only the farewell. */
static bool is_over(const struct weir_connection *connection)
{
    return connection->state == CONNECTION_ABORTING ||
           (connection->state == CONNECTION_CLOSING &&
            (connection->is_cut || connection->sender.bye_is_sent));
}

static void set_reason(struct weir_connection *connection, enum weir_status status,
                       const char *format, va_list arguments)
{
    char words[256];
    vsnprintf(words, sizeof(words), format, arguments);
    error_set(&connection->reason, status, "%s: %s",
              connection->peer_name[0] != '\0' ? connection->peer_name : "?", words);
}

void connection_fail(struct weir_connection *connection, enum weir_status status,
                     const char *format, ...)
{
    if (connection->state == CONNECTION_ENDED) {
        return;
    }
    if (!is_over(connection)) {
        va_list arguments;
        va_start(arguments, format);
        set_reason(connection, status, format, arguments);
        va_end(arguments);
    }
    connection_end(connection);
}

void connection_abort(struct weir_connection *connection, enum weir_status status,
                      const char *format, ...)
{
    if (connection->state == CONNECTION_ABORTING || connection->state == CONNECTION_ENDED) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    set_reason(connection, status, format, arguments);
    va_end(arguments);
    va_start(arguments, format);
    vsnprintf(connection->sender.abort_text, sizeof(connection->sender.abort_text), format,
              arguments);
    va_end(arguments);
    connection->sender.abort_status = status;
    weir_refuse(connection, connection->sender.abort_text); /* if it is not accepted yet */
    bool can_tell = connection->state != CONNECTION_CONNECTING && !connection->is_flushed &&
                    !connection->sender.has_bye;
    connection->state = CONNECTION_ABORTING;
    if (can_tell && poller_set_timer(connection->poller, &connection->life, ABORT_MS)) {
        sender_post_abort(connection);
    } else {
        connection_end(connection);
    }
}

void connection_take_abort(struct weir_connection *connection, const struct message *message)
{
    enum weir_status status = message->value == WEIR_PROTOCOL || message->value == WEIR_TOO_LONG
                                  ? (enum weir_status)message->value
                                  : WEIR_DISCONNECTED;
    char text[MESSAGE_TEXT_MAX + 1];
    for (uint32_t i = 0; i < message->length; i++) {
        uint8_t byte = message->payload[i];
        text[i] = byte >= 0x20 && byte < 0x7f ? (char)byte : '?';
    }
    text[message->length] = '\0';
    connection_fail(connection, status, "the peer ended the connection: %s", text);
}

void connection_advance_close(struct weir_connection *connection)
{
    if (connection->state != CONNECTION_CLOSING) {
        return;
    }
    const struct sender *sender = &connection->sender;
    if (sender->bye_is_sent && connection->peer_is_done && !sender->owes_answer &&
        !sender->answer_is_flying) {
        connection_end(connection);
    } else if (sender->bye_is_sent && !connection->peer_is_done) {
        /* The peer has everything; whether it answers in time changes nothing for us. */
        if (connection->waits_for_farewell) {
            return;
        }
        connection->waits_for_farewell = true;
        limit_closing(connection);
    } else {
        sender_advance(connection);
    }
}

/* Who has said goodbye answers the peer's, even where that was an answer itself: its sender cannot
 * know that it arrived, if the acknowledgement is lost and we are gone. What answers the answer
 * need not be known to have arrived. */
void connection_take_bye(struct weir_connection *connection)
{
    struct sender *sender = &connection->sender;
    bool is_first = !connection->peer_is_done;
    connection->peer_is_done = true;
    sender->owes_answer = is_first ? sender->has_bye : sender->owes_answer;
    if (connection->state == CONNECTION_OPEN) {
        error_set(&connection->reason, WEIR_DISCONNECTED, "%s: the peer closed the connection",
                  connection->peer_name);
        connection->state = CONNECTION_CLOSING;
        connection->is_cut = true;
        limit_closing(connection);
    }
    connection_advance_close(connection);
}

void connection_disconnected(struct weir_connection *connection)
{
    /* What came before the end counts. */
    poller_drain(connection->poller, UINT32_MAX);
    if (connection->state == CONNECTION_CONNECTING && connection->is_server &&
        !receiver_is_idle(connection)) {
        connection_opened(connection);
    }
    if (connection->peer_is_done) {
        connection_fail(connection, WEIR_DISCONNECTED,
                        "the peer closed the connection before it had taken everything");
    }
    connection_fail(connection, WEIR_PEER_LOST,
                    connection->state == CONNECTION_CONNECTING
                        ? "the peer went away before the connection was up"
                        : "the peer went away without a word (after %.1f s)",
                    connection_age(connection));
}

void connection_flushed(struct weir_connection *connection)
{
    if (connection->is_flushed || connection->state == CONNECTION_ENDED) {
        return;
    }
    connection->is_flushed = true;
    if (is_over(connection)) {
        connection_end(connection);
        return;
    }
    poller_set_timer(connection->poller, &connection->life, FLUSHED_MS);
}

/* Closing has taken a silence timeout more. */
static void closing_over(struct weir_connection *connection)
{
    /* What the program has been too busy to read may be progress, or the peer's last words. */
    poller_drain(connection->poller, UINT32_MAX);
    if (connection->state != CONNECTION_CLOSING || connection->life.place != 0) {
        return; /* it has ended, or its limit was set anew */
    }
    if (connection->is_cut || connection->sender.bye_is_sent) {
        connection_end(connection);
    } else if (connection->progress != connection->progress_seen) {
        begin_closing(connection);
    } else {
        connection_abort(connection, WEIR_TIMED_OUT,
                         "closing was given up: the peer took nothing for %.1f s",
                         connection->options.silence_timeout_ms / 1e3);
    }
}

static void life_over(struct timer *timer)
{
    struct weir_connection *connection =
        (struct weir_connection *)((char *)timer - offsetof(struct weir_connection, life));
    if (connection->state == CONNECTION_CONNECTING && connection_try_next(connection)) {
        return;
    }
    if (connection->is_flushed) {
        connection_fail(connection, WEIR_PROTOCOL,
                        "the device gave up our queue pair: the peer tried what it may not");
    } else if (connection->state == CONNECTION_CONNECTING && connection->repetitions > 0) {
        connection_fail(connection, WEIR_REFUSED, "the peer refused the connection (%s) for %.1f s",
                        connection->refusal, connection_age(connection));
    } else if (connection->state == CONNECTION_CONNECTING) {
        connection_fail(connection, WEIR_TIMED_OUT,
                        connection->is_server ? "the peer left the connection half-open for %.1f s"
                        : connection->peer.purpose != 0
                            ? "the peer said yes, but the connection is not up after %.1f s"
                            : "no answer to the connection request for %.1f s",
                        connection_age(connection));
    } else if (connection->state == CONNECTION_CLOSING) {
        closing_over(connection);
    } else {
        connection_end(connection);
    }
}

/* Stops everything; the device no longer touches memory for it. */
static void stop(struct weir_connection *connection)
{
    timers_cancel(&connection->poller->timers, &connection->life);
    keepalive_stop(connection);
    bootstrap_cm_leave(connection);
    for (unsigned i = 0; i <= LANES_MAX; i++) {
        lane_destroy(&connection->lanes[i]);
    }
    bootstrap_tcp_leave(connection);
}

static enum weir_status status_of_rest(const struct weir_connection *connection)
{
    switch (connection->reason.status) {
    case WEIR_ADDRESS:
    case WEIR_REFUSED:
    case WEIR_UNREACHABLE:
    case WEIR_TIMED_OUT:
    case WEIR_DISCONNECTED:
    case WEIR_PEER_LOST:
        return connection->reason.status;
    default:
        return WEIR_CANCELED;
    }
}

void connection_destroy(struct weir_connection *connection)
{
    connection->state = CONNECTION_ENDED;
    listener_let_go(connection);
    stop(connection);
    domain_forget_shares(connection->domain);
    enum weir_status rest = status_of_rest(connection);
    transfers_fini(connection, rest);
    receiver_fini(connection);
    sender_fini(connection, rest);
    buffers_fini(&connection->buffers);
    if (connection->handler.closed != NULL && !connection->poller->is_destroyed) {
        connection->poller->callbacks++;
        connection->handler.closed(connection, &connection->reason, connection->user);
    }
    unlink_connection(connection);
    domain_release(connection->domain);
    free(connection->targets);
    free(connection);
}

void connections_reap(struct weir_poller *poller)
{
    while (poller->ended != NULL) { /* callbacks may add to them */
        struct weir_connection *connection = poller->ended;
        poller->ended = connection->next_ended;
        connection_destroy(connection);
    }
}

/* --- the public calls --- */

void weir_close(struct weir_connection *connection)
{
    if (connection->state == CONNECTION_CONNECTING) {
        connection->wants_close = true;
        if (connection->sender.waiting == NULL) {
            weir_refuse(connection, "closed at once");
            connection_end(connection);
        }
    } else if (connection->state == CONNECTION_OPEN) {
        begin_closing(connection);
        connection_advance_close(connection);
    }
}

void weir_abort(struct weir_connection *connection, const char *reason)
{
    connection_abort(connection, WEIR_CANCELED, "%.190s", reason != NULL ? reason : "aborted");
}

void weir_abort_protocol(struct weir_connection *connection, const char *reason)
{
    connection_abort(connection, WEIR_PROTOCOL, "%.190s", reason);
}

void weir_connection_destroy(struct weir_connection *connection)
{
    connection_fail(connection, WEIR_CANCELED, "destroyed");
    struct weir_connection **link = &connection->poller->ended;
    while (*link != connection) {
        link = &(*link)->next_ended;
    }
    *link = connection->next_ended;
    connection_destroy(connection);
}
