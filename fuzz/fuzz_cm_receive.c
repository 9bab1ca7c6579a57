/* A live communication manager over a real device: a listener, a caller that answers as the input
 * says, and a peer that sends what it likes, with the ids that it has seen. Nothing crashes, each
 * connection's events come in an order that its life allows, and when all is released and time has
 * passed, nothing is left.
 *
 * The input is a script: a byte for what happens, then what that needs. */
#include "fuzz/fuzz.h"
#include "fuzz/script.h"
#include "rnic/base/check.h"
#include "rnic/cm/cm.h"
#include "rnic/wire/packet.h"

#define SERVICE   UINT64_C(0x1061234)
#define SEEN_MAX  16u
#define HELD_MAX  8u
#define STEPS_MAX 400u
#define SPAN_MAX  100000u /* until all has ended */

struct held {
    struct cm_connection *connection; /* NULL: free */
    bool rejected; /* by the caller: only a REPLY that it had not taken may still come */
    bool ended, over;
};

struct world {
    struct script script;
    struct counting_allocator memory;
    struct packet_sink sink;
    bool full;
    struct device *device;
    struct cm *cm;
    struct cm_listener *listener;
    struct instant now;
    struct held held[HELD_MAX];
    uint32_t seen[SEEN_MAX]; /* ids in what it sent last */
    uint32_t seen_count;
    uint64_t transaction; /* alike */
};

static struct gid gid_of(uint32_t number)
{
    return (struct gid){{[10] = 0xff, [11] = 0xff, [12] = 10, [15] = (uint8_t)(1 + number)}};
}

/* All that it sends is well-formed. */
static bool emit(struct packet_sink *sink, const struct outgoing *outgoing)
{
    struct world *world = CONTAINER_OF(sink, struct world, sink);
    if (world->full) {
        return false;
    }
    struct cm_message message;
    CHECK(outgoing->fragment_count == 1 && outgoing->payload_length == MAD_LENGTH);
    CHECK(cm_message_parse(outgoing->fragments[0].bytes, MAD_LENGTH, &message) == STATUS_OK);
    world->seen[world->seen_count++ % SEEN_MAX] = message.local_id;
    world->transaction = message.transaction;
    return true;
}

static void start(struct world *world)
{
    struct device_config device = {.allocator = &world->memory.allocator,
                                   .sink = &world->sink,
                                   .key = {{1}},
                                   .first_qpn = {100},
                                   .qpn_count = 2,
                                   .max_qps = 2,
                                   .max_regions = 1,
                                   .max_reads_in = 1};
    CHECK(device_create(&device, &world->device) == STATUS_OK);
    struct cm_config cm = {.allocator = &world->memory.allocator,
                           .device = world->device,
                           .key = {{2}},
                           .id_prefix = 3,
                           .id_prefix_bits = 10,
                           .max_connections = HELD_MAX - 2};
    CHECK(cm_create(&cm, &world->cm) == STATUS_OK);
    CHECK(cm_listen(world->cm, SERVICE, NULL, 3, NULL, &world->listener) == STATUS_OK);
}

static struct held *find_held(struct world *world, const struct cm_connection *connection)
{
    for (uint32_t i = 0; i < HELD_MAX; i++) {
        if (world->held[i].connection == connection) {
            return &world->held[i];
        }
    }
    return NULL;
}

static void hold(struct world *world, struct cm_connection *connection)
{
    CHECK(find_held(world, connection) == NULL);
    struct held *held = find_held(world, NULL);
    CHECK(held != NULL); /* more connections than there may be */
    *held = (struct held){.connection = connection};
}

static void take_events(struct world *world)
{
    struct cm_event event;
    while (cm_next_event(world->cm, &event)) {
        if (event.kind == CM_EVENT_REQUEST || event.kind == CM_EVENT_SERVICE_REQUEST) {
            hold(world, event.connection);
            continue;
        }
        struct held *held = find_held(world, event.connection);
        CHECK(held != NULL && !held->over);
        CHECK(!held->rejected || event.kind == CM_EVENT_REPLY);
        switch (event.kind) {
        case CM_EVENT_REJECTED:
        case CM_EVENT_UNREACHABLE:
        case CM_EVENT_SERVICE_REPLY:
        case CM_EVENT_DISCONNECTED:
            CHECK(!held->ended);
            held->ended = true;
            break;
        case CM_EVENT_TIME_WAIT_OVER:
            CHECK(held->ended);
            held->over = true;
            break;
        default:
            CHECK(!held->ended);
            break;
        }
    }
}

