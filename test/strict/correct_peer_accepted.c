/* A peer that accepted a connection, and vanished before it said anything on it, has answered, too.
 */
#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include "pair.h"

static struct ibv_cq *queue;

static struct rdma_cm_id *next(struct rdma_event_channel *channel, enum rdma_cm_event_type wanted)
{
    struct rdma_cm_event *event;
    expect(rdma_get_cm_event(channel, &event) == 0, "an event");
    struct rdma_cm_id *id = event->id;
    expect(event->event == wanted, rdma_event_str(wanted));
    rdma_ack_cm_event(event);
    return id;
}

static void give_queue_pair(struct rdma_cm_id *id)
{
    queue = queue != NULL ? queue : ibv_create_cq(id->verbs, 64, NULL, NULL, 0);
    struct ibv_qp_init_attr init = {
        .send_cq = queue,
        .recv_cq = queue,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
    };
    expect(queue != NULL && rdma_create_qp(id, NULL, &init) == 0, "a queue pair");
}

/* Both ends; ret_there is the one that accepted. */
static struct rdma_cm_id *connect_both(struct rdma_event_channel *channel,
                                       struct rdma_cm_id **ret_there)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000001)};
    struct sockaddr *place = (struct sockaddr *)&address;
    struct rdma_conn_param parameters = {.retry_count = 7, .rnr_retry_count = 7};
    struct rdma_cm_id *listener, *here;
    expect(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0 &&
               rdma_create_id(channel, &here, NULL, RDMA_PS_TCP) == 0,
           "two ids");
    expect(rdma_bind_addr(listener, place) == 0 && rdma_listen(listener, 1) == 0, "a listener");
    address.sin_port = rdma_get_src_port(listener);
    expect(rdma_resolve_addr(here, NULL, place, 2000) == 0, "an address");
    next(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    expect(rdma_resolve_route(here, 2000) == 0, "a way");
    next(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    give_queue_pair(here);
    expect(rdma_connect(here, &parameters) == 0, "a request");
    *ret_there = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    give_queue_pair(*ret_there);
    expect(rdma_accept(*ret_there, &parameters) == 0, "an acceptance");
    next(channel, RDMA_CM_EVENT_ESTABLISHED);
    next(channel, RDMA_CM_EVENT_ESTABLISHED);
    return here;
}

int main(void)
{
    struct rdma_cm_id *there, *here = connect_both(rdma_create_event_channel(), &there);
    struct end end = {.cq = queue, .qp = here->qp};
    struct ibv_mr *mr = ibv_reg_mr(here->pd, pair_pages(4096), 4096, IBV_ACCESS_LOCAL_WRITE);
    rdma_destroy_qp(there);
    expect(pair_post(&end, IBV_WR_SEND, IBV_SEND_SIGNALED, mr, 64, 0, 0) == 0, "a SEND");
    expect(pair_poll(&end) == IBV_WC_RETRY_EXC_ERR, "a sender out of patience");
    return 0;
}
