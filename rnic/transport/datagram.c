#include "rnic/transport/datagram.h"

#include <string.h>

#include "rnic/base/bytes.h"
#include "rnic/transport/qp_private.h"
#include "rnic/transport/request.h"

#define QKEY_FROM_QP          0x80000000u /* [IBA 10.2.5] */
#define GRH_NEXT_HEADER_IBA   0x1bu
#define HOP_LIMIT_UNSPECIFIED 64u

static struct qkey chosen_qkey(const struct qp *qp, struct qkey wanted)
{
    return (wanted.value & QKEY_FROM_QP) != 0 ? qp->attributes.qkey : wanted;
}

enum step datagram_transmit(struct qp *qp)
{
    struct requester *requester = &qp->requester;
    struct send_slot *slot = requester_next(qp);
    if (slot == NULL) {
        return STEP_IDLE;
    }
    if (slot->length > qp->environment->datagram_max) {
        qp_fail_send(qp, COMPLETION_LOCAL_LENGTH_ERROR);
        return STEP_IDLE;
    }
    struct packet packet;
    request_describe_data(qp, slot, 0, &packet);
    packet.destination = slot->target.qpn;
    packet.qkey = chosen_qkey(qp, slot->target.qkey);
    packet.source = qp->number;
    struct fragment fragments[OUTGOING_FRAGMENT_MAX];
    struct fragment_list payload = {fragments, OUTGOING_FRAGMENT_MAX, 0};
    if (request_gather(qp, slot, 0, packet.payload_length, &payload) != MEMORY_GRANTED) {
        qp_fail_send(qp, COMPLETION_LOCAL_PROTECTION_ERROR);
        return STEP_IDLE;
    }
    if (!qp_emit(qp, &slot->target.path, &packet, &payload)) {
        return STEP_FULL;
    }
    requester->frontier = psn_next(requester->frontier);
    requester->unacked = requester->cursor = requester->frontier;
    requester->position++;
    qp_complete_send(qp, COMPLETION_SUCCESS);
    return STEP_SENT;
}

static void build_grh(const struct path *path, uint32_t payload_length, uint8_t *ret_grh)
{
    uint8_t hop_limit = path->hop_limit != 0 ? path->hop_limit : HOP_LIMIT_UNSPECIFIED;
    bytes_store_u32(ret_grh,
                    UINT32_C(6) << 28 | (uint32_t)path->traffic_class << 20 | path->flow_label);
    bytes_store_u16(ret_grh + 4, (uint16_t)payload_length);
    ret_grh[6] = GRH_NEXT_HEADER_IBA;
    ret_grh[7] = hop_limit;
    memcpy(ret_grh + 8, path->remote.bytes, sizeof path->remote.bytes);
    memcpy(ret_grh + 24, path->local.bytes, sizeof path->local.bytes);
}

static enum completion_status place(struct qp *qp, const struct arrival *arrival,
                                    const struct packet *packet)
{
    uint8_t grh[GRH_LENGTH];
    build_grh(&arrival->path, packet->payload_length, grh);
    struct scatter *place = &qp->responder.place;
    if (scatter_copy_in(place, grh, sizeof grh) != MEMORY_GRANTED ||
        (packet->payload_length > 0 &&
         scatter_copy_in(place, packet->payload, packet->payload_length) != MEMORY_GRANTED)) {
        return COMPLETION_LOCAL_PROTECTION_ERROR;
    }
    return COMPLETION_SUCCESS;
}

void datagram_receive(struct qp *qp, const struct arrival *arrival, const struct packet *packet)
{
    struct environment *environment = qp->environment;
    struct responder *responder = &qp->responder;
    if (packet->qkey.value != qp->attributes.qkey.value) {
        environment_refuse(environment, REFUSED_QKEY);
        return;
    }
    const struct receive_slot *waiting = receive_queue_peek(qp->receives);
    if (waiting == NULL) {
        environment_refuse(environment, REFUSED_NO_RECEIVE);
        return;
    }
    if (waiting->length < GRH_LENGTH + (uint64_t)packet->payload_length) {
        environment_refuse(environment, REFUSED_TOO_LONG);
        return;
    }
    if (!responder_take_receive(qp)) {
        return;
    }
    struct completion completion = {
        .id = responder->receive.id,
        .status = place(qp, arrival, packet),
        .kind = COMPLETED_RECEIVE,
        .byte_length = GRH_LENGTH + packet->payload_length,
        .qpn = qp->number,
        .source = packet->source,
        .has_immediate = packet->info->has_immediate,
        .immediate = packet->immediate,
        .has_grh = true,
    };
    responder->receive_taken = false;
    bool failed = completion.status != COMPLETION_SUCCESS;
    qp_push(qp, qp->receive_completions, &completion, packet->solicited || failed);
    if (failed) {
        qp_enter_error(qp);
    }
}
