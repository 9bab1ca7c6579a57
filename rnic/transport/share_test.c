/* The window grows and shrinks as CUBIC's does, spares ways that lose by themselves, and fills no
 * queue beyond its bound. */
#include "rnic/transport/share.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MS    UINT64_C(1000000)
#define START 262144u
#define LIMIT 6291456u

static struct share share;
static struct instant now;

static int start(void **state)
{
    (void)state;
    now = (struct instant){1000 * MS};
    share_init(&share, now, 1024, START, START, LIMIT);
    return 0;
}

/* So many round trips, each with a window of bytes. */
static void rounds(uint32_t count, uint64_t round_trip_ns)
{
    for (uint32_t i = 0; i < count; i++) {
        now.ns += round_trip_ns;
        share_measured(&share, now, round_trip_ns);
        share_delivered(&share, now, share.window, true);
    }
}

static void lose(void)
{
    share_lost(&share, now, 1024, now);
}

static void it_grows_to_the_product_of_a_long_way(void **state)
{
    (void)state;
    rounds(6, 10 * MS);
    assert_int_equal(share.window, LIMIT);
}

static void it_does_not_grow_into_a_queue(void **state)
{
    (void)state;
    rounds(1, 20000); /* the way is short */
    rounds(50, 300000);
    assert_in_range(share.window, START, 4 * START);
}

static void nothing_grows_that_is_not_used(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 10; i++) {
        share_delivered(&share, now, 1024, false);
    }
    assert_int_equal(share.window, START);
}

static void a_loss_shrinks_it_once(void **state)
{
    (void)state;
    rounds(1, 10 * MS);
    rounds(1, 12 * MS);
    uint32_t before = share.window;
    struct instant left = {now.ns - 5 * MS};
    share_lost(&share, now, 1024, left);
    assert_int_equal(share.window, before / 4 * 3);
    share_lost(&share, now, 1024, left);
    assert_int_equal(share.window, before / 4 * 3);
}

static void it_is_back_at_its_peak_in_cubic_time(void **state)
{
    (void)state;
    rounds(1, 10 * MS);
    rounds(1, 12 * MS);
    uint32_t peak = share.window;
    lose();
    uint64_t climb_ms = share.climb_ms;
    rounds((uint32_t)(climb_ms / 12) + 2, 12 * MS);
    assert_in_range(share.window, peak - peak / 50, peak + peak / 4);
}

/* Again before it has grown back, and the round trip is the shortest there was. */
static void losses_without_a_queue_are_the_ways(void **state)
{
    (void)state;
    rounds(3, 10 * MS);
    uint32_t before = share.window;
    lose();
    rounds(2, 10 * MS);
    lose();
    assert_in_range(share.window, before, LIMIT);
    rounds(1, 10 * MS);
    lose();
    assert_in_range(share.window, before, LIMIT);
}

static void losses_with_a_queue_are_ours(void **state)
{
    (void)state;
    rounds(3, 10 * MS);
    for (uint32_t i = 0; i < 3; i++) {
        rounds(6, 15 * MS);
        lose();
    }
    assert_in_range(share.window, LIMIT / 8, LIMIT / 2);
}

/* One in ten is congestion, whatever the round trip says. */
static void many_losses_are_ours(void **state)
{
    (void)state;
    rounds(3, 10 * MS);
    lose();
    uint32_t before = share.window;
    rounds(2, 10 * MS);
    share_lost(&share, now, share.window, now);
    assert_in_range(share.window, before / 2, before - 1);
}

static void silence_shrinks_it_to_the_least(void **state)
{
    (void)state;
    share_timed_out(&share, now);
    assert_int_equal(share.window, 2048);
    rounds(2, 10 * MS);
    assert_in_range(share.window, 4096, 16384);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(it_grows_to_the_product_of_a_long_way, start),
        cmocka_unit_test_setup(it_does_not_grow_into_a_queue, start),
        cmocka_unit_test_setup(nothing_grows_that_is_not_used, start),
        cmocka_unit_test_setup(a_loss_shrinks_it_once, start),
        cmocka_unit_test_setup(it_is_back_at_its_peak_in_cubic_time, start),
        cmocka_unit_test_setup(losses_without_a_queue_are_the_ways, start),
        cmocka_unit_test_setup(losses_with_a_queue_are_ours, start),
        cmocka_unit_test_setup(many_losses_are_ours, start),
        cmocka_unit_test_setup(silence_shrinks_it_to_the_least, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
