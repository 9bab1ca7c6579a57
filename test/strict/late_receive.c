/* The receive is posted after the SEND has come. */
#include "pair.h"

int main(void)
{
    struct pair pair = pair_open(NULL);
    struct ibv_mr *mr = pair_register(&pair, pair_pages(4096), 4096, IBV_ACCESS_LOCAL_WRITE);
    expect(pair_post(&pair.a, IBV_WR_SEND, IBV_SEND_SIGNALED, mr, 64, 0, 0) == 0, "a posted SEND");
    pair_look(&pair.b); /* the mistake: "it will not be there so soon" */
    pair_post_receive(&pair.b, mr, 4096);
    expect(pair_poll(&pair.b) == IBV_WC_SUCCESS, "a receive");
    expect(pair_poll(&pair.a) == IBV_WC_SUCCESS, "a send");
    return 0;
}
