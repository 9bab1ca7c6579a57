/* A peer that sends whatever it likes from the right address: well-formed packets of every opcode,
 * with numbers near those that matter. Nothing may break, nothing outside the region may be
 * touched, and each request must still complete at most once, in order. */
#include "rnic/device/pair_test.h"

#define REGION_START  4096u
#define REGION_LENGTH 65536u
#define WORK_COUNT    40u
#define PACKET_COUNT  400u

struct hostility {
    struct pair *pair;
    struct random random;
    uint64_t next_send, next_receive; /* ids that must not come before */
    uint32_t far;                     /* from what the PSNs near those that matter are */
};

static uint32_t below(struct hostility *hostility, uint32_t bound)
{
    return (uint32_t)random_below(&hostility->random, bound);
}

static uint32_t near_psn(struct hostility *hostility, int side)
{
    uint32_t base = pair_defaults.first_psn + 1000u * (uint32_t)side;
    return psn_make(base + hostility->far + below(hostility, 200) - 20).value;
}

static void send_anything(struct hostility *hostility, enum service service)
{
    struct pair_side *to = &hostility->pair->sides[0];
    uint8_t opcode = OPCODE(service, below(hostility, 24));
    const struct opcode_info *info = opcode_lookup(opcode);
    if (info == NULL) {
        return;
    }
    static const uint32_t lengths[] = {0, 1, 8, 1023, 1024, 1024, 1024, 1025, 4096};
    uint32_t payload = info->has_payload ? lengths[below(hostility, 9)] : 0;
    struct packet packet = {
        .opcode = opcode,
        .pkey = PKEY_DEFAULT,
        .ack_request = below(hostility, 2),
        .destination = qp_number(to->qp),
        .psn = psn_make(near_psn(hostility, info->is_request ? 1 : 0)),
        .remote_address = PAIR_BUFFER_ADDRESS + REGION_START + below(hostility, 70000) - 100,
        .remote_key = {to->key.value ^ (below(hostility, 20) == 0)},
        .dma_length = lengths[below(hostility, 9)] * (1 + below(hostility, 3)),
        .aeth = {.kind = (enum aeth_kind)below(hostility, 4),
                 .value = (uint8_t)below(hostility, 32)},
        .invalidate = to->key,
        .qkey = {0x1234},
        .payload_length = payload,
    };
    if (packet.aeth.kind == AETH_NAK && below(hostility, 4) != 0) {
        packet.aeth.value = NAK_SEQUENCE;
    }
    uint8_t bytes[PACKET_HEADER_MAX + PACKET_PAYLOAD_MAX + 4] = {0};
    uint32_t length = packet_build(&packet, bytes);
    memset(bytes + length, 0xee, payload);
    struct arrival arrival = {.path = pair_path(0)};
    device_receive(to->device, hostility->pair->now, &arrival, bytes,
                   length + payload + packet_pad(payload));
}

static void post_anything(struct hostility *hostility, uint64_t id, enum service service)
{
    static const enum work_kind kinds[] = {WORK_SEND, WORK_WRITE,     WORK_WRITE_IMMEDIATE,
                                           WORK_READ, WORK_FETCH_ADD, WORK_SEND_IMMEDIATE};
    struct pair_side *a = &hostility->pair->sides[0];
    enum work_kind kind = kinds[below(hostility, service == SERVICE_RC ? 6 : 3)];
    uint32_t length = kind == WORK_FETCH_ADD ? 8 : below(hostility, 9000);
    struct sge sge = pair_sge(a, REGION_START, length);
    struct send_request request = pair_request(a, kind, id, &sge, 0);
    struct datagram_target target = {pair_path(0), qp_number(a->qp), {0x1234}};
    request.target = &target;
    request.signaled = below(hostility, 2);
    if (qp_post_send(a->qp, &request) == STATUS_OK) {
        (void)device_ring(a->device, a->qp);
    }
}

static void take_completions(struct hostility *hostility)
{
    struct pair_side *a = &hostility->pair->sides[0];
    struct completion completion;
    while (completion_queue_poll(a->sends, 1, &completion) == 1) {
        assert_true(completion.id >= hostility->next_send);
        hostility->next_send = completion.id + 1;
    }
    while (completion_queue_poll(a->receives, 1, &completion) == 1) {
        assert_int_equal(completion.id, hostility->next_receive);
        hostility->next_receive++;
    }
}

