/* An XRC domain of several processes: refusals, order, and ends in the middle of a message, one
 * matter each. */
#include "rnic/transport/qp_private.h"
#include "sim/scenarios/xrc_shared.h"

static const struct link_config quiet = {.delay_ns = 1000};

static void start_by_hand(void)
{
    start(1, &quiet, TIMEOUT);
    w.by_hand = true;
}

static void expect_states(enum qp_state initiator, enum qp_state target)
{
    assert_int_equal(qp_current_state(w.lines[0].initiator), initiator);
    assert_int_equal(qp_current_state(w.lines[0].target), target);
}

static void expect_failure(enum completion_status status)
{
    assert_true(w.lines[0].ops[0].is_done);
    assert_int_equal(w.lines[0].ops[0].status, status);
    expect_states(QP_ERROR, QP_ERROR);
    assert_int_equal(w.wrong, 0);
}

/* The later message, be it for the target's own process, must not come first. */
static void an_empty_queue_elsewhere_is_not_ready(void **state)
{
    (void)state;
    for (unsigned later = 1; later <= 3; later += 2) {
        start_by_hand();
        post_op(0, (struct op){.kind = WORK_SEND, .node = 2, .length = 600});
        post_op(0, (struct op){.kind = WORK_SEND, .node = later, .length = 600});
        post_receive(&w.nodes[later]);
        run(500000);
        assert_int_equal(w.nodes[later].received, 0);
        assert_true(counter(1, COUNTER_RNR_NAK_SENT) > 0);
        post_receive(&w.nodes[2]);
        run(RUN_NS);
        judge(0, true);
        assert_int_equal(w.nodes[2].received, 1);
        assert_int_equal(w.nodes[later].received, 1);
        stop();
    }
}

/* The target's own long response leaves before that of a deputy. */
static void responses_keep_their_order(void **state)
{
    (void)state;
    start_by_hand();
    w.neighbours.delay_ns = 10;
    w.neighbours.jitter_ns = 0;
    w.nodes[1].host.config.budget = 1; /* it takes a while */
    post_op(0, (struct op){.kind = WORK_READ, .node = 1, .length = 2000});
    post_op(0, (struct op){.kind = WORK_READ, .node = 2});
    post_op(0, (struct op){.kind = WORK_WRITE, .node = 3});
    run(1000000); /* and waits for no timer */
    judge(0, true);
    assert_int_equal(counter(0, COUNTER_RETRANSMITTED_PACKETS), 0);
    stop();
}

static enum fate lose_first_response(void *context, unsigned from, unsigned to,
                                     const uint8_t *bytes, uint32_t length)
{
    struct packet packet;
    (void)context;
    (void)to;
    if (from == 2 && packet_parse(bytes, length, &packet) == REFUSED_NOT &&
        packet.info->operation == OPERATION_READ_RESPONSE) {
        w.network.script = NULL;
        return FATE_LOST;
    }
    return FATE_PASS;
}

/* Nor does an acknowledgement overtake a response that is made again. */
static void a_lost_response_is_made_again_before_what_follows(void **state)
{
    (void)state;
    start_by_hand();
    w.network.script = lose_first_response;
    post_op(0, (struct op){.kind = WORK_READ, .node = 2, .length = 8});
    post_op(0, (struct op){.kind = WORK_WRITE, .node = 1, .length = 8});
    run(RUN_NS);
    judge(0, true);
    assert_int_equal(counter(0, COUNTER_RETRANSMITTED_PACKETS), 2);
    stop();
}

/* More than a target holds: asked for when there is room, not after the peer's timeout. */
static void what_finds_no_room_is_asked_for(void **state)
{
    (void)state;
    start_by_hand();
    post_op(0, (struct op){.kind = WORK_WRITE, .node = 2, .length = 10240});
    run(5000000);
    judge(0, true);
    assert_true(counter(1, COUNTER_NAK_SEQUENCE_SENT) > 0);
    stop();
}

