/* Two peers write to the same place at the same time, and nobody looks there before both are done:
 * whose bytes are left is not said, and not asked. The thread of the library brings them, as the
 * program sleeps. */
#include <poll.h>

#include "pair.h"

#define LENGTH (1u << 20)
#define ROUNDS 8

static void sleep_until_done(struct pair *pair)
{
    struct ibv_cq *cq;
    void *context;
    struct ibv_wc wc;
    expect(ibv_get_cq_event(pair->channel, &cq, &context) == 0, "an event");
    ibv_ack_cq_events(cq, 1);
    expect(ibv_req_notify_cq(cq, 0) == 0, "an armed queue");
    while (ibv_poll_cq(cq, 1, &wc) == 1) {
        expect(wc.status == IBV_WC_SUCCESS, "a WRITE that ends");
    }
}

int main(void)
{
    const struct pair_options options = {.has_channel = true};
    struct pair pairs[2] = {pair_open(&options), pair_open(&options)};
    const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    uint8_t *place = pair_pages(LENGTH);
    struct ibv_mr *from[2], *to[2];
    for (int i = 0; i < 2; i++) {
        from[i] = pair_register(&pairs[i], pair_pages(LENGTH), LENGTH, all);
        to[i] = pair_register(&pairs[i], place, LENGTH, all);
        memset(from[i]->addr, i + 1, LENGTH);
        expect(ibv_req_notify_cq(pairs[i].b.cq, 0) == 0, "an armed queue");
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 2; i++) {
            expect(pair_post(&pairs[i].b, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, from[i],
                             i == 0 ? LENGTH : LENGTH / 64, /* begins later and ends first */
                             (uintptr_t)place, to[i]->rkey) == 0,
                   "a WRITE");
        }
        for (int i = 0; i < 2; i++) {
            sleep_until_done(&pairs[i]);
        }
    }
    for (int i = 0; i < 2; i++) {
        expect(ibv_dereg_mr(from[i]) == 0 && ibv_dereg_mr(to[i]) == 0, "deregistered regions");
        pair_close(&pairs[i]);
    }
    return 0;
}
