/* Selective repeat where a packet finds no receive: what is sent again with it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rnic/transport/qp_private.h"
#include "sim/scenarios/selective.h"

#define PLACES 64u /* of a scenario's host */

/* The packet that found no receive is sent again after the wait; those behind it are kept. */
static void a_receiver_that_is_not_ready_keeps_the_rest(void **state)
{
    (void)state;
    scenario_agree(&s);
    post(WORK_SEND, 2, 20);
    post(WORK_SEND, 3, 30);
    scenario_run_for(&s, 5);
    scenario_receive(&s.b, 1, 64);
    scenario_receive(&s.b, 2, 64);
    scenario_run(&s);
    expect_trace(&s, "A>B SEND_ONLY psn=9\n"
                     "A>B SEND_ONLY psn=10\n"
                     "B>A RNR_NAK psn=9\n"
                     "A>B SEND_ONLY psn=9\n"
                     "B>A ACK psn=10\n"
                     "B receive 1 success length=20\n"
                     "B receive 2 success length=30\n"
                     "A send 2 success\n"
                     "A send 3 success\n");
}

/* What is dropped behind a packet without a receive is a reason to ask: from the second time on
 * that one alone is repeated. */
static void a_receiver_that_is_not_ready_makes_them_agree(void **state)
{
    (void)state;
    scenario_connect(&s);
    for (uint64_t round = 0; round < 2; round++) {
        post(WORK_SEND, 1, 600);
        scenario_run_for(&s, 5);
        scenario_receive(&s.b, 1, 600);
        scenario_run(&s);
    }
    expect_trace(&s, "0us A>B SEND_FIRST psn=7\n"
                     "0us A>B SEND_MIDDLE psn=8\n"
                     "0us A>B SEND_LAST psn=9\n"
                     "1us B>A RNR_NAK psn=7\n"
                     "2us A>B REPORT psn=99 expected=100 asks\n"
                     "3us B>A REPORT psn=6 expected=7\n"
                     "12us A>B SEND_FIRST psn=7\n"
                     "12us A>B SEND_MIDDLE psn=8\n"
                     "12us A>B SEND_LAST psn=9\n"
                     "13us B>A ACK psn=9\n"
                     "13us B receive 1 success length=600\n"
                     "14us A send 1 success\n"
                     "A>B SEND_FIRST psn=10\n"
                     "A>B SEND_MIDDLE psn=11\n"
                     "A>B SEND_LAST psn=12\n"
                     "B>A RNR_NAK psn=10\n"
                     "A>B SEND_FIRST psn=10\n"
                     "B>A ACK psn=12\n"
                     "B receive 1 success length=600\n"
                     "A send 1 success\n");
}

static void set_delay(uint64_t delay_ns)
{
    struct link_config link = {.delay_ns = delay_ns};
    network_set_links(&s.network, &link);
}

/* The answer to the wish takes 10 us, and comes when the packets have been sent again already. So
 * they have no tag, and what is behind the second without a receive is not kept. */
static void leave_before_they_agree(void)
{
    scenario_connect(&s);
    for (uint64_t id = 1; id <= 3; id++) {
        post(WORK_SEND, id, 20);
    }
    scenario_run_for(&s, 2);
    set_delay(10000);
    scenario_run_for(&s, 2);
    set_delay(1000);
    scenario_receive(&s.b, 1, 64);
    scenario_run_for(&s, 15);
    expect_trace(&s, "0us A>B SEND_ONLY psn=7\n"
                     "0us A>B SEND_ONLY psn=8\n"
                     "0us A>B SEND_ONLY psn=9\n"
                     "1us B>A RNR_NAK psn=7\n"
                     "2us A>B REPORT psn=99 expected=100 asks\n"
                     "3us B>A REPORT psn=6 expected=7\n"
                     "12us A>B SEND_ONLY psn=7\n"
                     "12us A>B SEND_ONLY psn=8\n"
                     "12us A>B SEND_ONLY psn=9\n"
                     "13us B drops psn\n"
                     "13us B>A RNR_NAK psn=8\n"
                     "13us B receive 1 success length=20\n"
                     "14us A send 1 success\n");
    forget_trace(&s);
}

/* Both are sent once more. */
static void what_left_before_they_agreed_is_not_kept(void **state)
{
    (void)state;
    leave_before_they_agree();
    scenario_receive(&s.b, 2, 64);
    scenario_receive(&s.b, 3, 64);
    scenario_run(&s);
    expect_trace(&s, "24us A>B SEND_ONLY psn=8\n"
                     "24us A>B SEND_ONLY psn=9\n"
                     "25us B>A ACK psn=9\n"
                     "25us B receive 2 success length=20\n"
                     "25us B receive 3 success length=20\n"
                     "26us A send 2 success\n"
                     "26us A send 3 success\n");
}

