/* What is sent as it is posted, without a turn (device_post_short): the same packets as else, and
 * only where nothing else is to be done first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "sim/scenario.h"

#define ECT0      2u
#define PSN_PLACE 9u /* in a BTH */

#define INLINE_MOST 64u

struct watch {
    struct network_observer observer; /* first */
    uint32_t count;                   /* of what A sent */
    uint8_t bytes[512];
    uint32_t length;
    bool acknowledges;
    struct psn psn, acknowledged;
};

static struct scenario s;
static struct watch watch;

static void sent(struct network_observer *observer, const struct frame *frame, enum fate fate)
{
    if (frame->from != 0) {
        return;
    }
    watch.count++;
    watch.length = frame->length;
    watch.acknowledges = frame->acknowledges;
    watch.acknowledged = frame->acknowledged;
    memcpy(watch.bytes, frame->bytes, frame->length);
    const uint8_t *psn = frame->bytes + PSN_PLACE;
    watch.psn = psn_make((uint32_t)psn[0] << 16 | (uint32_t)psn[1] << 8 | psn[2]);
    memset(watch.bytes + PSN_PLACE, 0, 3);
}

static void delivered(struct network_observer *observer, const struct frame *frame)
{
}

static void connect_by(bool near, uint8_t timeout)
{
    struct link_config link = {.delay_ns = 1000, .carries = near};
    scenario_start(&s);
    s.network.short_full = 0;
    network_set_links(&s.network, &link);
    for (int i = 0; i < 2; i++) {
        struct party *party = i == 0 ? &s.a : &s.b;
        party->attributes.timeout = timeout;
        party->attributes.min_rnr_timer = 20; /* 10.24 ms */
        party->attributes.path.traffic_class = ECT0;
    }
    scenario_connect(&s);
    struct work work = {.kind = WORK_WRITE, .id = 1, .length = 8};
    assert_int_equal(scenario_post(&s.a, work), STATUS_OK); /* by which they see that it is near */
    assert_int_equal(scenario_post(&s.b, work), STATUS_OK);
    scenario_run(&s);
    forget_trace(&s);
    watch = (struct watch){.observer = {sent, delivered}};
    s.network.observer = &watch.observer;
}

static int start(void **state)
{
    connect_by(true, 14);
    return 0;
}

static int start_far(void **state)
{
    connect_by(false, 14);
    return 0;
}

static int start_impatient(void **state)
{
    connect_by(true, 8);
    return 0;
}

static int stop(void **state)
{
    scenario_stop(&s);
    return 0;
}

static const struct send_request ordinary = {.kind = WORK_SEND, .id = 2, .signaled = true};

static void post(struct send_request request, uint32_t length)
{
    uint64_t address = request.inline_data ? (uintptr_t)s.a.bytes : 0;
    struct sge sges[] = {{address, length, s.a.key}, {address, length, s.a.key}};
    request.sges = sges;
    request.sge_count = request.sge_count == 0 ? length > 0 : request.sge_count;
    request.remote_key = s.b.key;
    assert_int_equal(qp_post_send(s.a.qp, &request), STATUS_OK);
}

static bool leaves(void)
{
    return device_post_short(s.a.host->device, s.simulator.now, s.a.qp);
}

/* And it leaves by the general way. */
static void expect_refusal(void)
{
    uint32_t before = watch.count;
    assert_false(leaves());
    assert_int_equal(watch.count, before);
    (void)device_ring(s.a.host->device, s.a.qp);
    host_wake(s.a.host, 0);
    scenario_run(&s);
    assert_true(watch.count > before);
}

/* A holds what it owes for that for some microseconds. */
static void send_from_b(void)
{
    uint64_t us = s.simulator.now.ns / 1000 % 60;
    scenario_run_for(&s, 60 + 40 - us);
    struct work work = {.kind = WORK_SEND, .id = 3, .length = 20};
    scenario_receive(&s.a, 3, 64);
    assert_int_equal(scenario_post(&s.b, work), STATUS_OK);
    scenario_run_for(&s, 2);
}

static struct watch send_by(bool short_way, const struct send_request *request, uint32_t length,
                            bool owes)
{
    if (owes) {
        send_from_b();
    }
    uint64_t shorts = s.network.shorts;
    scenario_receive(&s.b, 2, 512);
    post(*request, length);
    watch.count = 0;
    s.network.short_full = short_way ? 0 : 100;
    assert_int_equal(leaves(), short_way);
    if (!short_way) {
        assert_false(device_advance_one(s.a.host->device, s.simulator.now, true, s.a.qp));
    }
    assert_int_equal(watch.count, 1);
    assert_int_equal(s.network.shorts - shorts, short_way);
    assert_int_equal(watch.acknowledges, owes);
    struct watch result = watch;
    scenario_run(&s);
    assert_int_equal(watch.count, 1); /* nothing was left */
    return result;
}

