/* The passive side: REQ in, REP out, RTU in.
 *
 * A REQ is a stranger's: it takes room in a bounded backlog and nothing else, and a repeated one is
 * known by the peer's GID, id, QPN and transaction. */
#include "rnic/cm/cm_private.h"

#define TARGET_ACK_DELAY 15u /* 4.096 us * 2^15 = 134 ms, as rxe says */

/* A peer chooses how long its half-open connection lives, up to minutes; of so many at once, the
 * rest gets this: what a flood with false addresses holds is bounded by it. */
#define HALF_OPEN_CALM    64u
#define HALF_OPEN_RETRIES 3u
#define HALF_OPEN_TRY_NS  UINT64_C(1000000000)

/* Who is named as the sender of a request need not have sent it. It gets an answer to each, of
 * about the same length; what we repeat by ourselves, to all such peers, is bounded. Who did send
 * it and did not get the REP asks again. */
#define REPEATS_MAX    256u
#define REPEATS_PER_NS UINT64_C(1000000000)

static void repeat_answer(struct cm_connection *connection, const struct arrival *arrival,
                          const struct cm_message *message)
{
    switch (connection->state) {
    case CM_REQ_RECEIVED: /* an MRA, if we sent one */
    case CM_REP_SENT:
    case CM_REJ_SENT:
        cm_send_again(connection);
        break;
    case CM_ESTABLISHED: /* the peer has had its REP: this REQ was late */
        break;
    default: /* the REP never reached it, and now it is too late */
        if (connection->mad_kind == CM_MESSAGE_REJ) {
            cm_send_again(connection);
        } else {
            cm_send_stray_reject(connection->cm, arrival, message, CM_REJECT_STALE_CONNECTION);
        }
        break;
    }
    cm_close_free_if_done(connection); /* it was kept for its REJ only, which has left */
}

/* 0: nothing is wrong with it. */
static uint16_t find_fault(const struct cm_message *message)
{
    bool is_xrc = message->transport_service == CM_TRANSPORT_EXTENDED &&
                  message->extended_transport == CM_EXTENDED_TRANSPORT_XRC;
    if (message->transport_service > CM_TRANSPORT_UC && !is_xrc) {
        return CM_REJECT_INVALID_TRANSPORT_SERVICE;
    }
    if (message->path_mtu < PATH_MTU_256 || message->path_mtu > PATH_MTU_4096) {
        return CM_REJECT_INVALID_PATH_MTU;
    }
    return 0;
}

static void fill_request(struct cm_connection *connection, const struct arrival *arrival,
                         const struct cm_message *message)
{
    connection->transaction = message->transaction;
    connection->request_transaction = message->transaction;
    connection->service_id = message->service_id;
    connection->path = (struct path){
        .local = arrival->path.local,
        .remote = arrival->path.remote,
        .traffic_class = message->path.traffic_class,
        .hop_limit = message->path.hop_limit,
        .flow_label = message->path.flow_label,
    };
    connection->is_xrc = message->transport_service == CM_TRANSPORT_EXTENDED;
    connection->ack_timeout = message->ack_timeout;
    connection->timeout_ns = cm_timeout_ns(message->local_response_timeout, CM_PEER_EXPONENT_LEAST,
                                           CM_PEER_EXPONENT_MOST);
    connection->max_retries = message->max_cm_retries;
    connection->stretches_left = CM_RETRIES_MAX;
    cm_table_name_by_id(connection, message->local_id);
    cm_table_name_by_qpn(connection, message->local_qpn);
}

static void receive_new_request(struct cm *cm, const struct arrival *arrival,
                                const struct cm_message *message)
{
    struct cm_listener *listener = cm_listener_find(cm, message->service_id, &arrival->path.local);
    uint16_t fault = listener == NULL ? CM_REJECT_INVALID_SERVICE_ID : find_fault(message);
    struct cm_connection *connection = NULL;
    if (fault == 0 && !cm_listener_has_room(listener)) {
        return; /* it will ask again, and there may be room then */
    }
    if (fault == 0) {
        connection = cm_table_take(cm);
        fault = connection == NULL ? CM_REJECT_NO_RESOURCES : 0;
    }
    if (fault != 0) {
        cm_send_stray_reject(cm, arrival, message, fault);
        return;
    }
    fill_request(connection, arrival, message);
    cm_enter(connection, CM_REQ_RECEIVED);
    cm_listener_add(listener, connection);
    cm_event_raise(connection, CM_EVENT_REQUEST, message);
}

static bool is_repetition(const struct cm_connection *old, const struct cm_message *message)
{
    return !old->active && old->request_transaction == message->transaction &&
           qpn_equal(old->remote_qpn, message->local_qpn);
}

/* It lives on for the caller or for late messages only. */
static bool has_ended(const struct cm_connection *connection)
{
    return connection->state == CM_OVER || connection->state == CM_REJ_SENT ||
           connection->state == CM_TIME_WAIT || connection->state == CM_DREQ_UNHEARD;
}

