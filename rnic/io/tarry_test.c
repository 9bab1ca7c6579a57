/* Who waits for more of his kind: only who has shown a stream, not for long, and less easily once
 * he was found waiting. */
#include "rnic/io/tarry.h"

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

/* A post `gap_ns` after the one before. True: it waits, and `*waiting` has grown. */
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
        assert_ptr_equal(tarry.qp, waits ? one : NULL);
    }
}

static void a_poll_is_no_gap(void **state)
{
    struct tarry tarry = {0};
    uint32_t waiting = 1;
    assert_in_range(posts_until_one_waits(&tarry, ENOUGH), 1, ENOUGH - 1);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_ptr_equal(tarry_end(&tarry, now, true), one);
        assert_null(tarry_end(&tarry, now, true));
        waiting = 0;
        assert_true(post(&tarry, one, FAR_NS, &waiting));
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
    for (uint32_t i = 0; i < 10000; i++) {
        assert_false(post(&tarry, i % 2 == 0 ? one : other, CLOSE_NS, &waiting));
    }
}

static void who_slows_down_does_not_wait(void **state)
{
    struct tarry tarry = {0};
    uint32_t waiting = 1;
    assert_in_range(posts_until_one_waits(&tarry, ENOUGH), 1, ENOUGH - 1);
    assert_false(post(&tarry, one, FAR_NS, &waiting));
    assert_null(tarry.qp);
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
        assert_ptr_equal(tarry_end(&tarry, now, false), one);
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
        cmocka_unit_test(a_poll_is_no_gap),
        cmocka_unit_test(who_posts_now_and_then_does_not_wait),
        cmocka_unit_test(who_slows_down_does_not_wait),
        cmocka_unit_test(what_goes_by_packets_shows_nothing),
        cmocka_unit_test(who_was_found_waiting_shows_more),
        cmocka_unit_test(the_thread_looks_while_any_may_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
