#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tools/transfer/ends/pace.h"

#define MS UINT64_C(1000000)

/* Sends pieces whenever it may, looking every `step_ms`; how much went in ten seconds. */
static uint64_t ten_seconds(uint64_t rate, unsigned step_ms, size_t piece)
{
    uint64_t sent = 0, now = 5 * MS;
    struct pace pace = pace_start(rate, now);
    for (unsigned i = 0; i < 10000 / step_ms; i++, now += step_ms * MS) {
        while (pace_allows(&pace, now)) {
            size_t length = pace_piece(&pace, piece);
            pace_spend(&pace, length);
            sent += length;
        }
    }
    return sent;
}

static void the_rate_is_kept(void **state)
{
    static const uint64_t rates[] = {1000, 65536, 1000000, 1 << 30};
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        for (unsigned step = 1; step <= 250; step += 83) {
            uint64_t sent = ten_seconds(rates[i], step, 1 << 20);
            assert_true(sent > rates[i] * 9);
            assert_true(sent < rates[i] * 11 + 4096);
        }
    }
}

static void what_was_not_sent_is_not_saved_up(void **state)
{
    struct pace pace = pace_start(1000, 0);
    unsigned sent = 0;
    while (pace_allows(&pace, 3600 * 1000 * MS)) {
        pace_spend(&pace, 100);
        sent += 100;
    }
    assert_true(sent <= 600);
}

static void without_a_rate_nothing_waits(void **state)
{
    struct pace pace = pace_start(0, 0);
    for (unsigned i = 0; i < 1000; i++) {
        assert_true(pace_allows(&pace, 0));
        pace_spend(&pace, SIZE_MAX / 2);
    }
    assert_int_equal(pace_piece(&pace, 12345), 12345);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rate_is_kept),
        cmocka_unit_test(what_was_not_sent_is_not_saved_up),
        cmocka_unit_test(without_a_rate_nothing_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
