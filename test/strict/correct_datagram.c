/* Datagrams are lost, and nobody is wrong: one end only sends, the other was at times too slow. */
#include <unistd.h>

#include "pair.h"

int main(void)
{
    struct pair pair = pair_open(&(struct pair_options){.datagram = true});
    /* What comes, a header of 40 bytes before it, changes no datagram that has yet to leave. */
    struct ibv_mr *from = pair_register(&pair, pair_pages(4096), 4096, 0);
    struct ibv_mr *to = pair_register(&pair, pair_pages(4096), 4096, IBV_ACCESS_LOCAL_WRITE);
    pair_post_receive(&pair.b, to, 4096);
    for (int i = 0; i < 4; i++) { /* more than there are receives for */
        expect(pair_post(&pair.a, IBV_WR_SEND, IBV_SEND_SIGNALED, from, 64, 0, 0) == 0,
               "a datagram");
        expect(pair_poll(&pair.a) == IBV_WC_SUCCESS, "a send");
    }
    expect(pair_poll(&pair.b) == IBV_WC_SUCCESS, "a datagram");
    usleep(10000);
    pair_post_receive(&pair.b, to, 4096);
    /* And one to the end that never receives. */
    expect(pair_post(&pair.b, IBV_WR_SEND, IBV_SEND_SIGNALED, from, 64, 0, 0) == 0, "a datagram");
    expect(pair_poll(&pair.b) == IBV_WC_SUCCESS, "a send");
    usleep(10000);
    ibv_dereg_mr(from);
    ibv_dereg_mr(to);
    pair_close(&pair);
    return 0;
}
