/* READs between two ends that have agreed upon selective repeat: in which parts they are demanded,
 * and what of them is demanded again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/transport/qp_private.h"
#include "sim/scenarios/selective.h"

/* Responses that overtook the lost one are kept; that one alone is demanded. */
static void a_lost_response_is_demanded_again(void **state)
{
    (void)state;
    scenario_agree(&s);
    scenario_lose(&s, "B>A READ_RESPONSE_MIDDLE psn=10");
    post(WORK_READ, 2, 1024);
    scenario_run(&s);
    expect_trace(&s, "A>B READ_REQUEST psn=9 length=1024\n"
                     "B>A READ_RESPONSE_FIRST psn=9\n"
                     "B>A READ_RESPONSE_MIDDLE psn=10 lost\n"
                     "B>A READ_RESPONSE_MIDDLE psn=11\n"
                     "B>A READ_RESPONSE_LAST psn=12\n"
                     "A>B READ_REQUEST psn=10 length=256\n"
                     "B>A READ_RESPONSE_ONLY psn=10\n"
                     "A send 2 success\n");
}

/* The peer answers one part of a demand at a time: what lies between two that are missing comes in
 * vain. */
static void two_lost_responses_are_demanded_as_one(void **state)
{
    (void)state;
    scenario_agree(&s);
    scenario_lose(&s, "B>A READ_RESPONSE_MIDDLE psn=10");
    scenario_lose(&s, "B>A READ_RESPONSE_MIDDLE psn=12");
    post(WORK_READ, 2, 6 * 256);
    scenario_run(&s);
    expect_trace(&s, "A>B READ_REQUEST psn=9 length=1536\n"
                     "B>A READ_RESPONSE_FIRST psn=9\n"
                     "B>A READ_RESPONSE_MIDDLE psn=10 lost\n"
                     "B>A READ_RESPONSE_MIDDLE psn=11\n"
                     "B>A READ_RESPONSE_MIDDLE psn=12 lost\n"
                     "B>A READ_RESPONSE_MIDDLE psn=13\n"
                     "B>A READ_RESPONSE_LAST psn=14\n"
                     "A>B READ_REQUEST psn=10 length=768\n"
                     "B>A READ_RESPONSE_FIRST psn=10\n"
                     "B>A READ_RESPONSE_MIDDLE psn=11\n"
                     "B>A READ_RESPONSE_LAST psn=12\n"
                     "A drops psn\n"
                     "A send 2 success\n");
}

/* Nothing says of the rest of its demand that it comes. */
static void a_response_without_any_behind_it_is_demanded_with_the_rest(void **state)
{
    (void)state;
    scenario_agree(&s);
    scenario_lose(&s, "B>A READ_RESPONSE_MIDDLE psn=10");
    scenario_lose(&s, "B>A READ_RESPONSE_LAST psn=11");
    post(WORK_READ, 2, 3 * 256);
    post(WORK_READ, 3, 256);
    scenario_run(&s);
    expect_trace(&s, "A>B READ_REQUEST psn=9 length=768\n"
                     "A>B READ_REQUEST psn=12 length=256\n"
                     "B>A READ_RESPONSE_FIRST psn=9\n"
                     "B>A READ_RESPONSE_MIDDLE psn=10 lost\n"
                     "B>A READ_RESPONSE_LAST psn=11 lost\n"
                     "B>A READ_RESPONSE_ONLY psn=12\n"
                     "A>B READ_REQUEST psn=10 length=512\n"
                     "B>A READ_RESPONSE_FIRST psn=10\n"
                     "B>A READ_RESPONSE_LAST psn=11\n"
                     "A send 2 success\n"
                     "A send 3 success\n");
}

/* Of two READs each misses a response: both are demanded at once, and only once, and that is one
 * loss to the window. */
