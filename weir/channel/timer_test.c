/* The heap of timers against a plain search. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "weir/channel/timer.h"

#define COUNT 300

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 8;
}

static struct timer *earliest(struct timer *timers)
{
    struct timer *best = NULL;
    for (int i = 0; i < COUNT; i++) {
        if (timers[i].place != 0 && (best == NULL || timers[i].deadline_ns < best->deadline_ns)) {
            best = &timers[i];
        }
    }
    return best;
}

static void test_against_search(void **state)
{
    struct timers heap = {0};
    struct timer timers[COUNT] = {{0}};
    uint32_t seed = 1;
    for (int step = 0; step < 20000; step++) {
        struct timer *timer = &timers[next_random(&seed) % COUNT];
        uint32_t what = next_random(&seed) % 8;
        if (what < 4) {
            assert_true(timers_set(&heap, timer, next_random(&seed) % 1000));
        } else if (what < 6) {
            timers_cancel(&heap, timer);
        } else {
            struct timer *wanted = earliest(timers);
            uint64_t now_ns = next_random(&seed) % 1000;
            uint64_t next_ns = wanted != NULL ? wanted->deadline_ns : TIMER_NEVER;
            assert_int_equal(timers_next_ns(&heap), next_ns);
            struct timer *taken = timers_take(&heap, now_ns);
            assert_int_equal(taken != NULL, next_ns <= now_ns);
            if (taken != NULL) {
                assert_int_equal(taken->deadline_ns, next_ns);
                assert_int_equal(taken->place, 0);
            }
        }
    }
    timers_fini(&heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_search)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
