/* Shared receive queues, also those that peers name by number (XRC). */
#include <errno.h>
#include <stdlib.h>

#include "rnic/strict/strict.h"
#include "rnic/verbs/errno_of.h"
#include "rnic/verbs/host.h"
#include "rnic/verbs/limits.h"
#include "rnic/verbs/objects.h"

/* The limit is disarmed by its event [IBA 10.2.9.5]. */
static void low(struct receive_queue_notifier *notifier, struct receive_queue *queue)
{
    struct soft_srq *srq = CONTAINER_OF(notifier, struct soft_srq, notifier);
    struct notify_record record = {.object = srq, .value = IBV_EVENT_SRQ_LIMIT_REACHED};
    srq->attributes.srq_limit = 0;
    notify_post(soft_context(srq->ibv.context)->async, &record);
}

struct soft_srq *srq_make(struct ibv_pd *pd, struct ibv_srq_attr *attributes, void *context)
{
    if (!limits_offer(ABILITY_SRQ)) {
        return NULL;
    }
    if (attributes->max_wr == 0 ||
        !limits_allow(attributes->max_wr, limits_now()->max_srq_wr, "max_srq_wr") ||
        !limits_allow(attributes->max_sge, limits_now()->max_srq_sge, "max_srq_sge")) {
        errno = EINVAL;
        return NULL;
    }
    if (!limits_take(COUNT_SRQ)) {
        return NULL;
    }
    struct soft_srq *srq = calloc(1, sizeof *srq);
    if (srq == NULL) {
        limits_give(COUNT_SRQ);
        return NULL;
    }
    enum status status =
        receive_queue_create(pd_allocator(pd), attributes->max_wr,
                             attributes->max_sge == 0 ? 1 : attributes->max_sge, &srq->queue);
    if (status == STATUS_OK && !pd_use_domain(pd)) {
        receive_queue_destroy(srq->queue);
        status = STATUS_INVALID;
    }
    if (status != STATUS_OK) {
        limits_give(COUNT_SRQ);
        pd_collect(pd);
        free(srq);
        return errno_null(status);
    }
    attributes->max_wr = receive_queue_capacity(srq->queue);
    attributes->max_sge = receive_queue_max_sge(srq->queue);
    srq->attributes = *attributes;
    srq->attributes.srq_limit = 0;
    srq->notifier.low = low;
    srq->engine = context_engine(pd->context);
    srq->ibv.context = pd->context;
    srq->ibv.srq_context = context;
    srq->ibv.pd = pd;
    pthread_mutex_init(&srq->lock, NULL);
    pthread_mutex_init(&srq->ibv.mutex, NULL);
    pthread_cond_init(&srq->ibv.cond, NULL);
    context_hold(pd->context);
    pd_hold(pd);
    return srq;
}

PUBLIC struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
    HOST_FORWARD(pd->context, ibv_create_srq, pd, init);
    struct soft_srq *srq = srq_make(pd, &init->attr, init->srq_context);
    return srq == NULL ? NULL : &srq->ibv;
}

