/* A queue pair that sorts messages by tag, and a peer that sends what it likes: good headers, bad
 * ones, rendezvous without data behind them, answers to READs that were not asked for.
 *
 * Bytes outside the posted buffers never change. Each buffer ends exactly once: by a completion
 * that is its last, or by being removed; and none is lost when the queue pair fails.
 *
 * The input is a script: a byte for what happens, then what that needs. */
#include "fuzz/fuzz.h"
#include "fuzz/script.h"
#include "rnic/base/bytes.h"
#include "rnic/base/check.h"
#include "rnic/device/device.h"
#include "rnic/queue/completion_queue.h"
#include "rnic/wire/psn.h"

#define ADDRESS   UINT64_C(0x7000000000)
#define SLOT      512u
#define SLOT_USED 300u
#define TAGS      4u /* buffers with a tag; their ids are their slots */
#define RECEIVES  4u /* buffers without; the slots behind those */
#define BUFFERS   (TAGS + RECEIVES)
#define ARENA     (SLOT + BUFFERS * SLOT)
#define FIRST_PSN 0xfffff0u
#define STEPS_MAX 300u
#define PAYLOAD   300u
#define NOBODY    UINT32_MAX /* a handle that was never given out */
#define OPERATION 1000u      /* id of what is done to the list */

struct world {
    struct script script;
    struct counting_allocator memory;
    struct packet_sink sink;
    struct device *device;
    struct domain domain;
    struct memory_key key;
    struct completion_queue *completions;
    struct receive_queue *receives;
    struct tag_matcher *matcher;
    struct qp *qp;
    struct instant now;
    uint32_t request_psn, sent_psn;
    uint32_t unexpected; /* messages that the application knows of */
    uint32_t operations; /* that have not completed */
    bool removed;        /* what the last removal said */
    bool posted[BUFFERS];
    uint32_t handles[TAGS];
    uint8_t arena[ARENA];
};

static const struct path path = {
    .local = {{[10] = 0xff, 0xff, 10, 0, 0, 1}},
    .remote = {{[10] = 0xff, 0xff, 10, 0, 0, 2}},
    .source_port = 50000,
};

static uint8_t pattern(uint32_t at)
{
    return (uint8_t)(at * 7 + at / 256 + 1);
}

static bool emit(struct packet_sink *sink, const struct outgoing *outgoing)
{
    struct world *world = CONTAINER_OF(sink, struct world, sink);
    uint8_t bytes[PACKET_HEADER_MAX + PACKET_PAYLOAD_MAX + 3];
    uint32_t length = outgoing->header_length;
    memcpy(bytes, outgoing->header, length);
    for (uint32_t i = 0; i < outgoing->fragment_count; i++) {
        memcpy(bytes + length, outgoing->fragments[i].bytes, outgoing->fragments[i].length);
        length += outgoing->fragments[i].length;
    }
    memset(bytes + length, 0, 3);
    struct packet packet;
    CHECK(packet_parse(bytes, length + packet_pad(outgoing->payload_length), &packet) ==
          REFUSED_NOT);
    if (packet.info->is_request) {
        world->sent_psn = packet.psn.value;
    }
    return true;
}

static void modify(struct world *world, enum qp_state state, struct qp_attributes *attributes,
                   unsigned mask)
{
    attributes->state = state;
    CHECK(device_modify_qp(world->device, world->now, world->qp, attributes, mask | QP_SET_STATE,
                           NULL) == STATUS_OK);
}

static void connect_qp(struct world *world)
{
    struct qp_attributes attributes = {
        .path = path,
        .path_mtu = PATH_MTU_256,
        .destination = {0x77},
        .receive_psn = {FIRST_PSN},
        .send_psn = {FIRST_PSN},
        .max_reads_out = 2,
        .max_reads_in = 2,
        .min_rnr_timer = 12,
        .timeout = 14,
        .retry_count = 7,
        .rnr_retry_count = 7,
        .port = 1,
    };
    modify(world, QP_INIT, &attributes, QP_SET_PKEY_INDEX | QP_SET_PORT | QP_SET_ACCESS);
    modify(world, QP_RTR, &attributes,
           QP_SET_PATH | QP_SET_PATH_MTU | QP_SET_DESTINATION | QP_SET_RECEIVE_PSN |
               QP_SET_MAX_READS_IN | QP_SET_MIN_RNR_TIMER);
    modify(world, QP_RTS, &attributes,
           QP_SET_SEND_PSN | QP_SET_TIMEOUT | QP_SET_RETRY_COUNT | QP_SET_RNR_RETRY_COUNT |
               QP_SET_MAX_READS_OUT);
}

