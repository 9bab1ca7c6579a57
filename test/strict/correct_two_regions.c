/* Two regions of the same memory: one is deregistered while a WRITE comes in through the other,
 * where that takes a while. */
#include <unistd.h>

#include "pair.h"

#define LENGTH (32u << 20)

static void overlap(struct pair *pair, struct ibv_mr *(*other)(struct pair *pair, void *bytes))
{
    const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_mr *from = pair_register(pair, pair_pages(LENGTH), LENGTH, all);
    struct ibv_mr *to = pair_register(pair, pair_pages(LENGTH), LENGTH, all);
    struct ibv_mr *second = other(pair, to->addr);
    expect(second != NULL, "another region");
    memset(from->addr, 7, LENGTH);
    expect(pair_post(&pair->a, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, from, LENGTH,
                     (uintptr_t)to->addr, to->rkey) == 0,
           "a posted WRITE");
    usleep(1000);
    expect(ibv_dereg_mr(second) == 0, "a deregistered region");
    expect(pair_poll(&pair->a) == IBV_WC_SUCCESS, "a WRITE");
    expect(memcmp(from->addr, to->addr, LENGTH) == 0, "all of its bytes");
    void *const bytes[] = {from->addr, to->addr};
    ibv_dereg_mr(from);
    ibv_dereg_mr(to);
    free(bytes[0]);
    free(bytes[1]);
}

static struct ibv_mr *same(struct pair *pair, void *bytes)
{
    return ibv_reg_mr(pair->pd, bytes, LENGTH, IBV_ACCESS_LOCAL_WRITE);
}

static struct ibv_mr *null(struct pair *pair, void *bytes)
{
    return ibv_alloc_null_mr(pair->pd);
}

int main(void)
{
    struct pair pair = pair_open(NULL);
    for (int i = 0; i < 3; i++) {
        overlap(&pair, same);
        overlap(&pair, null);
    }
    pair_close(&pair);
    return 0;
}
