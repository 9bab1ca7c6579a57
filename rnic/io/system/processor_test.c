/* A thread leaves its processor and comes back, and minds what others choose for it. */
#include "rnic/io/system/processor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static cpu_set_t all;

static cpu_set_t now_allowed(void)
{
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    return set;
}

static void allow(const cpu_set_t *set)
{
    assert_int_equal(sched_setaffinity(0, sizeof *set, set), 0);
}

static cpu_set_t only(uint32_t processor)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    return set;
}

static int setup(void **state)
{
    all = now_allowed();
    return 0;
}

static int teardown(void **state)
{
    allow(&all);
    return 0;
}

static void need_two(void)
{
    if (CPU_COUNT(&all) < 2) {
        skip();
    }
}

static void leaves_and_returns(void **state)
{
    need_two();
    for (int i = 0; i < 100; i++) {
        struct processor_absence absence = {0};
        cpu_set_t here = only(processor_here()), place;
        allow(&here);
        allow(&all);
        uint32_t before = processor_here();
        assert_true(processor_leave(&absence));
        /* Between the look at `before` and the leaving the scheduler may have moved us: what was
         * left is the one that we may not run on. */
        place = now_allowed();
        assert_int_equal(CPU_COUNT(&place), CPU_COUNT(&all) - 1);
        assert_true(CPU_ISSET(processor_here(), &place));
        if (!CPU_ISSET(before, &place)) {
            assert_int_not_equal(processor_here(), before);
        }
        processor_return(&absence);
        place = now_allowed();
        assert_true(CPU_EQUAL(&place, &all));
    }
}

static void leaves_one_at_a_time(void **state)
{
    need_two();
    struct processor_absence absence = {0};
    assert_true(processor_leave(&absence));
    assert_true(processor_leave(&absence)); /* the one before is allowed again */
    cpu_set_t place = now_allowed();
    assert_int_equal(CPU_COUNT(&place), CPU_COUNT(&all) - 1);
    processor_return(&absence);
    place = now_allowed();
    assert_true(CPU_EQUAL(&place, &all));
}

static void who_has_one_processor_stays(void **state)
{
    struct processor_absence absence = {0};
    cpu_set_t here = only(processor_here());
    allow(&here);
    assert_false(processor_leave(&absence));
    processor_return(&absence);
    cpu_set_t place = now_allowed();
    assert_true(CPU_EQUAL(&place, &here));
}

static void what_others_have_chosen_holds(void **state)
{
    need_two();
    struct processor_absence absence = {0};
    cpu_set_t here = only(processor_here());
    assert_true(processor_leave(&absence));
    allow(&here); /* as by taskset(1) */
    processor_return(&absence);
    cpu_set_t place = now_allowed();
    assert_true(CPU_EQUAL(&place, &here));

    assert_false(processor_leave(&absence));
    allow(&all);
    assert_true(processor_leave(&absence));
    processor_return(&absence);
    place = now_allowed();
    assert_true(CPU_EQUAL(&place, &all));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(leaves_and_returns, setup, teardown),
        cmocka_unit_test_setup_teardown(leaves_one_at_a_time, setup, teardown),
        cmocka_unit_test_setup_teardown(who_has_one_processor_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(what_others_have_chosen_holds, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
