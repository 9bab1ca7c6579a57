/* Two devices and what goes between them: each operation, sizes around the MTU. */
#include "rnic/device/pair_test.h"

#define REMOTE 2097152u

static const uint32_t sizes[] = {0,    1,    3,    4,    255,  256,  1023,   1024,
                                 1025, 2047, 2048, 2049, 4096, 9999, 100000, 1048579};
#define SIZE_COUNT (sizeof sizes / sizeof sizes[0])

static void write_moves_bytes(void **state)
{
    for (size_t i = 0; i < SIZE_COUNT; i++) {
        struct pair *pair = pair_create(&pair_defaults);
        struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
        pair_fill(a, 0, sizes[i], 5);
        pair_post_simple(a, WORK_WRITE, 1, 0, REMOTE, sizes[i]);
        pair_run(pair);
        (void)pair_expect(a->sends, 1, COMPLETION_SUCCESS);
        assert_memory_equal(a->buffer, b->buffer + REMOTE, sizes[i]);
        assert_int_equal(b->buffer[REMOTE + sizes[i]], 0);
        assert_int_equal(device_counters(a->device)->values[COUNTER_RETRANSMITTED_PACKETS], 0);
        pair_destroy(pair);
    }
}

static void read_moves_bytes(void **state)
{
    for (size_t i = 0; i < SIZE_COUNT; i++) {
        struct pair *pair = pair_create(&pair_defaults);
        struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
        pair_fill(b, REMOTE, sizes[i], 6);
        pair_post_simple(a, WORK_READ, 1, 0, REMOTE, sizes[i]);
        pair_run(pair);
        struct completion completion = pair_expect(a->sends, 1, COMPLETION_SUCCESS);
        assert_int_equal(completion.byte_length, sizes[i]);
        assert_memory_equal(a->buffer, b->buffer + REMOTE, sizes[i]);
        assert_int_equal(a->buffer[sizes[i]], 0);
        assert_int_equal(device_counters(a->device)->values[COUNTER_RETRANSMITTED_PACKETS], 0);
        pair_destroy(pair);
    }
}

static void send_moves_bytes(void **state)
{
    for (enum path_mtu mtu = PATH_MTU_256; mtu <= PATH_MTU_4096; mtu++) {
        for (size_t i = 0; i < SIZE_COUNT; i++) {
            struct pair_options options = pair_defaults;
            options.mtu = mtu;
            struct pair *pair = pair_create(&options);
            struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
            pair_fill(a, 0, sizes[i], 7);
            pair_post_receive(b, 9, REMOTE, 1048579);
            pair_post_simple(a, WORK_SEND, 1, 0, 0, sizes[i]);
            pair_run(pair);
            (void)pair_expect(a->sends, 1, COMPLETION_SUCCESS);
            struct completion completion = pair_expect(b->receives, 9, COMPLETION_SUCCESS);
            assert_int_equal(completion.byte_length, sizes[i]);
            assert_false(completion.has_immediate);
            assert_memory_equal(a->buffer, b->buffer + REMOTE, sizes[i]);
            pair_destroy(pair);
        }
    }
}

static void packets_of_a_write(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0];
    pair_post_simple(a, WORK_WRITE, 1, 0, REMOTE, 2050);
    pair_run(pair);
    const char *lines[] = {"A WRITE_FIRST", "A WRITE_MIDDLE", "A WRITE_LAST", "B ACKNOWLEDGE"};
    const char *at = pair->trace;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        assert_memory_equal(at, lines[i], strlen(lines[i]));
        at = strchr(at, '\n') + 1;
    }
    assert_int_equal(*at, 0);
    pair_destroy(pair);
}

static void pieces_are_gathered_and_scattered(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    pair_fill(a, 0, 10000, 3);
    struct sge from[] = {pair_sge(a, 0, 1), pair_sge(a, 1, 0), pair_sge(a, 1, 2999),
                         pair_sge(a, 3000, 5000)};
    struct sge to[] = {pair_sge(b, REMOTE, 1500), pair_sge(b, REMOTE + 1500, 7000)};
    struct receive_request receive = {.id = 3, .sges = to, .sge_count = 2};
    assert_int_equal(qp_post_receive(b->qp, &receive), STATUS_OK);
    struct send_request request = pair_request(a, WORK_SEND, 1, from, 0);
    request.sge_count = 4;
    pair_post(a, &request);
    pair_run(pair);
    (void)pair_expect(a->sends, 1, COMPLETION_SUCCESS);
    assert_int_equal(pair_expect(b->receives, 3, COMPLETION_SUCCESS).byte_length, 8000);
    assert_memory_equal(a->buffer, b->buffer + REMOTE, 8000);
    pair_destroy(pair);
}

