/* Our connection manager in the place of each side of the captured conversations over QP1: the
 * peer's MADs are fed, the captured side's program does what it did, and what we send is compared
 * field by field with what the kernel sent. Ids that we choose ourselves are led back to the
 * captured ones before the peer's answers are fed. Differences: as in replay_test.c. Usage:
 * replay_cm_test FOLDER */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/base/container.h"
#include "rnic/base/heap.h"
#include "rnic/cm/cm.h"
#include "test/captures/readme.h"
#include "test/captures/replay.h"

#define CONVERSATIONS_MAX 16u
#define MADS_MAX          64u
#define REJECTED_NOBODY   8

static const char *folder;
static const char *const names[] = {"cm-rping", "ipv6-mtu4096", "nvme-rdma"};

/* A connection, and what we call by other names than the captured side did. */
struct conversation {
    struct cm_connection *connection;
    uint32_t captured_id, captured_peer_id, our_id;
    uint64_t captured_transaction, our_transaction; /* of a REQ or DREQ of ours */
};

struct mad {
    struct packet packet;
    struct path path;
    struct cm_message message;
};

struct world {
    const struct replay_capture *capture;
    int side;
    struct instant now;
    struct packet_sink sink;
    struct device *device;
    struct cm *cm;
    struct conversation conversations[CONVERSATIONS_MAX];
    uint32_t conversation_count;
    struct mad sent[MADS_MAX];
    uint32_t sent_count;
};

static int side_of(const struct frame *frame)
{
    return memcmp(frame->path.local.bytes, frame->path.remote.bytes, 16) < 0 ? 0 : 1;
}

static bool emit(struct packet_sink *sink, const struct outgoing *outgoing)
{
    struct world *world = CONTAINER_OF(sink, struct world, sink);
    uint8_t bytes[PACKET_HEADER_MAX + MAD_LENGTH];
    assert_true(world->sent_count < MADS_MAX);
    assert_int_equal(outgoing->payload_length, MAD_LENGTH);
    assert_int_equal(outgoing->fragment_count, 1);
    memcpy(bytes, outgoing->header, outgoing->header_length);
    memcpy(bytes + outgoing->header_length, outgoing->fragments[0].bytes, MAD_LENGTH);
    struct mad *mad = &world->sent[world->sent_count++];
    assert_int_equal(packet_parse(bytes, outgoing->header_length + MAD_LENGTH, &mad->packet),
                     REFUSED_NOT);
    assert_int_equal(cm_message_parse(mad->packet.payload, MAD_LENGTH, &mad->message), STATUS_OK);
    mad->path = *outgoing->path;
    return true;
}

static struct conversation *new_conversation(struct world *world)
{
    assert_true(world->conversation_count < CONVERSATIONS_MAX);
    return &world->conversations[world->conversation_count++];
}

/* By the ids that the captured side and its peer gave it; 0: any. */
static struct conversation *find(struct world *world, uint32_t id, uint32_t peer_id)
{
    for (uint32_t i = 0; i < world->conversation_count; i++) {
        struct conversation *conversation = &world->conversations[i];
        if ((id == 0 || conversation->captured_id == id) &&
            (peer_id == 0 || conversation->captured_peer_id == peer_id)) {
            return conversation;
        }
    }
    return NULL;
}

static void advance(struct world *world)
{
    cm_advance(world->cm, world->now);
    while (device_advance(world->device, world->now, UINT32_MAX)) {
    }
}

/* `request`: the REQ that was just fed, NULL if another message was. */
static void take_events(struct world *world, const struct cm_message *request)
{
    struct cm_event event;
    while (cm_next_event(world->cm, &event)) {
        if (event.kind == CM_EVENT_REQUEST) {
            assert_non_null(request);
            struct conversation *conversation = new_conversation(world);
            conversation->connection = event.connection;
            conversation->captured_peer_id = request->local_id;
        }
    }
}

static struct cm_parameters parameters_of(const struct frame *frame)
{
    const struct cm_message *message = &frame->message;
    struct cm_parameters parameters = {
        .qpn = message->local_qpn,
        .starting_psn = message->starting_psn,
        .responder_resources = message->responder_resources,
        .initiator_depth = message->initiator_depth,
        .retry_count = message->retry_count,
        .rnr_retry_count = message->rnr_retry_count,
        .ack_timeout = message->ack_timeout,
        .path_mtu = message->path_mtu,
        .flow_control = message->flow_control,
        .shared_receive_queue = message->shared_receive_queue,
        .transport_service = message->transport_service,
        .private_length = (uint8_t)cm_message_private_max(message->kind),
    };
    memcpy(parameters.private_data, message->private_data, parameters.private_length);
    return parameters;
}

