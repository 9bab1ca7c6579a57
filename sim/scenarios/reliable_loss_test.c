/* What a reliable connection does when packets of requests or acknowledgements are lost, come twice
 * or out of order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/transport/qp_private.h"
#include "sim/scenario.h"

static struct scenario s;

static int start(void **state)
{
    (void)state;
    scenario_start(&s);
    return 0;
}

static int start_selective(void **state)
{
    (void)state;
    scenario_start_selective(&s);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    scenario_stop(&s);
    return 0;
}

static void post(struct work work)
{
    assert_int_equal(scenario_post(&s.a, work), STATUS_OK);
}

static void post_write(uint64_t id, uint32_t length)
{
    post((struct work){.kind = WORK_WRITE, .id = id, .length = length});
}

/* One acknowledgement for the message, asked for by its last packet. */
static void nothing_lost(void **state)
{
    (void)state;
    scenario_connect(&s);
    post_write(1, 600);
    scenario_run(&s);
    expect_trace(&s, "0us A>B WRITE_FIRST psn=7 length=600\n"
                     "0us A>B WRITE_MIDDLE psn=8\n"
                     "0us A>B WRITE_LAST psn=9\n"
                     "1us B>A ACK psn=9\n"
                     "2us A send 1 success\n");
    expect_equal_bytes(&s.a, &s.b, 0, 600);
}

/* The second packet shows the gap. */
static void first_lost(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_lose(&s, "A>B WRITE_FIRST psn=7");
    post_write(1, 600);
    scenario_run(&s);
    expect_trace(&s, "0us A>B WRITE_FIRST psn=7 length=600 lost\n"
                     "0us A>B WRITE_MIDDLE psn=8\n"
                     "0us A>B WRITE_LAST psn=9\n"
                     "1us B>A NAK sequence psn=7\n"
                     "2us A>B WRITE_FIRST psn=7 length=600\n"
                     "2us A>B WRITE_MIDDLE psn=8\n"
                     "2us A>B WRITE_LAST psn=9\n"
                     "3us B>A ACK psn=9\n"
                     "4us A send 1 success\n");
    expect_equal_bytes(&s.a, &s.b, 0, 600);
}

/* A lost packet in the middle of a WRITE is asked for once, then resent from there. */
static void middle_lost(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_lose(&s, "A>B WRITE_MIDDLE psn=8");
    post_write(1, 600);
    scenario_run(&s);
    expect_trace(&s, "0us A>B WRITE_FIRST psn=7 length=600\n"
                     "0us A>B WRITE_MIDDLE psn=8 lost\n"
                     "0us A>B WRITE_LAST psn=9\n"
                     "1us B>A NAK sequence psn=8\n"
                     "2us A>B WRITE_MIDDLE psn=8\n"
                     "2us A>B WRITE_LAST psn=9\n"
                     "3us B>A ACK psn=9\n"
                     "4us A send 1 success\n");
    expect_equal_bytes(&s.a, &s.b, 0, 600);
}

/* Nothing shows the gap: the timeout does. */
static void last_lost(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_lose(&s, "A>B WRITE_LAST psn=9");
    post_write(1, 600);
    scenario_run(&s);
    expect_trace(&s, "0us A>B WRITE_FIRST psn=7 length=600\n"
                     "0us A>B WRITE_MIDDLE psn=8\n"
                     "0us A>B WRITE_LAST psn=9 lost\n"
                     "1048.576us A>B WRITE_FIRST psn=7 length=600\n"
                     "1048.576us A>B WRITE_MIDDLE psn=8\n"
                     "1049.576us B>A ACK psn=8\n"
                     "1050.576us A>B WRITE_LAST psn=9\n"
                     "1051.576us B>A ACK psn=9\n"
                     "1052.576us A send 1 success\n");
    expect_equal_bytes(&s.a, &s.b, 0, 600);
}

