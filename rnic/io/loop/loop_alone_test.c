/* What is done as it is posted, without a turn (device_advance_alone), in a running engine. */
#include <stdlib.h>

#include "rnic/io/direct/direct.h"
#include "rnic/io/loop/loop_ends_test.h"
#include "rnic/io/loop/loop_private.h"

#define COUNT_MODERATED 100
#define PERIOD_NS       1000000u

struct moderated {
    struct completion_queue_notifier notifier; /* first */
    struct device_alarm alarm;
    struct device *device;
    atomic_bool is_told;
};

static struct moderated moderated;

/* A store into a process of this host, whatever the link would do. */
static uint32_t store(struct direct_link *link, const struct direct_access *accesses,
                      uint32_t count)
{
    memcpy((void *)(uintptr_t)accesses->address, accesses->places->bytes, accesses->part);
    return 1;
}

static void hold(struct completion_queue_notifier *notifier, struct completion_queue *queue)
{
    device_set_alarm(moderated.device, &moderated.alarm, instant_after(clock_now(), PERIOD_NS));
}

static void period_is_over(struct device_alarm *alarm, struct instant now)
{
    atomic_store(&moderated.is_told, true);
}

/* The application sleeps for its event, and so does the thread, until somebody says when. */
static void the_thread_hears_of_the_alarm_of_a_completion_that_is_held(void **state)
{
    if (!direct_is_on()) {
        skip();
    }
    struct end *a = create_end(), *b = create_end();
    struct introduction of_b = introduce(b);
    struct loop *loop = loop_of(a->engine);
    struct direct_link *link = same_host_direct(loop->same_host);
    connect_both(a, b);
    post(a, WORK_WRITE, 64, &of_b);
    assert_int_equal(wait_one(a), COMPLETION_SUCCESS);
    moderated.device = a->engine->device;
    moderated.alarm.expire = period_is_over;
    a->notifier.held = hold;

    engine_lock(a->engine);
    completion_queue_moderate(a->completions, COUNT_MODERATED);
    struct direct_link before = *link;
    link->access = store;
    link->stores = true;
    engine_unlock(a->engine);
    assert_false(completion_queue_arm(a->completions, false));
    wait_until_thread_sleeps(loop);
    a->buffer[0] = 7;
    post(a, WORK_WRITE, 64, &of_b);
    assert_int_equal(b->buffer[0], 7); /* without a turn */
    struct instant until = instant_after(clock_now(), PATIENCE_MS * UINT64_C(1000000));
    while (!atomic_load(&moderated.is_told) && instant_before(clock_now(), until)) {
        usleep(100);
    }
    assert_true(atomic_load(&moderated.is_told));

    engine_lock(a->engine);
    *link = before;
    engine_unlock(a->engine);
    poll_one(a);
    destroy_end(a);
    destroy_end(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_thread_hears_of_the_alarm_of_a_completion_that_is_held),
    };
    unsetenv("WEIR_FAULT");
    unsetenv("WEIR_ADDRESS");
    unsetenv("WEIR_LINK");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
