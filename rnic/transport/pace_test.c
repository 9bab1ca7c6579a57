/* The rate that comes out, what a complaint does to it, and its bounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rnic/transport/pace.h"

#define PACKET 4096u

/* Sends all it may for so long, woken when it asked to be; how many bytes left. */
static uint64_t run(struct pace *pace, struct instant *now, uint64_t duration_ns)
{
    struct instant end = instant_after(*now, duration_ns);
    uint64_t bytes = 0;
    while (instant_before(*now, end)) {
        if (pace_may_send(pace, *now)) {
            pace_sent(pace, *now, PACKET);
            bytes += PACKET;
        } else {
            assert_true(instant_before(*now, pace->throttle.resume));
            *now = pace->throttle.resume;
        }
    }
    return bytes;
}

static void what_leaves_is_the_rate(void **state)
{
    (void)state;
    struct instant now = {5000000000};
    struct pace pace;
    pace_reset(&pace);
    pace_complaint(&pace); /* so that it does not double */
    uint64_t rate = pace.rate;
    uint64_t bytes = run(&pace, &now, 100000000);
    assert_in_range(bytes, rate * 99, rate * 102);
    assert_int_equal(pace.rate, rate);
}

static void undisturbed_it_doubles_up_to_a_bound(void **state)
{
    (void)state;
    struct instant now = {5000000000};
    struct pace pace;
    pace_reset(&pace);
    uint64_t rate = pace.rate;
    (void)run(&pace, &now, 20000000);
    assert_true(pace.rate >= 8 * rate);
    uint64_t most = pace.rate;
    (void)run(&pace, &now, 20000000);
    assert_int_equal(pace.rate, most);
}

/* What was lost is asked for several times: by each request that was outstanding. */
static void complaints_about_one_flight_are_one(void **state)
{
    (void)state;
    struct instant now = {5000000000};
    struct pace pace;
    pace_reset(&pace);
    (void)run(&pace, &now, 20000000);
    pace_complaint(&pace);
    uint64_t rate = pace.rate;
    pace_complaint(&pace);
    assert_int_equal(pace.rate, rate);
    (void)run(&pace, &now, 10000000);
    pace_complaint(&pace);
    assert_int_equal(pace.rate, rate / 2);
}

static void it_never_stops(void **state)
{
    (void)state;
    struct instant now = {5000000000};
    struct pace pace;
    pace_reset(&pace);
    for (uint32_t i = 0; i < 50; i++) {
        (void)run(&pace, &now, 20000000);
        pace_complaint(&pace);
    }
    assert_true(pace.rate > 0);
    assert_true(run(&pace, &now, 100000000) > 10 * PACKET);
}

/* A pause is no credit for a flood. */
static void a_burst_is_bounded(void **state)
{
    (void)state;
    struct instant now = {5000000000};
    struct pace pace;
    pace_reset(&pace);
    pace_sent(&pace, now, PACKET);
    now = instant_after(now, 1000000000);
    uint64_t rate = pace.rate;
    uint64_t bytes = 0;
    while (pace_may_send(&pace, now)) {
        pace_sent(&pace, now, PACKET);
        bytes += PACKET;
    }
    assert_true(bytes <= rate / 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_leaves_is_the_rate),
        cmocka_unit_test(undisturbed_it_doubles_up_to_a_bound),
        cmocka_unit_test(complaints_about_one_flight_are_one),
        cmocka_unit_test(it_never_stops),
        cmocka_unit_test(a_burst_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
