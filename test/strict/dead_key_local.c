/* The buffer of a SEND is deregistered before it is posted. */
#include "pair.h"

int main(void)
{
    struct pair pair = pair_open(NULL);
    struct ibv_mr *to = pair_register(&pair, pair_pages(4096), 4096, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_mr *mr = pair_register(&pair, pair_pages(4096), 4096, 0);
    struct ibv_mr gone = *mr;
    pair_post_receive(&pair.b, to, 4096);
    ibv_dereg_mr(mr); /* the mistake */
    expect(pair_post(&pair.a, IBV_WR_SEND, IBV_SEND_SIGNALED, &gone, 64, 0, 0) == 0, "a SEND");
    expect(pair_poll(&pair.a) == IBV_WC_LOC_PROT_ERR, "a protection error");
    return 0;
}
