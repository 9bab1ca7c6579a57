#include "rnic/transport/follow.h"

#include "rnic/transport/qp_private.h"
#include "rnic/transport/qp_state.h"

/* Where the rest of a WRITE goes, if that can be said for all of it; else NULL. */
static uint8_t *write_place(const struct qp *qp)
{
    const struct responder *responder = &qp->responder;
    uint8_t *bytes;
    if (responder->inbound != INBOUND_WRITE || qp->environment->watcher != NULL || qp->is_target ||
        !memory_is_steady(qp->environment->memory, responder->key) ||
        !responder_grants(qp, responder->key, responder->address, responder_write_left(responder),
                          ACCESS_REMOTE_WRITE, &bytes)) {
        return NULL;
    }
    return bytes;
}

/* A packet from the middle of a WRITE whose place is known. False: it is not, or this one brings
 * too much to be from the middle. */
static bool put(struct follow *follow, const uint8_t *bytes, bool ack_request)
{
    struct responder *responder = &follow->qp->responder;
    uint32_t length = follow->packet.payload_length;
    if (follow->place == NULL || length >= responder_write_left(responder)) {
        return false;
    }
    memcpy(follow->place, bytes + follow->packet.info->header_length, length);
    follow->place += length;
    responder->address += length;
    responder->done += length;
    responder_advance(responder, 1);
    acknowledge_executed(&responder->acknowledge, ack_request, false);
    return true;
}

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
    follow->place = write_place(qp);
}

void follow_receive(struct follow *follow, const uint8_t *bytes)
{
    struct qp *qp = follow->qp;
    struct packet *packet = &follow->packet;
    struct psn psn = qp->responder.expected, next = psn_next(psn);
    bool ack_request = (bytes[FOLLOW_COMPARED] & 0x80) != 0;
    environment_count(qp->environment, COUNTER_PACKETS_RECEIVED);
    qp->environment->counters.values[COUNTER_BYTES_RECEIVED] += packet->payload_length;
    qp_schedule(qp);
    follow->wish_and_psn = (follow->wish_and_psn & FOLLOW_TAG) | next.value;
    if (put(follow, bytes, ack_request)) {
        return;
    }
    packet->psn = psn;
    packet->ack_request = ack_request;
    packet->payload = bytes + packet->info->header_length;
    (void)responder_go_on(qp, packet);
    follow->qp = goes_on(qp, next) ? qp : NULL;
}
