/* Ids: life and channels. */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "rnic/io/system/cancel.h"
#include "rnic/rdmacm/cma.h"
#include "rnic/wire/psn.h"

static enum ibv_qp_type type_of(enum rdma_port_space space)
{
    return space == RDMA_PS_UDP || space == RDMA_PS_IPOIB ? IBV_QPT_UD : IBV_QPT_RC;
}

/* Chosen before the queue pair is brought up, which a program may do itself, earlier than it
 * connects or accepts. Whoever cannot read our packets must not be able to guess it: it is all that
 * tells a forged request from the peer's. */
static struct psn fresh_psn(const struct cma_id *id)
{
    uint64_t seed;
    int cancel = cancel_hold(); /* getrandom(2) is a cancellation point, and cma_lock is held */
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed) {
        seed = engine_now(cma_device()->engine).ns ^ (uintptr_t)id;
    }
    cancel_restore(cancel);
    return psn_make((uint32_t)((seed * UINT64_C(0x9e3779b97f4a7c15)) >> 40));
}

struct cma_id *cma_id_new(struct rdma_event_channel *channel, void *context,
                          enum rdma_port_space space, enum ibv_qp_type type)
{
    struct cma_id *id = calloc(1, sizeof *id);
    if (id != NULL) {
        id->claim = NO_CLAIM;
        id->home = cma_device();
        id->ibv.channel = channel;
        cma_channel_count(channel, 1);
        id->ibv.context = context;
        id->ibv.ps = space;
        id->ibv.qp_type = type;
        id->terms.ack_timeout = ACK_TIMEOUT;
        id->terms.local_psn = fresh_psn(id);
    }
    return id;
}

PUBLIC int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **ret_id,
                          void *context, enum rdma_port_space space)
{
    if (space != RDMA_PS_TCP && space != RDMA_PS_UDP && space != RDMA_PS_IB &&
        space != RDMA_PS_IPOIB) {
        return cma_error(EINVAL);
    }
    if (cma_device_open() == NULL) {
        return -1;
    }
    pthread_mutex_lock(&cma_lock);
    struct cma_id *id = cma_id_new(channel, context, space, type_of(space));
    pthread_mutex_unlock(&cma_lock);
    if (id == NULL) {
        return cma_error(ENOMEM);
    }
    if (channel == NULL && cma_id_make_synchronous(id) != 0) {
        free(id);
        return -1;
    }
    *ret_id = &id->ibv;
    return 0;
}

/* An id that the application has not seen yet: it is in a request that is queued. NULL: none is. */
static struct cma_id *unseen_id(const struct cma_event *event)
{
    return event->ibv.event == RDMA_CM_EVENT_CONNECT_REQUEST ? cma_id(event->ibv.id) : NULL;
}

/* Moves what is queued for an id to another channel, and so what is for the ids in its requests.
 * With cma_lock held. */
static void move_events(struct cma_id *id, struct rdma_event_channel *channel)
{
    struct list events;
    list_init(&events);
    if (id->ibv.channel != NULL) {
        cma_event_collect(id, &events);
    }
    cma_channel_count(channel, 1);
    cma_channel_count(id->ibv.channel, -1);
    id->ibv.channel = channel;
    for (struct list_node *node; (node = list_pop_first(&events)) != NULL;) {
        struct cma_event *event = CONTAINER_OF(node, struct cma_event, node);
        struct cma_id *unseen = unseen_id(event);
        (void)cma_event_queue(event);
        if (unseen != NULL) {
            move_events(unseen, channel);
        }
    }
}

static void move_to(struct cma_id *id, struct rdma_event_channel *channel)
{
    pthread_mutex_lock(&cma_lock);
    move_events(id, channel);
    pthread_mutex_unlock(&cma_lock);
}

int cma_id_make_synchronous(struct cma_id *id)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    if (channel == NULL) {
        return -1;
    }
    move_to(id, channel);
    id->is_synchronous = true;
    return 0;
}

