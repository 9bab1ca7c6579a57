/* The next message is written into the buffer of one that is still on its way. */
#include "pair.h"

int main(void)
{
    struct pair pair = pair_open(NULL);
    struct ibv_mr *to = pair_register(&pair, pair_pages(4096), 4096, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_mr *from = pair_register(&pair, pair_pages(4096), 4096, 0);
    /* Some are done sooner than they are spoiled; on a busy machine all, for a while. */
    for (int i = 1; i <= 10000; i++) {
        pair_post_receive(&pair.b, to, 4096);
        expect(pair_post(&pair.a, IBV_WR_SEND, IBV_SEND_SIGNALED, from, 4096, 0, 0) == 0, "a SEND");
        memset(from->addr, i, 4096); /* the mistake */
        expect(pair_poll(&pair.a) == IBV_WC_SUCCESS, "a send");
        expect(pair_poll(&pair.b) == IBV_WC_SUCCESS, "a receive");
    }
    return 0;
}
