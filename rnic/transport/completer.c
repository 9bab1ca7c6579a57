/* Each kind of answer, and what it does to the requester. The order of effects is always the same:
 * what an answer implies about requests before it, then its own. */
#include "rnic/transport/completer.h"

#include <string.h>

#include "rnic/base/check.h"
#include "rnic/base/seldom.h"
#include "rnic/transport/demand.h"
#include "rnic/transport/qp_private.h"
#include "rnic/transport/repair.h"
#include "rnic/transport/segment.h"

#define RNR_COPIES_MAX 15u /* of four bits */

static struct send_slot *head_slot(const struct qp *qp)
{
    return send_queue_oldest(qp->sends);
}

static void refuse(struct qp *qp, enum packet_refusal refusal)
{
    environment_refuse(qp->environment, refusal);
}

/* A loss that the peer or a gap tells of. */
static void repeat(struct qp *qp)
{
    congestion_lost(&qp->congestion, qp->requester.frontier);
    retransmit_gap(&qp->retransmit);
    requester_repeat(qp);
}

/* For the peer's receives: nothing leaves until then, and then all that it does not have. */
static bool is_waiting(const struct requester *requester)
{
    return !instant_is_never(requester->rnr_resume);
}

/* What is missing was repeated, and what tells of the gap had left before that can have come, or
 * may have. */
static bool is_of_old(const struct qp *qp, struct instant now)
{
    const struct requester *requester = &qp->requester;
    uint64_t ago_ns = instant_elapsed_ns(requester->repeated, now);
    if (!requester->repeats || !psn_before(requester->unacked, requester->doubted)) {
        return false;
    }
    return ago_ns < qp->retransmit.shortest_ns ||
           (requester->gaps_answered > 0 && ago_ns < retransmit_round_trip_ns(&qp->retransmit));
}

/* A peer that has failed says of each repetition that something is missing without ever answering,
 * so the retry count bounds them, and then the timeout alone repeats. [IBA 9.9.2] */
static void demand_again(struct qp *qp, struct instant now)
{
    struct requester *requester = &qp->requester;
    if (requester->gaps_answered > qp->attributes.retry_count || is_waiting(requester)) {
        return;
    }
    requester->gaps_answered++;
    requester->repeated = now;
    selective_want(qp); /* what came behind the gap was dropped */
    repeat(qp);
}

/* A response behind one that is missing. The rest of the same flight says the same, so one demand
 * per round trip is enough. */
void completer_answer_gap(struct qp *qp, struct instant now)
{
    if (!is_of_old(qp, now)) {
        demand_again(qp, now);
    }
}

bool completer_answer_before(struct qp *qp, struct instant now, struct psn psn)
{
    struct requester *requester = &qp->requester;
    while (psn_before(requester->unacked, psn)) {
        struct send_slot *slot = head_slot(qp);
        CHECK(slot->started);
        uint32_t most = (uint32_t)psn_distance(requester->unacked, psn);
        if (requester_answered_row(qp, now, most) > 0) {
            if (qp_state_now(qp) == QP_ERROR) {
                return false;
            }
            continue;
        }
        if (requester_awaits_response(slot->kind)) {
            if (repair_is_on(qp)) {
                repair_await_response(qp, now, psn);
            } else {
                completer_answer_gap(qp, now);
            }
            return false;
        }
        uint32_t rest = slot->packet_count - requester->answered;
        requester_answered(qp, now, most < rest ? most : rest);
        if (qp_state_now(qp) == QP_ERROR) {
            return false;
        }
    }
    return true;
}

/* Where it is not known when it begins, that is when the deadline is looked at: soon. No other NAK
 * cuts a wait short, and what is said meanwhile of the retransmission timer does not concern it; it
 * ends early where what it is for has been acknowledged (requester). */
void completer_wait_for_receives(struct qp *qp, struct instant now)
{
    struct requester *requester = &qp->requester;
    bool is_vague = qp->environment->is_vague;
    struct instant resume = instant_after(now, retransmit_rnr_timer_ns(requester->rnr_timer));
    if (!is_waiting(requester) || instant_before(requester->rnr_resume, resume)) {
        requester->rnr_resume = resume;
    }
    retransmit_suspend(&qp->retransmit, requester->rnr_resume);
    requester->rnr_is_vague = is_vague;
    qp_set_deadline(qp, is_vague ? now : requester->rnr_resume);
}

/* Each NAK is waited for, from when it came. Where the packet has not left again since another
 * came, it is of a copy that had left before, and no retry has failed. No honest peer says it of
 * more copies than RNR_COPIES_MAX, and none makes us wait for ever. */
