/* The ends of a connection: reject, disconnect, time-wait, release.
 *
 * A DREQ is answered at once with a DREP, in whatever state: the peer ends its side by it, and the
 * caller is told. After that, and after a disconnect of our own, time-wait keeps the ids and the
 * caller's queue pair number out of use until packets under way have died. [IBA 12.9.8.4, 12.9.8.5]
 *
 * The caller waits four seconds at most for an answer to its DREQ. A way may be cut for longer, and
 * a peer that only listens would never learn of the end; so the DREQ goes on being repeated, for a
 * minute in all, as with a kernel. */
#include "rnic/base/check.h"
#include "rnic/cm/cm_private.h"

#define DISCONNECT_TRY_NS  UINT64_C(1000000000)
#define DISCONNECT_RETRIES 3u
#define UNHEARD_TRY_NS     UINT64_C(4000000000)
#define UNHEARD_TRIES      14u
#define GOODBYE_TRY_NS     UINT64_C(100000000)
#define GOODBYE_RETRIES    8u
#define PROBE_PAUSE_NS     UINT64_C(1000000000)
#define TIME_WAIT_LEAST_NS UINT64_C(100000000)
#define TIME_WAIT_MOST_NS  UINT64_C(4000000000)

void cm_close_free_if_done(struct cm_connection *connection)
{
    if (connection->state == CM_OVER && connection->released &&
        !list_node_is_linked(&connection->unsent)) {
        cm_table_give(connection);
    }
}

void cm_close_finish(struct cm_connection *connection)
{
    cm_enter(connection, CM_OVER);
    cm_close_free_if_done(connection);
}

/* Twice the longest way of a packet and what the peer may wait before it answers: that is the
 * local ACK timeout [IBA 9.7.6.1.3]; doubled, for the retry that was under way, and held to what an
 * application can wait for. */
void cm_close_wait(struct cm_connection *connection)
{
    uint64_t wait_ns = 2 * cm_timeout_ns(connection->ack_timeout, 0, CM_EXPONENT_MAX);
    wait_ns = wait_ns < TIME_WAIT_LEAST_NS ? TIME_WAIT_LEAST_NS : wait_ns;
    wait_ns = wait_ns > TIME_WAIT_MOST_NS ? TIME_WAIT_MOST_NS : wait_ns;
    cm_enter(connection, CM_TIME_WAIT);
    cm_start_timer(connection, wait_ns);
}

void cm_close_wait_over(struct cm_connection *connection)
{
    cm_event_raise(connection, CM_EVENT_TIME_WAIT_OVER, NULL);
    if (!connection->is_unheard) {
        cm_close_finish(connection);
        return;
    }
    cm_enter(connection, CM_DREQ_UNHEARD);
    connection->retries_left = UNHEARD_TRIES - 1;
    connection->timeout_ns = UNHEARD_TRY_NS;
    cm_start_timer(connection, connection->timeout_ns);
    cm_send_again(connection);
    cm_close_offer_room(connection);
}

/* Rejects */

static uint8_t answered_in(enum cm_state state)
{
    switch (state) {
    case CM_REQ_RECEIVED:
        return CM_ANSWERED_REQ;
    case CM_REP_RECEIVED:
        return CM_ANSWERED_REP;
    default:
        return CM_ANSWERED_OTHER;
    }
}

void cm_close_offer_room(struct cm_connection *connection)
{
    enum cm_state state = connection->state;
    bool may_go = state == CM_REJ_SENT || state == CM_SIDR_REP_SENT || state == CM_DREQ_UNHEARD;
    if (may_go && connection->released) {
        list_append(&connection->cm->rejected, &connection->node);
    }
}

void cm_close_reject(struct cm_connection *connection, uint16_t reason, const void *data,
                     uint8_t length)
{
    struct cm_message message = {
        .kind = CM_MESSAGE_REJ,
        .answered = answered_in(connection->state),
        .reject_reason = reason,
    };
    bool fits = cm_copy_private(&message, data, length);
    CHECK(fits);
    uint64_t tries_ns = (connection->max_retries + 1u) * connection->timeout_ns;
    tries_ns = tries_ns < CM_REMEMBER_MOST_NS ? tries_ns : CM_REMEMBER_MOST_NS;
    cm_enter(connection, CM_REJ_SENT);
    /* The peer may ask again only when the wait that we asked for is over. */
    cm_start_timer(connection, connection->granted_ns + tries_ns);
    cm_send(connection, &message);
    cm_close_offer_room(connection);
}

