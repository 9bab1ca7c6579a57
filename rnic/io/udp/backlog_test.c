#include "rnic/io/udp/backlog.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define STEP_NS UINT64_C(10000)
#define RUN     57000u
#define BUFFERS 2u /* the kernel's take so much of what they hold */
#define STREAMS 64u
#define ROOM    425984u /* what a socket holds, without privileges */
#define SECONDS 2u
#define MESSAGE 200000u

/* An interface that lets go, once in a while, of what it can have sent since. */
struct interface {
    uint64_t rate; /* bytes per millisecond */
    uint64_t every_ns;
    uint64_t waiting, left, most, dry_ns;
    struct instant released;
};

struct streams {
    uint32_t count;
    struct instant resume[STREAMS];
    uint64_t mark[STREAMS], given[STREAMS];
    uint64_t asked; /* how much waits */
};

static void release(struct interface *interface, struct instant now)
{
    uint64_t span_ns = instant_elapsed_ns(interface->released, now);
    if (span_ns < interface->every_ns) {
        return;
    }
    uint64_t could = interface->rate * span_ns / MILLISECOND_NS;
    uint64_t bytes = could < interface->waiting ? could : interface->waiting;
    interface->dry_ns += (could - bytes) * MILLISECOND_NS / interface->rate;
    interface->waiting -= bytes;
    interface->left += bytes;
    interface->released = now;
}

/* One that has all the time something to send. */
static void give(struct backlog *backlog, struct interface *interface, struct streams *streams,
                 uint32_t index, struct instant now)
{
    if (instant_before(now, streams->resume[index])) {
        return;
    }
    streams->asked += backlog_asks(backlog);
    uint64_t ns = backlog_asks(backlog)
                      ? backlog_hear(backlog, now, (uint32_t)interface->waiting * BUFFERS,
                                     streams->mark[index])
                      : 0;
    if (ns > 0) {
        streams->resume[index] = instant_after(now, ns);
        return;
    }
    streams->mark[index] = backlog_mark(backlog);
    if (interface->waiting * BUFFERS >= ROOM) {
        streams->resume[index] = instant_after(now, MILLISECOND_NS); /* the socket will tell */
        return;
    }
    streams->given[index] += RUN;
    backlog_give(backlog, RUN);
    interface->waiting += RUN;
    interface->most = interface->waiting > interface->most ? interface->waiting : interface->most;
}

static void run(struct backlog *backlog, struct interface *interface, struct streams *streams)
{
    struct instant now = interface->released;
    struct instant end = instant_after(now, SECONDS * 1000 * MILLISECOND_NS);
    for (uint32_t turn = 0; instant_before(now, end); now = instant_after(now, STEP_NS), turn++) {
        release(interface, now);
        for (uint32_t i = 0; i < streams->count; i++) {
            give(backlog, interface, streams, (turn + i) % streams->count, now);
        }
        if (instant_elapsed_ns(now, end) == SECONDS * 500 * MILLISECOND_NS) {
            interface->most = interface->left = interface->dry_ns = 0; /* it has settled */
        }
    }
}

/* Of what it can do in the time that is counted. */
static uint64_t percent(const struct interface *interface)
{
    return interface->left * 100 / (interface->rate * SECONDS * 500);
}

static void a_slow_interface_has_little_waiting_and_is_never_idle(void **state)
{
    (void)state;
    const uint64_t rates[] = {1000, 16000, 50000, 125000}; /* 8 Mbit/s to 1 Gbit/s */
    for (uint32_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        struct backlog backlog = {0};
        struct interface interface = {.rate = rates[i], .every_ns = STEP_NS};
        struct streams streams = {.count = 1};
        run(&backlog, &interface, &streams);
        assert_true(percent(&interface) >= 99);
        assert_true(interface.most <= BACKLOG_LEAST + rates[i] + RUN);
    }
}

/* What was measured while nobody had anything to send says nothing of the link. */
static void a_short_message_now_and_then_is_hardly_held(void **state)
{
    (void)state;
    struct backlog backlog = {0};
    struct interface interface = {.rate = 1250000, .every_ns = STEP_NS};
    struct instant now = {0};
    for (uint32_t i = 0; i < 100; i++) {
        struct streams streams = {.count = 1, .resume = {now}};
        struct instant began = now;
        while (streams.given[0] < MESSAGE) {
            release(&interface, now);
            give(&backlog, &interface, &streams, 0, now);
            now = instant_after(now, STEP_NS);
        }
        assert_true(i == 0 || instant_elapsed_ns(began, now) <= 2 * MESSAGE / 1250 * 1000);
        now = instant_after(now, 100 * MILLISECOND_NS);
    }
}

