/* Events to the caller: raised by the machines, taken oldest first. A connection never has more
 * waiting than CM_PENDING_MAX, each step of its life raises one and no step comes twice: the pool
 * has room for all. */
#include "rnic/base/check.h"
#include "rnic/cm/cm_private.h"

static void copy_parameters(const struct cm_message *message, struct cm_parameters *ret_parameters)
{
    *ret_parameters = (struct cm_parameters){
        .qpn = message->local_qpn,
        .starting_psn = message->starting_psn,
        .responder_resources = message->responder_resources,
        .initiator_depth = message->initiator_depth,
        .retry_count = message->retry_count,
        .rnr_retry_count = message->rnr_retry_count,
        .ack_timeout = message->ack_timeout,
        .path_mtu = message->path_mtu,
        .flow_control = message->flow_control,
        .shared_receive_queue = message->shared_receive_queue,
        .transport_service = message->transport_service,
        .qkey = message->local_qkey,
        .ece = message->ece,
        .private_length = (uint8_t)cm_message_private_max(message->kind),
    };
    memcpy(ret_parameters->private_data, message->private_data, ret_parameters->private_length);
}

/* A new one of the connection's, in no list yet. */
static struct cm_pending_event *take(struct cm_connection *connection)
{
    unsigned count = 0;
    for (const struct cm_pending_event *one = connection->pending; one != NULL; one = one->next) {
        count++;
    }
    CHECK(count < CM_PENDING_MAX);
    struct cm_pending_event *pending = pool_take(&connection->cm->pending);
    CHECK(pending != NULL);
    *pending = (struct cm_pending_event){.next = connection->pending};
    connection->pending = pending;
    return pending;
}

static void give(struct cm_connection *connection, struct cm_pending_event *pending)
{
    struct cm_pending_event **link = &connection->pending;
    while (*link != pending) {
        link = &(*link)->next;
    }
    *link = pending->next;
    list_remove(&pending->node);
    pool_give(&connection->cm->pending, pending);
}

void cm_event_raise(struct cm_connection *connection, enum cm_event_kind kind,
                    const struct cm_message *message)
{
    struct cm *cm = connection->cm;
    if (connection->released) {
        return;
    }
    struct cm_pending_event *pending = take(connection);
    pending->event = (struct cm_event){
        .kind = kind,
        .connection = connection,
        .path = connection->path,
        .service_id = connection->service_id,
        .reject_reason = message == NULL ? 0 : message->reject_reason,
        .sidr_status = message == NULL ? 0 : message->sidr_status,
    };
    if (message != NULL) {
        copy_parameters(message, &pending->event.parameters);
    }
    bool was_empty = list_is_empty(&cm->events);
    list_append(&cm->events, &pending->node);
    if (was_empty && cm->config.wake != NULL) {
        cm->config.wake(cm->config.wake_context);
    }
}

void cm_event_withdraw(struct cm_connection *connection)
{
    while (connection->pending != NULL) {
        give(connection, connection->pending);
    }
}

bool cm_next_event(struct cm *cm, struct cm_event *ret_event)
{
    struct list_node *node = list_first(&cm->events);
    if (node == NULL) {
        return false;
    }
    struct cm_pending_event *pending = CONTAINER_OF(node, struct cm_pending_event, node);
    *ret_event = pending->event;
    struct cm_connection *connection = ret_event->connection;
    give(connection, pending);
    ret_event->context = connection->context;
    if (ret_event->kind == CM_EVENT_REQUEST || ret_event->kind == CM_EVENT_SERVICE_REQUEST) {
        CHECK(connection->listener != NULL);
        ret_event->context = connection->listener->context;
        connection->announced = true;
    }
    return true;
}
