/* Marks of a congested network: how they are answered, whom the answers slow down, and what eight
 * queue pairs make of one narrow link. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/transport/qp_private.h"
#include "sim/crowd.h"
#include "sim/scenario.h"

#define ECT0 2u

static struct scenario s;

static int start(void **state)
{
    (void)state;
    scenario_start(&s);
    s.a.attributes.path.traffic_class = s.b.attributes.path.traffic_class = 104 | ECT0;
    return 0;
}

static int stop(void **state)
{
    (void)state;
    scenario_stop(&s);
    return 0;
}

static void write_from(struct party *party, uint64_t id, uint32_t length)
{
    struct work work = {.kind = WORK_WRITE, .id = id, .length = length};
    assert_int_equal(scenario_post(party, work), STATUS_OK);
}

static uint64_t count(const struct party *party, enum counter counter)
{
    return device_counters(party->host->device)->values[counter];
}

static void a_mark_is_answered(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_rule(&s, "A>B WRITE_ONLY psn=7", FATE_MARKED, 1);
    write_from(&s.a, 1, 64);
    scenario_run(&s);
    expect_trace(&s, "0us A>B WRITE_ONLY psn=7 length=64 marked\n"
                     "1us B>A CNP\n"
                     "1us B>A ACK psn=7\n"
                     "2us A send 1 success\n");
    assert_int_equal(count(&s.b, COUNTER_CONGESTION_MARKS), 1);
    assert_int_equal(count(&s.b, COUNTER_CNP_SENT), 1);
    assert_int_equal(count(&s.a, COUNTER_CNP_HANDLED), 1);
}

/* However many come marked. */
static void one_answer_in_a_while(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_rule(&s, "A>B WRITE_FIRST psn=7", FATE_MARKED, 1);
    scenario_rule(&s, "A>B WRITE_LAST psn=8", FATE_MARKED, 1);
    write_from(&s.a, 1, 300);
    scenario_run(&s);
    expect_trace(&s, "0us A>B WRITE_FIRST psn=7 length=300 marked\n"
                     "0us A>B WRITE_LAST psn=8 marked\n"
                     "1us B>A CNP\n"
                     "1us B>A ACK psn=8\n"
                     "2us A send 1 success\n");
    scenario_rule(&s, "A>B WRITE_ONLY psn=9", FATE_MARKED, 1);
    scenario_run_for(&s, 1000);
    write_from(&s.a, 2, 64);
    scenario_run(&s);
    expect_trace(&s, "A>B WRITE_ONLY psn=9 length=64 marked\n"
                     "B>A CNP\n"
                     "B>A ACK psn=9\n"
                     "A send 2 success\n");
}

/* Data of READs flow the other way, and so do their marks and answers. */
static void marked_responses_are_answered_too(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_rule(&s, "B>A READ_RESPONSE_ONLY psn=7", FATE_MARKED, 1);
    struct work work = {.kind = WORK_READ, .id = 1, .length = 64};
    assert_int_equal(scenario_post(&s.a, work), STATUS_OK);
    scenario_run(&s);
    expect_trace(&s, "0us A>B READ_REQUEST psn=7 length=64\n"
                     "1us B>A READ_RESPONSE_ONLY psn=7 marked\n"
                     "2us A>B CNP\n"
                     "2us A send 1 success\n");
    assert_int_equal(count(&s.b, COUNTER_CNP_HANDLED), 1);
}

/* A message that leaves slowly asks often enough, also where the timeout is a millisecond, for its
 * sender to know that nothing is lost. */
static void a_slow_message_is_no_loss(void **state)
{
    (void)state;
    s.a.attributes.timeout = 8;
    s.a.attributes.retry_count = 0;
    scenario_connect(&s);
    scenario_rule(&s, "A>B WRITE_MIDDLE", FATE_MARKED, 100000);
    write_from(&s.a, 1, SCENARIO_BYTES);
    scenario_run_for(&s, 1000000);
    assert_int_equal(count(&s.a, COUNTER_TIMEOUTS), 0);
    assert_true(count(&s.a, COUNTER_CNP_HANDLED) > 10);
    assert_int_equal(qp_current_state(s.a.qp), QP_RTS);
}

/* Nor is one that the link lets go slowly. */
static void write_by_slow_link(uint64_t bits_per_second)
{
    struct link_config link = {
        .delay_ns = 1000, .bits_per_second = bits_per_second, .queue_limit = 16};
    network_set_link(&s.network, 0, 1, &link);
    scenario_connect(&s);
    write_from(&s.a, 1, SCENARIO_BYTES);
    scenario_run(&s);
    assert_non_null(strstr(s.text, "A send 1 success\n"));
    assert_int_equal(count(&s.a, COUNTER_TIMEOUTS), 0);
}

