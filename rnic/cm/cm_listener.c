/* Who listens to what, and the requests that wait at each listener. */
#include "rnic/cm/cm_private.h"

#define BACKLOG_DEFAULT 1024u

/* Service ids are the host's own choice, consecutive as a rule: no stranger can crowd a chain. */
static uint32_t chain_of(uint64_t service_id)
{
    return (uint32_t)(service_id % CM_LISTENER_CHAINS);
}

static bool addresses_meet(const struct gid *a, const struct gid *b)
{
    return gid_is_zero(a) || gid_is_zero(b) || gid_equal(a, b);
}

void cm_set_backlog(struct cm_listener *listener, uint32_t backlog)
{
    listener->backlog = backlog == 0 ? BACKLOG_DEFAULT : backlog;
}

enum status cm_listen(struct cm *cm, uint64_t service_id, const struct gid *address,
                      uint32_t backlog, void *context, struct cm_listener **ret_listener)
{
    struct gid wanted = {{0}};
    if (address != NULL) {
        wanted = *address;
    }
    LIST_FOR_EACH(node, &cm->listeners[chain_of(service_id)])
    {
        const struct cm_listener *other = CONTAINER_OF(node, struct cm_listener, node);
        if (other->service_id == service_id && addresses_meet(&other->address, &wanted)) {
            return STATUS_IN_USE;
        }
    }
    struct allocator *allocator = cm->config.allocator;
    struct cm_listener *listener = allocator->allocate(allocator, sizeof *listener);
    if (listener == NULL) {
        return STATUS_NO_MEMORY;
    }
    listener->cm = cm;
    listener->service_id = service_id;
    listener->address = wanted;
    cm_set_backlog(listener, backlog);
    listener->context = context;
    list_init(&listener->waiting);
    list_append(&cm->listeners[chain_of(service_id)], &listener->node);
    cm->listener_count++;
    *ret_listener = listener;
    return STATUS_OK;
}

void cm_unlisten(struct cm_listener *listener)
{
    struct cm *cm = listener->cm;
    struct list_node *node;
    while ((node = list_first(&listener->waiting)) != NULL) {
        struct cm_connection *connection = CONTAINER_OF(node, struct cm_connection, waiting);
        if (!connection->announced) { /* nobody knows it, so nobody will release it */
            connection->released = true;
            cm_event_withdraw(connection);
        }
        if (connection->state == CM_REQ_RECEIVED) {
            cm_close_reject(connection, CM_REJECT_INVALID_SERVICE_ID, NULL, 0);
        } else if (connection->state == CM_SIDR_REQ_RECEIVED) {
            cm_service_end(connection, CM_SIDR_UNSUPPORTED);
        }
        cm_listener_remove(connection);
    }
    list_remove(&listener->node);
    cm->listener_count--;
    cm->config.allocator->release(cm->config.allocator, listener);
}

struct cm_listener *cm_listener_find(const struct cm *cm, uint64_t service_id,
                                     const struct gid *address)
{
    LIST_FOR_EACH(node, &cm->listeners[chain_of(service_id)])
    {
        struct cm_listener *listener = CONTAINER_OF(node, struct cm_listener, node);
        if (listener->service_id == service_id && addresses_meet(&listener->address, address)) {
            return listener;
        }
    }
    return NULL;
}

bool cm_listener_has_room(const struct cm_listener *listener)
{
    return listener->waiting_count < listener->backlog;
}

void cm_listener_add(struct cm_listener *listener, struct cm_connection *connection)
{
    connection->listener = listener;
    list_append(&listener->waiting, &connection->waiting);
    listener->waiting_count++;
}

void cm_listener_remove(struct cm_connection *connection)
{
    if (connection->listener != NULL) {
        connection->listener->waiting_count--;
        connection->listener = NULL;
        list_remove(&connection->waiting);
    }
}

void cm_taken(struct cm_connection *connection)
{
    cm_listener_remove(connection);
}

uint32_t cm_listener_count(const struct cm *cm)
{
    return cm->listener_count;
}
