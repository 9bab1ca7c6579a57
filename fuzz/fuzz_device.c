/* A live device whose peer sends packets of its own making: right addresses, good headers, keys
 * that it knows, numbers near those that matter. Four queue pairs (RC, UC, UD, an XRC target) in
 * RTS, with receives, READs, SENDs and binds outstanding.
 *
 * All memory lies in one arena. Bytes that no region, or no region with a right to it, covers
 * never change; nor do those between the buffers of posted work, nor those around what windows
 * open. Each request posted completes exactly once, in its order, and nothing leaks.
 *
 * The input is a script: a byte for what happens, then what that needs. */
#include "fuzz/fuzz.h"
#include "fuzz/script.h"
#include "rnic/base/check.h"
#include "rnic/device/device.h"
#include "rnic/memory/window.h"
#include "rnic/queue/completion_queue.h"
#include "rnic/wire/psn.h"
#include "rnic/wire/report.h"

#define ADDRESS    UINT64_C(0x7000000000)
#define GUARD      256u
#define OPEN       (GUARD) /* remote write, read, atomics */
#define OPEN_SIZE  2048u
#define FIXED      (OPEN + OPEN_SIZE + GUARD) /* remote read only */
#define FIXED_SIZE 1024u
#define ALIEN      (FIXED + FIXED_SIZE + GUARD) /* remote write, in another domain */
#define ALIEN_SIZE 1024u
#define SHUT       (ALIEN + ALIEN_SIZE + GUARD) /* no remote rights: windows open its middle */
#define SHUT_SIZE  1024u
#define PANE       (SHUT + 256u)
#define PANE_SIZE  512u
#define LOCAL      (SHUT + SHUT_SIZE + GUARD) /* buffers of posted work: no remote rights */
#define SLOT       512u
#define SLOT_USED  300u
#define SLOTS      (QP_COUNT * (RECEIVES + SENDS))
#define ARENA      (LOCAL + SLOTS * SLOT + GUARD)

#define QP_COUNT   4u
#define XRC        3u /* the target among them */
#define RECEIVES   4u
#define SENDS      4u
#define FIRST_PSN  0xfffff0u
#define STEPS_MAX  300u
#define PAYLOAD    1100u
#define REGIONS    5u
#define WINDOW_1   5u /* of `keys` */
#define WINDOW_2   6u
#define KEY_COUNT  7u
#define PEER_QPN   0x77u
#define QKEY_VALUE 0x1234u

struct line { /* one queue of requests: ids count up */
    struct completion_queue *completions;
    uint64_t posted, completed;
};

struct end {
    struct qp *qp;
    struct line sends, receives;
    uint32_t request_psn; /* of the peer's next request */
};

struct world {
    struct script script;
    struct counting_allocator memory;
    struct packet_sink sink;
    uint32_t sink_room;
    struct device *device;
    struct domain domain, alien;
    struct memory_key keys[KEY_COUNT];
    bool window_2_open; /* once what is posted is done */
    struct receive_queue *shared;
    struct xrc_queue queue;
    bool queue_is_there;
    struct end ends[QP_COUNT];
    struct instant now;
    uint32_t sent_psn; /* of the last request that left */
    uint8_t arena[ARENA];
};

static const enum service services[QP_COUNT] = {SERVICE_RC, SERVICE_UC, SERVICE_UD, SERVICE_XRC};
static const struct path path = {
    .local = {{[10] = 0xff, 0xff, 10, 0, 0, 1}},
    .remote = {{[10] = 0xff, 0xff, 10, 0, 0, 2}},
    .source_port = 50000,
};

static uint8_t pattern(uint32_t at)
{
    return (uint8_t)(at * 7 + at / 256 + 1);
}