/* A request of a target of C to D's queue: an empty WRITE. */
static void crowd(uint32_t number)
{
    uint8_t bytes[PACKET_HEADER_MAX];
    struct relay_message message = {
        .kind = RELAY_REQUEST,
        .path_mtu = PATH_MTU_256,
        .access = ACCESS,
        .target = {number},
        .expected = psn_make(FIRST_PSN),
        .life = number,
        .domain = common,
        .path = network_path(2, 0, false, 50000),
    };
    struct packet packet = {.opcode = OPCODE(SERVICE_XRC, FORM_WRITE_ONLY),
                            .pkey = PKEY_DEFAULT,
                            .destination = {number},
                            .psn = psn_make(FIRST_PSN),
                            .xrc_srq = w.nodes[3].shared.number};
    uint32_t length = packet_build(&packet, bytes);
    device_receive_relayed(w.nodes[3].host.device, w.simulator.now, 2, &message, bytes, length);
}

/* However many other targets its process serves meanwhile. */
static void what_was_executed_is_remembered_until_it_is_confirmed(void **state)
{
    (void)state;
    start_by_hand();
    post_receive(&w.nodes[3]);
    post_receive(&w.nodes[3]);
    post_op(0, (struct op){.kind = WORK_SEND, .node = 3, .length = 200});
    for (uint64_t ns = 100; w.neighbours.sent == 0 && ns < RUN_NS; ns += 100) {
        run(ns); /* the clock stands where nothing happens */
    }
    w.neighbours.loss = 1000000; /* of answers */
    run(1000000);
    assert_int_equal(w.nodes[3].received, 1);
    for (uint32_t i = 0; i < 2000; i++) {
        crowd(0x3000 + i);
    }
    run(1000000);
    w.neighbours.loss = 0;
    run(RUN_NS);
    judge(0, true);
    assert_int_equal(w.nodes[3].received, 1);
    stop();
}

/* As if so much had been executed for others since. */
static void pass_psns(uint32_t psns)
{
    struct requester *requester = &w.lines[0].initiator->requester;
    struct qp *target = w.lines[0].target;
    target->responder.expected = psn_add(target->responder.expected, psns);
    target->rare.executed += psns;
    requester->unacked = requester->frontier = requester->cursor =
        psn_add(requester->frontier, psns);
}

/* Its PSN is before the one that the deputy expected then, or after it, or the same. */
static void what_comes_after_a_long_rest_is_new(void **state)
{
    (void)state;
    static const uint32_t rests[] = {1, 0x7fffff, 0x800000, 0x900000, 0xffffff, 0x1000000};
    static const enum work_kind kinds[] = {WORK_SEND, WORK_FETCH_ADD, WORK_READ};
    start_by_hand();
    for (size_t i = 0; i < sizeof rests / sizeof rests[0]; i++) {
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
            post_receive(&w.nodes[2]);
            pass_psns(rests[i]);
            post_op(0, (struct op){.kind = kinds[k], .node = 2, .length = 8});
            run(1000000);
        }
    }
    judge(0, true);
    assert_int_equal(counter(0, COUNTER_RETRANSMITTED_PACKETS), 0);
    stop();
}

static void receive_request(uint8_t form, uint32_t index, unsigned node)
{
    const struct qp *target = w.lines[0].target;
    uint8_t bytes[PACKET_HEADER_MAX + 256] = {0};
    struct arrival arrival = {.path = network_path(1, 0, false, 50000)};
    struct packet packet = {.opcode = OPCODE(SERVICE_XRC, form),
                            .pkey = PKEY_DEFAULT,
                            .destination = qp_number(target),
                            .psn = psn_make(FIRST_PSN + index),
                            .xrc_srq = w.nodes[node].shared.number};
    uint32_t payload = opcode_lookup(packet.opcode)->has_payload ? 256 : 0;
    device_receive(w.nodes[1].host.device, w.simulator.now, &arrival, bytes,
                   packet_build(&packet, bytes) + payload);
    host_wake(&w.nodes[1].host, 0);
}

