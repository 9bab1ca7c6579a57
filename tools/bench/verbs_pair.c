#include "tools/bench/verbs_pair.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define INLINE_MAX       64
#define LATENCY_CAPACITY 64
#define RECEIVES         512 /* so that a sender of many waits for the network, not for these */
#define BATCH            16
#define READS_MAX        16
#define SPINS            4096
#define ACK_TIMEOUT      14
#define RETRY_COUNT      7
#define RNR_FOREVER      7
#define MIN_RNR_TIMER    1 /* 10 us */

static const struct verbs *verbs_of(const struct verbs_pair *pair)
{
    return &pair->fabric->library.verbs;
}

static unsigned least(unsigned a, int b)
{
    return b > 0 && (unsigned)b < a ? (unsigned)b : a;
}

static bool post_receive(struct verbs_pair *pair, struct weir_error *ret_error)
{
    struct ibv_sge piece = {
        .addr = (uintptr_t)(pair->bytes + pair->span),
        .length = (uint32_t)pair->carrier.item.size,
        .lkey = pair->region->lkey,
    };
    struct ibv_recv_wr request = {.sg_list = &piece, .num_sge = 1};
    struct ibv_recv_wr *bad;
    int error = ibv_post_recv(pair->pair, &request, &bad);
    return error == 0 || control_error(ret_error, WEIR_SYSTEM, "a receive could not be posted: %s",
                                       strerror(error));
}

static void choose_depths(struct verbs_pair *pair)
{
    const struct plan_case *item = &pair->carrier.item;
    bool is_latency = item->measure == PLAN_LATENCY;
    int most = pair->fabric->attributes.max_qp_wr;
    pair->capacity = least(is_latency ? LATENCY_CAPACITY : item->depth, most);
    pair->signal_every = pair->capacity / 4 > 16  ? 16
                         : pair->capacity / 4 > 1 ? pair->capacity / 4
                                                  : 1;
    pair->receives = plan_is_received(item->operation)
                         ? least(is_latency ? LATENCY_CAPACITY : RECEIVES, most)
                         : 0;
}

static bool create_queue_pair(struct verbs_pair *pair, struct weir_error *ret_error)
{
    const struct verbs *verbs = verbs_of(pair);
    const struct plan_case *item = &pair->carrier.item;
    bool may_inline = item->size <= INLINE_MAX && item->operation <= PLAN_WRITE_IMMEDIATE;
    struct ibv_qp_init_attr attributes = {
        .send_cq = pair->queue,
        .recv_cq = pair->queue,
        .cap = {.max_send_wr = pair->capacity,
                .max_recv_wr = pair->receives > 0 ? pair->receives : 1,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = may_inline ? (uint32_t)item->size : 0},
        .qp_type = IBV_QPT_RC,
    };
    pair->pair = verbs->create_qp(pair->pd, &attributes);
    if (pair->pair == NULL && may_inline) {
        attributes.cap.max_inline_data = 0;
        pair->pair = verbs->create_qp(pair->pd, &attributes);
    }
    pair->inline_max = may_inline ? attributes.cap.max_inline_data : 0;
    return pair->pair != NULL || control_error(ret_error, WEIR_SYSTEM, "%s: queue pair: %s",
                                               pair->fabric->device, strerror(errno));
}

static bool bring_to_init(struct verbs_pair *pair, int access, struct weir_error *ret_error)
{
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_INIT,
        .port_num = pair->fabric->port,
        .qp_access_flags = (unsigned)access & ~(unsigned)IBV_ACCESS_LOCAL_WRITE,
    };
    int error = verbs_of(pair)->modify_qp(pair->pair, &attributes,
                                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                              IBV_QP_ACCESS_FLAGS);
    if (error != 0) {
        return control_error(ret_error, WEIR_SYSTEM, "queue pair to INIT: %s", strerror(error));
    }
    for (unsigned i = 0; i < pair->receives; i++) {
        if (!post_receive(pair, ret_error)) {
            return false;
        }
    }
    return true;
}

