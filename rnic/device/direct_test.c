/* WRITEs and READs without packets between two devices: when they go that way, what they leave as
 * it was, and what happens when it is shut. */
#include "rnic/device/extra_test.h"
#include "rnic/memory/window.h"

#define LENGTH 5000u
#define PART   2000u
#define HERE   0u
#define THERE  (2u << 20)
#define PLACES 256u

struct end {
    struct direct_link link; /* first */
    struct direct_table table;
    struct direct_entry qps[PLACES], keys[PLACES];
    uint32_t accesses; /* of parts that hold something, */
    uint32_t calls;    /* in so many batches */
    uint32_t settled;
    uint32_t breaks_at; /* the access that stops after one byte; 0: none */
};

static struct end ends[2];
static struct pair *pair;

static bool move_part(struct end *end, const struct direct_access *access, uint64_t there)
{
    end->accesses += access->part > 0;
    uint8_t *bytes = (uint8_t *)(uintptr_t)there;
    for (uint32_t i = 0; i < access->place_count; i++) {
        const struct payload_place *place = &access->places[i];
        bool breaks = end->accesses == end->breaks_at;
        uint32_t length = breaks ? 1 : place->length;
        memcpy(access->write ? bytes : place->bytes, access->write ? place->bytes : bytes, length);
        if (breaks) {
            return false;
        }
        bytes += length;
    }
    return true;
}

static uint32_t access_directly(struct direct_link *link, const struct direct_access *accesses,
                                uint32_t count)
{
    struct end *end = (struct end *)link;
    struct direct_there there[DIRECT_BATCH];
    uint32_t moved = 0, bytes = 0;
    uint32_t granted = direct_table_grants(&ends[end == &ends[0]].table, &(struct direct_seen){0},
                                           accesses, count, there);
    for (uint32_t i = 0; i < count; i++) {
        bytes += accesses[i].part;
        assert_int_equal(accesses[i].write, accesses->write);
    }
    assert_true(count > 0 && count <= DIRECT_BATCH && bytes <= PART);
    end->calls += bytes > 0;
    while (moved < granted && move_part(end, &accesses[moved], there[moved].bytes)) {
        moved++;
    }
    return moved;
}

static bool settle(struct direct_link *link, struct qpn peer, bool waits)
{
    ((struct end *)link)->settled++;
    return true;
}

static void start(const struct pair_options *defaults)
{
    struct pair_options options = *defaults;
    for (int i = 0; i < 2; i++) {
        memset(&ends[i], 0, sizeof ends[i]);
        ends[i].table = (struct direct_table){ends[i].qps, ends[i].keys, PLACES, PLACES};
        ends[i].link = (struct direct_link){.table = &ends[i].table,
                                            .part_bytes = PART,
                                            .qpns_each = 1u << 24,
                                            .access = access_directly,
                                            .settle = settle};
        options.direct[i] = &ends[i].link;
    }
    pair = pair_create(&options);
    for (int i = 0; i < 2; i++) {
        pair_fill(&pair->sides[i], HERE, LENGTH, (uint32_t)i + 1);
    }
}

static int begin(void **state)
{
    start(&pair_defaults);
    return 0;
}

static int finish(void **state)
{
    pair_destroy(pair);
    return 0;
}

static uint64_t count(enum counter counter)
{
    return device_counters(pair->sides[0].device)->values[counter];
}

static void post(enum work_kind kind, uint64_t id, uint32_t length)
{
    bool read = kind == WORK_READ;
    pair_post_simple(&pair->sides[0], kind, id, read ? THERE : HERE, read ? HERE : THERE, length);
}

static struct completion expect(uint64_t id, enum completion_status status)
{
    return pair_expect(pair->sides[0].sends, id, status);
}

static void expect_same(int from, uint32_t length)
{
    assert_memory_equal(pair->sides[from].buffer + HERE, pair->sides[1 - from].buffer + THERE,
                        length);
}

static void modify(int side, struct qp_attributes attributes, unsigned mask)
{
    assert_int_equal(device_modify_qp(pair->sides[side].device, pair->now, pair->sides[side].qp,
                                      &attributes, mask, NULL),
                     STATUS_OK);
}

