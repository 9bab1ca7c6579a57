/* A completion queue smaller than what completes before anybody polls. */
#include <unistd.h>

#include "pair.h"

int main(void)
{
    struct pair pair = pair_open(&(struct pair_options){.cqe = 4});
    const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_mr *mr = pair_register(&pair, pair_pages(4096), 4096, all);
    int room = pair.a.cq->cqe;
    for (int i = 0; i < room + 4; i++) {
        expect(pair_post(&pair.a, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, mr, 64, (uintptr_t)mr->addr,
                         mr->rkey) == 0,
               "a posted WRITE");
    }
    struct ibv_async_event event;
    expect(ibv_get_async_event(pair.context, &event) == 0, "an event");
    expect(event.event_type == IBV_EVENT_CQ_ERR, "the event that says so");
    ibv_ack_async_event(&event);
    return 0;
}