/* As before; but the second finds no receive once more, and what was sent again behind it is kept
 * by then. */
static void what_was_sent_again_is_kept(void **state)
{
    (void)state;
    leave_before_they_agree();
    scenario_run_for(&s, 10);
    scenario_receive(&s.b, 2, 64);
    scenario_receive(&s.b, 3, 64);
    scenario_run(&s);
    expect_trace(&s, "24us A>B SEND_ONLY psn=8\n"
                     "24us A>B SEND_ONLY psn=9\n"
                     "25us B>A RNR_NAK psn=8\n"
                     "36us A>B SEND_ONLY psn=8\n"
                     "37us B>A ACK psn=9\n"
                     "37us B receive 2 success length=20\n"
                     "37us B receive 3 success length=20\n"
                     "38us A send 2 success\n"
                     "38us A send 3 success\n");
}

/* B had nothing under way when they agreed. The first that it sends finds no receive, and is sent
 * again as any other: after the 10 us that A has asked for. */
static void the_first_after_they_agreed_is_sent_again(void **state)
{
    (void)state;
    struct work work = {.kind = WORK_SEND, .id = 2, .length = 20};
    scenario_agree(&s);
    assert_int_equal(scenario_post(&s.b, work), STATUS_OK);
    scenario_run_for(&s, 5);
    scenario_receive(&s.a, 1, 64);
    scenario_run(&s);
    expect_trace(&s, "1048.576us B>A SEND_ONLY psn=100\n"
                     "1049.576us A>B RNR_NAK psn=100\n"
                     "1060.576us B>A SEND_ONLY psn=100\n"
                     "1061.576us A>B ACK psn=100\n"
                     "1061.576us A receive 1 success length=20\n"
                     "1062.576us B send 2 success\n");
}

/* An RNR NAK overtakes the response before it: it is heeded once that has come, and not forgotten,
 * or the packet would wait for the retransmission timer. */
static void an_rnr_nak_before_its_turn_is_kept(void **state)
{
    (void)state;
    scenario_agree(&s);
    scenario_rule(&s, "B>A READ_RESPONSE_ONLY psn=9", FATE_DELAYED, 1);
    post(WORK_READ, 2, 64);
    post(WORK_SEND, 3, 20);
    scenario_run_for(&s, 5);
    scenario_receive(&s.b, 1, 64);
    scenario_run(&s);
    expect_trace(&s, "1048.576us A>B READ_REQUEST psn=9 length=64\n"
                     "1048.576us A>B SEND_ONLY psn=10\n"
                     "1049.576us B>A READ_RESPONSE_ONLY psn=9 delayed\n"
                     "1049.576us B>A RNR_NAK psn=10\n"
                     "1051.129us A send 2 success\n"
                     "1061.129us A>B SEND_ONLY psn=10\n"
                     "1062.129us B>A ACK psn=10\n"
                     "1062.129us B receive 1 success length=20\n"
                     "1063.129us A send 3 success\n");
}

/* What B owes waits for the rest of a response. Then its report would say that the SEND is missing
 * before A has heard that it is to wait with it. */
static void why_it_is_missing_is_told_before_that_it_is(void **state)
{
    (void)state;
    struct link_config link = {
        .delay_ns = 1000, .bits_per_second = UINT64_C(50000000), .queue_limit = 1};
    scenario_agree(&s);
    network_set_link(&s.network, 1, 0, &link);
    post(WORK_READ, 2, 300);
    post(WORK_SEND, 3, 20);
    post(WORK_SEND, 4, 20);
    scenario_run_for(&s, 10);
    selective_want(s.b.qp);
    scenario_run_for(&s, 70);
    scenario_receive(&s.b, 1, 64);
    scenario_receive(&s.b, 2, 64);
    scenario_run(&s);
    expect_trace(&s, "A>B READ_REQUEST psn=9 length=300\n"
                     "A>B SEND_ONLY psn=11\n"
                     "A>B SEND_ONLY psn=12\n"
                     "B>A READ_RESPONSE_FIRST psn=9\n"
                     "B>A READ_RESPONSE_LAST psn=10\n"
                     "B>A RNR_NAK psn=11\n"
                     "A send 2 success\n"
                     "B>A REPORT psn=8 expected=11 +1 asks\n"
                     "A>B SEND_ONLY psn=11\n"
                     "B receive 1 success length=20\n"
                     "B receive 2 success length=20\n"
                     "B>A ACK psn=12\n"
                     "A>B REPORT psn=99 expected=100\n"
                     "A send 3 success\n"
                     "A send 4 success\n");
}

