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

static void nothing_grows_by_the_clock_while_nothing_is_sent(void **state)
{
    (void)state;
    rounds(1, 10 * MS);
    rounds(1, 12 * MS);
    lose();
    rounds(100, 12 * MS);
    uint32_t before = share.window;
    now.ns += 60000 * MS;
    rounds(10, 12 * MS);
    assert_in_range(share.window, before, before + 20 * 1448);
}

/* Of messages with pauses between them: all of a window is acknowledged at once. */
static void what_is_used_now_and_then_grows(void **state)
{
    (void)state;
    rounds(1, 10 * MS);
    rounds(1, 12 * MS);
    lose();
    uint32_t before = share.window;
    for (uint32_t i = 0; i < 8; i++) {
        now.ns += 88 * MS;
        rounds(1, 12 * MS);
    }
    assert_in_range(share.window, before + 7 * 700, before + 8 * 800);
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

/* As of many flows that keep the queue of a short way full: each has but little under way. */
static void losses_of_a_small_window_are_ours(void **state)
{
    (void)state;
    share_init(&share, now, 1024, 32768, START, LIMIT);
    share.threshold = 32768;
    rounds(3, 10 * MS);
    uint32_t before = share.window;
    for (uint32_t i = 0; i < 3; i++) {
        lose();
        rounds(2, 10 * MS);
    }
    assert_in_range(share.window, before / 4, before / 4 * 3);
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

/* What a loss leaves, in percent, of a window of 16 KiB that loses a packet in each second round
 * trip. */
static uint32_t kept_where_much_is_lost(uint64_t base_ns, uint64_t round_trip_ns, uint32_t mtu)
{
    share_init(&share, now, mtu, 16384, START, LIMIT);
    share_measured(&share, now, base_ns);
    for (uint32_t i = 0; i < 400; i++) {
        share.window = 16384;
        rounds(2, round_trip_ns);
        lose();
    }
    share.window = 16384;
    rounds(1, round_trip_ns);
    uint32_t before = share.window;
    lose();
    return (share.window * 100 + before / 2) / before;
}

static void a_crowded_way_is_given_room(void **state)
{
    (void)state;
    assert_int_equal(kept_where_much_is_lost(50000, 700000, 1024), 50);
    assert_int_equal(kept_where_much_is_lost(50000, 200000, 1024), 75); /* that of processors */
    assert_int_equal(kept_where_much_is_lost(50000, 5 * MS, 1024),
                     75); /* a TCP holds its own there */
    assert_int_equal(kept_where_much_is_lost(600000, 700000, 1024), 75); /* half would empty it */
    assert_int_equal(kept_where_much_is_lost(50000, 700000, 4096), 80);
    share_init(&share, now, 1024, 16384, START, LIMIT);
    share_measured(&share, now, 700000);
    lose();
    assert_in_range(share.window, 16384 * 62 / 100, 16384 * 3 / 4); /* one loss makes no crowd */
}

static void what_is_crowded_grows_slowly(void **state)
{
    (void)state;
    (void)kept_where_much_is_lost(50000, 700000, 1024);
    uint32_t before = share.window;
    rounds(10, 700000);
    assert_in_range(share.window, before, before + 1448);
    (void)kept_where_much_is_lost(50000, 200000, 1024);
    before = share.window;
    rounds(10, 200000);
    assert_in_range(share.window, before + 3 * 1448, before + 7 * 1448);
}

static void silence_shrinks_it_to_the_least(void **state)
{
    (void)state;
    share_timed_out(&share, now);
    assert_int_equal(share.window, 2048);
    rounds(2, 10 * MS);
    assert_in_range(share.window, 4096, 16384);
}

/* The timer expires again and again until the way is there again. */
static void a_long_silence_shrinks_it_once(void **state)
{
    (void)state;
    rounds(2, 10 * MS);
    uint32_t before = share.window;
    for (uint32_t i = 0; i < 5; i++) {
        now.ns += 100 * MS;
        share_timed_out(&share, now);
        assert_int_equal(share.window, 2048);
    }
    rounds(12, 10 * MS);
    assert_in_range(share.window, before / 2, before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(it_grows_to_the_product_of_a_long_way, start),
        cmocka_unit_test_setup(it_does_not_grow_into_a_queue, start),
        cmocka_unit_test_setup(nothing_grows_that_is_not_used, start),
        cmocka_unit_test_setup(a_loss_shrinks_it_once, start),
        cmocka_unit_test_setup(it_is_back_at_its_peak_in_cubic_time, start),
        cmocka_unit_test_setup(nothing_grows_by_the_clock_while_nothing_is_sent, start),
        cmocka_unit_test_setup(what_is_used_now_and_then_grows, start),
        cmocka_unit_test_setup(losses_without_a_queue_are_the_ways, start),
        cmocka_unit_test_setup(losses_with_a_queue_are_ours, start),
        cmocka_unit_test_setup(losses_of_a_small_window_are_ours, start),
        cmocka_unit_test_setup(many_losses_are_ours, start),
        cmocka_unit_test_setup(a_crowded_way_is_given_room, start),
        cmocka_unit_test_setup(what_is_crowded_grows_slowly, start),
        cmocka_unit_test_setup(silence_shrinks_it_to_the_least, start),
        cmocka_unit_test_setup(a_long_silence_shrinks_it_once, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
