/* Selective repeat where the receiver has no place for what comes early, and where what is lost
 * cannot be told from what is under way, or is all that is ever told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

static struct network_end forged;
static bool forges;

/* The first READ arrives as the request that comes next. */
static void forge(struct network_end *end, const struct arrival *arrival, const uint8_t *bytes,
                  uint32_t length)
{
    (void)end;
    uint8_t copy[PACKET_HEADER_MAX + PACKET_PAYLOAD_MAX];
    memcpy(copy, bytes, length);
    if (forges && bytes[0] == OPCODE(SERVICE_RC, FORM_READ_REQUEST)) {
        copy[11]++; /* the PSN's last byte */
        forges = false;
    }
    s.hosts[1].end.deliver(&s.hosts[1].end, arrival, copy, length);
}

/* B has had a READ where A sends a WRITE. It tells each time that it has what was sent again, and
 * never that it is done. */
static void who_only_tells_what_it_has_is_given_up(void **state)
{
    (void)state;
    scenario_agree(&s);
    forged = s.hosts[1].end;
    forged.deliver = forge;
    forges = true;
    network_attach(&s.network, 1, &forged);
    struct work work = {.kind = WORK_READ, .id = 2, .length = 200};
    assert_int_equal(scenario_post(&s.a, work), STATUS_OK);
    scenario_run(&s);
    post(3, 256);
    scenario_run_for(&s, 10000000);
    forget_trace(&s);
    assert_true(count(&s.a, COUNTER_REPORTS_RECEIVED) > 3);
    assert_int_equal(count(&s.a, COUNTER_RETRIES_EXCEEDED), 1);
}

/* Of a READ the first response is lost, and what comes behind it finds no place but for 64 packets:
 * all that is missing is demanded again at once, and nothing is probed for. */
static void responses_without_a_place_are_demanded_with_the_lost_one(void **state)
{
    (void)state;
    scenario_agree(&s);
    post(2, 256);
    scenario_run(&s);
    uint64_t probes = count(&s.a, COUNTER_PROBES);
    scenario_lose(&s, "B>A READ_RESPONSE_FIRST");
    struct work work = {.kind = WORK_READ, .id = 3, .length = 120 * 256};
    assert_int_equal(scenario_post(&s.a, work), STATUS_OK);
    scenario_run(&s);
    assert_non_null(strstr(s.text, "A send 3 success\n"));
    forget_trace(&s);
    assert_int_equal(count(&s.a, COUNTER_EARLY_PACKETS), PLACES);
    assert_int_equal(count(&s.a, COUNTER_PROBES), probes);
    expect_equal_bytes(&s.a, &s.b, 0, 120 * 256);
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
        cmocka_unit_test_setup_teardown(who_only_tells_what_it_has_is_given_up, start, stop),
        cmocka_unit_test_setup_teardown(responses_without_a_place_are_demanded_with_the_lost_one,
                                        start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