/* The next message begins, for another queue, before the last has come to its end. */
static void a_message_within_a_message_is_refused(void **state)
{
    (void)state;
    for (unsigned inner = 1; inner <= 3; inner++) {
        start_by_hand();
        for (unsigned i = 1; i <= 3; i++) {
            post_receive(&w.nodes[i]);
        }
        receive_request(FORM_SEND_FIRST, 0, 2);
        run(1000000);
        assert_int_equal(qp_current_state(w.lines[0].target), QP_RTS);
        receive_request(FORM_SEND_ONLY, 1, inner);
        run(RUN_NS);
        assert_int_equal(qp_current_state(w.lines[0].target), QP_ERROR);
        assert_int_equal(w.flushed, 1);
        stop();
    }
}

static void a_queue_of_another_domain_elsewhere_is_refused(void **state)
{
    (void)state;
    start_by_hand();
    struct xrc_queue other = w.nodes[2].shared;
    other.domain.name++;
    assert_int_equal(device_add_xrc_queue(w.nodes[2].host.device, &other), STATUS_OK);
    uint32_t real = w.nodes[2].shared.number;
    w.nodes[2].shared.number = other.number;
    post_receive(&w.nodes[2]);
    post_op(0, (struct op){.kind = WORK_SEND, .node = 2, .length = 8});
    run(RUN_NS);
    w.nodes[2].shared.number = real;
    expect_failure(COMPLETION_REMOTE_INVALID_REQUEST_ERROR);
    assert_int_equal(receive_queue_depth(w.nodes[2].receives), 1);
    device_remove_xrc_queue(w.nodes[2].host.device, &other);
    stop();
}

static void a_key_of_another_process_is_refused_and_its_owner_told(void **state)
{
    (void)state;
    start_by_hand();
    struct memory_key real = w.nodes[2].key;
    w.nodes[2].key.value ^= 0x100;
    post_op(0, (struct op){.kind = WORK_WRITE, .node = 2, .length = 8});
    w.nodes[2].key = real;
    run(RUN_NS);
    expect_failure(COMPLETION_REMOTE_ACCESS_ERROR);
    assert_int_equal(w.access_errors, 1); /* at the target, not at its deputy */
    stop();
}

static void a_short_receive_elsewhere_completes_in_error(void **state)
{
    (void)state;
    start_by_hand();
    struct sge sge = {LANDING, 100, w.nodes[2].key};
    struct receive_request request = {.id = LANDING, .sges = &sge, .sge_count = 1};
    assert_int_equal(receive_queue_post(w.nodes[2].receives, &request), STATUS_OK);
    post_op(0, (struct op){.kind = WORK_SEND, .node = 2, .length = 600});
    run(RUN_NS);
    expect_failure(COMPLETION_REMOTE_INVALID_REQUEST_ERROR);
    assert_int_equal(w.nodes[2].received, 1);
    stop();
}

static enum fate lose_last(void *context, unsigned from, unsigned to, const uint8_t *bytes,
                           uint32_t length)
{
    struct packet packet;
    (void)context;
    (void)to;
    bool is_last = packet_parse(bytes, length, &packet) == REFUSED_NOT && from == 0 &&
                   packet.info->operation == OPERATION_SEND && packet.info->last;
    return is_last ? FATE_LOST : FATE_PASS;
}

/* A message of three packets of which the last does not come; then `end`. */
static void interrupt(void (*end)(void))
{
    start_by_hand();
    post_receive(&w.nodes[2]);
    w.network.script = lose_last;
    post_op(0, (struct op){.kind = WORK_SEND, .node = 2, .length = 600});
    run(1000000);
    assert_int_equal(receive_queue_depth(w.nodes[2].receives), 0); /* taken */
    end();
    run(RUN_NS);
}

static void remove_queue(void)
{
    device_remove_xrc_queue(w.nodes[2].host.device, &w.nodes[2].shared);
    w.network.script = NULL;
}

