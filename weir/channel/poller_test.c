/* The poller's descriptor, for programs that sleep on it in a loop of their own: it tells what was
 * begun between two calls of weir_poll, and what a call has left undone. What many timers, and many
 * connections' completion queues, cost. */
#include "weir/channel/world_test.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "weir/channel/connection.h"

/* What such a program does before it sleeps. */
static void finish(struct weir_poller *poller)
{
    while (weir_poll(poller, 0) > 0) {
    }
}

static bool is_woken(struct weir_poller *poller, int timeout_ms)
{
    struct pollfd wait = {.fd = weir_poller_fd(poller), .events = POLLIN};
    return poll(&wait, 1, timeout_ms) == 1;
}

static void fire(void *argument)
{
    ++*(unsigned *)argument;
}

static void test_timer_set_between(void **state)
{
    struct world world;
    unsigned fired = 0;
    world_open(&world, *state, 1, false);
    assert_true(is_woken(world.server_poller, 0)); /* nothing is armed yet */
    finish(world.server_poller);
    assert_false(is_woken(world.server_poller, 0));
    assert_int_equal(weir_timer(world.server_poller, 3, fire, &fired), WEIR_OK);
    assert_true(is_woken(world.server_poller, 5000));
    while (fired == 0) {
        finish(world.server_poller);
    }
    assert_false(is_woken(world.server_poller, 0));
    world_close(&world);
}

static void test_end_between(void **state)
{
    struct world world;
    world_open(&world, *state, 1, false);
    assert_true(is_woken(world.server_poller, 0));
    finish(world.server_poller);
    assert_false(is_woken(world.server_poller, 0));
    weir_listener_close(world.listener);
    assert_true(is_woken(world.server_poller, 0));
    finish(world.server_poller);
    assert_null(world.server_poller->listeners);
    assert_false(is_woken(world.server_poller, 0));
    world_close(&world);
}

/* What was to be seen to at once is, whatever is to be done later. */
static void test_end_between_and_a_timer(void **state)
{
    struct world world;
    unsigned fired = 0;
    world_open(&world, *state, 1, false);
    assert_true(is_woken(world.server_poller, 0));
    finish(world.server_poller);
    assert_false(is_woken(world.server_poller, 0));
    weir_listener_close(world.listener);
    assert_int_equal(weir_timer(world.server_poller, 1000000, fire, &fired), WEIR_OK);
    assert_true(is_woken(world.server_poller, 0));
    finish(world.server_poller);
    assert_null(world.server_poller->listeners);
    assert_false(is_woken(world.server_poller, 0));
    assert_int_equal(weir_timer(world.server_poller, 3, fire, &fired), WEIR_OK);
    assert_true(is_woken(world.server_poller, 5000));
    world_close(&world);
}

/* A program may have one for each request that it waits for, and takes it back with the answer. */
static void test_many_timers(void **state)
{
    static char arguments[60000];
    static unsigned fired[100];
    struct world world;
    struct timespec begun, ended;
    world_open(&world, *state, 1, false);
    struct weir_poller *poller = world.server_poller;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begun);
    for (unsigned i = 0; i < sizeof(arguments); i++) {
        assert_int_equal(weir_timer(poller, 1000000, fire, &arguments[i]), WEIR_OK);
    }
    for (unsigned i = 0; i < 100; i++) { /* two each, of which one is taken back */
        assert_int_equal(weir_timer(poller, 1 + i % 7, fire, &fired[i]), WEIR_OK);
        assert_int_equal(weir_timer(poller, 1 + i % 5, fire, &fired[i]), WEIR_OK);
        assert_int_equal(weir_timer(poller, 0, fire, &fired[i]), WEIR_OK);
    }
    for (unsigned i = 0; i + 1 < sizeof(arguments); i++) {
        assert_int_equal(weir_timer(poller, 0, fire, &arguments[i]), WEIR_OK);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ended);
    assert_true(ended.tv_sec - begun.tv_sec < 3); /* a second at most, whatever it runs under */
    for (unsigned i = 0; i < 100; i++) {
        while (fired[i] == 0) {
            world_poll(&world);
        }
    }
    world_poll(&world);
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(fired[i], 1);
    }
    assert_int_equal(poller->user_timers.count, 1); /* which goes with the poller */
    world_close(&world);
}

