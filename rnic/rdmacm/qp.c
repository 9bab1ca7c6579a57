/* The queue pair of an id: its making with all that was not given, and its way through the states.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "rnic/rdmacm/cma.h"

void cma_fill_vector_along(const struct path *path, uint8_t port, struct ibv_ah_attr *ret_vector)
{
    struct device_place place = {.port = port};
    bool found = cma_device()->core->devices_find(&path->local, &place);
    (void)found; /* a vanished address is refused by what the vector is given to */
    *ret_vector = (struct ibv_ah_attr){
        .is_global = 1,
        .port_num = place.port,
        .grh = {.sgid_index = (uint8_t)place.gid_index,
                .flow_label = path->flow_label,
                .hop_limit = path->hop_limit != 0 ? path->hop_limit : 64,
                .traffic_class = path->traffic_class},
    };
    memcpy(ret_vector->grh.dgid.raw, path->remote.bytes, sizeof path->remote.bytes);
}

void cma_fill_vector(struct cma_id *id, struct ibv_ah_attr *ret_vector)
{
    cma_fill_vector_along(&id->path, id->ibv.port_num, ret_vector);
}

static void fill_rtr(struct cma_id *id, struct ibv_qp_attr *attributes, int *ret_mask)
{
    *ret_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    cma_fill_vector(id, &attributes->ah_attr);
    attributes->path_mtu = (enum ibv_mtu)id->terms.path_mtu;
    attributes->dest_qp_num = id->terms.remote_qpn.value;
    attributes->rq_psn = id->terms.local_psn.value;
    attributes->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    if (id->terms.responder_resources != 0) {
        attributes->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    }
    *ret_mask |= IBV_QP_ACCESS_FLAGS;
    if (id->ibv.qp_type != IBV_QPT_UC && id->ibv.qp_type != IBV_QPT_UD) {
        attributes->max_dest_rd_atomic = id->terms.responder_resources;
        attributes->min_rnr_timer = MIN_RNR_TIMER;
        *ret_mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    }
}

static void fill_rts(struct cma_id *id, struct ibv_qp_attr *attributes, int *ret_mask)
{
    *ret_mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    attributes->sq_psn = id->terms.remote_psn.value;
    if (id->ibv.qp_type != IBV_QPT_UC && id->ibv.qp_type != IBV_QPT_UD) {
        attributes->timeout = id->terms.ack_timeout;
        attributes->retry_cnt = id->terms.retry_count;
        attributes->rnr_retry = id->terms.rnr_retry_count;
        attributes->max_rd_atomic = id->terms.initiator_depth;
        *ret_mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    }
}

PUBLIC int rdma_init_qp_attr(struct rdma_cm_id *ibv, struct ibv_qp_attr *attributes, int *ret_mask)
{
    struct cma_id *id = cma_id(ibv);
    enum ibv_qp_state state = attributes->qp_state;
    *attributes = (struct ibv_qp_attr){.qp_state = state};
    bool unconnected = ibv->qp_type == IBV_QPT_UD;
    switch (state) {
    case IBV_QPS_INIT:
        attributes->port_num = id->ibv.port_num;
        *ret_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                    (unconnected ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
        attributes->qkey = unconnected ? RDMA_UDP_QKEY : 0;
        attributes->qp_access_flags =
            unconnected
                ? 0
                : IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        return 0;
    case IBV_QPS_RTR:
        if (unconnected) {
            *ret_mask = IBV_QP_STATE;
        } else {
            fill_rtr(id, attributes, ret_mask);
        }
        return 0;
    case IBV_QPS_RTS:
        fill_rts(id, attributes, ret_mask);
        return 0;
    default:
        return cma_error(EINVAL);
    }
}

int cma_modify(struct cma_id *id, enum ibv_qp_state state)
{
    struct ibv_qp_attr attributes = {.qp_state = state};
    int mask;
    if (rdma_init_qp_attr(&id->ibv, &attributes, &mask) != 0) {
        return -1;
    }
    const struct weir_seam *core = cma_device()->core;
    int error = ibv_modify_qp(id->ibv.qp, &attributes, mask);
    if (error == 0 && (mask & IBV_QP_DEST_QPN) != 0 && core->strict_is_on()) {
        core->strict_sends_answered((struct qpn){id->ibv.qp->qp_num}); /* by its REQ or REP */
    }
    return cma_error(error);
}

int cma_modify_error(struct cma_id *id)
{
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_ERR};
    return id->ibv.qp == NULL ? 0 : cma_error(ibv_modify_qp(id->ibv.qp, &attributes, IBV_QP_STATE));
}

