/* One byte too many. */
#include "pair.h"

int main(void)
{
    struct pair pair = pair_open(NULL);
    struct ibv_mr *to = pair_register(&pair, pair_pages(8192), 8192, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_mr *from = pair_register(&pair, pair_pages(8192), 4096, 0);
    pair_post_receive(&pair.b, to, 8192);
    expect(pair_post(&pair.a, IBV_WR_SEND, IBV_SEND_SIGNALED, from, 4097, 0, 0) == 0, "a SEND");
    expect(pair_poll(&pair.a) == IBV_WC_LOC_PROT_ERR, "a protection error");
    return 0;
}
