/* What fails, how it is told to both sides, and that everything outstanding is flushed in order. */
#include "rnic/device/pair_test.h"
#include "rnic/memory/window.h"
#include "rnic/transport/qp_private.h"

#define REMOTE 2097152u

static void expect_state(const struct pair_side *side, enum qp_state state)
{
    assert_int_equal(qp_current_state(side->qp), state);
}

/* Posts `bad` between good ones and expects: success before, `status` for it, flushed behind. */
static void expect_failure(struct pair *pair, const struct send_request *bad,
                           enum completion_status status)
{
    struct pair_side *a = &pair->sides[0];
    pair_post_simple(a, WORK_WRITE, 100, 0, 0, 5000);
    pair_post_simple(a, WORK_READ, 101, 0, 0, 5000);
    pair_post(a, bad);
    struct sge sge = pair_sge(a, 0, 100);
    struct send_request behind = pair_request(a, WORK_WRITE, 102, &sge, 0);
    behind.signaled = false; /* errors are told anyway */
    pair_post(a, &behind);
    pair_post_receive(a, 200, 0, 100);
    pair_post_receive(a, 201, 0, 100);
    pair_run(pair);
    (void)pair_expect(a->sends, 100, COMPLETION_SUCCESS);
    (void)pair_expect(a->sends, 101, COMPLETION_SUCCESS);
    (void)pair_expect(a->sends, bad->id, status);
    (void)pair_expect(a->sends, 102, COMPLETION_FLUSHED);
    pair_expect_none(a->sends);
    (void)pair_expect(a->receives, 200, COMPLETION_FLUSHED);
    (void)pair_expect(a->receives, 201, COMPLETION_FLUSHED);
    expect_state(a, QP_ERROR);
}

static enum fate lose_first_errors(struct pair *pair, int side, uint32_t number,
                                   const struct packet *packet)
{
    bool error = packet->info->operation == OPERATION_ACKNOWLEDGE &&
                 packet->aeth.kind == AETH_NAK && packet->aeth.value != NAK_SEQUENCE;
    if (error && pair->knob > 0) {
        pair->knob--;
        return FATE_LOSE;
    }
    return FATE_DELIVER;
}

static void a_wrong_remote_key_is_an_access_error(void **state)
{
    static const enum work_kind kinds[] = {WORK_WRITE, WORK_READ, WORK_FETCH_ADD};
    for (uint32_t lost = 0; lost < 3; lost++) {
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
            struct pair *pair = pair_create(&pair_defaults);
            struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
            pair->script = lose_first_errors;
            pair->knob = lost;
            struct sge sge = pair_sge(a, 0, 8);
            struct send_request bad = pair_request(a, kinds[i], 7, &sge, REMOTE);
            bad.remote_key.value ^= 1;
            expect_failure(pair, &bad, COMPLETION_REMOTE_ACCESS_ERROR);
            expect_state(b, QP_ERROR);
            assert_int_equal(b->raised[EVENT_QP_ACCESS_ERROR], 1);
            pair_destroy(pair);
        }
    }
}

static enum fate delay_all_but_the_first(struct pair *pair, int side, uint32_t number,
                                         const struct packet *packet)
{
    return side == 0 && number > 0 ? FATE_DELAY : FATE_DELIVER;
}

/* What was under way behind the request that failed does not ask for its NAK again. */
static void a_failure_is_told_once(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct sge sge = pair_sge(&pair->sides[0], 0, 5000);
    struct send_request bad = pair_request(&pair->sides[0], WORK_WRITE, 7, &sge, REMOTE);
    bad.remote_key.value ^= 1;
    pair->script = delay_all_but_the_first;
    pair_post(&pair->sides[0], &bad);
    pair_run(pair);
    (void)pair_expect(pair->sides[0].sends, 7, COMPLETION_REMOTE_ACCESS_ERROR);
    assert_int_equal(pair->sides[0].sent, 5);
    assert_int_equal(pair->sides[1].sent, 1);
    pair_destroy(pair);
}

