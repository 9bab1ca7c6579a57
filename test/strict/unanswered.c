/* The number of a queue pair that there is not: as where it was sent in the wrong order of bytes.
 */
#include "pair.h"

int main(void)
{
    struct pair pair = pair_open(NULL);
    struct ibv_mr *mr = pair_register(&pair, pair_pages(4096), 4096, IBV_ACCESS_LOCAL_WRITE);
    expect(ibv_destroy_qp(pair.b.qp) == 0, "a peer that is gone");
    expect(pair_post(&pair.a, IBV_WR_SEND, IBV_SEND_SIGNALED, mr, 64, 0, 0) == 0, "a SEND");
    expect(pair_poll(&pair.a) == IBV_WC_RETRY_EXC_ERR, "a sender out of patience");
    return 0;
}
