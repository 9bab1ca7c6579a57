/* From cm's queue to the channels of ids. */
#include <stdlib.h>

#include "rnic/rdmacm/cma.h"

/* Refuses a request that no id of ours wants, and forgets it. */
static void refuse(struct cma_device *device, const struct cm_event *event, uint16_t reason)
{
    struct instant now = engine_now(device->engine);
    enum status status;
    if (event->kind == CM_EVENT_SERVICE_REQUEST) {
        status = device->core->cm_service_reject(
            event->connection, now,
            reason == CM_REJECT_INVALID_SERVICE_ID ? CM_SIDR_UNSUPPORTED : CM_SIDR_REJECTED, NULL,
            0);
    } else {
        status = device->core->cm_reject(event->connection, now, reason, NULL, 0);
    }
    (void)status; /* it may have gone meanwhile */
    device->core->cm_release(event->connection, now);
}

/* The application may take its time for a request or a reply. */
static void ask_for_time(struct cma_device *device, const struct cm_event *event)
{
    enum status status =
        device->core->cm_delay(event->connection, engine_now(device->engine), SERVICE_TIMEOUT);
    (void)status; /* it may have ended meanwhile */
}

/* Who listens for connections is not asked for a service's queue pair, and the reverse. */
static bool fits(const struct cma_id *listener, const struct cm_event *event)
{
    return cma_is_datagram(listener) == (event->kind == CM_EVENT_SERVICE_REQUEST);
}

/* What rdma_cm says of itself in the private data, and whether that is so: the address that was
 * asked for is the one that the request came to. */
static bool parse_header(struct cma_device *device, const struct cm_event *event,
                         struct rdma_cm_header *ret_header)
{
    return device->core->rdma_cm_header_parse(event->parameters.private_data, ret_header) ==
               STATUS_OK &&
           gid_equal(&ret_header->destination, &event->path.local);
}

/* A new id for a request; the application sees it with the event. */
static void route_request(struct cma_device *device, const struct cm_event *event)
{
    struct rdma_cm_header header;
    if (!parse_header(device, event, &header)) {
        refuse(device, event, CM_REJECT_CONSUMER); /* as Linux does */
        return;
    }
    pthread_mutex_lock(&cma_lock);
    struct cma_id *listener = cma_listener_of(event->context, &event->path.local);
    if (listener != NULL && (listener->is_ending || !fits(listener, event))) {
        listener = NULL;
    }
    struct cma_event *said = NULL;
    struct cma_id *id = NULL;
    if (listener != NULL) {
        said = cma_event_new(listener, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    }
    if (said != NULL) {
        id = cma_id_new(listener->ibv.channel, listener->ibv.context, listener->ibv.ps,
                        listener->ibv.qp_type);
    }
    if (id == NULL) {
        pthread_mutex_unlock(&cma_lock);
        free(said);
        refuse(device, event,
               listener == NULL ? CM_REJECT_INVALID_SERVICE_ID : CM_REJECT_NO_RESOURCES);
        return;
    }
    id->interface_index = listener->interface_index;
    cma_take_request(id, event);
    cma_set_addresses(id, (uint16_t)event->service_id, header.port);
    cma_fill_path_record(id);
    said->ibv.id = &id->ibv;
    said->ibv.listen_id = &listener->ibv;
    said->is_cm = true;
    said->cm = *event;
    (void)cma_event_queue(said); /* the listener does not end */
    pthread_mutex_unlock(&cma_lock);

    device->core->cm_set_context(event->connection, id);
    if (event->kind == CM_EVENT_REQUEST) {
        ask_for_time(device, event);
    }
}

/* Of an id that the application has not accepted nothing more is told, as with a kernel: it may not
 * have seen it yet, and its context is the listener's. That the peer has gone shows when it is
 * accepted. */
static void route(struct cma_device *device, const struct cm_event *event)
{
    struct cma_id *id = event->context;
    if (event->kind == CM_EVENT_REQUEST || event->kind == CM_EVENT_SERVICE_REQUEST) {
        route_request(device, event);
        return;
    }
    if (id == NULL || id->is_unanswered || cma_retry_later(device, id, event)) {
        return;
    }
    cma_request_forget(id);
    pthread_mutex_lock(&cma_lock);
    struct cma_event *said = cma_event_new(id, RDMA_CM_EVENT_CONNECT_ERROR, 0);
    if (said != NULL) {
        said->is_cm = true;
        said->cm = *event;
        (void)cma_event_queue(said);
    }
    pthread_mutex_unlock(&cma_lock);
    if (event->kind == CM_EVENT_REPLY) {
        ask_for_time(device, event);
    }
}

struct instant cma_dispatch(struct cma_device *device)
{
    struct cm_event event;
    engine_lock(device->engine);
    while (device->core->cm_next_event(device->engine->cm, &event)) {
        route(device, &event);
    }
    struct instant next = cma_retry_advance(device, engine_now(device->engine));
    engine_unlock(device->engine);
    return next;
}
