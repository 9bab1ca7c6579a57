/* Messages out. A connection keeps its last message, since every repetition on the way of a
 * connection is of the last one: a timeout repeats it, and so does a duplicate from the peer. Once
 * it is established there is nothing to repeat but an RTU, which can be made anew: so that it may
 * idle, it keeps none.
 *
 * Where the device is full, a connection's message waits for a later advance. An answer to a
 * stranger does not: the stranger will ask again. */
#include "rnic/base/check.h"
#include "rnic/cm/cm_private.h"

#define RETRY_SENDING_NS UINT64_C(1000000)

void cm_send_again(struct cm_connection *connection)
{
    struct cm *cm = connection->cm;
    if (connection->mad == NULL) {
        return; /* it has not sent anything yet */
    }
    enum status status =
        device_send_management(cm->config.device, &connection->path, connection->mad, MAD_LENGTH);
    if (status == STATUS_OK) {
        list_remove(&connection->unsent);
        if (connection->state == CM_ESTABLISHED) {
            cm_send_settled(connection);
        }
    } else if (!list_node_is_linked(&connection->unsent)) {
        list_append(&cm->unsent, &connection->unsent);
        cm->retry_sending = instant_after(cm->now, RETRY_SENDING_NS);
    }
}

void cm_send_settled(struct cm_connection *connection)
{
    if (connection->mad != NULL && !list_node_is_linked(&connection->unsent)) {
        pool_give(&connection->cm->mads, connection->mad);
        connection->mad = NULL;
    }
}

void cm_send_if_asked(struct cm_connection *connection, struct cm_message *message)
{
    message->transaction = connection->transaction;
    message->local_id = connection->local_id;
    message->remote_id = connection->remote_known ? connection->remote_id : 0;
    if (connection->mad == NULL) {
        connection->mad = pool_take(&connection->cm->mads);
        CHECK(connection->mad != NULL); /* there is one for each */
    }
    cm_message_build(message, connection->mad);
    connection->mad_kind = message->kind;
    list_remove(&connection->unsent); /* what waited to leave is no more */
}

void cm_send(struct cm_connection *connection, struct cm_message *message)
{
    cm_send_if_asked(connection, message);
    cm_send_again(connection);
}

void cm_send_unsent(struct cm *cm)
{
    while (!list_is_empty(&cm->unsent)) {
        struct cm_connection *connection =
            CONTAINER_OF(list_first(&cm->unsent), struct cm_connection, unsent);
        cm_send_again(connection);
        if (list_node_is_linked(&connection->unsent)) {
            cm->retry_sending = instant_after(cm->now, RETRY_SENDING_NS);
            return;
        }
        cm_close_free_if_done(connection);
    }
}

void cm_send_stray(struct cm *cm, const struct arrival *arrival, const struct cm_message *message)
{
    uint8_t mad[MAD_LENGTH];
    cm_message_build(message, mad);
    enum status status = device_send_management(cm->config.device, &arrival->path, mad, MAD_LENGTH);
    (void)status;
}

void cm_send_stray_reject(struct cm *cm, const struct arrival *arrival,
                          const struct cm_message *message, uint16_t reason)
{
    struct cm_message reject = {
        .kind = CM_MESSAGE_REJ,
        .transaction = message->transaction,
        .local_id = message->remote_id,
        .remote_id = message->local_id,
        .reject_reason = reason,
    };
    switch (message->kind) {
    case CM_MESSAGE_REQ:
        reject.answered = CM_ANSWERED_REQ;
        break;
    case CM_MESSAGE_REP:
        reject.answered = CM_ANSWERED_REP;
        break;
    default:
        reject.answered = CM_ANSWERED_OTHER;
        break;
    }
    cm_send_stray(cm, arrival, &reject);
}
