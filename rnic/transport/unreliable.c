/* Uses the requester's cursor and the responder's checks, without their answers. */
#include "rnic/transport/unreliable.h"

#include "rnic/transport/qp_private.h"
#include "rnic/transport/request.h"

enum step unreliable_transmit(struct qp *qp, struct instant now)
{
    struct requester *requester = &qp->requester;
    struct send_slot *slot = requester_next(qp);
    if (slot == NULL || !qp_may_send_data(qp, now)) {
        return STEP_IDLE;
    }
    struct packet packet;
    request_describe_data(qp, slot, requester->packet, 1, &packet);
    struct fragment fragments[OUTGOING_FRAGMENT_MAX];
    struct fragment_list payload = {fragments, OUTGOING_FRAGMENT_MAX, 0};
    if (request_gather(qp, slot, requester->position, requester->packet, packet.payload_length,
                       &payload) != MEMORY_GRANTED) {
        qp_fail_send(qp, COMPLETION_LOCAL_PROTECTION_ERROR);
        return STEP_IDLE;
    }
    enum step step = qp_emit_unanswered(qp, &qp->attributes.path, &packet, &payload);
    if (step != STEP_SENT) {
        return step;
    }
    qp_sent_data(qp, now, packet.payload_length);
    requester->packet++;
    requester->frontier = psn_next(requester->frontier);
    requester->unacked = requester->cursor = requester->frontier;
    if (requester->packet == slot->packet_count) {
        requester->packet = 0;
        requester->position++;
        qp_complete_send(qp, COMPLETION_SUCCESS);
    }
    return STEP_SENT;
}

void unreliable_receive(struct qp *qp, const struct packet *packet)
{
    struct responder *responder = &qp->responder;
    if (!psn_equal(packet->psn, responder->expected)) {
        environment_count(qp->environment, COUNTER_OUT_OF_SEQUENCE);
        responder_abandon(qp);
    }
    responder->expected = psn_next(packet->psn);
    if (packet->info->first) {
        responder_abandon(qp);
    } else if (responder->inbound == INBOUND_NONE) {
        environment_refuse(qp->environment, REFUSED_SEQUENCE);
        return; /* the rest of a message whose beginning was lost */
    }
    enum verdict verdict = responder_execute(qp, packet);
    if (verdict == VERDICT_EXECUTED) {
        return;
    }
    responder_abandon(qp);
    switch (verdict) {
    case VERDICT_NOT_READY:
        environment_refuse(qp->environment, REFUSED_NO_RECEIVE);
        break;
    case VERDICT_ACCESS:
        environment_refuse(qp->environment, REFUSED_ACCESS);
        break;
    case VERDICT_LENGTH:
        environment_refuse(qp->environment, REFUSED_TOO_LONG);
        break;
    case VERDICT_OPERATION:
        responder_complete_receive(qp, COMPLETION_LOCAL_PROTECTION_ERROR, NULL);
        qp_enter_error(qp);
        break;
    default:
        environment_refuse(qp->environment, REFUSED_SEQUENCE);
        break;
    }
}