/* 24 us for each packet, 64 of which are half a window. */
static void write_before_the_timeout(uint32_t run_packets)
{
    s.network.ports[0].sink.run_packets = run_packets;
    s.a.attributes.timeout = 8;
    s.a.attributes.retry_count = 0;
    write_by_slow_link(UINT64_C(100000000));
}

static void a_message_by_a_slow_link_is_no_loss(void **state)
{
    (void)state;
    write_before_the_timeout(0);
}

static void nor_where_its_packets_leave_in_trains(void **state)
{
    (void)state;
    write_before_the_timeout(64);
}

/* The one packet that asks in a while leaves long after the last answer, and its own waits for all
 * that stands before it in the link's queue: 10 ms, each time the same. */
static void what_is_asked_for_late_is_waited_for(void **state)
{
    (void)state;
    s.a.attributes.timeout = 16;
    write_by_slow_link(4000000);
}

/* Nor is a response whose packets come as slowly as a peer may send: none is demanded again. */
static void a_slow_response_is_no_loss(void **state)
{
    scenario_stop(&s);
    scenario_start_selective(&s);
    for (struct party *party = &s.a; party != NULL; party = party == &s.a ? &s.b : NULL) {
        party->attributes.path.traffic_class = 104 | ECT0;
        party->attributes.path_mtu = PATH_MTU_4096;
        party->attributes.timeout = 14;
    }
    scenario_connect(&s);
    scenario_lose(&s, "A>B WRITE_FIRST psn=7"); /* which makes them agree */
    for (uint64_t id = 1; id <= 4; id++) {
        write_from(&s.a, id, 4200);
        scenario_run_for(&s, 100);
    }
    scenario_rule(&s, "B>A WRITE_ONLY", FATE_MARKED, 1);
    write_from(&s.b, 1, 64);
    scenario_run_for(&s, 20);
    scenario_rule(&s, "B>A READ_RESPONSE_MIDDLE psn=17", FATE_DELAYED, 1);
    s.a.qp->selective->share.window = 1u << 20; /* so all of it is one demand */
    struct work work = {.kind = WORK_READ, .id = 5, .length = 16384};
    assert_int_equal(scenario_post(&s.a, work), STATUS_OK);
    forget_trace(&s);
    scenario_run(&s);
    assert_non_null(strstr(s.text, "A send 5 success\n"));
    assert_int_equal(count(&s.b, COUNTER_CNP_HANDLED), 1);
    assert_null(strstr(strstr(s.text, "READ_REQUEST") + 1, "READ_REQUEST"));
}

/* From an address that is not the peer's: nobody is slowed down. */
static void a_stranger_is_not_heard(void **state)
{
    (void)state;
    scenario_connect(&s);
    struct packet packet = {
        .opcode = OPCODE_CNP, .pkey = PKEY_DEFAULT, .destination = qp_number(s.a.qp)};
    uint8_t bytes[PACKET_HEADER_MAX];
    uint32_t length = packet_build(&packet, bytes);
    struct arrival arrival = {.path = network_path(0, 2, false, 50000)};
    device_receive(s.a.host->device, s.simulator.now, &arrival, bytes, length);
    assert_int_equal(count(&s.a, COUNTER_CNP_HANDLED), 0);
    assert_int_equal(device_counters(s.a.host->device)->refused[REFUSED_ADDRESS], 1);
    arrival.path = network_path(0, 1, false, 50000);
    device_receive(s.a.host->device, s.simulator.now, &arrival, bytes, length);
    assert_int_equal(count(&s.a, COUNTER_CNP_HANDLED), 1);
}

/* A's, to a READ of B's. */
static void begin_slow_responses(void)
{
    scenario_connect(&s);
    scenario_rule(&s, "A>B WRITE_ONLY", FATE_MARKED, 1);
    write_from(&s.a, 1, 64); /* to the floor of the rate: a packet in 62 us */
    scenario_run_for(&s, 20);
    struct work work = {.kind = WORK_READ, .id = 1, .length = 16384};
    assert_int_equal(scenario_post(&s.b, work), STATUS_OK);
    scenario_run_for(&s, 20);
    forget_trace(&s);
}

