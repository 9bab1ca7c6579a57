/* An event of rdma_cm is got, and its id destroyed before it is acknowledged: that waits until
 * another thread does it, or for ever. */
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

#include "pair.h"

#define LONG_US 7000000 /* strict mode is silent for 5 s */

static void *acknowledge(void *event)
{
    const char *strict = getenv("WEIR_STRICT");
    bool says = strict != NULL && strstr(strict, "no-unacked-event") == NULL;
    usleep(says ? LONG_US : 1000);
    rdma_ack_cm_event(event);
    return NULL;
}

int main(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000001)};
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id;
    struct rdma_cm_event *event;
    pthread_t thread;
    expect(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0, "an id");
    expect(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000) == 0, "an address");
    expect(rdma_get_cm_event(channel, &event) == 0, "an event");
    expect(pthread_create(&thread, NULL, acknowledge, event) == 0, "a thread");
    expect(rdma_destroy_id(id) == 0, "a destroyed id"); /* the mistake */
    pthread_join(thread, NULL);
    rdma_destroy_event_channel(channel);
    return 0;
}