/* The request is repeated, recognised and acknowledged again, not executed. */
static void acknowledgement_lost(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_lose(&s, "B>A ACK psn=7");
    scenario_receive(&s.b, 1, 100);
    post((struct work){.kind = WORK_SEND, .id = 1, .length = 100});
    scenario_run(&s);
    expect_trace(&s, "0us A>B SEND_ONLY psn=7\n"
                     "1us B>A ACK psn=7 lost\n"
                     "1us B receive 1 success length=100\n"
                     "1048.576us A>B SEND_ONLY psn=7\n"
                     "1049.576us B>A ACK psn=7\n"
                     "1050.576us A send 1 success\n");
}

/* However many packets come behind a gap, one NAK goes out for it. */
static void sequence_nak_once(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_lose(&s, "A>B WRITE_ONLY psn=8");
    for (uint64_t id = 1; id <= 5; id++) {
        post_write(id, 64);
    }
    scenario_run(&s);
    expect_trace(&s, "0us A>B WRITE_ONLY psn=7 length=64\n"
                     "0us A>B WRITE_ONLY psn=8 length=64 lost\n"
                     "0us A>B WRITE_ONLY psn=9 length=64\n"
                     "0us A>B WRITE_ONLY psn=10 length=64\n"
                     "0us A>B WRITE_ONLY psn=11 length=64\n"
                     "1us B>A NAK sequence psn=8\n"
                     "2us A>B WRITE_ONLY psn=8 length=64\n"
                     "2us A>B WRITE_ONLY psn=9 length=64\n"
                     "2us A>B WRITE_ONLY psn=10 length=64\n"
                     "2us A>B WRITE_ONLY psn=11 length=64\n"
                     "2us A send 1 success\n"
                     "3us B>A ACK psn=11\n"
                     "4us A send 2 success\n"
                     "4us A send 3 success\n"
                     "4us A send 4 success\n"
                     "4us A send 5 success\n");
}

/* The NAK for the gap was sent once, so the second loss is found by the timeout. */
static void repeated_packet_lost_too(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_rule(&s, "A>B WRITE_ONLY psn=7", FATE_LOST, 2);
    post_write(1, 64);
    post_write(2, 64);
    scenario_run(&s);
    expect_trace(&s, "0us A>B WRITE_ONLY psn=7 length=64 lost\n"
                     "0us A>B WRITE_ONLY psn=8 length=64\n"
                     "1us B>A NAK sequence psn=7\n"
                     "2us A>B WRITE_ONLY psn=7 length=64 lost\n"
                     "2us A>B WRITE_ONLY psn=8 length=64\n"
                     "1048.576us A>B WRITE_ONLY psn=7 length=64\n"
                     "1048.576us A>B WRITE_ONLY psn=8 length=64\n"
                     "1049.576us B>A ACK psn=8\n"
                     "1050.576us A send 1 success\n"
                     "1050.576us A send 2 success\n");
}

/* A duplicate is acknowledged and not executed: the second receive stays. */
static void duplicated_request(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_rule(&s, "A>B SEND_ONLY psn=7", FATE_DUPLICATED, 1);
    scenario_receive(&s.b, 1, 100);
    scenario_receive(&s.b, 2, 100);
    post((struct work){.kind = WORK_SEND, .id = 1, .length = 100});
    scenario_run(&s);
    expect_trace(&s, "0us A>B SEND_ONLY psn=7 duplicated\n"
                     "1us B>A ACK psn=7\n"
                     "1us B receive 1 success length=100\n"
                     "2us A send 1 success\n"
                     "2.435us B>A ACK psn=7\n"
                     "3.435us A drops psn\n");
}