/* While long responses leave at a limited rate, our own messages get their half of it, and are
 * answered before anybody takes them for lost. */
static void responses_do_not_starve_messages(void **state)
{
    (void)state;
    begin_slow_responses();
    write_from(&s.a, 2, 2000);
    scenario_run_for(&s, 2500);
    assert_non_null(strstr(s.text, "A send 2 success\n"));
    assert_null(strstr(s.text, "B send 1 success\n"));
    scenario_run(&s);
    assert_non_null(strstr(s.text, "B send 1 success\n"));
    assert_int_equal(count(&s.a, COUNTER_RETRANSMITTED_PACKETS), 0);
    assert_int_equal(count(&s.a, COUNTER_TIMEOUTS), 0);
}

/* Nor where the queue pair is looked at again and again before its time. */
static void nor_where_they_are_looked_for_early(void **state)
{
    (void)state;
    begin_slow_responses();
    write_from(&s.a, 2, 2000);
    for (uint64_t id = 3; id < 13; id++) {
        scenario_run_for(&s, 62);
        write_from(&s.a, id, 8);
    }
    unsigned writes = 0;
    for (const char *at = s.text; (at = strstr(at, "A>B WRITE_MIDDLE")) != NULL; at++) {
        writes++;
    }
    assert_true(writes >= 3);
    scenario_run(&s);
    assert_int_equal(count(&s.a, COUNTER_TIMEOUTS), 0);
}

/* Nor do messages starve responses where a CNP goes between any two packets, because all that A
 * gets is marked. */
static void messages_do_not_starve_responses(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_rule(&s, "A>B WRITE_ONLY", FATE_MARKED, 1);
    scenario_rule(&s, "B>A ACK", FATE_MARKED, 100);
    write_from(&s.a, 1, 64);
    scenario_run_for(&s, 20);
    for (uint64_t id = 2; id < 16; id++) {
        write_from(&s.a, id, 256);
    }
    struct work work = {.kind = WORK_READ, .id = 1, .length = 1024};
    assert_int_equal(scenario_post(&s.b, work), STATUS_OK);
    scenario_run_for(&s, 700);
    assert_true(count(&s.a, COUNTER_CNP_SENT) > 3);
    assert_non_null(strstr(s.text, "B send 1 success\n"));
    assert_non_null(strstr(s.text, "A send 4 success\n"));
    assert_null(strstr(s.text, "A send 15 success\n"));
    scenario_run(&s);
    assert_non_null(strstr(s.text, "A send 15 success\n"));
}

/* What left unmarkable was not marked: who says so lies. */
static void a_notice_of_what_cannot_be_marked_is_forged(void **state)
{
    (void)state;
    s.a.attributes.path.traffic_class = 104;
    scenario_connect(&s);
    struct packet packet = {
        .opcode = OPCODE_CNP, .pkey = PKEY_DEFAULT, .destination = qp_number(s.a.qp)};
    uint8_t bytes[PACKET_HEADER_MAX];
    uint32_t length = packet_build(&packet, bytes);
    struct arrival arrival = {.path = network_path(0, 1, false, 50000)};
    device_receive(s.a.host->device, s.simulator.now, &arrival, bytes, length);
    assert_int_equal(count(&s.a, COUNTER_CNP_HANDLED), 0);
    assert_int_equal(device_counters(s.a.host->device)->refused[REFUSED_SEQUENCE], 1);
}

/* From the peer's address, but not with its PSN: the peer is not slowed down. */
static void a_forged_mark_is_not_answered(void **state)
{
    (void)state;
    scenario_connect(&s);
    struct packet packet = {.opcode = OPCODE(SERVICE_RC, FORM_SEND_ONLY),
                            .pkey = PKEY_DEFAULT,
                            .destination = qp_number(s.b.qp),
                            .psn = {4711}};
    uint8_t bytes[PACKET_HEADER_MAX];
    uint32_t length = packet_build(&packet, bytes);
    struct arrival arrival = {.path = network_path(1, 0, false, 50000),
                              .congestion_experienced = true};
    bool of_peer = device_receive(s.b.host->device, s.simulator.now, &arrival, bytes, length);
    scenario_run(&s);
    assert_false(of_peer);
    assert_int_equal(count(&s.b, COUNTER_CNP_SENT), 0);
}

/* Eight writers that never stop, over one link of 1 Gbit/s that marks above MARK_ABOVE frames. */
#define FLOWS      8u
#define MARK_ABOVE 16u
#define LINE       125000u /* bytes per millisecond */

