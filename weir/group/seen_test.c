/* Nothing is new twice, in whatever order it comes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "weir/group/seen.h"

static void test_window(void **state)
{
    struct seen seen = {0};
    assert_int_equal(seen_take(&seen, 7, 100), SEEN_NEW);
    assert_int_equal(seen_take(&seen, 7, 100), SEEN_BEFORE);
    assert_int_equal(seen_take(&seen, 8, 100), SEEN_NEW);
    assert_int_equal(seen_take(&seen, 7, 99), SEEN_NEW); /* a later one came first */
    assert_int_equal(seen_take(&seen, 7, 100 + SEEN_WINDOW - 1), SEEN_NEW);
    assert_int_equal(seen_take(&seen, 7, 100), SEEN_BEFORE);
    assert_int_equal(seen_take(&seen, 7, 99), SEEN_BEFORE); /* too old to know */
    assert_int_equal(seen_take(&seen, 7, 98), SEEN_BEFORE);
    assert_int_equal(seen_take(&seen, 7, 101), SEEN_NEW);
    assert_int_equal(seen_take(&seen, 7, UINT64_MAX), SEEN_NEW);
    assert_int_equal(seen_take(&seen, 7, 1), SEEN_BEFORE);
    assert_int_equal(seen_take(&seen, 7, UINT64_MAX - 1), SEEN_NEW);
    seen_fini(&seen);
}

/* Against a plain list of what was taken. */
static void test_at_random(void **state)
{
    static bool taken[8][5000];
    struct seen seen = {0};
    uint32_t random = 1;
    uint64_t greatest[8] = {0};
    for (unsigned i = 0; i < 100000; i++) {
        random = random * 1664525u + 1013904223u;
        unsigned caller = random >> 29;
        unsigned base = i / 25;
        unsigned number = base + (random >> 8) % 900;
        enum seen_verdict verdict = seen_take(&seen, caller, number);
        if (verdict == SEEN_NEW) {
            assert_false(taken[caller][number]);
            taken[caller][number] = true;
        } else if (!taken[caller][number]) {
            assert_true(greatest[caller] - number >= SEEN_WINDOW);
        }
        greatest[caller] = greatest[caller] > number ? greatest[caller] : number;
    }
    seen_fini(&seen);
}

/* Who was heard of late is known, however many others there are. */
static void test_many_callers(void **state)
{
    struct seen seen = {0};
    for (uint64_t caller = 0; caller < 3 * SEEN_CALLERS; caller++) {
        assert_int_equal(seen_take(&seen, caller * 0x10000001, 5), SEEN_NEW);
        assert_int_equal(seen_take(&seen, 0, 6 + caller), SEEN_NEW);
    }
    for (uint64_t caller = 3 * SEEN_CALLERS - 1; caller > 2 * SEEN_CALLERS; caller--) {
        assert_int_equal(seen_take(&seen, caller * 0x10000001, 5), SEEN_BEFORE);
    }
    assert_int_equal(seen.count, SEEN_CALLERS);
    assert_int_equal(seen_take(&seen, 0, 5 + 3 * SEEN_CALLERS), SEEN_BEFORE);
    seen_fini(&seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_at_random),
        cmocka_unit_test(test_many_callers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
