#include "rnic/transport/follow.h"

#include "rnic/transport/qp_private.h"
#include "rnic/transport/qp_state.h"

/* Still in the middle of the message, all before `psn` executed, and with nothing to be done for a
 * packet but to execute it. */
static bool goes_on(const struct qp *qp, struct psn psn)
{
    const struct responder *responder = &qp->responder;
    return qp_state_receives(qp_state_now(qp)) && responder->inbound != INBOUND_NONE &&
           psn_equal(responder->expected, psn) &&
           (qp->selective == NULL || qp->selective->requests.count == 0);
}

void follow_begin(struct follow *follow, struct qp *qp, const struct arrival *arrival,
                  const struct packet *packet, const uint8_t *bytes, uint32_t length)
{
    const struct opcode_info *info = packet->info;
    struct psn next = psn_next(packet->psn);
    if (!info->is_request || info->first || info->last || info->service != SERVICE_RC ||
        packet->reader != NULL || arrival->congestion_experienced || arrival->acknowledges ||
        qp->matches_tags || !goes_on(qp, next)) {
        return;
    }
    follow->qp = qp;
    follow->packet = *packet;
    memcpy(follow->beginning, bytes, sizeof follow->beginning);
    follow->wish_and_psn = (bytes_load_u32(bytes + FOLLOW_COMPARED) & FOLLOW_TAG) | next.value;
    follow->length = length;
}

void follow_receive(struct follow *follow, const uint8_t *bytes)
{
    struct qp *qp = follow->qp;
    struct packet *packet = &follow->packet;
    packet->psn = qp->responder.expected;
    packet->ack_request = (bytes[FOLLOW_COMPARED] & 0x80) != 0;
    packet->payload = bytes + packet->info->header_length;
    environment_count(qp->environment, COUNTER_PACKETS_RECEIVED);
    qp->environment->counters.values[COUNTER_BYTES_RECEIVED] += packet->payload_length;
    qp_schedule(qp);
    struct psn next = psn_next(packet->psn);
    (void)responder_go_on(qp, packet);
    follow->wish_and_psn = (follow->wish_and_psn & FOLLOW_TAG) | next.value;
    follow->qp = goes_on(qp, next) ? qp : NULL;
}
