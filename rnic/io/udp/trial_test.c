#include "rnic/io/udp/trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Until both have been tried; what was not asked for is not heeded. */
static void try_both(struct trial *trial, uint32_t first, uint32_t second)
{
    uint32_t asked = 0, seconds = 0;
    while (trial->round >= 2 * TRIAL_ROUNDS) {
        trial_count(trial, 0);
    }
    for (uint32_t i = 0; i < 2 * TRIAL_ROUNDS; i++) {
        bool is_second = trial_is_second(trial), asks = trial_asks(trial);
        uint32_t cost = is_second ? second : first;
        seconds += is_second;
        asked += asks;
        trial_count(trial, !asks ? 1 : i % 3 == 0 ? 100 * cost : cost); /* some were disturbed */
    }
    assert_int_equal(seconds, TRIAL_ROUNDS);
    assert_int_equal(asked, 2 * TRIAL_SAMPLES);
}

static void who_saves_a_sixteenth_is_taken(void **state)
{
    (void)state;
    struct trial trial = {0};
    assert_false(trial_is_second(&trial));
    try_both(&trial, 1000, 940);
    assert_false(trial_is_second(&trial));
    try_both(&trial, 1000, 930);
    assert_true(trial_is_second(&trial));
    assert_false(trial_asks(&trial));
}

static void who_saves_anything_is_kept(void **state)
{
    (void)state;
    struct trial trial = {0};
    try_both(&trial, 1000, 700);
    try_both(&trial, 1000, 999);
    assert_true(trial_is_second(&trial));
    try_both(&trial, 1000, 1000);
    assert_false(trial_is_second(&trial));
    try_both(&trial, UINT32_MAX, UINT32_MAX / 2);
    assert_true(trial_is_second(&trial));
}

static void both_are_tried_now_and_then(void **state)
{
    (void)state;
    struct trial trial = {0};
    uint32_t rounds = 0;
    try_both(&trial, 1000, 500);
    for (; trial_is_second(&trial); rounds++) {
        trial_count(&trial, 0);
    }
    assert_int_equal(rounds, TRIAL_REST - 2 * TRIAL_ROUNDS);
    assert_int_equal(trial.round, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_saves_a_sixteenth_is_taken),
        cmocka_unit_test(who_saves_anything_is_kept),
        cmocka_unit_test(both_are_tried_now_and_then),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
