#include "pair.h"

#include <time.h>
#include <unistd.h>

void expect(bool truth, const char *what)
{
    if (!truth) {
        fprintf(stderr, "unexpected: not %s\n", what);
        exit(2);
    }
}

static int first_gid(struct ibv_context *context, union ibv_gid *ret_gid)
{
    struct ibv_gid_entry entry;
    for (uint32_t i = 0; i < 256; i++) {
        if (ibv_query_gid_ex(context, 1, i, &entry, 0) == 0 &&
            entry.gid_type == IBV_GID_TYPE_ROCE_V2) {
            *ret_gid = entry.gid;
            return (int)i;
        }
    }
    expect(false, "a device with a RoCEv2 GID");
    return -1;
}

static struct end open_end(struct pair *pair, const struct pair_options *options,
                           struct ibv_comp_channel *channel)
{
    struct end end = {0};
    end.cq = ibv_create_cq(pair->context, options->cqe != 0 ? options->cqe : 64, NULL, channel, 0);
    expect(end.cq != NULL, "a completion queue");
    struct ibv_qp_init_attr init = {
        .send_cq = end.cq,
        .recv_cq = end.cq,
        .qp_type = options->datagram ? IBV_QPT_UD : IBV_QPT_RC,
        .cap = {.max_send_wr = options->max_send != 0 ? options->max_send : 16,
                .max_recv_wr = 16,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 64},
    };
    end.qp = ibv_create_qp(pair->pd, &init);
    expect(end.qp != NULL, "a queue pair");
    return end;
}

#define QKEY 0x1111u

