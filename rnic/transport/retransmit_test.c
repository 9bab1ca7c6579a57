/* Timer codes against the tables of the specification; the wait and when it ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rnic/transport/retransmit.h"

static void rnr_codes_are_those_of_the_table(void **state)
{
    /* [IBA table 45], in units of 0.01 ms */
    static const uint32_t table[32] = {65536, 1,    2,    3,     4,     6,     8,     12,
                                       16,    24,   32,   48,    64,    96,    128,   192,
                                       256,   384,  512,  768,   1024,  1536,  2048,  3072,
                                       4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};
    for (uint8_t code = 0; code < 32; code++) {
        assert_int_equal(retransmit_rnr_timer_ns(code), table[code] * UINT64_C(10000));
    }
}

static void timeout_codes_double(void **state)
{
    assert_int_equal(retransmit_timeout_ns(0), 0);
    assert_int_equal(retransmit_timeout_ns(1), 8192);
    assert_int_equal(retransmit_timeout_ns(14), 67108864);
    assert_int_equal(retransmit_timeout_ns(31), UINT64_C(4096) << 31);
}

static struct retransmit fresh(uint8_t timeout, uint8_t retries)
{
    struct retransmit retransmit = {.deadline = {0}};
    retransmit_set(&retransmit, timeout, retries);
    retransmit_reset(&retransmit);
    return retransmit;
}

static void the_wait_follows_the_round_trip(void **state)
{
    struct retransmit retransmit = fresh(20, 7);
    struct instant now = {1000};
    for (uint32_t i = 0; i < 50; i++) {
        retransmit_sent(&retransmit, now, psn_make(i), true);
        now.ns += 30000000;
        retransmit_progress(&retransmit, now, psn_make(i + 1), false);
    }
    assert_in_range(retransmit_round_trip_ns(&retransmit), 29000000, 31000000);
    retransmit_sent(&retransmit, now, psn_make(100), true);
    assert_in_range(retransmit.deadline.ns - now.ns, 30000000, 40000000);
    /* and doubles */
    uint64_t first = retransmit.deadline.ns - now.ns;
    now = retransmit.deadline;
    assert_false(retransmit_expired(&retransmit, now));
    assert_true(instant_is_never(retransmit.deadline)); /* nothing was sent again yet */
    now.ns += 500;
    retransmit_sent(&retransmit, now, psn_make(100), false);
    assert_int_equal(retransmit.deadline.ns - now.ns, 2 * first);
}

static void the_wait_is_bounded_by_the_attribute(void **state)
{
    struct retransmit retransmit = fresh(10, 7); /* 4.2 ms */
    struct instant now = {1000};
    retransmit_sent(&retransmit, now, psn_make(0), true);
    for (uint32_t tries = 0;; tries++) {
        assert_true(retransmit.deadline.ns - now.ns <= UINT64_C(4096) << 10);
        now = retransmit.deadline;
        if (retransmit_expired(&retransmit, now)) {
            assert_int_equal(tries, 7);
            break;
        }
        retransmit_sent(&retransmit, now, psn_make(0), false);
    }
    assert_true(now.ns - 1000 >= 8 * (UINT64_C(4096) << 10));
}

static uint64_t wait_after_fast_answers(struct retransmit *retransmit, struct instant *now)
{
    for (uint32_t i = 0; i < 50; i++) {
        retransmit_sent(retransmit, *now, psn_make(i), true);
        now->ns += 20000;
        retransmit_progress(retransmit, *now, psn_make(i + 1), false);
    }
    retransmit_sent(retransmit, *now, psn_make(100), true);
    uint64_t wait_ns = retransmit->deadline.ns - now->ns;
    retransmit_progress(retransmit, *now, psn_make(101), false);
    return wait_ns;
}

/* A peer that waits for the CPU for two slices has lost nothing; where packets do get lost, the
 * wait is short, until several prove too short. */
