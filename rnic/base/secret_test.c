#include "rnic/base/secret.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void repeats_from_the_key(void **state)
{
    struct secret a = secret_init(&(struct siphash_key){{7, 1}});
    struct secret b = secret_init(&(struct siphash_key){{7, 1}});
    struct secret c = secret_init(&(struct siphash_key){{7, 2}});
    for (int i = 0; i < 100; i++) {
        uint64_t value = secret_u64(&a);
        assert_true(value == secret_u64(&b));
        assert_false(value == secret_u64(&c));
    }
}

static void numbers_are_hashes_of_their_count(void **state)
{
    const struct siphash_key key = {{3, 4}};
    struct secret secret = secret_init(&key);
    for (uint64_t count = 0; count < 10; count++) {
        assert_true(secret_u64(&secret) == siphash(&key, &count, sizeof count));
    }
}

static void below_is_even(void **state)
{
    struct secret secret = secret_init(&(struct siphash_key){{3}});
    uint32_t count[6] = {0};
    for (int i = 0; i < 60000; i++) {
        uint64_t value = secret_below(&secret, 6);
        assert_true(value < 6);
        count[value]++;
    }
    for (int i = 0; i < 6; i++) {
        assert_in_range(count[i], 9500, 10500);
    }
    assert_true(secret_below(&secret, 1) == 0);
    for (int i = 0; i < 100; i++) {
        assert_true(secret_below(&secret, UINT64_MAX) < UINT64_MAX);
    }
}

static void each_use_has_a_key_of_its_own(void **state)
{
    struct secret secret = secret_init(&(struct siphash_key){{3}});
    struct siphash_key first = secret_key(&secret), second = secret_key(&secret);
    assert_memory_not_equal(&first, &second, sizeof first);
    assert_memory_not_equal(&first, &secret.key, sizeof first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repeats_from_the_key),
        cmocka_unit_test(numbers_are_hashes_of_their_count),
        cmocka_unit_test(below_is_even),
        cmocka_unit_test(each_use_has_a_key_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
