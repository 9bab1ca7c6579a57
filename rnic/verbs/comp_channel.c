/* Completion channels: where armed completion queues say that something came. */
#include <errno.h>
#include <stdlib.h>

#include "rnic/verbs/errno_of.h"
#include "rnic/verbs/host.h"
#include "rnic/verbs/objects.h"

PUBLIC struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    HOST_FORWARD(context, ibv_create_comp_channel, context);
    struct soft_channel *channel = calloc(1, sizeof *channel);
    if (channel == NULL) {
        return NULL;
    }
    if (notify_create(&channel->notify) != STATUS_OK) {
        free(channel);
        return NULL;
    }
    channel->ibv.context = context;
    context_hold(context);
    channel->ibv.fd = notify_descriptor(channel->notify);
    return &channel->ibv;
}

PUBLIC int ibv_destroy_comp_channel(struct ibv_comp_channel *ibv)
{
    HOST_FORWARD(ibv->context, ibv_destroy_comp_channel, ibv);
    struct soft_channel *channel = soft_channel(ibv);
    pthread_mutex_lock(&ibv->context->mutex);
    bool busy = ibv->refcnt != 0;
    pthread_mutex_unlock(&ibv->context->mutex);
    if (busy) {
        return EBUSY;
    }
    notify_destroy(channel->notify);
    context_drop(ibv->context);
    free(channel);
    return 0;
}

static void count_delivered(const struct notify_record *record)
{
    struct soft_cq *cq = record->object;
    pthread_mutex_lock(&cq->ibv.mutex);
    cq->events_delivered++;
    pthread_mutex_unlock(&cq->ibv.mutex);
}

PUBLIC int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **ret_cq,
                            void **ret_context)
{
    HOST_FORWARD(channel->context, ibv_get_cq_event, channel, ret_cq, ret_context);
    struct notify_record record;
    engine_about_to_sleep(context_engine(channel->context));
    int error = notify_wait_with(soft_channel(channel)->notify, count_delivered, &record);
    if (error != 0) {
        errno = error;
        return -1;
    }
    struct soft_cq *cq = record.object;
    *ret_cq = &cq->ibv;
    *ret_context = cq->ibv.cq_context;
    return 0;
}

PUBLIC void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count)
{
    HOST_FORWARD_VOID(cq->context, ibv_ack_cq_events, cq, count);
    pthread_mutex_lock(&cq->mutex);
    /* Some programs count completions, not events: what is too much is not kept, or after 2^31 it
     * would look like too little. */
    uint32_t owed = soft_cq(cq)->events_delivered - cq->comp_events_completed;
    cq->comp_events_completed += count < owed ? count : owed;
    pthread_cond_signal(&cq->cond);
    pthread_mutex_unlock(&cq->mutex);
}
