/* Stays while a stream goes on, not for ever, and ever shorter where nothing comes. */
#include "rnic/io/loop/stay.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define LOOK_NS 500u

static struct instant now;

/* How long a stay lasts in which nothing comes. */
static uint64_t idle_stay_ns(struct stay *stay)
{
    struct instant began = now;
    assert_true(stay_begin(stay, now, 15));
    do {
        now = instant_after(now, LOOK_NS);
    } while (stay_on(stay, now, 0));
    return instant_elapsed_ns(began, now);
}

static void single_packets_are_no_stream(void **state)
{
    struct stay stay;
    stay_init(&stay);
    assert_false(stay_begin(&stay, now, 0));
    assert_false(stay_begin(&stay, now, 2));
    assert_true(stay_begin(&stay, now, 15));
    /* A packet now and then does not keep the thread. */
    int looks = 0;
    do {
        now = instant_after(now, 20000);
    } while (stay_on(&stay, now, 1) && ++looks < 100);
    assert_in_range(looks, 1, 6);
}

static void patience_is_learned(void **state)
{
    struct stay stay;
    stay_init(&stay);
    uint64_t first = idle_stay_ns(&stay);
    assert_in_range(first, 20000, 100000);
    uint64_t before = first;
    for (int i = 0; i < 4; i++) {
        uint64_t next = idle_stay_ns(&stay);
        assert_true(next <= before / 2 + LOOK_NS);
        before = next;
    }
    for (int i = 0; i < 20; i++) {
        before = idle_stay_ns(&stay);
    }
    assert_in_range(before, LOOK_NS, 2000); /* one look is always worth it */

    assert_true(stay_begin(&stay, now, 15));
    for (int i = 0; i < 10; i++) {
        now = instant_after(now, LOOK_NS);
        assert_true(stay_on(&stay, now, 15));
    }
    do {
        now = instant_after(now, LOOK_NS);
    } while (stay_on(&stay, now, 0));
    assert_true(idle_stay_ns(&stay) >= first / 2);
}

static void be_taught_impatience(struct stay *stay)
{
    stay_init(stay);
    for (int i = 0; i < 20; i++) {
        now = instant_after(now, 1000000);
        (void)idle_stay_ns(stay);
    }
}

/* Packets come each 20 us, but only who is awake finds them without a sleep between. */
static void short_sleeps_teach_patience(void **state)
{
    struct stay stay;
    be_taught_impatience(&stay);
    int sleeps = 0;
    uint64_t stayed_ns = 0;
    while (stayed_ns < 500000 && sleeps < 1000) {
        now = instant_after(now, 50000);
        sleeps++;
        struct instant began = now;
        struct instant next = instant_after(now, 20000);
        uint64_t came;
        assert_true(stay_begin(&stay, now, 15));
        do {
            now = instant_after(now, LOOK_NS);
            came = instant_before(now, next) ? 0 : 15;
            next = came > 0 ? instant_after(now, 20000) : next;
        } while (stay_on(&stay, now, came));
        stayed_ns = instant_elapsed_ns(began, now);
    }
    assert_in_range(sleeps, 2, 50);
}

/* The sender runs only while we sleep: to be patient for its sake costs little. */
static void where_staying_never_pays_it_is_rare(void **state)
{
    struct stay stay;
    be_taught_impatience(&stay);
    uint64_t stayed_ns = 0, slept_ns = 0;
    for (int i = 0; i < 1000; i++) {
        now = instant_after(now, 50000);
        slept_ns += 50000;
        stayed_ns += idle_stay_ns(&stay);
    }
    assert_in_range(stayed_ns, 1, slept_ns / 8);
    for (int i = 0; i < 100; i++) { /* and where sleeps are long not even that */
        now = instant_after(now, 1000000);
        assert_in_range(idle_stay_ns(&stay), LOOK_NS, 70000 >> (i < 6 ? i : 5));
    }
}

static void a_long_stream_ends_the_stay(void **state)
{
    struct stay stay;
    struct instant began = now;
    stay_init(&stay);
    assert_true(stay_begin(&stay, now, 15));
    do {
        now = instant_after(now, 10000);
    } while (stay_on(&stay, now, 15) && instant_elapsed_ns(began, now) < 1000000000);
    assert_in_range(instant_elapsed_ns(began, now), 1000000, 10000000);
    uint64_t rest = idle_stay_ns(&stay);
    assert_in_range(rest, 20000, 100000); /* that taught no impatience */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(single_packets_are_no_stream),
        cmocka_unit_test(patience_is_learned),
        cmocka_unit_test(short_sleeps_teach_patience),
        cmocka_unit_test(where_staying_never_pays_it_is_rare),
        cmocka_unit_test(a_long_stream_ends_the_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
