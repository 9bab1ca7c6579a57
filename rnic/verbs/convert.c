#include "rnic/verbs/convert.h"

#include <errno.h>
#include <string.h>

#include "rnic/memory/access.h"
#include "rnic/verbs/objects.h"

#define SERVICE_LEVEL_IPV4 0xau

BUILD_CHECK((int)QP_RESET == (int)IBV_QPS_RESET && (int)QP_ERROR == (int)IBV_QPS_ERR);
BUILD_CHECK((int)PATH_MTU_256 == (int)IBV_MTU_256 && (int)PATH_MTU_4096 == (int)IBV_MTU_4096);
BUILD_CHECK((int)COMPLETION_SUCCESS == (int)IBV_WC_SUCCESS);
BUILD_CHECK((int)COMPLETION_RNR_RETRY_EXCEEDED == (int)IBV_WC_RNR_RETRY_EXC_ERR);
BUILD_CHECK((int)COMPLETION_TAG_RENDEZVOUS_INCOMPLETE == (int)IBV_WC_TM_RNDV_INCOMPLETE);

BUILD_CHECK(offsetof(struct sge, address) == offsetof(struct ibv_sge, addr));
BUILD_CHECK(offsetof(struct sge, length) == offsetof(struct ibv_sge, length));
BUILD_CHECK(offsetof(struct sge, key) == offsetof(struct ibv_sge, lkey));
BUILD_CHECK(sizeof(struct sge) == sizeof(struct ibv_sge));

void convert_sges(const struct ibv_sge *list, size_t count, struct sge *ret_sges)
{
    for (size_t i = 0; i < count; i++) { /* some programs keep theirs in packed ones (libiscsi) */
        memcpy(ret_sges + i, (const char *)list + i * sizeof *list, sizeof *list);
    }
}

void convert_send_flags(unsigned flags, struct send_request *ret_request)
{
    ret_request->signaled = (flags & IBV_SEND_SIGNALED) != 0;
    ret_request->solicited = (flags & IBV_SEND_SOLICITED) != 0;
    ret_request->fence = (flags & IBV_SEND_FENCE) != 0;
    ret_request->inline_data = (flags & IBV_SEND_INLINE) != 0;
}

static const struct {
    bool known;
    enum work_kind kind;
} operations[] = {
    [IBV_WR_RDMA_WRITE] = {true, WORK_WRITE},
    [IBV_WR_RDMA_WRITE_WITH_IMM] = {true, WORK_WRITE_IMMEDIATE},
    [IBV_WR_SEND] = {true, WORK_SEND},
    [IBV_WR_SEND_WITH_IMM] = {true, WORK_SEND_IMMEDIATE},
    [IBV_WR_RDMA_READ] = {true, WORK_READ},
    [IBV_WR_ATOMIC_CMP_AND_SWP] = {true, WORK_COMPARE_SWAP},
    [IBV_WR_ATOMIC_FETCH_AND_ADD] = {true, WORK_FETCH_ADD},
    [IBV_WR_ATOMIC_WRITE] = {true, WORK_ATOMIC_WRITE},
    [IBV_WR_LOCAL_INV] = {true, WORK_LOCAL_INVALIDATE},
    [IBV_WR_BIND_MW] = {true, WORK_BIND_WINDOW},
    [IBV_WR_SEND_WITH_INV] = {true, WORK_SEND_INVALIDATE},
};

int convert_operation(const struct ibv_send_wr *wr, struct send_request *ret_request)
{
    if ((size_t)wr->opcode >= sizeof operations / sizeof *operations ||
        !operations[wr->opcode].known) {
        return wr->opcode == IBV_WR_TSO ? EOPNOTSUPP : EINVAL;
    }
    ret_request->kind = operations[wr->opcode].kind;
    switch (ret_request->kind) {
    case WORK_SEND_INVALIDATE:
    case WORK_LOCAL_INVALIDATE:
        ret_request->invalidate = (struct memory_key){wr->invalidate_rkey};
        break;
    case WORK_COMPARE_SWAP:
        ret_request->remote_address = wr->wr.atomic.remote_addr;
        ret_request->remote_key = (struct memory_key){wr->wr.atomic.rkey};
        ret_request->compare = wr->wr.atomic.compare_add;
        ret_request->swap_or_add = wr->wr.atomic.swap;
        break;
    case WORK_FETCH_ADD:
        ret_request->remote_address = wr->wr.atomic.remote_addr;
        ret_request->remote_key = (struct memory_key){wr->wr.atomic.rkey};
        ret_request->swap_or_add = wr->wr.atomic.compare_add;
        break;
    case WORK_BIND_WINDOW:
        break;
    default:
        ret_request->immediate = wr->imm_data;
        ret_request->remote_address = wr->wr.rdma.remote_addr;
        ret_request->remote_key = (struct memory_key){wr->wr.rdma.rkey};
        break;
    }
    return 0;
}

