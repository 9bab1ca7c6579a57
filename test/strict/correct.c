/* No mistake at all: nothing may be said about this one. SEND, WRITE with immediate, READ, events,
 * a full send queue that is polled, and everything acknowledged and destroyed. */
#include "pair.h"

#define LENGTH 65536u

static void wait_for_event(struct pair *pair)
{
    struct ibv_cq *cq;
    void *context;
    expect(ibv_get_cq_event(pair->channel, &cq, &context) == 0, "an event");
    ibv_ack_cq_events(cq, 1);
}

static void run(int more)
{
    struct pair pair = pair_open(&(struct pair_options){.has_channel = true});
    const int all =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | more;
    struct ibv_mr *from = pair_register(&pair, pair_pages(LENGTH), LENGTH, all);
    struct ibv_mr *to = pair_register(&pair, pair_pages(LENGTH), LENGTH, all);
    for (int round = 0; round < 50; round++) {
        memset(from->addr, round, LENGTH);
        pair_post_receive(&pair.b, to, LENGTH);
        expect(ibv_req_notify_cq(pair.b.cq, 0) == 0, "an armed queue");
        bool write = round % 2 != 0;
        expect(pair_post(&pair.a, write ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND,
                         IBV_SEND_SIGNALED, from, LENGTH, (uintptr_t)to->addr, to->rkey) == 0,
               "a posted send");
        wait_for_event(&pair);
        expect(pair_poll(&pair.b) == IBV_WC_SUCCESS, "a receive");
        expect(memcmp(from->addr, to->addr, LENGTH) == 0, "equal bytes");
        expect(pair_poll(&pair.a) == IBV_WC_SUCCESS, "a send");
        expect(pair_post(&pair.a, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, from, LENGTH,
                         (uintptr_t)to->addr, to->rkey) == 0,
               "a posted READ");
        expect(pair_poll(&pair.a) == IBV_WC_SUCCESS, "a READ");
    }
    for (int i = 0; i < 64; i++) { /* one completion for four WRITEs */
        expect(pair_post(&pair.a, IBV_WR_RDMA_WRITE, i % 4 == 3 ? IBV_SEND_SIGNALED : 0, from, 64,
                         (uintptr_t)to->addr, to->rkey) == 0,
               "a posted WRITE");
        expect(i % 4 != 3 || pair_poll(&pair.a) == IBV_WC_SUCCESS, "a WRITE");
    }
    ibv_dereg_mr(from);
    ibv_dereg_mr(to);
    pair_close(&pair);
}

int main(void)
{
    run(0);
    run(IBV_ACCESS_ON_DEMAND);
    return 0;
}
