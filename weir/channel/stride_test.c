/* Pieces are long on fast paths and short on slow ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "weir/channel/stride.h"

#define SILENCE_MS  5000
#define MILLISECOND UINT64_C(1000000)

/* `count` pieces, each posted `depth` ahead, on a path of so many bytes a second. */
static void carry(struct stride *stride, uint64_t rate, unsigned depth, unsigned count)
{
    static uint64_t now_ns = 1;
    size_t lengths[64];
    unsigned posted = 0;
    now_ns += 3600 * 1000 * MILLISECOND; /* a connection at rest is not a slow one */
    for (unsigned ended = 0; ended < count; ended++) {
        while (posted < count && posted - ended < depth) {
            lengths[posted++ % 64] = stride->length;
            stride_posted(stride, now_ns);
        }
        now_ns += lengths[ended % 64] * 1000000000u / rate;
        stride_ended(stride, now_ns);
    }
    assert_int_equal(stride->flying, 0);
}

static void test_begins_short(void **state)
{
    struct stride stride;
    stride_init(&stride, SILENCE_MS);
    assert_int_equal(stride.length, STRIDE_LEAST);
    assert_false(stride_is_full(&stride));
}

static void test_grows_on_a_fast_path(void **state)
{
    struct stride stride;
    stride_init(&stride, SILENCE_MS);
    carry(&stride, 100000000, 8, 40);
    assert_true(stride_is_full(&stride));
    carry(&stride, 100000000, 1, 1000);
    assert_true(stride_is_full(&stride));
}

/* Whatever it was before, a piece on its way takes a small part of the timeout. */
static void test_shrinks_on_a_slow_one(void **state)
{
    struct stride stride;
    stride_init(&stride, SILENCE_MS);
    carry(&stride, 100000000, 8, 40);
    carry(&stride, 50000, 8, 40);
    assert_int_equal(stride.length, STRIDE_LEAST);
    carry(&stride, 100000000, 8, 40);
    assert_true(stride_is_full(&stride));
}

static void test_settles_between(void **state)
{
    struct stride stride;
    stride_init(&stride, SILENCE_MS);
    carry(&stride, 5000000, 8, 1000);
    assert_in_range(stride.length, STRIDE_LEAST + 1, STRIDE_MOST - 1);
    size_t length = stride.length;
    carry(&stride, 5000000, 8, 1000);
    assert_int_equal(stride.length, length);
}

/* An acknowledgement that comes late ends several pieces at once, which tells nothing of the path.
 */
static void test_bursts_are_not_swift(void **state)
{
    struct stride stride;
    uint64_t now_ns = 1;
    stride_init(&stride, SILENCE_MS);
    for (unsigned burst = 0; burst < 100; burst++) {
        for (unsigned i = 0; i < 6; i++) {
            stride_posted(&stride, now_ns);
        }
        now_ns += 1000 * MILLISECOND;
        for (unsigned i = 0; i < 6; i++) {
            stride_ended(&stride, now_ns);
        }
    }
    assert_int_equal(stride.length, STRIDE_LEAST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_begins_short),          cmocka_unit_test(test_grows_on_a_fast_path),
        cmocka_unit_test(test_shrinks_on_a_slow_one), cmocka_unit_test(test_settles_between),
        cmocka_unit_test(test_bursts_are_not_swift),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
