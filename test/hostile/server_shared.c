#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>

#include "test/hostile/message.h"
#include "test/hostile/server.h"

#define DATAGRAMS 256u /* receives */
#define EXTENDED  64u
#define GROUPS    2u

/* Receives of datagrams, then those of XRC, are named downwards from UINT64_MAX. */
static uint8_t datagram_inbox[DATAGRAMS][40 + DATAGRAM_LENGTH];
static struct ibv_pd *domain;
static struct ibv_mr *datagram_region;
static struct ibv_srq *datagrams;
static struct extended { /* queues of XRC: the exposed, the sheltered */
    uint8_t inbox[EXTENDED][MESSAGE_MAX];
    struct ibv_xrcd *xrc_domain; /* whose targets feed the queue */
    struct ibv_pd *domain;
    struct ibv_mr *region;
    struct ibv_srq *queue;
} extended[2];
static struct ibv_cq *queue;
static struct rdma_cm_id *datagram_id, *groups[GROUPS];
static uint32_t joined;
static uint64_t
    sheltered_sequence; /* of XRC: expected next. One connection at a time is sheltered */

static void post(struct ibv_srq *to, uint64_t name, uint8_t *bytes, uint32_t length,
                 const struct ibv_mr *region)
{
    struct ibv_sge sge = {(uintptr_t)bytes, length, region->lkey};
    struct ibv_recv_wr *bad, wr = {.wr_id = name, .sg_list = &sge, .num_sge = 1};
    need(ibv_post_srq_recv(to, &wr, &bad) == 0, "room for a receive");
}

static void post_datagram(uint32_t index)
{
    post(datagrams, UINT64_MAX - index, datagram_inbox[index], sizeof datagram_inbox[index],
         datagram_region);
}

static void post_extended(uint32_t index)
{
    struct extended *one = &extended[index / EXTENDED];
    post(one->queue, UINT64_MAX - DATAGRAMS - index, one->inbox[index % EXTENDED], MESSAGE_MAX,
         one->region);
}

static bool is_of_group(const struct ibv_wc *wc)
{
    for (uint32_t i = 0; i < GROUPS; i++) {
        if (groups[i] != NULL && groups[i]->qp->qp_num == wc->qp_num) {
            return true;
        }
    }
    return false;
}

static void take_datagram(const struct ibv_wc *wc, uint32_t index)
{
    uint64_t sequence;
    if (wc->status != IBV_WC_SUCCESS) {
        return; /* flushed: we are ending */
    }
    if (!message_is_whole(datagram_inbox[index] + 40, wc->byte_len - 40, &sequence)) {
        seen.forged++;
    } else if (is_of_group(wc)) {
        seen.group_datagrams++;
    } else {
        seen.datagrams++;
    }
    post_datagram(index);
}

/* Whoever reads the packets of an exposed initiator may send in its name. */
static void take_extended(const struct ibv_wc *wc, uint32_t index)
{
    bool sheltered = index / EXTENDED == 1;
    const uint8_t *bytes = extended[index / EXTENDED].inbox[index % EXTENDED];
    uint64_t sequence = 0;
    if (sheltered && wc->status == IBV_WC_WR_FLUSH_ERR) {
        return; /* we are ending */
    }
    bool whole = wc->status == IBV_WC_SUCCESS && message_is_whole(bytes, wc->byte_len, &sequence);
    seen.extended += whole;
    seen.forged += !whole;
    if (sheltered && (!whole || sequence != sheltered_sequence++)) {
        fault("a sheltered message to an XRC target is not what was sent, number",
              sheltered_sequence - 1);
    }
    post_extended(index);
}

bool shared_take(const struct ibv_wc *wc)
{
    uint64_t index = UINT64_MAX - wc->wr_id;
    if (index < DATAGRAMS) {
        take_datagram(wc, (uint32_t)index);
    } else if (index < shared_receives()) {
        take_extended(wc, (uint32_t)index - DATAGRAMS);
    }
    return index < shared_receives();
}

uint32_t shared_receives(void)
{
    return DATAGRAMS + 2 * EXTENDED;
}

static int make_datagram_pair(struct rdma_cm_id *id)
{
    struct ibv_qp_init_attr init = {
        .send_cq = queue,
        .recv_cq = queue,
        .srq = datagrams,
        .qp_type = IBV_QPT_UD,
        .cap = {.max_send_wr = 1, .max_send_sge = 1},
    };
    return rdma_create_qp(id, domain, &init);
}

