/* Selective repeat: how two ends find that they both speak it, what is then repeated and what is
 * not, and what becomes of it with a peer that does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/transport/qp_private.h"
#include "rnic/wire/report.h"
#include "sim/scenarios/selective.h"

static int start_alone(void **state)
{
    (void)state;
    scenario_start_half_selective(&s);
    return 0;
}

static void a_loss_makes_them_agree(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_lose(&s, "A>B WRITE_FIRST psn=7");
    post(WORK_WRITE, 1, 512);
    scenario_run(&s);
    expect_trace(&s, "0us A>B WRITE_FIRST psn=7 length=512 lost\n"
                     "0us A>B WRITE_LAST psn=8\n"
                     "1us B>A REPORT psn=6 expected=7 asks\n"
                     "1us B>A NAK sequence psn=7\n"
                     "2us A>B REPORT psn=99 expected=100\n"
                     "2us A>B WRITE_FIRST psn=7 length=512\n"
                     "2us A>B WRITE_LAST psn=8\n"
                     "3us B>A ACK psn=8\n"
                     "4us A send 1 success\n");
    expect_equal_bytes(&s.a, &s.b, 0, 512);
}

/* As perftest's servers are: ready to receive, and never to send. */
static void an_end_that_only_receives_agrees_too(void **state)
{
    (void)state;
    scenario_connect_one_way(&s);
    scenario_lose(&s, "A>B WRITE_FIRST psn=7");
    post(WORK_WRITE, 1, 512);
    scenario_run(&s);
    forget_trace(&s);
    scenario_lose(&s, "A>B WRITE_FIRST psn=9");
    post(WORK_WRITE, 2, 768);
    scenario_run(&s);
    expect_trace(&s, "A>B WRITE_FIRST psn=9 length=768 lost\n"
                     "A>B WRITE_MIDDLE psn=10\n"
                     "A>B WRITE_LAST psn=11\n"
                     "B>A REPORT psn=8 expected=9 +1 +2\n"
                     "A>B WRITE_FIRST psn=9 length=768\n"
                     "B>A ACK psn=11\n"
                     "A send 2 success\n");
}

static void only_what_is_lost_is_repeated(void **state)
{
    (void)state;
    scenario_agree(&s);
    scenario_lose(&s, "A>B WRITE_MIDDLE psn=10");
    post(WORK_WRITE, 2, 1024);
    scenario_run(&s);
    expect_trace(&s, "A>B WRITE_FIRST psn=9 length=1024\n"
                     "A>B WRITE_MIDDLE psn=10 lost\n"
                     "A>B WRITE_MIDDLE psn=11\n"
                     "A>B WRITE_LAST psn=12\n"
                     "B>A REPORT psn=9 expected=10 +1 +2\n"
                     "A>B WRITE_MIDDLE psn=10\n"
                     "B>A ACK psn=12\n"
                     "A send 2 success\n");
    expect_equal_bytes(&s.a, &s.b, 0, 1024);
}

/* Packets come one by one: that one is missing is told with the first behind it, and then only what
 * is asked for. */
static void what_waits_behind_a_loss_is_not_told_one_by_one(void **state)
{
    (void)state;
    scenario_agree(&s);
    struct link_config link = {.delay_ns = 1000, .bits_per_second = UINT64_C(1000000000)};
    network_set_links(&s.network, &link);
    scenario_lose(&s, "A>B WRITE_MIDDLE psn=10");
    post(WORK_WRITE, 2, 2560);
    scenario_run(&s);
    expect_trace(&s, "A>B WRITE_FIRST psn=9 length=2560\n"
                     "A>B WRITE_MIDDLE psn=10 lost\n"
                     "A>B WRITE_MIDDLE psn=11\n"
                     "A>B WRITE_MIDDLE psn=12\n"
                     "A>B WRITE_MIDDLE psn=13\n"
                     "A>B WRITE_MIDDLE psn=14\n"
                     "A>B WRITE_MIDDLE psn=15\n"
                     "A>B WRITE_MIDDLE psn=16\n"
                     "A>B WRITE_MIDDLE psn=17\n"
                     "A>B WRITE_LAST psn=18\n"
                     "B>A REPORT psn=9 expected=10 +1\n"
                     "A>B WRITE_MIDDLE psn=10\n"
                     "B>A REPORT psn=9 expected=10 +1 +2 +3 +4 +5 +6 +7 +8\n"
                     "B>A ACK psn=18\n"
                     "A send 2 success\n");
    expect_equal_bytes(&s.a, &s.b, 0, 2560);
}