static void add_queues(struct world *world)
{
    struct allocator *allocator = &world->memory.allocator;
    CHECK(completion_queue_create(allocator, 256, NULL, &world->completions) == STATUS_OK);
    CHECK(receive_queue_create(allocator, RECEIVES, 1, &world->receives) == STATUS_OK);
    struct tag_config tags = {
        .allocator = allocator, .max_tags = TAGS, .max_sge = 2, .completions = world->completions};
    CHECK(tag_matcher_create(&tags, &world->matcher) == STATUS_OK);
    struct qp_init init = {
        .service = SERVICE_RC,
        .domain = world->domain,
        .send_completions = world->completions,
        .receive_completions = world->completions,
        .shared_receives = world->receives,
        .matcher = world->matcher,
        .send = tag_send_limits(world->matcher),
    };
    CHECK(device_create_qp(world->device, &init, &world->qp) == STATUS_OK);
}

static void start(struct world *world)
{
    for (uint32_t i = 0; i < ARENA; i++) {
        world->arena[i] = pattern(i);
    }
    struct device_config config = {.allocator = &world->memory.allocator,
                                   .sink = &world->sink,
                                   .key = {{1}},
                                   .first_qpn = {0x100},
                                   .qpn_count = 4,
                                   .max_qps = 2,
                                   .max_regions = 2,
                                   .max_reads_in = 4};
    CHECK(device_create(&config, &world->device) == STATUS_OK);
    struct memory *memory = device_memory(world->device);
    CHECK(memory_allocate_domain(memory, &world->domain) == STATUS_OK);
    struct region_attributes region = {.domain = world->domain,
                                       .address = ADDRESS,
                                       .length = ARENA,
                                       .bytes = world->arena,
                                       .access = ACCESS_LOCAL_WRITE};
    CHECK(memory_register(memory, &region, &world->key) == STATUS_OK);
    add_queues(world);
    connect_qp(world);
}

static struct sge sge_of(const struct world *world, uint32_t slot, uint32_t from, uint32_t length)
{
    return (struct sge){ADDRESS + (uint64_t)(slot + 1) * SLOT + from, length, world->key};
}

static struct tag_operation operation(struct world *world)
{
    world->operations++;
    uint32_t wrong = script_u8(&world->script) >= 0xe0;
    return (struct tag_operation){.id = OPERATION,
                                  .signaled = true,
                                  .synchronizes = true,
                                  .unexpected = world->unexpected + wrong};
}

static void take_completions(struct world *world)
{
    struct completion completion;
    while (completion_queue_poll(world->completions, 1, &completion) == 1) {
        if (completion.id == OPERATION) {
            CHECK(world->operations-- > 0);
            world->removed = completion.status == COMPLETION_SUCCESS;
            continue;
        }
        if (completion.id >= BUFFERS) {
            CHECK(completion.status != COMPLETION_SUCCESS); /* a FIN of ours: only if it failed */
            continue;
        }
        CHECK(world->posted[completion.id]);
        bool ok = completion.status == COMPLETION_SUCCESS;
        CHECK(!ok || completion.byte_length <= SLOT_USED);
        if (completion.id >= TAGS) {
            CHECK((completion.tag_flags & (TAG_MATCHED | TAG_DATA_VALID)) == 0);
            world->unexpected += ok && completion.kind == COMPLETED_TAG_RECEIVE;
        } else {
            CHECK(!ok || (completion.tag_flags & (TAG_MATCHED | TAG_DATA_VALID)) != 0);
        }
        if (!ok || completion.id >= TAGS || (completion.tag_flags & TAG_DATA_VALID) != 0) {
            world->posted[completion.id] = false;
        }
    }
}

static void add_tag(struct world *world)
{
    uint32_t choice = script_u8(&world->script);
    uint32_t slot = choice % TAGS;
    uint32_t count = choice / TAGS % 3;
    struct sge sges[2] = {sge_of(world, slot, 0, SLOT_USED / 2),
                          sge_of(world, slot, SLOT_USED / 2, SLOT_USED / 2)};
    struct tag_buffer buffer = {.id = slot,
                                .tag = choice >> 6,
                                .mask = choice & 0x20 ? 1 : UINT64_MAX,
                                .sges = sges,
                                .sge_count = count};
    if (!world->posted[slot]) {
        struct tag_operation how = operation(world);
        CHECK(tag_add(world->matcher, &how, &buffer, &world->handles[slot]) == STATUS_OK);
        world->posted[slot] = true;
    }
}

/* A buffer that a message has taken is not there to be removed, and ends by itself. */
static void remove_tag(struct world *world, uint32_t slot)
{
    struct tag_operation how = operation(world);
    tag_remove(world->matcher, &how, world->handles[slot]);
    take_completions(world);
    CHECK(world->operations == 0);
    if (world->removed) {
        CHECK(world->posted[slot]);
        world->posted[slot] = false;
    }
}

static void post_receive(struct world *world)
{
    uint32_t slot = TAGS + script_below(&world->script, RECEIVES);
    struct sge sge = sge_of(world, slot, 0, SLOT_USED);
    struct receive_request request = {.id = slot, .sges = &sge, .sge_count = 1};
    if (!world->posted[slot]) {
        CHECK(receive_queue_post(world->receives, &request) == STATUS_OK);
        world->posted[slot] = true;
    }
}