static void beyond_a_region_is_an_access_error(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    struct sge sge = pair_sge(a, 0, 5000);
    struct send_request bad = pair_request(a, WORK_WRITE, 7, &sge, PAIR_BUFFER_LENGTH - 4999);
    expect_failure(pair, &bad, COMPLETION_REMOTE_ACCESS_ERROR);
    assert_int_equal(b->buffer[PAIR_BUFFER_LENGTH - 1], 0);
    pair_destroy(pair);
}

static void a_right_that_the_queue_pair_lacks_is_an_invalid_request(void **state)
{
    struct pair_options options = pair_defaults;
    options.access = ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE;
    struct pair *pair = pair_create(&options);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    struct sge sge = pair_sge(a, 0, 8);
    struct send_request bad = pair_request(a, WORK_FETCH_ADD, 7, &sge, REMOTE);
    expect_failure(pair, &bad, COMPLETION_REMOTE_INVALID_REQUEST_ERROR);
    assert_int_equal(b->raised[EVENT_QP_REQUEST_ERROR], 1);
    pair_destroy(pair);
}

static void a_misaligned_atomic_is_an_invalid_request(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    struct sge sge = pair_sge(a, 0, 8);
    struct send_request bad = pair_request(a, WORK_FETCH_ADD, 7, &sge, REMOTE + 4);
    expect_failure(pair, &bad, COMPLETION_REMOTE_INVALID_REQUEST_ERROR);
    assert_int_equal(b->raised[EVENT_QP_ACCESS_ERROR], 1);
    pair_destroy(pair);
}

static void a_send_too_long_fails_on_both_sides(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    pair_post_receive(b, 50, REMOTE, 4999);
    pair_post_receive(b, 51, REMOTE, 4999);
    struct sge sge = pair_sge(a, 0, 5000);
    struct send_request bad = pair_request(a, WORK_SEND, 7, &sge, 0);
    expect_failure(pair, &bad, COMPLETION_REMOTE_INVALID_REQUEST_ERROR);
    (void)pair_expect(b->receives, 50, COMPLETION_LOCAL_LENGTH_ERROR);
    (void)pair_expect(b->receives, 51, COMPLETION_FLUSHED);
    assert_int_equal(b->raised[EVENT_QP_REQUEST_ERROR], 0);
    pair_destroy(pair);
}

/* A peer that sends MIDDLE packets without end into a receive of any size. */
static void a_send_has_an_end(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    pair_post_receive(b, 50, REMOTE, 100000);
    pair_post_simple(a, WORK_SEND, 1, 0, 0, 100000);
    (void)pair_step(pair);
    assert_true(b->qp->responder.done > 0);
    b->qp->responder.done = MESSAGE_LENGTH_MAX - 1024; /* as if so much had come already */
    pair_run(pair);
    (void)pair_expect(a->sends, 1, COMPLETION_REMOTE_INVALID_REQUEST_ERROR);
    (void)pair_expect(b->receives, 50, COMPLETION_LOCAL_LENGTH_ERROR);
    pair_destroy(pair);
}

static void a_receive_without_rights_is_an_operation_error(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    struct sge to = pair_sge(b, REMOTE, 5000);
    to.key.value ^= 1;
    struct receive_request receive = {.id = 50, .sges = &to, .sge_count = 1};
    assert_int_equal(qp_post_receive(b->qp, &receive), STATUS_OK);
    struct sge sge = pair_sge(a, 0, 5000);
    struct send_request bad = pair_request(a, WORK_SEND, 7, &sge, 0);
    expect_failure(pair, &bad, COMPLETION_REMOTE_OPERATION_ERROR);
    (void)pair_expect(b->receives, 50, COMPLETION_LOCAL_PROTECTION_ERROR);
    pair_destroy(pair);
}

static void a_wrong_local_key_is_a_protection_error(void **state)
{
    static const enum work_kind kinds[] = {WORK_WRITE, WORK_READ, WORK_FETCH_ADD};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct pair *pair = pair_create(&pair_defaults);
        struct pair_side *a = &pair->sides[0];
        struct sge sge = pair_sge(a, 0, 8);
        sge.key.value ^= 1;
        struct send_request bad = pair_request(a, kinds[i], 7, &sge, REMOTE);
        expect_failure(pair, &bad, COMPLETION_LOCAL_PROTECTION_ERROR);
        pair_destroy(pair);
    }
}

