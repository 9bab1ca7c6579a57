/* A receive has no room for the 40 bytes of the GRH: the datagram is lost. */
#include "pair.h"

int main(void)
{
    struct pair pair = pair_open(&(struct pair_options){.datagram = true});
    struct ibv_mr *mr = pair_register(&pair, pair_pages(4096), 4096, IBV_ACCESS_LOCAL_WRITE);
    pair_post_receive(&pair.b, mr, 64); /* the mistake */
    expect(pair_post(&pair.a, IBV_WR_SEND, IBV_SEND_SIGNALED, mr, 64, 0, 0) == 0, "a datagram");
    expect(pair_poll(&pair.a) == IBV_WC_SUCCESS, "a send");
    pair_look(&pair.b); /* a loss */
    expect(pair_post(&pair.a, IBV_WR_SEND, IBV_SEND_SIGNALED, mr, 24, 0, 0) == 0, "a datagram");
    expect(pair_poll(&pair.b) == IBV_WC_SUCCESS, "one that just fits");
    return 0;
}
