/* Payloads that stay with their sender, and cannot be read from there: what becomes of them, of
 * what rides on them, and of what else is going on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rnic/transport/qp_private.h"
#include "rnic/transport/watcher.h"
#include "sim/scenario.h"

static struct scenario s;

static void not_ready(struct watcher *watcher, const struct qp *qp)
{
}

static void write_begins(struct watcher *watcher, const struct qp *qp, uint8_t *bytes,
                         uint32_t length)
{
}

static bool write_data(struct watcher *watcher, const struct qp *qp, uint32_t offset,
                       const uint8_t *data, uint32_t length)
{
    return false;
}

static void write_ends(struct watcher *watcher, const struct qp *qp, uint8_t *place)
{
}

static void send_ends(struct watcher *watcher, const struct qp *qp, const struct send_slot *slot)
{
}

static struct watcher watcher = {.not_ready = not_ready,
                                 .write_begins = write_begins,
                                 .write_data = write_data,
                                 .write_ends = write_ends,
                                 .send_ends = send_ends};

static int start(void **state)
{
    struct link_config link = {.delay_ns = 1000, .carries = true, .reach = SCENARIO_BYTES};
    (void)state;
    scenario_start(&s);
    network_set_links(&s.network, &link);
    scenario_connect(&s);
    return 0;
}

static int start_selective(void **state)
{
    (void)state;
    scenario_start_selective(&s);
    scenario_connect(&s);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    scenario_stop(&s);
    return 0;
}

static void post(struct party *party, enum work_kind kind, uint64_t id, uint32_t length)
{
    struct work work = {.kind = kind, .id = id, .length = length};
    assert_int_equal(scenario_post(party, work), STATUS_OK);
}

static uint64_t timeouts(const struct party *party)
{
    return device_counters(party->host->device)->values[COUNTER_TIMEOUTS];
}

/* Who is watched takes references apart, into packets that would bring it as well. */
static void what_rides_on_one_that_cannot_be_taken_apart_is_heard(void **state)
{
    (void)state;
    device_set_watcher(s.b.host->device, &watcher);
    post(&s.b, WORK_WRITE, 1, 64);
    scenario_run_for(&s, 1);
    scenario_rule(&s, "A>B WRITE_ONLY psn=7", FATE_UNREADABLE, 1);
    post(&s.a, WORK_WRITE, 2, 600);
    scenario_run(&s);
    expect_trace(&s, "B>A WRITE_ONLY psn=100 length=64\n"
                     "A>B WRITE_ONLY psn=7 length=600 referred=600 acknowledges=100 unreadable\n"
                     "B>A NAK sequence psn=7\n"
                     "B send 1 success\n"
                     "A>B WRITE_FIRST psn=7 length=600\n"
                     "A>B WRITE_MIDDLE psn=8\n"
                     "A>B WRITE_LAST psn=9\n"
                     "B>A ACK psn=9\n"
                     "A send 2 success\n");
    expect_equal_bytes(&s.a, &s.b, 0, 600);
}

/* ... and asks for it at once, not after a timeout. */
static void a_response_that_cannot_be_taken_apart_is_demanded_again(void **state)
{
    (void)state;
    device_set_watcher(s.a.host->device, &watcher);
    scenario_rule(&s, "B>A READ_RESPONSE_ONLY psn=7", FATE_UNREADABLE, 1);
    post(&s.a, WORK_READ, 1, 600);
    scenario_run(&s);
    expect_trace(&s, "A>B READ_REQUEST psn=7 length=600\n"
                     "B>A READ_RESPONSE_ONLY psn=7 referred=600 unreadable\n"
                     "A>B READ_REQUEST psn=7 length=600\n"
                     "B>A READ_RESPONSE_FIRST psn=7\n"
                     "B>A READ_RESPONSE_MIDDLE psn=8\n"
                     "B>A READ_RESPONSE_LAST psn=9\n"
                     "A send 1 success\n");
    assert_int_equal(timeouts(&s.a), 0);
    expect_equal_bytes(&s.a, &s.b, 0, 600);
}