static void ready_datagrams(struct pair *pair, struct end *end, const struct end *peer)
{
    union ibv_gid gid;
    struct ibv_ah_attr address = {.is_global = 1, .port_num = 1};
    address.grh.sgid_index = (uint8_t)first_gid(pair->context, &gid);
    address.grh.dgid = gid;
    address.grh.hop_limit = 64;
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
    expect(ibv_modify_qp(end->qp, &attributes,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0,
           "INIT");
    attributes.qp_state = IBV_QPS_RTR;
    expect(ibv_modify_qp(end->qp, &attributes, IBV_QP_STATE) == 0, "RTR");
    attributes.qp_state = IBV_QPS_RTS;
    expect(ibv_modify_qp(end->qp, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0, "RTS");
    end->ah = ibv_create_ah(pair->pd, &address);
    expect(end->ah != NULL, "an address handle");
    end->peer = peer->qp->qp_num;
}

static void connect_end(struct pair *pair, const struct pair_options *options, struct end *end,
                        const struct end *peer)
{
    union ibv_gid gid;
    int index = first_gid(pair->context, &gid);
    unsigned all = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_INIT,
        .port_num = 1,
        .qp_access_flags = options->no_access     ? 0
                           : options->access != 0 ? options->access
                                                  : all,
    };
    expect(ibv_modify_qp(end->qp, &attributes,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
           "INIT");
    attributes = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = peer->qp->qp_num,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = options->rnr_timer != 0 ? options->rnr_timer : 12,
        .ah_attr = {.is_global = 1,
                    .port_num = 1,
                    .grh = {.dgid = gid, .sgid_index = (uint8_t)index, .hop_limit = 64}},
    };
    expect(ibv_modify_qp(end->qp, &attributes,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
           "RTR");
    attributes = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS,
        .timeout = 14,
        .retry_cnt = 7,
        .rnr_retry = options->never_retries    ? 0
                     : options->rnr_retry != 0 ? options->rnr_retry
                                               : 7,
        .max_rd_atomic = 1,
    };
    expect(ibv_modify_qp(end->qp, &attributes,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
           "RTS");
}

struct pair pair_open(const struct pair_options *options)
{
    static const struct pair_options none;
    struct pair pair = {0};
    options = options != NULL ? options : &none;
    struct ibv_device **list = ibv_get_device_list(NULL);
    expect(list != NULL && list[0] != NULL, "a device");
    pair.context = ibv_open_device(list[0]);
    expect(pair.context != NULL, "an open device");
    ibv_free_device_list(list);
    pair.pd = ibv_alloc_pd(pair.context);
    expect(pair.pd != NULL, "a protection domain");
    if (options->has_channel) {
        pair.channel = ibv_create_comp_channel(pair.context);
        expect(pair.channel != NULL, "a completion channel");
    }
    pair.a = open_end(&pair, options, NULL);
    pair.b = open_end(&pair, options, pair.channel);
    if (options->datagram) {
        ready_datagrams(&pair, &pair.a, &pair.b);
        ready_datagrams(&pair, &pair.b, &pair.a);
        return pair;
    }
    connect_end(&pair, options, &pair.a, &pair.b);
    connect_end(&pair, options, &pair.b, &pair.a);
    return pair;
}

void pair_close(struct pair *pair)
{
    if (pair->a.ah != NULL) {
        expect(ibv_destroy_ah(pair->a.ah) == 0 && ibv_destroy_ah(pair->b.ah) == 0, "freed AHs");
    }
    expect(ibv_destroy_qp(pair->a.qp) == 0 && ibv_destroy_qp(pair->b.qp) == 0, "destroyed QPs");
    expect(ibv_destroy_cq(pair->a.cq) == 0 && ibv_destroy_cq(pair->b.cq) == 0, "destroyed CQs");
    if (pair->channel != NULL) {
        expect(ibv_destroy_comp_channel(pair->channel) == 0, "a destroyed channel");
    }
    expect(ibv_dealloc_pd(pair->pd) == 0, "a freed protection domain");
    ibv_close_device(pair->context);
}

struct ibv_mr *pair_register(struct pair *pair, void *bytes, size_t length, int access)
{
    struct ibv_mr *mr = ibv_reg_mr(pair->pd, bytes, length, access);
    expect(mr != NULL, "a memory region");
    return mr;
}

void *pair_pages(size_t length)
{
    void *bytes = aligned_alloc((size_t)sysconf(_SC_PAGESIZE), length);
    expect(bytes != NULL, "memory");
    memset(bytes, 0, length);
    return bytes;
}

void pair_post_receive(struct end *end, struct ibv_mr *mr, uint32_t length)
{
    struct ibv_sge sge = {.addr = (uintptr_t)mr->addr, .length = length, .lkey = mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    expect(ibv_post_recv(end->qp, &wr, &bad) == 0, "a posted receive");
}

int pair_post(struct end *end, enum ibv_wr_opcode opcode, unsigned flags, struct ibv_mr *local,
              uint32_t length, uint64_t remote_address, uint32_t remote_key)
{
    struct ibv_sge sge = {.addr = (uintptr_t)local->addr, .length = length, .lkey = local->lkey};
    struct ibv_send_wr wr = {.opcode = opcode, .send_flags = flags, .sg_list = &sge, .num_sge = 1};
    struct ibv_send_wr *bad;
    if (end->ah != NULL) {
        wr.wr.ud.ah = end->ah;
        wr.wr.ud.remote_qpn = end->peer;
        wr.wr.ud.remote_qkey = QKEY;
    } else {
        wr.wr.rdma.remote_addr = remote_address;
        wr.wr.rdma.rkey = remote_key;
    }
    return ibv_post_send(end->qp, &wr, &bad);
}

enum ibv_wc_status pair_poll(struct end *end)
{
    struct ibv_wc wc;
    time_t start = time(NULL);
    int count;
    while ((count = ibv_poll_cq(end->cq, 1, &wc)) == 0) {
        expect(time(NULL) - start < 25, "a completion within 25 s");
    }
    expect(count == 1, "a completion");
    return wc.status;
}

void pair_look(struct end *end)
{
    struct ibv_wc wc;
    for (int i = 0; i < 50; i++) { /* each drives, too, unless somebody else is at it */
        expect(ibv_poll_cq(end->cq, 1, &wc) == 0, "no completion");
        usleep(1000);
    }
}
