#include "rnic/wire/psn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void wraps_at_24_bits(void **state)
{
    assert_int_equal(psn_next(psn_make(0xffffff)).value, 0);
    assert_int_equal(psn_add(psn_make(0xfffffe), 5).value, 3);
    assert_int_equal(psn_make(UINT32_MAX).value, 0xffffff);
}

static void distance_has_a_sign(void **state)
{
    assert_int_equal(psn_distance(psn_make(3), psn_make(3)), 0);
    assert_int_equal(psn_distance(psn_make(0xffffff), psn_make(1)), 2);
    assert_int_equal(psn_distance(psn_make(1), psn_make(0xffffff)), -2);
    assert_int_equal(psn_distance(psn_make(0), psn_make(0x7fffff)), 0x7fffff);
    assert_int_equal(psn_distance(psn_make(0), psn_make(0x800000)), -0x800000);
    assert_true(psn_before(psn_make(0xfffff0), psn_make(0x10)));
    assert_false(psn_before(psn_make(0x10), psn_make(0xfffff0)));
    assert_false(psn_before(psn_make(7), psn_make(7)));
    assert_true(psn_equal(psn_make(0x1000007), psn_make(7)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wraps_at_24_bits),
        cmocka_unit_test(distance_has_a_sign),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
