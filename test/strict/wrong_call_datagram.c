/* A datagram whose address handle was never made. */
#include <errno.h>

#include "pair.h"

int main(void)
{
    struct pair pair = pair_open(&(struct pair_options){.datagram = true});
    struct ibv_mr *mr = pair_register(&pair, pair_pages(4096), 4096, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_ah *handle = pair.a.ah;
    pair.a.ah = NULL;
    expect(pair_post(&pair.a, IBV_WR_SEND, 0, mr, 8, 0, 0) == EINVAL, "refused");
    pair.a.ah = handle;
    ibv_dereg_mr(mr);
    pair_close(&pair);
    return 0;
}
