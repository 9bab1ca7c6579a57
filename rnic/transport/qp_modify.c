/* qp_modify: what is checked, what is taken over, and what each new state starts. */
#include "rnic/base/check.h"
#include "rnic/memory/window.h"
#include "rnic/transport/qp_private.h"
#include "rnic/transport/qp_state.h"
#include "rnic/transport/reference.h"

#define MTU_SHIFT_BASE     7u /* path_mtu_bytes is 128 << code */
#define DATAGRAM_MTU_SHIFT 12u

/* The bits of `mask` whose values are out of range. */
static unsigned check_values(const struct qp *qp, const struct qp_attributes *attributes,
                             unsigned mask)
{
    unsigned bad = 0;
    bad |= attributes->path_mtu < PATH_MTU_256 || attributes->path_mtu > PATH_MTU_4096
               ? QP_SET_PATH_MTU
               : 0;
    bad |= attributes->destination.value > PSN_MASK ? QP_SET_DESTINATION : 0;
    bad |= attributes->receive_psn.value > PSN_MASK ? QP_SET_RECEIVE_PSN : 0;
    bad |= attributes->send_psn.value > PSN_MASK ? QP_SET_SEND_PSN : 0;
    bad |= attributes->max_reads_in > qp->environment->max_reads_in ? QP_SET_MAX_READS_IN : 0;
    bad |= attributes->min_rnr_timer > 31 ? QP_SET_MIN_RNR_TIMER : 0;
    bad |= attributes->timeout > 31 ? QP_SET_TIMEOUT : 0;
    bad |= attributes->retry_count > 7 ? QP_SET_RETRY_COUNT : 0;
    bad |= attributes->rnr_retry_count > 7 ? QP_SET_RNR_RETRY_COUNT : 0;
    bad |= attributes->pkey_index != 0 ? QP_SET_PKEY_INDEX : 0;
    bad |= attributes->port == 0 ? QP_SET_PORT : 0;
    return bad & mask;
}

#define TAKE(bit, field)                                                                           \
    if ((mask & (bit)) != 0) {                                                                     \
        ours->field = attributes->field;                                                           \
    }

static void take_values(struct qp_attributes *ours, const struct qp_attributes *attributes,
                        unsigned mask)
{
    TAKE(QP_SET_PATH, path)
    TAKE(QP_SET_PATH_MTU, path_mtu)
    TAKE(QP_SET_DESTINATION, destination)
    TAKE(QP_SET_RECEIVE_PSN, receive_psn)
    TAKE(QP_SET_SEND_PSN, send_psn)
    TAKE(QP_SET_ACCESS, access)
    TAKE(QP_SET_MAX_READS_OUT, max_reads_out)
    TAKE(QP_SET_MAX_READS_IN, max_reads_in)
    TAKE(QP_SET_MIN_RNR_TIMER, min_rnr_timer)
    TAKE(QP_SET_TIMEOUT, timeout)
    TAKE(QP_SET_RETRY_COUNT, retry_count)
    TAKE(QP_SET_RNR_RETRY_COUNT, rnr_retry_count)
    TAKE(QP_SET_PKEY_INDEX, pkey_index)
    TAKE(QP_SET_PORT, port)
    TAKE(QP_SET_QKEY, qkey)
}

/* Everything outstanding vanishes without completions. [IBA 10.3.1.1] */
static void enter_reset(struct qp *qp)
{
    atomic_store(&qp->state, QP_RESET);
    timers_cancel(&qp->environment->timers, &qp->timer);
    reference_withdraw(qp, false);
    reference_withdraw(qp, true);
    list_remove(&qp->active);
    while (send_queue_head(qp->sends) != send_queue_tail(qp->sends)) {
        send_queue_retire(qp->sends, send_queue_oldest(qp->sends));
    }
    struct receive_slot receive;
    while (!qp->receives_are_shared &&
           receive_queue_take(qp->receives, &receive, qp_receive_sges(qp))) {
    }
    qp->attributes = (struct qp_attributes){.port = 0};
    qp->established_raised = false;
    qp->drain_pending = false;
    qp->requests_first = false;
    qp->peer_died = false;
    qp->death_counts_from = (struct instant){0};
    window_forget(qp->environment->memory, qp->number); /* opened to a peer that is no longer it */
    selective_end(qp);
    responder_reset(qp, (struct psn){0});
    requester_reset(qp, (struct psn){0});
}

