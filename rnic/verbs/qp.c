/* Queue pairs: life and attributes. Posting is post.c and wr.c. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "rnic/strict/strict.h"
#include "rnic/verbs/convert.h"
#include "rnic/verbs/errno_of.h"
#include "rnic/verbs/host.h"
#include "rnic/verbs/limits.h"
#include "rnic/verbs/objects.h"
#include "rnic/verbs/port.h"
#include "rnic/verbs/refusal.h"
#include "rnic/verbs/take_back.h"

#define INLINE_GRANTED 60u /* bytes */

static enum status check_capabilities(const struct ibv_qp_init_attr *init)
{
    const struct ibv_qp_cap *cap = &init->cap;
    const struct limits *limits = limits_now();
    bool target = init->qp_type == IBV_QPT_XRC_RECV;
    bool extended = target || init->qp_type == IBV_QPT_XRC_SEND;
    bool has_receives = init->srq == NULL && !extended; /* of its own: else nobody looks */
    return (init->send_cq != NULL || target) && (init->recv_cq != NULL || extended) &&
                   (init->srq == NULL || (!extended && soft_srq(init->srq)->xrcd == NULL)) &&
                   limits_allow(cap->max_send_wr, limits->max_qp_wr, "max_qp_wr") &&
                   limits_allow(cap->max_send_sge, limits->max_sge, "max_sge") &&
                   (!has_receives ||
                    (limits_allow(cap->max_recv_wr, limits->max_qp_wr, "max_qp_wr") &&
                     limits_allow(cap->max_recv_sge, limits->max_sge, "max_sge"))) &&
                   cap->max_inline_data <= limits->max_inline
               ? STATUS_OK
               : STATUS_INVALID;
}

static void at_least_one(uint32_t *value)
{
    *value = *value == 0 ? 1 : *value;
}

static bool matches_tags(const struct ibv_qp_init_attr *init)
{
    return init->srq != NULL && soft_srq(init->srq)->matcher != NULL;
}

/* What the queue pair really gets, in the application's struct too. */
static void round_capabilities(struct ibv_qp_init_attr *init)
{
    struct ibv_qp_cap *cap = &init->cap;
    at_least_one(&cap->max_send_wr);
    at_least_one(&cap->max_send_sge);
    at_least_one(&cap->max_recv_wr);
    at_least_one(&cap->max_recv_sge);
    if (init->srq != NULL || init->qp_type == IBV_QPT_XRC_SEND) {
        cap->max_recv_wr = 0;
        cap->max_recv_sge = 0;
    }
    if (init->qp_type == IBV_QPT_XRC_RECV || matches_tags(init)) {
        *cap = (struct ibv_qp_cap){0}; /* of tag matching the core has the send queue */
    }
}

/* Without the engine's lock: their memory may be the application's. */
static enum status create_queues(struct ibv_pd *pd, struct qp_init *core)
{
    enum status status = STATUS_OK;
    if (core->sends == NULL) {
        status = send_queue_create(pd_allocator(pd), &core->send, &core->sends);
    }
    if (status == STATUS_OK && core->shared_receives == NULL && core->service != SERVICE_XRC) {
        status = receive_queue_create(pd_allocator(pd), core->max_receive, core->max_receive_sge,
                                      &core->receives);
    }
    return status;
}

static struct completion_queue *queue_of(struct ibv_cq *cq)
{
    return cq == NULL ? NULL : soft_cq(cq)->queue;
}