/* Datagrams have one queue pair, of the first that asks; the others are told its number. */
void shared_answer(const struct rdma_cm_event *event)
{
    struct rdma_conn_param answer = {.qp_num = datagram_id != NULL ? datagram_id->qp->qp_num : 0};
    if (datagram_id == NULL) {
        need(make_datagram_pair(event->id) == 0, "queue pair for datagrams");
        datagram_id = event->id;
        answer.qp_num = datagram_id->qp->qp_num;
        need(rdma_accept(event->id, &answer) == 0, "accepting datagrams");
        return;
    }
    (void)rdma_accept(event->id, &answer); /* who asked and went away is not answered */
    rdma_destroy_id(event->id);
}

int shared_make_target(struct rdma_cm_id *id, bool sheltered)
{
    struct ibv_qp_init_attr_ex init = {
        .qp_type = IBV_QPT_XRC_RECV,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD,
        .pd = domain,
        .xrcd = extended[sheltered].xrc_domain,
    };
    return rdma_create_qp_ex(id, &init);
}

uint32_t shared_target_queue(bool sheltered)
{
    uint32_t number = 0;
    need(ibv_get_srq_num(extended[sheltered].queue, &number) == 0, "number of the XRC queue");
    return number;
}

struct ibv_pd *shared_target_domain(bool sheltered)
{
    return extended[sheltered].domain;
}

/* The second process is in one group only. */
static void join(struct rdma_event_channel *channel, const char *own, const char *group)
{
    struct sockaddr_storage here = address_of(own, 0), there = address_of(group, 0);
    struct rdma_cm_id **id = &groups[joined];
    struct rdma_cm_event *event;
    need(rdma_create_id(channel, id, NULL, RDMA_PS_UDP) == 0 &&
             rdma_bind_addr(*id, (struct sockaddr *)&here) == 0 && make_datagram_pair(*id) == 0 &&
             rdma_join_multicast(*id, (struct sockaddr *)&there, NULL) == 0 &&
             rdma_get_cm_event(channel, &event) == 0 &&
             event->event == RDMA_CM_EVENT_MULTICAST_JOIN,
         group);
    rdma_ack_cm_event(event);
    joined++;
}

static void make_extended(struct extended *one, struct ibv_context *context)
{
    struct ibv_xrcd_init_attr init = {
        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
        .fd = -1,
        .oflags = O_CREAT,
    };
    one->xrc_domain = ibv_open_xrcd(context, &init);
    one->domain = ibv_alloc_pd(context);
    need(one->xrc_domain != NULL && one->domain != NULL, "domains of XRC");
    struct ibv_srq_init_attr_ex queue_init = {
        .attr = {.max_wr = EXTENDED, .max_sge = 1},
        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                     IBV_SRQ_INIT_ATTR_CQ,
        .srq_type = IBV_SRQT_XRC,
        .pd = one->domain,
        .xrcd = one->xrc_domain,
        .cq = queue,
    };
    one->queue = ibv_create_srq_ex(context, &queue_init);
    one->region = ibv_reg_mr(one->domain, one->inbox, sizeof one->inbox, IBV_ACCESS_LOCAL_WRITE);
    need(one->queue != NULL && one->region != NULL, "shared receive queue of XRC");
}

void shared_set_up(struct rdma_event_channel *channel, struct ibv_context *context,
                   struct ibv_cq *completions)
{
    queue = completions;
    domain = ibv_alloc_pd(context);
    need(domain != NULL, "protection domain");
    datagram_region =
        ibv_reg_mr(domain, datagram_inbox, sizeof datagram_inbox, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_srq_init_attr init = {.attr = {.max_wr = DATAGRAMS, .max_sge = 1}};
    datagrams = ibv_create_srq(domain, &init);
    need(datagram_region != NULL && datagrams != NULL, "shared receive queue");
    for (uint32_t i = 0; i < DATAGRAMS; i++) {
        post_datagram(i);
    }
    make_extended(&extended[false], context);
    make_extended(&extended[true], context);
    for (uint32_t i = 0; i < 2 * EXTENDED; i++) {
        post_extended(i);
    }
    join(channel, SERVER_IPV4, GROUP_IPV4);
    if (own_port(0) == 0) {
        join(channel, SERVER_IPV6, GROUP_IPV6);
    }
}

static void end_id(struct rdma_cm_id *id)
{
    if (id != NULL) {
        rdma_destroy_qp(id);
        rdma_destroy_id(id);
    }
}

void shared_tear_down(void)
{
    end_id(datagram_id);
    for (uint32_t i = 0; i < GROUPS; i++) {
        end_id(groups[i]);
    }
    ibv_destroy_srq(datagrams);
    ibv_dereg_mr(datagram_region);
    ibv_dealloc_pd(domain);
    for (int i = 0; i < 2; i++) {
        ibv_destroy_srq(extended[i].queue);
        ibv_dereg_mr(extended[i].region);
        ibv_dealloc_pd(extended[i].domain);
        ibv_close_xrcd(extended[i].xrc_domain);
    }
}
