#include "rnic/base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void repeats_from_the_seed(void **state)
{
    struct random a, b, c;
    random_seed(&a, 7);
    random_seed(&b, 7);
    random_seed(&c, 8);
    int equal = 0;
    for (int i = 0; i < 100; i++) {
        uint64_t value = random_u64(&a);
        assert_true(value == random_u64(&b));
        equal += value == random_u64(&c);
    }
    assert_int_equal(equal, 0);
}

/* Computed apart from this code, from the published algorithms. */
static void known_values(void **state)
{
    struct random random;
    random_seed(&random, 0);
    assert_true(random.state[0] == UINT64_C(0xe220a8397b1dcdaf));
    assert_true(random_u64(&random) == UINT64_C(0x99ec5f36cb75f2b4));
    assert_true(random_u64(&random) == UINT64_C(0xbf6e1f784956452a));
}

static void below_is_even(void **state)
{
    struct random random;
    uint32_t count[6] = {0};
    random_seed(&random, 3);
    for (int i = 0; i < 60000; i++) {
        uint64_t value = random_below(&random, 6);
        assert_true(value < 6);
        count[value]++;
    }
    for (int i = 0; i < 6; i++) {
        assert_in_range(count[i], 9500, 10500);
    }
    assert_true(random_below(&random, 1) == 0);
    for (int i = 0; i < 100; i++) {
        assert_true(random_below(&random, UINT64_MAX) < UINT64_MAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repeats_from_the_seed),
        cmocka_unit_test(known_values),
        cmocka_unit_test(below_is_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
