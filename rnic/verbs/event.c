/* Asynchronous events: from the engine to the context that owns the object, and their ends. */
#include <errno.h>
#include <time.h>

#include "rnic/io/loop/loop.h"
#include "rnic/io/system/cancel.h"
#include "rnic/strict/strict.h"
#include "rnic/verbs/convert.h"
#include "rnic/verbs/devices.h"
#include "rnic/verbs/gid_table.h"
#include "rnic/verbs/host.h"
#include "rnic/verbs/objects.h"

/* How long a destroy waits for acknowledgements that the application owes. Other implementations
 * wait for ever, so a program that forgets one hangs there without a word. Here it goes on after
 * this time; the memory of the object then stays until the process ends, so that an acknowledgement
 * that is only late does no harm. */
#define ACKNOWLEDGE_WAIT_S 5

#define PORT_SHIFT 32

/* Every open context, for events of the port. */
static struct list contexts = {{&contexts.head, &contexts.head}};
static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;

/* In a child: a thread that held it is gone. */
static void after_fork(void)
{
    pthread_mutex_init(&contexts_lock, NULL);
}

__attribute__((constructor)) static void watch_fork(void)
{
    pthread_atfork(NULL, NULL, after_fork);
}

/* An event of a port: its number stands above the type. */
static void raise_for_port(struct soft_context *context, uint32_t port, enum ibv_event_type type)
{
    struct notify_record record = {.value = type | (uint64_t)port << PORT_SHIFT};
    notify_post(context->async, &record);
}

static void tell(struct soft_qp *qp, enum event_kind kind)
{
    struct ibv_qp *ibv = &qp->extended.qp_base;
    struct notify_record record = {.object = ibv, .value = convert_event(kind)};
    bool drained = kind == EVENT_SQ_DRAINED;
    qp->draining &= !drained;
    if (!drained || qp->drain_notify) {
        notify_post(soft_context(ibv->context)->async, &record);
    }
}

/* The core raises none but those of queue pairs. */
static void raise_event(struct event_sink *sink, const struct event *event)
{
    struct soft_qp *qp = soft_qp(event->object);
    if (soft_target(qp) != NULL) {
        xrc_tell_all(qp, tell, event->kind);
    } else {
        tell(qp, event->kind);
    }
}

static struct event_sink the_sink = {.raise = raise_event};

