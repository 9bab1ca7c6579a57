#include "rnic/transport/short_way.h"

#include <string.h>

#include "rnic/base/bytes.h"
#include "rnic/memory/memory.h"
#include "rnic/transport/answer.h"
#include "rnic/transport/completer.h"
#include "rnic/transport/qp_private.h"
#include "rnic/wire/packet.h"

/* The BTH's three words. [IBA 9.2] */
#define OPCODE_SHIFT 24
#define SOLICITED    0x00800000u /* of the first */
#define PAD_SHIFT    20
#define PAD_MASK     3u
#define VERSION      0x000f0000u
#define PKEY_MASK    0x00007fffu
#define RESERVED     0xff000000u /* of the second */
#define ACK_REQUEST  0x80000000u /* of the third, before the PSN */

/* Above the credits, in the first byte of an AETH; 0: an acknowledgement. [IBA 9.7.5.1.2] */
#define AETH_SYNDROME 0x60u

/* More than the window of congestion, which counts whole MTUs, lets pass: the way to a peer that is
 * near has no queues but the link's own, and that says when it is full. */
#define IN_FLIGHT_MAX 256u

struct short_packet {
    const uint8_t *payload;
    uint32_t length;
    struct psn psn;
    uint32_t immediate; /* opaque bytes */
    bool has_immediate, solicited, ack_request;
};

struct words {
    uint32_t first, second, third;
};

static struct words load(const uint8_t *bytes)
{
    return (struct words){bytes_load_u32(bytes), bytes_load_u32(bytes + 4),
                          bytes_load_u32(bytes + 8)};
}

/* The BTH says nothing but where to, which PSN, and what its opcode's form has. What stands where
 * it has reserved bits is 0, or of who has agreed on selective repeat the tag. */
static bool is_plain(const struct qp *qp, const struct words *bth)
{
    uint32_t tag = qp->selective == NULL ? 0 : qp->agreement.tag;
    uint32_t upper = tag >> 7 << 24, lower = (tag & 0x7fu) << 24;
    uint32_t unusual = ((bth->first ^ PKEY_DEFAULT.value) & (VERSION | PKEY_MASK)) |
                       ((bth->second ^ upper) & RESERVED) |
                       ((bth->third ^ lower) & ~ACK_REQUEST & ~PSN_MASK);
    return unusual == 0;
}

static bool parse(const struct qp *qp, const uint8_t *bytes, uint32_t length,
                  struct short_packet *ret_packet)
{
    struct words bth = load(bytes);
    bool has_immediate = bth.first >> OPCODE_SHIFT == OPCODE(SERVICE_RC, FORM_SEND_ONLY_IMMEDIATE);
    uint32_t header = BTH_LENGTH + (has_immediate ? IMMDT_LENGTH : 0);
    if (length < header || (length & 3u) != 0 || !is_plain(qp, &bth)) {
        return false;
    }
    uint32_t pad = bth.first >> PAD_SHIFT & PAD_MASK;
    if (pad > length - header) {
        return false;
    }
    ret_packet->payload = bytes + header;
    ret_packet->length = length - header - pad;
    ret_packet->psn = psn_make(bth.third);
    ret_packet->has_immediate = has_immediate;
    ret_packet->immediate = 0;
    if (has_immediate) {
        memcpy(&ret_packet->immediate, bytes + BTH_LENGTH, IMMDT_LENGTH);
    }
    ret_packet->solicited = (bth.first & SOLICITED) != 0;
    ret_packet->ack_request = (bth.third & ACK_REQUEST) != 0;
    return true;
}

/* Where selective repeat is agreed, no request waits for what is missing. Responses may: until they
 * have come no request leaves this way, and an acknowledgement does the same on either. */
static bool is_ordinary(const struct qp *qp)
{
    return qp->service == SERVICE_RC && !qp->matches_tags && qp->environment->watcher == NULL &&
           (qp->selective == NULL || qp->selective->requests.count == 0);
}

static bool sends(const struct qp *qp)
{
    return qp_state_now(qp) == QP_RTS;
}

/* Of the first packet in RTR an event tells. */
static bool receives(const struct qp *qp)
{
    return sends(qp) || (qp_state_now(qp) == QP_RTR && qp->established_raised);
}

static bool comes_from_peer(const struct qp *qp, const struct arrival *arrival)
{
    const struct path *path = &qp->attributes.path;
    return !arrival->congestion_experienced && gid_equal(&arrival->path.remote, &path->remote) &&
           gid_equal(&arrival->path.local, &path->local);
}

