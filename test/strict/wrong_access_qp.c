/* The region gives the right, but the queue pair was never told to: qp_access_flags is 0. */
#include "pair.h"

int main(void)
{
    struct pair pair = pair_open(&(struct pair_options){.no_access = true});
    struct ibv_mr *from = pair_register(&pair, pair_pages(4096), 4096, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_mr *to = pair_register(&pair, pair_pages(4096), 4096, IBV_ACCESS_REMOTE_READ);
    expect(pair_post(&pair.a, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, from, 64, (uintptr_t)to->addr,
                     to->rkey) == 0,
           "a READ");
    expect(pair_poll(&pair.a) == IBV_WC_REM_INV_REQ_ERR, "a remote invalid request error");
    return 0;
}