static void connect_as_captured(struct world *world, const struct frame *frame)
{
    const struct cm_message *message = &frame->message;
    struct conversation *conversation = new_conversation(world);
    struct cm_connect_request request = {
        .path = message->path,
        .service_id = message->service_id,
        .parameters = parameters_of(frame),
        .response_timeout = message->local_response_timeout,
        .max_retries = message->max_cm_retries,
    };
    request.path.source_port = frame->path.source_port;
    conversation->captured_id = message->local_id;
    assert_int_equal(cm_connect(world->cm, world->now, &request, &conversation->connection),
                     STATUS_OK);
}

/* What the captured side's program asked for. */
static void act(struct world *world, const struct frame *frame)
{
    const struct cm_message *message = &frame->message;
    struct conversation *conversation = find(world, 0, message->remote_id);
    struct cm_parameters parameters = parameters_of(frame);
    uint32_t sent = world->sent_count;
    switch (message->kind) {
    case CM_MESSAGE_REQ:
        connect_as_captured(world, frame);
        conversation = &world->conversations[world->conversation_count - 1];
        break;
    case CM_MESSAGE_REP:
        assert_non_null(conversation);
        conversation->captured_id = message->local_id;
        assert_int_equal(cm_accept(conversation->connection, world->now, &parameters), STATUS_OK);
        break;
    case CM_MESSAGE_RTU:
        conversation = find(world, message->local_id, 0);
        assert_non_null(conversation);
        assert_int_equal(cm_confirm(conversation->connection, world->now), STATUS_OK);
        break;
    case CM_MESSAGE_DREQ:
        conversation = find(world, message->local_id, 0);
        assert_non_null(conversation);
        assert_int_equal(cm_disconnect(conversation->connection, world->now), STATUS_OK);
        break;
    default:
        return; /* REJ for want of a listener, DREP: the manager's own answers */
    }
    advance(world);
    assert_int_equal(world->sent_count, sent + 1);
    conversation->our_id = world->sent[sent].message.local_id;
    conversation->captured_transaction = message->transaction;
    conversation->our_transaction = world->sent[sent].message.transaction;
}

/* The peer's message as it would have been had it heard ours. */
static void feed(struct world *world, const struct frame *captured)
{
    struct frame frame = *captured;
    struct cm_message *message = &frame.message;
    struct conversation *conversation = find(world, message->remote_id, 0);
    if (message->remote_id != 0) {
        assert_non_null(conversation);
        message->remote_id = conversation->our_id;
        conversation->captured_peer_id = message->local_id;
        if (message->transaction == conversation->captured_transaction) {
            message->transaction = conversation->our_transaction;
        }
    }
    uint8_t bytes[FRAME_MAX];
    uint32_t length = frame_build(&frame, bytes), bth = frame_bth_offset(bytes);
    struct arrival arrival = {.path = path_reverse(&frame.path)};
    device_receive(world->device, world->now, &arrival, bytes + bth, length - bth - ICRC_LENGTH);
    take_events(world, message->kind == CM_MESSAGE_REQ ? message : NULL);
    advance(world);
}

/* Services that the captured side offered: those whose REQ it did not refuse. */
static void listen_as_captured(struct world *world)
{
    const struct replay_capture *capture = world->capture;
    uint64_t refused = 0, listened[MADS_MAX];
    uint32_t count = 0;
    for (uint32_t i = capture->pcap.count; i-- > 0;) {
        const struct frame *frame = &capture->frames[i];
        bool ours = frame->is_management && side_of(frame) == world->side;
        if (ours && frame->message.kind == CM_MESSAGE_REJ) {
            assert_int_equal(frame->message.reject_reason, REJECTED_NOBODY);
            refused = frame->message.transaction;
        }
        if (!frame->is_management || ours || frame->message.kind != CM_MESSAGE_REQ ||
            frame->message.transaction == refused) {
            continue;
        }
        bool known = false;
        for (uint32_t k = 0; k < count; k++) {
            known |= listened[k] == frame->message.service_id;
        }
        struct cm_listener *listener;
        if (!known) {
            listened[count++] = frame->message.service_id;
            assert_int_equal(
                cm_listen(world->cm, frame->message.service_id, NULL, 0, NULL, &listener),
                STATUS_OK);
        }
    }
}