int convert_bind(const struct ibv_mw *mw, uint32_t key, const struct ibv_mw_bind_info *info,
                 struct window_bind *ret_bind)
{
    unsigned access;
    if (!convert_access(info->mw_access_flags, &access) ||
        (info->mr == NULL && info->length != 0)) {
        return EINVAL;
    }
    *ret_bind = (struct window_bind){
        .window = {mw->rkey},
        .key = {key},
        .region = {info->mr == NULL ? 0 : info->mr->lkey},
        .address = info->addr,
        .length = info->length,
        .access = access,
    };
    return 0;
}

void convert_target(struct ibv_ah *ah, uint32_t qpn, uint32_t qkey,
                    struct datagram_target *ret_target)
{
    *ret_target = (struct datagram_target){
        .path = ((struct soft_ah *)ah)->path, .qpn = {qpn & 0xffffff}, .qkey = {qkey}};
}

enum ibv_wc_opcode convert_opcode(enum completion_kind kind)
{
    static const enum ibv_wc_opcode opcodes[] = {
        [COMPLETED_SEND] = IBV_WC_SEND,
        [COMPLETED_WRITE] = IBV_WC_RDMA_WRITE,
        [COMPLETED_READ] = IBV_WC_RDMA_READ,
        [COMPLETED_COMPARE_SWAP] = IBV_WC_COMP_SWAP,
        [COMPLETED_FETCH_ADD] = IBV_WC_FETCH_ADD,
        [COMPLETED_ATOMIC_WRITE] = IBV_WC_ATOMIC_WRITE,
        [COMPLETED_LOCAL_INVALIDATE] = IBV_WC_LOCAL_INV,
        [COMPLETED_BIND_WINDOW] = IBV_WC_BIND_MW,
        [COMPLETED_RECEIVE] = IBV_WC_RECV,
        [COMPLETED_TAG_ADD] = IBV_WC_TM_ADD,
        [COMPLETED_TAG_REMOVE] = IBV_WC_TM_DEL,
        [COMPLETED_TAG_SYNC] = IBV_WC_TM_SYNC,
        [COMPLETED_TAG_RECEIVE] = IBV_WC_TM_RECV,
        [COMPLETED_TAG_NONE] = IBV_WC_TM_NO_TAG,
        [COMPLETED_RECEIVE_WRITE_IMMEDIATE] = IBV_WC_RECV_RDMA_WITH_IMM,
    };
    return opcodes[kind];
}

unsigned convert_completion_flags(const struct completion *completion)
{
    return (completion->has_immediate ? IBV_WC_WITH_IMM : 0u) |
           (completion->has_invalidated ? IBV_WC_WITH_INV : 0u) |
           (completion->has_grh ? IBV_WC_GRH : 0u) |
           ((completion->tag_flags & TAG_MATCHED) != 0 ? IBV_WC_TM_MATCH : 0u) |
           ((completion->tag_flags & TAG_DATA_VALID) != 0 ? IBV_WC_TM_DATA_VALID : 0u) |
           ((completion->tag_flags & TAG_SYNCHRONIZE) != 0 ? IBV_WC_TM_SYNC_REQ : 0u);
}

uint8_t convert_service_level(const struct completion *completion)
{
    return completion->has_grh && completion->grh_is_ipv4 ? SERVICE_LEVEL_IPV4 : 0;
}

/* It says something that most do not. */
static bool is_marked(const struct completion *completion)
{
    return completion->has_immediate || completion->has_invalidated || completion->has_grh ||
           completion->tag_flags != 0;
}

void convert_completion(const struct completion *completion, struct ibv_wc *ret_wc)
{
    bool marked = is_marked(completion);
    *ret_wc = (struct ibv_wc){
        .wr_id = completion->id,
        .status = (enum ibv_wc_status)completion->status,
        .opcode = convert_opcode(completion->kind),
        .byte_len = completion->byte_length,
        .vendor_err = completion->detail,
        .imm_data = completion->immediate,
        .qp_num = completion->qpn.value,
        .src_qp = completion->source.value,
        .wc_flags = marked ? convert_completion_flags(completion) : 0,
        .slid = completion->source_lid,
        .sl = marked ? convert_service_level(completion) : 0,
    };
    if (marked && completion->has_invalidated) {
        ret_wc->invalidated_rkey = completion->invalidated.value;
    }
}

