/* Polls the last byte of an RDMA WRITE and takes the rest for there; more than once, for whoever
 * is not running just then sees nothing. */
#include <pthread.h>

#include "pair.h"

#define LENGTH 65536u
#define ROUNDS 60

static pthread_barrier_t both;

static void *watch_memory(void *argument)
{
    const volatile uint8_t *bytes = argument;
    for (int round = 1; round <= ROUNDS; round++) {
        pthread_barrier_wait(&both);
        while (bytes[LENGTH - 1] != round) { /* the mistake */
        }
        pthread_barrier_wait(&both);
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
    expect(pthread_barrier_init(&both, NULL, 2) == 0 &&
               pthread_create(&watcher, NULL, watch_memory, to->addr) == 0,
           "a thread");
    for (int round = 1; round <= ROUNDS; round++) {
        memset(from->addr, round, LENGTH);
        pthread_barrier_wait(&both);
        expect(pair_post(&pair.a, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, from, LENGTH,
                         (uintptr_t)to->addr, to->rkey) == 0,
               "a WRITE");
        expect(pair_poll(&pair.a) == IBV_WC_SUCCESS, "a WRITE that ends");
        pthread_barrier_wait(&both);
    }
    pthread_join(watcher, NULL);
    return 0;
}