static SELDOM void receive_rnr_nak(struct qp *qp, struct instant now, uint8_t code)
{
    struct requester *requester = &qp->requester;
    bool of_copy = requester->rnr_copies > 0;
    uint8_t limit = qp->attributes.rnr_retry_count;
    environment_count(qp->environment, COUNTER_RNR_NAK_RECEIVED);
    if (requester->rnr_copies == RNR_COPIES_MAX) {
        return;
    }
    requester->rnr_copies++;
    if (limit != 7 && (!of_copy || requester->rnr_retries == 0)) {
        if (requester->rnr_retries >= limit) {
            environment_count(qp->environment, COUNTER_RNR_RETRIES_EXCEEDED);
            qp_fail_send(qp, COMPLETION_RNR_RETRY_EXCEEDED);
            return;
        }
        requester->rnr_retries++;
    }
    /* Of those that begin when the deadline is looked at, the longest. */
    bool vaguely = is_waiting(requester) && requester->rnr_is_vague;
    if (!vaguely || retransmit_rnr_timer_ns(requester->rnr_timer) < retransmit_rnr_timer_ns(code)) {
        requester->rnr_timer = code & 31;
    }
    completer_wait_for_receives(qp, now);
    if (repair_is_on(qp)) {
        repair_unready(qp);
        return;
    }
    if (!of_copy && psn_distance(requester->unacked, requester->frontier) > 1) {
        selective_want(qp); /* what came behind it was dropped */
    }
    requester_go_back(qp);
}

static void receive_sequence_nak(struct qp *qp, struct instant now)
{
    environment_count(qp->environment, COUNTER_NAK_SEQUENCE_RECEIVED);
    if (is_waiting(&qp->requester)) {
        return; /* sent before the responder ran out of receives; the wait stands */
    }
    if (retransmit_is_exhausted(&qp->retransmit, now)) {
        environment_count(qp->environment, COUNTER_RETRIES_EXCEEDED);
        qp_fail_send(qp, COMPLETION_RETRY_EXCEEDED);
        return;
    }
    selective_want(qp);
    if (repair_is_on(qp) && retransmit_may_probe(&qp->retransmit)) {
        repair_dropped(qp, now); /* what else was dropped a probe finds, if nothing else does */
    } else {
        repeat(qp);
    }
}

static void receive_nak(struct qp *qp, struct instant now, uint8_t code)
{
    static const enum completion_status statuses[] = {
        [NAK_INVALID_REQUEST] = COMPLETION_REMOTE_INVALID_REQUEST_ERROR,
        [NAK_REMOTE_ACCESS] = COMPLETION_REMOTE_ACCESS_ERROR,
        [NAK_REMOTE_OPERATION] = COMPLETION_REMOTE_OPERATION_ERROR,
    };
    if (code == NAK_SEQUENCE) {
        receive_sequence_nak(qp, now);
        return;
    }
    environment_count(qp->environment, COUNTER_NAK_ERROR_RECEIVED);
    qp_fail_send(qp, code <= NAK_REMOTE_OPERATION ? statuses[code] : COMPLETION_BAD_RESPONSE_ERROR);
}

static void receive_acknowledge(struct qp *qp, struct instant now, const struct packet *packet)
{
    const struct aeth *aeth = &packet->aeth;
    if (aeth->kind == AETH_ACK) {
        (void)completer_answer_before(qp, now, psn_next(packet->psn));
        return;
    }
    if (aeth->kind != AETH_RNR_NAK && aeth->kind != AETH_NAK) {
        refuse(qp, REFUSED_SEQUENCE); /* a reserved syndrome */
        return;
    }
    if (!completer_answer_before(qp, now, packet->psn)) {
        if (aeth->kind == AETH_RNR_NAK) {
            repair_keep_refusal(qp, packet);
        }
        return;
    }
    if (aeth->kind == AETH_RNR_NAK) {
        receive_rnr_nak(qp, now, aeth->value);
    } else {
        receive_nak(qp, now, aeth->value);
    }
}

/* Where the next bytes of the response to the request at the head go. */
static struct scatter *place_of(struct qp *qp, const struct send_slot *slot)
{
    struct cursor *cursor = &qp->environment->cursors.response;
    uint64_t position = send_queue_head(qp->sends);
    if (!cursor_is_of(cursor, qp, position)) {
        /* What tag matching READs goes to a buffer of the shared receive queue. */
        struct domain domain = qp->matches_tags ? qp->receive_domain : qp->domain;
        scatter_init(&cursor->scatter, qp->environment->memory, domain, send_slot_sges(slot),
                     slot->sge_count);
        scatter_seek(&cursor->scatter, slot->received);
        cursor->owner = qp;
        cursor->position = position;
    }
    return &cursor->scatter;
}

/* Puts response bytes where the request at the head wants them. False: the queue pair failed. */
static bool place(struct qp *qp, struct send_slot *slot, const uint8_t *bytes, uint32_t length)
{
    if (length == 0) {
        return true;
    }
    if (scatter_copy_in(place_of(qp, slot), bytes, length) != MEMORY_GRANTED) {
        qp_fail_send(qp, COMPLETION_LOCAL_PROTECTION_ERROR);
        return false;
    }
    slot->received += length;
    return true;
}

/* False: they are not there, or not to go there; they will be asked for again, and come as bytes.
 * What was repeated just now may be what they answer: a peer that had not seen the first demand. */
