/* When the thread dozes: it leaves the engine to who polls. */
#include <stdlib.h>

#include "rnic/io/loop/loop_ends_test.h"
#include "rnic/io/loop/loop_private.h"

static void wait_until_it_watches(struct loop *loop)
{
    while (atomic_load(&loop->thread_state) != THREAD_WATCHING ||
           atomic_load(&loop->sleeping_until_ns) != UINT64_MAX) {
        usleep(1000);
    }
}

/* Nothing else would wake it: what comes is the poller's. */
static void who_polls_lets_the_watching_thread_doze(void **state)
{
    struct end *end = create_end();
    struct loop *loop = loop_of(end->engine);
    wait_until_it_watches(loop);
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
    wait_until_it_watches(loop);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_polls_lets_the_watching_thread_doze),
        cmocka_unit_test(who_promises_to_come_back_is_believed),
    };
    unsetenv("WEIR_FAULT");
    unsetenv("WEIR_ADDRESS");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