static void the_wait_outlasts_the_scheduler(void **state)
{
    struct retransmit retransmit = fresh(14, 7);
    struct instant now = {1000};
    assert_in_range(wait_after_fast_answers(&retransmit, &now), 10000000, 20000000);
    retransmit_gap(&retransmit);
    assert_in_range(wait_after_fast_answers(&retransmit, &now), 500000, 2000000);
    retransmit_too_early(&retransmit); /* or an answer was lost */
    assert_in_range(wait_after_fast_answers(&retransmit, &now), 500000, 2000000);
    for (uint32_t i = 0; i < 10; i++) {
        retransmit_too_early(&retransmit);
    }
    assert_in_range(wait_after_fast_answers(&retransmit, &now), 10000000, 20000000);
}

/* Two or three round trips after the last answer, then rarer, and after 12 ms it is a timeout. */
static void probes_go_before_the_timeout(void **state)
{
    (void)state;
    struct retransmit retransmit = fresh(14, 7);
    struct instant start = {1000}, now;
    retransmit_probe_first(&retransmit);
    for (uint32_t i = 0; i < 50; i++) {
        retransmit_sample(&retransmit, 50000);
    }
    retransmit_sent(&retransmit, start, psn_make(0), true);
    assert_in_range(retransmit.deadline.ns - start.ns, 100000, 150000);
    uint32_t probes = 0;
    for (now = retransmit.deadline; retransmit_probe(&retransmit, now); now = retransmit.deadline) {
        probes++;
        assert_true(instant_before(now, retransmit.deadline));
        retransmit_sent(&retransmit, now, psn_make(0), false); /* moves nothing */
    }
    assert_in_range(probes, 4, 8);
    assert_in_range(now.ns - start.ns, 10000000, 20000000);
    assert_false(retransmit_expired(&retransmit, now));
    retransmit_sent(&retransmit, now, psn_make(0), false);
    assert_true(retransmit.deadline.ns - now.ns >= 10000000); /* who hears nothing probes no more */
    retransmit_progress(&retransmit, now, psn_make(0), true);
    assert_in_range(retransmit.deadline.ns - now.ns, 100000, 150000);
}

/* Each that came in vain doubles the wait for the next, also behind later answers; a measured round
 * trip ends that. The timeout stays where it is. */
static void probes_in_vain_make_hesitate(void **state)
{
    (void)state;
    struct retransmit retransmit = fresh(14, 7);
    struct instant now = {1000};
    retransmit_probe_first(&retransmit);
    for (uint32_t i = 0; i < 50; i++) {
        retransmit_sample(&retransmit, 50000);
    }
    retransmit_probed_in_vain(&retransmit, 2);
    retransmit_progress(&retransmit, now, psn_make(1), true);
    assert_in_range(retransmit.deadline.ns - now.ns, 400000, 600000);
    retransmit_probed_in_vain(&retransmit, 100);
    retransmit_progress(&retransmit, now, psn_make(2), true);
    assert_in_range(retransmit.deadline.ns - now.ns, 10000000, 20000000);
    assert_false(retransmit_probe(&retransmit, retransmit.deadline));
    retransmit_sample(&retransmit, 50000);
    retransmit_progress(&retransmit, now, psn_make(3), true);
    assert_in_range(retransmit.deadline.ns - now.ns, 100000, 150000);
}

/* What was sent twice is not timed: the answer may be to either. */
static void repeated_packets_are_not_measured(void **state)
{
    struct retransmit retransmit = fresh(14, 7);
    retransmit_sent(&retransmit, (struct instant){0}, psn_make(0), true);
    retransmit_rewound(&retransmit);
    retransmit_sent(&retransmit, (struct instant){100}, psn_make(0), false);
    retransmit_progress(&retransmit, (struct instant){200}, psn_make(1), false);
    assert_int_equal(retransmit.smoothed_ns, 0);
    assert_true(instant_is_never(retransmit.deadline));
}