struct ibv_srq *srq_create_extended(struct ibv_context *context,
                                    struct ibv_srq_init_attr_ex *attributes)
{
    const uint32_t needed = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                            IBV_SRQ_INIT_ATTR_CQ;
    /* The basic type comes through ibv_create_srq. */
    bool has_type = (attributes->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0;
    if (has_type && attributes->srq_type == IBV_SRQT_TM) {
        return srq_create_matching(attributes);
    }
    if (!has_type || attributes->srq_type != IBV_SRQT_XRC) {
        return errno_null(STATUS_UNSUPPORTED);
    }
    if (attributes->comp_mask != needed || attributes->pd == NULL || attributes->xrcd == NULL ||
        attributes->cq == NULL) {
        return errno_null(STATUS_INVALID);
    }
    struct soft_srq *srq = srq_make(attributes->pd, &attributes->attr, attributes->srq_context);
    if (srq == NULL) {
        return NULL;
    }
    struct soft_xrcd *xrcd = soft_xrcd(attributes->xrcd);
    engine_lock(srq->engine);
    srq->xrc = (struct xrc_queue){
        .domain = xrc_domain_of(xrcd),
        .memory_domain = soft_pd(attributes->pd)->domain,
        .receives = srq->queue,
        .completions = soft_cq(attributes->cq)->queue,
    };
    enum status status = device_add_xrc_queue(srq->engine->device, &srq->xrc);
    if (status == STATUS_OK) {
        srq->xrcd = xrcd;
        xrcd->users++;
    }
    engine_unlock(srq->engine);
    if (status != STATUS_OK) {
        ibv_destroy_srq(&srq->ibv);
        return errno_null(status);
    }
    return &srq->ibv;
}

int srq_number(struct ibv_srq *srq, uint32_t *ret_number)
{
    if (soft_srq(srq)->xrcd == NULL) {
        return EOPNOTSUPP; /* only queues of XRC have one */
    }
    *ret_number = soft_srq(srq)->xrc.number;
    return 0;
}

void srq_use(struct soft_qp *qp, int change)
{
    const struct ibv_qp *ibv = &qp->extended.qp_base;
    if (ibv->srq == NULL) {
        return;
    }
    struct soft_srq *srq = soft_srq(ibv->srq);
    srq->users += (uint32_t)change;
    if (srq->matcher != NULL) { /* receives complete elsewhere, but the queue pair names it */
        completion_queue_use(soft_cq(ibv->recv_cq)->queue, change);
    }
}

PUBLIC int ibv_modify_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attributes, int mask)
{
    HOST_FORWARD(ibv->context, ibv_modify_srq, ibv, attributes, mask);
    struct soft_srq *srq = soft_srq(ibv);
    if ((mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0) {
        return EINVAL;
    }
    if ((mask & IBV_SRQ_MAX_WR) != 0) {
        return EOPNOTSUPP;
    }
    if ((mask & IBV_SRQ_LIMIT) != 0) {
        if (attributes->srq_limit > srq->attributes.max_wr) {
            return EINVAL;
        }
        engine_lock(srq->engine);
        srq->attributes.srq_limit = attributes->srq_limit;
        receive_queue_set_limit(srq->queue, attributes->srq_limit, &srq->notifier);
        engine_unlock(srq->engine);
    }
    return 0;
}

PUBLIC int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *ret_attributes)
{
    HOST_FORWARD(srq->context, ibv_query_srq, srq, ret_attributes);
    struct engine *engine = context_engine(srq->context);
    engine_lock(engine);
    *ret_attributes = soft_srq(srq)->attributes;
    engine_unlock(engine);
    return 0;
}

PUBLIC int ibv_destroy_srq(struct ibv_srq *ibv)
{
    HOST_FORWARD(ibv->context, ibv_destroy_srq, ibv);
    struct soft_srq *srq = soft_srq(ibv);
    engine_lock(srq->engine);
    bool busy = srq->users != 0;
    if (!busy) {
        tag_matcher_destroy(srq->matcher);
        srq->matcher = NULL;
    }
    if (!busy && srq->xrcd != NULL) {
        device_remove_xrc_queue(srq->engine->device, &srq->xrc);
        srq->xrcd->users--;
    }
    if (!busy) {
        memory_domain_use(device_memory(srq->engine->device), soft_pd(ibv->pd)->domain, -1);
    }
    engine_unlock(srq->engine);
    if (busy) {
        return EBUSY;
    }
    bool is_done = event_drain(ibv->context, srq, &ibv->mutex, &ibv->cond, &ibv->events_completed,
                               &srq->async_delivered);
    if (strict_is_on()) {
        strict_receives_end(srq->queue);
    }
    limits_give(COUNT_SRQ);
    receive_queue_destroy(srq->queue);
    pd_drop(ibv->pd);
    context_drop(ibv->context);
    if (is_done) {
        pthread_mutex_destroy(&srq->lock);
        pthread_mutex_destroy(&ibv->mutex);
        pthread_cond_destroy(&ibv->cond);
        free(srq);
    }
    return 0;
}
