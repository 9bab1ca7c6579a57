/* Losses are told from delays by time, whatever was repeated or overtaken. */
#include "rnic/transport/scoreboard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define US UINT64_C(1000)

static struct scoreboard board;

static struct instant at(uint64_t us)
{
    return (struct instant){(1000 + us) * US};
}

/* `count` packets from PSN 10 on, 1 us apart. */
static void send(uint32_t count)
{
    scoreboard_reset(&board, psn_make(10), 0);
    for (uint32_t i = 0; i < count; i++) {
        scoreboard_sent(&board, at(i), psn_make(10 + i), 1, false);
    }
}

static uint32_t report(uint64_t us, uint32_t expected, uint8_t bits)
{
    uint8_t bitmap[4] = {bits};
    struct report report = {
        .expected = psn_make(expected), .bitmap = bitmap, .bitmap_length = bits != 0 ? 4 : 0};
    return scoreboard_report(&board, at(us), &report);
}

static void what_others_overtook_is_lost_after_a_while(void **state)
{
    (void)state;
    send(4);
    assert_int_equal(report(103, 10, 0x8), 1); /* 13 has come, a round trip after it left */
    struct scoreboard_losses losses = scoreboard_find_lost(&board, at(103), 100 * US);
    assert_int_equal(losses.count, 0);
    assert_in_range(losses.look.ns, at(103).ns + 1, at(140).ns);
    losses = scoreboard_find_lost(&board, at(140), 100 * US);
    assert_int_equal(losses.count, 3);
    assert_int_equal(scoreboard_in_flight(&board), 0);
    struct psn psn;
    assert_true(scoreboard_first_lost(&board, &psn));
    assert_int_equal(psn.value, 10);
}

static void what_comes_late_is_not(void **state)
{
    (void)state;
    send(2);
    assert_int_equal(report(101, 10, 0x2), 1);
    assert_int_equal(scoreboard_answered(&board, at(110), 2), 1);
    assert_int_equal(scoreboard_find_lost(&board, at(200), 100 * US).count, 0);
    assert_int_equal(board.held_count, 0);
}

/* What left after the youngest that has come may be on its way. */
static void what_left_later_is_in_no_doubt(void **state)
{
    (void)state;
    send(3);
    assert_int_equal(report(101, 10, 0x2), 1); /* 11 */
    assert_int_equal(scoreboard_find_lost(&board, at(500), 100 * US).count, 1);
    assert_int_equal(scoreboard_in_flight(&board), 1);
}

/* Ticks come again after four minutes: what arrived before says nothing of what leaves after. */
static void a_long_silence_makes_nothing_late(void **state)
{
    (void)state;
    const uint64_t later = UINT64_C(150000000);
    send(1);
    assert_int_equal(scoreboard_answered(&board, at(100), 1), 1);
    board.took_is_fresh = false;
    scoreboard_sent(&board, at(later), psn_make(11), 1, false);
    scoreboard_sent(&board, at(later + 1), psn_make(12), 1, false);
    assert_int_equal(report(later + 300, 12, 0), 1); /* the way has become longer */
    assert_true(board.took_is_fresh);
    assert_in_range(board.took_ns, 299 * US, 301 * US);
    assert_int_equal(scoreboard_find_lost(&board, at(later + 301), 100 * US).count, 0);
}

static void a_lost_repetition_is_found_too(void **state)
{
    (void)state;
    send(2);
    (void)report(101, 10, 0x2);
    assert_int_equal(scoreboard_find_lost(&board, at(140), 100 * US).count, 1);
    scoreboard_sent(&board, at(150), psn_make(10), 1, false);
    scoreboard_sent(&board, at(151), psn_make(12), 1, false);
    assert_int_equal(scoreboard_find_lost(&board, at(200), 100 * US).count, 0);
    assert_int_equal(report(252, 10, 0x6), 1); /* 12 has come */
    assert_int_equal(scoreboard_find_lost(&board, at(300), 100 * US).count, 1);
}

