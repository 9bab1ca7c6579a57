/* Stays while a stream goes on, not for ever, and ever shorter where nothing comes. */
#include "rnic/io/stay.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define LOOK_NS 500u

static struct instant now;

/* How long a stay lasts in which nothing comes. */
static uint64_t idle_stay_ns(struct stay *stay)
{
    struct instant began = now;
    assert_true(stay_begin(stay, now, 15));
    do {
        now = instant_after(now, LOOK_NS);
    } while (stay_on(stay, now, 0));
    return instant_elapsed_ns(began, now);
}

static void single_packets_are_no_stream(void **state)
{
    struct stay stay;
    stay_init(&stay);
    assert_false(stay_begin(&stay, now, 0));
    assert_false(stay_begin(&stay, now, 2));
    assert_true(stay_begin(&stay, now, 15));
    /* A packet now and then does not keep the thread. */
    int looks = 0;
    do {
        now = instant_after(now, 20000);
    } while (stay_on(&stay, now, 1) && ++looks < 100);
    assert_in_range(looks, 1, 6);
}

static void patience_is_learned(void **state)
{
    struct stay stay;
    stay_init(&stay);
    uint64_t first = idle_stay_ns(&stay);
    assert_in_range(first, 20000, 100000);
    uint64_t before = first;
    for (int i = 0; i < 4; i++) {
        uint64_t next = idle_stay_ns(&stay);
        assert_true(next <= before / 2 + LOOK_NS);
        before = next;
    }
    for (int i = 0; i < 20; i++) {
        before = idle_stay_ns(&stay);
    }
    assert_in_range(before, LOOK_NS, 2000); /* one look is always worth it */

    assert_true(stay_begin(&stay, now, 15));
    for (int i = 0; i < 10; i++) {
        now = instant_after(now, LOOK_NS);
        assert_true(stay_on(&stay, now, 15));
    }
    do {
        now = instant_after(now, LOOK_NS);
    } while (stay_on(&stay, now, 0));
    assert_true(idle_stay_ns(&stay) >= first / 2);
}

static void a_long_stream_ends_the_stay(void **state)
{
    struct stay stay;
    struct instant began = now;
    stay_init(&stay);
    assert_true(stay_begin(&stay, now, 15));
    do {
        now = instant_after(now, 10000);
    } while (stay_on(&stay, now, 15) && instant_elapsed_ns(began, now) < 1000000000);
    assert_in_range(instant_elapsed_ns(began, now), 1000000, 10000000);
    uint64_t rest = idle_stay_ns(&stay);
    assert_in_range(rest, 20000, 100000); /* that taught no impatience */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(single_packets_are_no_stream),
        cmocka_unit_test(patience_is_learned),
        cmocka_unit_test(a_long_stream_ends_the_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