static void compare(const struct send_request *request, uint32_t length, bool owes)
{
    struct watch one = send_by(true, request, length, owes);
    struct watch other = send_by(false, request, length, owes);
    assert_int_equal(one.length, other.length);
    assert_memory_equal(one.bytes, other.bytes, one.length);
    assert_int_equal(psn_distance(one.psn, other.psn), 1);
    assert_int_equal(psn_distance(one.acknowledged, other.acknowledged), owes);
}

static void the_same_packet_leaves(void **state)
{
    static const uint32_t lengths[] = {0, 1, 2, 3, 4, 5, 8, 17, 31, 32, 33, 63, 64, 65, 255, 256};
    for (uint32_t i = 0; i < sizeof lengths / sizeof lengths[0] * 16; i++) {
        uint32_t length = lengths[i / 16];
        struct send_request request = ordinary;
        request.kind = (i & 1) != 0 ? WORK_SEND_IMMEDIATE : WORK_SEND;
        request.immediate = 0x12345678;
        request.solicited = (i & 2) != 0;
        request.inline_data = (i & 4) != 0 && length <= INLINE_MOST;
        compare(&request, length, (i & 8) != 0);
    }
}

/* In time there is no difference either. */
static void it_has_the_trace_of_any(void **state)
{
    scenario_receive(&s.b, 1, 64);
    scenario_receive(&s.b, 2, 64);
    post(ordinary, 20);
    assert_true(leaves());
    post(ordinary, 20);
    assert_true(leaves()); /* while the other is under way */
    scenario_run(&s);
    expect_trace(&s, "A>B SEND_ONLY psn=8\n"
                     "A>B SEND_ONLY psn=9\n"
                     "B>A ACK psn=9\n"
                     "B receive 1 success length=20\n"
                     "B receive 2 success length=20\n"
                     "A send 2 success\n"
                     "A send 2 success\n");
}

/* What waits for the processor: as long as the oldest is under way it is timed already. */
static void who_is_impatient_times_it(void **state)
{
    scenario_receive(&s.b, 1, 64);
    scenario_receive(&s.b, 2, 64);
    post(ordinary, 20);
    expect_refusal();
    post(ordinary, 20);
    assert_false(device_advance_one(s.a.host->device, s.simulator.now, false, s.a.qp));
    post(ordinary, 20);
    assert_true(leaves());
    scenario_receive(&s.b, 3, 64);
    scenario_run(&s);
}

static void what_is_lost_is_sent_again(void **state)
{
    scenario_lose(&s, "A>B SEND_ONLY psn=8");
    scenario_receive(&s.b, 1, 64);
    post(ordinary, 20);
    assert_true(leaves());
    host_wake(s.a.host, 0); /* it would look by itself */
    scenario_run(&s);
    expect_trace(&s, "A>B SEND_ONLY psn=8 lost\n"
                     "A>B SEND_ONLY psn=8\n"
                     "B>A ACK psn=8\n"
                     "B receive 1 success length=20\n"
                     "A send 2 success\n");
}

static void to_others_it_does_not_leave_so(void **state)
{
    scenario_receive(&s.b, 1, 64);
    post(ordinary, 20);
    expect_refusal();
}

static void other_requests_do_not(void **state)
{
    struct send_request request = ordinary;
    scenario_receive(&s.b, 1, 1024);
    scenario_receive(&s.b, 2, 1024);
    scenario_receive(&s.b, 3, 1024);
    post(request, 257);
    expect_refusal();
    request.sge_count = 2;
    post(request, 20);
    expect_refusal();
    request = ordinary;
    request.fence = true;
    post(request, 20);
    expect_refusal();
    request = ordinary;
    request.kind = WORK_WRITE;
    post(request, 20);
    expect_refusal();
}

static void nor_does_one_of_two(void **state)
{
    scenario_receive(&s.b, 1, 64);
    scenario_receive(&s.b, 2, 64);
    post(ordinary, 20);
    post(ordinary, 20);
    expect_refusal();
    assert_int_equal(watch.count, 2);
}

/* What its memory does not grant is the general way's to tell. */
static void nor_does_what_no_key_grants(void **state)
{
    struct sge sge = {0, 20, {s.a.key.value + 77}};
    struct send_request request = ordinary;
    request.sges = &sge;
    request.sge_count = 1;
    assert_int_equal(qp_post_send(s.a.qp, &request), STATUS_OK);
    assert_false(leaves());
    (void)device_ring(s.a.host->device, s.a.qp);
    host_wake(s.a.host, 0);
    scenario_run(&s);
    expect_trace(&s, "A send 2 local protection error\n");
    assert_int_equal(watch.count, 0);
}