/* Its answer is that of the first one: too soon for the second. */
static void the_answer_to_the_first_is_not_the_repetitions(void **state)
{
    (void)state;
    send(3);
    (void)report(101, 10, 0x2); /* 11 took 100 us */
    assert_int_equal(scoreboard_find_lost(&board, at(140), 100 * US).count, 1);
    scoreboard_sent(&board, at(140), psn_make(10), 1, false);
    assert_int_equal(scoreboard_answered(&board, at(145), 2), 1);
    assert_int_equal(scoreboard_find_lost(&board, at(160), 100 * US).count, 0); /* 12 */
}

static void patience_grows_with_what_was_in_vain(void **state)
{
    (void)state;
    send(1);
    uint64_t before_ns = scoreboard_patience_ns(&board, 100 * US);
    struct report in_vain = {.expected = psn_make(10), .duplicates = 1};
    (void)scoreboard_report(&board, at(100), &in_vain);
    assert_int_equal(scoreboard_patience_ns(&board, 100 * US), 2 * before_ns);
    (void)scoreboard_report(&board, at(101), &in_vain); /* no news */
    assert_int_equal(scoreboard_patience_ns(&board, 100 * US), 2 * before_ns);
}

/* Reports of one flight that was repeated whole: none of what left since can have been in vain. */
static void what_was_in_vain_at_once_counts_once(void **state)
{
    (void)state;
    send(1);
    uint64_t before_ns = scoreboard_patience_ns(&board, 100 * US);
    struct report in_vain = {.expected = psn_make(10)};
    for (uint16_t i = 1; i <= 60; i++) {
        in_vain.duplicates = i;
        (void)scoreboard_report(&board, at(1000), &in_vain);
    }
    assert_int_equal(scoreboard_patience_ns(&board, 100 * US), 2 * before_ns);
    in_vain.duplicates = 61;
    (void)scoreboard_report(&board, at(1200), &in_vain);
    assert_int_equal(scoreboard_patience_ns(&board, 100 * US), 4 * before_ns);
}

/* The expected packet is not held, whatever was said before: the receiver had no receive for it. */
static void what_is_expected_is_not_held(void **state)
{
    (void)state;
    send(3);
    (void)report(101, 10, 0x6);
    assert_int_equal(board.held_count, 2);
    assert_int_equal(scoreboard_answered(&board, at(150), 1), 1);
    (void)report(150, 11, 0);
    assert_int_equal(board.held_count, 1);
}

/* A demand is one packet and as many PSNs as it draws: only the one can be lost on its way there.
 */
static void what_a_demand_draws_is_not_in_doubt(void **state)
{
    (void)state;
    scoreboard_reset(&board, psn_make(0xfffffe), 0);
    scoreboard_sent(&board, at(0), psn_make(0xfffffe), 4, true);
    scoreboard_sent(&board, at(1), psn_make(2), 1, false);
    struct report all = {.expected = psn_make(3)};
    (void)scoreboard_report(&board, at(100), &all);
    assert_int_equal(scoreboard_find_lost(&board, at(500), 100 * US).count, 0);
    assert_int_equal(scoreboard_in_flight(&board), 3);
    scoreboard_lost_before(&board, board.end);
    assert_int_equal(board.lost_count, 4);
}

/* A report that comes late: the peer has the demand already. */
static void a_response_that_came_early_is_not_under_way(void **state)
{
    (void)state;
    scoreboard_reset(&board, psn_make(10), 0);
    scoreboard_sent(&board, at(0), psn_make(10), 4, true);
    assert_int_equal(scoreboard_came(&board, at(100), psn_make(12)), 1);
    assert_int_equal(scoreboard_came(&board, at(101), psn_make(12)), 0);
    assert_int_equal(scoreboard_in_flight(&board), 3);
    assert_int_equal(scoreboard_answered(&board, at(110), 4), 3);
    assert_int_equal(board.held_count, 0);
}

