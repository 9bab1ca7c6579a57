/* A program that goes on posting unsignaled work when it has ended its queue pair, and polls all
 * that is left: first of all a success. */
#include "pair.h"

#define DEPTH 4u

int main(void)
{
    struct pair pair = pair_open(&(struct pair_options){.max_send = DEPTH});
    const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    struct ibv_mr *mr = pair_register(&pair, pair_pages(4096), 4096, all);
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_ERR};
    struct ibv_wc wc;
    pair_post_receive(&pair.b, mr, 64);
    expect(pair_post(&pair.a, IBV_WR_SEND, IBV_SEND_SIGNALED, mr, 64, 0, 0) == 0, "a posted SEND");
    expect(pair_poll(&pair.b) == IBV_WC_SUCCESS, "a receive");
    /* What b's own completion says of its READ says of that SEND that it was acknowledged. */
    expect(pair_post(&pair.b, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, mr, 64, (uintptr_t)mr->addr,
                     mr->rkey) == 0,
           "a posted READ");
    expect(pair_poll(&pair.b) == IBV_WC_SUCCESS, "a READ");
    expect(ibv_modify_qp(pair.a.qp, &attributes, IBV_QP_STATE) == 0, "ERR");
    for (unsigned i = 0; i < DEPTH; i++) {
        expect(pair_post(&pair.a, IBV_WR_SEND, 0, mr, 64, 0, 0) == 0, "a posted SEND");
    }
    for (unsigned i = 0; i < 1 + DEPTH; i++) {
        (void)pair_poll(&pair.a);
    }
    expect(ibv_poll_cq(pair.a.cq, 1, &wc) == 0, "no completion more");
    ibv_dereg_mr(mr);
    pair_close(&pair);
    return 0;
}
