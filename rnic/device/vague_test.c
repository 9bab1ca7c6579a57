/* Times that were long ago already when they were given: a process that was stopped, say, and that
 * takes what has come without a look at the clock. */
#include "rnic/device/pair_test.h"
#include "rnic/transport/qp_private.h"

#define STOPPED_NS   UINT64_C(500000000)
#define RNR_TIMER_12 UINT64_C(640000)

static const struct pair_options impatient = {
    .service = SERVICE_RC,
    .mtu = PATH_MTU_1024,
    .access = ACCESS_REMOTE_WRITE,
    .max_reads = 4,
    .timeout = 14,
    .retry_count = 0,
    .rnr_retry_count = 1,
    .min_rnr_timer = 12,
    .send_capacity = 64,
    .receive_capacity = 64,
    .completion_capacity = 256,
};

static uint64_t timeouts(const struct pair_side *side)
{
    return device_counters(side->device)->values[COUNTER_TIMEOUTS];
}

/* Gives side 0 what is on its way to it, at a time that was long ago. */
static void receive_vaguely(struct pair *pair)
{
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    pair->now.ns += PAIR_DELAY_NS;
    assert_true(b->flight_count > 0);
    assert_true(device_begin_vague(a->device));
    pair_deliver(b);
    device_end_vague(a->device);
    pair->now.ns += STOPPED_NS;
}

static void deliver(struct pair *pair)
{
    pair->now.ns += PAIR_DELAY_NS;
    pair_deliver(&pair->sides[0]);
    (void)device_advance(pair->sides[1].device, pair->now, 64);
}

static void a_wait_that_was_posted_long_ago_begins_anew(void **state)
{
    (void)state;
    struct pair *pair = pair_create(&impatient);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    struct sge sge = pair_sge(a, 0, 8);
    struct send_request request = pair_request(a, WORK_WRITE, 1, &sge, 0);
    assert_int_equal(qp_post_send(a->qp, &request), STATUS_OK);
    assert_false(device_advance_one(a->device, pair->now, true, a->qp));
    assert_int_equal(a->flight_count, 1);
    pair->now.ns += STOPPED_NS;
    (void)device_advance(a->device, pair->now, 64);
    assert_int_equal(timeouts(a), 0);
    assert_true(instant_before(pair->now, device_next_deadline(a->device)));
    assert_int_equal(a->sent, 1);
    pair_run(pair);
    (void)pair_expect(a->sends, 1, COMPLETION_SUCCESS);
    pair_expect_none(b->sends);
    pair_destroy(pair);
}

static enum fate lose_the_second(struct pair *pair, int side, uint32_t number,
                                 const struct packet *packet)
{
    return side == 0 && number == 1 ? FATE_LOSE : FATE_DELIVER;
}

/* Whatever the attribute: an acknowledgement is progress, though nobody knows of when. */
static void an_acknowledgement_of_long_ago_begins_the_wait_anew(void **state)
{
    static const uint8_t codes[] = {14, 10, 5};
    (void)state;
    for (size_t i = 0; i < sizeof codes; i++) {
        struct pair_options options = impatient;
        options.timeout = codes[i];
        struct pair *pair = pair_create(&options);
        struct pair_side *a = &pair->sides[0];
        pair->script = lose_the_second;
        pair_post_simple(a, WORK_WRITE, 1, 0, 0, 8);
        pair_post_simple(a, WORK_WRITE, 2, 0, 0, 8);
        (void)device_advance(a->device, pair->now, 64);
        assert_int_equal(a->flight_count, 1);
        deliver(pair);
        receive_vaguely(pair);
        (void)pair_expect(a->sends, 1, COMPLETION_SUCCESS);
        assert_int_equal(a->qp->retransmit.shortest_ns, 0); /* no round trip was measured */
        (void)device_advance(a->device, pair->now, 64);
        assert_int_equal(timeouts(a), 0);
        pair_expect_none(a->sends);
        struct instant deadline = device_next_deadline(a->device);
        assert_true(instant_before(pair->now, deadline));
        uint64_t wait_ns = instant_elapsed_ns(pair->now, deadline);
        assert_in_range(wait_ns, 1, UINT64_C(4096) << codes[i]);

        pair->now = deadline; /* and it ends, as any */
        (void)device_advance(a->device, pair->now, 64);
        assert_int_equal(timeouts(a), 1);
        pair_run(pair);
        (void)pair_expect(a->sends, 2,
                          codes[i] == 14 ? COMPLETION_SUCCESS : COMPLETION_RETRY_EXCEEDED);
        pair_destroy(pair);
    }
}

