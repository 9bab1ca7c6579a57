/* The poller's descriptor, for programs that sleep on it in a loop of their own: it tells what was
 * begun between two calls of weir_poll, and what a call has left undone. */
#include "weir/channel/world_test.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
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
    world_open_pair(&world, *state, &client, false);
    restless = world.server_poller;
    struct source source = {eventfd(1, EFD_CLOEXEC), disarm};
    assert_true(is_woken(restless, 0));
    assert_true(poller_watch(restless, &source, EPOLLIN));
    finish(restless);
    poller_unwatch(restless, &source);
    assert_true(restless->queues->is_armed);
    assert_true(is_woken(restless, 0)); /* what came while it was not is looked for */
    finish(restless);
    assert_false(is_woken(restless, 0));
    world_close_pair(&world, &client);
    close(source.fd);
}

#define EACH(options)                                                                              \
    {"timer set between (" #options ")", test_timer_set_between, NULL, NULL, &world_##options},    \
        {"end between (" #options ")", test_end_between, NULL, NULL, &world_##options},            \
    {                                                                                              \
        "returns before all is quiet (" #options ")", test_returns_before_all_is_quiet, NULL,      \
            NULL, &world_##options                                                                 \
    }

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {EACH(cm), EACH(tcp)};
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