static void advance(struct world *world)
{
    cm_advance(world->cm, world->now);
    (void)device_advance(world->device, world->now, 64);
}

static uint32_t pick_id(struct world *world)
{
    uint32_t choice = script_u8(&world->script);
    return choice < 0xf0 ? world->seen[choice % SEEN_MAX] : choice - 0xf0;
}

static void deliver(struct world *world, uint32_t from, const uint8_t mad[MAD_LENGTH],
                    uint32_t length)
{
    uint8_t bytes[PACKET_HEADER_MAX + MAD_LENGTH];
    struct packet packet = {.opcode = OPCODE(SERVICE_UD, FORM_SEND_ONLY),
                            .pkey = PKEY_DEFAULT,
                            .destination = QPN_MANAGEMENT,
                            .qkey = QKEY_MANAGEMENT,
                            .source = {from == 7 ? 2 : QPN_MANAGEMENT.value},
                            .payload_length = length};
    uint32_t at = packet_build(&packet, bytes);
    memcpy(bytes + at, mad, length);
    memset(bytes + at + length, 0, packet_pad(length));
    struct arrival arrival = {
        .path = {.local = gid_of(0), .remote = gid_of(1 + from % 2), .source_port = 50000}};
    device_receive(world->device, world->now, &arrival, bytes, at + length + packet_pad(length));
}

static void receive_message(struct world *world)
{
    struct script *script = &world->script;
    static const uint8_t kinds[16] = {2, 3, 3}; /* of transport; else RC */
    uint32_t from = script_below(script, 8);
    uint32_t many = script_u32(script);
    struct cm_message message = {
        .kind = (enum cm_message_kind)(CM_MESSAGE_REQ + script_below(script, 9)),
        .transaction = from >= 5 ? world->transaction : many % 3,
        .local_id = 1 + (many >> 2) % 4,
        .remote_id = pick_id(world),
        .service_id = SERVICE + ((many >> 4) % 16 == 0),
        .local_qpn = {100 + (many >> 8) % 4},
        .path_mtu = (enum path_mtu)((many >> 10) % 8),
        .transport_service = kinds[(many >> 13) % 16],
        .extended_transport = 1,
        .local_response_timeout = (many >> 17) % 32,
        .max_cm_retries = (many >> 22) % 16,
        .ack_timeout = (many >> 26) % 32,
        .service_timeout = (many >> 17) % 32,
        .answered = (many >> 8) % 4,
        .reject_reason = (uint16_t)((many >> 13) % 32),
        .path = {.local = gid_of(1 + from % 2), .remote = gid_of(0)},
    };
    if (message.kind == CM_MESSAGE_REQ && (many >> 31) == 0) {
        message.path_mtu = PATH_MTU_1024;
    }
    uint8_t mad[MAD_LENGTH];
    cm_message_build(&message, mad);
    uint8_t flip = script_u8(script);
    if (flip >= 0x80) {
        mad[script_u8(script)] ^= flip;
    }
    deliver(world, from, mad, MAD_LENGTH);
}

static void receive_bytes(struct world *world)
{
    uint8_t mad[MAD_LENGTH] = {0};
    uint32_t from = script_below(&world->script, 8);
    uint32_t length = script_below(&world->script, 4) == 0 ? script_u8(&world->script) : MAD_LENGTH;
    for (uint32_t i = 0; i < length; i++) {
        mad[i] = script_u8(&world->script);
    }
    deliver(world, from, mad, length);
}

static void connect_to_peer(struct world *world)
{
    uint32_t many = script_u32(&world->script);
    struct cm_connect_request request = {
        .path = {.local = gid_of(0), .remote = gid_of(1 + many % 2)},
        .service_id = SERVICE,
        .parameters = {.qpn = {100 + (many >> 1) % 4}, .path_mtu = PATH_MTU_1024},
        .response_timeout = (many >> 3) % 33,
        .max_retries = (many >> 9) % 17,
    };
    struct cm_connection *connection;
    enum status status = (many >> 14) % 4 == 0
                             ? cm_resolve(world->cm, world->now, &request, &connection)
                             : cm_connect(world->cm, world->now, &request, &connection);
    if (status == STATUS_OK) {
        hold(world, connection);
    } else {
        CHECK(status == STATUS_FULL || status == STATUS_INVALID);
    }
}

