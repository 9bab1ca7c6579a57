/* A message is longer than the receive that it finds. */
#include "pair.h"

int main(void)
{
    struct pair pair = pair_open(NULL);
    struct ibv_mr *mr = pair_register(&pair, pair_pages(4096), 4096, IBV_ACCESS_LOCAL_WRITE);
    pair_post_receive(&pair.b, mr, 32); /* the mistake */
    expect(pair_post(&pair.a, IBV_WR_SEND, IBV_SEND_SIGNALED, mr, 64, 0, 0) == 0, "a posted SEND");
    expect(pair_poll(&pair.b) == IBV_WC_LOC_LEN_ERR, "a receive that is too short");
    expect(pair_poll(&pair.a) == IBV_WC_REM_INV_REQ_ERR, "a refused SEND");
    return 0;
}