static void destroy_queue(struct ibv_cq **queue, struct ibv_comp_channel **channel)
{
    if (*queue != NULL) {
        ibv_destroy_cq(*queue);
    }
    if (*channel != NULL) {
        ibv_destroy_comp_channel(*channel);
    }
    *queue = NULL;
    *channel = NULL;
}

static void destroy_receive_queue(struct cma_id *id)
{
    destroy_queue(&id->ibv.recv_cq, &id->ibv.recv_cq_channel);
    id->owns_queues = id->ibv.send_cq != NULL;
}

static void destroy_queues(struct cma_id *id)
{
    if (id->owns_queues) {
        destroy_queue(&id->ibv.send_cq, &id->ibv.send_cq_channel);
        destroy_receive_queue(id);
    }
}

/* -1 and errno: nothing is made. */
static int create_queue(struct cma_id *id, uint32_t length, struct ibv_cq **ret_queue,
                        struct ibv_comp_channel **ret_channel)
{
    struct ibv_context *verbs = id->ibv.verbs;
    *ret_channel = ibv_create_comp_channel(verbs);
    if (*ret_channel == NULL) {
        return -1;
    }
    *ret_queue = ibv_create_cq(verbs, length == 0 ? 1 : (int)length, id, *ret_channel, 0);
    if (*ret_queue == NULL) {
        int error = errno;
        destroy_queue(ret_queue, ret_channel);
        return cma_error(error);
    }
    id->owns_queues = true;
    return 0;
}

static int create_receive_queue(struct cma_id *id, uint32_t length)
{
    return create_queue(id, length, &id->ibv.recv_cq, &id->ibv.recv_cq_channel);
}

/* Makes the completion queues that neither the attributes nor the id name. */
static int complete_queues(struct cma_id *id, struct ibv_qp_init_attr_ex *init)
{
    struct rdma_cm_id *ibv = &id->ibv;
    bool extended = init->qp_type == IBV_QPT_XRC_SEND || init->qp_type == IBV_QPT_XRC_RECV;
    bool wants_receives = !extended;
    bool wants_sends = init->qp_type != IBV_QPT_XRC_RECV;
    int result = 0;
    if (init->recv_cq == NULL && wants_receives) {
        result = ibv->recv_cq != NULL ? 0 : create_receive_queue(id, init->cap.max_recv_wr);
        init->recv_cq = ibv->recv_cq;
    }
    if (result == 0 && init->send_cq == NULL && wants_sends) {
        result = ibv->send_cq != NULL ? 0
                                      : create_queue(id, init->cap.max_send_wr, &ibv->send_cq,
                                                     &ibv->send_cq_channel);
        init->send_cq = ibv->send_cq;
    }
    if (result != 0) {
        int error = errno;
        destroy_queues(id);
        return cma_error(error);
    }
    return 0;
}

static int first_states(struct cma_id *id)
{
    if (cma_modify(id, IBV_QPS_INIT) != 0) {
        return -1;
    }
    if (id->ibv.qp_type == IBV_QPT_UD) {
        return cma_modify(id, IBV_QPS_RTR) != 0 || cma_modify(id, IBV_QPS_RTS) != 0 ? -1 : 0;
    }
    return 0;
}

static int create_qp(struct rdma_cm_id *ibv, struct ibv_qp_init_attr_ex *init)
{
    struct cma_id *id = cma_id(ibv);
    if (ibv->qp != NULL || ibv->verbs == NULL) {
        return cma_error(EINVAL);
    }
    if ((init->comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || init->pd == NULL) {
        init->comp_mask |= IBV_QP_INIT_ATTR_PD;
        init->pd = ibv->pd;
    }
    if (init->pd->context != ibv->verbs) {
        return cma_error(EINVAL);
    }
    if (init->qp_type == IBV_QPT_XRC_RECV) {
        if (!cma_name_xrc_domain(ibv->verbs, &init->comp_mask, IBV_QP_INIT_ATTR_XRCD,
                                 &init->xrcd)) {
            return -1;
        }
    } else if (init->srq == NULL && init->qp_type != IBV_QPT_XRC_SEND) {
        init->srq = ibv->srq;
    }
    if (complete_queues(id, init) != 0) {
        return -1;
    }
    struct ibv_qp *qp = ibv_create_qp_ex(ibv->verbs, init);
    if (qp == NULL) {
        int error = errno;
        if (init->qp_type !=
            IBV_QPT_XRC_RECV) { /* else there is a shared receive queue's at most */
            destroy_queues(id);
        }
        return cma_error(error);
    }
    const struct rdma_cm_id before = *ibv;
    ibv->qp = qp;
    ibv->pd = init->pd;
    ibv->qp_type = init->qp_type;
    if (first_states(id) != 0) {
        int error = errno;
        rdma_destroy_qp(ibv);
        ibv->pd = before.pd;
        ibv->qp_type = before.qp_type;
        return cma_error(error);
    }
    return 0;
}

PUBLIC int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *init)
{
    struct ibv_cq *const send_cq = init->send_cq;
    struct ibv_cq *const recv_cq = init->recv_cq;
    int result = create_qp(id, init);
    if (result != 0) { /* who tries again with less is not to name what has gone */
        init->send_cq = send_cq;
        init->recv_cq = recv_cq;
    }
    return result;
}

