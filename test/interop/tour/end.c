#include "test/interop/tour/end.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define GUARD        4096u
#define PAGES_LENGTH (GUARD + REGION_LENGTH + GUARD + REGION_LENGTH)
#define EVERYTHING                                                                                 \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |                   \
     IBV_ACCESS_REMOTE_ATOMIC)
#define RNR_TIMER_640_US 12
#define TIMER_PATIENT    17 /* 0.5 s: a busy peer is not taken for a dead one */
#define TIMER_SHORT      12 /* 17 ms */
#define ORDINARY_CQE     16

static void *needed(void *object, const char *what)
{
    if (object == NULL) {
        tour_die("%s", what);
    }
    return object;
}

static bool find_gid(struct end *end, const struct link *link)
{
    struct ibv_port_attr port;
    if (ibv_query_port(end->context, 1, &port) != 0) {
        return false;
    }
    for (int i = 0; i < port.gid_tbl_len; i++) {
        if (ibv_query_gid(end->context, 1, i, &end->gid) == 0 &&
            memcmp(end->gid.raw, &link->local.sin6_addr, sizeof end->gid.raw) == 0) {
            end->gid_index = (uint8_t)i;
            return true;
        }
    }
    return false;
}

void end_open(struct end *end, const struct link *link)
{
    int count;
    struct ibv_device **devices = needed(ibv_get_device_list(&count), "ibv_get_device_list");
    for (int i = 0; i < count; i++) {
        end->context = needed(ibv_open_device(devices[i]), "ibv_open_device");
        if (find_gid(end, link)) {
            snprintf(end->stack, sizeof end->stack, "%s", ibv_get_device_name(devices[i]));
            end->stack[strcspn(end->stack, "0123456789")] = '\0';
            break;
        }
        ibv_close_device(end->context);
        end->context = NULL;
    }
    ibv_free_device_list(devices);
    errno = 0;
    needed(end->context, "no device has this address");
    end->pd = needed(ibv_alloc_pd(end->context), "ibv_alloc_pd");
    end->other_pd = needed(ibv_alloc_pd(end->context), "ibv_alloc_pd");
    end->pages =
        mmap(NULL, PAGES_LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (end->pages == MAP_FAILED) {
        tour_die("mmap");
    }
}

void end_close(struct end *end)
{
    munmap(end->pages, PAGES_LENGTH);
    ibv_dealloc_pd(end->other_pd);
    ibv_dealloc_pd(end->pd);
    ibv_close_device(end->context);
}

static void register_regions(struct end *end, const struct tour_case *row, bool is_responder)
{
    unsigned access = EVERYTHING & ~(is_responder ? row->region_lacks : 0);
    uint8_t *target = end->pages + GUARD, *buffer = end->pages + PAGES_LENGTH - REGION_LENGTH;
    memset(end->pages, TARGET_FILL, GUARD + REGION_LENGTH + GUARD);
    memset(buffer, BUFFER_FILL, REGION_LENGTH);
    end->target = needed(ibv_reg_mr(end->pd, target, REGION_LENGTH, (int)access), "ibv_reg_mr");
    end->other_target =
        needed(ibv_reg_mr(end->other_pd, target, REGION_LENGTH, EVERYTHING), "ibv_reg_mr");
    end->buffer =
        needed(ibv_reg_mr(end->pd, buffer, REGION_LENGTH, IBV_ACCESS_LOCAL_WRITE), "ibv_reg_mr");
    end->other_buffer = needed(
        ibv_reg_mr(end->other_pd, buffer, REGION_LENGTH, IBV_ACCESS_LOCAL_WRITE), "ibv_reg_mr");
    end->read_only = needed(ibv_reg_mr(end->pd, buffer, REGION_LENGTH, 0), "ibv_reg_mr");
}

static enum ibv_qp_type type_of(const struct tour_case *row)
{
    return row->type != 0 ? row->type : IBV_QPT_RC;
}

static int to_init(struct end *end, const struct tour_case *row, bool is_responder)
{
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = TOUR_QKEY};
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    if (type_of(row) == IBV_QPT_UD) {
        mask |= IBV_QP_QKEY;
    } else {
        mask |= IBV_QP_ACCESS_FLAGS;
        attributes.qp_access_flags = EVERYTHING & ~(is_responder ? row->qp_lacks : 0);
        if (type_of(row) == IBV_QPT_UC) {
            attributes.qp_access_flags &= ~(unsigned)IBV_ACCESS_REMOTE_ATOMIC;
        }
    }
    return ibv_modify_qp(end->qp, &attributes, mask);
}