/* A's SEND waits for all of the timer, and then finds a receive. */
static void check_waits_and_goes_on(struct pair *pair)
{
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    (void)device_advance(a->device, pair->now, 64);
    assert_int_equal(a->sent, 1);
    assert_int_equal(device_next_deadline(a->device).ns, pair->now.ns + RNR_TIMER_12);
    pair_post_receive(b, 2, 0, 8);
    pair_run(pair);
    assert_int_equal(a->sent, 2);
    (void)pair_expect(a->sends, 1, COMPLETION_SUCCESS);
    (void)pair_expect(b->receives, 2, COMPLETION_SUCCESS);
}

/* Of two retries one would be lost if the wait ended before it had begun. */
static void a_wait_for_receives_is_not_cut_short(void **state)
{
    (void)state;
    struct pair *pair = pair_create(&impatient);
    struct pair_side *a = &pair->sides[0];
    pair_post_simple(a, WORK_SEND, 1, 0, 0, 8);
    (void)device_advance(a->device, pair->now, 64);
    deliver(pair);
    receive_vaguely(pair);
    assert_true(instant_before(device_next_deadline(a->device), pair->now)); /* it is looked at */
    check_waits_and_goes_on(pair);
    pair_destroy(pair);
}

/* A second copy finds no receive either, at a peer that has become more confident. */
static void of_two_waits_for_receives_the_longer_is_waited(void **state)
{
    (void)state;
    struct pair *pair = pair_create(&impatient);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    pair_post_simple(a, WORK_SEND, 1, 0, 0, 8);
    (void)device_advance(a->device, pair->now, 64);
    deliver(pair);
    b->qp->attributes.min_rnr_timer = 1;
    acknowledge_receiver_not_ready(&b->qp->responder.acknowledge);
    qp_schedule(b->qp);
    (void)device_advance(b->device, pair->now, 64);
    assert_int_equal(b->flight_count, 2);
    receive_vaguely(pair);
    check_waits_and_goes_on(pair);
    pair_destroy(pair);
}

static void exact_times_are_exact_in_every_case(void **state)
{
    (void)state;
    struct pair *pair = pair_create(&impatient);
    struct pair_side *a = &pair->sides[0];
    a->qp->peer_is_near = true;
    assert_int_equal(device_wants_time(a->qp), DEVICE_TIME_VAGUE);
    pair_post_simple(a, WORK_WRITE, 1, 0, 0, 8);
    (void)device_advance(a->device, pair->now, 64);
    assert_int_equal(device_wants_time(a->qp), DEVICE_TIME_ANY);
    device_tell_exact_times(a->device);
    assert_int_equal(device_wants_time(a->qp), DEVICE_TIME_EXACT);
    assert_false(device_begin_vague(a->device));
    pair_run(pair);
    (void)pair_expect(a->sends, 1, COMPLETION_SUCCESS);
    a->qp->peer_is_near = true;
    assert_int_equal(device_wants_time(a->qp), DEVICE_TIME_EXACT);
    pair_destroy(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_that_was_posted_long_ago_begins_anew),
        cmocka_unit_test(an_acknowledgement_of_long_ago_begins_the_wait_anew),
        cmocka_unit_test(a_wait_for_receives_is_not_cut_short),
        cmocka_unit_test(of_two_waits_for_receives_the_longer_is_waited),
        cmocka_unit_test(exact_times_are_exact_in_every_case),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