/* Nothing arrives behind it that could tell: it is sent again some round trips later. */
static void a_lost_last_packet_is_probed_for(void **state)
{
    (void)state;
    s.a.attributes.timeout = 14; /* a short one is taken as it is */
    scenario_agree(&s);
    post(WORK_WRITE, 2, 512); /* what it takes is measured */
    scenario_run(&s);
    forget_trace(&s);
    scenario_lose(&s, "A>B WRITE_LAST psn=12");
    post(WORK_WRITE, 3, 512);
    scenario_run(&s);
    expect_trace(&s, "A>B WRITE_FIRST psn=11 length=512\n"
                     "A>B WRITE_LAST psn=12 lost\n"
                     "A>B WRITE_LAST psn=12\n"
                     "B>A ACK psn=12\n"
                     "A send 3 success\n");
    assert_int_equal(count(&s.a, COUNTER_PROBES), 1);
    assert_int_equal(count(&s.a, COUNTER_TIMEOUTS), 0);
    expect_equal_bytes(&s.a, &s.b, 0, 512);
}

static void set_speed(uint64_t bits_per_second, uint32_t queue_limit)
{
    struct link_config link = {
        .delay_ns = 1000, .bits_per_second = bits_per_second, .queue_limit = queue_limit};
    network_set_links(&s.network, &link);
}

#define SLOW UINT64_C(100000000) /* a packet takes 25 us */

/* How long the way is is measured. */
static void agree_and_measure(uint64_t bits_per_second)
{
    s.a.attributes.timeout = 14;
    scenario_agree(&s);
    set_speed(bits_per_second, 1);
    post(WORK_WRITE, 2, 256);
    scenario_run(&s);
    forget_trace(&s);
}

/* Only the last packet asks, five milliseconds behind the first. */
static void what_has_not_asked_yet_is_not_probed_for(void **state)
{
    (void)state;
    agree_and_measure(0);
    set_speed(SLOW / 10, 1);
    post(WORK_WRITE, 3, 5120);
    scenario_run(&s);
    forget_trace(&s);
    assert_int_equal(count(&s.a, COUNTER_PROBES), 0);
    assert_int_equal(count(&s.a, COUNTER_TIMEOUTS), 0);
    assert_int_equal(count(&s.a, COUNTER_RETRANSMITTED_PACKETS), 2);
    expect_equal_bytes(&s.a, &s.b, 0, 5120);
}

/* Four packets, as the rate lets them go, and nothing else. */
static void write_slowly(void)
{
    post(WORK_WRITE, 3, 1024);
    scenario_run(&s);
    expect_trace(&s, "100000us A>B WRITE_FIRST psn=10 length=1024\n"
                     "100026.400us A>B WRITE_MIDDLE psn=11\n"
                     "100051.520us A>B WRITE_MIDDLE psn=12\n"
                     "100076.640us A>B WRITE_LAST psn=13\n"
                     "100102.760us B>A ACK psn=13\n"
                     "100108.720us A send 3 success\n");
}

/* There has been no news for the 100 us of a probe when the last packet is on its way. */
static void what_has_only_just_left_is_not_probed_for(void **state)
{
    (void)state;
    agree_and_measure(SLOW);
    write_slowly();
}

/* The last has been under way for longer than the way has ever taken, and not as long as it is
 * waited for where all leave at once. */
static void what_has_left_late_is_waited_for_as_long(void **state)
{
    (void)state;
    agree_and_measure(0);
    set_speed(SLOW, 1);
    write_slowly();
}

/* They wait for what comes before them, and complete in their order. */
static void messages_complete_in_order(void **state)
{
    (void)state;
    scenario_agree(&s);
    scenario_receive(&s.b, 1, 64);
    scenario_receive(&s.b, 2, 64);
    scenario_lose(&s, "A>B SEND_ONLY psn=9");
    post(WORK_SEND, 2, 20);
    post(WORK_SEND, 3, 30);
    scenario_run(&s);
    expect_trace(&s, "A>B SEND_ONLY psn=9 lost\n"
                     "A>B SEND_ONLY psn=10\n"
                     "B>A REPORT psn=8 expected=9 +1\n"
                     "A>B SEND_ONLY psn=9\n"
                     "B>A ACK psn=10\n"
                     "B receive 1 success length=20\n"
                     "B receive 2 success length=30\n"
                     "A send 2 success\n"
                     "A send 3 success\n");
}

/* Nothing is repeated, and no window shrinks. */
static void what_is_overtaken_is_not_lost(void **state)
{
    (void)state;
    scenario_agree(&s);
    uint64_t before = count(&s.a, COUNTER_RETRANSMITTED_PACKETS);
    scenario_rule(&s, "A>B WRITE_MIDDLE psn=10", FATE_DELAYED, 1);
    post(WORK_WRITE, 2, 1024);
    scenario_run(&s);
    assert_int_equal(count(&s.a, COUNTER_RETRANSMITTED_PACKETS), before);
    assert_true(count(&s.b, COUNTER_EARLY_PACKETS) == 2);
    expect_equal_bytes(&s.a, &s.b, 0, 1024);
    forget_trace(&s);
}

