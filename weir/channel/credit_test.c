/* Credit: limits move as they should, lies are noticed, the reserve suffices, counts wrap. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "weir/channel/credit.h"

static void test_window_is_spent_and_given_back(void **state)
{
    struct credit sender, receiver;
    credit_init(&sender, 1, 3);
    credit_init(&receiver, 3, 1);
    for (int i = 0; i < 3; i++) {
        assert_true(credit_can_send(&sender));
        credit_spend(&sender);
        assert_true(credit_receive(&receiver));
    }
    assert_false(credit_can_send(&sender));
    assert_false(credit_receive(&receiver));
    assert_false(credit_is_due(&receiver));
    credit_return(&receiver, 1);
    assert_true(credit_is_due(&receiver));
    assert_true(credit_learn(&sender, credit_tell(&receiver)));
    assert_false(credit_is_due(&receiver));
    assert_true(credit_can_send(&sender));
    credit_spend(&sender);
    assert_false(credit_can_send(&sender));
}

static void test_impossible_limits_are_refused(void **state)
{
    struct credit credit;
    credit_init(&credit, 8, 4);
    assert_true(credit_learn(&credit, 4));
    assert_false(credit_learn(&credit, 5)); /* more than a window ahead */
    assert_false(credit_learn(&credit, 3)); /* back */
    credit_spend(&credit);
    assert_true(credit_learn(&credit, 5));
    assert_false(credit_learn(&credit, 4));
    assert_false(credit_learn(&credit, 6));
    assert_false(credit_learn(&credit, UINT32_MAX));
    assert_int_equal(credit.limit, 5);
}

static void test_counts_wrap(void **state)
{
    struct credit sender, receiver;
    credit_init(&sender, 5, 5);
    credit_init(&receiver, 5, 5);
    sender.sent = receiver.received = UINT32_MAX - 2;
    sender.limit = receiver.granted = receiver.told = sender.sent + 5;
    for (int i = 0; i < 20; i++) {
        assert_true(credit_can_send(&sender));
        credit_spend(&sender);
        assert_true(credit_receive(&receiver));
        credit_return(&receiver, 1);
        assert_true(credit_learn(&sender, credit_tell(&receiver)));
    }
    assert_int_equal(sender.sent, 17);
}

/* However the messages of both sides are interleaved, and however many receives are posted again at
 * once, a side that does not read holds no more messages without credit than the reserve, and is
 * told of some credit before it has none. */
static void check_reserve(uint32_t window, uint32_t batch)
{
    struct credit stalled, busy;
    credit_init(&stalled, 1, window);
    credit_init(&busy, window, 1);
    unsigned unread = 0, unposted = 0;
    while (credit_can_send(&stalled)) { /* and never learns */
        credit_spend(&stalled);
        assert_true(credit_receive(&busy));
        if (++unposted == batch) {
            credit_return(&busy, unposted);
            unposted = 0;
        }
        if (credit_is_due(&busy)) {
            credit_tell(&busy);
            unread++;
        }
    }
    assert_in_range(unread, 1, CREDIT_RESERVE - CREDIT_PULLS_MAX - 2);
}

static void test_reserve_suffices(void **state)
{
    for (uint32_t window = 1; window <= 80; window++) {
        check_reserve(window, 1);
        for (uint32_t batch = 2; batch <= window / 8; batch++) {
            check_reserve(window, batch);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_window_is_spent_and_given_back),
        cmocka_unit_test(test_impossible_limits_are_refused),
        cmocka_unit_test(test_counts_wrap),
        cmocka_unit_test(test_reserve_suffices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
