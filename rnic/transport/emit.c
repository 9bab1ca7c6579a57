/* Packets of a queue pair on their way to the sink. Declared in qp_private.h. */
#include "rnic/transport/answer.h"
#include "rnic/transport/qp_private.h"

static bool emit(struct qp *qp, const struct path *path, const struct packet *packet,
                 const struct fragment_list *payload, bool acknowledges, uint32_t *ret_takes)
{
    struct environment *environment = qp->environment;
    uint8_t header[PACKET_HEADER_MAX];
    struct outgoing outgoing = {
        .path = path,
        .header = header,
        .header_length = packet_build(packet, header),
        .fragments = payload != NULL ? payload->fragments : NULL,
        .fragment_count = payload != NULL ? payload->count : 0,
        .payload_length = packet->payload_length,
        .reference_shift = packet->segment_shift,
        .ret_takes = ret_takes,
    };
    if (qp->selective != NULL) {
        packet_put_tag(header, qp->selective->peer_tag);
    }
    if (packet->segment_shift != 0) {
        outgoing.is_response = !opcode_lookup(packet->opcode)->is_request;
    }
    if (acknowledges) {
        outgoing.acknowledges = true;
        outgoing.acknowledged = answer_acknowledges(qp);
        outgoing.acknowledged_msn = qp->responder.msn;
    }
    if (!environment->sink->emit(environment->sink, &outgoing)) {
        environment_count(environment, COUNTER_SINK_FULL);
        return false;
    }
    if (ret_takes != NULL && *ret_takes != 0) {
        return true;
    }
    if (packet->segment_shift != 0) {
        qp->has_references[outgoing.is_response] = true;
        environment_count(environment, COUNTER_REFERENCES_SENT);
    }
    environment_count(environment, COUNTER_PACKETS_SENT);
    environment->counters.values[COUNTER_BYTES_SENT] += packet->payload_length;
    return true;
}

bool qp_emit(struct qp *qp, const struct path *path, const struct packet *packet,
             const struct fragment_list *payload)
{
    return emit(qp, path, packet, payload, false, NULL);
}

uint32_t qp_emit_train(struct qp *qp, const struct packet *packet, const uint8_t *bytes,
                       uint32_t count, uint32_t under_way)
{
    struct environment *environment = qp->environment;
    uint8_t header[PACKET_HEADER_MAX];
    struct train train = {
        .path = &qp->attributes.path,
        .header = header,
        .header_length = packet_build(packet, header),
        .bytes = bytes,
        .payload_length = packet->payload_length,
        .count = count,
        .under_way = under_way,
    };
    if (qp->selective != NULL) {
        packet_put_tag(header, qp->selective->peer_tag);
    }
    uint32_t taken = environment->sink->emit_train(environment->sink, &train);
    environment->counters.values[COUNTER_SINK_FULL] += taken < count;
    environment->counters.values[COUNTER_PACKETS_SENT] += taken;
    environment->counters.values[COUNTER_BYTES_SENT] += (uint64_t)taken * packet->payload_length;
    return taken;
}

enum step qp_emit_unanswered(struct qp *qp, const struct path *path, const struct packet *packet,
                             const struct fragment_list *payload)
{
    uint32_t takes = 0;
    if (!emit(qp, path, packet, payload, false, &takes)) {
        return STEP_FULL;
    }
    if (takes == 0) {
        return STEP_SENT;
    }
    qp->requester.interface_takes = (uint16_t)takes;
    qp_fail_send(qp, COMPLETION_LOCAL_LENGTH_ERROR);
    return STEP_IDLE;
}

bool qp_emit_request(struct qp *qp, const struct packet *packet,
                     const struct fragment_list *payload)
{
    bool acknowledges = answer_may_ride(qp);
    if (!emit(qp, &qp->attributes.path, packet, payload, acknowledges, NULL)) {
        return false;
    }
    if (acknowledges) {
        acknowledge_paid(&qp->responder.acknowledge);
        environment_count(qp->environment, COUNTER_ACKNOWLEDGEMENTS_CARRIED);
    }
    return true;
}
