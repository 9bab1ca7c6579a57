/* Which of several debts is paid. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rnic/transport/acknowledge.h"
#include "rnic/wire/psn.h"

static void an_acknowledgement_is_owed_when_asked_for(void **state)
{
    struct acknowledge acknowledge;
    acknowledge_reset(&acknowledge);
    acknowledge_executed(&acknowledge, false, false);
    assert_int_equal(acknowledge.owed, OWED_NOTHING);
    acknowledge_executed(&acknowledge, true, false);
    assert_int_equal(acknowledge.owed, OWED_ACK);
    acknowledge_paid(&acknowledge);
    assert_int_equal(acknowledge.owed, OWED_NOTHING);
    int packets = 0;
    while (acknowledge.owed == OWED_NOTHING) {
        acknowledge_executed(&acknowledge, false, false);
        packets++;
    }
    assert_in_range(packets, 2, 64);
}

/* How many packets of a message make an acknowledgement due, if the peer asks each `distance`. */
static uint32_t unasked_after(uint32_t distance)
{
    struct acknowledge acknowledge;
    acknowledge_reset(&acknowledge);
    for (uint32_t i = 1; i <= 3 * distance; i++) {
        acknowledge_executed(&acknowledge, i % distance == 0, false);
        acknowledge_paid(&acknowledge);
    }
    uint32_t packets = 0;
    while (acknowledge.owed == OWED_NOTHING) {
        acknowledge_executed(&acknowledge, false, false);
        packets++;
    }
    return packets;
}

/* The kernel's asks each 66, and stops 128 behind what is acknowledged: one that is lost must not
 * be all it gets. */
static void who_asks_late_has_room(void **state)
{
    assert_in_range(unasked_after(66), 2, 64);
    assert_in_range(unasked_after(128), 2, 64);
    assert_in_range(unasked_after(256), 128, 256);
    struct acknowledge acknowledge;
    acknowledge_reset(&acknowledge);
    for (uint32_t i = 1; i <= 300; i++) { /* the end of a message says nothing */
        acknowledge_executed(&acknowledge, i == 300, i == 300);
        acknowledge_paid(&acknowledge);
    }
    assert_false(acknowledge.asks_late);
}

/* What is kept behind a gap is no news, unless the peer asks or it grows too much. */
static void what_is_kept_waits_to_be_asked_for(void **state)
{
    struct acknowledge acknowledge;
    acknowledge_reset(&acknowledge);
    for (int i = 0; i < 32; i++) {
        acknowledge_kept(&acknowledge, false);
    }
    assert_int_equal(acknowledge.owed, OWED_NOTHING);
    acknowledge_kept(&acknowledge, true);
    assert_int_equal(acknowledge.owed, OWED_ACK);
    acknowledge_paid(&acknowledge);
    int packets = 0;
    while (acknowledge.owed == OWED_NOTHING) {
        acknowledge_kept(&acknowledge, false);
        packets++;
    }
    assert_in_range(packets, 33, 64);
}

static void a_gap_is_told_once(void **state)
{
    struct acknowledge acknowledge;
    acknowledge_reset(&acknowledge);
    assert_true(acknowledge_out_of_sequence(&acknowledge));
    assert_int_equal(acknowledge.owed, OWED_NAK_SEQUENCE);
    acknowledge_paid(&acknowledge);
    assert_false(acknowledge_out_of_sequence(&acknowledge));
    assert_int_equal(acknowledge.owed, OWED_NOTHING);
    acknowledge_executed(&acknowledge, true, false); /* the missing packet */
    assert_true(acknowledge_out_of_sequence(&acknowledge));
}

/* The missing packet came before the NAK had left. */
static void a_gap_that_closed_is_not_told(void **state)
{
    struct acknowledge acknowledge;
    acknowledge_reset(&acknowledge);
    (void)acknowledge_out_of_sequence(&acknowledge);
    acknowledge_executed(&acknowledge, false, false);
    assert_int_equal(acknowledge.owed, OWED_ACK);
}

/* Packets behind the one that found no receive are dropped in silence. */
static void after_an_rnr_nak_gaps_are_silent(void **state)
{
    struct acknowledge acknowledge;
    acknowledge_reset(&acknowledge);
    acknowledge_receiver_not_ready(&acknowledge);
    assert_int_equal(acknowledge.owed, OWED_RNR_NAK);
    assert_false(acknowledge_out_of_sequence(&acknowledge));
    assert_false(acknowledge_out_of_sequence(&acknowledge));
    assert_int_equal(acknowledge.owed, OWED_RNR_NAK);
}