static bool find_own_address(struct verbs_pair *pair, struct weir_error *ret_error)
{
    struct sockaddr_storage local;
    char host[CONTROL_ADDRESS_MAX];
    pair->gid_index = control_local(pair->carrier.control, &local, host)
                          ? fabric_choose_gid(pair->fabric, (struct sockaddr *)&local, &pair->gid)
                          : -1;
    getrandom(&pair->psn, sizeof(pair->psn), 0);
    pair->psn &= 0xffffff;
    return pair->gid_index >= 0 || fabric_say_no_gid(pair->fabric, ret_error) == WEIR_OK;
}

bool verbs_pair_create(struct verbs_pair *pair, struct weir_error *ret_error)
{
    const struct verbs *verbs = verbs_of(pair);
    const struct plan_case *item = &pair->carrier.item;
    struct ibv_context *context = pair->fabric->context;
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    if (plan_is_atomic(item->operation)) {
        if (pair->fabric->attributes.atomic_cap == IBV_ATOMIC_NONE) {
            return control_error(ret_error, WEIR_UNSUPPORTED, "%s has no atomic operations",
                                 pair->fabric->device);
        }
        access |= IBV_ACCESS_REMOTE_ATOMIC;
    }
    choose_depths(pair);
    pair->bytes = carrier_map(&pair->carrier, &pair->span, ret_error);
    if (pair->bytes == NULL) {
        return false;
    }
    if (plan_is_atomic(item->operation)) { /* the word is counted up from zero */
        memset(pair->bytes + pair->span, 0, item->size);
    } else if (plan_is_ping_pong(item) && item->operation == PLAN_WRITE) {
        pair->bytes[pair->span + item->size - 1] = 0;
    }
    pair->pd = verbs->alloc_pd(context);
    pair->region =
        pair->pd != NULL ? verbs->reg_mr(pair->pd, pair->bytes, 2 * pair->span, access) : NULL;
    pair->channel = pair->region != NULL ? verbs->create_comp_channel(context) : NULL;
    pair->queue = pair->channel != NULL
                      ? verbs->create_cq(context, (int)(pair->capacity + pair->receives), NULL,
                                         pair->channel, 0)
                      : NULL;
    if (pair->queue == NULL) {
        return control_error(ret_error, WEIR_NO_MEMORY, "%s: %s of %zu B: %s", pair->fabric->device,
                             pair->region == NULL ? "registration" : "queues for operations",
                             2 * pair->span, strerror(errno));
    }
    return find_own_address(pair, ret_error) && create_queue_pair(pair, ret_error) &&
           bring_to_init(pair, access, ret_error);
}

void verbs_pair_destroy(struct verbs_pair *pair)
{
    const struct verbs *verbs = verbs_of(pair);
    if (pair->pair != NULL) {
        verbs->destroy_qp(pair->pair);
    }
    if (pair->queue != NULL) {
        verbs->destroy_cq(pair->queue);
    }
    if (pair->channel != NULL) {
        verbs->destroy_comp_channel(pair->channel);
    }
    if (pair->region != NULL) {
        verbs->dereg_mr(pair->region);
    }
    if (pair->pd != NULL) {
        verbs->dealloc_pd(pair->pd);
    }
    carrier_unmap(pair->bytes, pair->span);
}

/* --- the two ends tell each other --- */

json_t *verbs_pair_describe(const struct carrier *carrier)
{
    const struct verbs_pair *pair = (const struct verbs_pair *)carrier;
    const struct ibv_port_attr *port = &pair->fabric->port_attributes;
    char gid[33];
    for (unsigned i = 0; i < 16; i++) {
        snprintf(gid + 2 * i, 3, "%02x", pair->gid.raw[i]);
    }
    return json_pack("{s:I, s:I, s:s, s:i, s:i, s:b, s:I, s:I, s:i}", "qpn",
                     (json_int_t)pair->pair->qp_num, "psn", (json_int_t)pair->psn, "gid", gid,
                     "lid", (int)port->lid, "mtu", (int)port->active_mtu, "infiniband",
                     port->link_layer == IBV_LINK_LAYER_INFINIBAND, "address",
                     (json_int_t)(uintptr_t)pair->bytes, "key", (json_int_t)pair->region->rkey,
                     "reads", (int)least(READS_MAX, pair->fabric->attributes.max_qp_rd_atom));
}

