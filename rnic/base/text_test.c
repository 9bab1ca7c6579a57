#include "rnic/base/text.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void writes_numbers(void **state)
{
    char buffer[80];
    struct text text = text_init(buffer, sizeof buffer);
    assert_string_equal(buffer, "");
    text_put(&text, "a=");
    text_put_decimal(&text, 0);
    text_put(&text, " b=");
    text_put_decimal(&text, UINT64_MAX);
    text_put(&text, " c=");
    text_put_hex(&text, 0xbeef0);
    assert_string_equal(buffer, "a=0 b=18446744073709551615 c=0xbeef0");
    assert_int_equal(text.length, 36);
}

static void cuts_and_counts(void **state)
{
    char buffer[4] = "xyz";
    struct text text = text_init(buffer, 3);
    text_put(&text, "hello");
    assert_string_equal(buffer, "he");
    assert_int_equal(buffer[3], 0);
    assert_int_equal(text.length, 5);

    struct text counter = text_init(NULL, 0);
    text_put_decimal(&counter, 1234);
    assert_int_equal(counter.length, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_numbers),
        cmocka_unit_test(cuts_and_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
