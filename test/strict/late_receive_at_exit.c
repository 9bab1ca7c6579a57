/* A message that found no receive, none follows, and the program ends as one that has met an error
 * does: without destroying anything. */
#include "pair.h"

int main(void)
{
    struct pair pair = pair_open(&(struct pair_options){.rnr_retry = 1});
    struct ibv_mr *mr = pair_register(&pair, pair_pages(4096), 4096, IBV_ACCESS_LOCAL_WRITE);
    expect(pair_post(&pair.a, IBV_WR_SEND, IBV_SEND_SIGNALED, mr, 64, 0, 0) == 0, "a SEND");
    expect(pair_poll(&pair.a) == IBV_WC_RNR_RETRY_EXC_ERR, "a sender out of patience");
    return 0;
}
