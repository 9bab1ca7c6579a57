/* Polls the last byte of an RDMA WRITE and takes the rest for there. */
#include <pthread.h>

#include "pair.h"

#define LENGTH 65536u

static void *watch_memory(void *argument)
{
    const volatile uint8_t *bytes = argument;
    while (bytes[LENGTH - 1] == 0) { /* the mistake */
    }
    return NULL;
}

int main(void)
{
    struct pair pair = pair_open(NULL);
    const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_mr *from = pair_register(&pair, pair_pages(LENGTH), LENGTH, all);
    struct ibv_mr *to = pair_register(&pair, pair_pages(LENGTH), LENGTH, all);
    pthread_t watcher;
    memset(from->addr, 1, LENGTH);
    expect(pthread_create(&watcher, NULL, watch_memory, to->addr) == 0, "a thread");
    expect(pair_post(&pair.a, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, from, LENGTH,
                     (uintptr_t)to->addr, to->rkey) == 0,
           "a WRITE");
    expect(pair_poll(&pair.a) == IBV_WC_SUCCESS, "a WRITE that ends");
    pthread_join(watcher, NULL);
    return 0;
}
