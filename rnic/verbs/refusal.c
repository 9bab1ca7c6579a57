#include "rnic/verbs/refusal.h"

#include <errno.h>
#include <stdio.h>

#include "rnic/strict/pitfall.h"
#include "rnic/transport/qp_state.h"
#include "rnic/verbs/convert.h"
#include "rnic/verbs/gid_table.h"
#include "rnic/verbs/limits.h"
#include "rnic/verbs/objects.h"
#include "rnic/verbs/port.h"

#define REASON_MAX 320

struct reason {
    char text[REASON_MAX];
};

#define SAY(...) snprintf(reason->text, sizeof reason->text, __VA_ARGS__)

/* --- paths --- */

/* False: the path is not what is wrong. */
static bool explain_path(struct ibv_context *context, const struct ibv_ah_attr *vector,
                         struct reason *reason)
{
    struct gid_table *gids = devices_gids(context->device, vector->port_num);
    struct address local;
    struct path path;
    unsigned index = vector->is_global ? vector->grh.sgid_index : 0;
    if (port_path(context, vector, 0, &path)) {
        return false;
    }
    if (gids == NULL) {
        SAY("ah_attr.port_num is %u, and the device has no such port", vector->port_num);
    } else if (!gid_table_get(gids, index, &local) || gid_is_zero(&local.gid)) {
        SAY("ah_attr.grh.sgid_index is %u, and port %u has no such GID (ibv_devinfo -v lists them)",
            index, vector->port_num);
    } else if (!vector->is_global) {
        SAY("ah_attr.is_global is 0 and dlid %u is nobody: on RoCE a peer is named by its GID "
            "(is_global = 1, grh.dgid, grh.sgid_index)",
            vector->dlid);
    } else {
        struct gid remote = port_group(&vector->grh.dgid);
        const char *family = gid_is_ipv4(&local.gid) ? "IPv4" : "IPv6";
        if (gid_is_zero(&remote)) {
            SAY("ah_attr.grh.dgid is all zero");
        } else {
            SAY("ah_attr.grh.dgid is of another family than GID %u here (grh.sgid_index), which is "
                "an %s address: choose a GID of the peer's family",
                index, family);
        }
    }
    return true;
}

/* Of a path_mtu that is one. */
static bool explain_path_mtu(const struct ibv_qp *ibv, const struct ibv_qp_attr *attributes,
                             struct reason *reason)
{
    struct path path;
    if (!port_path(ibv->context, &attributes->ah_attr, 0, &path) ||
        port_takes(ibv->context, &attributes->ah_attr, &path,
                   (enum path_mtu)attributes->path_mtu)) {
        return false;
    }
    SAY("path_mtu is %u bytes, and the interface toward the peer takes no such packets: see "
        "active_mtu of ibv_query_port",
        128u << attributes->path_mtu);
    return true;
}

/* --- states --- */

