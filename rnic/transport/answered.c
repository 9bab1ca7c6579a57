/* What answers do to the requester's window. Declared in requester.h. */
#include "rnic/base/check.h"
#include "rnic/transport/demand.h"
#include "rnic/transport/qp_private.h"
#include "rnic/transport/repair.h"
#include "rnic/transport/requester.h"

#define LONG_WAY_NS UINT64_C(500000) /* round trip */

/* More would fit on the way than go-back-N may have in flight. */
static bool way_is_longer(const struct qp *qp)
{
    return qp->congestion.window == qp->congestion.limit &&
           qp->retransmit.shortest_ns >= LONG_WAY_NS;
}

void requester_heard(struct qp *qp, struct instant now, bool waiting)
{
    struct retransmit *retransmit = &qp->retransmit;
    if (qp->environment->is_vague) {
        retransmit_rewound(retransmit);
    }
    retransmit_progress(retransmit, now, qp->requester.unacked, waiting);
    retransmit->is_vague = qp->environment->is_vague;
}

/* `count` packets were answered. */
static inline void progress(struct qp *qp, struct instant now, uint32_t count)
{
    struct requester *requester = &qp->requester;
    requester->rnr_retries = requester->rnr_copies = 0;
    requester->gaps_answered = 0;
    requester->way_takes = 0;
    if (!instant_is_never(requester->rnr_resume)) {
        /* Another copy of the packet that found no receive has found one. */
        requester->rnr_resume = INSTANT_NEVER;
        qp_schedule(qp);
    }
    if (requester->repeats && !psn_before(requester->unacked, requester->doubted)) {
        requester->repeats = requester->doubts = false; /* PSNs come again */
    }
    if (repair_is_on(qp)) {
        repair_answered(qp, now, count);
    } else {
        congestion_acknowledged(&qp->congestion, count << qp->mtu_shift, requester->unacked);
        if (way_is_longer(qp)) {
            selective_want(qp);
        }
    }
    bool waiting = !psn_equal(requester->unacked, requester->frontier);
    if (qp->selective != NULL && !waiting) {
        qp->selective->hold_mark = 0; /* all has left this host long ago */
    }
    requester_heard(qp, now, waiting);
}

static uint32_t row(const struct qp *qp, uint32_t most)
{
    uint64_t head = send_queue_head(qp->sends);
    uint64_t left = qp->requester.position - head;
    uint32_t count = 0;
    while (count < most && count < left) {
        const struct send_slot *slot = send_queue_slot(qp->sends, head + count);
        if (slot->packet_count != 1 || requester_awaits_response(slot->kind)) {
            break;
        }
        count++;
    }
    return count;
}

/* The oldest request has succeeded. Of most that do nobody is told. */
static inline void complete_oldest(struct qp *qp)
{
    struct send_slot *slot = send_queue_oldest(qp->sends);
    if (slot->signaled || qp->signal_all || qp->matches_tags || qp->environment->watcher != NULL) {
        qp_succeed_send(qp, slot);
    } else {
        send_queue_retire(qp->sends, slot);
    }
}

uint32_t requester_answered_row(struct qp *qp, struct instant now, uint32_t most)
{
    struct requester *requester = &qp->requester;
    bool goes_on = requester->answered == 0 && psn_equal(requester->cursor, requester->frontier);
    uint32_t count = goes_on && !repair_is_on(qp) ? row(qp, most) : 0;
    if (count == 0) {
        return 0;
    }
    requester->unacked = psn_add(requester->unacked, count);
    progress(qp, now, count);
    for (uint32_t i = 0; i < count && qp_state_now(qp) != QP_ERROR; i++) {
        complete_oldest(qp);
    }
    uint64_t tail = send_queue_tail(qp->sends);
    if (send_queue_head(qp->sends) != tail) {
        requester_settle(qp);
    }
    if (requester->position != tail) {
        qp_schedule(qp); /* a window or a fence may have opened */
    }
    return count;
}

void requester_answered(struct qp *qp, struct instant now, uint32_t count)
{
    struct requester *requester = &qp->requester;
    struct send_slot *slot = send_queue_slot(qp->sends, send_queue_head(qp->sends));
    requester->unacked = psn_add(requester->unacked, count);
    requester->answered += count;
    CHECK(requester->answered <= slot->packet_count);

    bool done = requester->answered == slot->packet_count;
    bool was_behind = psn_before(requester->cursor, requester->unacked);
    if (!was_behind && requester_awaits_response(slot->kind) &&
        demand_ends(qp, slot, requester->answered)) {
        CHECK(requester->reads_out > 0);
        requester->reads_out--;
    }
    if (was_behind) {
        congestion_not_lost(&qp->congestion);
        retransmit_too_early(&qp->retransmit);
    }
    progress(qp, now, count);
    if (done) {
        requester->answered = 0;
        qp_complete_send(qp, COMPLETION_SUCCESS);
        requester_settle(qp);
    }
    if (was_behind && qp_state_now(qp) != QP_ERROR) {
        requester_go_back(qp); /* what was to be repeated has been answered in the meantime */
    }
    if (requester->position != send_queue_tail(qp->sends) || repair_is_due(qp)) {
        qp_schedule(qp); /* a window or a fence may have opened */
    }
}

bool requester_is_drained(const struct qp *qp)
{
    uint64_t head = send_queue_head(qp->sends);
    if (head == send_queue_tail(qp->sends)) {
        return true;
    }
    const struct send_slot *slot = send_queue_slot(qp->sends, head);
    return !slot->started && slot->moved == 0;
}

void requester_settle(struct qp *qp)
{
    while (qp_state_now(qp) != QP_ERROR &&
           send_queue_head(qp->sends) != send_queue_tail(qp->sends)) {
        struct send_slot *slot = send_queue_slot(qp->sends, send_queue_head(qp->sends));
        if (!slot->finished) {
            return;
        }
        if (slot->status != COMPLETION_SUCCESS) {
            qp_fail_send(qp, slot->status);
            return;
        }
        /* Local work that was done before what stands before it had to be repeated. */
        if (qp->requester.position == send_queue_head(qp->sends)) {
            qp->requester.position++;
        }
        qp_complete_send(qp, COMPLETION_SUCCESS);
    }
}
