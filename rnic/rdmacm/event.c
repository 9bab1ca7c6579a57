/* Events: queued on the channel of their owner, taken, acknowledged. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "rnic/rdmacm/cma.h"

/* Strict mode then says what is waited for. */
#define ACKNOWLEDGE_PATIENCE_S 5

pthread_mutex_t cma_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t cma_acknowledged = PTHREAD_COND_INITIALIZER;

struct cma_event *cma_event_new(struct cma_id *owner, enum rdma_cm_event_type type, int status)
{
    struct cma_event *event = calloc(1, sizeof *event);
    if (event != NULL) {
        event->owner = owner;
        event->ibv.id = &owner->ibv;
        event->ibv.event = type;
        event->ibv.status = status;
    }
    return event;
}

/* Another thread may be at work on an id that ends, for an event that it has not acknowledged. */
bool cma_event_queue(struct cma_event *event)
{
    if (event->owner->is_ending) {
        free(event);
        return false;
    }
    struct cma_channel *channel = cma_channel(event->owner->ibv.channel);
    const bool of_group = event->group != NULL;
    struct notify_record record = {.object = of_group ? (void *)event->group : event->owner};
    list_append(&channel->events, &event->node);
    weir_seam()->notify_post(channel->notify, &record);
    return true;
}

int cma_event_local(struct cma_id *id, enum rdma_cm_event_type type, int status)
{
    struct cma_event *event = cma_event_new(id, type, status);
    if (event == NULL) {
        return cma_error(ENOMEM);
    }
    pthread_mutex_lock(&cma_lock);
    bool is_queued = cma_event_queue(event);
    pthread_mutex_unlock(&cma_lock);
    return is_queued ? 0 : cma_error(ENOENT);
}

/* With cma_lock held. */
void cma_event_collect(struct cma_id *owner, struct list *ret_events)
{
    struct cma_channel *channel = cma_channel(owner->ibv.channel);
    LIST_FOR_EACH(node, &channel->events)
    {
        if (CONTAINER_OF(node, struct cma_event, node)->owner == owner) {
            list_remove(node);
            list_append(ret_events, node);
        }
    }
    weir_seam()->notify_forget(channel->notify, owner);
    LIST_FOR_EACH(node, ret_events)
    {
        struct cma_group *group = CONTAINER_OF(node, struct cma_event, node)->group;
        if (group != NULL) {
            weir_seam()->notify_forget(channel->notify, group);
        }
    }
}

/* The thread that waits is cancelled. */
static void stop_waiting(void *channel)
{
    pthread_mutex_lock(&cma_lock);
    cma_channel_leave(channel);
    pthread_mutex_unlock(&cma_lock);
}

PUBLIC int rdma_get_cm_event(struct rdma_event_channel *ibv, struct rdma_cm_event **ret_event)
{
    if (ibv == NULL || ret_event == NULL) {
        return cma_error(EINVAL);
    }
    struct cma_channel *channel = cma_channel(ibv);
    for (;;) {
        struct notify_record record;
        struct cma_event *event = NULL;
        struct cma_device *device = cma_device();
        if (device != NULL) {
            engine_about_to_sleep(device->engine);
        }
        int error = cma_channel_enter(channel);
        if (error != 0) {
            return cma_error(error);
        }
        pthread_cleanup_push(stop_waiting, channel);
        error = weir_seam()->notify_wait(channel->notify, &record);
        pthread_cleanup_pop(0);
        pthread_mutex_lock(&cma_lock);
        if (!cma_channel_leave(channel)) {
            error = EBADF;
        }
        if (error != 0) {
            pthread_mutex_unlock(&cma_lock);
            return cma_error(error);
        }
        struct list_node *node = list_pop_first(&channel->events);
        if (node != NULL) {
            event = CONTAINER_OF(node, struct cma_event, node);
            event->owner->events_delivered++;
            if (event->group != NULL) {
                cma_group_delivered(event->group);
            }
        }
        pthread_mutex_unlock(&cma_lock);
        if (event == NULL) {
            continue;
        }
        if (event->group != NULL) {
            cma_group_process(event);
        }
        if (!event->is_cm || cma_process(event)) {
            *ret_event = &event->ibv;
            return 0;
        }
        rdma_ack_cm_event(&event->ibv);
    }
}

