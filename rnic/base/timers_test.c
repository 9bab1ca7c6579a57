#include "rnic/base/timers.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "rnic/base/random.h"

static struct instant at(uint64_t ns)
{
    return (struct instant){ns};
}

static void equal_deadlines_in_order_of_setting(void **state)
{
    struct timers timers;
    struct timer timer[5] = {0};
    timers_init(&timers);
    assert_true(instant_is_never(timers_earliest(&timers)));
    for (int i = 0; i < 5; i++) {
        timers_set(&timers, &timer[i], at(10));
    }
    timers_set(&timers, &timer[1], at(10)); /* set again: now the last */
    assert_int_equal(timers_earliest(&timers).ns, 10);
    assert_null(timers_pop_due(&timers, at(9)));
    static const int expected[] = {0, 2, 3, 4, 1};
    for (int i = 0; i < 5; i++) {
        assert_ptr_equal(timers_pop_due(&timers, at(10)), &timer[expected[i]]);
        assert_false(timer_is_set(&timer[expected[i]]));
    }
    assert_null(timers_pop_due(&timers, at(10)));
}

static void cancel_and_never(void **state)
{
    struct timers timers;
    struct timer timer[3] = {0};
    timers_init(&timers);
    timers_cancel(&timers, &timer[0]);
    timers_set(&timers, &timer[0], INSTANT_NEVER);
    assert_false(timer_is_set(&timer[0]));
    timers_set(&timers, &timer[0], at(1));
    timers_set(&timers, &timer[1], at(2));
    timers_set(&timers, &timer[2], at(3));
    timers_cancel(&timers, &timer[1]);
    timers_set(&timers, &timer[0], INSTANT_NEVER);
    assert_ptr_equal(timers_pop_due(&timers, at(100)), &timer[2]);
    assert_true(instant_is_never(timers_earliest(&timers)));
}

/* Random settings, moves and cancellations against a search through all. */
static void agrees_with_a_search(void **state)
{
    enum {
        COUNT = 64
    };
    struct timers timers;
    struct timer timer[COUNT] = {0};
    uint64_t deadline[COUNT] = {0}, order[COUNT] = {0}, last_order = 0, now = 0;
    struct random random;
    random_seed(&random, 2);
    timers_init(&timers);
    for (int step = 0; step < 100000; step++) {
        uint64_t i = random_below(&random, COUNT);
        uint64_t choice = random_below(&random, 10);
        if (choice < 6) {
            deadline[i] = now + random_below(&random, 50);
            order[i] = ++last_order;
            timers_set(&timers, &timer[i], at(deadline[i]));
        } else if (choice < 8) {
            order[i] = 0;
            timers_cancel(&timers, &timer[i]);
        } else {
            now += random_below(&random, 10);
        }
        for (;;) {
            int first = -1;
            for (int j = 0; j < COUNT; j++) {
                if (order[j] != 0 && deadline[j] <= now &&
                    (first < 0 || deadline[j] < deadline[first] ||
                     (deadline[j] == deadline[first] && order[j] < order[first]))) {
                    first = j;
                }
            }
            assert_ptr_equal(timers_pop_due(&timers, at(now)), first < 0 ? NULL : &timer[first]);
            if (first < 0) {
                break;
            }
            order[first] = 0;
        }
    }
    assert_true(last_order > 50000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_deadlines_in_order_of_setting),
        cmocka_unit_test(cancel_and_never),
        cmocka_unit_test(agrees_with_a_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