/* What the core is to make; the rest is qp_allocate's. */
static struct qp_init describe(struct ibv_pd *pd, struct soft_xrcd *xrcd,
                               const struct ibv_qp_init_attr *init, enum service service)
{
    struct soft_srq *srq = init->srq == NULL ? NULL : soft_srq(init->srq);
    struct qp_init core = {
        .service = service,
        .xrc_domain = xrcd == NULL ? (struct xrc_domain){0} : xrc_domain_of(xrcd),
        .domain = pd == NULL ? (struct domain){0} : soft_pd(pd)->domain,
        .send_completions = queue_of(init->send_cq),
        .receive_completions =
            queue_of(srq != NULL && srq->matcher != NULL ? srq->cq : init->recv_cq),
        .matcher = srq == NULL ? NULL : srq->matcher,
        .shared_receives = srq == NULL ? NULL : srq->queue,
        .shared_domain = srq == NULL ? (struct domain){0} : soft_pd(srq->ibv.pd)->domain,
        .send = {.capacity = init->cap.max_send_wr,
                 .max_sge = init->cap.max_send_sge,
                 .max_inline = init->cap.max_inline_data,
                 .takes_datagrams = service == SERVICE_UD},
        .max_receive = init->cap.max_recv_wr,
        .max_receive_sge = init->cap.max_recv_sge,
        .signal_all = init->sq_sig_all != 0,
    };
    if (core.matcher != NULL) {
        core.send = tag_send_limits(core.matcher);
    }
    return core;
}

/* Makes the core's queue pair; counts the use of a shared receive queue. */
static enum status create_core(struct soft_qp *qp, struct soft_xrcd *xrcd, struct qp_init *core)
{
    struct ibv_pd *pd = qp->extended.qp_base.pd;
    core->context = &qp->extended.qp_base;
    enum status status = create_queues(pd, core);
    if (status == STATUS_OK) {
        engine_lock(qp->engine);
        status = device_create_qp(qp->engine->device, core, &qp->qp);
        if (status == STATUS_OK) {
            srq_use(qp, 1);
        }
        if (status == STATUS_OK && xrcd != NULL) {
            xrc_add_target(qp, xrcd);
        }
        engine_unlock(qp->engine);
    }
    if (status != STATUS_OK) {
        send_queue_destroy(core->sends);
        receive_queue_destroy(core->receives);
        pd_collect(pd);
    }
    return status;
}

static void grant(struct soft_qp *qp, const struct ibv_qp_cap *cap)
{
    qp->granted = (struct granted){
        .send_wr = (uint16_t)cap->max_send_wr,
        .receive_wr = (uint16_t)cap->max_recv_wr,
        .inline_data = (uint16_t)cap->max_inline_data,
        .send_sge = (uint8_t)cap->max_send_sge,
        .receive_sge = (uint8_t)cap->max_recv_sge,
    };
}

static struct ibv_qp_cap granted_cap(const struct soft_qp *qp)
{
    return (struct ibv_qp_cap){
        .max_send_wr = qp->granted.send_wr,
        .max_recv_wr = qp->granted.receive_wr,
        .max_send_sge = qp->granted.send_sge,
        .max_recv_sge = qp->granted.receive_sge,
        .max_inline_data = qp->granted.inline_data,
    };
}

void qp_announce(struct soft_qp *qp)
{
    struct ibv_qp *ibv = &qp->extended.qp_base;
    ibv->qp_num = qp_number(qp->qp).value;
    ibv->handle = ibv->qp_num;
    context_hold(ibv->context);
    pd_hold(ibv->pd);
}

/* Events may name it as soon as the core knows it. */
static void fill(struct soft_qp *qp, const struct ibv_qp_init_attr *init)
{
    struct ibv_qp *ibv = &qp->extended.qp_base;
    ibv->qp_context = init->qp_context;
    ibv->send_cq = init->send_cq;
    ibv->recv_cq = init->recv_cq;
    ibv->srq = init->srq;
    grant(qp, &init->cap);
    qp->signal_all = init->sq_sig_all != 0;
}

/* Adapters have room for a little whether it was asked for or not, and programs count on it. */
static uint32_t granted_inline(uint32_t wanted)
{
    uint32_t most = limits_now()->max_inline;
    uint32_t least = most < INLINE_GRANTED ? most : INLINE_GRANTED;
    return wanted > least ? wanted : least;
}

