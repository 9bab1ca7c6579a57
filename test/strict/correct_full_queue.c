/* The send queue is full since the peer does not answer, and others' completions wait: to poll them
 * would make no room. */
#include <errno.h>

#include "pair.h"

int main(void)
{
    struct pair pair = pair_open(NULL);
    const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_mr *mr = pair_register(&pair, pair_pages(4096), 4096, all);
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_RESET};
    int error = 0;
    pair_post_receive(&pair.a, mr, 64);
    expect(pair_post(&pair.b, IBV_WR_SEND, IBV_SEND_SIGNALED, mr, 64, 0, 0) == 0, "a posted SEND");
    expect(pair_poll(&pair.b) == IBV_WC_SUCCESS, "a SEND");
    expect(ibv_modify_qp(pair.b.qp, &attributes, IBV_QP_STATE) == 0, "RESET");
    for (int i = 0; i < 1000 && error == 0; i++) {
        error = pair_post(&pair.a, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, mr, 64,
                          (uintptr_t)mr->addr, mr->rkey);
    }
    expect(error == ENOMEM, "a full send queue");
    expect(pair_poll(&pair.a) == IBV_WC_SUCCESS, "a receive");
    ibv_dereg_mr(mr);
    pair_close(&pair);
    return 0;
}
