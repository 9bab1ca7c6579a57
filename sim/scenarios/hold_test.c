/* A host in whose own queue enough waits: streams of those that have agreed upon selective repeat
 * wait, too, and what others wait for does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "sim/scenarios/selective.h"

#define ALWAYS  1000000u
#define MOSTLY  900000u
#define WAIT_US 2000u /* some times as long as the network holds a stream back */

static void hold(uint32_t chance)
{
    s.network.links[0][1].config.hold = chance;
}

static void data_wait_and_answers_do_not(void **state)
{
    (void)state;
    scenario_agree(&s);
    hold(ALWAYS);
    post(WORK_WRITE, 2, 512);
    struct work work = {.kind = WORK_WRITE, .id = 3, .length = 256};
    assert_int_equal(scenario_post(&s.b, work), STATUS_OK);
    post(WORK_READ, 4, 256); /* behind what waits */
    scenario_run_for(&s, WAIT_US / 4);
    expect_trace(&s, "A>B WRITE_FIRST psn=9 length=512\n"
                     "B>A WRITE_ONLY psn=100 length=256\n"
                     "A>B ACK psn=100\n"
                     "B send 3 success\n");
    hold(0);
    scenario_run(&s);
    expect_trace(&s, "A>B WRITE_LAST psn=10\n"
                     "A>B READ_REQUEST psn=11 length=256\n"
                     "B>A READ_RESPONSE_ONLY psn=11\n"
                     "A send 2 success\n"
                     "A send 4 success\n");
}

static void responses_wait_likewise(void **state)
{
    (void)state;
    scenario_agree(&s);
    hold(ALWAYS);
    struct work work = {.kind = WORK_READ, .id = 3, .length = 512};
    assert_int_equal(scenario_post(&s.b, work), STATUS_OK);
    scenario_run_for(&s, WAIT_US / 8);
    assert_true(s.network.held > 0);
    hold(0);
    scenario_run(&s);
    expect_trace(&s, "B>A READ_REQUEST psn=100 length=512\n"
                     "A>B READ_RESPONSE_FIRST psn=100\n"
                     "A>B READ_RESPONSE_LAST psn=101\n"
                     "B send 3 success\n");
    assert_int_equal(count(&s.b, COUNTER_RETRANSMITTED_PACKETS), 0);
}

/* Packet by packet, each after some waits; nothing is repeated, nothing forgotten. */
static void who_waits_goes_on(void **state)
{
    (void)state;
    scenario_agree(&s);
    uint64_t repeated = count(&s.a, COUNTER_RETRANSMITTED_PACKETS);
    hold(MOSTLY);
    post(WORK_WRITE, 2, 160 * 256);
    scenario_run(&s);
    forget_trace(&s);
    assert_true(s.network.held > 100);
    assert_int_equal(count(&s.a, COUNTER_COMPLETIONS), 2);
    expect_equal_bytes(&s.a, &s.b, 0, 160 * 256);
    assert_true(count(&s.a, COUNTER_RETRANSMITTED_PACKETS) <= repeated + 20);
}

static void who_has_nothing_under_way_does_not_wait(void **state)
{
    (void)state;
    scenario_agree(&s);
    hold(ALWAYS);
    for (uint64_t id = 2; id < 10; id++) {
        post(WORK_WRITE, id, 256);
        scenario_run_for(&s, 5);
        assert_int_equal(count(&s.a, COUNTER_COMPLETIONS), id);
    }
    forget_trace(&s);
    assert_int_equal(s.network.held, 0);
}

/* Of what may leave now and then, responses and requests take turns. */
static void requests_and_responses_take_turns(void **state)
{
    (void)state;
    scenario_agree(&s);
    hold(ALWAYS / 2);
    for (uint64_t id = 3; id < 7; id++) {
        struct work work = {.kind = WORK_READ, .id = id, .length = 32 * 256};
        assert_int_equal(scenario_post(&s.b, work), STATUS_OK);
    }
    scenario_run_for(&s, WAIT_US / 8);
    post(WORK_WRITE, 2, 16 * 256);
    scenario_run(&s);
    const char *written = strstr(s.text, "A send 2 success");
    const char *last_read = strstr(s.text, "B send 6 success");
    assert_non_null(written);
    assert_non_null(last_read);
    assert_true(written < last_read);
    forget_trace(&s);
}

static void who_has_not_agreed_does_not_wait(void **state)
{
    (void)state;
    scenario_connect(&s);
    hold(ALWAYS);
    post(WORK_WRITE, 2, 256);
    scenario_run(&s);
    expect_trace(&s, "A>B WRITE_ONLY psn=7 length=256\n"
                     "B>A ACK psn=7\n"
                     "A send 2 success\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(data_wait_and_answers_do_not, start, stop),
        cmocka_unit_test_setup_teardown(responses_wait_likewise, start, stop),
        cmocka_unit_test_setup_teardown(who_waits_goes_on, start, stop),
        cmocka_unit_test_setup_teardown(who_has_nothing_under_way_does_not_wait, start, stop),
        cmocka_unit_test_setup_teardown(requests_and_responses_take_turns, start, stop),
        cmocka_unit_test_setup_teardown(who_has_not_agreed_does_not_wait, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
