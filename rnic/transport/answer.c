/* One packet per call: what was asked for first leaves first. Memory is looked up again for each
 * packet of a READ, so a region that went away is not touched. */
#include "rnic/transport/answer.h"

#include "rnic/transport/deputy.h"
#include "rnic/transport/qp_private.h"
#include "rnic/transport/qp_state.h"
#include "rnic/transport/reference.h"
#include "rnic/transport/request.h"
#include "rnic/transport/segment.h"
#include "rnic/transport/selective.h"

#define BURST_BYTES (512u << 10) /* of a response, for whoever asked for them at once */

static struct packet start_answer(const struct qp *qp, uint8_t opcode, struct psn psn, uint32_t msn)
{
    return (struct packet){
        .opcode = opcode,
        .pkey = PKEY_DEFAULT,
        .destination = qp->attributes.destination,
        .psn = psn,
        .aeth = {.kind = AETH_ACK, .value = CREDITS_UNLIMITED, .msn = msn},
    };
}

static enum step transmit_atomic(struct qp *qp, struct replay_entry *entry)
{
    uint8_t form = entry->is_write ? FORM_READ_RESPONSE_ONLY : FORM_ATOMIC_ACKNOWLEDGE;
    struct packet packet =
        start_answer(qp, OPCODE(qp->service, form), entry->first_psn, entry->msn);
    packet.original = entry->original;
    if (!qp_emit(qp, &qp->attributes.path, &packet, NULL)) {
        return STEP_FULL;
    }
    replay_sent(entry, 1);
    return STEP_SENT;
}

bool answer_is_paced(const struct qp *qp, const struct replay_entry *entry)
{
    uint32_t window = qp->environment->window_max;
    if (qp->selective != NULL) {
        return false; /* who repairs asks for no more than its own window has room for */
    }
    return entry->length > (window < BURST_BYTES ? window : BURST_BYTES);
}

/* Packets of the response that may leave as one, by reference: of what was asked for once, and not
 * through a window, for what shuts that could not wait for who reads there. */
static uint32_t span(const struct qp *qp, const struct replay_entry *entry)
{
    if (entry->repeated || !memory_is_region(qp->environment->memory, entry->key)) {
        return 1;
    }
    return reference_span(qp, entry->length - (entry->next << qp->mtu_shift));
}

/* False: the key does not grant it any more. */
static bool find_bytes(const struct qp *qp, const struct replay_entry *entry, uint32_t length,
                       uint8_t **ret_bytes)
{
    struct memory_request request = {
        .domain = entry->domain,
        .key = entry->key,
        .address = entry->address + ((uint64_t)entry->next << qp->mtu_shift),
        .length = length,
        .rights = ACCESS_REMOTE_READ,
        .qpn = qp->number,
        .is_touched = true,
    };
    return memory_check(qp->environment->memory, &request, ret_bytes) == MEMORY_GRANTED;
}

/* `count` packets of the response, as one where there are more. */
static enum step transmit_read(struct qp *qp, struct instant now, struct replay_entry *entry,
                               uint32_t count)
{
    struct pace *pace = &qp->responder.reads->pace;
    bool paced = count == 1 && answer_is_paced(qp, entry);
    if (paced && !pace_may_send(pace, now)) {
        qp_set_deadline(qp, pace->throttle.resume);
        return STEP_IDLE;
    }
    if (!qp_may_send_data(qp, now)) {
        return STEP_IDLE;
    }
    uint32_t index = entry->next;
    struct psn psn = psn_add(entry->first_psn, index);
    uint32_t length = segment_span_length(entry->length, index, count, qp->mtu_shift);
    uint8_t *bytes = NULL;
    if (!find_bytes(qp, entry, length, &bytes)) {
        if (count > 1) {
            return transmit_read(qp, now, entry, 1); /* as far as they are there */
        }
        if (entry->answered) {
            replay_drop(entry);
            return STEP_SENT;
        }
        replay_reset(&qp->responder.reads->replay, qp->responder.reads->replay.limit);
        responder_fail(qp, NAK_REMOTE_ACCESS, psn);
        return STEP_SENT;
    }
    uint8_t opcode =
        segment_response_opcode(qp->service, index == entry->start, index + count == entry->end);
    struct packet packet = start_answer(qp, opcode, psn, entry->msn);
    packet.payload_length = length;
    packet.segment_shift = count > 1 ? qp->mtu_shift : 0;
    struct fragment fragment = {bytes, length};
    struct fragment_list payload = {&fragment, 1, length > 0};
    if (!qp_emit(qp, &qp->attributes.path, &packet, &payload)) {
        return STEP_FULL;
    }
    qp_sent_data(qp, now, length);
    if (paced) {
        pace_sent(pace, now, length);
    }
    replay_sent(entry, count);
    return STEP_SENT;
}

/* A response acknowledges its request, and nothing else does: Linux's rxe ends a queue pair that
 * gets an ACK for a READ whose last response is late. A target wants to know of each from its
 * deputy. */