/* Of what waits behind a missing response, requests that need none of their own are done. */
static void what_is_acknowledged_beyond_a_response_is_held(void **state)
{
    (void)state;
    scoreboard_reset(&board, psn_make(10), 0);
    scoreboard_sent(&board, at(0), psn_make(10), 2, true);
    scoreboard_sent(&board, at(0), psn_make(12), 1, false);
    scoreboard_sent(&board, at(0), psn_make(13), 1, true);
    scoreboard_sent(&board, at(0), psn_make(14), 1, false);
    assert_int_equal(scoreboard_acknowledged(&board, at(100), psn_make(14)), 1);
    assert_int_equal(scoreboard_acknowledged(&board, at(100), psn_make(14)), 0);
    assert_int_equal(scoreboard_in_flight(&board), 4);
}

/* Only what comes sooner than anything has can be the answer to an earlier demand; what does not
 * was lost, and patience is no use. What was drawn again only because it lies between two that were
 * lost says nothing. */
static void a_demand_in_vain_makes_patient(void **state)
{
    (void)state;
    scoreboard_reset(&board, psn_make(10), 100 * US);
    scoreboard_sent(&board, at(0), psn_make(10), 3, true);
    uint64_t before = scoreboard_patience_ns(&board, 100 * US);
    scoreboard_mark_lost(&board, psn_make(10));
    scoreboard_mark_lost(&board, psn_make(12));
    scoreboard_sent(&board, at(200), psn_make(10), 3, true);
    scoreboard_responded(&board, at(310), psn_make(10));
    scoreboard_responded(&board, at(230), psn_make(11));
    assert_int_equal(scoreboard_patience_ns(&board, 100 * US), before);
    scoreboard_responded(&board, at(230), psn_make(12));
    assert_int_equal(scoreboard_patience_ns(&board, 100 * US), 2 * before);
    for (int i = 0; i < 64; i++) {
        scoreboard_responded(&board, at(310), psn_make(12));
    }
    assert_int_equal(scoreboard_patience_ns(&board, 100 * US), before);
}

/* A quarter of the shortest round trip, however long that is, and never more than 2 ms beyond it.
 */
static void patience_has_a_bound_that_a_long_way_does_not_jump_to(void **state)
{
    (void)state;
    scoreboard_reset(&board, psn_make(10), 0);
    assert_in_range(scoreboard_patience_ns(&board, 20000 * US), 5000 * US, 5100 * US);
    board.leniency = 256;
    assert_int_equal(scoreboard_patience_ns(&board, 20000 * US), 22000 * US);
    assert_int_equal(scoreboard_patience_ns(&board, 100 * US), 2100 * US);
}

static void what_a_held_demand_draws_is_not_lost(void **state)
{
    (void)state;
    scoreboard_reset(&board, psn_make(10), 0);
    scoreboard_sent(&board, at(0), psn_make(10), 1, false);
    scoreboard_sent(&board, at(0), psn_make(11), 4, true);
    scoreboard_lost_before(&board, board.end);
    assert_int_equal(board.lost_count, 5);
    (void)report(100, 10, 0x2);
    assert_int_equal(board.lost_count, 1);
    assert_int_equal(board.held_count, 1);
}

/* Answers take words of 64 at a time, wherever they begin and end. */
static void answers_span_words(void **state)
{
    (void)state;
    for (uint32_t start = 0; start < 130; start += 13) {
        for (uint32_t count = 1; count < 200; count += 7) {
            struct psn first = psn_make(0xffffc0 + start);
            scoreboard_reset(&board, first, 0);
            for (uint32_t i = 0; i < 256; i++) {
                scoreboard_sent(&board, at(i), psn_add(first, i), 1, false);
            }
            scoreboard_mark_lost(&board, psn_add(first, 255));
            scoreboard_mark_lost(&board, first);
            uint8_t bitmap[32] = {[16] = 0xff}; /* 128 to 135 */
            struct report early = {.expected = first, .bitmap = bitmap, .bitmap_length = 32};
            assert_int_equal(scoreboard_report(&board, at(300), &early), 8);
            uint32_t held = count <= 128 ? 0 : count >= 136 ? 8 : count - 128;
            assert_int_equal(scoreboard_answered(&board, at(400), count), count - held);
            assert_int_equal(board.held_count, 8 - held);
            assert_int_equal(board.lost_count, 1);
            assert_true(psn_equal(board.first, psn_add(first, count)));
            assert_int_equal(scoreboard_in_flight(&board), 256 - count - (8 - held) - 1);
            if (count > 136) {
                assert_int_equal(board.took_ns / 1000, 400 - (count - 1)); /* the youngest's */
            }
        }
    }
}