static void immediates_and_solicitation_arrive(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    pair_post_receive(b, 1, REMOTE, 4096);
    pair_post_receive(b, 2, REMOTE, 0);
    struct sge sge = pair_sge(a, 0, 3000);
    struct send_request request = pair_request(a, WORK_SEND_IMMEDIATE, 1, &sge, 0);
    request.immediate = 0x11223344;
    pair_post(a, &request);
    request = pair_request(a, WORK_WRITE_IMMEDIATE, 2, &sge, 0);
    request.immediate = 0x55667788;
    pair_post(a, &request);
    pair_run(pair);
    struct completion completion = pair_expect(b->receives, 1, COMPLETION_SUCCESS);
    assert_true(completion.has_immediate);
    assert_int_equal(completion.immediate, 0x11223344);
    assert_int_equal(completion.kind, COMPLETED_RECEIVE);
    completion = pair_expect(b->receives, 2, COMPLETION_SUCCESS);
    assert_true(completion.has_immediate);
    assert_int_equal(completion.immediate, 0x55667788);
    assert_int_equal(completion.kind, COMPLETED_RECEIVE_WRITE_IMMEDIATE);
    assert_int_equal(completion.byte_length, 3000);
    pair_destroy(pair);
}

static void atomics_return_what_was_there(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    uint64_t value = 40;
    memcpy(b->buffer + REMOTE, &value, sizeof value);
    struct sge sge = pair_sge(a, 0, 8);
    struct send_request request = pair_request(a, WORK_FETCH_ADD, 1, &sge, REMOTE);
    request.swap_or_add = 2;
    pair_post(a, &request);
    struct sge second = pair_sge(a, 8, 8);
    request = pair_request(a, WORK_COMPARE_SWAP, 2, &second, REMOTE);
    request.compare = 42;
    request.swap_or_add = 77;
    pair_post(a, &request);
    request.id = 3;
    request.sges = &sge;
    struct sge third = pair_sge(a, 16, 8);
    request.sges = &third;
    pair_post(a, &request);
    pair_run(pair);
    uint64_t seen[3];
    memcpy(seen, a->buffer, sizeof seen);
    assert_int_equal(seen[0], 40);
    assert_int_equal(seen[1], 42);
    assert_int_equal(seen[2], 77); /* did not match, did not swap */
    memcpy(&value, b->buffer + REMOTE, sizeof value);
    assert_int_equal(value, 77);
    for (uint64_t id = 1; id <= 3; id++) {
        (void)pair_expect(a->sends, id, COMPLETION_SUCCESS);
    }
    pair_destroy(pair);
}

static void inline_bytes_are_taken_at_once(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    char text[] = "taken when posted";
    struct sge sge = {(uint64_t)(uintptr_t)text, sizeof text, {0}};
    struct send_request request = pair_request(a, WORK_WRITE, 1, &sge, REMOTE);
    request.inline_data = true;
    pair_post(a, &request);
    memset(text, 0, sizeof text);
    pair_run(pair);
    (void)pair_expect(a->sends, 1, COMPLETION_SUCCESS);
    assert_string_equal((char *)b->buffer + REMOTE, "taken when posted");
    pair_destroy(pair);
}

static void unsignaled_success_is_silent(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0];
    for (uint64_t round = 0; round < 200; round++) {
        struct sge sge = pair_sge(a, 0, 100);
        struct send_request request = pair_request(a, WORK_WRITE, round, &sge, REMOTE);
        request.signaled = round % 10 == 9;
        pair_post(a, &request);
        if (request.signaled) {
            pair_run(pair);
            (void)pair_expect(a->sends, round, COMPLETION_SUCCESS);
        }
    }
    pair_expect_none(a->sends);
    pair_destroy(pair);
}

