/* Signaled work fills the send queue, and its completions lie where nobody polls them. */
#include <errno.h>
#include <unistd.h>

#include "pair.h"

int main(void)
{
    struct pair pair = pair_open(NULL);
    const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_mr *mr = pair_register(&pair, pair_pages(4096), 4096, all);
    int error = 0;
    for (int i = 0; i < 1000 && error == 0; i++) {
        error = pair_post(&pair.a, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, mr, 64,
                          (uintptr_t)mr->addr, mr->rkey);
        usleep(200); /* each is long done when the next is posted */
    }
    expect(error == ENOMEM, "a full send queue");
    return 0;
}