static void no_packet_and_no_psn(void **state)
{
    post(WORK_WRITE, 1, LENGTH);
    post(WORK_READ, 2, LENGTH);
    pair_advance(pair);
    expect(1, COMPLETION_SUCCESS);
    assert_int_equal(expect(2, COMPLETION_SUCCESS).byte_length, LENGTH);
    expect_same(0, LENGTH);
    expect_same(1, LENGTH);
    assert_int_equal(pair->sides[0].sent, 0);
    assert_int_equal(count(COUNTER_DIRECT_WRITES), 1);
    assert_int_equal(count(COUNTER_DIRECT_READS), 1);
    assert_int_equal(count(COUNTER_DIRECT_BYTES), 2 * LENGTH);

    pair_post_receive(&pair->sides[1], 7, THERE, LENGTH);
    post(WORK_SEND, 4, LENGTH);
    pair_run(pair);
    expect(4, COMPLETION_SUCCESS);
    pair_expect(pair->sides[1].receives, 7, COMPLETION_SUCCESS);
    assert_int_equal(count(COUNTER_RETRANSMITTED_PACKETS), 0);
}

/* It asks the peer's engine whether it is there. */
static void an_empty_one_is_a_packet(void **state)
{
    post(WORK_WRITE, 1, 0);
    post(WORK_READ, 2, 0);
    pair_run(pair);
    expect(1, COMPLETION_SUCCESS);
    expect(2, COMPLETION_SUCCESS);
    assert_int_equal(pair->sides[0].sent, 2);
}

static void several_pieces_and_inline_bytes(void **state)
{
    struct pair_side *side = &pair->sides[0];
    struct sge sges[3] = {pair_sge(side, HERE, 100), pair_sge(side, HERE + 100, 0),
                          pair_sge(side, HERE + 100, 3000)};
    struct send_request request = pair_request(side, WORK_WRITE, 1, sges, THERE);
    request.sge_count = 3;
    pair_post(side, &request);
    pair_advance(pair);
    expect(1, COMPLETION_SUCCESS);
    expect_same(0, 3100);
    struct sge bytes = {(uintptr_t) "inline bytes", 12, {0xdead}};
    request = pair_request(side, WORK_WRITE, 2, &bytes, THERE);
    request.inline_data = true;
    pair_post(side, &request);
    pair_advance(pair);
    expect(2, COMPLETION_SUCCESS);
    assert_memory_equal(pair->sides[1].buffer + THERE, "inline bytes", 12);
    assert_int_equal(side->sent, 0);
}

static void expect_all(uint64_t first, uint64_t last)
{
    for (uint64_t id = first; id <= last; id++) {
        expect(id, COMPLETION_SUCCESS);
    }
    pair_expect_none(pair->sides[0].sends);
}

static void short_ones_go_together(void **state)
{
    for (uint32_t i = 0; i < 5; i++) {
        pair_post_simple(&pair->sides[0], WORK_WRITE, i, HERE + 100 * i, THERE + 100 * i, 100);
    }
    pair_advance(pair);
    expect_all(0, 4);
    expect_same(0, 500);
    assert_int_equal(ends[0].calls, 1);
    assert_int_equal(count(COUNTER_DIRECT_WRITES), 5);
    assert_int_equal(count(COUNTER_DIRECT_BYTES), 500);
    post(WORK_WRITE, 5, 100);
    post(WORK_READ, 6, 100); /* what has just been written */
    post(WORK_READ, 7, 100);
    post(WORK_WRITE, 8, 100);
    pair_advance(pair);
    expect_all(5, 8);
    assert_int_equal(ends[0].calls, 4);
    for (uint32_t i = 0; i < 5; i++) {
        post(WORK_WRITE, i, PART / 2); /* no more at once than of a long one */
    }
    pair_advance(pair);
    expect_all(0, 4);
    assert_int_equal(ends[0].calls, 7);
    assert_int_equal(pair->sides[0].sent, 0);
}

static void one_that_fails_between_others(void **state)
{
    for (uint32_t kind = 0; kind < 2; kind++) {
        uint32_t sent = pair->sides[0].sent;
        ends[0].accesses = ends[0].calls = 0;
        ends[0].breaks_at = 3;
        for (uint32_t i = 0; i < 3; i++) {
            post(kind == 0 ? WORK_WRITE : WORK_READ, i, 100);
        }
        pair_advance(pair);
        assert_int_equal(ends[0].calls, 2); /* once more, by itself */
        assert_int_equal(pair->sides[0].sent, sent);
        ends[0].breaks_at = 5;
        for (uint32_t i = 3; i < 5; i++) {
            post(kind == 0 ? WORK_WRITE : WORK_READ, i, 100);
        }
        ends[0].accesses = 4;
        pair_advance(pair); /* at once, and once more */
        ends[0].breaks_at = 0;
        pair_run(pair);
        expect_all(0, 4);
        expect_same(kind == 0 ? 0 : 1, 100);
    }
}

