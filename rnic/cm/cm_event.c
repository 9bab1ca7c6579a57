/* Events to the caller: raised by the machines, kept in the connections' own memory, taken oldest
 * first. A connection never has more waiting than CM_PENDING_MAX: each step of its life raises one
 * and no step comes twice. */
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

static struct cm_pending_event *find_free(struct cm_connection *connection)
{
    for (unsigned i = 0; i < CM_PENDING_MAX; i++) {
        if (!list_node_is_linked(&connection->pending[i].node)) {
            return &connection->pending[i];
        }
    }
    return NULL;
}

void cm_event_raise(struct cm_connection *connection, enum cm_event_kind kind,
                    const struct cm_message *message)
{
    struct cm *cm = connection->cm;
    if (connection->released) {
        return;
    }
    struct cm_pending_event *pending = find_free(connection);
    CHECK(pending != NULL);
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
    for (unsigned i = 0; i < CM_PENDING_MAX; i++) {
        list_remove(&connection->pending[i].node);
    }
}

bool cm_next_event(struct cm *cm, struct cm_event *ret_event)
{
    struct list_node *node = list_pop_first(&cm->events);
    if (node == NULL) {
        return false;
    }
    *ret_event = CONTAINER_OF(node, struct cm_pending_event, node)->event;
    struct cm_connection *connection = ret_event->connection;
    ret_event->context = connection->context;
    if (ret_event->kind == CM_EVENT_REQUEST || ret_event->kind == CM_EVENT_SERVICE_REQUEST) {
        CHECK(connection->listener != NULL);
        ret_event->context = connection->listener->context;
        connection->announced = true;
    }
    return true;
}
