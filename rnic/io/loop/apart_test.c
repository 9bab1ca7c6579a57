/* Leaves where it is crowded for some time, and comes back. */
#include "rnic/io/loop/apart.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define RING_NS 13000u /* a record of 64 KiB */

static struct instant now;

static enum apart_step ring(struct apart *apart, bool crowded)
{
    now = instant_after(now, RING_NS);
    return apart_next(apart, now, crowded);
}

/* How many crowded rings it bears. */
static int bears(struct apart *apart)
{
    int rings = 0;
    while (ring(apart, true) != APART_LEAVE && rings < 100) {
        rings++;
    }
    return rings;
}

static void leaves_when_crowded_again_and_again(void **state)
{
    struct apart apart = {0};
    assert_in_range(bears(&apart), 2, 8);
}

static void bears_chance_meetings(void **state)
{
    struct apart apart = {0};
    for (int i = 0; i < 100; i++) {
        assert_int_equal(ring(&apart, true), APART_STAY);
        assert_int_equal(ring(&apart, true), APART_STAY);
        assert_int_equal(ring(&apart, false), APART_STAY);
    }
}

static void returns_once_after_a_while(void **state)
{
    struct apart apart = {0};
    (void)bears(&apart);
    struct instant left = now;
    while (ring(&apart, false) == APART_STAY) {
        assert_true(instant_elapsed_ns(left, now) < 100000000);
    }
    assert_true(instant_elapsed_ns(left, now) >= 5000000);
    for (int i = 0; i < 2000; i++) {
        assert_int_equal(ring(&apart, false), APART_STAY);
    }
}

/* The sender has come along. */
static void leaves_its_new_place_too(void **state)
{
    struct apart apart = {0};
    (void)bears(&apart);
    assert_in_range(bears(&apart), 2, 8);
    assert_true(apart.is_away);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaves_when_crowded_again_and_again),
        cmocka_unit_test(bears_chance_meetings),
        cmocka_unit_test(returns_once_after_a_while),
        cmocka_unit_test(leaves_its_new_place_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