static void what_a_batch_is_not_granted(void **state)
{
    struct sge sge = pair_sge(&pair->sides[0], HERE, 100);
    struct send_request request = pair_request(&pair->sides[0], WORK_WRITE, 2, &sge, THERE);
    request.remote_key.value ^= 1;
    post(WORK_WRITE, 1, 100);
    pair_post(&pair->sides[0], &request);
    post(WORK_WRITE, 3, 100);
    pair_run(pair);
    expect(1, COMPLETION_SUCCESS);
    expect(2, COMPLETION_REMOTE_ACCESS_ERROR);
    expect(3, COMPLETION_FLUSHED);
    assert_int_equal(ends[0].accesses, 1);
}

#define OTHERS 3

static struct qp *others[2][OTHERS];

static void connect_others(void)
{
    for (int i = 0; i < OTHERS; i++) {
        others[0][i] = create_extra(&pair->sides[0], NULL);
        others[1][i] = create_extra(&pair->sides[1], NULL);
        connect_extra(pair, others[0][i], others[1][i]);
    }
}

static void end_others(void)
{
    for (int i = 0; i < 2 * OTHERS; i++) {
        device_destroy_qp(pair->sides[i % 2].device, others[i % 2][i / 2]);
    }
}

/* By another queue pair each. */
static void post_all(enum work_kind kind)
{
    uint32_t there = kind == WORK_READ ? THERE + 1000 : THERE;
    post_on(&pair->sides[0], pair->sides[0].qp, kind, 0, there, 100);
    for (uint32_t i = 0; i < OTHERS; i++) {
        post_on(&pair->sides[0], others[0][i], kind, i + 1, there + 100 * (i + 1), 100);
    }
}

static uint64_t count_done(uint64_t last)
{
    uint64_t done = 0;
    struct completion completion;
    while (completion_queue_poll(pair->sides[0].sends, 1, &completion) == 1) {
        assert_int_equal(completion.status, COMPLETION_SUCCESS);
        assert_in_range(completion.id, 0, last);
        done |= UINT64_C(1) << completion.id;
    }
    return done;
}

static void those_of_several_queue_pairs_go_together(void **state)
{
    connect_others();
    post_all(WORK_WRITE);
    pair_advance(pair);
    assert_int_equal(count_done(OTHERS), 15);
    assert_int_equal(ends[0].calls, 1);
    for (uint32_t i = 0; i <= OTHERS; i++) {
        assert_memory_equal(pair->sides[1].buffer + THERE + 100 * i, pair->sides[0].buffer, 100);
    }
    post_all(WORK_READ);
    post_all(WORK_WRITE); /* behind it */
    pair_advance(pair);
    assert_int_equal(count_done(OTHERS), 15);
    assert_in_range(ends[0].calls, 3, 1 + 2 * (1 + OTHERS));
    assert_int_equal(count(COUNTER_DIRECT_READS), 1 + OTHERS);
    assert_int_equal(count(COUNTER_DIRECT_WRITES), 2 * (1 + OTHERS));
    assert_int_equal(pair->sides[0].sent, 0);
    end_others();
}

/* The others' are done. */
static void of_several_one_is_not_granted(void **state)
{
    connect_others();
    struct qp *refused = others[1][1];
    struct qp_attributes attributes = {.access = 0};
    assert_int_equal(device_modify_qp(pair->sides[1].device, pair->now, refused, &attributes,
                                      QP_SET_ACCESS, NULL),
                     STATUS_OK);
    post_all(WORK_WRITE);
    pair_run(pair);
    struct completion completions[2 + OTHERS];
    assert_int_equal(completion_queue_poll(pair->sides[0].sends, 2 + OTHERS, completions),
                     1 + OTHERS);
    for (int i = 0; i <= OTHERS; i++) {
        bool fails = completions[i].id == 2;
        assert_int_equal(completions[i].status,
                         fails ? COMPLETION_REMOTE_INVALID_REQUEST_ERROR : COMPLETION_SUCCESS);
    }
    assert_int_equal(ends[0].accesses, OTHERS);
    end_others();
}

