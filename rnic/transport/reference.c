#include "rnic/transport/reference.h"

#include "rnic/base/check.h"
#include "rnic/transport/completer.h"
#include "rnic/transport/qp_private.h"
#include "rnic/transport/segment.h"

#define IN_FLIGHT_BYTES (4u * REFERENCE_MAX)

static uint32_t reach(const struct qp *qp)
{
    struct packet_sink *sink = qp->environment->sink;
    if (sink->reach == NULL || qp->service != SERVICE_RC) {
        return 0;
    }
    uint32_t bytes = sink->reach(sink, &qp->attributes.path, qp->attributes.destination);
    return bytes < REFERENCE_MAX ? bytes : REFERENCE_MAX;
}

uint32_t reference_span(const struct qp *qp, uint32_t length)
{
    const struct packet_sink *sink = qp->environment->sink;
    if (sink->reach == NULL || length <= qp_mtu(qp)) {
        return 1;
    }
    uint32_t most = reach(qp) >> qp->mtu_shift;
    uint32_t count = segment_packet_count(length, qp->mtu_shift);
    count = count < most ? count : most;
    return count > 0 ? count : 1;
}

bool reference_is_possible(const struct qp *qp)
{
    return reach(qp) > 0;
}

bool reference_takes_all(const struct qp *qp)
{
    return reach(qp) == REFERENCE_MAX;
}

uint32_t reference_window(const struct qp *qp)
{
    return IN_FLIGHT_BYTES >> qp->mtu_shift;
}

void reference_withdraw(struct qp *qp, bool responses)
{
    struct packet_sink *sink = qp->environment->sink;
    bool *has = &qp->has_references[responses];
    if (*has) {
        *has = false;
        sink->withdraw(sink, &qp->attributes.path, qp->attributes.destination, responses);
    }
}

/* Tag matching looks into payloads, a watcher keeps them, and PSNs are counted by our own MTU. */
bool reference_wants_unfolding(const struct qp *qp, const struct packet *packet)
{
    return packet->reader != NULL && (qp->matches_tags || qp->environment->watcher != NULL ||
                                      packet->segment_shift != qp->mtu_shift);
}

static uint8_t part_opcode(const struct opcode_info *info, bool first, bool last)
{
    if (info->operation == OPERATION_READ_RESPONSE) {
        return segment_response_opcode(info->service, first, last);
    }
    bool sends = info->operation == OPERATION_SEND;
    enum work_kind kind = sends ? WORK_SEND : WORK_WRITE;
    if (info->has_immediate) {
        kind = sends ? WORK_SEND_IMMEDIATE : WORK_WRITE_IMMEDIATE;
    } else if (info->has_invalidate) {
        kind = WORK_SEND_INVALIDATE;
    }
    return segment_request_opcode(info->service, kind, first, last);
}

/* Its payload is not to be had, and is asked for again, from there on. */
static void miss(struct qp *qp, struct instant now, const struct packet *part)
{
    struct acknowledge *acknowledge = &qp->responder.acknowledge;
    int32_t ahead = psn_distance(qp->responder.expected, part->psn);
    environment_count(qp->environment, COUNTER_REFERENCES_UNREADABLE);
    if (!part->info->is_request) {
        completer_miss(qp, now, part);
        return;
    }
    if (ahead == 0) {
        acknowledge_unreadable(acknowledge);
    } else if (ahead > 0) {
        (void)acknowledge_out_of_sequence(acknowledge);
    }
    qp_schedule(qp);
}

bool reference_unfold(struct qp *qp, struct instant now, const struct arrival *arrival,
                      const struct packet *packet)
{
    uint8_t bytes[PACKET_PAYLOAD_MAX];
    uint32_t count = segment_packet_count(packet->payload_length, packet->segment_shift);
    bool due = false;
    environment_count(qp->environment, COUNTER_REFERENCES_UNFOLDED);
    for (uint32_t i = 0; i < count; i++) {
        bool first = i == 0, last = i + 1 == count;
        struct packet part = *packet;
        part.opcode =
            part_opcode(packet->info, first && packet->info->first, last && packet->info->last);
        part.info = opcode_lookup(part.opcode);
        part.psn = psn_add(packet->psn, i);
        part.ack_request = last && packet->ack_request;
        part.solicited = last && packet->solicited;
        part.reader = NULL;
        part.payload = bytes;
        part.payload_length =
            segment_payload_length(packet->payload_length, i, packet->segment_shift);
        struct payload_place place = {bytes, part.payload_length};
        if (!packet->reader->read(packet->reader, i << packet->segment_shift, &place, 1)) {
            if (qp_admit(qp, now, arrival, &part)) {
                miss(qp, now, &part);
            }
            return due;
        }
        due |= qp_receive(qp, now, arrival, &part);
    }
    return due;
}
