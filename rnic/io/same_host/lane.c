#include "rnic/io/same_host/lane.h"

#include <string.h>

#include "rnic/io/same_host/payload_here.h"

static const struct inbox_route *find_route(struct lane *lane, uint32_t index)
{
    if (index >= lane->route_count) {
        uint32_t count = atomic_load_explicit(&lane->memory->route_count, memory_order_acquire);
        count = count < INBOX_ROUTES ? count : INBOX_ROUTES;
        for (; lane->route_count < count; lane->route_count++) {
            lane->routes[lane->route_count] = lane->memory->routes[lane->route_count];
        }
    }
    return index < lane->route_count ? &lane->routes[index] : NULL;
}

/* A payload in the sender's memory, or in the record. */
struct lane_reader {
    struct payload_reader reader; /* first */
    const struct lane *lane;
    struct inbox_reference reference;
    struct payload_here carried;
    struct pull_piece pieces[PULL_PIECES_MAX];
};

static bool is_withdrawn(const struct lane_reader *reader)
{
    const struct inbox_reference *reference = &reader->reference;
    return atomic_load(&reader->lane->memory->withdrawals[reference->place]) !=
           reference->withdrawal;
}

static bool read_payload(struct payload_reader *payload_reader, uint32_t offset,
                         const struct payload_place *places, uint32_t count)
{
    const struct lane_reader *reader = (const struct lane_reader *)payload_reader;
    return !is_withdrawn(reader) &&
           pull(&reader->lane->sender, reader->pieces, reader->reference.piece_count, offset,
                places, count) &&
           !is_withdrawn(reader);
}

/* Behind the headers, to the record's end. */
static bool find_carried(const uint8_t *bytes, uint32_t length, struct lane_reader *reader)
{
    const struct inbox_reference *reference = &reader->reference;
    uint32_t begin = INBOX_CARRIED(reference->header_length) - sizeof(struct inbox_record);
    payload_here_init(&reader->carried, bytes + begin, reference->length);
    return reference->length > 0 && reference->length <= INBOX_CARRIED_MAX &&
           length == begin + reference->length;
}

/* What stands behind the record's first bytes, copied once. False: none of ours writes that. */
static bool find_reference(const struct lane *lane, const uint8_t *bytes, uint32_t length,
                           struct lane_reader *ret_reader, uint32_t *ret_taken)
{
    struct inbox_reference *reference = &ret_reader->reference;
    ret_reader->reader.read = read_payload;
    ret_reader->lane = lane;
    if (length < sizeof *reference) {
        return false;
    }
    memcpy(reference, bytes, sizeof *reference);
    uint32_t taken =
        (uint32_t)(sizeof *reference + reference->piece_count * sizeof ret_reader->pieces[0]);
    *ret_taken = taken;
    if (reference->piece_count == 0) {
        return find_carried(bytes, length, ret_reader);
    }
    if (!lane->pulls || reference->piece_count > PULL_PIECES_MAX ||
        length - sizeof *reference < taken - sizeof *reference + reference->header_length) {
        return false;
    }
    memcpy(ret_reader->pieces, bytes + sizeof *reference, taken - sizeof *reference);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < reference->piece_count; i++) {
        sum += ret_reader->pieces[i].length;
    }
    return sum == reference->length && sum > 0 && sum <= REFERENCE_MAX;
}

static bool pass_reference(const struct lane *lane, struct inbox_receiver *receiver,
                           const struct arrival *arrival, const uint8_t *bytes, uint32_t length,
                           struct lane_passed *ret_passed)
{
    struct lane_reader reader;
    uint32_t taken;
    if (!find_reference(lane, bytes, length, &reader, &taken)) {
        return false;
    }
    bool in_record = reader.reference.piece_count == 0;
    struct payload_reference reference = {
        .reader = in_record ? &reader.carried.reader : &reader.reader,
        .length = reader.reference.length,
        .segment_shift = reader.reference.segment_shift,
    };
    receiver->receive(receiver, arrival, bytes + taken, reader.reference.header_length, &reference);
    *ret_passed = (struct lane_passed){1 + reference.length / PACKET_PAYLOAD_MAX, in_record};
    return true;
}

bool lane_pass_on(struct lane *lane, struct inbox_receiver *receiver, const uint8_t *bytes,
                  uint32_t length, struct lane_passed *ret_passed)
{
    struct inbox_record record;
    if (length < sizeof record || length > INBOX_RECORD_MAX) {
        return false;
    }
    memcpy(&record, bytes, sizeof record);
    const struct inbox_route *route = find_route(lane, record.route);
    if (route == NULL) {
        return false;
    }
    struct arrival arrival = {
        .path = {.local = route->remote,
                 .remote = route->local,
                 .source_port = record.source_port,
                 .traffic_class = record.traffic_class,
                 .hop_limit = record.hop_limit,
                 .flow_label = (record.flow_label_high & 0xfu) << 16 | record.flow_label_low},
        .is_near = true,
        .acknowledges = (record.flow_label_high & INBOX_ACKNOWLEDGES) != 0,
        .acknowledged = psn_make(record.acknowledged),
    };
    bytes += sizeof record;
    length -= (uint32_t)sizeof record;
    if ((record.flow_label_high & INBOX_REFERS) != 0) {
        return pass_reference(lane, receiver, &arrival, bytes, length, ret_passed);
    }
    *ret_passed = (struct lane_passed){1, false};
    receiver->receive(receiver, &arrival, bytes, length, NULL);
    return true;
}