static void add_names(struct reason *reason, size_t at, unsigned bits)
{
    static const struct {
        unsigned bit;
        const char *name;
    } names[] = {
        {QP_SET_STATE, "STATE"},
        {QP_SET_PATH, "AV"},
        {QP_SET_PATH_MTU, "PATH_MTU"},
        {QP_SET_DESTINATION, "DEST_QPN"},
        {QP_SET_RECEIVE_PSN, "RQ_PSN"},
        {QP_SET_SEND_PSN, "SQ_PSN"},
        {QP_SET_ACCESS, "ACCESS_FLAGS"},
        {QP_SET_MAX_READS_OUT, "MAX_QP_RD_ATOMIC"},
        {QP_SET_MAX_READS_IN, "MAX_DEST_RD_ATOMIC"},
        {QP_SET_MIN_RNR_TIMER, "MIN_RNR_TIMER"},
        {QP_SET_TIMEOUT, "TIMEOUT"},
        {QP_SET_RETRY_COUNT, "RETRY_CNT"},
        {QP_SET_RNR_RETRY_COUNT, "RNR_RETRY"},
        {QP_SET_PKEY_INDEX, "PKEY_INDEX"},
        {QP_SET_PORT, "PORT"},
        {QP_SET_QKEY, "QKEY"},
        {QP_SET_CURRENT_STATE, "CUR_STATE"},
        {QP_SET_MIGRATION, "PATH_MIG_STATE"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names && at < sizeof reason->text; i++) {
        if ((bits & names[i].bit) != 0) {
            at += (size_t)snprintf(reason->text + at, sizeof reason->text - at, " IBV_QP_%s",
                                   names[i].name);
        }
    }
}

static bool explain_state(const struct ibv_qp *ibv, const struct ibv_qp_attr *attributes, int mask,
                          struct reason *reason)
{
    struct soft_qp *qp = soft_qp((struct ibv_qp *)ibv);
    struct qp_attributes core;
    unsigned set, offending = 0;
    if (convert_attributes(attributes, mask, &core, &set) != 0) {
        SAY("attr_mask (0x%x) has a bit that is none, or qp_state or qp_access_flags are none",
            (unsigned)mask);
        return true;
    }
    enum qp_state from = qp_current_state(qp->qp);
    enum qp_state to = (mask & IBV_QP_STATE) != 0 ? core.state : from;
    enum status status = qp_state_check(qp_service(qp->qp), ibv->qp_type == IBV_QPT_XRC_RECV, from,
                                        to, set, &offending);
    if (status == STATUS_STATE) {
        SAY("there is no way from %s to %s (the order is RESET, INIT, RTR, RTS)",
            qp_state_name(from), qp_state_name(to));
    } else if (status != STATUS_OK) {
        unsigned missing = offending & ~set;
        int length = SAY("from %s to %s attr_mask %s", qp_state_name(from), qp_state_name(to),
                         missing != 0 ? "lacks" : "may not have");
        add_names(reason, (size_t)length, missing != 0 ? missing : offending);
    }
    return status != STATUS_OK;
}

/* --- values --- */

static bool explain_value(const struct ibv_qp *ibv, const struct ibv_qp_attr *attributes, int mask,
                          struct reason *reason)
{
    const struct {
        int bit;
        const char *name;
        unsigned value, most;
    } bounds[] = {
        {IBV_QP_MIN_RNR_TIMER, "min_rnr_timer", attributes->min_rnr_timer, 31},
        {IBV_QP_TIMEOUT, "timeout", attributes->timeout, 31},
        {IBV_QP_RETRY_CNT, "retry_cnt", attributes->retry_cnt, 7},
        {IBV_QP_RNR_RETRY, "rnr_retry", attributes->rnr_retry, 7},
    };
    unsigned mtu = (unsigned)attributes->path_mtu;
    if ((mask & IBV_QP_PATH_MTU) != 0 && (mtu < IBV_MTU_256 || mtu > IBV_MTU_4096)) {
        SAY("path_mtu is %u, which is none of IBV_MTU_256 (1) to IBV_MTU_4096 (5): it is no number "
            "of bytes",
            mtu);
        return true;
    }
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        if ((mask & bounds[i].bit) != 0 && bounds[i].value > bounds[i].most) {
            SAY("%s is %u, and %u is the most", bounds[i].name, bounds[i].value, bounds[i].most);
            return true;
        }
    }
    enum qp_state state = qp_current_state(soft_qp((struct ibv_qp *)ibv)->qp);
    if ((mask & IBV_QP_CUR_STATE) != 0 && (unsigned)attributes->cur_qp_state != (unsigned)state) {
        SAY("cur_qp_state is not what the queue pair is in, %s", qp_state_name(state));
        return true;
    }
    return false;
}