/* Either in a protection domain or, a target of XRC, in an XRC domain. */
static struct soft_qp *create(struct ibv_context *context, struct ibv_pd *pd,
                              struct soft_xrcd *xrcd, struct ibv_qp_init_attr *wanted,
                              bool has_send_operations)
{
    struct ibv_qp_init_attr plain = *wanted;
    struct ibv_qp_init_attr *init = &plain;
    enum service service;
    if (!convert_service(init->qp_type, &service)) {
        return errno_null(STATUS_UNSUPPORTED);
    }
    if ((service == SERVICE_UC && !limits_offer(ABILITY_UC)) ||
        (service == SERVICE_XRC && !limits_offer(ABILITY_XRC))) {
        return NULL;
    }
    enum status status = check_capabilities(init);
    bool target = init->qp_type == IBV_QPT_XRC_RECV;
    if (status != STATUS_OK || target != (xrcd != NULL)) {
        return errno_null(STATUS_INVALID);
    }
    init->cap.max_inline_data = granted_inline(init->cap.max_inline_data);
    if (target) {
        init->send_cq = NULL;
    }
    if (service == SERVICE_XRC) {
        init->recv_cq = NULL;
    }
    round_capabilities(init);
    struct qp_init core = describe(pd, xrcd, init, service);
    struct soft_qp *qp = qp_allocate(context, pd, init, has_send_operations, &core);
    if (qp == NULL) {
        return NULL;
    }
    fill(qp, init);
    status = create_core(qp, xrcd, &core);
    if (status != STATUS_OK) {
        qp_free(qp);
        return errno_null(status);
    }
    qp_announce(qp);
    wanted->cap = init->cap;
    /* With tag matching the core posts answers of its own between the application's requests. */
    if (strict_is_on() && !target && !matches_tags(init)) {
        strict_sends_begin(qp_number(qp->qp), init->cap.max_send_wr);
    }
    return qp;
}

PUBLIC struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    HOST_FORWARD(pd->context, ibv_create_qp, pd, init);
    struct soft_qp *qp = create(pd->context, pd, NULL, init, false);
    return qp == NULL ? NULL : &qp->extended.qp_base;
}

#define OPERATIONS_DATAGRAM (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM)
#define OPERATIONS_UNRELIABLE                                                                      \
    (OPERATIONS_DATAGRAM | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |        \
     IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV)
#define OPERATIONS_RELIABLE                                                                        \
    (OPERATIONS_UNRELIABLE | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |        \
     IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV)

/* Of enum ibv_qp_create_send_ops_flags: what a type of queue pair can be asked to do. */
static uint64_t offered_operations(enum ibv_qp_type type)
{
    switch (type) {
    case IBV_QPT_RC:
        return OPERATIONS_RELIABLE | IBV_QP_EX_WITH_ATOMIC_WRITE;
    case IBV_QPT_XRC_SEND:
        return OPERATIONS_RELIABLE;
    case IBV_QPT_UC:
        return OPERATIONS_UNRELIABLE;
    case IBV_QPT_UD:
        return OPERATIONS_DATAGRAM;
    default:
        return 0;
    }
}