/* An acknowledgement that comes again changes nothing. */
static void ghost_acknowledgement(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_rule(&s, "B>A ACK psn=7", FATE_DUPLICATED, 1);
    post_write(1, 64);
    scenario_run(&s);
    post_write(2, 64);
    scenario_run(&s);
    expect_trace(&s, "0us A>B WRITE_ONLY psn=7 length=64\n"
                     "1us B>A ACK psn=7 duplicated\n"
                     "2us A send 1 success\n"
                     "3.571us A drops psn\n"
                     "1048.576us A>B WRITE_ONLY psn=8 length=64\n"
                     "1049.576us B>A ACK psn=8\n"
                     "1050.576us A send 2 success\n");
}

/* A packet that was overtaken is asked for; when it comes by itself too, it is a duplicate. */
static void late_packet(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_rule(&s, "A>B WRITE_FIRST psn=7", FATE_DELAYED, 1);
    post_write(1, 600);
    scenario_run(&s);
    expect_trace(&s, "0us A>B WRITE_FIRST psn=7 length=600 delayed\n"
                     "0us A>B WRITE_MIDDLE psn=8\n"
                     "0us A>B WRITE_LAST psn=9\n"
                     "1us B>A NAK sequence psn=7\n"
                     "2us A>B WRITE_FIRST psn=7 length=600\n"
                     "2us A>B WRITE_MIDDLE psn=8\n"
                     "2us A>B WRITE_LAST psn=9\n"
                     "3us B>A ACK psn=9\n"
                     "3.153us B>A ACK psn=9\n"
                     "4us A send 1 success\n"
                     "4.153us A drops psn\n");
    expect_equal_bytes(&s.a, &s.b, 0, 600);
}

/* A frame with a wrong ICRC was never there. */
static void corrupted_packet(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_rule(&s, "A>B WRITE_MIDDLE psn=8", FATE_CORRUPTED, 1);
    post_write(1, 600);
    scenario_run(&s);
    expect_trace(&s, "0us A>B WRITE_FIRST psn=7 length=600\n"
                     "0us A>B WRITE_MIDDLE psn=8 corrupted\n"
                     "0us A>B WRITE_LAST psn=9\n"
                     "1us B drops icrc\n"
                     "1us B>A NAK sequence psn=8\n"
                     "2us A>B WRITE_MIDDLE psn=8\n"
                     "2us A>B WRITE_LAST psn=9\n"
                     "3us B>A ACK psn=9\n"
                     "4us A send 1 success\n");
    expect_equal_bytes(&s.a, &s.b, 0, 600);
}

/* Behind 16777215 comes 0, also when the packets around it are lost. */
static void psn_wraps(void **state)
{
    (void)state;
    s.a.attributes.send_psn.value = 16777214;
    scenario_connect(&s);
    scenario_lose(&s, "A>B WRITE_MIDDLE psn=0");
    post_write(1, 1000);
    scenario_run(&s);
    expect_trace(&s, "0us A>B WRITE_FIRST psn=16777214 length=1000\n"
                     "0us A>B WRITE_MIDDLE psn=16777215\n"
                     "0us A>B WRITE_MIDDLE psn=0 lost\n"
                     "0us A>B WRITE_LAST psn=1\n"
                     "1us B>A NAK sequence psn=0\n"
                     "2us A>B WRITE_MIDDLE psn=0\n"
                     "2us A>B WRITE_LAST psn=1\n"
                     "3us B>A ACK psn=1\n"
                     "4us A send 1 success\n");
    expect_equal_bytes(&s.a, &s.b, 0, 1000);
}

/* What arrived together is acknowledged together. */
static void acknowledgements_coalesce(void **state)
{
    (void)state;
    scenario_connect(&s);
    for (uint64_t id = 1; id <= 4; id++) {
        post((struct work){.kind = WORK_WRITE, .id = id, .length = 64, .unsignaled = id < 4});
    }
    scenario_run(&s);
    expect_trace(&s, "0us A>B WRITE_ONLY psn=7 length=64\n"
                     "0us A>B WRITE_ONLY psn=8 length=64\n"
                     "0us A>B WRITE_ONLY psn=9 length=64\n"
                     "0us A>B WRITE_ONLY psn=10 length=64\n"
                     "1us B>A ACK psn=10\n"
                     "2us A send 4 success\n");
}

