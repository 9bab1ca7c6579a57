/* A peer goes on using a window that it has itself invalidated by its SEND. */
#include "pair.h"

int main(void)
{
    struct pair pair = pair_open(NULL);
    struct ibv_mr *from = pair_register(&pair, pair_pages(4096), 4096, 0);
    struct ibv_mr *to =
        pair_register(&pair, pair_pages(4096), 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    struct ibv_mw *window = ibv_alloc_mw(pair.pd, IBV_MW_TYPE_2);
    expect(window != NULL, "a window");
    uint32_t key = ibv_inc_rkey(window->rkey);
    struct ibv_send_wr bind = {.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED}, *bad;
    bind.bind_mw.mw = window;
    bind.bind_mw.rkey = key;
    bind.bind_mw.bind_info = (struct ibv_mw_bind_info){.mr = to,
                                                       .addr = (uintptr_t)to->addr,
                                                       .length = 4096,
                                                       .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
    expect(ibv_post_send(pair.b.qp, &bind, &bad) == 0, "a posted bind");
    expect(pair_poll(&pair.b) == IBV_WC_SUCCESS, "a bound window");
    expect(pair_post(&pair.a, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, from, 64, (uintptr_t)to->addr,
                     key) == 0,
           "a WRITE");
    expect(pair_poll(&pair.a) == IBV_WC_SUCCESS, "a WRITE through the window");
    pair_post_receive(&pair.b, to, 4096);
    struct ibv_sge sge = {.addr = (uintptr_t)from->addr, .length = 64, .lkey = from->lkey};
    struct ibv_send_wr end = {.opcode = IBV_WR_SEND_WITH_INV,
                              .send_flags = IBV_SEND_SIGNALED,
                              .sg_list = &sge,
                              .num_sge = 1,
                              .invalidate_rkey = key};
    expect(ibv_post_send(pair.a.qp, &end, &bad) == 0, "a SEND that invalidates");
    expect(pair_poll(&pair.a) == IBV_WC_SUCCESS, "a SEND");
    expect(pair_poll(&pair.b) == IBV_WC_SUCCESS, "a receive");
    expect(pair_post(&pair.a, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, from, 64, (uintptr_t)to->addr,
                     key) == 0, /* the mistake */
           "a WRITE");
    expect(pair_poll(&pair.a) == IBV_WC_REM_ACCESS_ERR, "a remote access error");
    return 0;
}
