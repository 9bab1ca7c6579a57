/* Service id resolution, both sides: "which queue pair takes datagrams for this service?"
 * [IBA 12.11]
 *
 * The side that asks repeats its SIDR_REQ until an answer comes. The side that answers keeps its
 * SIDR_REP for a while, so that a repeated question is known by the peer's GID, request id and
 * transaction and shown to the caller only once. A stranger's question takes room in the
 * listener's backlog and nothing else. */
#include "rnic/base/check.h"
#include "rnic/cm/cm_private.h"

enum status cm_resolve(struct cm *cm, struct instant now, const struct cm_connect_request *request,
                       struct cm_connection **ret_connection)
{
    cm->now = now;
    struct cm_message message = {
        .kind = CM_MESSAGE_SIDR_REQ, .pkey = PKEY_DEFAULT, .service_id = request->service_id};
    if (!cm_copy_private(&message, request->parameters.private_data,
                         request->parameters.private_length) ||
        request->response_timeout > CM_EXPONENT_MAX || request->max_retries > CM_RETRIES_MAX) {
        return STATUS_INVALID;
    }
    struct cm_connection *connection = cm_table_take(cm);
    if (connection == NULL) {
        return STATUS_FULL;
    }
    connection->active = true;
    connection->is_resolution = true;
    connection->announced = true;
    connection->transaction = secret_u64(&cm->secret);
    connection->service_id = request->service_id;
    connection->path = request->path;
    connection->context = request->context;
    connection->retries_left = request->max_retries == 0 ? CM_RETRIES_MAX : request->max_retries;
    uint8_t exponent =
        request->response_timeout == 0 ? CM_RESPONSE_TIMEOUT_DEFAULT : request->response_timeout;
    connection->timeout_ns = cm_timeout_ns(exponent, 0, CM_EXPONENT_MAX);

    cm_enter(connection, CM_SIDR_REQ_SENT);
    cm_start_timer(connection, connection->timeout_ns);
    cm_send(connection, &message);
    *ret_connection = connection;
    return STATUS_OK;
}

void cm_service_receive_reply(struct cm_connection *connection, const struct cm_message *message)
{
    if (connection->state == CM_SIDR_REQ_SENT) { /* else it came twice */
        cm_event_raise(connection, CM_EVENT_SERVICE_REPLY, message);
        cm_close_finish(connection);
    }
}

void cm_service_give_up(struct cm_connection *connection)
{
    cm_event_raise(connection, CM_EVENT_UNREACHABLE, NULL);
    cm_close_finish(connection);
}

static void refuse(struct cm *cm, const struct arrival *arrival, const struct cm_message *message,
                   enum cm_sidr_status sidr_status)
{
    struct cm_message reply = {
        .kind = CM_MESSAGE_SIDR_REP,
        .transaction = message->transaction,
        .remote_id = message->local_id,
        .sidr_status = (uint8_t)sidr_status,
        .service_id = message->service_id,
    };
    cm_send_stray(cm, arrival, &reply);
}

static void take_request(struct cm_connection *connection, const struct arrival *arrival,
                         const struct cm_message *message)
{
    connection->is_resolution = true;
    connection->transaction = message->transaction;
    connection->service_id = message->service_id;
    connection->path = (struct path){
        .local = arrival->path.local,
        .remote = arrival->path.remote,
        .traffic_class = arrival->path.traffic_class,
        .flow_label = arrival->path.flow_label,
    };
    cm_table_name_by_id(connection, message->local_id);
}

void cm_service_receive_request(struct cm *cm, const struct arrival *arrival,
                                const struct cm_message *message)
{
    struct cm_connection *old =
        cm_table_find_by_request_id(cm, &arrival->path.remote, message->local_id);
    if (old != NULL && old->transaction == message->transaction) {
        cm_send_again(old); /* nothing, where the caller has not answered yet */
        cm_close_free_if_done(old);
        return;
    }
    if (old != NULL) { /* the id stands for what the peer asks now */
        cm_table_forget_id(old);
    }
    struct cm_listener *listener = cm_listener_find(cm, message->service_id, &arrival->path.local);
    if (listener == NULL) {
        refuse(cm, arrival, message, CM_SIDR_UNSUPPORTED);
        return;
    }
    struct cm_connection *connection = cm_listener_has_room(listener) ? cm_table_take(cm) : NULL;
    if (connection == NULL) {
        refuse(cm, arrival, message, CM_SIDR_REJECTED);
        return;
    }
    take_request(connection, arrival, message);
    cm_enter(connection, CM_SIDR_REQ_RECEIVED);
    cm_listener_add(listener, connection);
    cm_event_raise(connection, CM_EVENT_SERVICE_REQUEST, message);
}

static void answer(struct cm_connection *connection, struct cm_message *message)
{
    message->service_id = connection->service_id;
    cm_enter(connection, CM_SIDR_REP_SENT);
    cm_start_timer(connection, CM_REMEMBER_MOST_NS);
    cm_send(connection, message);
    cm_close_offer_room(connection);
}

void cm_service_end(struct cm_connection *connection, enum cm_sidr_status sidr_status)
{
    struct cm_message message = {.kind = CM_MESSAGE_SIDR_REP, .sidr_status = (uint8_t)sidr_status};
    answer(connection, &message);
}

enum status cm_service_accept(struct cm_connection *connection, struct instant now,
                              const struct cm_parameters *parameters)
{
    connection->cm->now = now;
    struct cm_message message = {
        .kind = CM_MESSAGE_SIDR_REP,
        .sidr_status = CM_SIDR_SUCCESS,
        .local_qpn = parameters->qpn,
        .local_qkey = parameters->qkey,
        .ece = parameters->ece,
    };
    if (connection->state != CM_SIDR_REQ_RECEIVED) {
        return STATUS_STATE;
    }
    if (!cm_copy_private(&message, parameters->private_data, parameters->private_length)) {
        return STATUS_INVALID;
    }
    answer(connection, &message);
    return STATUS_OK;
}

enum status cm_service_reject(struct cm_connection *connection, struct instant now,
                              enum cm_sidr_status sidr_status, const void *private_data,
                              uint8_t private_length)
{
    connection->cm->now = now;
    struct cm_message message = {.kind = CM_MESSAGE_SIDR_REP, .sidr_status = (uint8_t)sidr_status};
    if (connection->state != CM_SIDR_REQ_RECEIVED) {
        return STATUS_STATE;
    }
    if (sidr_status == CM_SIDR_SUCCESS ||
        !cm_copy_private(&message, private_data, private_length)) {
        return STATUS_INVALID;
    }
    answer(connection, &message);
    return STATUS_OK;
}
