/* An event is got and never acknowledged; then its queue is destroyed. */
#include "pair.h"

int main(void)
{
    struct pair pair = pair_open(&(struct pair_options){.has_channel = true});
    struct ibv_mr *mr = pair_register(&pair, pair_pages(4096), 4096, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_cq *cq;
    void *context;
    pair_post_receive(&pair.b, mr, 4096);
    expect(ibv_req_notify_cq(pair.b.cq, 0) == 0, "an armed queue");
    expect(pair_post(&pair.a, IBV_WR_SEND, IBV_SEND_SIGNALED, mr, 64, 0, 0) == 0, "a SEND");
    expect(ibv_get_cq_event(pair.channel, &cq, &context) == 0, "an event");
    expect(pair_poll(&pair.b) == IBV_WC_SUCCESS, "a receive");
    expect(pair_poll(&pair.a) == IBV_WC_SUCCESS, "a send");
    ibv_dereg_mr(mr);
    pair_close(&pair);
    return 0;
}