void qp_set_mtu(struct qp *qp)
{
    qp->mtu_shift =
        (uint8_t)(qp->service == SERVICE_UD ? DATAGRAM_MTU_SHIFT
                                            : MTU_SHIFT_BASE + (unsigned)qp->attributes.path_mtu);
}

static void enter_ready_to_receive(struct qp *qp)
{
    qp_set_mtu(qp);
    responder_reset(qp, qp->attributes.receive_psn);
    if (qp->rate != NULL) {
        rate_reset(qp->rate);
    }
    selective_end(qp);
    qp->owes_notice = false;
    qp->notice_sent = INSTANT_NEVER;
    qp->peer_is_near = false;
}

static void enter_ready_to_send(struct qp *qp, enum qp_state from)
{
    retransmit_set(&qp->retransmit, qp->attributes.timeout, qp->attributes.retry_count);
    if (from == QP_RTR || from == QP_SQE) {
        requester_reset(qp, from == QP_RTR ? qp->attributes.send_psn : qp->requester.frontier);
        retransmit_reset(&qp->retransmit);
        congestion_reset(&qp->congestion, qp_mtu(qp), qp->environment->window_max);
    }
    /* Who has no patience has a peer of that kind, as a rule. */
    qp->environment->has_hasty_peers |= retransmit_is_hasty(&qp->retransmit);
    qp_schedule(qp);
}

static void enter(struct qp *qp, enum qp_state from, enum qp_state to)
{
    switch (to) {
    case QP_RESET:
        enter_reset(qp);
        return;
    case QP_ERROR:
        /* The application ends it: what was still to be answered is not. */
        replay_reset(&qp->responder.reads->replay, qp->responder.reads->replay.limit);
        acknowledge_reset(&qp->responder.acknowledge);
        reference_withdraw(qp, true);
        qp_enter_error(qp);
        return;
    case QP_RTR:
        enter_ready_to_receive(qp);
        break;
    case QP_RTS:
        enter_ready_to_send(qp, from);
        break;
    case QP_SQD:
        qp->drain_pending |= from != QP_SQD;
        replay_set_limit(&qp->responder.reads->replay, qp->attributes.max_reads_in);
        qp_schedule(qp);
        break;
    default:
        break;
    }
    atomic_store(&qp->state, (int)to);
}

/* The memory that the attributes ask for. */
static enum status reserve(struct qp *qp, const struct qp_attributes *attributes, unsigned mask,
                           enum qp_state to)
{
    struct allocator *allocator = qp->environment->allocator;
    if ((mask & QP_SET_PATH) != 0 && notice_may_come(&attributes->path) && qp->rate == NULL) {
        qp->rate = allocator->allocate(allocator, sizeof *qp->rate);
        if (qp->rate == NULL) {
            return STATUS_NO_MEMORY;
        }
        rate_reset(qp->rate);
    }
    if ((mask & QP_SET_MAX_READS_IN) != 0) {
        return reads_reserve(&qp->responder.reads, qp->environment, attributes->max_reads_in);
    }
    return STATUS_OK;
}

enum status qp_modify(struct qp *qp, const struct qp_attributes *attributes, unsigned mask,
                      unsigned *ret_offending)
{
    enum qp_state from = qp_state_now(qp);
    enum qp_state to = (mask & QP_SET_STATE) != 0 ? attributes->state : from;
    if ((unsigned)to >= QP_STATE_COUNT ||
        ((mask & QP_SET_CURRENT_STATE) != 0 && attributes->current_state != from)) {
        if (ret_offending != NULL) {
            *ret_offending = mask & (QP_SET_STATE | QP_SET_CURRENT_STATE);
        }
        return STATUS_INVALID;
    }
    enum status status = qp_state_check(qp->service, qp->is_target, from, to, mask, ret_offending);
    if (status != STATUS_OK) {
        return status;
    }
    unsigned bad = check_values(qp, attributes, mask);
    if (bad != 0) {
        if (ret_offending != NULL) {
            *ret_offending = bad;
        }
        return STATUS_INVALID;
    }
    status = reserve(qp, attributes, mask, to);
    if (status != STATUS_OK) {
        return status;
    }
    take_values(&qp->attributes, attributes, mask);
    enter(qp, from, to);
    direct_refresh(qp);
    if (from == QP_INIT && to == QP_RTR) {
        direct_connect(qp);
    }
    return STATUS_OK;
}