static void of_several_one_has_something_outstanding(void **state)
{
    connect_others();
    pair_post_receive(&pair->sides[1], 7, THERE + 100000, LENGTH);
    post(WORK_SEND, 4, 100);
    pair_advance(pair);
    assert_int_equal(pair->sides[0].sent, 1);
    post_all(WORK_WRITE);
    pair_advance(pair);
    assert_int_equal(ends[0].accesses, OTHERS);
    assert_int_equal(count_done(4), 14);
    pair_run(pair);
    expect(4, COMPLETION_SUCCESS);
    expect(0, COMPLETION_SUCCESS);
    end_others();
}

/* A short one does not wait for what stands before it, but goes behind it. */
static void behind_what_is_outstanding(void **state)
{
    pair_post_receive(&pair->sides[1], 7, THERE + 100000, LENGTH);
    post(WORK_SEND, 1, 100);
    post(WORK_WRITE, 2, 100);
    pair_advance(pair);
    assert_int_equal(pair->sides[0].sent, 2);
    assert_int_equal(ends[0].accesses, 0);
    pair_run(pair);
    expect(1, COMPLETION_SUCCESS);
    expect(2, COMPLETION_SUCCESS);

    pair_post_receive(&pair->sides[1], 8, THERE + 100000, LENGTH);
    post(WORK_SEND, 3, 100);
    post(WORK_WRITE, 4, 20000);
    post(WORK_SEND, 5, 100); /* is not overtaken either */
    pair_advance(pair);
    assert_int_equal(pair->sides[0].sent, 3);
    assert_int_equal(ends[0].accesses, 0);
    pair_post_receive(&pair->sides[1], 9, THERE + 100000, LENGTH);
    pair_run(pair);
    for (uint64_t id = 3; id < 6; id++) {
        expect(id, COMPLETION_SUCCESS);
    }
    assert_int_equal(ends[0].accesses, 10);
    expect_same(0, 20000);
}

static void what_stops_in_the_middle_goes_by_packets(void **state)
{
    for (uint32_t at = 1; at <= 3; at++) {
        ends[0].accesses = 0;
        ends[0].breaks_at = at;
        memset(pair->sides[1].buffer + THERE, 0, LENGTH);
        uint32_t sent = pair->sides[0].sent;
        post(WORK_WRITE, at, LENGTH);
        pair_run(pair);
        expect(at, COMPLETION_SUCCESS);
        expect_same(0, LENGTH);
        assert_int_equal(pair->sides[0].sent - sent, 5);
    }
    ends[0].accesses = 0;
    post(WORK_READ, 9, LENGTH);
    pair_run(pair);
    expect(9, COMPLETION_SUCCESS);
    expect_same(1, LENGTH);
    assert_int_equal(count(COUNTER_DIRECT_WRITES) + count(COUNTER_DIRECT_READS), 0);
}

static void errors_come_from_packets(void **state)
{
    struct sge sge = pair_sge(&pair->sides[0], HERE, 100);
    struct send_request request = pair_request(&pair->sides[0], WORK_WRITE, 1, &sge, THERE);
    request.remote_key.value ^= 1;
    pair_post(&pair->sides[0], &request);
    pair_run(pair);
    expect(1, COMPLETION_REMOTE_ACCESS_ERROR);
    assert_int_equal(pair->sides[1].raised[EVENT_QP_ACCESS_ERROR], 1);
    assert_int_equal(count(COUNTER_NAK_ERROR_RECEIVED), 1);
}

static void a_local_error_too(void **state)
{
    struct sge sge = pair_sge(&pair->sides[0], HERE, 100);
    sge.key.value ^= 1;
    struct send_request request = pair_request(&pair->sides[0], WORK_WRITE, 1, &sge, THERE);
    pair_post(&pair->sides[0], &request);
    pair_run(pair);
    expect(1, COMPLETION_LOCAL_PROTECTION_ERROR);
    assert_int_equal(ends[0].accesses, 0);
}

