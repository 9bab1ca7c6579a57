/* Takes for granted what only another adapter has: 128 READs at once. */
#include <errno.h>

#include "pair.h"

/* As both ends have it. */
static int set(struct ibv_qp *qp, struct ibv_qp_attr *attributes, enum ibv_qp_state state, int mask)
{
    attributes->qp_state = state;
    return ibv_modify_qp(qp, attributes, IBV_QP_STATE | mask);
}

int main(void)
{
    const int first = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    const int second = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    const int third = IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                      IBV_QP_MAX_QP_RD_ATOMIC;
    bool strict = getenv("WEIR_STRICT") != NULL;
    uint8_t fits = strict ? 16 : 128;
    struct pair pair = pair_open(NULL);
    struct ibv_qp_init_attr init = {
        .send_cq = pair.a.cq, .recv_cq = pair.a.cq, .qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
    struct ibv_qp *qp = ibv_create_qp(pair.pd, &init);
    struct ibv_qp_attr attributes = {.port_num = 1,
                                     .path_mtu = IBV_MTU_1024,
                                     .dest_qp_num = qp->qp_num,
                                     .ah_attr = {.is_global = 1, .port_num = 1}};
    expect(ibv_query_gid(pair.context, 1, 0, &attributes.ah_attr.grh.dgid) == 0, "an address");
    expect(set(qp, &attributes, IBV_QPS_INIT, first) == 0, "INIT");
    attributes.max_dest_rd_atomic = fits + 1;
    expect(set(qp, &attributes, IBV_QPS_RTR, second) == EINVAL, "a target of too many READs");
    attributes.max_dest_rd_atomic = fits;
    expect(set(qp, &attributes, IBV_QPS_RTR, second) == 0, "a target of as many as there may be");
    attributes.max_rd_atomic = fits + 1;
    expect(set(qp, &attributes, IBV_QPS_RTS, third) == EINVAL, "too many READs");
    attributes.max_rd_atomic = fits;
    expect(set(qp, &attributes, IBV_QPS_RTS, third) == 0, "as many as there may be");
    return 0;
}
