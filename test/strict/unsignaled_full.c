/* No request ever asks for a completion. */
#include <errno.h>

#include "pair.h"

int main(void)
{
    struct pair pair = pair_open(NULL);
    const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_mr *mr = pair_register(&pair, pair_pages(4096), 4096, all);
    int error = 0;
    for (int i = 0; i < 1000 && error == 0; i++) {
        error = pair_post(&pair.a, IBV_WR_RDMA_WRITE, 0, mr, 64, (uintptr_t)mr->addr, mr->rkey);
    }
    expect(error == ENOMEM, "a full send queue");
    return 0;
}