static void a_region_that_is_taken_back(void **state)
{
    struct pair_side *target = &pair->sides[1];
    struct region_attributes region = {
        .domain = target->domain,
        .address = PAIR_BUFFER_ADDRESS,
        .length = PAIR_BUFFER_LENGTH,
        .bytes = target->buffer,
        .access = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_READ,
    };
    struct memory *memory = device_memory(target->device);
    assert_true(device_hold_region(target->device, target->key));
    post(WORK_READ, 1, 100); /* by packets */
    pair_run(pair);
    expect(1, COMPLETION_SUCCESS);
    assert_int_equal(ends[0].accesses, 0);
    assert_int_equal(memory_reregister(memory, target->key, &region), STATUS_OK);
    post(WORK_READ, 2, 100);
    pair_advance(pair);
    expect(2, COMPLETION_SUCCESS);
    assert_int_equal(ends[0].accesses, 1);
    assert_int_equal(memory_deregister(memory, target->key), STATUS_OK);
    post(WORK_READ, 3, 100);
    pair_run(pair);
    expect(3, COMPLETION_REMOTE_ACCESS_ERROR);
    assert_int_equal(ends[0].accesses, 1);
    assert_int_equal(ends[1].settled, 0); /* that is the caller's, without the engine's lock */
    assert_true(device_settle(target->device, (struct qpn){0}, false));
    assert_int_equal(ends[1].settled, 1);
    assert_int_equal(memory_register(memory, &region, &target->key), STATUS_OK);
}

/* Windows come and go with requests, which cannot wait for anybody: packets do it. */
static void a_window_is_not_shown(void **state)
{
    struct pair_side *target = &pair->sides[1];
    struct memory *memory = device_memory(target->device);
    struct window_bind bind = {.region = target->key,
                               .address = PAIR_BUFFER_ADDRESS + THERE,
                               .length = LENGTH,
                               .access = ACCESS_REMOTE_WRITE};
    assert_int_equal(window_allocate(memory, target->domain, WINDOW_TYPE_1, &bind.window),
                     STATUS_OK);
    bind.key = (struct memory_key){bind.window.value ^ 1};
    assert_int_equal(window_bind(memory, target->domain, qp_number(target->qp), &bind), STATUS_OK);
    struct sge sge = pair_sge(&pair->sides[0], HERE, 100);
    struct send_request request = pair_request(&pair->sides[0], WORK_WRITE, 1, &sge, THERE);
    request.remote_key = bind.key;
    pair_post(&pair->sides[0], &request);
    pair_run(pair);
    expect(1, COMPLETION_SUCCESS);
    expect_same(0, 100);
    assert_int_equal(ends[0].accesses, 0);
    assert_int_equal(window_free(memory, bind.key), STATUS_OK);
}

/* Whatever becomes of it meanwhile. */
static void a_queue_pair_that_is_held(void **state)
{
    struct pair_side *target = &pair->sides[1];
    struct qpn peer;
    assert_true(device_hold_qp(target->device, target->qp, &peer));
    assert_int_equal(peer.value, qp_number(pair->sides[0].qp).value);
    modify(1, (struct qp_attributes){.access = ACCESS_REMOTE_WRITE}, QP_SET_ACCESS);
    post(WORK_WRITE, 1, 100);
    pair_run(pair);
    expect(1, COMPLETION_SUCCESS);
    assert_int_equal(ends[0].accesses, 0);
    device_let_go_qp(target->device, target->qp, true);
    post(WORK_WRITE, 2, 100);
    pair_run(pair);
    expect(2, COMPLETION_SUCCESS);
    assert_int_equal(ends[0].accesses, 1);
}

/* Who ends it later waits for what its peer had begun. */
static void one_that_has_failed_is_still_waited_for(void **state)
{
    struct pair_side *target = &pair->sides[1];
    struct qpn peer;
    modify(1, (struct qp_attributes){.state = QP_ERROR}, QP_SET_STATE);
    assert_true(device_hold_qp(target->device, target->qp, &peer));
    device_let_go_qp(target->device, target->qp, false);
    assert_true(device_hold_qp(target->device, target->qp, &peer));
    device_let_go_qp(target->device, target->qp, true);
    assert_false(device_hold_qp(target->device, target->qp, &peer));
}

static void a_right_that_the_queue_pair_loses(void **state)
{
    modify(1, (struct qp_attributes){.access = ACCESS_REMOTE_READ}, QP_SET_ACCESS);
    post(WORK_WRITE, 1, 100);
    pair_run(pair);
    expect(1, COMPLETION_REMOTE_INVALID_REQUEST_ERROR);
    assert_int_equal(ends[0].accesses, 0);
}

