/* Sends from the null region, whose bytes are nowhere. */
#include "pair.h"

#define LENGTH 65536u

int main(void)
{
    struct pair pair = pair_open(NULL);
    const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_mr *from = ibv_alloc_null_mr(pair.pd);
    struct ibv_mr *to = pair_register(&pair, pair_pages(LENGTH), LENGTH, all);
    expect(from != NULL, "a null region");
    memset(to->addr, 1, LENGTH);
    expect(pair_post(&pair.a, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, from, LENGTH,
                     (uintptr_t)to->addr, to->rkey) == 0,
           "a WRITE");
    expect(pair_poll(&pair.a) == IBV_WC_SUCCESS, "a WRITE that ends");
    for (unsigned i = 0; i < LENGTH; i++) {
        expect(((uint8_t *)to->addr)[i] == 0, "zeroes");
    }
    expect(ibv_dereg_mr(from) == 0 && ibv_dereg_mr(to) == 0, "deregistered regions");
    pair_close(&pair);
    return 0;
}