/* A packet that the sink did not take leaves when there is room; no PSN is lost or used twice. */
static void sink_full(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_rule(&s, "A>B WRITE_MIDDLE psn=8", FATE_REFUSED, 2);
    scenario_rule(&s, "B>A ACK psn=9", FATE_REFUSED, 1);
    post_write(1, 600);
    scenario_run(&s);
    expect_trace(&s, "0us A>B WRITE_FIRST psn=7 length=600\n"
                     "0.200us A>B WRITE_MIDDLE psn=8\n"
                     "0.200us A>B WRITE_LAST psn=9\n"
                     "1.400us B>A ACK psn=9\n"
                     "2.400us A send 1 success\n");
    expect_equal_bytes(&s.a, &s.b, 0, 600);
}

/* Which is full nearly always: a long message does not go on for ever before another's. */
static void a_full_sink_begins_no_turn_anew(void **state)
{
    (void)state;
    struct link_config link = {.delay_ns = 1000, .refuse = 900000};
    network_set_links(&s.network, &link);
    scenario_connect(&s);
    scenario_add_pair(&s, 0);
    post_write(1, SCENARIO_BYTES);
    scenario_change_pair(&s, 0);
    post_write(2, 64);
    scenario_change_pair(&s, 0);
    scenario_run(&s);
    const char *other = strstr(s.text, "WRITE_ONLY");
    assert_non_null(other);
    unsigned before = 0;
    for (const char *at = s.text; (at = strstr(at, "A>B WRITE_MIDDLE")) != NULL && at < other;
         at++) {
        before++;
    }
    assert_in_range(before, 1, 32);
}

/* Silence: retry_count repetitions, one timeout apart, then the failure and the flushes in order.
 */
static void retry_exceeded(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_rule(&s, "A>B WRITE_ONLY", FATE_LOST, 100);
    post_write(1, 64);
    post((struct work){.kind = WORK_WRITE, .id = 2, .length = 64, .unsignaled = true});
    post((struct work){.kind = WORK_READ, .id = 3, .length = 64});
    scenario_receive(&s.a, 1, 64);
    scenario_rule(&s, "A>B READ_REQUEST", FATE_LOST, 100);
    scenario_run(&s);
    expect_trace(&s, "0us A>B WRITE_ONLY psn=7 length=64 lost\n"
                     "0us A>B WRITE_ONLY psn=8 length=64 lost\n"
                     "0us A>B READ_REQUEST psn=9 length=64 lost\n"
                     "1048.576us A>B WRITE_ONLY psn=7 length=64 lost\n"
                     "1048.576us A>B WRITE_ONLY psn=8 length=64 lost\n"
                     "2097.152us A>B WRITE_ONLY psn=7 length=64 lost\n"
                     "2097.152us A>B WRITE_ONLY psn=8 length=64 lost\n"
                     "3145.728us A>B WRITE_ONLY psn=7 length=64 lost\n"
                     "3145.728us A>B WRITE_ONLY psn=8 length=64 lost\n"
                     "4194.304us A send 1 retry exceeded\n"
                     "4194.304us A send 2 flushed\n"
                     "4194.304us A send 3 flushed\n"
                     "4194.304us A receive 1 flushed\n");
    assert_int_equal(qp_current_state(s.a.qp), QP_ERROR);
}

