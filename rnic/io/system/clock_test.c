/* The quick clock is the kernel's, give or take little, and never goes back. */
#include "rnic/io/system/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#define READINGS 300000u
#define WRONG_NS 50000u
#define AWAY_NS  5000u

static void it_keeps_to_the_kernel_s(void **state)
{
    struct quick_clock clock = {0};
    struct instant last = {0};
    bool knows_rate = false;
    for (uint32_t i = 0; i < READINGS; i++) {
        struct instant before = clock_now();
        struct instant now = quick_clock_now(&clock);
        struct instant after = clock_now();
        assert_false(instant_before(now, last));
        assert_true(instant_elapsed_ns(now, before) < WRONG_NS);
        assert_true(instant_elapsed_ns(after, now) < WRONG_NS);
        last = now;
        knows_rate |= clock.rate != 0;
    }
#if defined __x86_64__
    assert_true(knows_rate);
#endif
}

/* Another processor's counter, or another machine's. */
static void a_counter_that_jumps_is_not_believed(void **state)
{
    struct quick_clock clock = {0};
    for (uint32_t i = 0; i < READINGS; i++) {
        struct instant before = clock_now();
        struct instant now = quick_clock_now(&clock);
        assert_true(instant_elapsed_ns(now, before) < WRONG_NS);
        if (i % 1000 == 0) {
            uint64_t jump = UINT64_C(1) << (20 + i / 1000 % 40);
            jump = i % 2000 == 0 ? jump : -jump;
            clock.ticks += jump;
            clock.first_ticks += jump;
        }
        assert_true(instant_elapsed_ns(clock_now(), now) < WRONG_NS);
    }
}

#if defined __x86_64__
/* The thread was away for some microseconds between the counter and the kernel's clock. */
static void nothing_goes_on_from_an_interrupted_reading(void **state)
{
    struct quick_clock clock = {0};
    for (uint32_t i = 0; i < READINGS; i++) {
        (void)quick_clock_now(&clock);
    }
    assert_int_not_equal(clock.rate, 0);
    uint64_t before = __builtin_ia32_rdtsc();
    struct instant began = clock_now(), read = began;
    while (instant_elapsed_ns(began, read) < AWAY_NS) {
        read = clock_now();
    }
    quick_clock_set(&clock, before, read, __builtin_ia32_rdtsc());
    struct instant given = quick_clock_now(&clock);
    assert_false(instant_before(clock_now(), given));
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_keeps_to_the_kernel_s),
        cmocka_unit_test(a_counter_that_jumps_is_not_believed),
#if defined __x86_64__
        cmocka_unit_test(nothing_goes_on_from_an_interrupted_reading),
#endif
    };
    return cmocka_run_group_tests_name("clock", tests, NULL, NULL);
}