/* The peer had been told to wait for a receive with it, which is a demand already. */
static void after_a_wait_for_receives_it_is_asked_for_all_the_same(void **state)
{
    (void)state;
    scenario_rule(&s, "A>B SEND_ONLY psn=7", FATE_UNREADABLE, 2);
    post(&s.a, WORK_SEND, 1, 600);
    scenario_run_for(&s, 5);
    scenario_receive(&s.b, 2, 600);
    scenario_run(&s);
    expect_trace(&s, "A>B SEND_ONLY psn=7 referred=600 unreadable\n"
                     "B>A RNR_NAK psn=7\n"
                     "A>B SEND_ONLY psn=7 referred=600 unreadable\n"
                     "B>A NAK sequence psn=7\n"
                     "A>B SEND_FIRST psn=7\n"
                     "A>B SEND_MIDDLE psn=8\n"
                     "A>B SEND_LAST psn=9\n"
                     "B>A ACK psn=9\n"
                     "B receive 2 success length=600\n"
                     "A send 1 success\n");
    assert_int_equal(timeouts(&s.a), 0);
}

/* The shortest round trip that is known is of that; from then on the way is short. */
static void write_over_a_long_way(void)
{
    struct link_config link = {.delay_ns = 20000, .reach = SCENARIO_BYTES};
    network_set_links(&s.network, &link);
    post(&s.a, WORK_WRITE, 1, 64);
    scenario_run(&s);
    link.delay_ns = 1000;
    network_set_links(&s.network, &link);
}

/* Though something else was repeated less than a round trip ago: what the shortest was known to be,
 * that is, until now. */
static void what_was_not_repeated_is_demanded_again_at_once(void **state)
{
    (void)state;
    write_over_a_long_way();
    scenario_lose(&s, "A>B WRITE_ONLY psn=8");
    post(&s.a, WORK_WRITE, 2, 64);
    scenario_run_for(&s, 1049);
    forget_trace(&s);
    scenario_rule(&s, "B>A READ_RESPONSE_ONLY psn=9", FATE_UNREADABLE, 1);
    post(&s.a, WORK_READ, 3, 600);
    scenario_run(&s);
    expect_trace(&s, "B>A ACK psn=8\n"
                     "A>B READ_REQUEST psn=9 length=600\n"
                     "A send 2 success\n"
                     "B>A READ_RESPONSE_ONLY psn=9 referred=600 unreadable\n"
                     "A>B READ_REQUEST psn=9 length=600\n"
                     "B>A READ_RESPONSE_FIRST psn=9\n"
                     "B>A READ_RESPONSE_MIDDLE psn=10\n"
                     "B>A READ_RESPONSE_LAST psn=11\n"
                     "A send 3 success\n");
    assert_int_equal(timeouts(&s.a), 1);
    expect_equal_bytes(&s.a, &s.b, 0, 600);
}

/* The peer had not seen the first demand, so what answers the second comes by reference. */
static void a_repeated_demand_is_repeated_once_more(void **state)
{
    (void)state;
    write_over_a_long_way();
    forget_trace(&s);
    scenario_rule(&s, "A>B WRITE_ONLY psn=8", FATE_UNREADABLE, 1);
    scenario_rule(&s, "B>A READ_RESPONSE_ONLY psn=11", FATE_UNREADABLE, 1);
    post(&s.a, WORK_WRITE, 2, 600);
    post(&s.a, WORK_READ, 3, 300);
    scenario_run(&s);
    expect_trace(&s, "A>B WRITE_ONLY psn=8 length=600 referred=600 unreadable\n"
                     "A>B READ_REQUEST psn=11 length=300\n"
                     "B>A NAK sequence psn=8\n"
                     "A>B WRITE_FIRST psn=8 length=600\n"
                     "A>B WRITE_MIDDLE psn=9\n"
                     "A>B WRITE_LAST psn=10\n"
                     "A>B READ_REQUEST psn=11 length=300\n"
                     "B>A READ_RESPONSE_ONLY psn=11 referred=300 unreadable\n"
                     "A>B READ_REQUEST psn=11 length=300\n"
                     "A send 2 success\n"
                     "B>A READ_RESPONSE_FIRST psn=11\n"
                     "B>A READ_RESPONSE_LAST psn=12\n"
                     "A send 3 success\n");
    assert_int_equal(timeouts(&s.a), 0);
}