static void a_queue_that_is_destroyed_ends_its_message(void **state)
{
    (void)state;
    interrupt(remove_queue);
    expect_failure(COMPLETION_REMOTE_INVALID_REQUEST_ERROR);
    assert_int_equal(w.nodes[2].received, 0);
    assert_int_equal(device_add_xrc_queue(w.nodes[2].host.device, &w.nodes[2].shared), STATUS_OK);
    stop();
}

static void fail_target(void)
{
    struct qp_attributes none = {.port = 1};
    modify(&w.nodes[1], w.lines[0].target, none, QP_ERROR, 0);
    host_wake(&w.nodes[1].host, 0);
}

static void a_target_in_error_gives_the_receive_back(void **state)
{
    (void)state;
    interrupt(fail_target);
    assert_int_equal(w.flushed, 1);
    assert_int_equal(w.nodes[2].received, 1);
    stop();
}

static void kill_target(void)
{
    host_die(&w.nodes[1].host);
}

static void a_dead_target_gives_the_receive_back(void **state)
{
    (void)state;
    interrupt(kill_target);
    assert_int_equal(w.flushed, 1);
    stop();
}

static void kill_owner(void)
{
    host_die(&w.nodes[2].host);
    w.network.script = NULL;
}

static void a_dead_owner_is_a_remote_operation_error(void **state)
{
    (void)state;
    interrupt(kill_owner);
    expect_failure(COMPLETION_REMOTE_OPERATION_ERROR);
    stop();
}

/* The READ is over, and comes again when who has answered it is gone: nobody misses anything. */
static void an_echo_for_a_dead_owner_ends_nothing(void **state)
{
    (void)state;
    start_by_hand();
    post_op(0, (struct op){.kind = WORK_READ, .node = 2, .length = 8});
    run(RUN_NS);
    judge(0, true);
    kill_owner();
    receive_request(FORM_READ_REQUEST, 0, 2);
    run(RUN_NS);
    expect_states(QP_RTS, QP_RTS);
    stop();
}

/* The completions of the target's own queue overrun while requests wait behind another process's:
 * that is the end of them all. */
static void an_overrun_ends_what_is_held(void **state)
{
    (void)state;
    static const struct completion completion;
    struct completion_queue *full;
    start_by_hand();
    struct node *node = &w.nodes[1];
    assert_int_equal(completion_queue_create(&node->host.storage.allocator, 1, NULL, &full),
                     STATUS_OK);
    assert_true(completion_queue_push(full, &completion, false));
    node->shared.completions = full;
    post_receive(&w.nodes[2]);
    post_receive(node);
    post_op(0, (struct op){.kind = WORK_SEND, .node = 2, .length = 8});
    post_op(0, (struct op){.kind = WORK_SEND, .node = 1, .length = 8});
    post_op(0, (struct op){.kind = WORK_WRITE, .node = 1, .length = 8});
    run(RUN_NS);
    assert_int_equal(w.nodes[2].received, 1);
    expect_states(QP_ERROR, QP_ERROR);
    assert_memory_not_equal(slot_of(node, 0, 2), slot_of(&w.nodes[0], 0, 2), 8);
    node->shared.completions = node->completions;
    completion_queue_destroy(full);
    stop();
}

/* It lives, and hears nothing. A peer with more patience than ours gets an answer. */
static void a_silent_owner_is_a_remote_operation_error(void **state)
{
    (void)state;
    start(1, &quiet, 21); /* 8.6 s */
    w.neighbours.loss = DICE_MILLION;
    post_op(0, (struct op){.kind = WORK_SEND, .node = 2, .length = 8});
    run(RELAY_PATIENCE_NS - 1000000);
    assert_false(w.lines[0].ops[0].is_done);
    run(RUN_NS);
    expect_failure(COMPLETION_REMOTE_OPERATION_ERROR);
    stop();
}

