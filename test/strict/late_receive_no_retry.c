/* Receives that come too late for senders whose patience ends: rnr_retry from 0 to 6. */
#include <time.h>

#include "pair.h"

#define TIMER    18u   /* min_rnr_timer: 5.12 ms */
#define TIMER_US 5120u /* [IBA 9.7.5.2.8 table 45] */

static uint64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Nobody posts a receive: the sender gives up after so many pauses, and not before. */
static void run_out(unsigned retries)
{
    struct pair pair = pair_open(&(struct pair_options){
        .never_retries = retries == 0, .rnr_retry = (uint8_t)retries, .rnr_timer = TIMER});
    struct ibv_mr *mr = pair_register(&pair, pair_pages(4096), 4096, IBV_ACCESS_LOCAL_WRITE);
    uint64_t start = now_us();
    expect(pair_post(&pair.a, IBV_WR_SEND, IBV_SEND_SIGNALED, mr, 64, 0, 0) == 0, "a SEND");
    expect(pair_poll(&pair.a) == IBV_WC_RNR_RETRY_EXC_ERR, "a sender out of patience");
    expect(now_us() - start >= retries * TIMER_US, "a pause before each retry");
    pair_post_receive(&pair.b, mr, 4096); /* the mistake; its own end learns nothing of it */
    pair_look(&pair.b);                   /* it waits for ever */
    expect(pair_post(&pair.a, IBV_WR_SEND, IBV_SEND_SIGNALED, mr, 64, 0, 0) == 0, "another SEND");
    expect(pair_poll(&pair.a) == IBV_WC_WR_FLUSH_ERR, "a queue pair in error");
    ibv_dereg_mr(mr);
    pair_close(&pair);
}

/* One that is late, but within the sender's patience. */
static void come_in_time(void)
{
    struct pair pair = pair_open(&(struct pair_options){.rnr_retry = 6, .rnr_timer = 30});
    struct ibv_mr *mr = pair_register(&pair, pair_pages(4096), 4096, IBV_ACCESS_LOCAL_WRITE);
    expect(pair_post(&pair.a, IBV_WR_SEND, IBV_SEND_SIGNALED, mr, 64, 0, 0) == 0, "a SEND");
    pair_look(&pair.b);
    pair_post_receive(&pair.b, mr, 4096);
    expect(pair_poll(&pair.b) == IBV_WC_SUCCESS, "a receive");
    expect(pair_poll(&pair.a) == IBV_WC_SUCCESS, "a SEND");
    ibv_dereg_mr(mr);
    pair_close(&pair);
}

int main(void)
{
    for (unsigned retries = 0; retries <= 6; retries++) {
        run_out(retries);
    }
    come_in_time();
    return 0;
}