/* The repetition is lost like the first, and what left after it has come. */
static void a_lost_repetition_is_repeated(void **state)
{
    (void)state;
    scenario_agree(&s);
    scenario_rule(&s, "A>B WRITE_FIRST psn=9", FATE_LOST, 2);
    scenario_lose(&s, "A>B WRITE_MIDDLE psn=11");
    post(WORK_WRITE, 2, 1024);
    scenario_run(&s);
    expect_trace(&s, "A>B WRITE_FIRST psn=9 length=1024 lost\n"
                     "A>B WRITE_MIDDLE psn=10\n"
                     "A>B WRITE_MIDDLE psn=11 lost\n"
                     "A>B WRITE_LAST psn=12\n"
                     "B>A REPORT psn=8 expected=9 +1 +3\n"
                     "A>B WRITE_FIRST psn=9 length=1024 lost\n"
                     "A>B WRITE_MIDDLE psn=11\n"
                     "B>A REPORT psn=8 expected=9 +1 +2 +3\n"
                     "A>B WRITE_FIRST psn=9 length=1024\n"
                     "B>A ACK psn=12\n"
                     "A send 2 success\n");
}

/* What tells that the first is missing, and the second held, left before the first had come again.
 * (A packet takes 12 us on the link from then on.) */
static void a_report_of_old_repeats_nothing(void **state)
{
    (void)state;
    scenario_connect(&s);
    set_speed(UINT64_C(200000000), 0);
    post(WORK_WRITE, 1, 64); /* how long the way is is measured */
    scenario_run_for(&s, 100);
    set_speed(0, 0);
    forget_trace(&s);
    post(WORK_SEND, 2, 600);
    scenario_run_for(&s, 5);
    set_speed(UINT64_C(200000000), 1);
    scenario_run_for(&s, 45);
    scenario_receive(&s.b, 1, 600);
    scenario_run(&s);
    expect_trace(&s, "100us A>B SEND_FIRST psn=8\n"
                     "100us A>B SEND_MIDDLE psn=9\n"
                     "100us A>B SEND_LAST psn=10\n"
                     "101us B>A RNR_NAK psn=8\n"
                     "102us A>B REPORT psn=99 expected=100 asks\n"
                     "103us B>A REPORT psn=7 expected=8\n"
                     "112us A>B SEND_FIRST psn=8\n"
                     "124.560us A>B SEND_MIDDLE psn=9\n"
                     "125.560us B>A RNR_NAK psn=8\n"
                     "137.120us A>B REPORT psn=99 expected=100 asks\n"
                     "138.120us B>A REPORT psn=7 expected=8 +1\n"
                     "140.080us A>B SEND_FIRST psn=8\n"
                     "141.240us B>A REPORT psn=7 expected=8 +1\n"
                     "152.640us A>B SEND_MIDDLE psn=9\n"
                     "153.640us B>A ACK psn=9\n"
                     "165.200us A>B SEND_LAST psn=10\n"
                     "166.200us B>A REPORT psn=9 expected=10\n"
                     "172.040us B>A ACK psn=10\n"
                     "172.040us B receive 1 success length=600\n"
                     "175.520us A send 2 success\n");
}

/* B does not speak it. It drops the question, and all is go-back-N, however often it is lost. */
static void a_peer_that_does_not_speak_it_notices_nothing(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_lose(&s, "B>A WRITE_FIRST psn=100");
    struct work work = {.kind = WORK_WRITE, .id = 1, .length = 512};
    assert_int_equal(scenario_post(&s.b, work), STATUS_OK);
    scenario_run(&s);
    expect_trace(&s, "B>A WRITE_FIRST psn=100 length=512 lost\n"
                     "B>A WRITE_LAST psn=101\n"
                     "A>B REPORT psn=99 expected=100 asks\n"
                     "A>B NAK sequence psn=100\n"
                     "B drops version\n"
                     "B>A WRITE_FIRST psn=100 length=512\n"
                     "B>A WRITE_LAST psn=101\n"
                     "A>B ACK psn=101\n"
                     "B send 1 success\n");
    for (uint32_t i = 0; i < 100; i++) {
        scenario_lose(&s, "B>A WRITE_FIRST");
        assert_int_equal(scenario_post(&s.b, work), STATUS_OK);
        scenario_run(&s);
    }
    forget_trace(&s);
    assert_int_equal(count(&s.a, COUNTER_REPORTS_SENT), 7); /* the 1st, 2nd, 4th ... 64th time */
    assert_int_equal(count(&s.a, COUNTER_EARLY_PACKETS), 0);
}

