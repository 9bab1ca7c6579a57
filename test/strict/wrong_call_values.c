/* Attributes of a queue pair beyond their bounds; wrong_programs_test.sh has the words. */
#include <errno.h>

#include "pair.h"

#define TO_RTR                                                                                     \
    (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |                \
     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define IN_RTS (IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER)

static void refused(struct ibv_qp *qp, struct ibv_qp_attr attributes, int mask)
{
    expect(ibv_modify_qp(qp, &attributes, mask) == EINVAL, "refused");
}

int main(void)
{
    struct pair pair = pair_open(NULL);
    struct ibv_qp *qp = pair.a.qp;
    refused(qp, (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .min_rnr_timer = 32}, IN_RTS);
    refused(qp,
            (struct ibv_qp_attr){
                .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQE, .min_rnr_timer = 1},
            IN_RTS | IBV_QP_CUR_STATE);
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_RESET};
    expect(ibv_modify_qp(qp, &attributes, IBV_QP_STATE) == 0, "RESET");
    attributes = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1};
    expect(ibv_modify_qp(qp, &attributes,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
           "INIT");
    refused(qp, (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = (enum ibv_mtu)1024},
            TO_RTR); /* bytes */
    refused(qp, (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR}, TO_RTR);
    return 0;
}
