/* Signaled work fills the send queue, and its completions lie where nobody polls them. */
#include <errno.h>
#include <unistd.h>

#include "pair.h"

int main(void)
{
    struct pair pair = pair_open(NULL);
    const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_mr *mr = pair_register(&pair, pair_pages(4096), 4096, all);
    int refused = 0;
    /* Only what is done lies unpolled, and on a busy machine that takes a while: ask again. */
    for (int i = 0; i < 2000 && refused < 100; i++) {
        int error = pair_post(&pair.a, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, mr, 64,
                              (uintptr_t)mr->addr, mr->rkey);
        expect(error == 0 || error == ENOMEM, "a posted WRITE or a full send queue");
        refused = error == ENOMEM ? refused + 1 : 0;
        usleep(error == 0 ? 200 : 10000);
    }
    expect(refused == 100, "a send queue that stays full");
    return 0;
}