/* Who only READs asks, too. */
static void a_gap_in_responses_makes_them_agree(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_lose(&s, "B>A READ_RESPONSE_FIRST psn=7");
    scenario_lose(&s, "B>A READ_RESPONSE_MIDDLE psn=12");
    post((struct work){.kind = WORK_READ, .id = 1, .length = 1024});
    scenario_run(&s);
    post((struct work){.kind = WORK_READ, .id = 2, .length = 1024});
    scenario_run(&s);
    expect_trace(&s, "0us A>B READ_REQUEST psn=7 length=1024\n"
                     "1us B>A READ_RESPONSE_FIRST psn=7 lost\n"
                     "1us B>A READ_RESPONSE_MIDDLE psn=8\n"
                     "1us B>A READ_RESPONSE_MIDDLE psn=9\n"
                     "1us B>A READ_RESPONSE_LAST psn=10\n"
                     "2us A>B REPORT psn=99 expected=100 asks\n"
                     "2us A>B READ_REQUEST psn=7 length=1024\n"
                     "3us B>A READ_RESPONSE_FIRST psn=7\n"
                     "3us B>A READ_RESPONSE_MIDDLE psn=8\n"
                     "3us B>A READ_RESPONSE_MIDDLE psn=9\n"
                     "3us B>A READ_RESPONSE_LAST psn=10\n"
                     "3us B>A REPORT psn=6 expected=11\n"
                     "4us A send 1 success\n"
                     "A>B READ_REQUEST psn=11 length=1024\n"
                     "B>A READ_RESPONSE_FIRST psn=11\n"
                     "B>A READ_RESPONSE_MIDDLE psn=12 lost\n"
                     "B>A READ_RESPONSE_MIDDLE psn=13\n"
                     "B>A READ_RESPONSE_LAST psn=14\n"
                     "A>B READ_REQUEST psn=12 length=256\n"
                     "B>A READ_RESPONSE_ONLY psn=12\n"
                     "A send 2 success\n");
    expect_equal_bytes(&s.a, &s.b, 0, 1024);
}

/* The peer has counted for long when repair begins. What it counts from then on makes patient. */
static void duplicates_are_heeded_from_whatever_count(void **state)
{
    (void)state;
    scenario_connect(&s);
    scenario_lose(&s, "A>B WRITE_FIRST psn=7");
    post_write(1, 600);
    scenario_run(&s);
    selective_end(s.a.qp);
    s.b.qp->selective->duplicates = 40000;
    scenario_lose(&s, "A>B WRITE_ONLY psn=10");
    post_write(2, 64);
    post_write(3, 64);
    scenario_run(&s);
    const struct scoreboard *board = &s.a.qp->selective->board;
    assert_int_equal(board->leniency, 2);
    scenario_rule(&s, "A>B WRITE_ONLY psn=12", FATE_DUPLICATED, 1);
    post_write(4, 64);
    scenario_run(&s);
    assert_int_equal(board->leniency, 4);
    forget_trace(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_lost, start, stop),
        cmocka_unit_test_setup_teardown(first_lost, start, stop),
        cmocka_unit_test_setup_teardown(middle_lost, start, stop),
        cmocka_unit_test_setup_teardown(last_lost, start, stop),
        cmocka_unit_test_setup_teardown(acknowledgement_lost, start, stop),
        cmocka_unit_test_setup_teardown(sequence_nak_once, start, stop),
        cmocka_unit_test_setup_teardown(repeated_packet_lost_too, start, stop),
        cmocka_unit_test_setup_teardown(duplicated_request, start, stop),
        cmocka_unit_test_setup_teardown(ghost_acknowledgement, start, stop),
        cmocka_unit_test_setup_teardown(late_packet, start, stop),
        cmocka_unit_test_setup_teardown(corrupted_packet, start, stop),
        cmocka_unit_test_setup_teardown(psn_wraps, start, stop),
        cmocka_unit_test_setup_teardown(acknowledgements_coalesce, start, stop),
        cmocka_unit_test_setup_teardown(sink_full, start, stop),
        cmocka_unit_test_setup_teardown(a_full_sink_begins_no_turn_anew, start, stop),
        cmocka_unit_test_setup_teardown(a_gap_in_responses_makes_them_agree, start_selective, stop),
        cmocka_unit_test_setup_teardown(duplicates_are_heeded_from_whatever_count, start_selective,
                                        stop),
        cmocka_unit_test_setup_teardown(retry_exceeded, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
