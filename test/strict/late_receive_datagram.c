/* The first receive is posted after the first datagram has come, which is lost. */
#include "pair.h"

int main(void)
{
    struct pair pair = pair_open(&(struct pair_options){.datagram = true});
    struct ibv_mr *mr = pair_register(&pair, pair_pages(4096), 4096, IBV_ACCESS_LOCAL_WRITE);
    expect(pair_post(&pair.a, IBV_WR_SEND, IBV_SEND_SIGNALED, mr, 64, 0, 0) == 0, "a datagram");
    expect(pair_poll(&pair.a) == IBV_WC_SUCCESS, "a send");
    pair_look(&pair.b);
    pair_post_receive(&pair.b, mr, 4096); /* the mistake */
    pair_look(&pair.b);                   /* a loss */
    expect(pair_post(&pair.a, IBV_WR_SEND, IBV_SEND_SIGNALED, mr, 64, 0, 0) == 0, "a datagram");
    expect(pair_poll(&pair.b) == IBV_WC_SUCCESS, "a datagram that comes");
    return 0;
}