enum status cm_reject(struct cm_connection *connection, struct instant now, uint16_t reason,
                      const void *private_data, uint8_t private_length)
{
    connection->cm->now = now;
    if (connection->state != CM_REQ_RECEIVED && connection->state != CM_REP_RECEIVED) {
        cm_listener_remove(connection); /* an answer, though the peer does not want it any more */
        return STATUS_STATE;
    }
    if (private_length > CM_REJ_PRIVATE_MAX) {
        return STATUS_INVALID;
    }
    cm_close_reject(connection, reason, private_data, private_length);
    return STATUS_OK;
}

/* A passive connection that the caller has not seen yet vanishes, its REQUEST with it. */
static void end_rejected(struct cm_connection *connection, const struct cm_message *message)
{
    if (connection->announced) {
        cm_event_raise(connection, CM_EVENT_REJECTED, message);
    } else {
        cm_event_withdraw(connection);
        cm_listener_remove(connection);
        connection->released = true;
    }
    cm_close_finish(connection);
}

/* `message`: the peer's; NULL: it said nothing. */
static void end_disconnected(struct cm_connection *connection, const struct cm_message *message)
{
    connection->is_unheard = connection->is_unheard && message == NULL;
    cm_event_raise(connection, CM_EVENT_DISCONNECTED, message);
    cm_close_wait(connection);
}

void cm_close_receive_reject(struct cm_connection *connection, const struct cm_message *message)
{
    switch (connection->state) {
    case CM_REQ_SENT:
    case CM_REP_RECEIVED:
    case CM_REQ_RECEIVED:
    case CM_REP_SENT:
        end_rejected(connection, message);
        break;
    case CM_ESTABLISHED: /* the peer never heard our RTU and has given up */
    case CM_DREQ_SENT:
        end_disconnected(connection, message);
        break;
    default:
        break;
    }
}

/* Disconnects */

/* The peer does not believe in it any more. */
static void end_unheard(struct cm_connection *connection)
{
    connection->is_unheard = false;
    if (connection->state == CM_DREQ_UNHEARD) {
        cm_close_finish(connection);
    }
}

static void start_disconnect(struct cm_connection *connection)
{
    struct cm_message message = {.kind = CM_MESSAGE_DREQ, .local_qpn = connection->remote_qpn};
    connection->transaction = secret_u64(&connection->cm->secret);
    connection->retries_left = DISCONNECT_RETRIES;
    connection->timeout_ns = DISCONNECT_TRY_NS;
    connection->is_unheard = connection->state == CM_ESTABLISHED; /* else it may be a stranger */
    cm_enter(connection, CM_DREQ_SENT);
    cm_start_timer(connection, connection->timeout_ns);
    cm_send(connection, &message);
}

enum status cm_disconnect(struct cm_connection *connection, struct instant now)
{
    connection->cm->now = now;
    if (connection->state != CM_ESTABLISHED && connection->state != CM_REP_SENT) {
        return STATUS_STATE;
    }
    start_disconnect(connection);
    return STATUS_OK;
}

void cm_say_goodbyes(struct cm *cm, struct instant now)
{
    cm->now = now;
    for (uint32_t i = 0; i < cm->connections_touched; i++) {
        struct cm_connection *connection = &cm->connections[i];
        if (connection->state == CM_ESTABLISHED || connection->state == CM_REP_SENT) {
            start_disconnect(connection);
        }
        if (connection->state == CM_DREQ_SENT) {
            connection->retries_left = GOODBYE_RETRIES;
            connection->timeout_ns = GOODBYE_TRY_NS;
            cm_start_timer(connection, connection->timeout_ns);
        }
    }
}

uint32_t cm_goodbyes_unanswered(const struct cm *cm)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < cm->connections_touched; i++) {
        count += cm->connections[i].state == CM_DREQ_SENT;
    }
    return count;
}

void cm_close_answer_stray(struct cm *cm, const struct arrival *arrival,
                           const struct cm_message *message)
{
    struct cm_message reply = {
        .kind = CM_MESSAGE_DREP,
        .transaction = message->transaction,
        .local_id = message->remote_id,
        .remote_id = message->local_id,
    };
    cm_send_stray(cm, arrival, &reply);
}