struct ibv_qp *qp_create_extended(struct ibv_context *context,
                                  struct ibv_qp_init_attr_ex *attributes)
{
    const uint32_t known = IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_PD |
                           IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    const uint32_t create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
    uint32_t mask = attributes->comp_mask;
    bool has_operations = (mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
    if ((mask & ~known) != 0 ||
        ((mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 &&
         (attributes->create_flags & ~create_flags) != 0) ||
        (has_operations &&
         (attributes->send_ops_flags & ~offered_operations(attributes->qp_type)) != 0)) {
        return errno_null(STATUS_UNSUPPORTED);
    }
    if ((has_operations && !limits_offer(ABILITY_EXTENDED_SENDS)) ||
        (has_operations && (attributes->send_ops_flags & IBV_QP_EX_WITH_ATOMIC_WRITE) != 0 &&
         !limits_offer(ABILITY_ATOMIC_WRITE))) {
        return NULL;
    }
    bool target = attributes->qp_type == IBV_QPT_XRC_RECV;
    uint32_t needed = target ? IBV_QP_INIT_ATTR_XRCD : IBV_QP_INIT_ATTR_PD;
    struct ibv_pd *pd = target ? NULL : attributes->pd;
    struct soft_xrcd *xrcd = target ? soft_xrcd(attributes->xrcd) : NULL;
    if ((mask & needed) == 0 || (pd == NULL && xrcd == NULL)) {
        return errno_null(STATUS_INVALID);
    }
    /* The extended attributes begin with the fields of the plain ones, in the same places. */
    struct soft_qp *qp =
        create(context, pd, xrcd, (struct ibv_qp_init_attr *)attributes, has_operations);
    if (qp == NULL) {
        return NULL;
    }
    if ((mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && attributes->create_flags != 0) {
        engine_lock(qp->engine);
        qp_block_own_multicast(qp->qp);
        engine_unlock(qp->engine);
    }
    return &qp->extended.qp_base;
}

PUBLIC struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
    HOST_FORWARD(qp->context, ibv_qp_to_qp_ex, qp);
    return soft_qp(qp)->has_send_operations ? &soft_qp(qp)->extended : NULL;
}

/* The locks of the consumers of both completion queues, then the engine's. */
static void lock_with_queues(struct soft_qp *qp)
{
    struct soft_cq *one = soft_cq(qp->extended.qp_base.send_cq);
    struct soft_cq *other = soft_cq(qp->extended.qp_base.recv_cq);
    struct soft_cq *first = one < other ? one : other;
    struct soft_cq *second = one < other ? other : one;
    if (first != NULL) {
        lock_take(&first->lock, LOCK_OUTER);
    }
    if (second != NULL && second != first) {
        lock_take(&second->lock, LOCK_OUTER);
    }
    engine_lock(qp->engine);
}

static void unlock_with_queues(struct soft_qp *qp)
{
    struct soft_cq *one = soft_cq(qp->extended.qp_base.send_cq);
    struct soft_cq *other = soft_cq(qp->extended.qp_base.recv_cq);
    engine_unlock(qp->engine);
    if (one != NULL) {
        lock_give(&one->lock, LOCK_OUTER);
    }
    if (other != NULL && other != one) {
        lock_give(&other->lock, LOCK_OUTER);
    }
}

/* What a queue pair completed before it was reset or destroyed and nobody has polled is not polled
 * after. With all those locks held. */
static void forget_completions(struct soft_qp *qp)
{
    struct qpn qpn = {qp->extended.qp_base.qp_num};
    struct completion_queue *sends = queue_of(qp->extended.qp_base.send_cq);
    struct completion_queue *receives = queue_of(qp->extended.qp_base.recv_cq);
    if (sends != NULL) {
        completion_queue_forget(sends, qpn);
    }
    if (receives != NULL) {
        completion_queue_forget(receives, qpn);
    }
}

/* Strict mode's part of that. */
static void warn_of_unseen(struct soft_qp *qp)
{
    const struct ibv_qp *ibv = &qp->extended.qp_base;
    struct ibv_cq *const queues[] = {ibv->send_cq, ibv->recv_cq};
    struct completion failure;
    for (size_t i = 0; i < 2; i++) {
        struct completion_queue *queue = queue_of(queues[i]);
        if (queue != NULL &&
            completion_queue_find_failure(queue, (struct qpn){ibv->qp_num}, &failure)) {
            struct ibv_wc wc;
            convert_completion(&failure, &wc);
            strict_unseen(&failure, ibv_wc_status_str(wc.status));
            return;
        }
    }
}

/* Programs set for an XRC queue pair what they set for RC; the half that it has no use for is
 * overlooked, as the kernel does. */
static int without_other_half(enum ibv_qp_type type, int mask)
{
    switch (type) {
    case IBV_QPT_XRC_SEND:
        return mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    case IBV_QPT_XRC_RECV:
        return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
    default:
        return mask;
    }
}

/* Engine's lock. What concerns draining is noted first: the event comes from inside. */
static enum status modify_locked(struct soft_qp *qp, const struct ibv_qp_attr *attributes, int mask,
                                 const struct qp_attributes *core, unsigned set)
{
    struct ibv_qp *ibv = &qp->extended.qp_base;
    bool former_notify = qp->drain_notify;
    bool former_draining = qp->draining;
    enum qp_state from = qp_current_state(qp->qp);
    bool enters = (mask & IBV_QP_STATE) != 0 && from != core->state;
    bool asks = (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0;
    if (asks && (!enters || from != QP_RTS || core->state != QP_SQD)) {
        return STATUS_INVALID; /* nothing begins to drain */
    }
    if (enters) {
        qp->drain_notify = asks && attributes->en_sqd_async_notify != 0; /* each time */
        qp->draining = attributes->qp_state == IBV_QPS_SQD;
    }
    enum status status =
        device_modify_qp(qp->engine->device, engine_now(qp->engine), qp->qp, core, set, NULL);
    ibv->state = (enum ibv_qp_state)qp_current_state(qp->qp);
    if (status != STATUS_OK) {
        qp->drain_notify = former_notify;
        qp->draining = former_draining;
    } else if (strict_is_on() && (mask & IBV_QP_DEST_QPN) != 0) {
        strict_sends_connect(qp_number(qp->qp), &core->path.remote, core->destination);
    }
    return status;
}

/* From a peer that may be using it. */
static bool takes_something_back(const struct ibv_qp_attr *attributes, int mask)
{
    bool ends = (mask & IBV_QP_STATE) != 0 &&
                (attributes->qp_state == IBV_QPS_RESET || attributes->qp_state == IBV_QPS_ERR);
    return ends || (mask & IBV_QP_ACCESS_FLAGS) != 0;
}

/* What is named by index, and the path; false: there is no such. */
static bool find_path(const struct ibv_qp *ibv, const struct ibv_qp_attr *attributes, int mask,
                      struct qp_attributes *core)
{
    if (((mask & IBV_QP_PORT) != 0 &&
         devices_gids(ibv->context->device, attributes->port_num) == NULL) ||
        ((mask & IBV_QP_PKEY_INDEX) != 0 && attributes->pkey_index != 0) ||
        ((mask & IBV_QP_AV) != 0 &&
         !port_path(ibv->context, &attributes->ah_attr, ibv->qp_num * 31 + attributes->dest_qp_num,
                    &core->path))) {
        return false;
    }
    int both = IBV_QP_AV | IBV_QP_PATH_MTU;
    return (mask & both) != both ||
           port_takes(ibv->context, &attributes->ah_attr, &core->path, core->path_mtu);
}

/* READs and atomics at once. */
static bool reads_fit(const struct ibv_qp_attr *attributes, int mask)
{
    uint32_t most = limits_now()->max_reads;
    return ((mask & IBV_QP_MAX_QP_RD_ATOMIC) == 0 ||
            limits_allow(attributes->max_rd_atomic, most, "max_qp_init_rd_atom")) &&
           ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) == 0 ||
            limits_allow(attributes->max_dest_rd_atomic, most, "max_qp_rd_atom"));
}

static int modify_qp(struct ibv_qp *ibv, const struct ibv_qp_attr *attributes, int mask)
{
    struct soft_qp *qp = soft_qp(ibv);
    struct qp_attributes core;
    unsigned set;
    int error = convert_attributes(attributes, mask, &core, &set);
    if (error != 0) {
        return error;
    }
    struct vector vector = {.whole = NULL};
    if (!reads_fit(attributes, mask) || !find_path(ibv, attributes, mask, &core)) {
        return EINVAL;
    }
    if ((mask & IBV_QP_AV) != 0 && !vector_copy(&attributes->ah_attr, &core.path, &vector)) {
        return ENOMEM;
    }
    bool takes_back = ibv->qp_type == IBV_QPT_RC && takes_something_back(attributes, mask);
    if (takes_back && take_back_qp(qp->engine, qp->qp) != STATUS_OK) {
        vector_end(&vector);
        return EBUSY;
    }
    /* Else not: a program may modify while it holds a completion queue between two polls. */
    bool resets = (mask & IBV_QP_STATE) != 0 && attributes->qp_state == IBV_QPS_RESET;
    if (resets) {
        lock_with_queues(qp);
    } else {
        engine_lock(qp->engine);
    }
    enum status status = modify_locked(qp, attributes, mask, &core, set);
    if ((mask & IBV_QP_AV) != 0 && status == STATUS_OK) {
        struct vector former = qp->vector;
        qp->vector = vector;
        vector = former;
    }
    vector_end(&vector);
    if (takes_back) {
        take_back_done(qp->engine, qp->qp);
    }
    if (strict_is_on() && (mask & IBV_QP_STATE) != 0 && attributes->qp_state == IBV_QPS_ERR) {
        strict_sends_give_up(qp_number(qp->qp));
    }
    if (!resets) {
        engine_unlock(qp->engine);
        return errno_of(status);
    }
    if (status == STATUS_OK) {
        if (strict_is_on() && soft_target(qp) == NULL) {
            warn_of_unseen(qp);
            strict_sends_reset(qp_number(qp->qp));
            strict_receives_end(ibv->srq == NULL ? qp_receive_queue(qp->qp) : NULL);
        }
        forget_completions(qp);
    }
    unlock_with_queues(qp);
    return errno_of(status);
}

PUBLIC int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attributes, int mask)
{
    HOST_FORWARD(ibv->context, ibv_modify_qp, ibv, attributes, mask);
    mask = without_other_half(ibv->qp_type, mask);
    int error = modify_qp(ibv, attributes, mask);
    return error == EINVAL && strict_is_on() ? refusal_of_modify(ibv, attributes, mask) : error;
}