static void a_key_that_cannot_be_invalidated(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    pair_post_receive(b, 50, REMOTE, 100);
    struct sge sge = pair_sge(a, 0, 100);
    struct send_request bad = pair_request(a, WORK_SEND_INVALIDATE, 7, &sge, 0);
    bad.invalidate = b->key;
    expect_failure(pair, &bad, COMPLETION_REMOTE_ACCESS_ERROR);
    (void)pair_expect(b->receives, 50, COMPLETION_FLUSHED);
    pair_destroy(pair);

    pair = pair_create(&pair_defaults);
    a = &pair->sides[0];
    struct send_request local = {.id = 7, .kind = WORK_LOCAL_INVALIDATE, .invalidate = a->key};
    expect_failure(pair, &local, COMPLETION_WINDOW_BIND_ERROR);
    pair_destroy(pair);
}

/* The region goes away in the middle of a READ's response. */
static void a_region_that_vanishes_is_touched_no_more(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    pair_post_simple(a, WORK_READ, 1, 0, REMOTE, 60000);
    pair_advance(pair);
    b->sink_room = 10;
    (void)pair_step(pair);
    assert_int_equal(b->sent, 10);
    struct memory *memory = device_memory(b->device);
    assert_int_equal(memory_deregister(memory, b->key), STATUS_OK);
    b->sink_room = UINT32_MAX;
    pair_run(pair);
    (void)pair_expect(a->sends, 1, COMPLETION_REMOTE_ACCESS_ERROR);
    expect_state(b, QP_ERROR);
    struct region_attributes region = {.domain = b->domain,
                                       .address = PAIR_BUFFER_ADDRESS,
                                       .length = PAIR_BUFFER_LENGTH,
                                       .bytes = b->buffer};
    assert_int_equal(memory_register(memory, &region, &b->key), STATUS_OK);
    pair_destroy(pair);
}

static void no_receive_is_waited_for(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    pair_fill(a, 0, 5000, 3);
    for (uint64_t id = 0; id < 3; id++) {
        pair_post_simple(a, id == 1 ? WORK_WRITE_IMMEDIATE : WORK_SEND, id, 0, REMOTE, 5000);
    }
    for (uint64_t id = 0; id < 3; id++) {
        pair_run_for(pair, 20000000);
        pair_expect_none(a->sends);
        pair_post_receive(b, id, REMOTE, 5000);
        pair_run_for(pair, 2000000);
        (void)pair_expect(a->sends, id, COMPLETION_SUCCESS);
        (void)pair_expect(b->receives, id, COMPLETION_SUCCESS);
    }
    assert_memory_equal(a->buffer, b->buffer + REMOTE, 5000);
    assert_int_equal(device_counters(b->device)->values[COUNTER_NAK_SEQUENCE_SENT], 0);
    /* 0.64 ms per try: about 30 in 20 ms. */
    assert_in_range(device_counters(b->device)->values[COUNTER_RNR_NAK_SENT], 80, 110);
    pair_destroy(pair);
}

static void rnr_retries_are_counted(void **state)
{
    for (uint8_t limit = 0; limit < 7; limit++) {
        struct pair_options options = pair_defaults;
        options.rnr_retry_count = limit;
        struct pair *pair = pair_create(&options);
        struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
        pair_post_simple(a, WORK_SEND, 1, 0, 0, 5000);
        pair_post_simple(a, WORK_WRITE, 2, 0, 0, 5000);
        pair_run(pair);
        (void)pair_expect(a->sends, 1, COMPLETION_RNR_RETRY_EXCEEDED);
        (void)pair_expect(a->sends, 2, COMPLETION_FLUSHED);
        assert_int_equal(device_counters(b->device)->values[COUNTER_RNR_NAK_SENT], limit + 1u);
        pair_destroy(pair);
    }
}

static enum fate lose_all(struct pair *pair, int side, uint32_t number, const struct packet *packet)
{
    return FATE_LOSE;
}