void end_prepare(struct end *end, const struct tour_case *row, bool is_responder)
{
    register_regions(end, row, is_responder);
    end->send_cq = needed(ibv_create_cq(end->context, ORDINARY_CQE, NULL, NULL, 0), "send CQ");
    int wanted = is_responder && row->as_receives ? 1 : ORDINARY_CQE;
    end->receive_cq = needed(ibv_create_cq(end->context, wanted, NULL, NULL, 0), "receive CQ");
    end->cqe = (unsigned)end->receive_cq->cqe;
    struct ibv_qp_init_attr init = {
        .send_cq = end->send_cq,
        .recv_cq = end->receive_cq,
        .cap = {.max_send_wr = 300, .max_recv_wr = 300, .max_send_sge = 2, .max_recv_sge = 2},
        .qp_type = type_of(row),
    };
    if (is_responder && row->shared_queue) {
        struct ibv_srq_init_attr shared = {.attr = {.max_wr = 16, .max_sge = 2}};
        end->srq = init.srq = needed(ibv_create_srq(end->pd, &shared), "ibv_create_srq");
    }
    end->qp = needed(ibv_create_qp(end->pd, &init), "ibv_create_qp");
    end->psn = 0xfffffe; /* wraps within a case */
    errno = to_init(end, row, is_responder);
    if (errno != 0) {
        tour_die("queue pair to INIT");
    }
}

struct introduction end_introduce(const struct end *end)
{
    struct introduction mine = {
        .qpn = end->qp->qp_num,
        .psn = end->psn,
        .rkey = end->target->rkey,
        .other_rkey = end->other_target->rkey,
        .cqe = end->cqe,
        .address = (uintptr_t)end->target->addr,
        .gid = end->gid,
    };
    memcpy(mine.stack, end->stack, sizeof mine.stack);
    return mine;
}

static struct ibv_ah_attr way_to(const struct end *end, const struct introduction *peer)
{
    return (struct ibv_ah_attr){
        .is_global = 1,
        .port_num = 1,
        .grh = {.dgid = peer->gid, .sgid_index = end->gid_index, .hop_limit = 64},
    };
}

uint32_t end_scaled(const struct end *end, uint32_t length)
{
    bool is_packet = length >= TOUR_MTU / 2 && length <= 4 * TOUR_MTU;
    return is_packet ? length * end->mtu / TOUR_MTU : length;
}

bool end_can_play(const struct end *end, const struct tour_case *row)
{
    return row->mtus == MTU_SAME || end->mtu > 256;
}

static enum ibv_mtu path_mtu(const struct end *end, const struct tour_case *row, bool is_responder)
{
    bool half = row->mtus == (is_responder ? MTU_HALF_OF_RESPONDER : MTU_HALF_OF_REQUESTER);
    enum ibv_mtu code = IBV_MTU_256;
    for (unsigned mtu = end->mtu / (half ? 2 : 1); mtu > 256; mtu /= 2) {
        code++;
    }
    return code;
}

static int to_rtr(struct end *end, const struct tour_case *row, bool is_responder,
                  const struct introduction *peer)
{
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = path_mtu(end, row, is_responder),
        .dest_qp_num = peer->qpn,
        .rq_psn = peer->psn,
        .max_dest_rd_atomic = is_responder && row->no_read_resources ? 0 : 4,
        .min_rnr_timer = RNR_TIMER_640_US,
        .ah_attr = way_to(end, peer),
    };
    int mask = IBV_QP_STATE;
    if (type_of(row) != IBV_QPT_UD) {
        mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    }
    if (type_of(row) == IBV_QPT_RC) {
        mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    }
    return ibv_modify_qp(end->qp, &attributes, mask);
}