static void what_two_demands_miss_is_one_loss(void **state)
{
    (void)state;
    scenario_agree(&s);
    scenario_lose(&s, "B>A READ_RESPONSE_MIDDLE psn=10");
    scenario_lose(&s, "B>A READ_RESPONSE_MIDDLE psn=13");
    uint32_t window = s.a.qp->selective->share.window;
    post(WORK_READ, 2, 3 * 256);
    post(WORK_READ, 3, 3 * 256);
    scenario_run(&s);
    expect_trace(&s, "A>B READ_REQUEST psn=9 length=768\n"
                     "A>B READ_REQUEST psn=12 length=768\n"
                     "B>A READ_RESPONSE_FIRST psn=9\n"
                     "B>A READ_RESPONSE_MIDDLE psn=10 lost\n"
                     "B>A READ_RESPONSE_LAST psn=11\n"
                     "B>A READ_RESPONSE_FIRST psn=12\n"
                     "B>A READ_RESPONSE_MIDDLE psn=13 lost\n"
                     "B>A READ_RESPONSE_LAST psn=14\n"
                     "A>B READ_REQUEST psn=10 length=256\n"
                     "A>B READ_REQUEST psn=13 length=256\n"
                     "B>A READ_RESPONSE_ONLY psn=10\n"
                     "B>A READ_RESPONSE_ONLY psn=13\n"
                     "A send 2 success\n"
                     "A send 3 success\n");
    assert_true(s.a.qp->selective->share.window >= window * 3 / 4 - 256);
}

/* The share of a queue pair that repairs, once it has begun. */
static struct share *begin_to_repair(void)
{
    post(WORK_WRITE, 2, 64);
    scenario_run(&s);
    forget_trace(&s);
    return &s.a.qp->selective->share;
}

/* What has come early is under way no more: the next demand leaves though the first is not done. */
static void an_early_response_makes_room(void **state)
{
    (void)state;
    scenario_agree(&s);
    begin_to_repair()->window = 2 * 256;
    scenario_lose(&s, "B>A READ_RESPONSE_ONLY psn=10");
    for (uint64_t id = 3; id <= 5; id++) {
        post(WORK_READ, id, 256);
    }
    scenario_run_for(&s, 4);
    expect_trace(&s, "A>B READ_REQUEST psn=10 length=256\n"
                     "A>B READ_REQUEST psn=11 length=256\n"
                     "B>A READ_RESPONSE_ONLY psn=10 lost\n"
                     "B>A READ_RESPONSE_ONLY psn=11\n"
                     "A>B READ_REQUEST psn=12 length=256\n"
                     "B>A READ_RESPONSE_ONLY psn=12\n");
    scenario_run(&s);
    expect_equal_bytes(&s.a, &s.b, 0, 256);
}

/* So that what a READ draws at once fills no queue by itself. */
static void a_small_window_is_demanded_in_parts(void **state)
{
    (void)state;
    scenario_agree(&s);
    begin_to_repair()->window = 8 * 256; /* and four READs may be out */
    post(WORK_READ, 3, 5 * 256);
    scenario_run(&s);
    expect_trace(&s, "A>B READ_REQUEST psn=10 length=512\n"
                     "A>B READ_REQUEST psn=12 length=512\n"
                     "A>B READ_REQUEST psn=14 length=256\n"
                     "B>A READ_RESPONSE_FIRST psn=10\n"
                     "B>A READ_RESPONSE_LAST psn=11\n"
                     "B>A READ_RESPONSE_FIRST psn=12\n"
                     "B>A READ_RESPONSE_LAST psn=13\n"
                     "B>A READ_RESPONSE_ONLY psn=14\n"
                     "A send 3 success\n");
}

/* One demand for all of it has left, and nothing has come. */
static void demand_at_once(uint64_t id, uint32_t length)
{
    post(WORK_READ, id, length);
    scenario_run_for(&s, 1);
}

/* Though the window has no room for all that it draws again: most of it is under way as it is. */
static void a_narrow_window_lets_a_demand_repeat(void **state)
{
    (void)state;
    scenario_agree(&s);
    uint64_t timeouts = count(&s.a, COUNTER_TIMEOUTS);
    uint64_t repeated = count(&s.a, COUNTER_RETRANSMITTED_PACKETS);
    scenario_lose(&s, "B>A READ_RESPONSE_MIDDLE psn=10");
    demand_at_once(2, 32 * 256);
    s.a.qp->selective->share.window = 48 * 256;
    scenario_run(&s);
    assert_int_equal(count(&s.a, COUNTER_RETRANSMITTED_PACKETS), repeated + 1);
    assert_int_equal(count(&s.a, COUNTER_TIMEOUTS), timeouts);
    expect_equal_bytes(&s.a, &s.b, 0, 32 * 256);
}

/* Nor does one that has become narrower than what it takes to be under way: most of that is lost
 * as well, or has come early and waits. */
