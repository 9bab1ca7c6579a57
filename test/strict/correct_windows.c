/* Binds a window by the call that posts the work itself, between other work. */
#include "pair.h"

#define LENGTH 262144u

int main(void)
{
    struct pair pair = pair_open(NULL);
    const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND;
    struct ibv_mr *from = pair_register(&pair, pair_pages(LENGTH), LENGTH, all);
    struct ibv_mr *to = pair_register(&pair, pair_pages(LENGTH), LENGTH, all);
    struct ibv_mw *window = ibv_alloc_mw(pair.pd, IBV_MW_TYPE_1);
    expect(window != NULL, "a window");
    memset(from->addr, 1, LENGTH);
    for (int i = 0; i < 40; i++) { /* more than the send queue is long */
        struct ibv_mw_bind bind = {.send_flags = IBV_SEND_SIGNALED,
                                   .bind_info = {.mr = to,
                                                 .addr = (uintptr_t)to->addr,
                                                 .length = LENGTH,
                                                 .mw_access_flags = IBV_ACCESS_REMOTE_WRITE}};
        expect(pair_post(&pair.a, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, from, LENGTH,
                         (uintptr_t)to->addr, to->rkey) == 0,
               "a WRITE");
        expect(ibv_bind_mw(pair.a.qp, window, &bind) == 0, "a bound window");
        expect(pair_post(&pair.a, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, from, LENGTH,
                         (uintptr_t)to->addr, to->rkey) == 0,
               "a WRITE");
        for (int done = 0; done < 3; done++) {
            expect(pair_poll(&pair.a) == IBV_WC_SUCCESS, "work that ends well");
        }
    }
    expect(ibv_dealloc_mw(window) == 0, "a freed window");
    expect(ibv_dereg_mr(from) == 0 && ibv_dereg_mr(to) == 0, "deregistered regions");
    pair_close(&pair);
    return 0;
}