/* Each wait may take up to four times the attribute. [IBA 9.7.6.1.3] */
static void silence_exceeds_the_retries(void **state)
{
    for (uint8_t timeout = 1; timeout < 20; timeout += 3) {
        for (uint8_t retries = 0; retries < 8; retries++) {
            struct pair_options options = pair_defaults;
            options.timeout = timeout;
            options.retry_count = retries;
            struct pair *pair = pair_create(&options);
            struct pair_side *a = &pair->sides[0];
            pair->script = lose_all;
            pair_post_simple(a, WORK_WRITE, 1, 0, 0, 5000);
            pair_post_simple(a, WORK_READ, 2, 0, 0, 5000);
            pair_run(pair);
            (void)pair_expect(a->sends, 1, COMPLETION_RETRY_EXCEEDED);
            (void)pair_expect(a->sends, 2, COMPLETION_FLUSHED);
            uint64_t patience_ns = (retries + 1u) * (UINT64_C(4096) << timeout);
            assert_in_range(pair->now.ns - 1000000, patience_ns,
                            4 * patience_ns + (UINT64_C(4096) << timeout));
            assert_true(device_counters(a->device)->values[COUNTER_TIMEOUTS] > retries);
            pair_destroy(pair);
        }
    }
}

/* What did not leave cannot have been lost. */
static void a_full_sink_is_not_silence(void **state)
{
    struct pair_options options = pair_defaults;
    options.timeout = 1;
    struct pair *pair = pair_create(&options);
    struct pair_side *a = &pair->sides[0];
    pair->script = lose_all;
    pair_post_simple(a, WORK_WRITE, 1, 0, 0, 100);
    (void)pair_step(pair);
    a->sink_room = 0;
    for (int i = 0; i < 50; i++) {
        pair->now.ns += 100000;
        (void)device_advance(a->device, pair->now, 64);
    }
    pair_expect_none(a->sends);
    a->sink_room = UINT32_MAX;
    pair->script = NULL;
    pair_run(pair);
    (void)pair_expect(a->sends, 1, COMPLETION_SUCCESS);
    pair_destroy(pair);
}

static void no_timeout_waits_for_ever(void **state)
{
    struct pair_options options = pair_defaults;
    options.timeout = 0;
    struct pair *pair = pair_create(&options);
    struct pair_side *a = &pair->sides[0];
    pair->script = lose_all;
    pair_post_simple(a, WORK_WRITE, 1, 0, 0, 100);
    pair_run_for(pair, UINT64_C(100000000000));
    pair_expect_none(a->sends);
    pair->script = NULL;
    pair_run_for(pair, UINT64_C(2000000000));
    (void)pair_expect(a->sends, 1, COMPLETION_SUCCESS);
    pair_destroy(pair);
}

static void the_application_flushes(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0];
    pair->script = lose_all;
    for (uint64_t id = 0; id < 20; id++) {
        pair_post_simple(a, id % 2 ? WORK_READ : WORK_WRITE, id, 0, 0, 5000);
        pair_post_receive(a, id, 0, 10);
    }
    (void)pair_step(pair);
    pair_modify(a, QP_ERROR);
    for (uint64_t id = 0; id < 20; id++) {
        (void)pair_expect(a->sends, id, COMPLETION_FLUSHED);
        (void)pair_expect(a->receives, id, COMPLETION_FLUSHED);
    }
    /* and what comes later */
    pair_post_simple(a, WORK_WRITE, 30, 0, 0, 10);
    pair_post_receive(a, 31, 0, 10);
    pair_expect_none(a->sends);
    pair_run(pair);
    (void)pair_expect(a->sends, 30, COMPLETION_FLUSHED);
    (void)pair_expect(a->receives, 31, COMPLETION_FLUSHED);
    pair_expect_none(a->sends);
    pair_expect_none(a->receives);
    pair_destroy(pair);
}

static void a_message_under_way_is_flushed_once(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    pair_post_receive(b, 1, REMOTE, 100000);
    pair_post_receive(b, 2, REMOTE, 100000);
    pair_post_simple(a, WORK_SEND, 1, 0, 0, 100000);
    (void)pair_step(pair);
    pair_modify(b, QP_ERROR);
    (void)pair_expect(b->receives, 1, COMPLETION_FLUSHED);
    (void)pair_expect(b->receives, 2, COMPLETION_FLUSHED);
    pair_run(pair);
    pair_expect_none(b->receives);
    (void)pair_expect(a->sends, 1, COMPLETION_RETRY_EXCEEDED);
    pair_destroy(pair);
}