static void a_window_below_what_is_under_way_lets_a_demand_repeat(void **state)
{
    (void)state;
    scenario_agree(&s);
    uint64_t timeouts = count(&s.a, COUNTER_TIMEOUTS);
    uint64_t repeated = count(&s.a, COUNTER_RETRANSMITTED_PACKETS);
    scenario_rule(&s, "B>A READ_RESPONSE_MIDDLE", FATE_LOST, 20);
    demand_at_once(2, 32 * 256);
    s.a.qp->selective->share.window = 8 * 256;
    scenario_run(&s);
    assert_int_equal(count(&s.a, COUNTER_RETRANSMITTED_PACKETS), repeated + 1);
    assert_int_equal(count(&s.a, COUNTER_TIMEOUTS), timeouts);
    expect_equal_bytes(&s.a, &s.b, 0, 32 * 256);
}

/* The acknowledgement of the WRITEs was there, and so was the second response: the first brings
 * both. */
static void what_a_lost_response_held_up_completes_with_it(void **state)
{
    (void)state;
    scenario_agree(&s);
    scenario_lose(&s, "B>A READ_RESPONSE_ONLY psn=9");
    post(WORK_READ, 2, 64);
    post(WORK_WRITE, 3, 64);
    post(WORK_READ, 4, 64);
    post(WORK_WRITE, 5, 64);
    scenario_run(&s);
    expect_trace(&s, "A>B READ_REQUEST psn=9 length=64\n"
                     "A>B WRITE_ONLY psn=10 length=64\n"
                     "A>B READ_REQUEST psn=11 length=64\n"
                     "A>B WRITE_ONLY psn=12 length=64\n"
                     "B>A READ_RESPONSE_ONLY psn=9 lost\n"
                     "B>A READ_RESPONSE_ONLY psn=11\n"
                     "B>A ACK psn=12\n"
                     "A>B READ_REQUEST psn=9 length=64\n"
                     "B>A READ_RESPONSE_ONLY psn=9\n"
                     "A send 2 success\n"
                     "A send 3 success\n"
                     "A send 4 success\n"
                     "A send 5 success\n");
}

/* The demand came early, and is known to have come. That says nothing of what it draws. */
static void a_response_to_what_came_early_is_probed_for(void **state)
{
    (void)state;
    s.a.attributes.timeout = 14;
    scenario_agree(&s);
    scenario_lose(&s, "A>B WRITE_ONLY psn=9");
    scenario_lose(&s, "B>A READ_RESPONSE_ONLY psn=10");
    post(WORK_WRITE, 2, 64);
    post(WORK_READ, 3, 64);
    scenario_run(&s);
    expect_trace(&s, "50000us A>B WRITE_ONLY psn=9 length=64 lost\n"
                     "50000us A>B READ_REQUEST psn=10 length=64\n"
                     "50001us B>A REPORT psn=8 expected=9 +1\n"
                     "50006.528us A>B WRITE_ONLY psn=9 length=64\n"
                     "50007.528us B>A READ_RESPONSE_ONLY psn=10 lost\n"
                     "50007.528us B>A ACK psn=9\n"
                     "50008.528us A send 2 success\n"
                     "50108.528us A>B READ_REQUEST psn=10 length=64\n"
                     "50109.528us B>A READ_RESPONSE_ONLY psn=10\n"
                     "50110.528us A send 3 success\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_lost_response_is_demanded_again, start, stop),
        cmocka_unit_test_setup_teardown(two_lost_responses_are_demanded_as_one, start, stop),
        cmocka_unit_test_setup_teardown(a_response_without_any_behind_it_is_demanded_with_the_rest,
                                        start, stop),
        cmocka_unit_test_setup_teardown(what_two_demands_miss_is_one_loss, start, stop),
        cmocka_unit_test_setup_teardown(an_early_response_makes_room, start, stop),
        cmocka_unit_test_setup_teardown(a_small_window_is_demanded_in_parts, start, stop),
        cmocka_unit_test_setup_teardown(a_narrow_window_lets_a_demand_repeat, start, stop),
        cmocka_unit_test_setup_teardown(a_window_below_what_is_under_way_lets_a_demand_repeat,
                                        start, stop),
        cmocka_unit_test_setup_teardown(what_a_lost_response_held_up_completes_with_it, start,
                                        stop),
        cmocka_unit_test_setup_teardown(a_response_to_what_came_early_is_probed_for, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
