/* What CNPs do to the rate, how it comes back, and its floor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rnic/transport/rate.h"

#define PACKET 4096u
#define SPEED  UINT64_C(125000) /* of the application: bytes per millisecond */

static struct instant now;

/* As fast as it may, but not above SPEED; bytes per millisecond. */
static uint64_t run(struct rate *rate, uint64_t duration_ns, uint64_t cnp_every_ns)
{
    struct instant start = now, end = instant_after(now, duration_ns), cnp = now;
    uint64_t bytes = 0;
    while (instant_before(now, end)) {
        if (cnp_every_ns != 0 && !instant_before(now, cnp)) {
            rate_congested(rate, now, 0);
            cnp = instant_after(cnp, cnp_every_ns);
        }
        if (rate_may_send(rate, now)) {
            rate_sent(rate, now, PACKET);
            bytes += PACKET;
        }
        now = instant_after(now, PACKET * UINT64_C(1000000) / SPEED);
    }
    return bytes * 1000000 / instant_elapsed_ns(start, now);
}

static void start(struct rate *rate)
{
    now = (struct instant){5000000000};
    rate_reset(rate);
    assert_in_range(run(rate, 10000000, 0), SPEED * 99 / 100, SPEED * 101 / 100);
    assert_int_equal(rate->current, 0);
}

static void the_first_halves_what_was_measured(void **state)
{
    (void)state;
    struct rate rate;
    start(&rate);
    rate_congested(&rate, now, 0);
    assert_in_range(rate.current, SPEED * 45 / 100, SPEED * 55 / 100);
}

static void what_leaves_is_the_rate(void **state)
{
    (void)state;
    struct rate rate;
    start(&rate);
    rate_congested(&rate, now, 0);
    assert_in_range(run(&rate, 250000, 0), SPEED * 35 / 100, SPEED * 75 / 100);
}

static void closer_ones_are_one(void **state)
{
    (void)state;
    struct rate rate;
    start(&rate);
    rate_congested(&rate, now, 0);
    uint64_t once = rate.current;
    now = instant_after(now, RATE_REDUCE_NS - 1);
    rate_congested(&rate, now, 0);
    assert_int_equal(rate.current, once);
    now = instant_after(now, 1);
    rate_congested(&rate, now, 0);
    assert_true(rate.current < once);
}

/* A burst after silence: it is the burst that is halved, not the silence. */
static void silence_before_is_not_measured(void **state)
{
    (void)state;
    struct rate rate;
    start(&rate);
    now = instant_after(now, 1000000000);
    for (int i = 0; i < 32; i++) {
        rate_sent(&rate, now, PACKET);
        now = instant_after(now, 4000);
    }
    rate_congested(&rate, now, 0);
    assert_in_range(rate.current, 32 * PACKET * 5 / 2, 32 * PACKET * 8);
}

static void without_more_it_comes_back(void **state)
{
    (void)state;
    struct rate rate;
    start(&rate);
    rate_congested(&rate, now, 0);
    (void)run(&rate, 1600000, 0); /* five rounds of 300 us */
    assert_in_range(rate.current, SPEED * 90 / 100, SPEED * 101 / 100);
    (void)run(&rate, 100000000, 0);
    assert_int_equal(rate.current, 0); /* no limit */
}

/* After a long silence, too: nobody looked at the clock meanwhile. */
static void silence_lifts_it(void **state)
{
    (void)state;
    struct rate rate;
    start(&rate);
    rate_congested(&rate, now, 0);
    now = instant_after(now, UINT64_C(3600000000000));
    assert_true(rate_may_send(&rate, now));
    assert_int_equal(rate.current, 0);
}

/* Somebody forges one after another. */
static void it_never_stops(void **state)
{
    (void)state;
    struct rate rate;
    start(&rate);
    (void)run(&rate, 20000000, 10000);
    assert_in_range(run(&rate, 100000000, 10000), RATE_FLOOR * 90 / 100, RATE_FLOOR * 2);
}

static void one_that_never_sent_is_not_stopped(void **state)
{
    (void)state;
    struct rate rate;
    now = (struct instant){5000000000};
    rate_reset(&rate);
    rate_congested(&rate, now, 0);
    assert_int_equal(rate.current, RATE_FLOOR);
    assert_true(rate_may_send(&rate, now));
}

/* Rare marks take little off, frequent ones much: that is alpha's work. */
static void rare_ones_weigh_less(void **state)
{
    (void)state;
    struct rate rare, frequent;
    start(&rare);
    (void)run(&rare, 50000000, 2000000);
    uint32_t calm = rare.alpha;
    start(&frequent);
    (void)run(&frequent, 50000000, 60000);
    assert_true(frequent.alpha > 2 * calm);
    assert_true(frequent.current < rare.current / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_halves_what_was_measured),
        cmocka_unit_test(what_leaves_is_the_rate),
        cmocka_unit_test(closer_ones_are_one),
        cmocka_unit_test(silence_before_is_not_measured),
        cmocka_unit_test(without_more_it_comes_back),
        cmocka_unit_test(silence_lifts_it),
        cmocka_unit_test(it_never_stops),
        cmocka_unit_test(one_that_never_sent_is_not_stopped),
        cmocka_unit_test(rare_ones_weigh_less),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