static const struct {
    unsigned ibv;
    unsigned access;
} rights[] = {
    {IBV_ACCESS_LOCAL_WRITE, ACCESS_LOCAL_WRITE},
    {IBV_ACCESS_REMOTE_WRITE, ACCESS_REMOTE_WRITE},
    {IBV_ACCESS_REMOTE_READ, ACCESS_REMOTE_READ},
    {IBV_ACCESS_REMOTE_ATOMIC, ACCESS_REMOTE_ATOMIC},
    {IBV_ACCESS_MW_BIND, ACCESS_BIND_WINDOW},
    {IBV_ACCESS_ZERO_BASED, ACCESS_ZERO_BASED},
    {IBV_ACCESS_ON_DEMAND, ACCESS_ON_DEMAND},
    {IBV_ACCESS_HUGETLB, 0}, /* pages of any size are alike to us */
};

bool convert_access(unsigned flags, unsigned *ret_access)
{
    unsigned access = 0;
    flags &= ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE;
    for (size_t i = 0; i < sizeof rights / sizeof *rights; i++) {
        if ((flags & rights[i].ibv) != 0) {
            access |= rights[i].access;
            flags &= ~rights[i].ibv;
        }
    }
    if (flags != 0) {
        return false;
    }
    *ret_access = access;
    return true;
}

unsigned convert_access_back(unsigned access)
{
    unsigned flags = 0;
    for (size_t i = 0; i < sizeof rights / sizeof *rights; i++) {
        if ((access & rights[i].access) != 0) {
            flags |= rights[i].ibv;
        }
    }
    return flags;
}

static const struct {
    int ibv;
    unsigned set;
} attribute_bits[] = {
    {IBV_QP_STATE, QP_SET_STATE},
    {IBV_QP_CUR_STATE, QP_SET_CURRENT_STATE},
    {IBV_QP_EN_SQD_ASYNC_NOTIFY, 0}, /* see event.c */
    {IBV_QP_ACCESS_FLAGS, QP_SET_ACCESS},
    {IBV_QP_PKEY_INDEX, QP_SET_PKEY_INDEX},
    {IBV_QP_PORT, QP_SET_PORT},
    {IBV_QP_QKEY, QP_SET_QKEY},
    {IBV_QP_AV, QP_SET_PATH},
    {IBV_QP_PATH_MTU, QP_SET_PATH_MTU},
    {IBV_QP_TIMEOUT, QP_SET_TIMEOUT},
    {IBV_QP_RETRY_CNT, QP_SET_RETRY_COUNT},
    {IBV_QP_RNR_RETRY, QP_SET_RNR_RETRY_COUNT},
    {IBV_QP_RQ_PSN, QP_SET_RECEIVE_PSN},
    {IBV_QP_MAX_QP_RD_ATOMIC, QP_SET_MAX_READS_OUT},
    {IBV_QP_MIN_RNR_TIMER, QP_SET_MIN_RNR_TIMER},
    {IBV_QP_SQ_PSN, QP_SET_SEND_PSN},
    {IBV_QP_MAX_DEST_RD_ATOMIC, QP_SET_MAX_READS_IN},
    {IBV_QP_PATH_MIG_STATE, QP_SET_MIGRATION}, /* MIGRATED only, see below */
    {IBV_QP_DEST_QPN, QP_SET_DESTINATION},
};

static int convert_mask(int mask, unsigned *ret_mask)
{
    unsigned set = 0;
    for (size_t i = 0; i < sizeof attribute_bits / sizeof *attribute_bits; i++) {
        if ((mask & attribute_bits[i].ibv) != 0) {
            set |= attribute_bits[i].set;
            mask &= ~attribute_bits[i].ibv;
        }
    }
    if (mask != 0) {
        return (mask & ~(IBV_QP_ALT_PATH | IBV_QP_CAP | IBV_QP_RATE_LIMIT)) == 0 ? EOPNOTSUPP
                                                                                 : EINVAL;
    }
    *ret_mask = set;
    return 0;
}

int convert_attributes(const struct ibv_qp_attr *attributes, int mask,
                       struct qp_attributes *ret_attributes, unsigned *ret_mask)
{
    unsigned set;
    unsigned access = 0;
    int error = convert_mask(mask, &set);
    if (error != 0) {
        return error;
    }
    if ((mask & IBV_QP_PATH_MIG_STATE) != 0 && attributes->path_mig_state != IBV_MIG_MIGRATED) {
        return EOPNOTSUPP;
    }
    if ((mask & IBV_QP_ACCESS_FLAGS) != 0 &&
        !convert_access(attributes->qp_access_flags, &access)) {
        return EINVAL;
    }
    if ((mask & IBV_QP_STATE) != 0 && (unsigned)attributes->qp_state >= QP_STATE_COUNT) {
        return EINVAL;
    }
    *ret_attributes = (struct qp_attributes){
        .state = (enum qp_state)attributes->qp_state,
        .current_state = (enum qp_state)attributes->cur_qp_state,
        .path_mtu = (enum path_mtu)attributes->path_mtu,
        .destination = {attributes->dest_qp_num & 0xffffff},
        .receive_psn = {attributes->rq_psn & 0xffffff},
        .send_psn = {attributes->sq_psn & 0xffffff},
        .access = access,
        .max_reads_out = attributes->max_rd_atomic,
        .max_reads_in = attributes->max_dest_rd_atomic,
        .min_rnr_timer = attributes->min_rnr_timer,
        .timeout = attributes->timeout,
        .retry_count = attributes->retry_cnt,
        .rnr_retry_count = attributes->rnr_retry,
        .pkey_index = attributes->pkey_index,
        .port = attributes->port_num,
        .qkey = {attributes->qkey},
    };
    *ret_mask = set;
    return 0;
}