int refusal_of_modify(struct ibv_qp *ibv, const struct ibv_qp_attr *attributes, int mask)
{
    struct reason said, *reason = &said;
    uint32_t reads = limits_now()->max_reads;
    if (((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0 && attributes->max_rd_atomic > reads) ||
        ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0 && attributes->max_dest_rd_atomic > reads)) {
        return EINVAL; /* a limit, of which was warned */
    }
    int way = IBV_QP_AV | IBV_QP_PATH_MTU;
    if (((mask & IBV_QP_PORT) != 0 &&
         devices_gids(ibv->context->device, attributes->port_num) == NULL)) {
        SAY("port_num is %u, and the device has no such port", attributes->port_num);
    } else if ((mask & IBV_QP_PKEY_INDEX) != 0 && attributes->pkey_index != 0) {
        SAY("pkey_index is %u, and there is one P_Key, at 0", attributes->pkey_index);
    } else if (!explain_state(ibv, attributes, mask, reason) &&
               !explain_value(ibv, attributes, mask, reason) &&
               !((mask & IBV_QP_AV) != 0 &&
                 explain_path(ibv->context, &attributes->ah_attr, reason)) &&
               !((mask & way) == way && explain_path_mtu(ibv, attributes, reason))) {
        SAY("a value is beyond its bounds");
    }
    pitfall_warn(PITFALL_WRONG_CALL, NULL, "called at", "ibv_modify_qp of QP 0x%x: %s", ibv->qp_num,
                 reason->text);
    return EINVAL;
}

void refusal_of_ah(struct ibv_context *context, const struct ibv_ah_attr *vector)
{
    struct reason reason;
    if (explain_path(context, vector, &reason)) {
        pitfall_warn(PITFALL_WRONG_CALL, NULL, "called at", "ibv_create_ah: %s", reason.text);
    }
}

/* --- posts --- */

void refusal_of_send(struct ibv_qp *ibv, const struct ibv_send_wr *wr)
{
    const struct soft_qp *qp = soft_qp(ibv);
    struct reason said, *reason = &said;
    enum qp_state state = qp_current_state(qp->qp);
    bool atomic =
        wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    bool has_list = wr->num_sge >= 0 && wr->num_sge <= qp->granted.send_sge;
    uint64_t length = 0;
    for (int i = 0; has_list && i < wr->num_sge; i++) {
        length += wr->sg_list[i].length;
    }
    if (state < QP_RTS) {
        SAY("the queue pair is in %s, and sends are posted from RTS on", qp_state_name(state));
    } else if (!has_list) {
        SAY("num_sge is %d, and the queue pair was created with a max_send_sge of %u", wr->num_sge,
            qp->granted.send_sge);
    } else if ((wr->send_flags & IBV_SEND_INLINE) != 0 && length > qp->granted.inline_data) {
        SAY("%llu bytes IBV_SEND_INLINE, and the queue pair was created with a max_inline_data of "
            "%u",
            (unsigned long long)length, qp->granted.inline_data);
    } else if (length > limits_now()->max_message ||
               (atomic && limits_now()->atomics == IBV_ATOMIC_NONE)) {
        return; /* a limit, of which was warned */
    } else if (ibv->qp_type == IBV_QPT_UD && wr->wr.ud.ah == NULL) {
        SAY("wr.ud.ah is NULL, and a datagram goes where an address handle says (ibv_create_ah)");
    } else {
        SAY("opcode %d, its flags (0x%x) or its fields are not for this kind of queue pair",
            (int)wr->opcode, wr->send_flags);
    }
    pitfall_warn(PITFALL_WRONG_CALL, NULL, "posted at", "ibv_post_send to QP 0x%x: %s", ibv->qp_num,
                 reason->text);
}

void refusal_of_receive(struct ibv_qp *ibv, const struct ibv_recv_wr *wr)
{
    const struct soft_qp *qp = soft_qp(ibv);
    struct reason said, *reason = &said;
    if (ibv->srq != NULL) {
        SAY("its receives are those of a shared receive queue: ibv_post_srq_recv");
    } else if (qp_current_state(qp->qp) == QP_RESET) {
        SAY("the queue pair is in RESET, and receives are posted from INIT on");
    } else {
        SAY("num_sge is %d, and the queue pair was created with a max_recv_sge of %u", wr->num_sge,
            qp->granted.receive_sge);
    }
    pitfall_warn(PITFALL_WRONG_CALL, NULL, "posted at", "ibv_post_recv to QP 0x%x: %s", ibv->qp_num,
                 reason->text);
}