static uint64_t ca_guid(const struct world *world)
{
    for (uint32_t i = 0; i < world->capture->pcap.count; i++) {
        const struct frame *frame = &world->capture->frames[i];
        if (frame->is_management && side_of(frame) == world->side &&
            (frame->message.kind == CM_MESSAGE_REQ || frame->message.kind == CM_MESSAGE_REP)) {
            return frame->message.local_ca_guid;
        }
    }
    return 0;
}

static void create(struct world *world)
{
    world->sink.emit = emit;
    struct device_config config = {.allocator = heap_allocator(),
                                   .sink = &world->sink,
                                   .key = {{1}},
                                   .first_qpn = {100},
                                   .qpn_count = 1,
                                   .max_regions = 1,
                                   .max_reads_in = 1};
    assert_int_equal(device_create(&config, &world->device), STATUS_OK);
    struct cm_config cm = {.allocator = heap_allocator(),
                           .device = world->device,
                           .key = {{1}},
                           .max_connections = CONVERSATIONS_MAX,
                           .ca_guid = ca_guid(world)};
    assert_int_equal(cm_create(&cm, &world->cm), STATUS_OK);
    listen_as_captured(world);
}

static void destroy(struct world *world)
{
    for (uint32_t i = 0; i < world->conversation_count; i++) {
        cm_release(world->conversations[i].connection, world->now);
    }
    cm_destroy(world->cm);
    device_destroy(world->device);
}

/* Why we may differ. */
static struct rule {
    const char *field, *rxe, *ours, *why;
    uint32_t needed;
} rules[] = {
    {"ids", "chose its communication ids", "others", "they are names that each side gives", 0},
    {"transaction", "chose its transaction ids", "others", "likewise", 0},
    {"AckReq", "sets AckReq in MADs", "does not", "a datagram is not acknowledged", 0},
    {"PSN of QP1", "counts the PSNs of QP1 from 0", "from a random number",
     "a datagram's PSN means nothing to its receiver [IBA 9.8.3]", 0},
    {"UDP source port", "answers from the one port of its QP1",
     "from the link's own, port 4791 (the engine names none)", "it only spreads load [A17.9.4]", 0},
};

#define RULE_COUNT (sizeof rules / sizeof rules[0])

static uint32_t compared, equal_fields, unexplained;

static void judge(const struct world *world, const struct mad *ours, const char *field,
                  uint64_t theirs, uint64_t our_value)
{
    if (theirs == our_value) {
        equal_fields++;
        return;
    }
    for (size_t i = 0; i < RULE_COUNT; i++) {
        if (strcmp(rules[i].field, field) == 0) {
            rules[i].needed++;
            return;
        }
    }
    print_message("side %c %s: %s: rxe 0x%llx, ours 0x%llx\n", "AB"[world->side],
                  cm_message_kind_name(ours->message.kind), field, (unsigned long long)theirs,
                  (unsigned long long)our_value);
    unexplained++;
}

static void compare_paths(const struct world *world, const struct frame *theirs,
                          const struct mad *ours)
{
    const struct path *a = &theirs->message.path, *b = &ours->message.path;
    uint8_t hop_limit = ours->path.hop_limit == 0 ? 64 : ours->path.hop_limit;
    judge(world, ours, "GIDs", 0, (uint64_t)(memcmp(&a->local, &b->local, 32) != 0));
    judge(world, ours, "flow label", a->flow_label, b->flow_label);
    judge(world, ours, "traffic class", a->traffic_class, b->traffic_class);
    judge(world, ours, "hop limit", a->hop_limit, b->hop_limit);
    judge(world, ours, "addresses", 0,
          (uint64_t)(memcmp(&theirs->path.local, &ours->path.local, 32) != 0));
    judge(world, ours, "UDP source port", theirs->path.source_port, ours->path.source_port);
    judge(world, ours, "TTL", theirs->path.hop_limit, hop_limit);
    judge(world, ours, "TOS", theirs->path.traffic_class, ours->path.traffic_class);
}