static int to_rts(struct end *end, const struct tour_case *row)
{
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_RTS,
        .sq_psn = end->psn,
        .timeout = row->gives_up ? TIMER_SHORT : TIMER_PATIENT,
        .retry_cnt = row->gives_up ? 2 : 7,
        .rnr_retry = (uint8_t)(row->rnr_retry > 0 ? row->rnr_retry - 1 : 7),
        .max_rd_atomic = 4,
    };
    int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (type_of(row) == IBV_QPT_RC) {
        mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    }
    return ibv_modify_qp(end->qp, &attributes, mask);
}

static void change_state(struct end *end, enum ibv_qp_state state)
{
    struct ibv_qp_attr attributes = {.qp_state = state};
    errno = ibv_modify_qp(end->qp, &attributes, IBV_QP_STATE);
    if (errno != 0) {
        tour_die("queue pair to state %d", state);
    }
}

void end_connect(struct end *end, const struct tour_case *row, bool is_responder,
                 const struct introduction *peer)
{
    if (is_responder && row->readiness == NOT_INIT) {
        return;
    }
    errno = to_rtr(end, row, is_responder, peer);
    if (errno != 0) {
        tour_die("queue pair to RTR");
    }
    errno = to_rts(end, row);
    if (errno != 0) {
        tour_die("queue pair to RTS");
    }
    if (type_of(row) == IBV_QPT_UD) {
        struct ibv_ah_attr way = way_to(end, peer);
        end->ah = needed(ibv_create_ah(end->pd, &way), "ibv_create_ah");
    }
    if (!is_responder) {
        return;
    }
    if (row->readiness == NOT_RESET || row->readiness == NOT_ERROR) {
        change_state(end, row->readiness == NOT_RESET ? IBV_QPS_RESET : IBV_QPS_ERR);
    } else if (row->readiness == NOT_THERE) {
        ibv_destroy_qp(end->qp);
        end->qp = NULL;
    }
}

static void deregister(struct ibv_mr **mr)
{
    ibv_dereg_mr(*mr);
    *mr = NULL;
}

void end_clear(struct end *end)
{
    if (end->ah != NULL) {
        ibv_destroy_ah(end->ah);
        end->ah = NULL;
    }
    if (end->qp != NULL && ibv_destroy_qp(end->qp) != 0) {
        tour_die("ibv_destroy_qp");
    }
    end->qp = NULL;
    if (end->srq != NULL) {
        ibv_destroy_srq(end->srq);
        end->srq = NULL;
    }
    if (ibv_destroy_cq(end->send_cq) != 0 || ibv_destroy_cq(end->receive_cq) != 0) {
        tour_die("ibv_destroy_cq");
    }
    deregister(&end->target);
    deregister(&end->other_target);
    deregister(&end->buffer);
    deregister(&end->other_buffer);
    deregister(&end->read_only);
}

static uint32_t local_key(const struct end *end, enum key key)
{
    switch (key) {
    case KEY_UNKNOWN:
        return ~end->buffer->lkey;
    case KEY_OTHER_DOMAIN:
        return end->other_buffer->lkey;
    case KEY_READ_ONLY:
        return end->read_only->lkey;
    default:
        return end->buffer->lkey;
    }
}

void end_post_receive(struct end *end, const struct tour_case *row)
{
    struct ibv_sge sge = {
        .addr = (uintptr_t)end->buffer->addr,
        .length = row->receives == RECEIVES_SHORT ? SHORT_LENGTH : RECEIVE_LENGTH,
        .lkey = local_key(end, row->receives == RECEIVES_BAD_KEY ? KEY_UNKNOWN : KEY_RIGHT),
    };
    if (row->receives == RECEIVES_SHORT && type_of(row) == IBV_QPT_UD) {
        sge.length += 40; /* for the GRH */
    }
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    errno = end->srq != NULL ? ibv_post_srq_recv(end->srq, &wr, &bad)
                             : ibv_post_recv(end->qp, &wr, &bad);
    if (errno != 0) {
        tour_die("a receive");
    }
}

