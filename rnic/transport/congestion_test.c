/* The window's growth, its bounds, and what a loss does to it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rnic/transport/congestion.h"

#define LIMIT 262144u

static void it_grows_to_the_limit_and_no_further(void **state)
{
    struct congestion congestion;
    congestion_reset(&congestion, 1024, LIMIT);
    assert_true(congestion.window < LIMIT);
    for (uint32_t i = 0; i < 1000; i++) {
        congestion_acknowledged(&congestion, 4096, psn_make(i));
        assert_true(congestion.window <= LIMIT);
    }
    assert_int_equal(congestion.window, LIMIT);
}

static void a_loss_halves_once_per_window(void **state)
{
    struct congestion congestion;
    congestion_reset(&congestion, 1024, LIMIT);
    congestion.window = LIMIT;
    congestion_lost(&congestion, psn_make(100));
    assert_int_equal(congestion.window, LIMIT / 2);
    congestion_lost(&congestion, psn_make(120));
    congestion_acknowledged(&congestion, 1024, psn_make(99));
    assert_int_equal(congestion.window, LIMIT / 2);
    congestion_acknowledged(&congestion, 1024, psn_make(100));
    congestion_lost(&congestion, psn_make(130));
    assert_int_equal(congestion.window, LIMIT / 4);
}

/* Above the threshold: one packet per window. */
static void after_a_loss_it_grows_slowly(void **state)
{
    struct congestion congestion;
    congestion_reset(&congestion, 1024, LIMIT);
    congestion.window = 65536;
    congestion_lost(&congestion, psn_make(0));
    for (uint32_t i = 0; i < 32; i++) {
        congestion_acknowledged(&congestion, 1024, psn_make(i));
    }
    assert_int_equal(congestion.window, 32768 + 1024);
}

/* One acknowledgement may stand for a whole flight: it is worth what many are. */
static void one_acknowledgement_for_many_packets_is_worth_as_much(void **state)
{
    struct congestion many, one;
    congestion_reset(&many, 1024, LIMIT);
    many.window = 65536;
    congestion_timed_out(&many, psn_make(0)); /* the threshold is 32768 now */
    one = many;
    for (uint32_t i = 0; i < 30 + 100; i++) {
        congestion_acknowledged(&many, 1024, psn_make(i));
    }
    congestion_acknowledged(&one, (30 + 100) * 1024, psn_make(30 + 100));
    assert_int_equal(one.window, 32768 + 3 * 1024);
    assert_int_equal(one.window, many.window);
    assert_int_equal(one.credit, many.credit);
}

static void a_timeout_collapses_it(void **state)
{
    struct congestion congestion;
    congestion_reset(&congestion, 4096, LIMIT);
    congestion.window = LIMIT;
    congestion_timed_out(&congestion, psn_make(7));
    assert_int_equal(congestion.window, 8192);
    congestion_acknowledged(&congestion, 8192, psn_make(2));
    assert_int_equal(congestion.window, 16384);
    congestion_timed_out(&congestion, psn_make(7));
    congestion_timed_out(&congestion, psn_make(7));
    assert_int_equal(congestion.window, 8192);
}

/* The answer to what had been sent before the timeout came after all. */
static void a_timeout_for_nothing_is_forgotten(void **state)
{
    struct congestion congestion;
    congestion_reset(&congestion, 4096, LIMIT);
    congestion.window = LIMIT;
    congestion_timed_out(&congestion, psn_make(7));
    congestion_timed_out(&congestion, psn_make(7));
    congestion_not_lost(&congestion);
    assert_int_equal(congestion.window, LIMIT);
    congestion_timed_out(&congestion, psn_make(7));
    congestion_acknowledged(&congestion, 4096, psn_make(1));
    congestion_not_lost(&congestion);
    assert_int_equal(congestion.window, 12288);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_grows_to_the_limit_and_no_further),
        cmocka_unit_test(a_loss_halves_once_per_window),
        cmocka_unit_test(after_a_loss_it_grows_slowly),
        cmocka_unit_test(one_acknowledgement_for_many_packets_is_worth_as_much),
        cmocka_unit_test(a_timeout_collapses_it),
        cmocka_unit_test(a_timeout_for_nothing_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
