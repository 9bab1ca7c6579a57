/* Completion queues: life, polling, arming. Polling one record at a time is cq_extended.c. */
#include <errno.h>
#include <stdlib.h>

#include "rnic/io/loop/loop.h"
#include "rnic/strict/strict.h"
#include "rnic/verbs/convert.h"
#include "rnic/verbs/errno_of.h"
#include "rnic/verbs/host.h"
#include "rnic/verbs/limits.h"
#include "rnic/verbs/objects.h"

static void completed(struct completion_queue_notifier *notifier, struct completion_queue *queue)
{
    struct soft_cq *cq = CONTAINER_OF(notifier, struct soft_cq, notifier);
    device_set_alarm(cq->engine->device, &cq->alarm, INSTANT_NEVER);
    if (cq->ibv.channel != NULL) {
        struct notify_record record = {.object = cq};
        notify_post(soft_channel(cq->ibv.channel)->notify, &record);
    }
}

static void overrun(struct completion_queue_notifier *notifier, struct completion_queue *queue)
{
    struct soft_cq *cq = CONTAINER_OF(notifier, struct soft_cq, notifier);
    if (strict_is_on()) {
        strict_cq_overran(cq, completion_queue_capacity(queue));
    }
    struct notify_record record = {.object = cq, .value = IBV_EVENT_CQ_ERR};
    notify_post(soft_context(cq->ibv.context)->async, &record);
}

/* The first of a batch that moderation holds back: its event is due when the period is over. */
static void held(struct completion_queue_notifier *notifier, struct completion_queue *queue)
{
    struct soft_cq *cq = CONTAINER_OF(notifier, struct soft_cq, notifier);
    if (cq->period_ns != 0) {
        device_set_alarm(cq->engine->device, &cq->alarm,
                         instant_after(engine_now(cq->engine), cq->period_ns));
    }
}

static void period_is_over(struct device_alarm *alarm, struct instant now)
{
    completion_queue_announce(CONTAINER_OF(alarm, struct soft_cq, alarm)->queue);
}

static void hold_channel(struct ibv_comp_channel *channel, int change)
{
    if (channel != NULL) {
        pthread_mutex_lock(&channel->context->mutex);
        channel->refcnt += change;
        pthread_mutex_unlock(&channel->context->mutex);
    }
}

static struct soft_cq *create(struct ibv_context *context,
                              const struct ibv_cq_init_attr_ex *attributes, struct ibv_pd *parent)
{
    if (attributes->cqe == 0 || !limits_allow(attributes->cqe, limits_now()->max_cqe, "max_cqe") ||
        attributes->comp_vector >= (uint32_t)context->num_comp_vectors) {
        errno = EINVAL;
        return NULL;
    }
    if (!limits_take(COUNT_CQ)) {
        return NULL;
    }
    struct soft_cq *cq = calloc(1, sizeof *cq);
    if (cq == NULL) {
        limits_give(COUNT_CQ);
        return NULL;
    }
    cq->notifier = (struct completion_queue_notifier){
        .completed = completed, .overrun = overrun, .held = held};
    enum status status =
        completion_queue_create(pd_allocator(parent), attributes->cqe, &cq->notifier, &cq->queue);
    if (status != STATUS_OK) {
        limits_give(COUNT_CQ);
        pd_collect(parent);
        free(cq);
        return errno_null(status);
    }
    if (attributes->channel == NULL) {
        completion_queue_never_arm(cq->queue);
    }
    pd_hold(parent);
    cq->parent = parent;
    cq->alarm.expire = period_is_over;
    cq->engine = context_engine(context);
    cq->ibv.context = context;
    cq->ibv.channel = attributes->channel;
    cq->ibv.cq_context = attributes->cq_context;
    cq->ibv.cqe = (int)completion_queue_capacity(cq->queue);
    pthread_mutex_init(&cq->ibv.mutex, NULL);
    pthread_cond_init(&cq->ibv.cond, NULL);
    hold_channel(attributes->channel, 1);
    context_hold(context);
    if (strict_is_on()) {
        strict_born(cq);
    }
    return cq;
}

PUBLIC struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                                    struct ibv_comp_channel *channel, int vector)
{
    HOST_FORWARD(context, ibv_create_cq, context, cqe, cq_context, channel, vector);
    struct ibv_cq_init_attr_ex attributes = {
        .cqe = cqe < 0 ? 0 : (uint32_t)cqe,
        .cq_context = cq_context,
        .channel = channel,
        .comp_vector = (uint32_t)vector,
    };
    struct soft_cq *cq = create(context, &attributes, NULL);
    return cq == NULL ? NULL : &cq->ibv;
}