static uint64_t aimed_at(const struct introduction *peer, const struct tour_case *row,
                         uint32_t length)
{
    switch (row->aim) {
    case AIM_PAST_END:
        return peer->address + REGION_LENGTH - length + 8;
    case AIM_BEFORE_START:
        return peer->address - 8;
    case AIM_WRAPS:
        return -(uint64_t)8;
    case AIM_MISALIGNED:
        return peer->address + 4;
    default:
        return peer->address;
    }
}

static uint32_t remote_key(const struct introduction *peer, enum key key)
{
    return key == KEY_RIGHT ? peer->rkey : key == KEY_OTHER_DOMAIN ? peer->other_rkey : ~peer->rkey;
}

static int post(struct end *end, struct ibv_send_wr *wr, const struct tour_case *row,
                const struct introduction *peer, uint32_t qkey)
{
    struct ibv_send_wr *bad;
    wr->send_flags = IBV_SEND_SIGNALED;
    if (type_of(row) == IBV_QPT_UD) {
        wr->wr.ud.ah = end->ah;
        wr->wr.ud.remote_qpn = peer->qpn;
        wr->wr.ud.remote_qkey = qkey;
    }
    return ibv_post_send(end->qp, wr, &bad);
}

int end_post_request(struct end *end, const struct tour_case *row, const struct introduction *peer)
{
    bool atomic =
        row->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || row->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
    uint32_t length = atomic                  ? 8
                      : row->mtus != MTU_SAME ? end->mtu
                      : row->length == EMPTY  ? 0
                      : row->length == 0      ? 64
                                              : row->length;
    struct ibv_sge sge = {
        .addr = (uintptr_t)end->buffer->addr,
        .length = length,
        .lkey = local_key(end, row->local_key),
    };
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = length > 0 ? 1 : 0, .opcode = row->opcode};
    uint64_t address = aimed_at(peer, row, length);
    if (atomic) {
        wr.wr.atomic.remote_addr = address;
        wr.wr.atomic.rkey = remote_key(peer, row->key);
        wr.wr.atomic.compare_add = 1;
    } else if (row->opcode != IBV_WR_SEND && row->opcode != IBV_WR_SEND_WITH_INV) {
        wr.wr.rdma.remote_addr = address;
        wr.wr.rdma.rkey = remote_key(peer, row->key);
    }
    if (row->opcode == IBV_WR_SEND_WITH_INV) {
        wr.invalidate_rkey = remote_key(peer, row->invalidate);
    }
    return post(end, &wr, row, peer, row->wrong_qkey ? TOUR_QKEY + 1 : TOUR_QKEY);
}

int end_post_fence(struct end *end, const struct tour_case *row, const struct introduction *peer)
{
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND_WITH_IMM, .wr_id = 1};
    return post(end, &wr, row, peer, TOUR_QKEY);
}

static bool filled(const uint8_t *bytes, size_t length, uint8_t with)
{
    return bytes[0] == with && memcmp(bytes, bytes + 1, length - 1) == 0;
}

const char *end_memory(const struct end *end, bool is_responder)
{
    if (is_responder) {
        return filled(end->pages, GUARD + REGION_LENGTH + GUARD, TARGET_FILL) ? "intact"
                                                                              : "written";
    }
    return filled(end->pages + PAGES_LENGTH - REGION_LENGTH, REGION_LENGTH, BUFFER_FILL) ? "intact"
                                                                                         : "read";
}

enum ibv_qp_state end_state(const struct end *end)
{
    struct ibv_qp_attr attributes;
    struct ibv_qp_init_attr init;
    errno = ibv_query_qp(end->qp, &attributes, IBV_QP_STATE, &init);
    if (errno != 0) {
        tour_die("ibv_query_qp");
    }
    return attributes.qp_state;
}