static void note_way(struct qp *qp, const struct arrival *arrival)
{
    if (qp->peer_is_near != arrival->is_near) {
        qp->peer_is_near = arrival->is_near;
    }
}

static bool is_next(const struct qp *qp, const struct short_packet *packet)
{
    const struct responder *responder = &qp->responder;
    return psn_equal(packet->psn, responder->expected) && responder->inbound == INBOUND_NONE &&
           !responder->receive_taken && packet->length <= qp_mtu(qp);
}

/* Where the first bytes of an SGE are. False: it has fewer, or why not is for the general way to
 * find out. */
static bool find_bytes(const struct qp *qp, struct domain domain, const struct sge *sge,
                       uint32_t length, unsigned rights, uint8_t **ret_bytes)
{
    struct memory_request request = {
        .domain = domain,
        .key = sge->key,
        .address = sge->address,
        .length = length,
        .rights = rights,
    };
    *ret_bytes = length <= sge->length ? memory_find(qp->environment->memory, &request) : NULL;
    return *ret_bytes != NULL;
}

static bool put(const struct qp *qp, const struct short_packet *packet,
                const struct receive_slot *slot)
{
    uint8_t *bytes;
    if (packet->length == 0) {
        return true;
    }
    if (slot->sge_count == 0 || !find_bytes(qp, qp->receive_domain, slot->sges, packet->length,
                                            ACCESS_LOCAL_WRITE, &bytes)) {
        return false;
    }
    bytes_copy_short(bytes, packet->payload, packet->length);
    return true;
}

static void execute(struct qp *qp, const struct short_packet *packet, uint64_t id)
{
    struct completion spare, *completion = qp_open_completion(qp->receive_completions, &spare);
    *completion = (struct completion){
        .id = id,
        .status = COMPLETION_SUCCESS,
        .kind = COMPLETED_RECEIVE,
        .byte_length = packet->length,
        .qpn = qp->number,
        .source = qp->attributes.destination,
        .has_immediate = packet->has_immediate,
        .immediate = packet->immediate,
    };
    qp_schedule(qp);
    receive_queue_drop(qp->receives);
    qp_push_opened(qp, qp->receive_completions, completion, completion == &spare,
                   packet->solicited);
    responder_executed_short(qp, packet->ack_request);
}

bool short_way_receive(struct qp *qp, struct instant now, const struct arrival *arrival,
                       const uint8_t *bytes, uint32_t length)
{
    struct environment *environment = qp->environment;
    struct short_packet packet;
    if (!parse(qp, bytes, length, &packet) || !is_ordinary(qp) || !receives(qp) ||
        !comes_from_peer(qp, arrival) || !is_next(qp, &packet)) {
        return false;
    }
    environment->now = now;
    note_way(qp, arrival);
    if (arrival->acknowledges && sends(qp)) {
        completer_acknowledged(qp, now, arrival->acknowledged);
    }
    /* Which may have ended the queue pair. */
    const struct receive_slot *slot = receives(qp) ? receive_queue_peek(qp->receives) : NULL;
    if (slot == NULL || !put(qp, &packet, slot)) {
        return false;
    }
    environment_count(environment, COUNTER_PACKETS_RECEIVED);
    environment->counters.values[COUNTER_BYTES_RECEIVED] += packet.length;
    if (qp->selective != NULL) {
        qp->selective->peer_tags |= qp->agreement.tag != 0;
    }
    execute(qp, &packet, slot->id);
    return true;
}

bool short_way_acknowledged(struct qp *qp, struct instant now, const struct arrival *arrival,
                            const uint8_t *bytes)
{
    struct environment *environment = qp->environment;
    const struct requester *requester = &qp->requester;
    struct words bth = load(bytes);
    struct psn psn = psn_make(bth.third);
    int32_t ahead = psn_distance(requester->unacked, psn);
    if (!is_plain(qp, &bth) || (bth.first >> PAD_SHIFT & PAD_MASK) != 0 ||
        (bytes[BTH_LENGTH] & AETH_SYNDROME) != 0 || !is_ordinary(qp) || !sends(qp) ||
        !comes_from_peer(qp, arrival) || arrival->acknowledges || ahead < 0 ||
        ahead >= psn_distance(requester->unacked, requester->frontier)) {
        return false;
    }
    environment->now = now;
    note_way(qp, arrival);
    environment_count(environment, COUNTER_PACKETS_RECEIVED);
    completer_acknowledged(qp, now, psn);
    return true;
}

