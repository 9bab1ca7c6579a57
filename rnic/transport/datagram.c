/* One packet per message in both directions, and the header that precedes a received one. */
#include "rnic/transport/datagram.h"

#include <string.h>

#include "rnic/base/bytes.h"
#include "rnic/transport/qp_private.h"
#include "rnic/transport/request.h"
#include "rnic/transport/watch.h"

#define QKEY_FROM_QP          0x80000000u /* [IBA 10.2.5] */
#define IP_PROTOCOL_UDP       17u
#define UDP_HEADER_LENGTH     8u
#define IPV4_HEADER_LENGTH    20u
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
    request_describe_data(qp, slot, 0, 1, &packet);
    const struct datagram_target *target = send_slot_target(slot);
    packet.destination = target->qpn;
    packet.qkey = chosen_qkey(qp, target->qkey);
    packet.source = qp->number;
    struct fragment fragments[OUTGOING_FRAGMENT_MAX];
    struct fragment_list payload = {fragments, OUTGOING_FRAGMENT_MAX, 0};
    if (request_gather(qp, slot, qp->requester.position, 0, packet.payload_length, &payload) !=
        MEMORY_GRANTED) {
        qp_fail_send(qp, COMPLETION_LOCAL_PROTECTION_ERROR);
        return STEP_IDLE;
    }
    enum step step = qp_emit_unanswered(qp, &target->path, &packet, &payload);
    if (step != STEP_SENT) {
        return step;
    }
    requester->frontier = psn_next(requester->frontier);
    requester->unacked = requester->cursor = requester->frontier;
    requester->position++;
    qp_complete_send(qp, COMPLETION_SUCCESS);
    return STEP_SENT;
}

static void build_ipv6(const struct path *path, uint16_t length, uint8_t hop_limit,
                       uint8_t *ret_header)
{
    bytes_store_u32(ret_header,
                    UINT32_C(6) << 28 | (uint32_t)path->traffic_class << 20 | path->flow_label);
    bytes_store_u16(ret_header + 4, length);
    ret_header[6] = IP_PROTOCOL_UDP;
    ret_header[7] = hop_limit;
    memcpy(ret_header + 8, path->remote.bytes, sizeof path->remote.bytes);
    memcpy(ret_header + 24, path->local.bytes, sizeof path->local.bytes);
}

/* Readers tell it from an IPv6 header by its checksum, so that one must be right. */
static void build_ipv4(const struct path *path, uint16_t length, uint8_t hop_limit,
                       uint8_t *ret_header)
{
    memset(ret_header, 0, IPV4_HEADER_LENGTH);
    ret_header[0] = 0x45; /* version 4, five words */
    ret_header[1] = path->traffic_class;
    bytes_store_u16(ret_header + 2, (uint16_t)(IPV4_HEADER_LENGTH + length));
    bytes_store_u16(ret_header + 6, 0x4000); /* don't fragment */
    ret_header[8] = hop_limit;
    ret_header[9] = IP_PROTOCOL_UDP;
    memcpy(ret_header + 12, path->remote.bytes + 12, 4);
    memcpy(ret_header + 16, path->local.bytes + 12, 4);
    uint32_t sum = 0;
    for (uint32_t at = 0; at < IPV4_HEADER_LENGTH; at += 2) {
        sum += bytes_load_u16(ret_header + at);
    }
    sum = (sum & 0xffff) + (sum >> 16);
    bytes_store_u16(ret_header + 10, (uint16_t) ~(sum + (sum >> 16)));
}

static void build_grh(const struct path *path, const struct packet *packet, uint8_t *ret_grh)
{
    uint8_t hop_limit = path->hop_limit != 0 ? path->hop_limit : HOP_LIMIT_UNSPECIFIED;
    uint32_t length = UDP_HEADER_LENGTH + packet->info->header_length + packet->payload_length +
                      packet_pad(packet->payload_length) + ICRC_LENGTH;
    if (gid_is_ipv4(&path->remote)) {
        memset(ret_grh, 0, GRH_LENGTH - IPV4_HEADER_LENGTH);
        build_ipv4(path, (uint16_t)length, hop_limit, ret_grh + GRH_LENGTH - IPV4_HEADER_LENGTH);
    } else {
        build_ipv6(path, (uint16_t)length, hop_limit, ret_grh);
    }
}

static enum completion_status place(struct qp *qp, const struct arrival *arrival,
                                    const struct packet *packet)
{
    uint8_t grh[GRH_LENGTH];
    build_grh(&arrival->path, packet, grh);
    struct scatter *place = responder_place(qp);
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
    /* Members of a group may look away, and each message is for who has room for it. */
    bool is_to_group = qpn_equal(packet->destination, QPN_MULTICAST);
    const struct receive_slot *waiting = receive_queue_peek(qp->receives);
    if (waiting == NULL) {
        if (!is_to_group) {
            watch_not_ready(qp);
        }
        environment_refuse(environment, REFUSED_NO_RECEIVE);
        return;
    }
    uint64_t length = GRH_LENGTH + (uint64_t)packet->payload_length;
    if (waiting->length < length) {
        if (!is_to_group) {
            watch_too_long(qp, length, waiting->length);
        }
        environment_refuse(environment, REFUSED_TOO_LONG);
        return;
    }
    if (!responder_take_receive(qp)) {
        return;
    }
    struct completion completion = {
        .id = responder->receive_id,
        .status = place(qp, arrival, packet),
        .kind = COMPLETED_RECEIVE,
        .byte_length = GRH_LENGTH + packet->payload_length,
        .qpn = qp->number,
        .source = packet->source,
        .has_immediate = packet->info->has_immediate,
        .immediate = packet->immediate,
        .has_grh = true,
        .source_lid = gid_lid(&arrival->path.remote),
        .grh_is_ipv4 = gid_is_ipv4(&arrival->path.remote),
    };
    responder->receive_taken = false;
    bool failed = completion.status != COMPLETION_SUCCESS;
    qp_push(qp, qp->receive_completions, &completion, packet->solicited || failed);
    if (failed) {
        qp_enter_error(qp);
    }
}