static void release(struct world *world, struct held *held)
{
    cm_release(held->connection, world->now);
    held->connection = NULL;
}

/* The caller does something to one of its connections: whether that is fit is for cm to say. */
static void act(struct world *world)
{
    struct script *script = &world->script;
    struct held *held = &world->held[script_below(script, HELD_MAX)];
    uint32_t choice = script_u8(script);
    struct cm_parameters parameters = {.qpn = {100 + choice % 4},
                                       .private_length = choice > 0xf8 ? CM_PRIVATE_MAX : 4};
    enum status status = STATUS_OK;
    if (held->connection == NULL) {
        return;
    }
    switch (choice % 9) {
    case 0:
        status = cm_accept(held->connection, world->now, &parameters);
        break;
    case 1:
        status = cm_confirm(held->connection, world->now);
        break;
    case 2:
        status = cm_reject(held->connection, world->now, 28, parameters.private_data,
                           parameters.private_length);
        held->rejected |= status == STATUS_OK;
        break;
    case 3:
        status = cm_disconnect(held->connection, world->now);
        break;
    case 4:
        status = cm_delay(held->connection, world->now, script_u8(script) % 40);
        break;
    case 5:
        cm_data_arrived(held->connection, world->now);
        break;
    case 6:
        release(world, held);
        break;
    case 7:
        status = cm_service_accept(held->connection, world->now, &parameters);
        break;
    case 8:
        status = cm_service_reject(held->connection, world->now, choice % 3,
                                   parameters.private_data, parameters.private_length);
        break;
    }
    CHECK(status == STATUS_OK || status == STATUS_STATE || status == STATUS_INVALID);
}

static void listen_or_not(struct world *world)
{
    if (world->listener != NULL) {
        cm_unlisten(world->listener);
        world->listener = NULL;
    } else {
        CHECK(cm_listen(world->cm, SERVICE, NULL, 1 + script_below(&world->script, 4), NULL,
                        &world->listener) == STATUS_OK);
    }
}

static void step(struct world *world)
{
    uint32_t choice = script_u8(&world->script);
    if (choice >= 0x80) {
        receive_message(world);
        return;
    }
    switch (choice % 8) {
    case 0:
        receive_bytes(world);
        break;
    case 1:
        world->now.ns += UINT64_C(1) << script_below(&world->script, 38);
        advance(world);
        break;
    case 2:
    case 3:
        take_events(world);
        act(world);
        break;
    case 4:
        act(world);
        break;
    case 5:
        connect_to_peer(world);
        break;
    case 6:
        world->full = !world->full;
        break;
    case 7:
        listen_or_not(world);
        break;
    }
}

static void finish(struct world *world)
{
    world->full = false;
    take_events(world);
    if (world->listener != NULL) {
        cm_unlisten(world->listener);
    }
    for (uint32_t i = 0; i < HELD_MAX; i++) {
        if (world->held[i].connection != NULL) {
            release(world, &world->held[i]);
        }
    }
    for (uint32_t i = 0; !instant_is_never(cm_next_deadline(world->cm)); i++) {
        CHECK(i < SPAN_MAX);
        struct instant next = cm_next_deadline(world->cm);
        world->now = instant_before(world->now, next) ? next : world->now;
        advance(world);
        take_events(world);
    }
    CHECK(cm_connection_count(world->cm) == 0 && cm_listener_count(world->cm) == 0);
    cm_destroy(world->cm);
    device_destroy(world->device);
    CHECK(world->memory.blocks == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct world world = {
        .script = {data, size}, .memory = counting_allocator(), .sink = {emit}, .now = {1000000}};
    start(&world);
    for (uint32_t i = 0; i < STEPS_MAX && world.script.left > 0; i++) {
        step(&world);
        (void)device_advance(world.device, world.now, 64);
    }
    finish(&world);
    return 0;
}