/* All that it sends parses, and is read from where it may be read. */
static bool emit(struct packet_sink *sink, const struct outgoing *outgoing)
{
    struct world *world = CONTAINER_OF(sink, struct world, sink);
    if (world->sink_room == 0) {
        return false;
    }
    world->sink_room--;
    uint8_t bytes[PACKET_HEADER_MAX + PACKET_PAYLOAD_MAX + 3];
    uint32_t length = outgoing->header_length;
    memcpy(bytes, outgoing->header, length);
    for (uint32_t i = 0; i < outgoing->fragment_count; i++) {
        memcpy(bytes + length, outgoing->fragments[i].bytes, outgoing->fragments[i].length);
        length += outgoing->fragments[i].length;
    }
    CHECK(length == outgoing->header_length + outgoing->payload_length);
    memset(bytes + length, 0, 3);
    if (report_is_one(bytes, length)) {
        struct report report;
        CHECK(report_parse(bytes, length, &report) == REFUSED_NOT);
        return true;
    }
    struct packet packet;
    CHECK(packet_parse(bytes, length + packet_pad(outgoing->payload_length), &packet) ==
          REFUSED_NOT);
    if (packet.info->is_request && packet.info->service == SERVICE_RC) {
        world->sent_psn = packet.psn.value;
    }
    return true;
}

static struct memory_key add_region(struct world *world, struct domain domain, uint32_t at,
                                    uint32_t length, unsigned access)
{
    struct region_attributes region = {.domain = domain,
                                       .address = ADDRESS + at,
                                       .length = length,
                                       .bytes = world->arena + at,
                                       .access = access};
    struct memory_key key;
    CHECK(memory_register(device_memory(world->device), &region, &key) == STATUS_OK);
    return key;
}

static void add_regions(struct world *world)
{
    struct memory *memory = device_memory(world->device);
    unsigned all =
        ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_ATOMIC;
    CHECK(memory_allocate_domain(memory, &world->domain) == STATUS_OK);
    CHECK(memory_allocate_domain(memory, &world->alien) == STATUS_OK);
    world->keys[0] = add_region(world, world->domain, OPEN, OPEN_SIZE, all);
    world->keys[1] = add_region(world, world->domain, FIXED, FIXED_SIZE, ACCESS_REMOTE_READ);
    world->keys[2] = add_region(world, world->alien, ALIEN, ALIEN_SIZE, all);
    world->keys[3] = add_region(world, world->domain, LOCAL, SLOTS * SLOT, ACCESS_LOCAL_WRITE);
    world->keys[4] =
        add_region(world, world->domain, SHUT, SHUT_SIZE, ACCESS_LOCAL_WRITE | ACCESS_BIND_WINDOW);
    CHECK(window_allocate(memory, world->domain, WINDOW_TYPE_1, &world->keys[WINDOW_1]) ==
          STATUS_OK);
    CHECK(window_allocate(memory, world->domain, WINDOW_TYPE_2, &world->keys[WINDOW_2]) ==
          STATUS_OK);
}

static void modify(struct world *world, struct end *end, enum qp_state state,
                   struct qp_attributes *attributes, unsigned mask)
{
    attributes->state = state;
    CHECK(device_modify_qp(world->device, world->now, end->qp, attributes, mask | QP_SET_STATE,
                           NULL) == STATUS_OK);
}

static void connect_end(struct world *world, struct end *end, enum service service)
{
    bool datagram = service == SERVICE_UD;
    bool reliable = service_is_reliable(service);
    struct qp_attributes attributes = {
        .path = path,
        .path_mtu = PATH_MTU_256,
        .destination = {PEER_QPN},
        .receive_psn = {FIRST_PSN},
        .send_psn = {FIRST_PSN},
        .access = ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_ATOMIC,
        .max_reads_out = 2,
        .max_reads_in = 2,
        .min_rnr_timer = 12,
        .timeout = 14,
        .retry_count = 7,
        .rnr_retry_count = 7,
        .port = 1,
        .qkey = {QKEY_VALUE},
    };
    unsigned connected = QP_SET_PATH | QP_SET_PATH_MTU | QP_SET_DESTINATION | QP_SET_RECEIVE_PSN;
    unsigned sending =
        QP_SET_TIMEOUT | QP_SET_RETRY_COUNT | QP_SET_RNR_RETRY_COUNT | QP_SET_MAX_READS_OUT;
    modify(world, end, QP_INIT, &attributes,
           QP_SET_PKEY_INDEX | QP_SET_PORT | (datagram ? QP_SET_QKEY : QP_SET_ACCESS));
    modify(world, end, QP_RTR, &attributes,
           (datagram ? 0 : connected) |
               (reliable ? QP_SET_MAX_READS_IN | QP_SET_MIN_RNR_TIMER : 0));
    sending = service == SERVICE_XRC ? QP_SET_TIMEOUT : sending; /* a target does not send */
    modify(world, end, QP_RTS, &attributes, QP_SET_SEND_PSN | (reliable ? sending : 0));
}