/* As of a reader that was stopped for long, from whom all has been withdrawn meanwhile. */
static void of_several_that_cannot_be_read_none_waits_for_a_timeout(void **state)
{
    (void)state;
    post(&s.a, WORK_WRITE, 1, 64);
    scenario_run(&s);
    scenario_rule(&s, "B>A READ_RESPONSE_ONLY", FATE_UNREADABLE, 3);
    scenario_rule(&s, "A>B WRITE_ONLY", FATE_UNREADABLE, 1);
    for (uint64_t id = 2; id < 5; id++) {
        post(&s.a, WORK_READ, id, 600);
    }
    post(&s.a, WORK_WRITE, 5, 600);
    scenario_run(&s);
    assert_int_equal(timeouts(&s.a), 0);
    assert_int_equal(timeouts(&s.b), 0);
    assert_int_equal(qp_current_state(s.a.qp), QP_RTS);
    expect_equal_bytes(&s.a, &s.b, 0, 600);
    forget_trace(&s);
}

/* The first loss makes them ask. Then the link becomes one that takes references. */
static void change_the_link(void)
{
    struct link_config link = {.delay_ns = 1000, .reach = SCENARIO_BYTES};
    scenario_lose(&s, "A>B WRITE_FIRST psn=7");
    post(&s.a, WORK_WRITE, 1, 512);
    scenario_run(&s);
    forget_trace(&s);
    network_set_links(&s.network, &link);
}

/* Who has agreed on selective repeat keeps to it, though the link needs none. */
static void what_is_agreed_outlives_a_change_of_link(void **state)
{
    (void)state;
    change_the_link();
    scenario_lose(&s, "A>B WRITE_MIDDLE psn=10");
    post(&s.a, WORK_WRITE, 2, 1024);
    scenario_run(&s);
    expect_trace(&s, "A>B WRITE_FIRST psn=9 length=1024\n"
                     "A>B WRITE_MIDDLE psn=10 lost\n"
                     "A>B WRITE_MIDDLE psn=11\n"
                     "A>B WRITE_LAST psn=12\n"
                     "B>A REPORT psn=9 expected=10 +1 +2\n"
                     "A>B WRITE_MIDDLE psn=10\n"
                     "B>A ACK psn=12\n"
                     "A send 2 success\n");
}

/* B has not heard that A agreed, and need not agree any more; but what A reports may be the only
 * acknowledgement. */
static void who_has_not_agreed_heeds_what_a_report_acknowledges(void **state)
{
    (void)state;
    scenario_lose(&s, "A>B REPORT psn=99");
    change_the_link();
    assert_non_null(s.a.qp->selective);
    scenario_lose(&s, "A>B ACK psn=100");
    post(&s.b, WORK_WRITE, 2, 64);
    scenario_run(&s);
    expect_trace(&s, "B>A WRITE_ONLY psn=100 length=64\n"
                     "A>B ACK psn=100 lost\n"
                     "B>A WRITE_ONLY psn=100 length=64\n"
                     "A>B REPORT psn=100 expected=101\n"
                     "B send 2 success\n");
    assert_null(s.b.qp->selective);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_rides_on_one_that_cannot_be_taken_apart_is_heard,
                                        start, stop),
        cmocka_unit_test_setup_teardown(a_response_that_cannot_be_taken_apart_is_demanded_again,
                                        start, stop),
        cmocka_unit_test_setup_teardown(after_a_wait_for_receives_it_is_asked_for_all_the_same,
                                        start, stop),
        cmocka_unit_test_setup_teardown(a_repeated_demand_is_repeated_once_more, start, stop),
        cmocka_unit_test_setup_teardown(of_several_that_cannot_be_read_none_waits_for_a_timeout,
                                        start, stop),
        cmocka_unit_test_setup_teardown(what_is_agreed_outlives_a_change_of_link, start_selective,
                                        stop),
        cmocka_unit_test_setup_teardown(who_has_not_agreed_heeds_what_a_report_acknowledges,
                                        start_selective, stop),
        cmocka_unit_test_setup_teardown(what_was_not_repeated_is_demanded_again_at_once, start,
                                        stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