/* As rdma-core's library waits: for ever. */
void cma_wait_for_all(const uint32_t *acknowledged, const uint32_t *delivered)
{
    const struct weir_seam *core = cma_device()->core;
    struct timespec patience;
    clock_gettime(CLOCK_REALTIME, &patience);
    patience.tv_sec += ACKNOWLEDGE_PATIENCE_S;
    bool is_said = !core->strict_is_on();
    for (int32_t missing; (missing = (int32_t)(*delivered - *acknowledged)) > 0;) {
        if (is_said) {
            pthread_cond_wait(&cma_acknowledged, &cma_lock);
        } else if (pthread_cond_timedwait(&cma_acknowledged, &cma_lock, &patience) == ETIMEDOUT) {
            is_said = true;
            pthread_mutex_unlock(&cma_lock);
            core->strict_unacknowledged((uint32_t)missing);
            pthread_mutex_lock(&cma_lock);
        }
    }
}

PUBLIC int rdma_ack_cm_event(struct rdma_cm_event *ibv)
{
    if (ibv == NULL) {
        return cma_error(EINVAL);
    }
    struct cma_event *event = (struct cma_event *)ibv;
    pthread_mutex_lock(&cma_lock);
    event->owner->events_acknowledged++;
    if (event->group != NULL) {
        cma_group_acknowledged(event->group);
    }
    pthread_cond_broadcast(&cma_acknowledged);
    pthread_mutex_unlock(&cma_lock);
    free(event);
    return 0;
}

void cma_acknowledge_previous(struct cma_id *id)
{
    if (id->ibv.event != NULL) {
        rdma_ack_cm_event(id->ibv.event);
        id->ibv.event = NULL;
    }
}

int cma_complete(struct cma_id *id)
{
    cma_acknowledge_previous(id);
    if (rdma_get_cm_event(id->ibv.channel, &id->ibv.event) != 0) {
        return -1;
    }
    int status = id->ibv.event->status;
    if (id->ibv.event->event == RDMA_CM_EVENT_REJECTED) {
        return cma_error(ECONNREFUSED);
    }
    return cma_error(status < 0 ? -status : status);
}

PUBLIC const char *rdma_event_str(enum rdma_cm_event_type event)
{
    static const char *const names[] = {
        [RDMA_CM_EVENT_ADDR_RESOLVED] = "RDMA_CM_EVENT_ADDR_RESOLVED",
        [RDMA_CM_EVENT_ADDR_ERROR] = "RDMA_CM_EVENT_ADDR_ERROR",
        [RDMA_CM_EVENT_ROUTE_RESOLVED] = "RDMA_CM_EVENT_ROUTE_RESOLVED",
        [RDMA_CM_EVENT_ROUTE_ERROR] = "RDMA_CM_EVENT_ROUTE_ERROR",
        [RDMA_CM_EVENT_CONNECT_REQUEST] = "RDMA_CM_EVENT_CONNECT_REQUEST",
        [RDMA_CM_EVENT_CONNECT_RESPONSE] = "RDMA_CM_EVENT_CONNECT_RESPONSE",
        [RDMA_CM_EVENT_CONNECT_ERROR] = "RDMA_CM_EVENT_CONNECT_ERROR",
        [RDMA_CM_EVENT_UNREACHABLE] = "RDMA_CM_EVENT_UNREACHABLE",
        [RDMA_CM_EVENT_REJECTED] = "RDMA_CM_EVENT_REJECTED",
        [RDMA_CM_EVENT_ESTABLISHED] = "RDMA_CM_EVENT_ESTABLISHED",
        [RDMA_CM_EVENT_DISCONNECTED] = "RDMA_CM_EVENT_DISCONNECTED",
        [RDMA_CM_EVENT_DEVICE_REMOVAL] = "RDMA_CM_EVENT_DEVICE_REMOVAL",
        [RDMA_CM_EVENT_MULTICAST_JOIN] = "RDMA_CM_EVENT_MULTICAST_JOIN",
        [RDMA_CM_EVENT_MULTICAST_ERROR] = "RDMA_CM_EVENT_MULTICAST_ERROR",
        [RDMA_CM_EVENT_ADDR_CHANGE] = "RDMA_CM_EVENT_ADDR_CHANGE",
        [RDMA_CM_EVENT_TIMEWAIT_EXIT] = "RDMA_CM_EVENT_TIMEWAIT_EXIT",
    };
    return (size_t)event < sizeof names / sizeof *names ? names[event] : "UNKNOWN EVENT";
}