enum step short_way_answer(struct qp *qp)
{
    struct environment *environment = qp->environment;
    const struct responder *responder = &qp->responder;
    if (!answer_is_plain(qp) || !is_ordinary(qp) || !receives(qp)) {
        return STEP_IDLE;
    }
    uint8_t header[BTH_LENGTH + AETH_LENGTH];
    uint32_t opcode = OPCODE(SERVICE_RC, FORM_ACKNOWLEDGE);
    bytes_store_u32(header, opcode << OPCODE_SHIFT | PKEY_DEFAULT.value);
    bytes_store_u32(header + 4, qp->attributes.destination.value);
    bytes_store_u32(header + 8, answer_acknowledges(qp).value);
    bytes_store_u32(header + BTH_LENGTH, CREDITS_UNLIMITED << 24 | responder->msn);
    struct outgoing outgoing = {
        .path = &qp->attributes.path,
        .header = header,
        .header_length = sizeof header,
    };
    if (!environment->sink->emit(environment->sink, &outgoing)) {
        environment_count(environment, COUNTER_SINK_FULL);
        return STEP_FULL;
    }
    environment_count(environment, COUNTER_PACKETS_SENT);
    acknowledge_paid(&qp->responder.acknowledge);
    return STEP_SENT;
}

/* The request that is next, if it is of the kind. */
static struct send_slot *next(const struct qp *qp)
{
    const struct requester *requester = &qp->requester;
    if (requester->position == send_queue_tail(qp->sends)) {
        return NULL;
    }
    struct send_slot *slot = send_queue_slot(qp->sends, requester->position);
    bool sends = slot->kind == WORK_SEND || slot->kind == WORK_SEND_IMMEDIATE;
    bool is_short = slot->length <= SHORT_WAY_BYTES && slot->sge_count <= 1;
    return sends && is_short && !slot->started && !slot->fence ? slot : NULL;
}

static bool is_near_only(const struct qp *qp)
{
    return qp->peer_is_near && qp->selective == NULL;
}

/* To an ordinary queue pair's peer: nothing, or what answer_may_ride lets ride. */
static bool owes_little(const struct qp *qp, bool near)
{
    const struct responder *responder = &qp->responder;
    enum owed owed = responder->acknowledge.owed;
    bool may_ride = near && qp->environment->sink->carries_acknowledgements;
    return (owed == OWED_NOTHING || (owed == OWED_ACK && may_ride)) && !qp->owes_notice &&
           !qp->agreement.owes && !replay_may_be_pending(&responder->reads->replay);
}

/* No window is asked: of a peer that is near see above; to any other nothing is under way. */
static bool has_room(const struct qp *qp, bool near)
{
    const struct requester *requester = &qp->requester;
    uint32_t in_flight = (uint32_t)psn_distance(requester->unacked, requester->cursor);
    return in_flight < (near ? IN_FLIGHT_MAX : 1);
}

static bool may_leave(const struct qp *qp, bool near)
{
    const struct requester *requester = &qp->requester;
    return psn_equal(requester->cursor, requester->frontier) && requester->packet == 0 &&
           requester->run_left == 0 && instant_is_never(requester->rnr_resume) &&
           has_room(qp, near) && !qp->peer_died && !qp->requests_first && qp_rate(qp) == 0 &&
           owes_little(qp, near);
}

static uint32_t first_word(const struct send_slot *slot)
{
    bool has_immediate = slot->kind == WORK_SEND_IMMEDIATE;
    uint32_t opcode = has_immediate ? OPCODE(SERVICE_RC, FORM_SEND_ONLY_IMMEDIATE)
                                    : OPCODE(SERVICE_RC, FORM_SEND_ONLY);
    uint32_t flags = (slot->solicited ? SOLICITED : 0) | packet_pad(slot->length) << PAD_SHIFT;
    return opcode << OPCODE_SHIFT | flags | PKEY_DEFAULT.value;
}

static void build(const struct qp *qp, const struct send_slot *slot, uint8_t *header)
{
    bytes_store_u32(header, first_word(slot));
    bytes_store_u32(header + 4, qp->attributes.destination.value);
    bytes_store_u32(header + 8, ACK_REQUEST | qp->requester.cursor.value);
    if (slot->kind == WORK_SEND_IMMEDIATE) {
        memcpy(header + BTH_LENGTH, &slot->immediate, IMMDT_LENGTH);
    }
    if (qp->selective != NULL) {
        packet_put_tag(header, qp->selective->peer_tag);
    }
}

/* Where the bytes of its message are; a reliable queue pair's has no target. False: why not is for
 * the general way to find out. */