PUBLIC int ibv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *ret_attributes, int mask,
                        struct ibv_qp_init_attr *ret_init)
{
    HOST_FORWARD(ibv->context, ibv_query_qp, ibv, ret_attributes, mask, ret_init);
    struct soft_qp *qp = soft_qp(ibv);
    struct qp_attributes core;
    engine_lock(qp->engine);
    qp_query(qp->qp, &core);
    ibv->state = (enum ibv_qp_state)core.state;
    convert_attributes_back(&core, ret_attributes);
    ret_attributes->ah_attr = vector_of(&qp->vector, &core.path);
    ret_attributes->en_sqd_async_notify = qp->drain_notify;
    ret_attributes->sq_draining = core.state == QP_SQD && qp->draining;
    engine_unlock(qp->engine);
    ret_attributes->cap = granted_cap(qp);
    *ret_init = (struct ibv_qp_init_attr){
        .qp_context = ibv->qp_context,
        .send_cq = ibv->send_cq,
        .recv_cq = ibv->recv_cq,
        .srq = ibv->srq,
        .cap = ret_attributes->cap,
        .qp_type = ibv->qp_type,
        .sq_sig_all = qp->signal_all,
    };
    return 0;
}

PUBLIC int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode operation,
                                      uint32_t flags)
{
    HOST_FORWARD(qp->context, ibv_query_qp_data_in_order, qp, operation, flags);
    return 0;
}