void cm_close_receive_request(struct cm_connection *connection, const struct arrival *arrival,
                              const struct cm_message *message)
{
    struct cm *cm = connection->cm;
    switch (connection->state) {
    case CM_REP_RECEIVED:
    case CM_REP_SENT: /* it has our REP, else it would not know our id; the RTU was lost */
    case CM_ESTABLISHED:
    case CM_DREQ_SENT: {
        struct cm_message reply = {.kind = CM_MESSAGE_DREP};
        connection->transaction = message->transaction;
        cm_send(connection, &reply);
        end_disconnected(connection, message);
        break;
    }
    case CM_REJ_SENT:
    case CM_TIME_WAIT:
    case CM_DREQ_UNHEARD:
    case CM_OVER:
        cm_close_answer_stray(cm, arrival, message);
        end_unheard(connection);
        break;
    default:
        device_refuse(cm->config.device, REFUSED_MANAGEMENT);
        break;
    }
}

/* By the peer. */
static void end_forgotten(struct cm_connection *connection)
{
    static const struct cm_message reason = {.kind = CM_MESSAGE_REJ,
                                             .reject_reason = CM_REJECT_STALE_CONNECTION};
    switch (connection->state) {
    case CM_REP_SENT:
    case CM_REP_RECEIVED:
        end_rejected(connection, &reason);
        break;
    case CM_ESTABLISHED:
        end_disconnected(connection, NULL);
        break;
    default:
        break;
    }
}

void cm_close_receive_reply(struct cm_connection *connection, const struct cm_message *message)
{
    if (connection->state == CM_DREQ_SENT) {
        end_disconnected(connection, message);
    } else if (connection->is_unheard) {
        end_unheard(connection);
    } else if (connection->probe_transaction != 0 &&
               connection->probe_transaction == message->transaction) {
        end_forgotten(connection);
    }
}

void cm_close_give_up(struct cm_connection *connection)
{
    if (connection->state == CM_DREQ_UNHEARD) {
        cm_close_finish(connection);
    } else {
        end_disconnected(connection, NULL);
    }
}

/* A DREQ that names no queue pair. Who knows the connection finds that it names another one than
 * its own and ignores it; who does not answers with a DREP. So a forged request ends nothing, and
 * gets the peer a message a second at most. Not repeated: a peer that has begun anew will ask
 * again. */
static void probe(struct cm_connection *connection)
{
    struct cm *cm = connection->cm;
    if (connection->probe_transaction != 0 &&
        instant_elapsed_ns(connection->probed, cm->now) < PROBE_PAUSE_NS) {
        return;
    }
    connection->probe_transaction = secret_u64(&cm->secret) | 1;
    connection->probed = cm->now;
    const struct arrival back = {.path = connection->path};
    const struct cm_message message = {
        .kind = CM_MESSAGE_DREQ,
        .transaction = connection->probe_transaction,
        .local_id = connection->local_id,
        .remote_id = connection->remote_id,
    };
    cm_send_stray(cm, &back, &message);
}

void cm_close_suspect(struct cm_connection *connection)
{
    switch (connection->state) {
    case CM_REP_SENT:
    case CM_REP_RECEIVED:
    case CM_ESTABLISHED:
        probe(connection);
        break;
    default: /* in CM_REQ_RECEIVED it does not know our id yet: it will say so to our answer */
        break;
    }
}

/* Release */

void cm_release(struct cm_connection *connection, struct instant now)
{
    CHECK(!connection->released);
    connection->cm->now = now;
    connection->released = true;
    cm_listener_remove(connection);
    connection->context = NULL;
    cm_event_withdraw(connection);
    switch (connection->state) {
    case CM_REQ_SENT:
        cm_active_give_up(connection);
        break;
    case CM_REQ_RECEIVED:
    case CM_REP_RECEIVED:
        cm_close_reject(connection, CM_REJECT_CONSUMER, NULL, 0);
        break;
    case CM_REP_SENT:
        if (cm_passive_is_crowded(connection->cm)) { /* a DREQ would be repeated, to a stranger */
            cm_passive_give_up(connection);
            break;
        }
        start_disconnect(connection);
        break;
    case CM_ESTABLISHED:
        start_disconnect(connection);
        break;
    case CM_REJ_SENT:
    case CM_SIDR_REP_SENT:
    case CM_DREQ_UNHEARD:
        cm_close_offer_room(connection);
        break;
    case CM_SIDR_REQ_RECEIVED:
        cm_service_end(connection, CM_SIDR_REJECTED);
        break;
    case CM_SIDR_REQ_SENT:
        cm_close_finish(connection);
        break;
    case CM_OVER:
        cm_close_free_if_done(connection);
        break;
    case CM_DREQ_SENT:
    case CM_TIME_WAIT:
        break;
    }
}