static void add_end(struct world *world, uint32_t index)
{
    struct end *end = &world->ends[index];
    struct allocator *allocator = &world->memory.allocator;
    CHECK(completion_queue_create(allocator, 16, NULL, &end->sends.completions) == STATUS_OK);
    if (index != XRC) {
        CHECK(completion_queue_create(allocator, 16, NULL, &end->receives.completions) ==
              STATUS_OK);
    }
    bool target = index == XRC;
    struct qp_init init = {.service = services[index],
                           .domain = target ? (struct domain){0} : world->domain,
                           .xrc_domain = target ? world->queue.domain : (struct xrc_domain){0},
                           .send_completions = target ? NULL : end->sends.completions,
                           .receive_completions = target ? NULL : end->receives.completions,
                           .send = {.capacity = SENDS, .max_sge = 2, .max_inline = 0},
                           .max_receive = RECEIVES,
                           .max_receive_sge = 2,
                           .signal_all = true};
    CHECK(device_create_qp(world->device, &init, &end->qp) == STATUS_OK);
    end->request_psn = FIRST_PSN;
    connect_end(world, end, services[index]);
}

/* What the target's requests may name; before the target. */
static void add_shared_queue(struct world *world)
{
    CHECK(receive_queue_create(&world->memory.allocator, RECEIVES, 2, &world->shared) == STATUS_OK);
    CHECK(completion_queue_create(&world->memory.allocator, 16, NULL,
                                  &world->ends[XRC].receives.completions) == STATUS_OK);
    world->queue = (struct xrc_queue){
        .domain = device_allocate_xrc_domain(world->device),
        .memory_domain = world->domain,
        .receives = world->shared,
        .completions = world->ends[XRC].receives.completions,
    };
    CHECK(device_add_xrc_queue(world->device, &world->queue) == STATUS_OK);
    world->queue_is_there = true;
}

static void start(struct world *world)
{
    for (uint32_t i = 0; i < ARENA; i++) {
        world->arena[i] = pattern(i);
    }
    struct device_config device = {.allocator = &world->memory.allocator,
                                   .sink = &world->sink,
                                   .key = {{1}},
                                   .first_qpn = {0x100},
                                   .qpn_count = 8,
                                   .max_qps = 4,
                                   .max_regions = 8,
                                   .max_xrc_queues = 1,
                                   .selective_qps = 2,
                                   .selective_packets = 4,
                                   .max_reads_in = 4};
    CHECK(device_create(&device, &world->device) == STATUS_OK);
    add_regions(world);
    add_shared_queue(world);
    for (uint32_t i = 0; i < QP_COUNT; i++) {
        add_end(world, i);
    }
}

/* Two pieces of the request's own slot, the second from its last byte back: never the whole. */
static void fill_sges(const struct world *world, uint32_t slot, struct sge ret_sges[2])
{
    uint64_t at = ADDRESS + LOCAL + slot * SLOT;
    ret_sges[0] = (struct sge){at, SLOT_USED / 2, world->keys[3]};
    ret_sges[1] = (struct sge){at + SLOT_USED / 2, SLOT_USED / 2, world->keys[3]};
}

static uint32_t slot_of(uint32_t index, bool receives, uint64_t id)
{
    uint32_t first = index * (RECEIVES + SENDS) + (receives ? 0 : RECEIVES);
    return first + (uint32_t)(id % (receives ? RECEIVES : SENDS));
}

