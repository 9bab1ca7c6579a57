/* A receive buffer that was registered for reading only. */
#include "pair.h"

int main(void)
{
    struct pair pair = pair_open(NULL);
    struct ibv_mr *from = pair_register(&pair, pair_pages(4096), 4096, 0);
    struct ibv_mr *to = pair_register(&pair, pair_pages(4096), 4096, 0);
    pair_post_receive(&pair.b, to, 4096);
    expect(pair_post(&pair.a, IBV_WR_SEND, IBV_SEND_SIGNALED, from, 64, 0, 0) == 0, "a SEND");
    expect(pair_poll(&pair.b) == IBV_WC_LOC_PROT_ERR, "a protection error");
    return 0;
}