PUBLIC int ibv_destroy_qp(struct ibv_qp *ibv)
{
    HOST_FORWARD(ibv->context, ibv_destroy_qp, ibv);
    struct soft_qp *qp = soft_qp(ibv);
    if (ibv->qp_type == IBV_QPT_RC && take_back_qp(qp->engine, qp->qp) != STATUS_OK) {
        return EBUSY;
    }
    lock_with_queues(qp);
    if (qp_is_attached(qp->qp)) {
        take_back_done(qp->engine, qp->qp);
        unlock_with_queues(qp);
        return EBUSY;
    }
    if (strict_is_on() && soft_target(qp) == NULL) {
        warn_of_unseen(qp);
        strict_sends_end(qp_number(qp->qp));
        strict_receives_end(ibv->srq == NULL ? qp_receive_queue(qp->qp) : NULL);
    }
    if (soft_target(qp) == NULL || xrc_remove_target(qp)) {
        device_destroy_qp(qp->engine->device, qp->qp);
    }
    srq_use(qp, -1);
    forget_completions(qp);
    unlock_with_queues(qp);
    bool is_done = event_drain(ibv->context, ibv, &ibv->mutex, &ibv->cond, &ibv->events_completed,
                               &qp->async_delivered);
    pd_drop(ibv->pd);
    context_drop(ibv->context);
    if (is_done) {
        qp_free(qp);
    }
    return 0;
}

/* Enhanced connection establishment: no options of a vendor that could be agreed upon. */
PUBLIC int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    HOST_FORWARD(qp->context, ibv_set_ece, qp, ece);
    errno = EOPNOTSUPP;
    return EOPNOTSUPP;
}

PUBLIC int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ret_ece)
{
    HOST_FORWARD(qp->context, ibv_query_ece, qp, ret_ece);
    return EOPNOTSUPP;
}
