/* How the window shrinks and grows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "weir/rpc/window.h"

static void test_halves_once_for_a_moment(void **state)
{
    struct window window;
    window_init(&window, 32);
    assert_int_equal(window.size, 32);
    for (uint64_t sent = 0; sent < 32; sent++) { /* all in flight hear BUSY */
        window_busy(&window, sent, 32);
        assert_int_equal(window.size, 16);
    }
    window_busy(&window, 32, 40);
    assert_int_equal(window.size, 8);
    window_busy(&window, 39, 40);
    assert_int_equal(window.size, 8);
}

static void test_bounds(void **state)
{
    struct window window;
    window_init(&window, 5);
    for (uint64_t sent = 0; sent < 10; sent++) {
        window_busy(&window, sent, sent + 1);
    }
    assert_int_equal(window.size, 1);
    for (unsigned answers = 0; answers < 100; answers++) {
        window_answered(&window);
    }
    assert_int_equal(window.size, 5);
}

static void test_grows_by_one_for_each_round(void **state)
{
    struct window window;
    window_init(&window, 16);
    window_busy(&window, 0, 1);
    for (unsigned size = 8; size < 16; size++) {
        for (unsigned answers = 0; answers < size; answers++) {
            assert_int_equal(window.size, size);
            window_answered(&window);
        }
    }
    assert_int_equal(window.size, 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_halves_once_for_a_moment),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_grows_by_one_for_each_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