/* The region covers a part of the buffer only. */
static void narrow_region(struct pair_side *side)
{
    struct memory *memory = device_memory(side->device);
    assert_int_equal(memory_deregister(memory, side->key), STATUS_OK);
    struct region_attributes region = {
        .domain = side->domain,
        .address = PAIR_BUFFER_ADDRESS + REGION_START,
        .length = REGION_LENGTH,
        .bytes = side->buffer + REGION_START,
        .access =
            ACCESS_LOCAL_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_ATOMIC,
    };
    assert_int_equal(memory_register(memory, &region, &side->key), STATUS_OK);
}

static void endure(enum service service, uint64_t seed)
{
    struct pair_options options = pair_defaults;
    options.service = service;
    struct pair *pair = pair_create(&options);
    struct pair_side *a = &pair->sides[0];
    struct hostility hostility = {.pair = pair};
    random_seed(&hostility.random, seed);
    narrow_region(a);
    for (uint64_t id = 0; id < WORK_COUNT; id++) {
        pair_post_receive(a, id, REGION_START, 5000);
        post_anything(&hostility, id, service);
    }
    for (uint32_t i = 0; i < PACKET_COUNT; i++) {
        send_anything(&hostility, service);
        if (below(&hostility, 4) == 0) {
            pair->now.ns += below(&hostility, 3000000);
            a->sink_room = below(&hostility, 20);
            (void)device_advance(a->device, pair->now, 8);
            a->flight_count = 0; /* nobody listens */
        }
        take_completions(&hostility);
    }
    for (uint32_t i = 0; i < REGION_START; i++) {
        assert_int_equal(a->buffer[i], 0);
    }
    for (uint32_t i = REGION_START + REGION_LENGTH; i < 4 * REGION_LENGTH; i++) {
        assert_int_equal(a->buffer[i], 0);
    }
    a->sink_room = UINT32_MAX;
    struct qp_attributes attributes = {.state = QP_ERROR};
    assert_int_equal(device_modify_qp(a->device, pair->now, a->qp, &attributes, QP_SET_STATE, NULL),
                     STATUS_OK);
    take_completions(&hostility);
    assert_int_equal(hostility.next_receive, WORK_COUNT);
    pair_destroy(pair);
}

static void a_hostile_peer_breaks_nothing(void **state)
{
    for (uint64_t seed = 0; seed < 150; seed++) {
        endure(SERVICE_RC, seed);
    }
}

static void a_hostile_unreliable_peer_breaks_nothing(void **state)
{
    for (uint64_t seed = 0; seed < 40; seed++) {
        endure(SERVICE_UC, seed);
        endure(SERVICE_UD, seed);
    }
}

/* The right addresses and queue pair, any opcode, and a PSN from outside the windows: what one who
 * does not see the packets can send. Work under way ends as if nothing had come. */
static void off_path_packets_reset_nothing(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct hostility hostility = {.pair = pair};
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    random_seed(&hostility.random, 7);
    narrow_region(a);
    pair_fill(b, 0, 20000, 5);
    for (uint64_t id = 0; id < 20; id++) {
        uint64_t refused = device_counters(a->device)->refused[REFUSED_PSN];
        pair_post_receive(a, id, REGION_START, 20000);
        pair_post_simple(b, WORK_SEND, id, 0, 0, 20000);
        pair_post_simple(a, WORK_WRITE, 100 + id, REGION_START, 30000, 5000);
        for (uint32_t i = 0; i < 200; i++) {
            hostility.far = 0x100000 + below(&hostility, 0xe00000);
            send_anything(&hostility, SERVICE_RC);
            if (i % 10 == 0) {
                (void)pair_step(pair);
            }
        }
        pair_run(pair);
        (void)pair_expect(a->receives, id, COMPLETION_SUCCESS);
        (void)pair_expect(b->sends, id, COMPLETION_SUCCESS);
        (void)pair_expect(a->sends, 100 + id, COMPLETION_SUCCESS);
        assert_memory_equal(a->buffer + REGION_START, b->buffer, 20000);
        assert_true(device_counters(a->device)->refused[REFUSED_PSN] > refused);
    }
    assert_int_equal(qp_current_state(a->qp), QP_RTS);
    pair_destroy(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hostile_peer_breaks_nothing),
        cmocka_unit_test(a_hostile_unreliable_peer_breaks_nothing),
        cmocka_unit_test(off_path_packets_reset_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
