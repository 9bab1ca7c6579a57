/* Selective repeat where the receiver has no place for what comes early, and where what is lost
 * cannot be told from what is under way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/scenario.h"

#define PLACES   64u /* of a scenario's host */
#define PACKETS  240u
#define MESSAGES 10u

static struct scenario s;

static int start(void **state)
{
    (void)state;
    scenario_start_selective(&s);
    s.a.attributes.timeout = 14; /* a short one is taken as it is */
    return 0;
}

static int stop(void **state)
{
    (void)state;
    scenario_stop(&s);
    return 0;
}

static void post(uint64_t id, uint32_t length)
{
    struct work work = {.kind = WORK_WRITE, .id = id, .length = length};
    assert_int_equal(scenario_post(&s.a, work), STATUS_OK);
}

static uint64_t count(const struct party *party, enum counter counter)
{
    return device_counters(party->host->device)->values[counter];
}

/* One in twenty is lost. What B cannot keep it refuses, with each gap anew; when all that is not
 * held left again each time, that was four times what there is to send. */
static void what_found_no_place_is_not_repeated_with_each_gap(void **state)
{
    (void)state;
    scenario_agree(&s);
    struct link_config link = {
        .delay_ns = 100000, .bits_per_second = UINT64_C(1000000000), .loss = 50000};
    network_set_links(&s.network, &link);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        post(2 + i, PACKETS * 256);
    }
    scenario_run(&s);
    forget_trace(&s);
    assert_true(count(&s.b, COUNTER_EARLY_PACKETS) > PLACES);
    assert_in_range(count(&s.a, COUNTER_RETRANSMITTED_PACKETS), 100, MESSAGES * PACKETS);
    assert_int_equal(count(&s.a, COUNTER_TIMEOUTS), 0);
    expect_equal_bytes(&s.a, &s.b, 0, PACKETS * 256);
}

/* Of 100 packets the first is lost, and reported by what comes behind it. That the 66th found no
 * place is said a while later, when the first has left again: more than the shortest round trip
 * that there ever was, and less than one takes now. Returns how many packets came in vain. */
static uint64_t lose_first(uint32_t times)
{
    scenario_agree(&s);
    post(2, 256);
    scenario_run(&s);
    struct link_config link = {.delay_ns = 50000, .bits_per_second = UINT64_C(2000000000)};
    network_set_links(&s.network, &link);
    post(3, 256);
    scenario_run(&s);
    uint64_t before = count(&s.b, COUNTER_DUPLICATE_REQUESTS);
    scenario_rule(&s, "A>B WRITE_FIRST", FATE_LOST, times);
    post(4, 100 * 256);
    scenario_run(&s);
    forget_trace(&s);
    assert_int_equal(count(&s.b, COUNTER_EARLY_PACKETS), PLACES);
    assert_int_equal(count(&s.a, COUNTER_TIMEOUTS), 0);
    expect_equal_bytes(&s.a, &s.b, 0, 100 * 256);
    return count(&s.b, COUNTER_DUPLICATE_REQUESTS) - before;
}

static void what_is_on_its_way_again_is_not_repeated_for_a_refusal(void **state)
{
    (void)state;
    assert_int_equal(lose_first(1), 0);
}

/* What is behind it is dropped in silence, so the last packet tells nothing. */
static void what_is_missing_first_is_probed_for_too(void **state)
{
    (void)state;
    (void)lose_first(3);
}

/* The way was measured when it was longer. So what comes of a probe may be an earlier copy, and
 * says nothing of what has left meanwhile; but the silence after it does. */
static void what_is_lost_around_a_probe_is_not_probed_for_one_by_one(void **state)
{
    (void)state;
    scenario_agree(&s);
    struct link_config link = {.delay_ns = 20000};
    network_set_links(&s.network, &link);
    post(2, 256);
    scenario_run(&s);
    link.delay_ns = 1000;
    network_set_links(&s.network, &link);
    forget_trace(&s);
    scenario_lose(&s, "A>B WRITE_FIRST");
    scenario_rule(&s, "A>B WRITE_MIDDLE", FATE_LOST, 30);
    scenario_lose(&s, "A>B WRITE_LAST");
    post(3, 32 * 256);
    scenario_run(&s);
    forget_trace(&s);
    assert_in_range(count(&s.a, COUNTER_PROBES), 1, 3);
    assert_int_equal(count(&s.a, COUNTER_TIMEOUTS), 0);
    expect_equal_bytes(&s.a, &s.b, 0, 32 * 256);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_found_no_place_is_not_repeated_with_each_gap, start,
                                        stop),
        cmocka_unit_test_setup_teardown(what_is_on_its_way_again_is_not_repeated_for_a_refusal,
                                        start, stop),
        cmocka_unit_test_setup_teardown(what_is_missing_first_is_probed_for_too, start, stop),
        cmocka_unit_test_setup_teardown(what_is_lost_around_a_probe_is_not_probed_for_one_by_one,
                                        start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
