/* When the thread dozes: it leaves the engine to who polls. */
#include <stdlib.h>

#include "rnic/io/loop/loop_ends_test.h"
#include "rnic/io/loop/loop_private.h"

#define WAKEUPS_MOST 20 /* by as many packets and signals as there may be; else thousands */

/* Nothing else would wake it: what comes is the poller's. */
static void who_polls_lets_the_watching_thread_doze(void **state)
{
    struct end *end = create_end();
    struct loop *loop = loop_of(end->engine);
    wait_until_thread_sleeps(loop);
    struct instant until = instant_after(clock_now(), PATIENCE_MS * UINT64_C(1000000));
    bool dozed = false;
    while (!dozed && instant_before(clock_now(), until)) {
        engine_drive(end->engine);
        dozed = atomic_load(&loop->thread_state) == THREAD_DOZING;
    }
    assert_true(dozed);
    destroy_end(end);
}

/* What was learned of those who stop polling without a word is not held against who never does. */
static void who_promises_to_come_back_is_believed(void **state)
{
    struct end *end = create_end();
    struct loop *loop = loop_of(end->engine);
    wait_until_thread_sleeps(loop);
    atomic_store(&loop->patience_ns, UINT64_MAX);
    for (uint32_t i = 0; i < 5000; i++) {
        engine_promise(end->engine, false);
        engine_drive(end->engine);
        assert_int_not_equal(atomic_load(&loop->thread_state), THREAD_DOZING);
    }
    struct instant until = instant_after(clock_now(), PATIENCE_MS * UINT64_C(1000000));
    bool dozed = false;
    while (!dozed && instant_before(clock_now(), until)) {
        engine_promise(end->engine, true);
        engine_drive(end->engine);
        dozed = atomic_load(&loop->thread_state) == THREAD_DOZING ||
                atomic_load(&loop->patience_ns) != UINT64_MAX; /* learned at the end of one */
    }
    assert_true(dozed);
    destroy_end(end);
}

static void set_sources_read(struct loop *loop, struct instant when)
{
    lock_take(&loop->lock, LOCK_INNER);
    loop->local_received = loop->sockets_read = loop->quiet_read = when;
    lock_give(&loop->lock, LOCK_INNER);
}

/* Two that are connected by UDP; packets come to the first through memory all the time. */
struct by_udp {
    struct end *a, *b;
    struct loop *loop; /* of a */
    struct introduction of_b;
};

static struct by_udp open_by_udp(void)
{
    setenv("WEIR_LINK", "udp", 1);
    struct by_udp both = {.a = create_end(), .b = create_end()};
    both.loop = loop_of(both.a->engine);
    both.of_b = introduce(both.b);
    connect_both(both.a, both.b);
    return both;
}

/* Nobody who polls would ask the sockets within an hour; but the acknowledgement comes. */
static void expect_acknowledgement(struct by_udp *both, bool drives)
{
    const uint64_t hour_ns = UINT64_C(3600) * 1000000000;
    struct loop *loop = both->loop;
    set_sources_read(loop, instant_after(clock_now(), hour_ns));
    uint64_t received = udp_counters(loop->steering.udp)->packets_received;
    post(both->a, WORK_WRITE, 64, &both->of_b);
    struct instant until = instant_after(clock_now(), PATIENCE_MS * UINT64_C(1000000));
    bool came = false;
    while (!came && instant_before(clock_now(), until)) {
        if (drives) {
            engine_drive(both->a->engine);
        }
        lock_take(&loop->lock, LOCK_INNER);
        came = udp_counters(loop->steering.udp)->packets_received > received;
        lock_give(&loop->lock, LOCK_INNER);
    }
    assert_true(came);
}

static void close_by_udp(struct by_udp *both)
{
    set_sources_read(both->loop, (struct instant){0});
    poll_one(both->a);
    destroy_end(both->a);
    destroy_end(both->b);
    unsetenv("WEIR_LINK");
}

/* Where packets come through memory all the time the sockets are read now and then; but a thread
 * that one of them has woken would not sleep again before that. */
static void what_wakes_the_thread_is_read(void **state)
{
    struct by_udp both = open_by_udp();
    wait_until_thread_sleeps(both.loop);
    uint64_t wakeups = atomic_load(&both.loop->counters.thread_wakeups);
    expect_acknowledgement(&both, false);
    assert_in_range(atomic_load(&both.loop->counters.thread_wakeups) - wakeups, 0, WAKEUPS_MOST);
    close_by_udp(&both);
}

static void what_comes_in_a_doze_is_read(void **state)
{
    struct by_udp both = open_by_udp();
    struct loop *loop = both.loop;
    struct instant until = instant_after(clock_now(), PATIENCE_MS * UINT64_C(1000000));
    while (!atomic_load(&loop->sockets_watched) && instant_before(clock_now(), until)) {
        lock_take(&loop->lock, LOCK_INNER);
        loop->local_received = clock_now();
        lock_give(&loop->lock, LOCK_INNER);
        engine_drive(both.a->engine);
    }
    assert_true(atomic_load(&loop->sockets_watched));
    expect_acknowledgement(&both, true);
    close_by_udp(&both);
}