static void what_leaves_in_bursts_may_wait_for_longer(void **state)
{
    (void)state;
    struct backlog backlog = {0};
    struct interface interface = {.rate = 50000, .every_ns = 3 * MILLISECOND_NS};
    struct streams streams = {.count = 1};
    run(&backlog, &interface, &streams);
    assert_true(backlog.worth_ns > BACKLOG_NS);
    assert_true(percent(&interface) >= 90);

    interface.every_ns = STEP_NS;
    run(&backlog, &interface, &streams);
    assert_true(backlog.worth_ns < 2 * BACKLOG_NS);
    assert_true(interface.most <= BACKLOG_LEAST + 2 * interface.rate + RUN);
}

static void a_fast_interface_is_asked_seldom(void **state)
{
    (void)state;
    struct backlog backlog = {0};
    struct instant now = {1};
    uint32_t asked = 0;
    for (uint32_t i = 0; i < 1000; i++, now = instant_after(now, STEP_NS)) {
        if (backlog_asks(&backlog)) {
            asked++;
            assert_int_equal(backlog_hear(&backlog, now, 0, 0), 0);
        }
        backlog_give(&backlog, RUN);
    }
    assert_true(asked <= 1000 / 8);
    assert_false(backlog_asks(&backlog));
    while (!backlog_asks(&backlog)) {
        backlog_give(&backlog, RUN);
    }
    uint64_t mark = backlog_mark(&backlog);
    (void)backlog_hear(&backlog, now, 16u << 20, 0);
    backlog_give(&backlog, RUN);
    assert_true(backlog_asks(&backlog)); /* each run from now on */
    assert_true(backlog_hear(&backlog, now, 16u << 20, mark) > 0);
}

static void streams_of_one_socket_share_it(void **state)
{
    (void)state;
    struct backlog backlog = {0};
    struct interface interface = {.rate = 50000, .every_ns = STEP_NS};
    struct streams streams = {.count = 4};
    run(&backlog, &interface, &streams);
    assert_true(percent(&interface) >= 99);
    for (uint32_t i = 0; i < streams.count; i++) {
        assert_true(streams.given[i] >= 50000 * SECONDS * 1000 / streams.count * 8 / 10);
    }
}

/* Each question is a call, and a thread that wakes. */
static void many_that_wait_ask_seldom(void **state)
{
    (void)state;
    struct backlog backlog = {0};
    struct interface interface = {.rate = 12500, .every_ns = STEP_NS};
    struct streams streams = {.count = STREAMS};
    run(&backlog, &interface, &streams);
    assert_true(percent(&interface) >= 99);
    assert_true(streams.asked <= SECONDS * 1000 * STREAMS * 5 / 8);
}

static void who_has_nothing_waiting_may_give_a_run(void **state)
{
    (void)state;
    struct backlog backlog = {.given = 1000000, .asked = {1}};
    uint32_t waiting = 300000;
    assert_int_equal(backlog_hear(&backlog, (struct instant){2}, waiting, 500000), 0);
    assert_true(backlog_hear(&backlog, (struct instant){2}, waiting, 900000) > 0);
    assert_int_equal(backlog_hear(&backlog, (struct instant){2}, waiting, 0), 0);
}

/* Its socket was closed while it had nothing to send, and opened again for others. */
static void what_another_socket_was_given_holds_nobody_back(void **state)
{
    (void)state;
    struct backlog former = {.given = 5000000}, backlog = {.given = 1000000, .asked = {1}};
    uint64_t mark = backlog_mark(&former);
    assert_int_equal(backlog_hear(&backlog, (struct instant){2}, 300000, mark), 0);
}

static void who_has_nothing_under_way_is_never_held(void **state)
{
    (void)state;
    struct backlog backlog = {.asked = {1}};
    backlog_give(&backlog, RUN);
    assert_int_equal(backlog_hear(&backlog, (struct instant){2}, 2 * RUN, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_interface_has_little_waiting_and_is_never_idle),
        cmocka_unit_test(a_short_message_now_and_then_is_hardly_held),
        cmocka_unit_test(what_leaves_in_bursts_may_wait_for_longer),
        cmocka_unit_test(a_fast_interface_is_asked_seldom),
        cmocka_unit_test(streams_of_one_socket_share_it),
        cmocka_unit_test(many_that_wait_ask_seldom),
        cmocka_unit_test(who_has_nothing_waiting_may_give_a_run),
        cmocka_unit_test(what_another_socket_was_given_holds_nobody_back),
        cmocka_unit_test(who_has_nothing_under_way_is_never_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