static void many_targets_share_the_deputies_room(void **state)
{
    (void)state;
    start_by_hand();
    struct device *device = w.nodes[2].host.device;
    uint8_t bytes[PACKET_HEADER_MAX + 4] = {0};
    for (uint32_t i = 0; i < 3000; i++) {
        struct relay_message message = {.kind = RELAY_REQUEST,
                                        .path_mtu = PATH_MTU_256,
                                        .max_reads_in = 255,
                                        .access = ACCESS,
                                        .target = {0x800000 + i},
                                        .life = i,
                                        .domain = common};
        struct packet packet = {.opcode = OPCODE(SERVICE_XRC, FORM_WRITE_ONLY),
                                .pkey = PKEY_DEFAULT,
                                .destination = message.target,
                                .remote_key = w.nodes[2].key,
                                .xrc_srq = w.nodes[2].shared.number};
        uint32_t length = packet_build(&packet, bytes);
        device_receive_relayed(device, w.simulator.now, 1, &message, bytes, length);
    }
    assert_int_equal(counter(2, COUNTER_DEPUTY_REQUESTS), 3000);
    run(RUN_NS);
    stop();
}

/* Of another process of the same user, yet not believed. */
static void malformed_messages_are_refused(void **state)
{
    (void)state;
    start_by_hand();
    struct device *device = w.nodes[2].host.device;
    struct dice dice = dice_split(5, 5);
    for (uint32_t i = 0; i < 20000; i++) {
        struct relay_message message;
        uint8_t bytes[128];
        uint32_t length = dice_below(&dice, sizeof bytes);
        dice_fill(&dice, (uint8_t *)&message, sizeof message);
        dice_fill(&dice, bytes, sizeof bytes);
        message.kind %= 5;
        message.target = i % 2 == 0 ? message.target : qp_number(w.lines[1].target);
        bytes[0] = dice_percent(&dice, 50) ? OPCODE(SERVICE_XRC, bytes[0] & 31) : bytes[0];
        if (dice_percent(&dice, 90)) {
            bytes[1] &= 0xf0;
            message.target.value &= 0xffffff;
            message.destination.value &= 0xffffff;
            message.expected.value &= 0xffffff;
            message.path_mtu = (uint8_t)(1 + message.path_mtu % 5);
            bytes[5] = (uint8_t)(message.target.value >> 16);
            bytes[6] = (uint8_t)(message.target.value >> 8);
            bytes[7] = (uint8_t)message.target.value;
        }
        device_receive_relayed(device, w.simulator.now, 1 + i % 3, &message, bytes, length);
    }
    run(RUN_NS);
    assert_true(counter(2, COUNTER_DEPUTY_REQUESTS) > 100);
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_queue_elsewhere_is_not_ready),
        cmocka_unit_test(responses_keep_their_order),
        cmocka_unit_test(a_lost_response_is_made_again_before_what_follows),
        cmocka_unit_test(what_finds_no_room_is_asked_for),
        cmocka_unit_test(what_was_executed_is_remembered_until_it_is_confirmed),
        cmocka_unit_test(what_comes_after_a_long_rest_is_new),
        cmocka_unit_test(a_message_within_a_message_is_refused),
        cmocka_unit_test(a_queue_of_another_domain_elsewhere_is_refused),
        cmocka_unit_test(a_key_of_another_process_is_refused_and_its_owner_told),
        cmocka_unit_test(a_short_receive_elsewhere_completes_in_error),
        cmocka_unit_test(a_queue_that_is_destroyed_ends_its_message),
        cmocka_unit_test(a_target_in_error_gives_the_receive_back),
        cmocka_unit_test(a_dead_target_gives_the_receive_back),
        cmocka_unit_test(a_dead_owner_is_a_remote_operation_error),
        cmocka_unit_test(an_echo_for_a_dead_owner_ends_nothing),
        cmocka_unit_test(an_overrun_ends_what_is_held),
        cmocka_unit_test(a_silent_owner_is_a_remote_operation_error),
        cmocka_unit_test(many_targets_share_the_deputies_room),
        cmocka_unit_test(malformed_messages_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