struct remote {
    json_int_t qpn, psn, address, key;
    int lid, mtu, infiniband, reads;
    union ibv_gid gid;
};

static bool parse_remote(const json_t *peer, struct remote *ret_remote)
{
    const char *gid;
    if (json_unpack((json_t *)peer, "{s:I, s:I, s:s, s:i, s:i, s:b, s:I, s:I, s:i}", "qpn",
                    &ret_remote->qpn, "psn", &ret_remote->psn, "gid", &gid, "lid", &ret_remote->lid,
                    "mtu", &ret_remote->mtu, "infiniband", &ret_remote->infiniband, "address",
                    &ret_remote->address, "key", &ret_remote->key, "reads",
                    &ret_remote->reads) != 0 ||
        strlen(gid) != 32 || ret_remote->mtu < IBV_MTU_256 || ret_remote->mtu > IBV_MTU_4096 ||
        ret_remote->reads < 0 || ret_remote->reads > READS_MAX) {
        return false;
    }
    for (unsigned i = 0; i < 16; i++) {
        unsigned value;
        if (sscanf(gid + 2 * i, "%2x", &value) != 1) {
            return false;
        }
        ret_remote->gid.raw[i] = (uint8_t)value;
    }
    return true;
}

/* 0, or what the call says. */
static int bring_up(struct verbs_pair *pair, const struct remote *remote)
{
    const struct ibv_port_attr *port = &pair->fabric->port_attributes;
    const struct ibv_device_attr *device = &pair->fabric->attributes;
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = (enum ibv_mtu)least(port->active_mtu, remote->mtu),
        .dest_qp_num = (uint32_t)remote->qpn,
        .rq_psn = (uint32_t)remote->psn,
        .max_dest_rd_atomic = (uint8_t)least(READS_MAX, device->max_qp_rd_atom),
        .min_rnr_timer = MIN_RNR_TIMER,
        .ah_attr = {.port_num = pair->fabric->port,
                    .dlid = (uint16_t)remote->lid,
                    .is_global = port->link_layer != IBV_LINK_LAYER_INFINIBAND,
                    .grh = {.dgid = remote->gid,
                            .sgid_index = (uint8_t)pair->gid_index,
                            .hop_limit = 64}},
    };
    int (*modify)(struct ibv_qp *, struct ibv_qp_attr *, int) = verbs_of(pair)->modify_qp;
    int error = modify(pair->pair, &attributes,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (error != 0) {
        return error;
    }
    attributes = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS,
        .sq_psn = pair->psn,
        .timeout = ACK_TIMEOUT,
        .retry_cnt = RETRY_COUNT,
        .rnr_retry = RNR_FOREVER,
        .max_rd_atomic =
            (uint8_t)least(least(READS_MAX, device->max_qp_init_rd_atom), remote->reads),
    };
    return modify(pair->pair, &attributes,
                  IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

bool verbs_pair_attach(struct carrier *carrier, const json_t *peer, struct weir_error *ret_error)
{
    struct verbs_pair *pair = (struct verbs_pair *)carrier;
    struct remote remote;
    if (!parse_remote(peer, &remote)) {
        return control_error(ret_error, WEIR_PROTOCOL, "the other end describes no queue pair");
    }
    pair->remote_address = (uint64_t)remote.address;
    pair->remote_key = (uint32_t)remote.key;
    int error = bring_up(pair, &remote);
    return error == 0 ||
           control_error(ret_error, WEIR_UNREACHABLE, "%s: queue pair to the other end's: %s",
                         pair->fabric->device, strerror(error));
}

/* --- posting and completing --- */

static const enum ibv_wr_opcode opcodes[] = {
    [PLAN_SEND] = IBV_WR_SEND,
    [PLAN_WRITE] = IBV_WR_RDMA_WRITE,
    [PLAN_WRITE_IMMEDIATE] = IBV_WR_RDMA_WRITE_WITH_IMM,
    [PLAN_READ] = IBV_WR_RDMA_READ,
    [PLAN_FETCH_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
    [PLAN_COMPARE_SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP,
};

bool verbs_pair_post(struct verbs_pair *pair, bool is_signalled, struct weir_error *ret_error)
{
    const struct plan_case *item = &pair->carrier.item;
    bool is_read = item->operation == PLAN_READ;
    struct ibv_sge piece = {
        .addr = (uintptr_t)(pair->bytes + (is_read ? pair->span : 0)),
        .length = (uint32_t)item->size,
        .lkey = pair->region->lkey,
    };
    struct ibv_send_wr request = {
        .wr_id = pair->posted,
        .sg_list = &piece,
        .num_sge = 1,
        .opcode = opcodes[item->operation],
        .send_flags = (is_signalled ? IBV_SEND_SIGNALED : 0) |
                      (item->size <= pair->inline_max ? IBV_SEND_INLINE : 0),
    };
    uint64_t address = pair->remote_address + (is_read ? 0 : pair->span);
    if (plan_is_atomic(item->operation)) {
        bool is_add = item->operation == PLAN_FETCH_ADD;
        request.wr.atomic.remote_addr = address;
        request.wr.atomic.rkey = pair->remote_key;
        request.wr.atomic.compare_add = is_add ? 1 : pair->posted;
        request.wr.atomic.swap = pair->posted + 1;
    } else {
        request.wr.rdma.remote_addr = address;
        request.wr.rdma.rkey = pair->remote_key;
    }
    struct ibv_send_wr *bad;
    int error = ibv_post_send(pair->pair, &request, &bad);
    pair->posted += error == 0;
    return error == 0 || control_error(ret_error, WEIR_SYSTEM, "%s could not be posted: %s",
                                       plan_operation_name(item->operation), strerror(error));
}

int verbs_pair_take(struct verbs_pair *pair, struct weir_error *ret_error)
{
    struct ibv_wc completions[BATCH];
    int count = ibv_poll_cq(pair->queue, BATCH, completions);
    for (int i = 0; i < count; i++) {
        if (completions[i].status != IBV_WC_SUCCESS) {
            control_error(ret_error, WEIR_PEER_LOST, "%s of %zu B failed: %s",
                          plan_operation_name(pair->carrier.item.operation),
                          pair->carrier.item.size,
                          verbs_of(pair)->wc_status_str(completions[i].status));
            return -1;
        }
        if ((completions[i].opcode & IBV_WC_RECV) == 0) {
            pair->completed = completions[i].wr_id + 1;
            continue;
        }
        pair->received++;
        if (!post_receive(pair, ret_error)) {
            return -1;
        }
    }
    if (count < 0) {
        control_error(ret_error, WEIR_SYSTEM, "the completion queue cannot be polled");
    }
    return count;
}

/* Until the completion queue has an event, or a moment has passed. */
static bool sleep_for_event(struct verbs_pair *pair, uint64_t *since_ns,
                            struct weir_error *ret_error)
{
    const struct verbs *verbs = verbs_of(pair);
    struct pollfd waits[2] = {{.fd = pair->channel->fd, .events = POLLIN},
                              {.fd = pair->carrier.control->fd, .events = POLLRDHUP}};
    struct ibv_cq *queue;
    void *user;
    if (poll(waits, 2, 1000) > 0 && waits[0].revents != 0) {
        if (verbs->get_cq_event(pair->channel, &queue, &user) == 0) {
            verbs->ack_cq_events(queue, 1);
        }
        return true;
    }
    return carrier_may_wait(&pair->carrier, since_ns, ret_error);
}

bool verbs_pair_wait(struct verbs_pair *pair, struct weir_error *ret_error)
{
    bool is_armed = false;
    uint64_t since_ns = 0;
    for (unsigned spins = 1;; spins++) {
        int count = verbs_pair_take(pair, ret_error);
        if (count != 0) {
            return count > 0 && carrier_may_go_on(ret_error);
        }
        if (!pair->carrier.item.is_blocked) {
            if (spins % SPINS == 0 && !carrier_may_wait(&pair->carrier, &since_ns, ret_error)) {
                return false;
            }
        } else if (!is_armed) { /* then it must be looked at once more */
            is_armed = ibv_req_notify_cq(pair->queue, 0) == 0;
        } else if (!sleep_for_event(pair, &since_ns, ret_error)) {
            return false;
        } else {
            is_armed = false;
        }
    }
}