/* The way is shorter than it ever was, so that the first one has come proves nothing of the rest:
 * it may have been the copy before. Nothing that was dropped may wait for the timer, which A, who
 * does not retry, does not survive. */
static void find_no_place(uint8_t timeout)
{
    s.a.attributes.retry_count = 0;
    s.a.attributes.timeout = timeout;
    scenario_agree(&s);
    post(WORK_SEND, 2, 20);
    post(WORK_WRITE, 3, (PLACES + 8) * 256);
    scenario_run_for(&s, 5);
    set_delay(500);
    scenario_run_for(&s, 5);
    scenario_receive(&s.b, 1, 64);
    scenario_run(&s);
    forget_trace(&s);
    assert_int_equal(count(&s.b, COUNTER_EARLY_PACKETS), PLACES);
    assert_int_equal(count(&s.b, COUNTER_RNR_NAK_SENT), 1);
    assert_int_equal(count(&s.b, COUNTER_DUPLICATE_REQUESTS), 0);
    assert_int_equal(count(&s.a, COUNTER_TIMEOUTS), 0);
    assert_int_equal(count(&s.a, COUNTER_PROBES), 0);
    expect_equal_bytes(&s.a, &s.b, 0, (PLACES + 8) * 256);
}

static void what_found_no_place_behind_it_is_told(void **state)
{
    (void)state;
    find_no_place(10); /* 4.2 ms, without probes */
}

/* What finds no place behind the one that is lost is refused, but only that one leaves again. */
static void what_found_no_place_before_it_was_there_is_told(void **state)
{
    (void)state;
    scenario_lose(&s, "A>B SEND_ONLY");
    find_no_place(14);
}

/* Nothing is lost. What waits for a place finds none, and the NAK that says so waits for the rest
 * of a response until the missing one has come, after all. */
static void what_found_no_place_is_told_where_the_nak_had_not_left(void **state)
{
    (void)state;
    struct link_config link = {
        .delay_ns = 1000, .bits_per_second = UINT64_C(50000000), .queue_limit = 1};
    s.a.attributes.retry_count = 0;
    s.a.attributes.timeout = 10; /* 4.2 ms, without probes */
    scenario_agree(&s);
    network_set_link(&s.network, 1, 0, &link);
    post(WORK_READ, 2, 300);
    scenario_run_for(&s, 10);
    scenario_rule(&s, "A>B WRITE_FIRST", FATE_DELAYED, 1);
    post(WORK_WRITE, 3, (PLACES + 8) * 256);
    scenario_run(&s);
    forget_trace(&s);
    assert_int_equal(count(&s.b, COUNTER_EARLY_PACKETS), PLACES);
    assert_int_equal(count(&s.b, COUNTER_NAK_SEQUENCE_SENT), 2);
    assert_int_equal(count(&s.a, COUNTER_TIMEOUTS), 0);
    expect_equal_bytes(&s.a, &s.b, 0, (PLACES + 8) * 256);
}

/* The one behind it is missing, too. What is held is not sent again with what found no place,
 * though all left so long ago that it is not under way any more. */
static void what_is_held_is_told_with_what_is_not(void **state)
{
    (void)state;
    struct early_stock *stock = &s.b.qp->environment->selective.early;
    stock->capacity = stock->first_free = 8;
    s.a.attributes.timeout = 14;
    scenario_agree(&s);
    scenario_lose(&s, "A>B WRITE_FIRST");
    post(WORK_SEND, 2, 20);
    post(WORK_WRITE, 3, (1 + 8 + 4) * 256);
    scenario_run_for(&s, 5);
    set_delay(500);
    scenario_receive(&s.b, 1, 64);
    uint64_t before = count(&s.a, COUNTER_RETRANSMITTED_PACKETS);
    scenario_run(&s);
    forget_trace(&s);
    assert_int_equal(count(&s.b, COUNTER_EARLY_PACKETS), 8);
    assert_int_equal(count(&s.a, COUNTER_RETRANSMITTED_PACKETS) - before, 1 + 1 + 4);
    assert_int_equal(count(&s.a, COUNTER_PROBES), 0);
    expect_equal_bytes(&s.a, &s.b, 0, (1 + 8 + 4) * 256);
}