static uint32_t pick_length(struct world *world)
{
    static const uint32_t lengths[] = {0,   1,   15,  16,  31,  32,  33,         100,
                                       150, 256, 256, 256, 300, 301, 0x80000001, 0xffffffff};
    return lengths[script_below(&world->script, 16)];
}

static void fill_header(struct world *world, uint8_t *bytes)
{
    struct script *script = &world->script;
    uint32_t choice = script_u8(script);
    bytes[0] = (uint8_t)(choice % 5);
    bytes_store_u32(bytes + 4, choice);
    bytes_store_u64(bytes + 8, choice >> 6);
    bytes_store_u64(bytes + 16, 0x1000);
    bytes_store_u32(bytes + 24, choice);
    bytes_store_u32(bytes + 28, pick_length(world));
}

static void receive_packet(struct world *world)
{
    static const uint8_t forms[] = {4, 4, 4, 4, 0, 0, 1, 2, 2, 3, 5, 13, 14, 15, 16, 17};
    struct script *script = &world->script;
    uint32_t choice = script_u8(script);
    uint8_t opcode = OPCODE(SERVICE_RC, forms[choice % 16]);
    const struct opcode_info *info = opcode_lookup(opcode);
    uint32_t near = choice < 0xe0 ? 0 : (choice >> 4 & 1) - 2u * (choice & 1);
    struct packet packet = {
        .opcode = opcode, .info = info, .pkey = PKEY_DEFAULT, .destination = qp_number(world->qp)};
    packet.psn = psn_make((info->is_request ? world->request_psn : world->sent_psn) + near);
    if (info->is_request && near == 0) {
        world->request_psn = psn_make(world->request_psn + 1).value;
    }
    if (!info->is_request) {
        packet.aeth = (struct aeth){.kind = (enum aeth_kind)(script_u8(script) & 3), .value = 31};
    }
    uint32_t payload = info->has_payload ? pick_length(world) : 0;
    packet.payload_length = payload > PAYLOAD ? PAYLOAD : payload;
    uint8_t bytes[PACKET_HEADER_MAX + PAYLOAD + 8];
    uint32_t at = packet_build(&packet, bytes);
    memset(bytes + at, 0xee, sizeof bytes - at);
    if (info->first && info->is_request) {
        fill_header(world, bytes + at);
    }
    uint32_t pad = packet_pad(packet.payload_length);
    memset(bytes + at + packet.payload_length, 0, pad);
    uint32_t length = at + packet.payload_length + pad;
    struct arrival arrival = {.path = path};
    uint8_t *exact = malloc(length); /* so that ASan sees a read behind it */
    CHECK(exact != NULL);
    memcpy(exact, bytes, length);
    device_receive(world->device, world->now, &arrival, exact, length);
    free(exact);
}

static void step(struct world *world)
{
    struct script *script = &world->script;
    uint32_t choice = script_u8(script);
    if (choice >= 0x60) {
        receive_packet(world);
    } else if (choice % 8 < 3) {
        add_tag(world);
    } else if (choice % 8 == 3) {
        remove_tag(world, script_below(script, TAGS));
    } else if (choice % 8 == 4) {
        struct tag_operation how = operation(world);
        tag_synchronize(world->matcher, &how);
    } else if (choice % 8 == 5) {
        world->now.ns += UINT64_C(1) << script_below(script, 34);
    } else {
        post_receive(world);
    }
    (void)device_advance(world->device, world->now, 16);
    take_completions(world);
}

static void finish(struct world *world)
{
    struct qp_attributes attributes = {0};
    modify(world, QP_ERROR, &attributes, 0);
    take_completions(world);
    for (uint32_t slot = 0; slot < TAGS; slot++) {
        if (world->posted[slot]) { /* what has not ended is still in the list */
            remove_tag(world, slot);
            CHECK(world->removed);
        }
    }
    CHECK(world->operations == 0);
    device_destroy_qp(world->device, world->qp);
    tag_matcher_destroy(world->matcher);
    receive_queue_destroy(world->receives);
    completion_queue_destroy(world->completions);
    struct memory *memory = device_memory(world->device);
    CHECK(memory_deregister(memory, world->key) == STATUS_OK);
    CHECK(memory_free_domain(memory, world->domain) == STATUS_OK);
    device_destroy(world->device);
    CHECK(world->memory.blocks == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct world world;
    world = (struct world){.script = {data, size},
                           .memory = counting_allocator(),
                           .sink = {emit},
                           .request_psn = FIRST_PSN,
                           .sent_psn = FIRST_PSN,
                           .handles = {NOBODY, NOBODY, NOBODY, NOBODY},
                           .now = {1000000}};
    start(&world);
    for (uint32_t i = 0; i < STEPS_MAX && world.script.left > 0; i++) {
        step(&world);
    }
    finish(&world);
    for (uint32_t i = 0; i < ARENA; i++) {
        CHECK((i >= SLOT && i % SLOT < SLOT_USED) || world.arena[i] == pattern(i));
    }
    return 0;
}
