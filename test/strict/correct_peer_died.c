/* A peer that answered and then vanished is nobody's mistake. */
#include "pair.h"

int main(void)
{
    struct pair pair = pair_open(NULL);
    struct ibv_mr *mr = pair_register(&pair, pair_pages(4096), 4096, IBV_ACCESS_LOCAL_WRITE);
    pair_post_receive(&pair.b, mr, 64);
    expect(pair_post(&pair.a, IBV_WR_SEND, 0, mr, 64, 0, 0) == 0, "a SEND that asks for nothing");
    expect(pair_poll(&pair.b) == IBV_WC_SUCCESS, "a receive");
    expect(ibv_destroy_qp(pair.b.qp) == 0, "a peer that is gone");
    expect(pair_post(&pair.a, IBV_WR_SEND, IBV_SEND_SIGNALED, mr, 64, 0, 0) == 0, "a SEND");
    expect(pair_poll(&pair.a) == IBV_WC_RETRY_EXC_ERR, "a sender out of patience");
    return 0;
}
