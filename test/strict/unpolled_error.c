/* A WRITE fails, and the program goes on to the end without ever asking. */
#include <unistd.h>

#include "pair.h"

int main(void)
{
    struct pair pair = pair_open(NULL);
    struct ibv_mr *from = pair_register(&pair, pair_pages(4096), 4096, 0);
    struct ibv_mr *to = pair_register(&pair, pair_pages(4096), 4096,
                                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct ibv_qp_attr attributes;
    struct ibv_qp_init_attr init;
    pair_post_receive(&pair.b, to, 64); /* too short for what comes */
    expect(pair_post(&pair.a, IBV_WR_SEND, IBV_SEND_SIGNALED, from, 4096, 0, 0) == 0, "a SEND");
    expect(pair_poll(&pair.b) == IBV_WC_LOC_LEN_ERR, "a length error"); /* b looks, a does not */
    do {
        expect(ibv_query_qp(pair.a.qp, &attributes, IBV_QP_STATE, &init) == 0, "a state");
        usleep(200);
    } while (attributes.qp_state != IBV_QPS_ERR);
    ibv_dereg_mr(from);
    ibv_dereg_mr(to);
    pair_close(&pair); /* the mistake: what became of the SEND? */
    return 0;
}
