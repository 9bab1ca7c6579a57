/* Who waits for a stream looks again for as long as that pays, and no longer. */
#include "tools/patience.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define LOOK_NS 1000u
#define LONG_NS 10000000u

static uint64_t now_ns = 1;

/* poller.h's, of which nothing is wanted here. */
int weir_glance(struct weir_poller *poller)
{
    return 0;
}

int weir_poll(struct weir_poller *poller, int timeout_ms)
{
    return 0;
}

static void come(struct patience *patience)
{
    assert_true(patience_lasts(patience, now_ns, true));
}

/* How long it looks where nothing comes. */
static uint64_t idle_ns(struct patience *patience)
{
    uint64_t began_ns = now_ns;
    do {
        now_ns += LOOK_NS;
    } while (patience_lasts(patience, now_ns, false));
    return now_ns - began_ns;
}

static void who_has_seen_nothing_sleeps(void **state)
{
    struct patience patience;
    patience_init(&patience);
    now_ns = LONG_NS;
    assert_false(patience_lasts(&patience, now_ns, false));
    assert_false(patience_lasts(&patience, now_ns + LOOK_NS, false));
}

static void looking_in_vain_is_unlearned(void **state)
{
    struct patience patience;
    patience_init(&patience);
    come(&patience);
    uint64_t before = idle_ns(&patience);
    assert_in_range(before, 100000, 1000000);
    for (int i = 0; i < 30; i++) {
        now_ns += LONG_NS; /* asleep */
        come(&patience);
        uint64_t next = idle_ns(&patience);
        assert_true(next <= before / 2 + LOOK_NS);
        before = next;
    }
    assert_in_range(before, LOOK_NS, 2 * LOOK_NS);
}

static void what_pays_is_done_longer(void **state)
{
    struct patience patience;
    patience_init(&patience);
    come(&patience);
    uint64_t first = idle_ns(&patience);
    for (int i = 0; i < 5; i++) {
        now_ns += LONG_NS;
        come(&patience);
        idle_ns(&patience);
    }
    now_ns += LONG_NS;
    for (int i = 0; i < 20; i++) { /* each in time */
        now_ns += LOOK_NS;
        come(&patience);
    }
    assert_true(idle_ns(&patience) == first);
}

/* Whose patience is too short for a stream learns by the shortness of its sleeps. */
static void naps_are_a_stream(void **state)
{
    struct patience patience;
    patience_init(&patience);
    come(&patience);
    uint64_t first = idle_ns(&patience), last = 0;
    for (int i = 0; i < 30; i++) {
        now_ns += LONG_NS;
        come(&patience);
        idle_ns(&patience);
    }
    for (int i = 0; i < 40 && last < first; i++) {
        now_ns += first / 10;
        come(&patience);
        last = idle_ns(&patience);
    }
    assert_true(last == first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_has_seen_nothing_sleeps),
        cmocka_unit_test(looking_in_vain_is_unlearned),
        cmocka_unit_test(what_pays_is_done_longer),
        cmocka_unit_test(naps_are_a_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