static void post_receive(struct world *world, uint32_t index)
{
    struct end *end = &world->ends[index];
    struct sge sges[2];
    fill_sges(world, slot_of(index, true, end->receives.posted), sges);
    struct receive_request request = {.id = end->receives.posted, .sges = sges, .sge_count = 2};
    if (end->receives.posted - end->receives.completed >= RECEIVES) {
        return;
    }
    if ((index == XRC ? receive_queue_post(world->shared, &request)
                      : qp_post_receive(end->qp, &request)) == STATUS_OK) {
        end->receives.posted++;
        if (qp_current_state(end->qp) == QP_ERROR) { /* to be flushed */
            (void)device_ring(world->device, end->qp);
        }
    }
}

/* A window is opened over its middle, or the one of type 2 shut again: mostly in turns. */
static void fill_local(struct world *world, struct send_request *request, struct window_bind *bind)
{
    uint32_t choice = script_u8(&world->script);
    bool second = (choice & 1) != 0;
    struct memory_key *key = &world->keys[second ? WINDOW_2 : WINDOW_1];
    request->sge_count = 0;
    if (second && world->window_2_open != (choice >= 0xf0)) {
        request->kind = WORK_LOCAL_INVALIDATE;
        request->invalidate = *key;
        world->window_2_open = false;
        return;
    }
    bool zero_based = second && (choice & 2) != 0;
    request->kind = WORK_BIND_WINDOW;
    request->bind = bind;
    *bind = (struct window_bind){
        .window = *key,
        .key = {(key->value & ~0xffu) | ((key->value + (choice >> 2 & 1)) & 0xff)},
        .region = world->keys[4],
        .address = ADDRESS + PANE,
        .length = PANE_SIZE,
        .access = ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_ATOMIC |
                  (zero_based ? ACCESS_ZERO_BASED : 0),
    };
    *key = bind->key;
    world->window_2_open |= second;
}

static void post_send(struct world *world, uint32_t index)
{
    static const enum work_kind kinds[] = {WORK_SEND,
                                           WORK_READ,
                                           WORK_READ,
                                           WORK_WRITE,
                                           WORK_WRITE_IMMEDIATE,
                                           WORK_FETCH_ADD,
                                           WORK_COMPARE_SWAP,
                                           WORK_ATOMIC_WRITE,
                                           WORK_BIND_WINDOW,
                                           WORK_BIND_WINDOW,
                                           WORK_SEND_INVALIDATE};
    struct end *end = &world->ends[index];
    enum work_kind kind = kinds[script_below(&world->script, sizeof kinds / sizeof kinds[0])];
    bool eight = kind == WORK_FETCH_ADD || kind == WORK_COMPARE_SWAP || kind == WORK_ATOMIC_WRITE;
    struct sge sges[2];
    fill_sges(world, slot_of(index, false, end->sends.posted), sges);
    if (eight) {
        sges[0].length = 8;
    }
    struct datagram_target target = {path, {PEER_QPN}, {QKEY_VALUE}};
    struct window_bind bind;
    struct send_request request = {.id = end->sends.posted,
                                   .kind = kind,
                                   .sges = sges,
                                   .sge_count = eight ? 1 : 2,
                                   .remote_address = 0x1000,
                                   .target = &target};
    if (end->sends.posted - end->sends.completed == SENDS) {
        return;
    }
    if (kind == WORK_BIND_WINDOW) {
        fill_local(world, &request, &bind);
    }
    if (qp_post_send(end->qp, &request) == STATUS_OK) {
        end->sends.posted++;
        (void)device_ring(world->device, end->qp);
    }
}

/* The target's queue goes, or comes back under another number; what it had taken is lost. */
static void move_shared_queue(struct world *world)
{
    if (world->queue_is_there) {
        device_remove_xrc_queue(world->device, &world->queue);
    } else {
        CHECK(device_add_xrc_queue(world->device, &world->queue) == STATUS_OK);
    }
    world->queue_is_there = !world->queue_is_there;
}

/* `may_vanish`: those before may have gone with their queue. */
static void take(struct line *line, bool receives, bool may_vanish)
{
    struct completion completion;
    while (completion_queue_poll(line->completions, 1, &completion) == 1) {
        CHECK(may_vanish || completion.id == line->completed);
        CHECK(completion.id >= line->completed && completion.id < line->posted);
        CHECK(!receives || completion.status != COMPLETION_SUCCESS ||
              completion.kind == COMPLETED_RECEIVE_WRITE_IMMEDIATE ||
              completion.byte_length <= SLOT_USED);
        line->completed = completion.id + 1;
    }
}