static void whoever_is_in_line_has_his_turn_first(void **state)
{
    scenario_add_pair(&s, 0);
    scenario_receive(&s.b, 1, 64);
    device_look(s.a.host->device, s.a.others[0]);
    post(ordinary, 20);
    expect_refusal();
    scenario_receive(&s.b, 2, 64);
    device_look(s.a.host->device, s.a.qp); /* itself only */
    post(ordinary, 20);
    assert_true(leaves());
    scenario_run(&s);
}

static void where_times_are_told_it_has_a_turn(void **state)
{
    scenario_receive(&s.b, 1, 64);
    device_tell_exact_times(s.a.host->device);
    post(ordinary, 20);
    expect_refusal();
}

static void what_is_owed_besides_goes_first(void **state)
{
    scenario_rule(&s, "B>A SEND_ONLY", FATE_MARKED, 1);
    send_from_b();
    scenario_receive(&s.b, 1, 64);
    post(ordinary, 20);
    forget_trace(&s);
    expect_refusal();
    struct work read = {.kind = WORK_READ, .id = 9, .length = 20};
    scenario_run_for(&s, 60 + 40 - s.simulator.now.ns / 1000 % 60);
    assert_int_equal(scenario_post(&s.b, read), STATUS_OK);
    scenario_run_for(&s, 2);
    scenario_receive(&s.b, 1, 64);
    post(ordinary, 20);
    expect_refusal();
}

static void set_state(enum qp_state state)
{
    struct qp_attributes attributes = {.state = state};
    assert_int_equal(device_modify_qp(s.a.host->device, s.simulator.now, s.a.qp, &attributes,
                                      QP_SET_STATE, NULL),
                     STATUS_OK);
}

static void who_drains_sends_nothing(void **state)
{
    scenario_receive(&s.b, 1, 64);
    set_state(QP_SQD);
    post(ordinary, 20);
    assert_false(leaves());
    scenario_run(&s);
    assert_int_equal(watch.count, 0);
    set_state(QP_RTS);
    assert_true(leaves());
    scenario_run(&s);
}

/* What was flushed has never been sent, so the requester is not where the queue is. */
static void after_an_error_all_is_flushed(void **state)
{
    set_state(QP_ERROR);
    for (uint32_t i = 0; i < 3; i++) {
        post(ordinary, 20);
        assert_false(leaves());
        (void)device_ring(s.a.host->device, s.a.qp);
        host_wake(s.a.host, 0);
        scenario_run(&s);
    }
    assert_int_equal(watch.count, 0);
    expect_trace(&s, "A send 2 flushed\n"
                     "A send 2 flushed\n"
                     "A send 2 flushed\n");
}

static void who_waits_for_receives_waits(void **state)
{
    post(ordinary, 20);
    assert_true(leaves());
    scenario_run_for(&s, 200); /* there is no receive, and A has heard of it */
    post(ordinary, 20);
    uint32_t before = watch.count;
    assert_false(leaves());
    assert_int_equal(watch.count, before);
    scenario_receive(&s.b, 1, 64);
    scenario_receive(&s.b, 2, 64);
    scenario_run(&s);
    (void)device_ring(s.a.host->device, s.a.qp);
    host_wake(s.a.host, 0);
    scenario_run(&s);
    assert_int_equal(watch.psn.value, 9);
}

/* Neither is anything done where the sink has no such way, or it is full. */
static void where_there_is_no_way_it_has_a_turn(void **state)
{
    scenario_receive(&s.b, 1, 64);
    scenario_receive(&s.b, 2, 64);
    s.network.short_full = 100;
    post(ordinary, 20);
    expect_refusal();
    network_sink(&s.network, 0)->emit_short = NULL;
    post(ordinary, 20);
    expect_refusal();
}

int main(void)
{
#define AT(start, test) cmocka_unit_test_setup_teardown(test, start, stop)
    const struct CMUnitTest tests[] = {
        AT(start, the_same_packet_leaves),
        AT(start, it_has_the_trace_of_any),
        AT(start_impatient, who_is_impatient_times_it),
        AT(start, what_is_lost_is_sent_again),
        AT(start_far, to_others_it_does_not_leave_so),
        AT(start, other_requests_do_not),
        AT(start, nor_does_one_of_two),
        AT(start, nor_does_what_no_key_grants),
        AT(start, whoever_is_in_line_has_his_turn_first),
        AT(start, where_times_are_told_it_has_a_turn),
        AT(start, what_is_owed_besides_goes_first),
        AT(start, who_drains_sends_nothing),
        AT(start, after_an_error_all_is_flushed),
        AT(start, who_waits_for_receives_waits),
        AT(start, where_there_is_no_way_it_has_a_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