static bool find_payload(const struct qp *qp, struct send_slot *slot, uint8_t **ret_bytes)
{
    if (slot->inline_data) {
        *ret_bytes = send_slot_room(slot);
        return true;
    }
    return slot->length == 0 ||
           find_bytes(qp, qp->domain, send_slot_room(slot), slot->length, 0, ret_bytes);
}

/* With what was owed. */
static void note_sent(struct qp *qp, struct instant now, struct send_slot *slot)
{
    struct environment *environment = qp->environment;
    environment_count(environment, COUNTER_PACKETS_SENT);
    environment->counters.values[COUNTER_BYTES_SENT] += slot->length;
    if (qp->responder.acknowledge.owed == OWED_ACK) {
        acknowledge_paid(&qp->responder.acknowledge);
        environment_count(environment, COUNTER_ACKNOWLEDGEMENTS_CARRIED);
    }
    requester_sent_short(qp, now, slot);
}

/* Nobody times it more exactly than `now`, which may be some milliseconds old. */
static bool needs_no_time(const struct qp *qp)
{
    const struct retransmit *retransmit = &qp->retransmit;
    return retransmit_is_patient(retransmit) ||
           (retransmit->sampling && !instant_is_never(retransmit->deadline));
}

static bool is_only(const struct qp *qp)
{
    return qp->requester.position + 1 == send_queue_tail(qp->sends);
}

/* By the sink's own way for such packets. False: it has not left. */
static bool emit_short(const struct qp *qp, const struct send_slot *slot, const uint8_t *bytes)
{
    struct packet_sink *sink = qp->environment->sink;
    bool acknowledges = qp->responder.acknowledge.owed == OWED_ACK;
    struct outgoing_short outgoing = {
        .path = &qp->attributes.path,
        .bth = {first_word(slot), qp->attributes.destination.value,
                ACK_REQUEST | qp->requester.cursor.value},
        .has_immediate = slot->kind == WORK_SEND_IMMEDIATE,
        .immediate = slot->immediate,
        .length = slot->length,
        .payload = bytes,
        .acknowledges = acknowledges,
        .acknowledged = acknowledges ? answer_acknowledges(qp) : (struct psn){0},
    };
    return sink->emit_short(sink, &outgoing);
}

static bool may_emit_short(const struct qp *qp, bool near)
{
    return near && qp->environment->sink->emit_short != NULL && is_only(qp);
}

/* The request that may leave, and where its bytes are; NULL: none, or it is for the general way. */
static struct send_slot *ready(const struct qp *qp, bool near, uint8_t **ret_bytes)
{
    struct send_slot *slot = sends(qp) ? next(qp) : NULL;
    *ret_bytes = NULL;
    bool is_ready =
        slot != NULL && is_ordinary(qp) && may_leave(qp, near) && find_payload(qp, slot, ret_bytes);
    return is_ready ? slot : NULL;
}

bool short_way_post(struct qp *qp, struct instant now)
{
    uint8_t *bytes;
    bool may = may_emit_short(qp, is_near_only(qp)) && needs_no_time(qp);
    struct send_slot *slot = may ? ready(qp, true, &bytes) : NULL;
    if (slot == NULL || !emit_short(qp, slot, bytes)) {
        return false;
    }
    note_sent(qp, now, slot);
    return true;
}

enum step short_way_transmit(struct qp *qp, struct instant now)
{
    struct environment *environment = qp->environment;
    uint8_t *bytes;
    bool near = is_near_only(qp);
    struct send_slot *slot = ready(qp, near, &bytes);
    if (slot == NULL) {
        return STEP_IDLE;
    }
    if (may_emit_short(qp, near) && emit_short(qp, slot, bytes)) {
        note_sent(qp, now, slot);
        return STEP_SENT;
    }
    uint8_t header[BTH_LENGTH + IMMDT_LENGTH];
    build(qp, slot, header);
    struct fragment fragment = {bytes, slot->length};
    struct outgoing outgoing = {
        .path = &qp->attributes.path,
        .header = header,
        .header_length = BTH_LENGTH + (slot->kind == WORK_SEND_IMMEDIATE ? IMMDT_LENGTH : 0),
        .fragments = &fragment,
        .fragment_count = slot->length > 0,
        .payload_length = slot->length,
    };
    if (qp->responder.acknowledge.owed == OWED_ACK) {
        outgoing.acknowledges = true;
        outgoing.acknowledged = answer_acknowledges(qp);
        outgoing.acknowledged_msn = qp->responder.msn;
    }
    if (!environment->sink->emit(environment->sink, &outgoing)) {
        environment_count(environment, COUNTER_SINK_FULL);
        return STEP_FULL;
    }
    note_sent(qp, now, slot);
    return STEP_SENT;
}
