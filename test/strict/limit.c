/* Takes for granted what only another adapter has: 32 scatter/gather elements. */
#include <errno.h>

#include "pair.h"

int main(void)
{
    struct pair pair = pair_open(NULL);
    struct ibv_qp_init_attr init = {
        .send_cq = pair.a.cq,
        .recv_cq = pair.a.cq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 32, .max_recv_sge = 1},
    };
    struct ibv_qp *qp = ibv_create_qp(pair.pd, &init);
    expect((qp == NULL) == (getenv("WEIR_STRICT") != NULL), "what the limit says");
    return 0;
}