/* Many READs, more than may be outstanding, mixed with WRITEs that may pass them. */
static void reads_are_limited_and_complete_in_order(void **state)
{
    struct pair_options options = pair_defaults;
    options.max_reads = 2;
    struct pair *pair = pair_create(&options);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    pair_fill(b, REMOTE, 200000, 8);
    for (uint64_t id = 0; id < 40; id++) {
        uint32_t offset = (uint32_t)id * 5000;
        pair_post_simple(a, id % 3 == 2 ? WORK_WRITE : WORK_READ, id, offset,
                         id % 3 == 2 ? offset : REMOTE + offset, 5000);
    }
    pair_run(pair);
    for (uint64_t id = 0; id < 40; id++) {
        (void)pair_expect(a->sends, id, COMPLETION_SUCCESS);
        if (id % 3 != 2) {
            assert_memory_equal(a->buffer + id * 5000, b->buffer + REMOTE + id * 5000, 5000);
        }
    }
    assert_int_equal(device_counters(a->device)->values[COUNTER_RETRANSMITTED_PACKETS], 0);
    assert_int_equal(device_counters(b->device)->values[COUNTER_NAK_ERROR_SENT], 0);
    pair_destroy(pair);
}

static void allow_reads(struct pair_side *side, uint8_t reads)
{
    struct qp_attributes attributes = {
        .state = QP_SQD, .max_reads_out = reads, .max_reads_in = reads};
    unsigned limits = QP_SET_MAX_READS_OUT | QP_SET_MAX_READS_IN;
    unsigned masks[] = {QP_SET_STATE, limits, QP_SET_STATE};
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
        attributes.state = i == 2 ? QP_RTS : QP_SQD;
        assert_int_equal(
            device_modify_qp(side->device, side->pair->now, side->qp, &attributes, masks[i], NULL),
            STATUS_OK);
    }
}

/* What is agreed upon anew while the send queues are drained is in force. */
static void more_reads_are_allowed(void **state)
{
    struct pair_options options = pair_defaults;
    options.max_reads = 1;
    struct pair *pair = pair_create(&options);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    allow_reads(b, 8);
    allow_reads(a, 8);
    b->sink_room = 0;
    for (uint64_t id = 0; id < 8; id++) {
        pair_post_simple(a, WORK_READ, id, 0, REMOTE, 10);
    }
    (void)pair_step(pair);
    b->sink_room = UINT32_MAX;
    pair_run(pair);
    for (uint64_t id = 0; id < 8; id++) {
        (void)pair_expect(a->sends, id, COMPLETION_SUCCESS);
    }
    assert_int_equal(a->sent, 8);
    pair_destroy(pair);
}

/* Between two pieces, of which none is unanswered. */
static void a_read_under_way_goes_on_where_none_is_allowed_any_more(void **state)
{
    struct pair_options options = pair_defaults;
    options.max_reads = 1;
    struct pair *pair = pair_create(&options);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    struct qp_attributes attributes = {.state = QP_SQD, .max_reads_out = 0};
    unsigned masks[] = {QP_SET_STATE, QP_SET_MAX_READS_OUT};
    pair_fill(b, REMOTE, 200000, 8);
    pair_post_simple(a, WORK_READ, 1, 0, REMOTE, 200000);
    pair_advance(pair);
    a->sink_room = 0;
    pair_run_for(pair, 1000000);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(device_modify_qp(a->device, pair->now, a->qp, &attributes, masks[i], NULL),
                         STATUS_OK);
    }
    a->sink_room = UINT32_MAX;
    pair_run(pair);
    (void)pair_expect(a->sends, 1, COMPLETION_SUCCESS);
    assert_memory_equal(a->buffer, b->buffer + REMOTE, 200000);
    assert_int_equal(a->raised[EVENT_SQ_DRAINED], 1);
    pair_destroy(pair);
}

static void a_fence_waits_for_reads(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    pair_fill(b, REMOTE, 3000, 8);
    pair_post_simple(a, WORK_READ, 1, 0, REMOTE, 3000);
    struct sge sge = pair_sge(a, 0, 3000); /* sends back what was read */
    struct send_request request = pair_request(a, WORK_WRITE, 2, &sge, 0);
    request.fence = true;
    pair_post(a, &request);
    pair_run(pair);
    (void)pair_expect(a->sends, 1, COMPLETION_SUCCESS);
    (void)pair_expect(a->sends, 2, COMPLETION_SUCCESS);
    assert_memory_equal(b->buffer, b->buffer + REMOTE, 3000);
    pair_destroy(pair);
}