static struct crowd *make_crowd(uint8_t traffic_class)
{
    struct crowd_config config = {
        .flows = FLOWS,
        .message = 65536,
        .depth = 8,
        .mtu = PATH_MTU_4096,
        .traffic_class = traffic_class,
        .link = {.bits_per_second = LINE * UINT64_C(8000),
                 .delay_ns = 5000,
                 .mark_above = MARK_ABOVE},
        .seed = 1,
    };
    return crowd_make(&config);
}

static void the_queue_stays_short_where_marks_are_heard(void **state)
{
    (void)state;
    struct crowd *deaf = make_crowd(0);
    (void)crowd_run(deaf, 100);
    uint64_t deaf_rate = crowd_run(deaf, 200);
    uint32_t deaf_queue = crowd_queued_most(deaf);
    assert_true(crowd_end(deaf));

    struct crowd *crowd = make_crowd(ECT0);
    (void)crowd_run(crowd, 100);
    uint64_t rate = crowd_run(crowd, 200);
    printf("8 flows over 1 Gbit/s: queue up to %u frames, %llu%% of the line, fairness %llu%%; "
           "without ECN %u frames, %llu%%\n",
           crowd_queued_most(crowd), (unsigned long long)(rate * 100 / LINE),
           (unsigned long long)crowd_fairness(crowd), deaf_queue,
           (unsigned long long)(deaf_rate * 100 / LINE));
    assert_true(deaf_queue > 400); /* the windows, no less */
    assert_in_range(crowd_queued_most(crowd), MARK_ABOVE, deaf_queue / 6);
    assert_true(rate > LINE * 80 / 100);
    assert_true(crowd_fairness(crowd) >= 80);
    assert_true(crowd_end(crowd));
}

static void one_that_is_left_alone_gets_the_line(void **state)
{
    (void)state;
    struct crowd *crowd = make_crowd(ECT0);
    (void)crowd_run(crowd, 200);
    crowd_keep(crowd, 1);
    (void)crowd_run(crowd, 100);
    uint64_t rate = crowd_run(crowd, 100);
    printf("the one flow left: %llu%% of the line\n", (unsigned long long)(rate * 100 / LINE));
    assert_true(rate > LINE * 80 / 100);
    assert_true(crowd_end(crowd));
}

/* The link is wide again: so are they, soon. */
static void rates_recover_when_the_marks_stop(void **state)
{
    (void)state;
    struct crowd *crowd = make_crowd(ECT0);
    (void)crowd_run(crowd, 200);
    crowd_link(crowd)->bits_per_second *= 10;
    crowd_link(crowd)->mark_above = 0;
    (void)crowd_run(crowd, 50);
    uint64_t rate = crowd_run(crowd, 50);
    printf("without marks, on ten times the line: %llu%% of it\n",
           (unsigned long long)(rate * 10 / LINE));
    assert_true(rate > 10 * LINE * 80 / 100);
    assert_true(crowd_end(crowd));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_mark_is_answered, start, stop),
        cmocka_unit_test_setup_teardown(one_answer_in_a_while, start, stop),
        cmocka_unit_test_setup_teardown(marked_responses_are_answered_too, start, stop),
        cmocka_unit_test_setup_teardown(a_slow_message_is_no_loss, start, stop),
        cmocka_unit_test_setup_teardown(a_message_by_a_slow_link_is_no_loss, start, stop),
        cmocka_unit_test_setup_teardown(nor_where_its_packets_leave_in_trains, start, stop),
        cmocka_unit_test_setup_teardown(what_is_asked_for_late_is_waited_for, start, stop),
        cmocka_unit_test_setup_teardown(a_slow_response_is_no_loss, start, stop),
        cmocka_unit_test_setup_teardown(messages_do_not_starve_responses, start, stop),
        cmocka_unit_test_setup_teardown(a_stranger_is_not_heard, start, stop),
        cmocka_unit_test_setup_teardown(responses_do_not_starve_messages, start, stop),
        cmocka_unit_test_setup_teardown(nor_where_they_are_looked_for_early, start, stop),
        cmocka_unit_test_setup_teardown(a_notice_of_what_cannot_be_marked_is_forged, start, stop),
        cmocka_unit_test_setup_teardown(a_forged_mark_is_not_answered, start, stop),
        cmocka_unit_test(the_queue_stays_short_where_marks_are_heard),
        cmocka_unit_test(one_that_is_left_alone_gets_the_line),
        cmocka_unit_test(rates_recover_when_the_marks_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