/* The last that may be lost; what it costs in vain is no sign that losses were found too soon. */
static void a_probe_is_the_last_that_may_be_lost(void **state)
{
    (void)state;
    send(4);
    (void)report(103, 10, 0x8); /* 13 */
    struct psn psn;
    assert_true(scoreboard_last_in_doubt(&board, &psn));
    assert_int_equal(psn.value, 12);
    scoreboard_probe(&board, psn);
    assert_int_equal(board.lost_count, 1);
    assert_true(board.probing);
    scoreboard_sent(&board, at(200), psn, 1, false);
    assert_false(board.probing);
    uint64_t patience_ns = scoreboard_patience_ns(&board, 100 * US);
    struct report in_vain = {.expected = psn_make(14), .duplicates = 1};
    assert_int_equal(scoreboard_report(&board, at(300), &in_vain), 3);
    assert_int_equal(scoreboard_patience_ns(&board, 100 * US), patience_ns);
    in_vain.duplicates = 2;
    (void)scoreboard_report(&board, at(300), &in_vain);
    assert_true(scoreboard_patience_ns(&board, 100 * US) > patience_ns);
    assert_false(scoreboard_last_in_doubt(&board, &psn));
}

/* What counts as lost already serves as well, whatever the window. */
static void of_what_is_too_old_the_youngest_is_told(void **state)
{
    (void)state;
    send(4);
    struct scoreboard_losses losses = scoreboard_lose_old(&board, at(500), 497 * US + 500);
    assert_int_equal(losses.count, 3);
    assert_in_range(losses.waited_ns, 498 * US - 64, 498 * US + 64);
    losses = scoreboard_lose_old(&board, at(900), 498 * US);
    assert_int_equal(losses.count, 1);
    assert_in_range(losses.waited_ns, 897 * US - 64, 897 * US + 64);
}

static void what_is_lost_is_a_probe_too(void **state)
{
    (void)state;
    send(4);
    scoreboard_mark_lost(&board, psn_make(11));
    scoreboard_probe(&board, psn_make(13));
    assert_int_equal(board.lost_count, 1);
    assert_true(board.probing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_others_overtook_is_lost_after_a_while),
        cmocka_unit_test(what_comes_late_is_not),
        cmocka_unit_test(what_left_later_is_in_no_doubt),
        cmocka_unit_test(a_long_silence_makes_nothing_late),
        cmocka_unit_test(a_lost_repetition_is_found_too),
        cmocka_unit_test(the_answer_to_the_first_is_not_the_repetitions),
        cmocka_unit_test(patience_grows_with_what_was_in_vain),
        cmocka_unit_test(what_was_in_vain_at_once_counts_once),
        cmocka_unit_test(what_is_expected_is_not_held),
        cmocka_unit_test(what_a_demand_draws_is_not_in_doubt),
        cmocka_unit_test(a_response_that_came_early_is_not_under_way),
        cmocka_unit_test(what_is_acknowledged_beyond_a_response_is_held),
        cmocka_unit_test(a_demand_in_vain_makes_patient),
        cmocka_unit_test(patience_has_a_bound_that_a_long_way_does_not_jump_to),
        cmocka_unit_test(what_a_held_demand_draws_is_not_lost),
        cmocka_unit_test(answers_span_words),
        cmocka_unit_test(a_probe_is_the_last_that_may_be_lost),
        cmocka_unit_test(of_what_is_too_old_the_youngest_is_told),
        cmocka_unit_test(what_is_lost_is_a_probe_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