static void a_full_sink_loses_nothing(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    pair_fill(a, 0, 50000, 1);
    pair_fill(b, REMOTE, 50000, 2);
    pair_post_simple(a, WORK_WRITE, 1, 0, 0, 50000);
    pair_post_simple(a, WORK_READ, 2, REMOTE, REMOTE, 50000);
    bool more = true;
    for (int i = 0; more && i < 1000; i++) {
        a->sink_room = 1;
        b->sink_room = 1;
        more = pair_step(pair);
    }
    (void)pair_expect(a->sends, 1, COMPLETION_SUCCESS);
    (void)pair_expect(a->sends, 2, COMPLETION_SUCCESS);
    assert_memory_equal(a->buffer, b->buffer, 50000);
    assert_memory_equal(a->buffer + REMOTE, b->buffer + REMOTE, 50000);
    assert_true(device_counters(a->device)->values[COUNTER_SINK_FULL] > 0);
    assert_int_equal(device_counters(a->device)->values[COUNTER_RETRANSMITTED_PACKETS], 0);
    pair_destroy(pair);
}

static void unreliable_connection_carries_messages(void **state)
{
    struct pair_options options = pair_defaults;
    options.service = SERVICE_UC;
    struct pair *pair = pair_create(&options);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    pair_fill(a, 0, 9000, 1);
    pair_post_receive(b, 1, REMOTE, 9000);
    pair_post_simple(a, WORK_SEND, 1, 0, 0, 9000);
    pair_post_simple(a, WORK_WRITE, 2, 0, 0, 9000);
    pair_run(pair);
    (void)pair_expect(a->sends, 1, COMPLETION_SUCCESS);
    (void)pair_expect(a->sends, 2, COMPLETION_SUCCESS);
    (void)pair_expect(b->receives, 1, COMPLETION_SUCCESS);
    assert_memory_equal(a->buffer, b->buffer + REMOTE, 9000);
    assert_memory_equal(a->buffer, b->buffer, 9000);
    assert_int_equal(b->sent, 0);
    pair_destroy(pair);
}

static enum fate lose_number(struct pair *pair, int side, uint32_t number,
                             const struct packet *packet)
{
    return side == 0 && number == pair->knob ? FATE_LOSE : FATE_DELIVER;
}

/* The message that lost a packet is gone; its receive serves the next one. */
static void unreliable_connection_drops_whole_messages(void **state)
{
    for (uint32_t lost = 0; lost < 9; lost++) {
        struct pair_options options = pair_defaults;
        options.service = SERVICE_UC;
        struct pair *pair = pair_create(&options);
        struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
        pair->script = lose_number;
        pair->knob = lost;
        for (uint32_t i = 0; i < 3; i++) {
            pair_fill(a, i * 3000, 3000, i);
            pair_post_receive(b, i, REMOTE + i * 3000, 3000);
            pair_post_simple(a, WORK_SEND, i, i * 3000, 0, 3000);
        }
        pair_run(pair);
        for (uint32_t i = 0, arrived = 0; i < 3; i++) {
            (void)pair_expect(a->sends, i, COMPLETION_SUCCESS);
            if (i != lost / 3) {
                (void)pair_expect(b->receives, arrived, COMPLETION_SUCCESS);
                assert_memory_equal(a->buffer + i * 3000, b->buffer + REMOTE + arrived * 3000,
                                    3000);
                arrived++;
            }
        }
        pair_expect_none(b->receives);
        pair_destroy(pair);
    }
}

static void datagrams_carry_a_header_and_their_sender(void **state)
{
    struct pair_options options = pair_defaults;
    options.service = SERVICE_UD;
    struct pair *pair = pair_create(&options);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    pair_fill(a, 0, 1000, 1);
    pair_post_receive(b, 1, REMOTE, 1040);
    pair_post_receive(b, 2, REMOTE + 2000, 1039); /* too small: the datagram is dropped */
    struct sge sge = pair_sge(a, 0, 1000);
    struct datagram_target target = {pair_path(0), qp_number(b->qp), {0x1234}};
    struct send_request request = pair_request(a, WORK_SEND_IMMEDIATE, 1, &sge, 0);
    request.immediate = 5;
    request.target = &target;
    pair_post(a, &request);
    request.id = 2;
    pair_post(a, &request);
    target.qkey.value = 0x1235;
    request.id = 3;
    pair_post(a, &request);
    pair_run(pair);
    for (uint64_t id = 1; id <= 3; id++) {
        (void)pair_expect(a->sends, id, COMPLETION_SUCCESS);
    }
    struct completion completion = pair_expect(b->receives, 1, COMPLETION_SUCCESS);
    assert_int_equal(completion.byte_length, 1040);
    assert_int_equal(completion.source.value, qp_number(a->qp).value);
    assert_true(completion.has_grh && completion.has_immediate);
    static const uint8_t header[40] = {[20] = 0x45, 0,  1056 >> 8, 1056 & 0xff, 0, 0,  0x40,
                                       0,           64, 17,        0,           0, 10, 0,
                                       0,           1,  10,        0,           0, 2};
    uint8_t *grh = b->buffer + REMOTE;
    uint32_t sum = 0;
    for (int at = 20; at < 40; at += 2) {
        sum += (uint32_t)grh[at] << 8 | grh[at + 1];
    }
    assert_int_equal((sum & 0xffff) + (sum >> 16), 0xffff);
    grh[30] = grh[31] = 0; /* the checksum, looked at above */
    assert_memory_equal(grh, header, sizeof header);
    assert_memory_equal(b->buffer + REMOTE + 40, a->buffer, 1000);
    pair_expect_none(b->receives);
    assert_int_equal(device_counters(b->device)->refused[REFUSED_TOO_LONG], 1);
    assert_int_equal(device_counters(b->device)->refused[REFUSED_QKEY], 1);
    pair_destroy(pair);
}