static int check_extended(const struct ibv_context *context,
                          const struct ibv_cq_init_attr_ex *attributes)
{
    const uint64_t fields = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                            IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK | IBV_WC_EX_WITH_CVLAN |
                            IBV_WC_EX_WITH_FLOW_TAG | IBV_WC_EX_WITH_TM_INFO;
    const uint32_t masks = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
    const uint32_t flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    if ((attributes->comp_mask & ~masks) != 0 ||
        ((attributes->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 &&
         (attributes->flags & ~flags) != 0)) {
        return EINVAL;
    }
    if ((attributes->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0) {
        const struct ibv_pd *parent = attributes->parent_domain;
        if (parent == NULL || parent->context != context ||
            ((const struct soft_pd *)parent)->base == NULL) {
            return EINVAL;
        }
    }
    uint64_t wall = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
    bool offered = limits_offer(ABILITY_EXTENDED_CQ) &&
                   ((attributes->wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) == 0 ||
                    limits_offer(ABILITY_TIMESTAMPS)) &&
                   ((attributes->wc_flags & wall) == 0 || limits_offer(ABILITY_WALL_CLOCK));
    return !offered || (attributes->wc_flags & ~fields) != 0 ? EOPNOTSUPP : 0;
}

struct ibv_cq_ex *cq_create_extended(struct ibv_context *context,
                                     struct ibv_cq_init_attr_ex *attributes)
{
    int error = check_extended(context, attributes);
    if (error != 0) {
        errno = error;
        return NULL;
    }
    uint32_t mask = attributes->comp_mask;
    uint32_t flags = (mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 ? attributes->flags : 0;
    struct soft_cq *cq =
        create(context, attributes,
               (mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0 ? attributes->parent_domain : NULL);
    if (cq == NULL) {
        return NULL;
    }
    cq->single_threaded = (flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0;
    if ((flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0) {
        completion_queue_ignore_overrun(cq->queue); /* nobody pushes yet */
    }
    if ((attributes->wc_flags & (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                 IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)) != 0) {
        engine_lock(cq->engine);
        device_tell_exact_times(cq->engine->device);
        engine_unlock(cq->engine);
    }
    cq_extended_fill(&cq->extended);
    return &cq->extended;
}

PUBLIC int ibv_resize_cq(struct ibv_cq *ibv, int cqe)
{
    HOST_FORWARD(ibv->context, ibv_resize_cq, ibv, cqe);
    struct soft_cq *cq = soft_cq(ibv);
    if (cqe <= 0 || !limits_allow((uint32_t)cqe, limits_now()->max_cqe, "max_cqe")) {
        return EINVAL;
    }
    struct allocator *allocator = pd_allocator(cq->parent);
    void *records = allocator->allocate(allocator, completion_queue_record_bytes((uint32_t)cqe));
    if (records == NULL) {
        return ENOMEM;
    }
    lock_take(&cq->lock, LOCK_OUTER);
    engine_lock(cq->engine);
    enum status status = completion_queue_resize_into(cq->queue, (uint32_t)cqe, &records);
    if (status == STATUS_OK) {
        ibv->cqe = (int)completion_queue_capacity(cq->queue);
    }
    engine_unlock(cq->engine);
    lock_give(&cq->lock, LOCK_OUTER);
    allocator->release(allocator, records);
    pd_collect(cq->parent);
    return errno_of(status);
}

/* A count of at most 1 is no moderation; a period of 0 has no end. */
int cq_modify(struct ibv_cq *ibv, struct ibv_modify_cq_attr *attributes)
{
    struct soft_cq *cq = soft_cq(ibv);
    if (!limits_offer(ABILITY_MODERATION)) {
        return EOPNOTSUPP;
    }
    if (attributes->attr_mask != IBV_CQ_ATTR_MODERATE) {
        return EINVAL;
    }
    engine_lock(cq->engine);
    cq->period_ns = attributes->moderate.cq_period * UINT64_C(1000);
    completion_queue_moderate(cq->queue, attributes->moderate.cq_count);
    /* Of completions that are held back already the new period counts from now. */
    device_set_alarm(cq->engine->device, &cq->alarm,
                     cq->period_ns == 0 ? INSTANT_NEVER
                                        : instant_after(engine_now(cq->engine), cq->period_ns));
    engine_unlock(cq->engine);
    return 0;
}

PUBLIC int ibv_destroy_cq(struct ibv_cq *ibv)
{
    HOST_FORWARD(ibv->context, ibv_destroy_cq, ibv);
    struct soft_cq *cq = soft_cq(ibv);
    engine_lock(cq->engine);
    bool busy = completion_queue_users(cq->queue) != 0;
    if (!busy) {
        device_set_alarm(cq->engine->device, &cq->alarm, INSTANT_NEVER);
    }
    engine_unlock(cq->engine);
    if (busy) {
        return EBUSY;
    }
    atomic_store(&cq->is_ending, true);
    if (ibv->channel != NULL) {
        notify_forget(soft_channel(ibv->channel)->notify, cq);
    }
    bool is_done = event_wait_acknowledged(&ibv->mutex, &ibv->cond, &ibv->comp_events_completed,
                                           &cq->events_delivered);
    is_done &= event_drain(ibv->context, cq, &ibv->mutex, &ibv->cond, &ibv->async_events_completed,
                           &cq->async_delivered);
    hold_channel(ibv->channel, -1);
    if (strict_is_on()) {
        strict_gone(cq);
    }
    limits_give(COUNT_CQ);
    completion_queue_destroy(cq->queue);
    pd_drop(cq->parent);
    context_drop(ibv->context);
    if (is_done) {
        pthread_mutex_destroy(&ibv->mutex);
        pthread_cond_destroy(&ibv->cond);
        free(cq);
    }
    return 0;
}

static inline void take_at(const struct soft_cq *cq, uint32_t ahead, struct ibv_wc *ret_completion)
{
    const struct completion *completion = completion_queue_at(cq->queue, ahead);
    if (strict_is_on()) {
        strict_polled(completion);
    }
    convert_completion(completion, ret_completion);
}

/* All but the first of so many. By itself, for most polls find one. */
static __attribute__((noinline)) void take_others(const struct soft_cq *cq, uint32_t count,
                                                  struct ibv_wc *ret_completions)
{
    for (uint32_t i = 1; i < count; i++) {
        take_at(cq, i, &ret_completions[i]);
    }
}

/* Takes up to `most` records that are there now, at least 1. Who finds none has taken no lock. */
static inline int take(struct soft_cq *cq, uint32_t most, struct ibv_wc *ret_completions)
{
    if (completion_queue_is_empty(cq->queue)) {
        return 0;
    }
    lock_take(&cq->lock, LOCK_OUTER);
    uint32_t ready = completion_queue_ready(cq->queue);
    uint32_t count = ready < most ? ready : most;
    if (count > 0) {
        take_at(cq, 0, ret_completions);
    }
    if (count > 1) {
        take_others(cq, count, ret_completions);
    }
    completion_queue_drop(cq->queue, count);
    lock_give(&cq->lock, LOCK_OUTER);
    return (int)count;
}

int cq_poll(struct ibv_cq *ibv, int count, struct ibv_wc *ret_completions)
{
    struct soft_cq *cq = soft_cq(ibv);
    if (count <= 0) {
        return 0;
    }
    if (completion_queue_is_empty(cq->queue) || engine_wants_drive(cq->engine)) {
        engine_promise(cq->engine, completion_queue_is_between_arms(cq->queue));
        engine_drive(cq->engine);
    }
    return take(cq, (uint32_t)count, ret_completions);
}

/* Another thread may destroy the queue meanwhile: it waits where an event of the queue's that we
 * have taken is not acknowledged. */
static void raise_by_arming(struct soft_cq *cq)
{
    struct notify_record record = {.object = cq};
    notify_post_unless(soft_channel(cq->ibv.channel)->notify, &record, &cq->is_ending);
}

int cq_arm(struct ibv_cq *ibv, int solicited_only)
{
    struct soft_cq *cq = soft_cq(ibv);
    /* Without the consumer's lock, which the caller may hold between two polls. */
    if (completion_queue_arm(cq->queue, solicited_only != 0) && loop_is_ours(cq->engine)) {
        raise_by_arming(cq); /* of an inherited queue it would be the parent's */
    }
    engine_about_to_sleep(cq->engine);
    return 0;
}
