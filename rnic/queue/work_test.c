#include "rnic/queue/work.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/queue/event.h"

static void every_status_and_event_has_its_own_name(void **state)
{
    for (int i = 0; i < COMPLETION_STATUS_COUNT; i++) {
        assert_non_null(completion_status_name(i));
        for (int other = 0; other < i; other++) {
            assert_string_not_equal(completion_status_name(i), completion_status_name(other));
        }
    }
    for (int i = 0; i < EVENT_KIND_COUNT; i++) {
        assert_non_null(event_kind_name(i));
        for (int other = 0; other < i; other++) {
            assert_string_not_equal(event_kind_name(i), event_kind_name(other));
        }
    }
    assert_string_equal(completion_status_name(COMPLETION_STATUS_COUNT), "unknown");
    assert_string_equal(event_kind_name(EVENT_KIND_COUNT), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_status_and_event_has_its_own_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