static void a_queue_pair_that_is_reset(void **state)
{
    modify(1, (struct qp_attributes){.state = QP_RESET}, QP_SET_STATE);
    post(WORK_WRITE, 1, 100);
    pair_advance(pair);
    assert_int_equal(ends[0].accesses, 0);
    pair_expect_none(pair->sides[0].sends);
}

/* In between others have their turns, and what was begun ends though the queue is being drained. */
static void a_long_one_goes_part_by_part(void **state)
{
    post(WORK_WRITE, 1, 4 * PART);
    post(WORK_WRITE, 2, 100);
    assert_true(device_advance(pair->sides[0].device, pair->now, 1));
    assert_int_equal(ends[0].accesses, 1);
    modify(0, (struct qp_attributes){.state = QP_SQD}, QP_SET_STATE);
    assert_true(device_advance(pair->sides[0].device, pair->now, 1));
    assert_int_equal(pair->sides[0].raised[EVENT_SQ_DRAINED], 0);
    pair_run(pair);
    expect(1, COMPLETION_SUCCESS);
    expect_same(0, 4 * PART);
    pair_expect_none(pair->sides[0].sends);
    assert_int_equal(pair->sides[0].raised[EVENT_SQ_DRAINED], 1);
    modify(0, (struct qp_attributes){.state = QP_RTS}, QP_SET_STATE);
    pair_run(pair);
    expect(2, COMPLETION_SUCCESS);
    assert_int_equal(pair->sides[0].sent, 0);
}

static void the_key_ends_between_two_parts(void **state)
{
    struct pair_side *target = &pair->sides[1];
    struct memory *memory = device_memory(target->device);
    post(WORK_WRITE, 1, 3 * PART);
    assert_true(device_advance(pair->sides[0].device, pair->now, 1));
    assert_int_equal(memory_deregister(memory, target->key), STATUS_OK);
    pair_run(pair);
    expect(1, COMPLETION_REMOTE_ACCESS_ERROR);
    assert_int_equal(ends[0].accesses, 1);
    struct region_attributes none = {.domain = target->domain};
    assert_int_equal(memory_register(memory, &none, &target->key), STATUS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_packet_and_no_psn, begin, finish),
        cmocka_unit_test_setup_teardown(an_empty_one_is_a_packet, begin, finish),
        cmocka_unit_test_setup_teardown(several_pieces_and_inline_bytes, begin, finish),
        cmocka_unit_test_setup_teardown(short_ones_go_together, begin, finish),
        cmocka_unit_test_setup_teardown(one_that_fails_between_others, begin, finish),
        cmocka_unit_test_setup_teardown(what_a_batch_is_not_granted, begin, finish),
        cmocka_unit_test_setup_teardown(those_of_several_queue_pairs_go_together, begin, finish),
        cmocka_unit_test_setup_teardown(of_several_one_is_not_granted, begin, finish),
        cmocka_unit_test_setup_teardown(of_several_one_has_something_outstanding, begin, finish),
        cmocka_unit_test_setup_teardown(behind_what_is_outstanding, begin, finish),
        cmocka_unit_test_setup_teardown(what_stops_in_the_middle_goes_by_packets, begin, finish),
        cmocka_unit_test_setup_teardown(errors_come_from_packets, begin, finish),
        cmocka_unit_test_setup_teardown(a_local_error_too, begin, finish),
        cmocka_unit_test_setup_teardown(a_region_that_is_taken_back, begin, finish),
        cmocka_unit_test_setup_teardown(a_window_is_not_shown, begin, finish),
        cmocka_unit_test_setup_teardown(a_queue_pair_that_is_held, begin, finish),
        cmocka_unit_test_setup_teardown(one_that_has_failed_is_still_waited_for, begin, finish),
        cmocka_unit_test_setup_teardown(a_right_that_the_queue_pair_loses, begin, finish),
        cmocka_unit_test_setup_teardown(a_queue_pair_that_is_reset, begin, finish),
        cmocka_unit_test_setup_teardown(a_long_one_goes_part_by_part, begin, finish),
        cmocka_unit_test_setup_teardown(the_key_ends_between_two_parts, begin, finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