static void reset_forgets_and_starts_again(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    for (int round = 0; round < 3; round++) {
        for (uint64_t id = 0; id < 20; id++) {
            pair_post_simple(a, id % 2 ? WORK_READ : WORK_WRITE, id, 0, 0, 5000);
            pair_post_receive(a, id, 0, 10);
        }
        (void)pair_step(pair);
        pair_modify(a, QP_RESET);
        pair_modify(b, QP_RESET);
        pair_expect_none(a->sends);
        pair_expect_none(a->receives);
        pair_run(pair); /* what was on the way is refused */
        struct pair_options options = pair_defaults;
        options.first_psn = 500;
        pair_connect_side(pair, 0, &options);
        pair_connect_side(pair, 1, &options);
        pair_fill(a, 0, 9000, (uint32_t)round);
        pair_post_simple(a, WORK_WRITE, 99, 0, REMOTE, 9000);
        pair_run(pair);
        (void)pair_expect(a->sends, 99, COMPLETION_SUCCESS);
        assert_memory_equal(a->buffer, b->buffer + REMOTE, 9000);
    }
    pair_destroy(pair);
}

/* Answers filled its last turn, so requests were to begin the next. Now they are of another life:
 * its first answer leaves before its first request. */
static void reset_forgets_whose_turn_it_was(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    pair_post_simple(a, WORK_READ, 1, 0, REMOTE, 100 * 1024);
    for (int i = 0; i < 100 && b->sent == 0; i++) {
        b->sink_room = 4;
        (void)pair_step(pair);
    }
    assert_true(b->qp->requests_first);
    b->sink_room = UINT32_MAX;
    pair_modify(a, QP_RESET);
    pair_modify(b, QP_RESET);
    pair_run(pair);
    pair_connect_side(pair, 0, &pair_defaults);
    pair_connect_side(pair, 1, &pair_defaults);
    assert_false(b->qp->requests_first);
    pair_destroy(pair);
}

static void bind_window(struct pair_side *side, struct memory_key window)
{
    struct window_bind bind = {
        window, window, side->key, PAIR_BUFFER_ADDRESS, 8, ACCESS_REMOTE_READ};
    struct send_request request = {
        .id = 1, .kind = WORK_BIND_WINDOW, .signaled = true, .bind = &bind};
    pair_post(side, &request);
    pair_run(side->pair);
    (void)pair_expect(side->sends, 1, COMPLETION_SUCCESS);
}

static void read_through(struct pair_side *side, struct memory_key window,
                         enum completion_status status)
{
    struct sge sge = pair_sge(side, 0, 8);
    struct send_request request = pair_request(side, WORK_READ, 2, &sge, 0);
    request.remote_key = window;
    pair_post(side, &request);
    pair_run(side->pair);
    (void)pair_expect(side->sends, 2, status);
}

/* What was opened to one peer is not open to the next. */
static void reset_shuts_what_was_bound(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    struct memory *memory = device_memory(b->device);
    struct memory_key window;
    assert_int_equal(window_allocate(memory, b->domain, WINDOW_TYPE_2, &window), STATUS_OK);
    bind_window(b, window);
    read_through(a, window, COMPLETION_SUCCESS);
    for (int i = 0; i < 2; i++) {
        pair_modify(&pair->sides[i], QP_RESET);
    }
    struct pair_options options = pair_defaults;
    options.first_psn = 500;
    pair_connect_side(pair, 0, &options);
    pair_connect_side(pair, 1, &options);
    bind_window(b, window); /* which it could not if it were open */
    read_through(a, window, COMPLETION_SUCCESS);
    for (int i = 0; i < 2; i++) {
        pair_modify(&pair->sides[i], QP_RESET);
        pair_connect_side(pair, (unsigned)i, &options);
    }
    read_through(a, window, COMPLETION_REMOTE_ACCESS_ERROR);
    assert_int_equal(window_free(memory, window), STATUS_OK);
    pair_destroy(pair);
}

