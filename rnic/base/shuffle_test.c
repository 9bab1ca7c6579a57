#include "rnic/base/shuffle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>

#include <cmocka.h>

static void each_number_comes_once(void **state)
{
    static const uint32_t counts[] = {1, 2, 3, 4, 5, 16, 17, 1000, 16367, 16384, 70000};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct shuffle shuffle = shuffle_init(&(struct siphash_key){{i}}, counts[i]);
        bool *seen = calloc(counts[i], sizeof *seen);
        assert_non_null(seen);
        for (uint32_t place = 0; place < counts[i]; place++) {
            uint32_t number = shuffle_at(&shuffle, place);
            assert_in_range(number, 0, counts[i] - 1);
            assert_false(seen[number]);
            seen[number] = true;
        }
        free(seen);
    }
}

static void the_whole_range_is_possible(void **state)
{
    struct shuffle shuffle = shuffle_init(&(struct siphash_key){{9}}, UINT32_MAX);
    assert_in_range(shuffle_at(&shuffle, UINT32_MAX - 1), 0, UINT32_MAX - 1);
}

/* Of random orders of n, one in n places has the number before, plus one, before it. */
static void the_next_number_is_not_the_last_plus_one(void **state)
{
    uint32_t consecutive = 0, same_as_other_key = 0;
    struct shuffle shuffle = shuffle_init(&(struct siphash_key){{1}}, 16384);
    struct shuffle other = shuffle_init(&(struct siphash_key){{2}}, 16384);
    for (uint32_t place = 1; place < 16384; place++) {
        uint32_t number = shuffle_at(&shuffle, place);
        consecutive += number == shuffle_at(&shuffle, place - 1) + 1;
        same_as_other_key += number == shuffle_at(&other, place);
    }
    assert_in_range(consecutive, 0, 10);
    assert_in_range(same_as_other_key, 0, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_number_comes_once),
        cmocka_unit_test(the_whole_range_is_possible),
        cmocka_unit_test(the_next_number_is_not_the_last_plus_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
