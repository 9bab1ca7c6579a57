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
    acknowledge_executed(&acknowledge, false);
    assert_int_equal(acknowledge.owed, OWED_NOTHING);
    acknowledge_executed(&acknowledge, true);
    assert_int_equal(acknowledge.owed, OWED_ACK);
    acknowledge_paid(&acknowledge);
    assert_int_equal(acknowledge.owed, OWED_NOTHING);
    int packets = 0;
    while (acknowledge.owed == OWED_NOTHING) {
        acknowledge_executed(&acknowledge, false);
        packets++;
    }
    assert_in_range(packets, 2, 64);
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
    acknowledge_executed(&acknowledge, true); /* the missing packet */
    assert_true(acknowledge_out_of_sequence(&acknowledge));
}

/* The missing packet came before the NAK had left. */
static void a_gap_that_closed_is_not_told(void **state)
{
    struct acknowledge acknowledge;
    acknowledge_reset(&acknowledge);
    (void)acknowledge_out_of_sequence(&acknowledge);
    acknowledge_executed(&acknowledge, false);
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

static void a_failure_is_final(void **state)
{
    struct acknowledge acknowledge;
    acknowledge_reset(&acknowledge);
    acknowledge_executed(&acknowledge, true);
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
        cmocka_unit_test(a_gap_is_told_once),
        cmocka_unit_test(a_gap_that_closed_is_not_told),
        cmocka_unit_test(after_an_rnr_nak_gaps_are_silent),
        cmocka_unit_test(a_failure_is_final),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