PUBLIC int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    const size_t common = offsetof(struct ibv_qp_init_attr_ex, comp_mask);
    struct ibv_qp_init_attr_ex extended = {.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd};
    memcpy(&extended, init, common);
    int result = rdma_create_qp_ex(id, &extended);
    if (result == 0) {
        memcpy(init, &extended, common);
    }
    return result;
}

PUBLIC void rdma_destroy_qp(struct rdma_cm_id *id)
{
    if (id->qp != NULL) {
        ibv_destroy_qp(id->qp);
        id->qp = NULL;
    }
    if (id->qp_type != IBV_QPT_XRC_RECV || id->srq == NULL) {
        destroy_queues(cma_id(id)); /* else they are the shared receive queue's */
    }
}

static bool wants_queue(const struct ibv_srq_init_attr_ex *init)
{
    return (init->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 && init->srq_type == IBV_SRQT_XRC &&
           ((init->comp_mask & IBV_SRQ_INIT_ATTR_CQ) == 0 || init->cq == NULL);
}

static int create_srq(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *init)
{
    if ((init->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || init->pd == NULL) {
        init->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        init->pd = id->pd;
    }
    if ((init->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 && init->srq_type == IBV_SRQT_XRC &&
        !cma_name_xrc_domain(id->verbs, &init->comp_mask, IBV_SRQ_INIT_ATTR_XRCD, &init->xrcd)) {
        return -1;
    }
    if (wants_queue(init)) {
        init->cq = id->recv_cq;
        init->comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
    }
    id->srq = ibv_create_srq_ex(id->verbs, init);
    if (id->srq == NULL) {
        return -1;
    }
    id->pd = init->pd;
    return 0;
}

PUBLIC int rdma_create_srq_ex(struct rdma_cm_id *ibv, struct ibv_srq_init_attr_ex *init)
{
    struct cma_id *id = cma_id(ibv);
    struct ibv_cq *const named = init->cq;
    if (ibv->srq != NULL || ibv->verbs == NULL) {
        return cma_error(EINVAL);
    }
    bool makes_queue = wants_queue(init) && !(id->owns_queues && ibv->recv_cq != NULL);
    if (makes_queue && create_receive_queue(id, init->attr.max_wr) != 0) {
        return -1;
    }
    int result = create_srq(ibv, init);
    if (result != 0) { /* who tries again with less is not to name what has gone */
        int error = errno;
        init->cq = named;
        if (makes_queue) {
            destroy_receive_queue(id);
        }
        errno = error;
    }
    return result;
}

PUBLIC int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
    const size_t common = offsetof(struct ibv_srq_init_attr_ex, comp_mask);
    struct ibv_srq_init_attr_ex extended = {
        .comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE,
        .pd = pd,
        .srq_type = id->qp_type == IBV_QPT_XRC_RECV ? IBV_SRQT_XRC : IBV_SRQT_BASIC,
    };
    memcpy(&extended, init, common);
    int result = rdma_create_srq_ex(id, &extended);
    if (result == 0) {
        memcpy(init, &extended, common);
    }
    return result;
}

PUBLIC void rdma_destroy_srq(struct rdma_cm_id *id)
{
    if (id->srq != NULL) {
        ibv_destroy_srq(id->srq);
        id->srq = NULL;
        if (id->qp_type == IBV_QPT_XRC_RECV || id->qp == NULL) {
            destroy_queues(cma_id(id));
        }
    }
}
