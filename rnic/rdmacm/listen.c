/* Listening. One port of cm may serve several ids of this process that differ in their address:
 * 0.0.0.0 and [::] stand side by side. The exact address wins over the family's, the family's
 * over both. The port's backlog is that of all its ids together. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rnic/rdmacm/cma.h"

#define BACKLOG_MOST 1024

/* Under the engine's lock and cma_lock to change, either to read. */
struct cma_port {
    uint64_t service_id;
    struct cm_listener *listener;
    uint32_t backlog;
    struct list ids;
    struct cma_port *next;
};

static struct cma_port *ports;

static bool accepts(const struct cma_id *id, enum registry_scope scope, const struct gid *address)
{
    return id->scope == scope && (scope == REGISTRY_EXACT      ? gid_equal(&id->path.local, address)
                                  : scope == REGISTRY_ANY_IPV4 ? gid_is_ipv4(address)
                                  : scope == REGISTRY_ANY_IPV6 ? !gid_is_ipv4(address)
                                                               : true);
}

struct cma_id *cma_listener_of(void *cm_context, const struct gid *address)
{
    static const enum registry_scope order[] = {REGISTRY_EXACT, REGISTRY_ANY_IPV4,
                                                REGISTRY_ANY_IPV6, REGISTRY_ANY};
    struct cma_port *port = cm_context;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        LIST_FOR_EACH(node, &port->ids)
        {
            struct cma_id *id = CONTAINER_OF(node, struct cma_id, listening_node);
            if (accepts(id, order[i], address)) {
                return id;
            }
        }
    }
    return NULL;
}

void cma_forget_listeners(void)
{
    ports = NULL;
}

/* With the engine's lock held. */
static enum status open_port(struct cma_device *device, uint64_t service_id,
                             struct cma_port **ret_port)
{
    for (struct cma_port *port = ports; port != NULL; port = port->next) {
        if (port->service_id == service_id) {
            *ret_port = port;
            return STATUS_OK;
        }
    }
    struct cma_port *port = calloc(1, sizeof *port);
    if (port == NULL) {
        return STATUS_NO_MEMORY;
    }
    list_init(&port->ids);
    port->service_id = service_id;
    enum status status =
        device->core->cm_listen(device->engine->cm, service_id, NULL, 0, port, &port->listener);
    if (status != STATUS_OK) {
        free(port);
        return status;
    }
    port->next = ports;
    ports = port;
    *ret_port = port;
    return STATUS_OK;
}

/* With the engine's lock held; the last id of the port has gone. */
static void close_port(struct cma_device *device, struct cma_port *port)
{
    struct cma_port **link = &ports;
    while (*link != port) {
        link = &(*link)->next;
    }
    *link = port->next;
    device->core->cm_unlisten(port->listener);
    free(port);
}

/* With the engine's lock held. */
static void count_backlog(struct cma_port *port, uint32_t change)
{
    port->backlog += change;
    cma_device()->core->cm_set_backlog(port->listener, port->backlog);
}

static int start_listening(struct cma_id *id, uint32_t backlog)
{
    struct cma_device *device = cma_device();
    struct cma_port *port;
    uint64_t service_id =
        rdma_cm_service_id((uint16_t)id->ibv.ps, ntohs(rdma_get_src_port(&id->ibv)));
    struct registry *registry = device->core->loop_registry(device->engine);
    enum status status = device->core->registry_listen(registry, id->claim);
    if (status != STATUS_OK) {
        return cma_status(status);
    }
    engine_lock(device->engine);
    status = open_port(device, service_id, &port);
    if (status == STATUS_OK) {
        pthread_mutex_lock(&cma_lock);
        list_append(&port->ids, &id->listening_node);
        pthread_mutex_unlock(&cma_lock);
        id->listening = port;
        id->backlog = backlog;
        count_backlog(port, backlog);
        id->state = CMA_LISTENING;
    }
    engine_unlock(device->engine);
    if (status != STATUS_OK) {
        device->core->registry_unlisten(registry, id->claim);
    }
    return cma_status(status);
}

PUBLIC int rdma_listen(struct rdma_cm_id *ibv, int backlog)
{
    struct cma_id *id = cma_id(ibv);
    if (id->state == CMA_IDLE) {
        struct sockaddr_in any = {.sin_family = AF_INET};
        if (cma_bind(id, (struct sockaddr *)&any) != 0) {
            return -1;
        }
    }
    if (id->state != CMA_BOUND || id->claim == NO_CLAIM || !cma_is_ours(id)) {
        return cma_error(EINVAL);
    }
    bool is_given = backlog > 0 && backlog < BACKLOG_MOST;
    return start_listening(id, is_given ? (uint32_t)backlog : BACKLOG_MOST);
}

void cma_unlisten(struct cma_id *id)
{
    struct cma_device *device = cma_device();
    struct cma_port *port = id->listening;
    if (port == NULL) {
        return;
    }
    engine_lock(device->engine);
    pthread_mutex_lock(&cma_lock);
    list_remove(&id->listening_node);
    pthread_mutex_unlock(&cma_lock);
    id->listening = NULL;
    count_backlog(port, -id->backlog);
    if (list_is_empty(&port->ids)) {
        close_port(device, port);
    }
    engine_unlock(device->engine);
}