/* Whoever does not know the PSNs is not the peer, though the address be right. */
static void a_forged_report_is_refused(void **state)
{
    (void)state;
    scenario_agree(&s);
    scenario_rule(&s, "A>B WRITE_ONLY", FATE_LOST, 1);
    post(WORK_WRITE, 2, 64); /* psn=9 is under way */
    scenario_run_for(&s, 1);
    const struct report reports[] = {
        {.acknowledged = {9}, .expected = {10}, .unacked = {70000}},
        {.acknowledged = {4000}, .expected = {4001}, .unacked = {100}},
        {.acknowledged = {9}, .expected = {10}, .unacked = {100}, .source = {1}},
    };
    uint64_t before = device_counters(s.a.host->device)->refused[REFUSED_PSN];
    for (uint32_t i = 0; i < 3; i++) {
        struct report report = reports[i];
        uint8_t bytes[REPORT_LENGTH];
        report.destination = qp_number(s.a.qp);
        report.source = report.source.value == 0 ? qp_number(s.b.qp) : report.source;
        report_build(&report, bytes);
        struct arrival arrival = {.path = network_path(0, 1, false, 50000)};
        assert_false(
            device_receive(s.a.host->device, s.simulator.now, &arrival, bytes, sizeof bytes));
        assert_int_equal(device_counters(s.a.host->device)->refused[REFUSED_PSN], before + i + 1);
    }
    scenario_run(&s); /* it was not answered by any of them */
    assert_non_null(strstr(s.text, "A>B WRITE_ONLY psn=9 length=64\n"));
    forget_trace(&s);
}

/* Whoever has not heard its tag is not the peer, though the address be right, and the PSN one that
 * is to come: it is not kept for its turn, and moves nobody to repeat anything. */
static void a_forged_early_request_is_refused(void **state)
{
    (void)state;
    scenario_agree(&s);
    scenario_lose(&s, "A>B WRITE_ONLY psn=9");
    post(WORK_WRITE, 2, 64);
    post(WORK_WRITE, 3, 64);
    scenario_run(&s);
    assert_int_equal(count(&s.b, COUNTER_EARLY_PACKETS), 1); /* the peer's are */
    forget_trace(&s);
    uint64_t refused = device_counters(s.b.host->device)->refused[REFUSED_PSN];
    for (uint32_t ahead = 1; ahead < REPORT_SPAN; ahead++) {
        struct packet packet = {.opcode = OPCODE(SERVICE_RC, FORM_SEND_ONLY),
                                .pkey = PKEY_DEFAULT,
                                .destination = qp_number(s.b.qp),
                                .psn = {11 + ahead}};
        uint8_t bytes[PACKET_HEADER_MAX];
        struct arrival arrival = {.path = network_path(1, 0, false, 50000)};
        (void)device_receive(s.b.host->device, s.simulator.now, &arrival, bytes,
                             packet_build(&packet, bytes));
    }
    assert_int_equal(device_counters(s.b.host->device)->refused[REFUSED_PSN],
                     refused + REPORT_SPAN - 1);
    assert_int_equal(count(&s.b, COUNTER_EARLY_PACKETS), 1);
    host_wake(s.b.host, 0);
    scenario_run(&s);
    expect_trace(&s, "");
    post(WORK_WRITE, 4, 64);
    post(WORK_WRITE, 5, 64);
    scenario_run(&s);
    assert_non_null(strstr(s.text, "A send 5 success\n"));
    forget_trace(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_loss_makes_them_agree, start, stop),
        cmocka_unit_test_setup_teardown(an_end_that_only_receives_agrees_too, start, stop),
        cmocka_unit_test_setup_teardown(only_what_is_lost_is_repeated, start, stop),
        cmocka_unit_test_setup_teardown(what_waits_behind_a_loss_is_not_told_one_by_one, start,
                                        stop),
        cmocka_unit_test_setup_teardown(a_lost_last_packet_is_probed_for, start, stop),
        cmocka_unit_test_setup_teardown(what_has_not_asked_yet_is_not_probed_for, start, stop),
        cmocka_unit_test_setup_teardown(what_has_only_just_left_is_not_probed_for, start, stop),
        cmocka_unit_test_setup_teardown(what_has_left_late_is_waited_for_as_long, start, stop),
        cmocka_unit_test_setup_teardown(messages_complete_in_order, start, stop),
        cmocka_unit_test_setup_teardown(what_is_overtaken_is_not_lost, start, stop),
        cmocka_unit_test_setup_teardown(a_lost_repetition_is_repeated, start, stop),
        cmocka_unit_test_setup_teardown(a_report_of_old_repeats_nothing, start, stop),
        cmocka_unit_test_setup_teardown(a_peer_that_does_not_speak_it_notices_nothing, start_alone,
                                        stop),
        cmocka_unit_test_setup_teardown(a_forged_report_is_refused, start, stop),
        cmocka_unit_test_setup_teardown(a_forged_early_request_is_refused, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