static bool place_reference(struct qp *qp, struct instant now, struct send_slot *slot,
                            const struct packet *packet)
{
    if (scatter_read_in(place_of(qp, slot), packet->reader, packet->payload_length) !=
        MEMORY_GRANTED) {
        environment_count(qp->environment, COUNTER_REFERENCES_UNREADABLE);
        demand_again(qp, now);
        return false;
    }
    environment_count(qp->environment, COUNTER_REFERENCES_READ);
    slot->received += packet->payload_length;
    return true;
}

/* The request that a response belongs to, if it is the next that is awaited. */
static struct send_slot *awaited(struct qp *qp, struct instant now, const struct packet *packet)
{
    if (!completer_answer_before(qp, now, packet->psn)) {
        repair_keep_response(qp, now, packet);
        return NULL;
    }
    struct send_slot *slot = head_slot(qp);
    CHECK(slot->started);
    return slot;
}

/* Response packets `index` to before index + count of the slot: not beyond the demand that they
 * answer, nor longer or shorter. What is repaired may have been asked for up to anywhere. */
static bool is_expected(const struct qp *qp, const struct send_slot *slot, uint32_t index,
                        uint32_t count, const struct packet *packet)
{
    uint32_t left = slot->packet_count - index;
    if (count > left || (count > 1 && count > demand_rest(qp, slot, index)) ||
        packet->payload_length != segment_span_length(slot->length, index, count, qp->mtu_shift)) {
        return false;
    }
    return repair_is_on(qp) || packet->info->last == demand_ends(qp, slot, index + count);
}

static void receive_read_response(struct qp *qp, struct instant now, const struct packet *packet)
{
    struct send_slot *slot = awaited(qp, now, packet);
    if (slot == NULL) {
        return;
    }
    if (slot->kind == WORK_ATOMIC_WRITE && packet->info->first && packet->info->last &&
        packet->payload_length == 0) {
        requester_answered(qp, now, 1);
        return;
    }
    if (slot->kind != WORK_READ) {
        refuse(qp, REFUSED_SEQUENCE);
        return;
    }
    uint32_t index = qp->requester.answered;
    uint32_t count =
        packet->reader == NULL ? 1 : segment_packet_count(packet->payload_length, qp->mtu_shift);
    if (!is_expected(qp, slot, index, count, packet)) {
        qp_fail_send(qp, COMPLETION_BAD_RESPONSE_ERROR);
        return;
    }
    if (packet->reader != NULL ? place_reference(qp, now, slot, packet)
                               : place(qp, slot, packet->payload, packet->payload_length)) {
        requester_answered(qp, now, count);
    }
}

static void receive_atomic_response(struct qp *qp, struct instant now, const struct packet *packet)
{
    struct send_slot *slot = awaited(qp, now, packet);
    if (slot == NULL) {
        return;
    }
    if (slot->kind != WORK_COMPARE_SWAP && slot->kind != WORK_FETCH_ADD) {
        refuse(qp, REFUSED_SEQUENCE);
        return;
    }
    /* The application gets a number in its own byte order, as the hardware does it. */
    uint8_t bytes[sizeof packet->original];
    memcpy(bytes, &packet->original, sizeof bytes);
    if (place(qp, slot, bytes, sizeof bytes)) {
        requester_answered(qp, now, 1);
    }
}

static void await_more(struct qp *qp)
{
    if (instant_is_never(qp->retransmit.deadline)) {
        qp_rest(qp);
    } else {
        qp_set_deadline(qp, qp->retransmit.deadline);
    }
}

void completer_acknowledged(struct qp *qp, struct instant now, struct psn psn)
{
    struct requester *requester = &qp->requester;
    int32_t ahead = psn_distance(requester->unacked, psn);
    if (ahead < 0 || ahead >= psn_distance(requester->unacked, requester->frontier)) {
        return; /* nothing new: acknowledgements are repeated */
    }
    uint32_t count = (uint32_t)ahead + 1;
    if (requester_answered_row(qp, now, count) < count && qp_state_now(qp) != QP_ERROR) {
        (void)completer_answer_before(qp, now, psn_next(psn));
    }
    await_more(qp);
}

/* What was sent and is not answered; false: the packet is counted as refused. */
static bool answers(struct qp *qp, const struct packet *packet)
{
    const struct requester *requester = &qp->requester;
    int32_t ahead = psn_distance(requester->unacked, packet->psn);
    if (ahead < 0 || ahead >= psn_distance(requester->unacked, requester->frontier)) {
        refuse(qp, REFUSED_PSN);
        repair_came_again(qp, packet);
        return false;
    }
    return true;
}

void completer_miss(struct qp *qp, struct instant now, const struct packet *packet)
{
    if (answers(qp, packet) && completer_answer_before(qp, now, packet->psn)) {
        demand_again(qp, now);
        await_more(qp);
    }
}

void completer_receive(struct qp *qp, struct instant now, const struct packet *packet)
{
    if (!answers(qp, packet)) {
        return;
    }
    switch (packet->info->operation) {
    case OPERATION_ACKNOWLEDGE:
        receive_acknowledge(qp, now, packet);
        break;
    case OPERATION_READ_RESPONSE:
        receive_read_response(qp, now, packet);
        break;
    default:
        receive_atomic_response(qp, now, packet);
        break;
    }
    await_more(qp);
}
