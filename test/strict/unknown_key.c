/* The key in the request was never given out: a field that nobody filled in. */
#include "pair.h"

int main(void)
{
    struct pair pair = pair_open(NULL);
    struct ibv_mr *to = pair_register(&pair, pair_pages(4096), 4096, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_mr nobody = *to;
    nobody.lkey = 0x7e1;
    pair_post_receive(&pair.b, to, 4096);
    expect(pair_post(&pair.a, IBV_WR_SEND, IBV_SEND_SIGNALED, &nobody, 64, 0, 0) == 0, "a SEND");
    expect(pair_poll(&pair.a) == IBV_WC_LOC_PROT_ERR, "a protection error");
    return 0;
}
