#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "tools/transfer/ends/sent_names.h"

static void name_of(char name[32], unsigned number)
{
    snprintf(name, 32, "d%u/%u", number % 1000, number);
}

/* Of the names up to `end`, and of as many that were not. */
static void expect(const struct sent_names *names, unsigned end, unsigned wrong_max)
{
    char name[32];
    unsigned wrong = 0;
    for (unsigned i = 0; i < end; i++) {
        name_of(name, i);
        assert_true(sent_names_has(names, i % 3, name));
        wrong += sent_names_has(names, i % 3 + 1, name);
        name_of(name, i + end);
        wrong += sent_names_has(names, i % 3, name);
    }
    assert_true(wrong <= wrong_max);
}

static void names_are_known_again(void **state)
{
    const unsigned exact = 3u << 14;
    struct sent_names names = {.capacity_max = (size_t)1 << 16};
    char name[32];
    unsigned count = 0;
    assert_false(sent_names_has(&names, 0, "d0/0"));
    for (unsigned end = 1; end <= 2 * exact; end *= 2) {
        for (; count < end; count++) {
            name_of(name, count);
            sent_names_add(&names, count % 3, name);
            sent_names_add(&names, count % 3, name);
        }
        assert_true(names.is_filter || names.count == count);
        assert_int_equal(names.is_filter, count > exact);
        expect(&names, end, names.is_filter ? 20 : 0);
    }
    assert_true(names.is_filter);
    sent_names_clear(&names);
    assert_false(sent_names_has(&names, 0, "d0/0"));
}

/* What is not known counts as said: nothing is lost for it. */
static void without_memory_all_may_have_been_said(void **state)
{
    struct sent_names names = {.is_lost = true};
    sent_names_add(&names, 0, "a");
    assert_true(sent_names_has(&names, 0, "b"));
    sent_names_clear(&names);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_known_again),
        cmocka_unit_test(without_memory_all_may_have_been_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
