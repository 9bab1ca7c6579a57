/* A fetch and add fails, and the program goes on to the end without ever asking. */
#include <unistd.h>

#include "pair.h"

int main(void)
{
    struct pair pair = pair_open(NULL);
    struct ibv_mr *mr = pair_register(&pair, pair_pages(4096), 4096,
                                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
    struct ibv_sge sge = {.addr = (uintptr_t)mr->addr, .length = 8, .lkey = mr->lkey};
    struct ibv_send_wr wr = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                             .send_flags = IBV_SEND_SIGNALED,
                             .sg_list = &sge,
                             .num_sge = 1},
                       *bad;
    struct ibv_qp_attr attributes;
    struct ibv_qp_init_attr init;
    wr.wr.atomic.remote_addr = (uintptr_t)mr->addr + 12; /* no multiple of eight */
    wr.wr.atomic.rkey = mr->rkey;
    expect(ibv_post_send(pair.a.qp, &wr, &bad) == 0, "a posted fetch and add");
    do {
        expect(ibv_query_qp(pair.a.qp, &attributes, IBV_QP_STATE, &init) == 0, "a state");
        usleep(200);
    } while (attributes.qp_state != IBV_QPS_ERR);
    ibv_dereg_mr(mr);
    pair_close(&pair); /* the mistake: what became of it? */
    return 0;
}
