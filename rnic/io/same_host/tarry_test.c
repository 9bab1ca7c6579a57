/* Who waits for more of his kind: only who has shown a stream, not for long, and less easily once
 * he was found waiting. */
#include "rnic/io/same_host/tarry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define CLOSE_NS 100u
#define FAR_NS   5000u
#define ENOUGH   1000u /* posts that show a stream */

static struct instant now = {1000000};
static struct qp *const one = (struct qp *)&now, *const other = (struct qp *)(&now + 1);

/* A post `gap_ns` after the one before. True: it waits, and `*waiting`, which stand in its queue
 * pair, has grown. */
static bool post(struct tarry *tarry, struct qp *qp, uint64_t gap_ns, uint32_t *waiting)
{
    now = instant_after(now, gap_ns);
    if (tarry_post(tarry, now, qp, ++*waiting)) {
        return true;
    }
    *waiting = 0;
    (void)tarry_end(tarry, now, false);
    now = instant_after(now, 600);
    tarry_done(tarry, now, true);
    return false;
}

static uint32_t posts_until_one_waits(struct tarry *tarry, uint32_t most)
{
    uint32_t waiting = 0, posts = 0;
    while (posts < most && !post(tarry, one, CLOSE_NS, &waiting)) {
        posts++;
    }
    return posts;
}

static void a_stream_goes_by_many(void **state)
{
    struct tarry tarry = {0};
    uint32_t waiting = 1, least = posts_until_one_waits(&tarry, ENOUGH);
    assert_in_range(least, 16, ENOUGH - 1);
    for (uint32_t i = 0; i < 10 * TARRY_MOST; i++) {
        uint32_t before = waiting;
        bool waits = post(&tarry, one, CLOSE_NS, &waiting);
        assert_int_equal(waits, before < TARRY_MOST - 1);
        assert_int_equal(tarry.count, waits);
        assert_ptr_equal(tarry.qps[0], one);
    }
}

static void those_of_many_go_together(void **state)
{
    static char places[TARRY_MOST];
    struct tarry tarry = {0};
    uint32_t waiting = 1;
    assert_in_range(posts_until_one_waits(&tarry, ENOUGH), 16, ENOUGH - 1);
    (void)tarry_end(&tarry, now, true);
    for (uint32_t i = 0; i < TARRY_MOST; i++) {
        waiting = 0;
        bool waits = post(&tarry, (struct qp *)&places[i], CLOSE_NS, &waiting);
        assert_int_equal(waits, i < TARRY_MOST - 1);
        assert_int_equal(tarry.count, waits ? i + 1 : 0);
        assert_ptr_equal(tarry.qps[i], waits ? (struct qp *)&places[i] : NULL);
    }
}

static void as_many_as_one_has_and_others(void **state)
{
    struct tarry tarry = {0};
    uint32_t waiting = 1, waiting_there = 0, posts = 0;
    assert_in_range(posts_until_one_waits(&tarry, ENOUGH), 16, ENOUGH - 1);
    (void)tarry_end(&tarry, now, true);
    for (waiting = 0; post(&tarry, one, CLOSE_NS, &waiting) && waiting < 20; posts++) {
    }
    while (post(&tarry, other, CLOSE_NS, &waiting_there)) {
        assert_int_equal(tarry.count, 2);
        posts++;
    }
    assert_int_equal(posts + 1, TARRY_MOST - 1);
}

static void a_poll_is_no_gap(void **state)
{
    struct tarry tarry = {0};
    uint32_t waiting = 1;
    assert_in_range(posts_until_one_waits(&tarry, ENOUGH), 1, ENOUGH - 1);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(tarry_end(&tarry, now, true), 1);
        assert_int_equal(tarry_end(&tarry, now, true), 0);
        waiting = 0;
        assert_true(post(&tarry, one, FAR_NS, &waiting));
    }
}

/* Bursts, their completions polled, and then a flag by itself, for somebody who looks at memory. */
static void who_comes_back_long_after_a_poll_does_not_wait(void **state)
{
    struct tarry tarry = {0};
    uint32_t waiting = 1;
    assert_in_range(posts_until_one_waits(&tarry, ENOUGH), 1, ENOUGH - 1);
    for (uint32_t i = 0; i < 100; i++) {
        while (post(&tarry, one, CLOSE_NS, &waiting)) {
        }
        (void)post(&tarry, one, CLOSE_NS, &waiting);
        assert_int_equal(tarry_end(&tarry, now, true), 1);
        waiting = 0;
        assert_false(post(&tarry, one, 10000000, &waiting));
        while (!post(&tarry, one, CLOSE_NS, &waiting)) {
        }
    }
}