/* The sockets were read `ago_ns` ago, and never had anything; a packet came through memory just
 * now. Whether they are read again. */
static bool reads_again(struct loop *loop, uint64_t ago_ns, bool watched)
{
    bool again, is_disturbed;
    do { /* the thread may begin to watch by itself */
        struct instant now = clock_now();
        lock_take(&loop->lock, LOCK_INNER);
        loop->local_received = now;
        loop->sockets_heard = loop->quiet_heard = (struct instant){0};
        loop->sockets_read = loop->quiet_read = (struct instant){now.ns - ago_ns};
        atomic_store(&loop->sockets_watched, watched);
        loop_receive(loop, now, SHARE_NEXT);
        again = loop->sockets_read.ns == now.ns;
        is_disturbed = atomic_load(&loop->sockets_watched) != watched;
        lock_give(&loop->lock, LOCK_INNER);
    } while (is_disturbed);
    return again;
}

static void sockets_that_the_thread_watches_are_asked_less_often(void **state)
{
    struct end *end = create_end();
    struct loop *loop = loop_of(end->engine);
    wait_until_thread_sleeps(loop);
    assert_false(reads_again(loop, 90000, false));
    assert_true(reads_again(loop, 110000, false));
    assert_false(reads_again(loop, 900000, true));
    assert_true(reads_again(loop, 1100000, true));
    destroy_end(end);
}

#define MANY 32u

static void drive_until_it_dozes(struct loop *loop)
{
    struct instant until = instant_after(clock_now(), PATIENCE_MS * UINT64_C(1000000));
    while (atomic_load(&loop->thread_state) != THREAD_DOZING &&
           instant_before(clock_now(), until)) {
        engine_drive(&loop->engine);
    }
}

/* Turns of a poller's while the thread dozes, until one finds nothing. Returns how many of them
 * have brought so many messages that a peer may be waiting to hear of one, having sent all it may;
 * after none of those something waits. */
static uint32_t receive_in_turns(struct loop *loop, const struct end *end)
{
    uint32_t judged = 0, came;
    lock_take(&loop->lock, LOCK_INNER);
    do {
        uint32_t before = completion_queue_depth(end->completions);
        bool dozes = atomic_load(&loop->thread_state) == THREAD_DOZING;
        (void)loop_turn(loop, TURN_POLL);
        came = completion_queue_depth(end->completions) - before;
        if (dozes && came >= MANY / 2) {
            assert_false(loop->held);
            judged++;
        }
    } while (came > 0);
    lock_give(&loop->lock, LOCK_INNER);
    return judged;
}

static void what_many_owe_does_not_wait(void **state)
{
    struct end *a = create_end(), *b = create_end();
    struct loop *loop = loop_of(a->engine);
    uint32_t judged = 0;
    connect_both(a, b);
    for (uint32_t i = 0; i < 1000 && judged < 10; i++) {
        drive_until_it_dozes(loop);
        for (uint32_t j = 0; j < MANY; j++) {
            post_receive(b);
            post(a, WORK_SEND, 64, NULL);
        }
        judged += receive_in_turns(loop, b);
        for (uint32_t j = 0; j < MANY; j++) {
            poll_one(b);
            poll_one(a);
        }
    }
    assert_true(judged >= 10);
    destroy_end(a);
    destroy_end(b);
}

/* As many messages as pollers' looks have brought while the thread dozed, after which something
 * waits; each comes alone. */
static uint32_t count_held(struct end *a, struct end *b)
{
    struct loop *loop = loop_of(a->engine);
    uint32_t held = 0;
    for (uint32_t i = 0; i < 200; i++) {
        drive_until_it_dozes(loop);
        post_receive(b);
        post(a, WORK_SEND, 64, NULL);
        while (completion_queue_is_empty(b->completions)) {
            engine_drive(b->engine);
        }
        lock_take(&loop->lock, LOCK_INNER);
        held += loop->held;
        lock_give(&loop->lock, LOCK_INNER);
        poll_one(b);
        poll_one(a);
    }
    return held;
}

static void who_waits_for_a_short_time_hears_at_once(void **state)
{
    struct end *a = create_end(), *b = create_end();
    struct qp_attributes attributes = {.state = QP_SQD, .timeout = 8, .retry_count = 7};
    connect_both(a, b);
    assert_true(count_held(a, b) > 0);
    modify(b, &attributes, 0);
    modify(b, &attributes, QP_SET_TIMEOUT | QP_SET_RETRY_COUNT);
    attributes.state = QP_RTS;
    modify(b, &attributes, 0);
    assert_int_equal(count_held(a, b), 0);
    destroy_end(a);
    destroy_end(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_polls_lets_the_watching_thread_doze),
        cmocka_unit_test(who_promises_to_come_back_is_believed),
        cmocka_unit_test(what_wakes_the_thread_is_read),
        cmocka_unit_test(what_comes_in_a_doze_is_read),
        cmocka_unit_test(sockets_that_the_thread_watches_are_asked_less_often),
        cmocka_unit_test(what_many_owe_does_not_wait),
        cmocka_unit_test(who_waits_for_a_short_time_hears_at_once),
    };
    unsetenv("WEIR_FAULT");
    unsetenv("WEIR_ADDRESS");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
