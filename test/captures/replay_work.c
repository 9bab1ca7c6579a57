/* The application around the captured side: what it posted, and what its memory held. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/wire/psn.h"
#include "test/captures/replay_private.h"

typedef bool whose(const struct world *world, const struct frame *frame);

/* The first packet at that PSN from frame `from` on; NULL: none was captured. */
enum wanted_packet {
    REQUEST,
    ANSWER,   /* any */
    RESPONSE, /* one that carries what was asked for */
};

static bool is_wanted(const struct packet *packet, enum wanted_packet wanted)
{
    enum operation operation = packet->info->operation;
    if (wanted == REQUEST || packet->info->is_request) {
        return wanted == REQUEST && packet->info->is_request;
    }
    return wanted == ANSWER || operation == OPERATION_READ_RESPONSE ||
           operation == OPERATION_ATOMIC_ACKNOWLEDGE;
}

static const struct packet *find(const struct world *world, whose *of, enum wanted_packet wanted,
                                 struct psn psn, uint32_t from)
{
    for (uint32_t i = from; i < world->capture->pcap.count; i++) {
        const struct frame *frame = &world->capture->frames[i];
        if (of(world, frame) && is_wanted(&frame->packet, wanted) &&
            psn_equal(frame->packet.psn, psn)) {
            return &frame->packet;
        }
    }
    return NULL;
}

static uint32_t psn_count(const struct world *world, const struct packet *request)
{
    uint32_t mtu = path_mtu_bytes(world->connection->mtu);
    bool is_read = request->info->operation == OPERATION_READ_REQUEST;
    return is_read && request->dma_length > mtu ? (request->dma_length + mtu - 1) / mtu : 1;
}

/* A whole message as it was captured. */
struct message {
    const struct packet *first, *last;
    uint32_t length, packets;
    uint8_t bytes[RECEIVE_LENGTH];
};

/* False: the rest of it was never captured. */
static bool assemble(const struct world *world, whose *of, struct psn psn, struct message *message)
{
    message->length = message->packets = 0;
    do {
        const struct packet *packet = find(world, of, REQUEST, psn, 0);
        if (packet == NULL) {
            return false;
        }
        message->first = message->packets == 0 ? packet : message->first;
        message->last = packet;
        assert_true(message->length + packet->payload_length <= sizeof message->bytes);
        if (packet->payload_length != 0) {
            memcpy(message->bytes + message->length, packet->payload, packet->payload_length);
        }
        message->length += packet->payload_length;
        message->packets += psn_count(world, packet);
        psn = psn_next(psn);
    } while (!message->last->info->last);
    return true;
}

/* Room in local memory, with what it holds now, and the bytes that `id` is to bring there. */
static struct sge take_local(struct world *world, uint32_t length)
{
    assert_true(world->local_used + length <= LOCAL_LENGTH);
    struct sge sge = {LOCAL_ADDRESS + world->local_used, length, world->local_key};
    world->local_used += length;
    return sge;
}

static struct wanted *want(struct world *world, uint64_t id, const struct sge *sge, uint32_t length)
{
    assert_true(world->wanted_count < sizeof world->wanted / sizeof world->wanted[0]);
    struct wanted *wanted = &world->wanted[world->wanted_count++];
    *wanted = (struct wanted){.id = id,
                              .at = (uint32_t)(sge->address - LOCAL_ADDRESS),
                              .length = length,
                              .bytes = calloc(1, length + 1)};
    assert_non_null(wanted->bytes);
    return wanted;
}

void replay_check_bytes(struct world *world, const struct completion *completion)
{
    for (uint32_t i = 0; i < world->wanted_count; i++) {
        const struct wanted *wanted = &world->wanted[i];
        if (wanted->id == completion->id && completion->status == COMPLETION_SUCCESS) {
            world->result->misread +=
                memcmp(world->local + wanted->at, wanted->bytes, wanted->length) != 0;
        }
    }
}

/* What the responses to a READ or atomic carried, as far as they were captured. */
static void answered_bytes(const struct world *world, whose *of, const struct packet *request,
                           uint8_t *ret_bytes)
{
    uint32_t mtu = path_mtu_bytes(world->connection->mtu);
    for (uint32_t i = 0; i < psn_count(world, request); i++) {
        const struct packet *response = find(world, of, RESPONSE, psn_add(request->psn, i), 0);
        if (response != NULL && response->info->has_atomic_ack) {
            memcpy(ret_bytes, &response->original, sizeof response->original);
        } else if (response != NULL && response->payload_length != 0) {
            memcpy(ret_bytes + (size_t)i * mtu, response->payload, response->payload_length);
        }
    }
}