static void who_posts_now_and_then_does_not_wait(void **state)
{
    struct tarry tarry = {0};
    uint32_t waiting = 0;
    for (uint32_t i = 0; i < 10000; i++) {
        assert_false(post(&tarry, one, FAR_NS, &waiting));
        assert_false(post(&tarry, one, CLOSE_NS, &waiting)); /* what was written, and a flag */
    }
}

static void who_slows_down_does_not_wait(void **state)
{
    struct tarry tarry = {0};
    uint32_t waiting = 1;
    assert_in_range(posts_until_one_waits(&tarry, ENOUGH), 1, ENOUGH - 1);
    assert_false(post(&tarry, one, FAR_NS, &waiting));
    assert_false(tarry_has_any(&tarry));
}

static void what_goes_by_packets_shows_nothing(void **state)
{
    struct tarry tarry = {0};
    for (uint32_t i = 0; i < 10000; i++) {
        now = instant_after(now, CLOSE_NS);
        assert_false(tarry_post(&tarry, now, one, 1));
        tarry_done(&tarry, now, false);
    }
}

static void who_was_found_waiting_shows_more(void **state)
{
    struct tarry tarry = {0};
    uint32_t before = posts_until_one_waits(&tarry, ENOUGH), waiting = 1;
    for (uint32_t i = 0; i < 4; i++) {
        now = instant_after(now, TARRY_NS);
        assert_int_equal(tarry_end(&tarry, now, false), 1);
        uint32_t next = posts_until_one_waits(&tarry, 100 * ENOUGH);
        assert_in_range(next, 2 * before, 100 * ENOUGH - 1);
        before = next;
    }
    for (uint32_t i = 0; i < 1000 * TARRY_MOST; i++) { /* it is a stream after all */
        (void)post(&tarry, one, CLOSE_NS, &waiting);
    }
    now = instant_after(now, TARRY_NS);
    (void)tarry_end(&tarry, now, false);
    assert_in_range(posts_until_one_waits(&tarry, before), 1, before / 2);
}

/* Who polls before so many wait as go together is seldom late, if he is a stream. */
static void who_polls_in_time_is_trusted_again(void **state)
{
    struct tarry tarry = {0};
    uint32_t waiting = 1, before = posts_until_one_waits(&tarry, ENOUGH);
    now = instant_after(now, TARRY_NS);
    assert_int_equal(tarry_end(&tarry, now, true), 1);
    assert_in_range(posts_until_one_waits(&tarry, 100 * ENOUGH), 2 * before, 100 * ENOUGH - 1);
    for (uint32_t i = 0; i < 1000; i++) {
        for (waiting = 0; waiting < TARRY_MOST / 2;) {
            assert_true(post(&tarry, one, CLOSE_NS, &waiting));
        }
        assert_int_equal(tarry_end(&tarry, now, true), 1);
    }
    now = instant_after(now, TARRY_NS);
    waiting = 0;
    (void)post(&tarry, one, CLOSE_NS, &waiting);
    now = instant_after(now, TARRY_NS);
    (void)tarry_end(&tarry, now, false);
    assert_in_range(posts_until_one_waits(&tarry, 100 * ENOUGH), 1, 5 * before);
}

static void the_thread_looks_while_any_may_wait(void **state)
{
    struct tarry tarry = {0};
    uint32_t looks = 0;
    assert_true(instant_is_never(tarry_look(&tarry, now)));
    (void)posts_until_one_waits(&tarry, ENOUGH);
    (void)tarry_end(&tarry, now, false);
    struct instant next;
    while (!instant_is_never(next = tarry_look(&tarry, now))) {
        assert_int_equal(instant_elapsed_ns(now, next), TARRY_NS);
        assert_in_range(++looks, 1, 100);
    }
    assert_in_range(looks, 1, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_goes_by_many),
        cmocka_unit_test(those_of_many_go_together),
        cmocka_unit_test(as_many_as_one_has_and_others),
        cmocka_unit_test(a_poll_is_no_gap),
        cmocka_unit_test(who_comes_back_long_after_a_poll_does_not_wait),
        cmocka_unit_test(who_posts_now_and_then_does_not_wait),
        cmocka_unit_test(who_slows_down_does_not_wait),
        cmocka_unit_test(what_goes_by_packets_shows_nothing),
        cmocka_unit_test(who_was_found_waiting_shows_more),
        cmocka_unit_test(who_polls_in_time_is_trusted_again),
        cmocka_unit_test(the_thread_looks_while_any_may_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