struct recorder {
    struct management_handler handler;
    uint32_t count;
    uint8_t first;
};

static void record(struct management_handler *handler, struct instant now,
                   const struct arrival *arrival, struct qpn source, const uint8_t *mad,
                   uint32_t length)
{
    struct recorder *recorder = CONTAINER_OF(handler, struct recorder, handler);
    assert_int_equal(source.value, QPN_MANAGEMENT.value);
    assert_int_equal(length, 256);
    recorder->count++;
    recorder->first = mad[0];
}

static void management_goes_to_its_handler(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    struct recorder recorder = {.handler = {record}};
    device_set_management(b->device, &recorder.handler);
    uint8_t mad[256] = {42};
    struct path path = pair_path(0);
    assert_int_equal(device_send_management(a->device, &path, mad, 256), STATUS_OK);
    assert_int_equal(device_send_management(a->device, &path, mad, 255), STATUS_OK);
    pair_run(pair);
    assert_int_equal(recorder.count, 1);
    assert_int_equal(recorder.first, 42);
    assert_int_equal(device_counters(b->device)->refused[REFUSED_MANAGEMENT], 1);
    pair_destroy(pair);
}

static void doorbells_are_rung_once(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0];
    assert_false(device_has_doorbell(a->device));
    assert_true(device_ring(a->device, a->qp));
    assert_false(device_ring(a->device, a->qp));
    assert_true(device_has_doorbell(a->device));
    (void)device_advance(a->device, pair->now, 64);
    assert_false(device_has_doorbell(a->device));
    assert_true(device_ring(a->device, a->qp));
    pair_destroy(pair); /* with the doorbell rung */
}

static void numbers_are_not_reused_soon(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0];
    struct qp_init init = {
        .service = SERVICE_RC,
        .domain = a->domain,
        .send_completions = a->sends,
        .receive_completions = a->receives,
    };
    uint32_t last = 0;
    for (int i = 0; i < 200; i++) {
        struct qp *qp;
        assert_int_equal(device_create_qp(a->device, &init, &qp), STATUS_OK);
        assert_int_not_equal(qp_number(qp).value, last);
        assert_ptr_equal(device_find_qp(a->device, qp_number(qp)), qp);
        last = qp_number(qp).value;
        device_destroy_qp(a->device, qp);
        assert_null(device_find_qp(a->device, (struct qpn){last}));
    }
    pair_destroy(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(write_moves_bytes),
        cmocka_unit_test(read_moves_bytes),
        cmocka_unit_test(send_moves_bytes),
        cmocka_unit_test(packets_of_a_write),
        cmocka_unit_test(pieces_are_gathered_and_scattered),
        cmocka_unit_test(immediates_and_solicitation_arrive),
        cmocka_unit_test(atomics_return_what_was_there),
        cmocka_unit_test(inline_bytes_are_taken_at_once),
        cmocka_unit_test(unsignaled_success_is_silent),
        cmocka_unit_test(reads_are_limited_and_complete_in_order),
        cmocka_unit_test(more_reads_are_allowed),
        cmocka_unit_test(a_read_under_way_goes_on_where_none_is_allowed_any_more),
        cmocka_unit_test(a_fence_waits_for_reads),
        cmocka_unit_test(a_full_sink_loses_nothing),
        cmocka_unit_test(unreliable_connection_carries_messages),
        cmocka_unit_test(unreliable_connection_drops_whole_messages),
        cmocka_unit_test(datagrams_carry_a_header_and_their_sender),
        cmocka_unit_test(management_goes_to_its_handler),
        cmocka_unit_test(doorbells_are_rung_once),
        cmocka_unit_test(numbers_are_not_reused_soon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
