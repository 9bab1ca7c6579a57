#include "rnic/base/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void every_status_has_its_own_name(void **state)
{
    for (int i = 0; i < STATUS_COUNT; i++) {
        assert_non_null(status_name((enum status)i));
        for (int j = 0; j < i; j++) {
            assert_string_not_equal(status_name((enum status)i), status_name((enum status)j));
        }
    }
    assert_string_equal(status_name(STATUS_COUNT), "unknown status");
    assert_string_equal(status_name((enum status) - 1), "unknown status");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_status_has_its_own_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