static void an_overrun_queue_fails_the_queue_pair(void **state)
{
    struct pair_options options = pair_defaults;
    options.completion_capacity = 4;
    struct pair *pair = pair_create(&options);
    struct pair_side *a = &pair->sides[0];
    for (uint64_t id = 0; id < 10; id++) {
        pair_post_simple(a, WORK_WRITE, id, 0, 0, 10);
    }
    pair_run(pair);
    expect_state(a, QP_ERROR);
    assert_int_equal(a->raised[EVENT_QP_FATAL], 1);
    pair_destroy(pair);
}

static void a_drained_queue_is_told(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    pair_post_simple(a, WORK_WRITE, 1, 0, REMOTE, 100000);
    (void)pair_step(pair);
    pair_post_simple(a, WORK_WRITE, 2, 0, REMOTE, 100);
    pair_modify(a, QP_SQD);
    assert_int_equal(a->raised[EVENT_SQ_DRAINED], 0);
    pair_run(pair);
    assert_int_equal(a->raised[EVENT_SQ_DRAINED], 1);
    (void)pair_expect(a->sends, 1, COMPLETION_SUCCESS);
    pair_expect_none(a->sends);
    pair_modify(a, QP_RTS);
    pair_run(pair);
    (void)pair_expect(a->sends, 2, COMPLETION_SUCCESS);
    expect_state(b, QP_RTS);
    pair_destroy(pair);
}

/* Once it is, however often the application asks for other attributes meanwhile. */
static void a_queue_that_drains_is_modified(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    struct pair_side *a = &pair->sides[0];
    struct qp_attributes attributes = {.timeout = 15};
    pair_post_simple(a, WORK_WRITE, 1, 0, REMOTE, 100000);
    (void)pair_step(pair);
    pair_modify(a, QP_SQD);
    assert_int_equal(
        device_modify_qp(a->device, pair->now, a->qp, &attributes, QP_SET_TIMEOUT, NULL),
        STATUS_OK);
    pair_modify(a, QP_SQD);
    assert_int_equal(a->raised[EVENT_SQ_DRAINED], 0);
    pair_run(pair);
    assert_int_equal(a->raised[EVENT_SQ_DRAINED], 1);
    pair_modify(a, QP_SQD);
    pair_run(pair);
    assert_int_equal(a->raised[EVENT_SQ_DRAINED], 1);
    pair_destroy(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_remote_key_is_an_access_error),
        cmocka_unit_test(a_failure_is_told_once),
        cmocka_unit_test(beyond_a_region_is_an_access_error),
        cmocka_unit_test(a_right_that_the_queue_pair_lacks_is_an_invalid_request),
        cmocka_unit_test(a_misaligned_atomic_is_an_invalid_request),
        cmocka_unit_test(a_send_too_long_fails_on_both_sides),
        cmocka_unit_test(a_send_has_an_end),
        cmocka_unit_test(a_receive_without_rights_is_an_operation_error),
        cmocka_unit_test(a_wrong_local_key_is_a_protection_error),
        cmocka_unit_test(a_key_that_cannot_be_invalidated),
        cmocka_unit_test(a_region_that_vanishes_is_touched_no_more),
        cmocka_unit_test(no_receive_is_waited_for),
        cmocka_unit_test(rnr_retries_are_counted),
        cmocka_unit_test(silence_exceeds_the_retries),
        cmocka_unit_test(a_full_sink_is_not_silence),
        cmocka_unit_test(no_timeout_waits_for_ever),
        cmocka_unit_test(the_application_flushes),
        cmocka_unit_test(a_message_under_way_is_flushed_once),
        cmocka_unit_test(reset_forgets_and_starts_again),
        cmocka_unit_test(reset_forgets_whose_turn_it_was),
        cmocka_unit_test(reset_shuts_what_was_bound),
        cmocka_unit_test(an_overrun_queue_fails_the_queue_pair),
        cmocka_unit_test(a_drained_queue_is_told),
        cmocka_unit_test(a_queue_that_drains_is_modified),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