/* A process that slept through all its deadlines has not asked often enough to give up. */
static void one_late_expiry_is_not_the_end(void **state)
{
    struct retransmit retransmit = fresh(14, 7);
    retransmit_sent(&retransmit, (struct instant){0}, psn_make(0), true);
    assert_false(retransmit_expired(&retransmit, (struct instant){UINT64_C(60000000000)}));
}

/* The instant of giving up on a peer that never answers. */
static uint64_t given_up_ns(uint8_t timeout_code, uint8_t retry_count)
{
    struct retransmit retransmit = fresh(timeout_code, retry_count);
    struct instant now = {0};
    do {
        retransmit_sent(&retransmit, now, psn_make(0), false);
        now = retransmit.deadline;
    } while (!retransmit_expired(&retransmit, now));
    return now.ns;
}

/* A slow peer works off what it has got, and says nothing new for a second. */
static void patience_outlasts_a_busy_peer(void **state)
{
    assert_in_range(given_up_ns(14, 7), UINT64_C(2000000000), UINT64_C(2100000000));
    assert_in_range(given_up_ns(14, 0), 4 * 67000000, 5 * 68000000); /* no more than the factor */
    assert_in_range(given_up_ns(18, 7), 8 * UINT64_C(1073000000), 9 * UINT64_C(1074000000));
    assert_in_range(given_up_ns(8, 3), 4 * 1048000, 5 * 1049000); /* who wants to know soon */
}

static void who_gives_up_soon_is_hasty(void **state)
{
    const struct {
        uint8_t timeout_code, retry_count;
        bool is_hasty;
    } rows[] = {{0, 0, false},  {1, 7, true},   {8, 7, true},   {10, 6, true},
                {10, 7, false}, {11, 0, false}, {14, 0, false}, {18, 7, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct retransmit retransmit = fresh(rows[i].timeout_code, rows[i].retry_count);
        assert_int_equal(retransmit_is_hasty(&retransmit), rows[i].is_hasty);
    }
}

static void silence_is_a_quarter_of_the_wait(void **state)
{
    struct retransmit retransmit = fresh(8, 0); /* 1048.576 us */
    struct instant now = {1000};
    retransmit_sent(&retransmit, now, psn_make(0), true);
    assert_false(retransmit_is_silent(&retransmit, instant_after(now, 262143)));
    assert_true(retransmit_is_silent(&retransmit, instant_after(now, 262144)));
    retransmit.is_vague = true; /* the wait has not begun */
    assert_false(retransmit_is_silent(&retransmit, instant_after(now, 262144)));
    retransmit = fresh(14, 7);
    retransmit_sent(&retransmit, now, psn_make(0), true);
    assert_true(retransmit_is_silent(&retransmit, instant_after(now, 2000000)));
}

static void the_wait_begins_with_the_first_that_asks(void **state)
{
    (void)state;
    struct retransmit retransmit = fresh(8, 0); /* 1048.576 us */
    struct instant now = {1000}, later = {500000};
    retransmit_sent(&retransmit, now, psn_make(0), false);
    retransmit_asked(&retransmit, later);
    assert_int_equal(retransmit.deadline.ns, 500000 + 1048576);
    assert_int_equal(retransmit.last_progress.ns, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rnr_codes_are_those_of_the_table),
        cmocka_unit_test(timeout_codes_double),
        cmocka_unit_test(the_wait_follows_the_round_trip),
        cmocka_unit_test(the_wait_is_bounded_by_the_attribute),
        cmocka_unit_test(the_wait_outlasts_the_scheduler),
        cmocka_unit_test(probes_go_before_the_timeout),
        cmocka_unit_test(probes_in_vain_make_hesitate),
        cmocka_unit_test(repeated_packets_are_not_measured),
        cmocka_unit_test(one_late_expiry_is_not_the_end),
        cmocka_unit_test(patience_outlasts_a_busy_peer),
        cmocka_unit_test(who_gives_up_soon_is_hasty),
        cmocka_unit_test(silence_is_a_quarter_of_the_wait),
        cmocka_unit_test(the_wait_begins_with_the_first_that_asks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