struct psn answer_acknowledges(const struct qp *qp)
{
    const struct responder *responder = &qp->responder;
    struct psn last = psn_add(responder->expected, PSN_MASK);
    return qp->is_deputy ? last : replay_before(&responder->reads->replay, last);
}

bool answer_is_plain(const struct qp *qp)
{
    const struct responder *responder = &qp->responder;
    return responder->acknowledge.owed == OWED_ACK && qp->peer_is_near &&
           !replay_may_be_pending(&responder->reads->replay) && qp_relay(qp) == NULL &&
           !qp->is_deputy && !qp->owes_notice && !qp->agreement.owes && qp->selective == NULL;
}

bool answer_may_ride(const struct qp *qp)
{
    return qp->environment->sink->carries_acknowledgements && answer_is_plain(qp);
}

/* How long the new request is that may leave right behind an acknowledgement, where the link joins
 * packets; 0: there is none, or it is not short, or there are more, which are joined anyway, or
 * some are under way: in a stream nobody waits for it. */
static uint32_t request_behind(const struct qp *qp)
{
    const struct requester *requester = &qp->requester;
    uint64_t position = requester->position;
    if (qp->environment->sink->run_packets == 0 ||
        !psn_equal(requester->unacked, requester->frontier) || qp->peer_is_near ||
        qp->service != SERVICE_RC || !qp_state_sends(qp_state_now(qp)) ||
        position + 1 != send_queue_tail(qp->sends)) {
        return 0;
    }
    const struct send_slot *slot = send_queue_slot(qp->sends, position);
    return slot->started ? 0 : request_short_length(slot);
}

static enum step pay_with_report(struct qp *qp, uint32_t length)
{
    if (!selective_acknowledge(qp, length)) {
        return STEP_FULL;
    }
    acknowledge_paid(&qp->responder.acknowledge);
    return STEP_SENT;
}

static enum step transmit_owed(struct qp *qp)
{
    struct responder *responder = &qp->responder;
    struct acknowledge *acknowledge = &responder->acknowledge;
    struct packet packet = start_answer(qp, OPCODE(qp->service, FORM_ACKNOWLEDGE),
                                        responder->expected, responder->msn);
    enum counter counter = COUNTER_COUNT;
    uint32_t behind;
    switch (acknowledge->owed) {
    case OWED_NOTHING:
        return STEP_IDLE;
    case OWED_ACK:
        behind = request_behind(qp);
        if (selective_leads(qp, behind) || selective_has_news(qp)) {
            return pay_with_report(qp, behind);
        }
        packet.psn = answer_acknowledges(qp);
        break;
    case OWED_REST:
        acknowledge_rest(acknowledge, responder->expected);
        /* Whoever gets a NAK instead repeats what he does not know to be held. */
        qp->agreement.owes |= acknowledge->owed == OWED_NAK_SEQUENCE && selective_has_news(qp);
        return transmit_owed(qp);
    case OWED_RNR_NAK:
        packet.aeth.kind = AETH_RNR_NAK;
        packet.aeth.value = qp->attributes.min_rnr_timer;
        counter = COUNTER_RNR_NAK_SENT;
        break;
    case OWED_NAK_SEQUENCE:
        packet.aeth.kind = AETH_NAK;
        packet.aeth.value = NAK_SEQUENCE;
        counter = COUNTER_NAK_SEQUENCE_SENT;
        break;
    case OWED_NAK_FATAL:
        packet.aeth.kind = AETH_NAK;
        packet.aeth.value = acknowledge->fatal_code;
        packet.psn = acknowledge->fatal_psn;
        counter = COUNTER_NAK_ERROR_SENT;
        break;
    }
    if (qp->is_deputy) {
        deputy_acknowledge(qp, &packet);
        acknowledge_paid(acknowledge);
        return STEP_SENT;
    }
    if (!qp_emit(qp, &qp->attributes.path, &packet, NULL)) {
        return STEP_FULL;
    }
    if (counter != COUNTER_COUNT) {
        environment_count(qp->environment, counter);
    }
    acknowledge_paid(acknowledge);
    return STEP_SENT;
}

enum step answer_transmit(struct qp *qp, struct instant now)
{
    if (qp_relay(qp) != NULL && relay_holds_answers(qp)) {
        return STEP_IDLE;
    }
    struct replay_entry *entry = replay_pending(&qp->responder.reads->replay);
    if (entry == NULL && qp_relay(qp) != NULL) {
        relay_resume(qp); /* what had to wait for our own responses */
        entry = replay_pending(&qp->responder.reads->replay);
    }
    if (entry == NULL) {
        enum owed owed = qp->responder.acknowledge.owed;
        /* It acknowledges, too: no response may be behind it. And it says what is missing, so why
         * that is not lost comes before it. */
        if (qp->agreement.owes && owed != OWED_RNR_NAK) {
            return selective_transmit(qp);
        }
        return owed != OWED_NOTHING ? transmit_owed(qp) : STEP_IDLE;
    }
    return entry->is_atomic ? transmit_atomic(qp, entry)
                            : transmit_read(qp, now, entry, span(qp, entry));
}