void cma_wait_acknowledged(struct cma_id *id)
{
    int cancel = cancel_hold(); /* the wait is a cancellation point */
    pthread_mutex_lock(&cma_lock);
    cma_wait_for_all(&id->events_acknowledged, &id->events_delivered);
    pthread_mutex_unlock(&cma_lock);
    cancel_restore(cancel);
}

PUBLIC int rdma_migrate_id(struct rdma_cm_id *ibv, struct rdma_event_channel *channel)
{
    struct cma_id *id = cma_id(ibv);
    struct rdma_event_channel *own = id->is_synchronous ? ibv->channel : NULL;
    if (own != NULL && channel == NULL) {
        return cma_error(EINVAL);
    }
    if (own != NULL && ibv->event != NULL) {
        rdma_ack_cm_event(ibv->event);
        ibv->event = NULL;
    }
    cma_wait_acknowledged(id);
    if (channel == NULL) {
        return cma_id_make_synchronous(id);
    }
    move_to(id, channel);
    id->is_synchronous = false;
    if (own != NULL) {
        rdma_destroy_event_channel(own);
    }
    return 0;
}

bool cma_is_ending(const struct cma_id *id)
{
    pthread_mutex_lock(&cma_lock);
    bool is_ending = id->is_ending;
    pthread_mutex_unlock(&cma_lock);
    return is_ending;
}

/* Nothing more is begun on it: what happened would be told to nobody. */
static void begin_ending(struct cma_id *id)
{
    pthread_mutex_lock(&cma_lock);
    id->is_ending = true;
    pthread_mutex_unlock(&cma_lock);
}

/* Leaves cm: no event names the id after this. */
static void leave(struct cma_id *id)
{
    struct cma_device *device = cma_device();
    if (!cma_is_ours(id)) {
        return;
    }
    cma_unlisten(id);
    engine_lock(device->engine);
    cma_retry_forget(id);
    if (id->connection != NULL) {
        device->core->cm_release(id->connection, engine_now(device->engine));
        id->connection = NULL;
    }
    engine_unlock(device->engine);
}

void cma_id_discard(struct cma_id *id)
{
    leave(id);
    cma_leave_groups(id);
    cma_unbind(id);
    cma_request_forget(id);
    pthread_mutex_lock(&cma_lock);
    cma_channel_count(id->ibv.channel, -1);
    pthread_mutex_unlock(&cma_lock);
    free(id->endpoint_init);
    free(id);
}

/* Requests that the application never saw go with their listener; what had
 * already happened to them, too. */
static void drop_events(struct cma_id *id)
{
    struct list events;
    list_init(&events);
    pthread_mutex_lock(&cma_lock);
    cma_event_collect(id, &events);
    pthread_mutex_unlock(&cma_lock);
    for (struct list_node *node; (node = list_pop_first(&events)) != NULL;) {
        struct cma_event *event = CONTAINER_OF(node, struct cma_event, node);
        struct cma_id *unseen = unseen_id(event);
        free(event);
        if (unseen != NULL) {
            begin_ending(unseen);
            leave(unseen);
            drop_events(unseen);
            cma_id_discard(unseen);
        }
    }
}

PUBLIC int rdma_destroy_id(struct rdma_cm_id *ibv)
{
    struct cma_id *id = cma_id(ibv);
    struct rdma_event_channel *own = id->is_synchronous ? ibv->channel : NULL;
    int cancel = cancel_hold();
    begin_ending(id);
    leave(id);
    drop_events(id);
    if (ibv->event != NULL) {
        rdma_ack_cm_event(ibv->event);
        ibv->event = NULL;
    }
    cma_wait_acknowledged(id);
    cma_id_discard(id);
    if (own != NULL) {
        rdma_destroy_event_channel(own);
    }
    cancel_restore(cancel);
    return 0;
}