/* A has heard B's wish, and B not A's answer. So A takes B to keep what it drops. */
static void who_is_wrongly_taken_to_keep_it_tells(void **state)
{
    (void)state;
    struct work work = {.kind = WORK_SEND, .id = 1, .length = 20};
    scenario_connect(&s);
    post(WORK_WRITE, 1, 20);
    scenario_run_for(&s, 5);
    scenario_lose(&s, "A>B REPORT");
    assert_int_equal(scenario_post(&s.b, work), STATUS_OK);
    assert_int_equal(scenario_post(&s.b, work), STATUS_OK);
    scenario_run_for(&s, 5);
    scenario_receive(&s.a, 1, 64);
    scenario_receive(&s.a, 1, 64);
    scenario_run_for(&s, 50);
    forget_trace(&s);
    set_delay(500);
    post(WORK_SEND, 2, 20);
    post(WORK_SEND, 3, 30);
    scenario_run_for(&s, 5);
    scenario_receive(&s.b, 2, 64);
    scenario_receive(&s.b, 3, 64);
    scenario_run(&s);
    expect_trace(&s, "60us A>B SEND_ONLY psn=8\n"
                     "60us A>B SEND_ONLY psn=9\n"
                     "60.500us B>A RNR_NAK psn=8\n"
                     "71us A>B SEND_ONLY psn=8\n"
                     "71.500us B>A NAK sequence psn=9\n"
                     "71.500us B receive 2 success length=20\n"
                     "72us A>B REPORT psn=101 expected=102 asks\n"
                     "72us A>B SEND_ONLY psn=9\n"
                     "72us A send 2 success\n"
                     "72.500us B>A REPORT psn=9 expected=10\n"
                     "72.500us B>A ACK psn=9\n"
                     "72.500us B receive 3 success length=30\n"
                     "73us A drops psn\n"
                     "73us A send 3 success\n");
}

/* B, which has no room for another agreement, would be taken to keep what comes early if it asked
 * for one. */
static void who_has_no_room_does_not_ask(void **state)
{
    (void)state;
    s.b.qp->environment->selective.touched = s.b.qp->environment->selective.capacity;
    scenario_connect(&s);
    scenario_lose(&s, "A>B WRITE_FIRST");
    post(WORK_WRITE, 1, 300);
    scenario_run(&s);
    expect_trace(&s, "0us A>B WRITE_FIRST psn=7 length=300 lost\n"
                     "0us A>B WRITE_LAST psn=8\n"
                     "1us B>A NAK sequence psn=7\n"
                     "2us A>B REPORT psn=99 expected=100 asks\n"
                     "2us A>B WRITE_FIRST psn=7 length=300\n"
                     "2us A>B WRITE_LAST psn=8\n"
                     "3us B>A ACK psn=8\n"
                     "4us A send 1 success\n");
}

static void one_packet_without_a_receive_is_no_reason(void **state)
{
    (void)state;
    scenario_connect(&s);
    post(WORK_SEND, 1, 20);
    scenario_run_for(&s, 5);
    scenario_receive(&s.b, 1, 64);
    scenario_run(&s);
    expect_trace(&s, "0us A>B SEND_ONLY psn=7\n"
                     "1us B>A RNR_NAK psn=7\n"
                     "12us A>B SEND_ONLY psn=7\n"
                     "13us B>A ACK psn=7\n"
                     "13us B receive 1 success length=20\n"
                     "14us A send 1 success\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_receiver_that_is_not_ready_keeps_the_rest, start, stop),
        cmocka_unit_test_setup_teardown(a_receiver_that_is_not_ready_makes_them_agree, start, stop),
        cmocka_unit_test_setup_teardown(what_left_before_they_agreed_is_not_kept, start, stop),
        cmocka_unit_test_setup_teardown(what_was_sent_again_is_kept, start, stop),
        cmocka_unit_test_setup_teardown(the_first_after_they_agreed_is_sent_again, start, stop),
        cmocka_unit_test_setup_teardown(an_rnr_nak_before_its_turn_is_kept, start, stop),
        cmocka_unit_test_setup_teardown(why_it_is_missing_is_told_before_that_it_is, start, stop),
        cmocka_unit_test_setup_teardown(what_found_no_place_behind_it_is_told, start, stop),
        cmocka_unit_test_setup_teardown(what_found_no_place_before_it_was_there_is_told, start,
                                        stop),
        cmocka_unit_test_setup_teardown(what_found_no_place_is_told_where_the_nak_had_not_left,
                                        start, stop),
        cmocka_unit_test_setup_teardown(what_is_held_is_told_with_what_is_not, start, stop),
        cmocka_unit_test_setup_teardown(who_is_wrongly_taken_to_keep_it_tells, start, stop),
        cmocka_unit_test_setup_teardown(who_has_no_room_does_not_ask, start, stop),
        cmocka_unit_test_setup_teardown(one_packet_without_a_receive_is_no_reason, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