/* ... but what the peer takes to be kept is asked for when that one has come, unless it has come,
 * too. */
static void what_is_left_out_behind_it_is_told_later(void **state)
{
    struct acknowledge acknowledge;
    acknowledge_reset(&acknowledge);
    acknowledge_receiver_not_ready(&acknowledge);
    acknowledge_left_out(&acknowledge, psn_make(0xffffff));
    acknowledge_left_out(&acknowledge, psn_make(2));
    acknowledge_left_out(&acknowledge, psn_make(1));
    acknowledge_paid(&acknowledge);
    acknowledge_executed(&acknowledge, false, false);
    assert_int_equal(acknowledge.owed, OWED_REST);
    acknowledge_rest(&acknowledge, psn_make(2));
    assert_int_equal(acknowledge.owed, OWED_NAK_SEQUENCE);
    acknowledge_paid(&acknowledge);
    assert_false(acknowledge_out_of_sequence(&acknowledge));
    acknowledge_executed_with_response(&acknowledge);
    assert_int_equal(acknowledge.owed, OWED_NOTHING);

    acknowledge_left_out(&acknowledge, psn_make(4)); /* behind one that is missing ... */
    (void)acknowledge_out_of_sequence(&acknowledge);
    acknowledge_receiver_not_ready(&acknowledge); /* ... and then without a receive */
    acknowledge_executed_with_response(&acknowledge);
    acknowledge_executed_with_response(&acknowledge);
    assert_int_equal(acknowledge.owed, OWED_REST);
    acknowledge_rest(&acknowledge, psn_make(5));
    assert_int_equal(acknowledge.owed, OWED_ACK);
}

static void what_is_left_out_behind_a_gap_is_no_news(void **state)
{
    struct acknowledge acknowledge;
    acknowledge_reset(&acknowledge);
    acknowledge_left_out(&acknowledge, psn_make(4));
    (void)acknowledge_out_of_sequence(&acknowledge);
    acknowledge_paid(&acknowledge);
    acknowledge_executed(&acknowledge, true, false);
    assert_int_equal(acknowledge.owed, OWED_ACK);
    acknowledge_receiver_not_ready(&acknowledge);
    acknowledge_executed(&acknowledge, true, false);
    assert_int_equal(acknowledge.owed, OWED_ACK);
}

/* ... if the NAK has left. */
static void what_is_left_out_behind_a_gap_that_closed_is_told(void **state)
{
    struct acknowledge acknowledge;
    acknowledge_reset(&acknowledge);
    acknowledge_left_out(&acknowledge, psn_make(4));
    (void)acknowledge_out_of_sequence(&acknowledge);
    acknowledge_executed(&acknowledge, true, false);
    assert_int_equal(acknowledge.owed, OWED_REST);
    acknowledge_rest(&acknowledge, psn_make(4));
    assert_int_equal(acknowledge.owed, OWED_NAK_SEQUENCE);
}

static void a_failure_is_final(void **state)
{
    struct acknowledge acknowledge;
    acknowledge_reset(&acknowledge);
    acknowledge_executed(&acknowledge, true, false);
    acknowledge_fail(&acknowledge, NAK_REMOTE_ACCESS, psn_make(5));
    acknowledge_duplicate(&acknowledge);
    assert_int_equal(acknowledge.owed, OWED_NAK_FATAL);
    acknowledge_paid(&acknowledge);
    acknowledge_repeat_failure(&acknowledge);
    assert_int_equal(acknowledge.owed, OWED_NAK_FATAL);
    assert_int_equal(acknowledge.fatal_code, NAK_REMOTE_ACCESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_acknowledgement_is_owed_when_asked_for),
        cmocka_unit_test(who_asks_late_has_room),
        cmocka_unit_test(what_is_kept_waits_to_be_asked_for),
        cmocka_unit_test(a_gap_is_told_once),
        cmocka_unit_test(a_gap_that_closed_is_not_told),
        cmocka_unit_test(after_an_rnr_nak_gaps_are_silent),
        cmocka_unit_test(what_is_left_out_behind_it_is_told_later),
        cmocka_unit_test(what_is_left_out_behind_a_gap_is_no_news),
        cmocka_unit_test(what_is_left_out_behind_a_gap_that_closed_is_told),
        cmocka_unit_test(a_failure_is_final),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