static struct weir_poller *restless;

/* As if a completion had come, and been handled, each time. */
static void disarm(struct source *source, uint32_t events)
{
    restless->queues->is_armed = false;
}

static void test_returns_before_all_is_quiet(void **state)
{
    struct world world;
    struct end client = {0};
    unsigned fired = 0;
    world_open_pair(&world, *state, &client, false);
    restless = world.server_poller;
    struct source source = {eventfd(1, EFD_CLOEXEC), disarm};
    assert_true(is_woken(restless, 0));
    assert_true(poller_watch(restless, &source, EPOLLIN));
    finish(restless);
    poller_unwatch(restless, &source);
    assert_true(restless->queues->is_armed);
    assert_int_equal(weir_timer(restless, 1000000, fire, &fired), WEIR_OK);
    assert_true(is_woken(restless, 0)); /* what came while it was not is looked for */
    finish(restless);
    assert_false(is_woken(restless, 0));
    world_close_pair(&world, &client);
    close(source.fd);
}

/* Each of them is looked at in every round, also when those who needed them have gone. */
static void test_few_queues_for_many(void **state)
{
    struct world world;
    struct queue_share *taken[60];
    unsigned count = 0;
    world_open(&world, *state, 1, false);
    for (unsigned i = 0; i < 60; i++) {
        taken[i] = poller_reserve(world.server_poller, 3000);
        assert_non_null(taken[i]);
    }
    for (struct queue_share *share = world.server_poller->queues; share != NULL;
         share = share->next) {
        assert_in_range(share->used, 1, share->capacity);
        count++;
    }
    assert_in_range(count, 2, 7);
    for (unsigned i = 0; i < 60; i++) {
        poller_unreserve(taken[i], 3000);
    }
    world_close(&world);
}

/* A device that has no room for a long one gives a short one. */
static struct ibv_cq *(*create_cq)(struct ibv_context *context, int entries, void *cq_context,
                                   struct ibv_comp_channel *channel, int vector);

static struct ibv_cq *create_short_cq(struct ibv_context *context, int entries, void *cq_context,
                                      struct ibv_comp_channel *channel, int vector)
{
    if (entries > 10000) {
        errno = ENOMEM;
        return NULL;
    }
    return create_cq(context, entries, cq_context, channel, vector);
}

static void test_short_queues_where_long_ones_fail(void **state)
{
    struct world world;
    struct verbs *verbs = &world_fabric()->library.verbs;
    world_open(&world, *state, 1, false);
    create_cq = verbs->create_cq;
    verbs->create_cq = create_short_cq;
    struct queue_share *taken[6];
    for (unsigned i = 0; i < 6; i++) {
        taken[i] = poller_reserve(world.server_poller, 8000);
    }
    assert_null(poller_reserve(world.server_poller, 10001));
    verbs->create_cq = create_cq;
    for (unsigned i = 0; i < 6; i++) {
        assert_non_null(taken[i]);
        poller_unreserve(taken[i], 8000);
    }
    world_close(&world);
}

#define EACH(options)                                                                              \
    {"timer set between (" #options ")", test_timer_set_between, NULL, NULL, &world_##options},    \
        {"end between (" #options ")", test_end_between, NULL, NULL, &world_##options},            \
        {"end between, and a timer (" #options ")", test_end_between_and_a_timer, NULL, NULL,      \
         &world_##options},                                                                        \
    {                                                                                              \
        "returns before all is quiet (" #options ")", test_returns_before_all_is_quiet, NULL,      \
            NULL, &world_##options                                                                 \
    }

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        EACH(cm),
        EACH(tcp),
        {"many timers", test_many_timers, NULL, NULL, &world_tcp},
        {"few queues for many", test_few_queues_for_many, NULL, NULL, &world_tcp},
        {"short queues where long ones fail", test_short_queues_where_long_ones_fail, NULL, NULL,
         &world_tcp},
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