static enum work_kind kind_of(const struct packet *last)
{
    switch (last->info->operation) {
    case OPERATION_SEND:
        return last->info->has_immediate    ? WORK_SEND_IMMEDIATE
               : last->info->has_invalidate ? WORK_SEND_INVALIDATE
                                            : WORK_SEND;
    case OPERATION_WRITE:
        return last->info->has_immediate ? WORK_WRITE_IMMEDIATE : WORK_WRITE;
    case OPERATION_READ_REQUEST:
        return WORK_READ;
    case OPERATION_COMPARE_SWAP:
        return WORK_COMPARE_SWAP;
    default:
        assert_int_equal(last->info->operation, OPERATION_FETCH_ADD);
        return WORK_FETCH_ADD;
    }
}

static void post(struct world *world, const struct frame *frame, const struct message *message)
{
    const struct packet *first = message->first, *last = message->last;
    uint32_t brought = first->info->has_atomic                            ? 8
                       : first->info->operation == OPERATION_READ_REQUEST ? first->dma_length
                                                                          : 0;
    struct sge sge = take_local(world, brought != 0 ? brought : message->length);
    memcpy(world->local + (sge.address - LOCAL_ADDRESS), message->bytes, message->length);
    struct datagram_target target = {frame->path, first->destination, first->qkey};
    struct send_request request = {
        .id = world->result->posted++,
        .kind = kind_of(last),
        .signaled = true,
        .solicited = last->solicited,
        .sges = &sge,
        .sge_count = sge.length != 0,
        .immediate = last->immediate,
        .invalidate = last->invalidate,
        .remote_address = first->remote_address,
        .remote_key = first->remote_key,
        .compare = first->compare,
        .swap_or_add = first->swap_or_add,
        .target = world->connection->service == SERVICE_UD ? &target : NULL,
    };
    if (brought != 0) {
        struct wanted *wanted = want(world, request.id, &sge, brought);
        answered_bytes(world, is_peers, first, wanted->bytes);
    }
    assert_int_equal(qp_post_send(world->qp, &request), STATUS_OK);
    (void)device_ring(world->device, world->qp);
}

void replay_post(struct world *world, uint32_t number)
{
    const struct frame *frame = &world->capture->frames[number];
    static struct message message;
    if (!frame->packet.info->is_request) {
        return;
    }
    if (world->result->posted == 0) {
        world->posted_to = frame->packet.psn;
    }
    /* Those before it too, whose first packet was lost before it was captured. */
    while (psn_distance(world->posted_to, frame->packet.psn) >= 0) {
        assert_true(assemble(world, is_ours, world->posted_to, &message));
        post(world, frame, &message);
        world->posted_to = psn_add(world->posted_to, message.packets);
    }
}

static void post_receive(struct world *world, const struct packet *packet,
                         const struct packet *answer)
{
    static struct message message;
    bool refused = answer != NULL && answer->info->has_aeth && answer->aeth.kind == AETH_NAK;
    bool is_send = packet->info->operation == OPERATION_SEND;
    uint32_t length = is_send && refused ? packet->payload_length / 2 : RECEIVE_LENGTH;
    struct sge sge = take_local(world, length);
    struct receive_request request = {
        .id = RECEIVE_IDS + world->receives++, .sges = &sge, .sge_count = 1};
    if (is_send && !refused && assemble(world, is_peers, packet->psn, &message)) {
        uint32_t grh = world->connection->service == SERVICE_UD ? 40 : 0;
        struct sge payload = {sge.address + grh, message.length, sge.key};
        struct wanted *wanted = want(world, request.id, &payload, message.length);
        memcpy(wanted->bytes, message.bytes, message.length);
    }
    assert_int_equal(qp_post_receive(world->qp, &request), STATUS_OK);
}

void replay_prepare(struct world *world, uint32_t number)
{
    const struct packet *packet = &world->capture->frames[number].packet;
    const struct opcode_info *info = packet->info;
    bool unreliable = !service_is_reliable(info->service);
    if (!unreliable && !psn_equal(packet->psn, world->expected)) {
        return;
    }
    const struct packet *answer = find(world, is_ours, ANSWER, packet->psn, number);
    if (answer != NULL && answer->info->has_aeth && answer->aeth.kind == AETH_RNR_NAK) {
        return;
    }
    world->expected = psn_add(packet->psn, psn_count(world, packet));
    if (info->operation == OPERATION_SEND ? info->first : info->has_immediate) {
        post_receive(world, packet, answer);
    }
    uint64_t length = info->has_atomic ? 8 : packet->dma_length;
    uint8_t *bytes =
        info->has_reth || info->has_atomic ? replay_memory(world, packet, length) : NULL;
    if (bytes != NULL && info->operation != OPERATION_WRITE) {
        answered_bytes(world, is_ours, packet, bytes);
    }
}
