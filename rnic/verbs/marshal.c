/* Copies between the public structs and those that a kernel's rdma_cm hands over: named by
 * librdmacm builds other than ours. */
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>
#include <string.h>

#include <infiniband/sa.h>

#include "rnic/verbs/objects.h"

void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *ret_attributes,
                                struct ib_uverbs_ah_attr *source);
PUBLIC void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *ret_attributes,
                                       struct ib_uverbs_ah_attr *source)
{
    memcpy(ret_attributes->grh.dgid.raw, source->grh.dgid, sizeof ret_attributes->grh.dgid);
    ret_attributes->grh.flow_label = source->grh.flow_label;
    ret_attributes->grh.sgid_index = source->grh.sgid_index;
    ret_attributes->grh.hop_limit = source->grh.hop_limit;
    ret_attributes->grh.traffic_class = source->grh.traffic_class;
    ret_attributes->dlid = source->dlid;
    ret_attributes->sl = source->sl;
    ret_attributes->src_path_bits = source->src_path_bits;
    ret_attributes->static_rate = source->static_rate;
    ret_attributes->is_global = source->is_global;
    ret_attributes->port_num = source->port_num;
}

void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *ret_attributes,
                                struct ib_uverbs_qp_attr *source);
PUBLIC void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *ret_attributes,
                                       struct ib_uverbs_qp_attr *source)
{
    struct ibv_qp_attr *to = ret_attributes;
    to->qp_state = source->qp_state;
    to->cur_qp_state = source->cur_qp_state;
    to->path_mtu = source->path_mtu;
    to->path_mig_state = source->path_mig_state;
    to->qkey = source->qkey;
    to->rq_psn = source->rq_psn;
    to->sq_psn = source->sq_psn;
    to->dest_qp_num = source->dest_qp_num;
    to->qp_access_flags = source->qp_access_flags;
    to->cap.max_send_wr = source->max_send_wr;
    to->cap.max_recv_wr = source->max_recv_wr;
    to->cap.max_send_sge = source->max_send_sge;
    to->cap.max_recv_sge = source->max_recv_sge;
    to->cap.max_inline_data = source->max_inline_data;
    ibv_copy_ah_attr_from_kern(&to->ah_attr, &source->ah_attr);
    ibv_copy_ah_attr_from_kern(&to->alt_ah_attr, &source->alt_ah_attr);
    to->pkey_index = source->pkey_index;
    to->alt_pkey_index = source->alt_pkey_index;
    to->en_sqd_async_notify = source->en_sqd_async_notify;
    to->sq_draining = source->sq_draining;
    to->max_rd_atomic = source->max_rd_atomic;
    to->max_dest_rd_atomic = source->max_dest_rd_atomic;
    to->min_rnr_timer = source->min_rnr_timer;
    to->port_num = source->port_num;
    to->timeout = source->timeout;
    to->retry_cnt = source->retry_cnt;
    to->rnr_retry = source->rnr_retry;
    to->alt_port_num = source->alt_port_num;
    to->alt_timeout = source->alt_timeout;
}

/* The two path records differ in nothing but the types of a few fields. */
#define COPY_PATH(to, from)                                                                        \
    do {                                                                                           \
        (to)->dlid = (from)->dlid;                                                                 \
        (to)->slid = (from)->slid;                                                                 \
        (to)->flow_label = (from)->flow_label;                                                     \
        (to)->reversible = (from)->reversible;                                                     \
        (to)->mtu = (from)->mtu;                                                                   \
        (to)->pkey = (from)->pkey;                                                                 \
        (to)->hop_limit = (from)->hop_limit;                                                       \
        (to)->traffic_class = (from)->traffic_class;                                               \
        (to)->numb_path = (from)->numb_path;                                                       \
        (to)->sl = (from)->sl;                                                                     \
        (to)->mtu_selector = (from)->mtu_selector;                                                 \
        (to)->rate_selector = (from)->rate_selector;                                               \
        (to)->rate = (from)->rate;                                                                 \
        (to)->packet_life_time_selector = (from)->packet_life_time_selector;                       \
        (to)->packet_life_time = (from)->packet_life_time;                                         \
        (to)->preference = (from)->preference;                                                     \
    } while (0)

void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *ret_path, struct ib_user_path_rec *source);
PUBLIC void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *ret_path,
                                        struct ib_user_path_rec *source)
{
    memcpy(ret_path->dgid.raw, source->dgid, sizeof ret_path->dgid);
    memcpy(ret_path->sgid.raw, source->sgid, sizeof ret_path->sgid);
    COPY_PATH(ret_path, source);
    ret_path->raw_traffic = (int)source->raw_traffic;
}

void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *ret_path, struct ibv_sa_path_rec *source);
PUBLIC void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *ret_path,
                                      struct ibv_sa_path_rec *source)
{
    memcpy(ret_path->dgid, source->dgid.raw, sizeof ret_path->dgid);
    memcpy(ret_path->sgid, source->sgid.raw, sizeof ret_path->sgid);
    COPY_PATH(ret_path, source);
    ret_path->raw_traffic = (unsigned)source->raw_traffic;
}
