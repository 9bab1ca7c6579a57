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

/* Where packets come through memory all the time the sockets are read now and then; but a thread
 * that one of them has woken would not sleep again before that. */
static void what_wakes_the_thread_is_read(void **state)
{
    const uint64_t hour_ns = UINT64_C(3600) * 1000000000;
    setenv("WEIR_LINK", "udp", 1);
    struct end *a = create_end(), *b = create_end();
    struct loop *loop = loop_of(a->engine);
    struct introduction of_b = introduce(b);
    connect_both(a, b);
    wait_until_thread_sleeps(loop);
    lock_take(&loop->lock);
    struct instant later = instant_after(clock_now(), hour_ns);
    loop->local_received = loop->sockets_read = loop->quiet_read = later;
    uint64_t received = udp_counters(loop->steering.udp)->packets_received;
    lock_give(&loop->lock);
    uint64_t wakeups = atomic_load(&loop->counters.thread_wakeups);
    post(a, WORK_WRITE, 64, &of_b);
    struct instant until = instant_after(clock_now(), PATIENCE_MS * UINT64_C(1000000));
    bool came = false;
    while (!came && instant_before(clock_now(), until)) {
        lock_take(&loop->lock);
        came = udp_counters(loop->steering.udp)->packets_received > received;
        lock_give(&loop->lock);
    }
    assert_true(came);
    assert_in_range(atomic_load(&loop->counters.thread_wakeups) - wakeups, 0, WAKEUPS_MOST);
    lock_take(&loop->lock);
    loop->local_received = loop->sockets_read = loop->quiet_read = (struct instant){0};
    lock_give(&loop->lock);
    poll_one(a);
    destroy_end(a);
    destroy_end(b);
    unsetenv("WEIR_LINK");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_polls_lets_the_watching_thread_doze),
        cmocka_unit_test(who_promises_to_come_back_is_believed),
        cmocka_unit_test(what_wakes_the_thread_is_read),
    };
    unsetenv("WEIR_FAULT");
    unsetenv("WEIR_ADDRESS");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
