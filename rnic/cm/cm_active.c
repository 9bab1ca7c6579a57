/* The active side: REQ out, REP in, RTU out. */
#include "rnic/base/bytes.h"
#include "rnic/cm/cm_private.h"

static void send_request(struct cm_connection *connection, const struct cm_connect_request *request,
                         uint8_t response_timeout)
{
    const struct cm_parameters *parameters = &request->parameters;
    struct cm_message message = {
        .kind = CM_MESSAGE_REQ,
        .service_id = request->service_id,
        .local_ca_guid = connection->cm->config.ca_guid,
        .local_qpn = parameters->qpn,
        .starting_psn = parameters->starting_psn,
        .responder_resources = parameters->responder_resources,
        .initiator_depth = parameters->initiator_depth,
        .retry_count = parameters->retry_count,
        .rnr_retry_count = parameters->rnr_retry_count,
        .ack_timeout = parameters->ack_timeout,
        .path_mtu = parameters->path_mtu,
        .flow_control = parameters->flow_control,
        .shared_receive_queue = parameters->shared_receive_queue,
        .transport_service = parameters->transport_service,
        .extended_transport = connection->is_xrc ? CM_EXTENDED_TRANSPORT_XRC : 0,
        .remote_response_timeout = response_timeout,
        .local_response_timeout = response_timeout,
        .max_cm_retries = connection->max_retries,
        .pkey = PKEY_DEFAULT,
        .ece = parameters->ece,
        .path = connection->path,
    };
    memcpy(message.private_data, parameters->private_data, parameters->private_length);
    cm_send(connection, &message);
}

enum status cm_connect(struct cm *cm, struct instant now, const struct cm_connect_request *request,
                       struct cm_connection **ret_connection)
{
    cm->now = now;
    if (request->parameters.private_length > CM_REQ_PRIVATE_MAX ||
        request->response_timeout > CM_EXPONENT_MAX || request->max_retries > CM_RETRIES_MAX ||
        (request->parameters.transport_service > CM_TRANSPORT_UC &&
         request->parameters.transport_service != CM_TRANSPORT_EXTENDED)) {
        return STATUS_INVALID;
    }
    struct cm_connection *connection = cm_table_take(cm);
    if (connection == NULL) {
        return STATUS_FULL;
    }
    connection->active = true;
    connection->is_xrc = request->parameters.transport_service == CM_TRANSPORT_EXTENDED;
    connection->announced = true;
    connection->transaction = secret_u64(&cm->secret);
    connection->request_transaction = connection->transaction;
    connection->service_id = request->service_id;
    connection->path = request->path;
    connection->local_qpn = request->parameters.qpn;
    connection->ack_timeout = request->parameters.ack_timeout;
    connection->context = request->context;
    connection->max_retries = request->max_retries == 0 ? CM_RETRIES_MAX : request->max_retries;
    connection->retries_left = connection->max_retries;
    connection->stretches_left = CM_RETRIES_MAX;
    uint8_t response_timeout =
        request->response_timeout == 0 ? CM_RESPONSE_TIMEOUT_DEFAULT : request->response_timeout;
    connection->timeout_ns = cm_timeout_ns(response_timeout, 0, CM_EXPONENT_MAX);

    cm_enter(connection, CM_REQ_SENT);
    cm_start_timer(connection, connection->timeout_ns);
    send_request(connection, request, response_timeout);
    *ret_connection = connection;
    return STATUS_OK;
}

static void accept_reply(struct cm_connection *connection, const struct arrival *arrival,
                         const struct cm_message *received)
{
    struct cm *cm = connection->cm;
    struct cm_message own = *received;
    const struct cm_message *message = &own;
    if (connection->is_xrc) {
        own.local_qpn = own.local_eecn;
    }
    struct cm_connection *old =
        cm_table_find_by_remote_qpn(cm, &arrival->path.remote, message->local_qpn);
    if (old != NULL) {
        cm_close_suspect(old);
    }
    cm_table_name_by_id(connection, message->local_id);
    cm_table_name_by_qpn(connection, message->local_qpn);
    cm_enter(connection, CM_REP_RECEIVED);
    cm_event_raise(connection, CM_EVENT_REPLY, message);
}

static void send_ready(struct cm_connection *connection)
{
    struct cm_message message = {.kind = CM_MESSAGE_RTU};
    cm_send(connection, &message);
}

void cm_active_receive_reply(struct cm_connection *connection, const struct arrival *arrival,
                             const struct cm_message *message)
{
    switch (connection->state) {
    case CM_REQ_SENT:
        accept_reply(connection, arrival, message);
        break;
    case CM_REP_RECEIVED:
        if (connection->mad_kind == CM_MESSAGE_MRA) {
            timers_cancel(&connection->cm->timers, &connection->timer);
            cm_send_again(connection);
        }
        break;
    case CM_ESTABLISHED: /* the RTU was lost */
        send_ready(connection);
        break;
    case CM_REJ_SENT:
        cm_send_again(connection);
        break;
    case CM_OVER: /* we gave up, and said so in a REJ that was lost or late */
        cm_send_stray_reject(connection->cm, arrival, message, CM_REJECT_TIMEOUT);
        break;
    default: /* disconnecting: our DREQ or DREP tells the peer more than this could */
        break;
    }
}

void cm_active_give_up(struct cm_connection *connection)
{
    struct cm_message message = {
        .kind = CM_MESSAGE_REJ,
        .answered = CM_ANSWERED_REQ,
        .reject_reason = CM_REJECT_TIMEOUT,
        .reject_info_length = sizeof(uint64_t), /* the CA's GUID [IBA 12.6.7.2] */
    };
    bytes_store_u64(message.reject_info, connection->cm->config.ca_guid);
    cm_event_raise(connection, CM_EVENT_UNREACHABLE, NULL);
    cm_send(connection, &message);
    cm_close_finish(connection);
}

enum status cm_confirm(struct cm_connection *connection, struct instant now)
{
    connection->cm->now = now;
    if (connection->state != CM_REP_RECEIVED) {
        return STATUS_STATE;
    }
    cm_enter(connection, CM_ESTABLISHED);
    send_ready(connection);
    return STATUS_OK;
}