/* The connection that the peer means by the id of its request. One that has ended does not stand in
 * the way of a new one by the same id, as little as by the same queue pair: a peer that draws ids
 * at random may have one again long before we forget the first, up to ten seconds after a REJ. */
static struct cm_connection *find_by_id(struct cm *cm, const struct gid *peer,
                                        const struct cm_message *message)
{
    struct cm_connection *old;
    while ((old = cm_table_find_by_remote_id(cm, peer, message->local_id)) != NULL &&
           has_ended(old) && !is_repetition(old, message)) {
        cm_table_forget_id(old);
    }
    return old;
}

void cm_passive_receive_request(struct cm *cm, const struct arrival *arrival,
                                const struct cm_message *message)
{
    const struct gid *peer = &arrival->path.remote;
    struct cm_connection *old = find_by_id(cm, peer, message);
    if (old != NULL && is_repetition(old, message)) {
        repeat_answer(old, arrival, message);
        return;
    }
    if (old == NULL) {
        old = cm_table_find_by_remote_qpn(cm, peer, message->local_qpn);
    }
    if (old != NULL) { /* in the way of a peer that has begun anew [IBA 12.9.8.3.1] */
        cm_send_stray_reject(cm, arrival, message, CM_REJECT_STALE_CONNECTION);
        cm_close_suspect(old);
        return;
    }
    receive_new_request(cm, arrival, message);
}

bool cm_passive_is_crowded(const struct cm *cm)
{
    return cm->half_open >= HALF_OPEN_CALM;
}

static void set_patience(struct cm_connection *connection)
{
    connection->retries_left = connection->max_retries;
    if (!cm_passive_is_crowded(connection->cm)) {
        return;
    }
    if (connection->retries_left > HALF_OPEN_RETRIES) {
        connection->retries_left = HALF_OPEN_RETRIES;
    }
    if (connection->timeout_ns > HALF_OPEN_TRY_NS) {
        connection->timeout_ns = HALF_OPEN_TRY_NS;
    }
}

enum status cm_accept(struct cm_connection *connection, struct instant now,
                      const struct cm_parameters *parameters)
{
    connection->cm->now = now;
    if (connection->state != CM_REQ_RECEIVED) {
        cm_listener_remove(connection); /* an answer, though the peer does not want it any more */
        return STATUS_STATE;
    }
    struct cm_message message = {
        .kind = CM_MESSAGE_REP,
        .local_ca_guid = connection->cm->config.ca_guid,
        .local_qpn = parameters->qpn,
        .starting_psn = parameters->starting_psn,
        .responder_resources = parameters->responder_resources,
        .initiator_depth = parameters->initiator_depth,
        .rnr_retry_count = parameters->rnr_retry_count,
        .flow_control = parameters->flow_control,
        .shared_receive_queue = parameters->shared_receive_queue,
        .ece = parameters->ece,
        .target_ack_delay = TARGET_ACK_DELAY,
    };
    if (connection->is_xrc) { /* as the kernel: a target stands where end-to-end contexts did */
        message.local_eecn = message.local_qpn;
        message.local_qpn = (struct qpn){0};
        message.shared_receive_queue = true;
    }
    if (!cm_copy_private(&message, parameters->private_data, parameters->private_length)) {
        return STATUS_INVALID;
    }
    connection->local_qpn = parameters->qpn;
    set_patience(connection);
    cm_enter(connection, CM_REP_SENT);
    cm_start_timer(connection, connection->timeout_ns);
    cm_send(connection, &message);
    return STATUS_OK;
}

static void establish(struct cm_connection *connection, const struct cm_message *message)
{
    cm_enter(connection, CM_ESTABLISHED);
    cm_event_raise(connection, CM_EVENT_ESTABLISHED, message);
}

void cm_passive_receive_ready(struct cm_connection *connection, const struct cm_message *message)
{
    if (connection->state == CM_REP_SENT) {
        establish(connection, message);
    } else if (connection->mad_kind == CM_MESSAGE_REJ) {
        cm_send_again(connection); /* the peer believes in a connection that we have given up */
        cm_close_free_if_done(connection);
    }
}

void cm_data_arrived(struct cm_connection *connection, struct instant now)
{
    connection->cm->now = now;
    if (connection->state == CM_REP_SENT) {
        establish(connection, NULL);
    }
}

void cm_passive_repeat(struct cm_connection *connection)
{
    struct cm *cm = connection->cm;
    if (instant_elapsed_ns(cm->repeats_since, cm->now) >= REPEATS_PER_NS) {
        cm->repeats_since = cm->now;
        cm->repeats = 0;
    }
    if (cm->repeats < REPEATS_MAX) {
        cm->repeats++;
        cm_send_again(connection);
    }
}

void cm_passive_give_up(struct cm_connection *connection)
{
    struct cm_message message = {
        .kind = CM_MESSAGE_REJ,
        .answered = CM_ANSWERED_REP,
        .reject_reason = CM_REJECT_TIMEOUT,
    };
    cm_event_raise(connection, CM_EVENT_UNREACHABLE, NULL);
    cm_send(connection, &message);
    cm_close_wait(connection);
}
