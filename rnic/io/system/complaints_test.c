/* Which complaints wait, which come first, and which find no room. */
#include "rnic/io/system/complaints.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define HOST     true
#define SOMEBODY false

static struct complaint about(bool certain, uint32_t destination)
{
    return (struct complaint){.trouble = {.kind = TROUBLE_TOO_LONG,
                                          .certain = certain,
                                          .mtu = 1500,
                                          .destination = {destination}}};
}

static void add(struct complaints *complaints, bool certain, uint32_t destination)
{
    struct complaint complaint = about(certain, destination);
    complaints_add(complaints, &complaint);
}

static void expect(struct complaints *complaints, bool certain, uint32_t destination)
{
    struct complaint complaint;
    assert_true(complaints_take(complaints, &complaint));
    assert_int_equal(complaint.trouble.certain, certain);
    assert_int_equal(complaint.trouble.destination.value, destination);
}

static void expect_none(struct complaints *complaints)
{
    struct complaint complaint;
    assert_false(complaints_take(complaints, &complaint));
}

static void hearsay_takes_no_place_of_what_is_certain(void **state)
{
    (void)state;
    struct complaints complaints = {0};
    add(&complaints, HOST, 1);
    for (uint32_t i = 0; i < 1000; i++) {
        add(&complaints, SOMEBODY, i);
    }
    for (uint32_t i = 2; i <= COMPLAINTS_WAITING; i++) {
        add(&complaints, HOST, i);
    }
    assert_int_equal(complaints.lost, 1000 - COMPLAINTS_WAITING); /* hearsay, all of them */
    for (uint32_t i = 1; i <= COMPLAINTS_WAITING; i++) {
        expect(&complaints, HOST, i);
    }
    for (uint32_t i = 0; i < COMPLAINTS_WAITING; i++) {
        expect(&complaints, SOMEBODY, i);
    }
    expect_none(&complaints);
}

static void what_is_certain_comes_first(void **state)
{
    (void)state;
    struct complaints complaints = {0};
    add(&complaints, SOMEBODY, 1);
    add(&complaints, SOMEBODY, 2);
    expect(&complaints, SOMEBODY, 1);
    add(&complaints, HOST, 3);
    expect(&complaints, HOST, 3);
    expect(&complaints, SOMEBODY, 2);
    expect_none(&complaints);
}

/* Who asks before adding says it once of each queue pair. */
static void what_waits_and_is_certain_is_known(void **state)
{
    (void)state;
    struct complaints complaints = {0};
    struct complaint seven = about(HOST, 7), eight = about(HOST, 8);
    add(&complaints, SOMEBODY, 7);
    assert_false(complaints_has(&complaints, &seven.trouble)); /* a forger said it */
    add(&complaints, HOST, 7);
    assert_true(complaints_has(&complaints, &seven.trouble));
    assert_false(complaints_has(&complaints, &eight.trouble));
    eight.trouble.destination = seven.trouble.destination;
    eight.trouble.answers = true; /* a response: it fails nothing, a request's would */
    assert_false(complaints_has(&complaints, &eight.trouble));
    eight.trouble.answers = false;
    eight.trouble.remote.bytes[0]++;
    assert_false(complaints_has(&complaints, &eight.trouble));
    expect(&complaints, HOST, 7);
    assert_false(complaints_has(&complaints, &seven.trouble));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hearsay_takes_no_place_of_what_is_certain),
        cmocka_unit_test(what_is_certain_comes_first),
        cmocka_unit_test(what_waits_and_is_certain_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