static void take_completions(struct world *world)
{
    for (uint32_t i = 0; i < QP_COUNT; i++) {
        take(&world->ends[i].sends, false, false);
        take(&world->ends[i].receives, true, i == XRC);
    }
}

/* Somewhere around a region's ends, mostly inside. */
static uint64_t pick_address(struct world *world)
{
    static const uint32_t starts[] = {OPEN, FIXED, ALIEN, LOCAL, OPEN, PANE, SHUT};
    static const uint32_t sizes[] = {OPEN_SIZE, FIXED_SIZE, ALIEN_SIZE, SLOTS * SLOT,
                                     0,         PANE_SIZE,  SHUT_SIZE};
    uint32_t choice = script_u8(&world->script);
    uint32_t region = choice % 7;
    uint32_t many = script_u8(&world->script);
    uint64_t at = ADDRESS + starts[region];
    if (choice >= 0xf8) {
        return many; /* of a zero-based window */
    }
    if (choice >= 0xf0) {
        return script_u32(&world->script) * UINT64_C(0x100000001);
    }
    return choice & 0x40 ? at + sizes[region] - many : at + many * 8 - (choice & 0x20);
}

static uint32_t pick_length(struct world *world)
{
    static const uint32_t lengths[] = {0,   1,   8,   100, 255,        256,        256,         257,
                                       300, 301, 512, 768, 0x80000000, 0xffffffff, 0xfffffffdu, 16};
    return lengths[script_below(&world->script, 16)];
}

static void fill_numbers(struct world *world, struct end *end, struct packet *packet)
{
    struct script *script = &world->script;
    uint32_t choice = script_u8(script);
    uint32_t near = choice < 0xc0 ? 0 : (choice & 0x3f) - 0x20u;
    bool is_request = packet->info == NULL || packet->info->is_request;
    packet->psn = psn_make((is_request ? end->request_psn : world->sent_psn) + near);
    if (is_request && near == 0) {
        end->request_psn = psn_make(end->request_psn + 1).value;
    }
    packet->ack_request = choice & 1;
    packet->solicited = choice & 2;
    packet->dma_length = pick_length(world);
    choice = script_u8(script);
    packet->remote_key = world->keys[choice % KEY_COUNT];
    packet->remote_key.value ^= choice >= 0xf8 ? 1u << (choice & 7) : 0;
    packet->remote_address = pick_address(world);
    packet->invalidate = packet->remote_key;
    choice = script_u8(script);
    packet->aeth = (struct aeth){
        .kind = (enum aeth_kind)(choice & 3), .value = choice >> 3, .msn = script_u8(script)};
    packet->xrc_srq = world->queue.number + (choice == 0xff);
    packet->compare = script_u8(script);
    packet->swap_or_add = ~packet->compare;
}

static void receive_packet(struct world *world)
{
    struct script *script = &world->script;
    uint32_t flags = script_u8(script);
    uint32_t index = flags % QP_COUNT;
    uint32_t form = script_u8(script);
    struct end *end = &world->ends[index];
    enum service service = form >= 0xf8 ? (enum service)(form & 7) : services[index];
    uint8_t opcode = OPCODE(service, form & 31);
    const struct opcode_info *info = opcode_lookup(opcode);
    if (info == NULL) {
        return;
    }
    struct packet packet = {.opcode = opcode,
                            .info = info,
                            .pkey = PKEY_DEFAULT,
                            .destination = qp_number(end->qp),
                            .qkey = {QKEY_VALUE},
                            .source = {PEER_QPN}};
    fill_numbers(world, end, &packet);
    uint32_t payload = info->has_payload ? pick_length(world) : 0;
    payload = payload > PAYLOAD ? PAYLOAD : payload;
    packet.payload_length = payload;
    uint8_t bytes[PACKET_HEADER_MAX + PAYLOAD + 8];
    uint32_t at = packet_build(&packet, bytes);
    memset(bytes + at, 0, sizeof bytes - at);
    memset(bytes + at, 0xee, payload);
    uint32_t length = at + payload + packet_pad(payload);
    if (flags >= 0xc0) { /* a damaged one */
        bytes[script_u8(script) % at] ^= script_u8(script);
        length = script_u8(script) % 4 == 0 ? length - 4 : length;
    }
    struct arrival arrival = {.path = path, .congestion_experienced = (flags & 0x20) != 0};
    arrival.path.remote.bytes[15] += (flags & 0x1f) == 0x1f;
    uint8_t *exact = malloc(length == 0 ? 1 : length); /* so that ASan sees a read behind it */
    CHECK(exact != NULL);
    memcpy(exact, bytes, length);
    device_receive(world->device, world->now, &arrival, exact, length);
    free(exact);
}