void convert_attributes_back(const struct qp_attributes *attributes,
                             struct ibv_qp_attr *ret_attributes)
{
    *ret_attributes = (struct ibv_qp_attr){
        .qp_state = (enum ibv_qp_state)attributes->state,
        .cur_qp_state = (enum ibv_qp_state)attributes->state,
        .path_mtu = (enum ibv_mtu)attributes->path_mtu,
        .path_mig_state = IBV_MIG_MIGRATED,
        .qkey = attributes->qkey.value,
        .rq_psn = attributes->receive_psn.value,
        .sq_psn = attributes->send_psn.value,
        .dest_qp_num = attributes->destination.value,
        .qp_access_flags = convert_access_back(attributes->access),
        .pkey_index = attributes->pkey_index,
        .max_rd_atomic = attributes->max_reads_out,
        .max_dest_rd_atomic = attributes->max_reads_in,
        .min_rnr_timer = attributes->min_rnr_timer,
        .port_num = attributes->port,
        .timeout = attributes->timeout,
        .retry_cnt = attributes->retry_count,
        .rnr_retry = attributes->rnr_retry_count,
    };
}

bool convert_service(enum ibv_qp_type type, enum service *ret_service)
{
    switch (type) {
    case IBV_QPT_RC:
        *ret_service = SERVICE_RC;
        return true;
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
        *ret_service = SERVICE_XRC;
        return true;
    case IBV_QPT_UC:
        *ret_service = SERVICE_UC;
        return true;
    case IBV_QPT_UD:
        *ret_service = SERVICE_UD;
        return true;
    default:
        return false;
    }
}

enum ibv_event_type convert_event(enum event_kind kind)
{
    static const enum ibv_event_type types[] = {
        [EVENT_CQ_ERROR] = IBV_EVENT_CQ_ERR,
        [EVENT_QP_FATAL] = IBV_EVENT_QP_FATAL,
        [EVENT_QP_REQUEST_ERROR] = IBV_EVENT_QP_REQ_ERR,
        [EVENT_QP_ACCESS_ERROR] = IBV_EVENT_QP_ACCESS_ERR,
        [EVENT_PATH_ERROR] = IBV_EVENT_PATH_MIG_ERR,
        [EVENT_COMMUNICATION_ESTABLISHED] = IBV_EVENT_COMM_EST,
        [EVENT_SQ_DRAINED] = IBV_EVENT_SQ_DRAINED,
        [EVENT_QP_LAST_RECEIVE_REACHED] = IBV_EVENT_QP_LAST_WQE_REACHED,
        [EVENT_SRQ_LIMIT_REACHED] = IBV_EVENT_SRQ_LIMIT_REACHED,
        [EVENT_SRQ_ERROR] = IBV_EVENT_SRQ_ERR,
        [EVENT_PORT_ACTIVE] = IBV_EVENT_PORT_ACTIVE,
        [EVENT_PORT_ERROR] = IBV_EVENT_PORT_ERR,
        [EVENT_GID_CHANGE] = IBV_EVENT_GID_CHANGE,
    };
    return types[kind];
}

void convert_path(const struct ibv_ah_attr *vector, const struct gid *local,
                  const struct gid *remote, uint32_t entropy, struct path *ret_path)
{
    uint32_t label = vector->is_global ? vector->grh.flow_label & IB_GRH_FLOWLABEL_MASK : 0;
    if (label == 0) {
        /* Any spreading function will do; [RoCEv2 annex A17.9.2] asks for one value per flow. */
        entropy *= 0x9e3779b1u;
        entropy >>= 18;
    }
    *ret_path = (struct path){
        .local = *local,
        .remote = *remote,
        .source_port = label != 0 ? ibv_flow_label_to_udp_sport(label)
                                  : (uint16_t)(IB_ROCE_UDP_ENCAP_VALID_PORT_MIN | entropy),
        .traffic_class = vector->is_global ? vector->grh.traffic_class : 0,
        .hop_limit = vector->is_global ? vector->grh.hop_limit : 0,
        .flow_label = label,
    };
}
