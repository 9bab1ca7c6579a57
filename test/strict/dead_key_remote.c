/* A peer writes to memory that was deregistered in the meantime. */
#include "pair.h"

int main(void)
{
    struct pair pair = pair_open(NULL);
    const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_mr *from = pair_register(&pair, pair_pages(4096), 4096, 0);
    struct ibv_mr *to = pair_register(&pair, pair_pages(4096), 4096, all);
    struct ibv_mr told = *to; /* what the peer was told */
    ibv_dereg_mr(to);         /* the mistake */
    expect(pair_post(&pair.a, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, from, 64, (uintptr_t)told.addr,
                     told.rkey) == 0,
           "a WRITE");
    expect(pair_poll(&pair.a) == IBV_WC_REM_ACCESS_ERR, "a remote access error");
    return 0;
}