static void compare_packets(const struct world *world, const struct frame *theirs,
                            const struct mad *ours)
{
    const struct packet *a = &theirs->packet, *b = &ours->packet;
    judge(world, ours, "opcode", a->opcode, b->opcode);
    judge(world, ours, "solicited", a->solicited, b->solicited);
    judge(world, ours, "MigReq", a->migration_request, b->migration_request);
    judge(world, ours, "AckReq", a->ack_request, b->ack_request);
    judge(world, ours, "P_Key of the BTH", a->pkey.value, b->pkey.value);
    judge(world, ours, "destination", a->destination.value, b->destination.value);
    judge(world, ours, "PSN of QP1", a->psn.value, b->psn.value);
    judge(world, ours, "Q_Key of the DETH", a->qkey.value, b->qkey.value);
    judge(world, ours, "source QP", a->source.value, b->source.value);
}

static void compare_messages(const struct world *world, const struct cm_message *a,
                             const struct mad *ours)
{
    const struct cm_message *b = &ours->message;
#define SAME(name, field) judge(world, ours, name, (uint64_t)a->field, (uint64_t)b->field)
    SAME("attribute", kind);
    SAME("transaction", transaction);
    SAME("ids", local_id);
    SAME("ECE", ece.vendor_id);
    SAME("ECE", ece.options);
    SAME("service id", service_id);
    SAME("CA GUID", local_ca_guid);
    SAME("Q_Key", local_qkey.value);
    SAME("QPN", local_qpn.value);
    SAME("EECN", local_eecn.value);
    SAME("responder resources", responder_resources);
    SAME("initiator depth", initiator_depth);
    SAME("starting PSN", starting_psn.value);
    SAME("transport service", transport_service);
    SAME("extended transport", extended_transport);
    SAME("flow control", flow_control);
    SAME("SRQ", shared_receive_queue);
    SAME("RNR retry count", rnr_retry_count);
    SAME("retry count", retry_count);
    SAME("remote response timeout", remote_response_timeout);
    SAME("local response timeout", local_response_timeout);
    SAME("max CM retries", max_cm_retries);
    SAME("P_Key", pkey.value);
    SAME("path MTU", path_mtu);
    SAME("service level", service_level);
    SAME("packet rate", packet_rate);
    SAME("local ACK timeout", ack_timeout);
    SAME("target ACK delay", target_ack_delay);
    SAME("failover accepted", failover_accepted);
    SAME("answered", answered);
    SAME("reject reason", reject_reason);
    SAME("reject information", reject_info_length);
#undef SAME
    judge(world, ours, "peer's id", a->remote_id, b->remote_id);
    judge(world, ours, "private data", 0,
          (uint64_t)(memcmp(a->private_data, b->private_data, sizeof a->private_data) != 0));
}

static void replay_side(const struct replay_capture *capture, int side)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    world->capture = capture;
    world->side = side;
    create(world);
    for (uint32_t i = 0; i < capture->pcap.count; i++) {
        const struct frame *frame = &capture->frames[i];
        world->now.ns = capture->pcap.frames[i].time_ns;
        if (frame->is_management) {
            advance(world);
            (side_of(frame) == side ? act : feed)(world, frame);
        }
    }
    uint32_t next = 0;
    for (uint32_t i = 0; i < capture->pcap.count; i++) {
        const struct frame *frame = &capture->frames[i];
        if (frame->is_management && side_of(frame) == side) {
            assert_true(next < world->sent_count);
            const struct mad *ours = &world->sent[next++];
            compare_packets(world, frame, ours);
            compare_messages(world, &frame->message, ours);
            compare_paths(world, frame, ours);
            compared++;
        }
    }
    assert_int_equal(next, world->sent_count);
    destroy(world);
    free(world);
}

static void check_readme(void)
{
    char line[1024];
    for (size_t i = 0; i < RULE_COUNT; i++) {
        (void)snprintf(line, sizeof line, "| %s | %s | %s | %u |", rules[i].rxe, rules[i].ours,
                       rules[i].why, rules[i].needed);
        unexplained += !readme_says(folder, line) || rules[i].needed == 0;
    }
    (void)snprintf(line, sizeof line,
                   "Of %u messages of the connection manager, %u fields are equal.", compared,
                   equal_fields);
    unexplained += !readme_says(folder, line);
}

static void what_we_say_is_what_the_kernel_said(void **state)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct replay_capture capture;
        replay_open(folder, names[i], &capture);
        replay_side(&capture, 0);
        replay_side(&capture, 1);
        replay_close(&capture);
    }
    check_readme();
    assert_int_equal(unexplained, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_we_say_is_what_the_kernel_said),
    };
    if (argc != 2) {
        (void)fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    folder = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