static void check_same(const struct world *world, uint32_t from, uint32_t length)
{
    for (uint32_t i = from; i < from + length; i++) {
        CHECK(world->arena[i] == pattern(i));
    }
}

static void check_arena(const struct world *world)
{
    check_same(world, 0, OPEN);
    check_same(world, OPEN + OPEN_SIZE, PANE - OPEN - OPEN_SIZE);
    check_same(world, PANE + PANE_SIZE, LOCAL - PANE - PANE_SIZE);
    for (uint32_t i = 0; i < SLOTS; i++) {
        check_same(world, LOCAL + i * SLOT + SLOT_USED, SLOT - SLOT_USED);
    }
    check_same(world, ARENA - GUARD, GUARD);
}

static void step(struct world *world)
{
    struct script *script = &world->script;
    uint32_t choice = script_u8(script);
    if (choice >= 0x60) {
        receive_packet(world);
        return;
    }
    switch (choice % 4) {
    case 0:
        post_receive(world, script_below(script, QP_COUNT));
        break;
    case 1:
        post_send(world, script_below(script, XRC));
        break;
    case 2:
        world->now.ns += UINT64_C(1) << script_below(script, 34);
        break;
    default:
        if (choice >= 0x58) {
            move_shared_queue(world);
        } else {
            world->sink_room = script_u8(script);
        }
        break;
    }
    (void)device_advance(world->device, world->now, 16);
    take_completions(world);
}

static void finish_end(struct world *world, uint32_t index)
{
    struct end *end = &world->ends[index];
    struct qp_attributes attributes = {0};
    modify(world, end, QP_ERROR, &attributes, 0);
    take(&end->sends, false, false);
    take(&end->receives, true, index == XRC);
    CHECK(end->sends.completed == end->sends.posted);
    CHECK(index == XRC || end->receives.completed == end->receives.posted);
    device_destroy_qp(world->device, end->qp);
}

static void finish(struct world *world)
{
    take_completions(world);
    for (uint32_t i = 0; i < QP_COUNT; i++) {
        finish_end(world, i);
    }
    if (world->queue_is_there) {
        device_remove_xrc_queue(world->device, &world->queue);
    }
    receive_queue_destroy(world->shared);
    for (uint32_t i = 0; i < QP_COUNT; i++) {
        completion_queue_destroy(world->ends[i].sends.completions);
        completion_queue_destroy(world->ends[i].receives.completions);
    }
    struct memory *memory = device_memory(world->device);
    CHECK(window_free(memory, world->keys[WINDOW_1]) == STATUS_OK);
    CHECK(window_free(memory, world->keys[WINDOW_2]) == STATUS_OK);
    for (uint32_t i = 0; i < REGIONS; i++) {
        CHECK(memory_deregister(memory, world->keys[i]) == STATUS_OK);
    }
    CHECK(memory_free_domain(memory, world->domain) == STATUS_OK);
    CHECK(memory_free_domain(memory, world->alien) == STATUS_OK);
    device_destroy(world->device);
    CHECK(world->memory.blocks == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct world world;
    world = (struct world){.script = {data, size},
                           .memory = counting_allocator(),
                           .sink = {emit},
                           .sink_room = UINT32_MAX,
                           .sent_psn = FIRST_PSN,
                           .now = {1000000}};
    start(&world);
    for (uint32_t i = 0; i < STEPS_MAX && world.script.left > 0; i++) {
        step(&world);
    }
    finish(&world);
    check_arena(&world);
    return 0;
}