/* With contexts_lock held: looks at the ports of a context, and tells it of changes if asked to. */
static void look_at_ports(struct soft_context *context, bool tell)
{
    struct ibv_device *device = context->verbs.context.device;
    devices_refresh(device);
    for (uint32_t i = 0; i < PORTS_MAX; i++) {
        struct gid_table *gids = devices_gids(device, i + 1);
        if (gids == NULL) {
            continue;
        }
        struct port_state before = context->ports[i];
        struct port_state now = {!gid_table_is_empty(gids), gid_table_generation(gids)};
        context->ports[i] = now;
        if (tell && now.up != before.up) {
            raise_for_port(context, i + 1, now.up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
        }
        if (tell && now.generation != before.generation) {
            raise_for_port(context, i + 1, IBV_EVENT_GID_CHANGE);
        }
    }
}

/* The background thread has heard of a change. */
static void addresses_changed(void)
{
    pthread_mutex_lock(&contexts_lock);
    LIST_FOR_EACH(node, &contexts)
    {
        struct soft_context *context = CONTAINER_OF(node, struct soft_context, node);
        if (loop_is_ours(context->engine)) { /* and not of the process we were forked from */
            look_at_ports(context, true);
        }
    }
    pthread_mutex_unlock(&contexts_lock);
    multicast_look_again();
}

void event_attach(struct soft_context *context)
{
    pthread_mutex_lock(&contexts_lock);
    look_at_ports(context, false);
    list_append(&contexts, &context->node);
    pthread_mutex_unlock(&contexts_lock);
    loop_set_address_watch(context->engine, addresses_changed);
    loop_set_event_sink(context->engine, &the_sink);
}

void event_detach(struct soft_context *context)
{
    pthread_mutex_lock(&contexts_lock);
    list_remove(&context->node);
    pthread_mutex_unlock(&contexts_lock);
}

/* Where an object counts its events. */
struct tally {
    pthread_mutex_t *mutex;
    pthread_cond_t *condition;
    uint32_t *delivered;
    uint32_t *acknowledged;
};

/* False for events of the port, which are not counted. */
static bool tally_of(const struct ibv_async_event *event, struct tally *ret_tally)
{
    switch (event->event_type) {
    case IBV_EVENT_CQ_ERR: {
        struct ibv_cq *cq = event->element.cq;
        *ret_tally = (struct tally){&cq->mutex, &cq->cond, &soft_cq(cq)->async_delivered,
                                    &cq->async_events_completed};
        return true;
    }
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: {
        struct ibv_srq *srq = event->element.srq;
        *ret_tally = (struct tally){&srq->mutex, &srq->cond, &soft_srq(srq)->async_delivered,
                                    &srq->events_completed};
        return true;
    }
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED: {
        struct ibv_qp *qp = event->element.qp;
        *ret_tally = (struct tally){&qp->mutex, &qp->cond, &soft_qp(qp)->async_delivered,
                                    &qp->events_completed};
        return true;
    }
    default:
        return false;
    }
}

static struct ibv_async_event event_of(const struct notify_record *record)
{
    struct ibv_async_event event = {.event_type = (enum ibv_event_type)(uint32_t)record->value};
    if (record->object == NULL) {
        event.element.port_num = (int)(record->value >> PORT_SHIFT);
    } else {
        event.element.qp = record->object;
    }
    return event;
}

static void count_delivered(const struct notify_record *record)
{
    struct ibv_async_event event = event_of(record);
    struct tally tally;
    if (tally_of(&event, &tally)) {
        pthread_mutex_lock(tally.mutex);
        ++*tally.delivered;
        pthread_mutex_unlock(tally.mutex);
    }
}

PUBLIC int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *ret_event)
{
    HOST_FORWARD(context, ibv_get_async_event, context, ret_event);
    struct notify_record record;
    engine_about_to_sleep(context_engine(context));
    int error = notify_wait_with(soft_context(context)->async, count_delivered, &record);
    if (error != 0) {
        errno = error;
        return -1;
    }
    *ret_event = event_of(&record);
    return 0;
}

PUBLIC void ibv_ack_async_event(struct ibv_async_event *event)
{
    struct tally tally;
    if (event->event_type == IBV_EVENT_WQ_FATAL) { /* we have none */
        HOST_FORWARD_VOID(event->element.wq->context, ibv_ack_async_event, event);
    } else if (tally_of(event, &tally)) {
        /* Every public struct that events name begins with its context. */
        HOST_FORWARD_VOID(*(struct ibv_context **)event->element.qp, ibv_ack_async_event, event);
        pthread_mutex_lock(tally.mutex);
        ++*tally.acknowledged;
        pthread_cond_signal(tally.condition);
        pthread_mutex_unlock(tally.mutex);
    }
}

/* More acknowledged than delivered is fine: some programs count completions, not events. */
bool event_wait_acknowledged(pthread_mutex_t *mutex, pthread_cond_t *condition,
                             const uint32_t *acknowledged, const uint32_t *delivered)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += ACKNOWLEDGE_WAIT_S;
    int cancel = cancel_hold();
    pthread_mutex_lock(mutex);
    while ((int32_t)(*acknowledged - *delivered) < 0 &&
           pthread_cond_timedwait(condition, mutex, &end) != ETIMEDOUT) {
    }
    int32_t missing = (int32_t)(*delivered - *acknowledged);
    pthread_mutex_unlock(mutex);
    cancel_restore(cancel);
    if (missing > 0 && strict_is_on()) {
        strict_unacknowledged((uint32_t)missing);
    }
    return missing <= 0;
}

bool event_drain(struct ibv_context *context, void *object, pthread_mutex_t *mutex,
                 pthread_cond_t *condition, const uint32_t *acknowledged, const uint32_t *delivered)
{
    notify_forget(soft_context(context)->async, object);
    return event_wait_acknowledged(mutex, condition, acknowledged, delivered);
}
