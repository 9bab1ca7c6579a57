/* The target was registered without the right to be written to from outside. */
#include "pair.h"

int main(void)
{
    struct pair pair = pair_open(NULL);
    struct ibv_mr *from = pair_register(&pair, pair_pages(4096), 4096, 0);
    struct ibv_mr *to = pair_register(&pair, pair_pages(4096), 4096,
                                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
    expect(pair_post(&pair.a, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, from, 64, (uintptr_t)to->addr,
                     to->rkey) == 0,
           "a WRITE");
    expect(pair_poll(&pair.a) == IBV_WC_REM_ACCESS_ERR, "a remote access error");
    return 0;
}
