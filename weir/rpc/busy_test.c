/* More calls than a server has room for: all are answered in the end, nobody is starved, and what
 * waits is bounded. */
#include "weir/rpc/rpc_world_test.h"

#include <string.h>

#define CLIENTS 3
#define CALLS   300
#define ROOM    8

/* A slow service: what has come waits in a line, and the test has one answered at a time. */
struct slow {
    struct rpc_world world;
    struct weir_request *line[64];
    unsigned first, last;
    unsigned order[CALLS * CLIENTS]; /* the numbers that came, as they came */
    unsigned came;
};

static void handle_slowly(struct weir_request *request, const void *bytes, size_t length,
                          void *user)
{
    struct slow *slow = user;
    assert_int_equal(length, sizeof(unsigned));
    memcpy(&slow->order[slow->came++], bytes, length);
    slow->line[slow->last++ % 64] = request;
    struct weir_server_statistics statistics;
    weir_rpc_server_statistics(slow->world.server, &statistics);
    assert_in_range(statistics.requests, 1, ROOM);
}

static void slow_open(struct slow *slow, unsigned room, const struct weir_rpc_options *client)
{
    struct weir_rpc_options server = {.requests_max = room};
    memset(slow, 0, sizeof(*slow));
    rpc_world_open(&slow->world, &server, client);
    rpc_register(slow->world.server, "slow", handle_slowly, slow);
}

/* One answer for each look at the world. */
static void advance(struct slow *slow)
{
    rpc_world_poll(&slow->world);
    if (slow->first < slow->last) {
        rpc_reply(slow->line[slow->first++ % 64], NULL, 0);
    }
}

/* --- a crowd --- */

struct caller {
    struct weir_rpc *rpc;
    struct weir_target *target;
    unsigned told;
};

static void count_told(const struct weir_reply *reply, void *argument)
{
    struct caller *caller = argument;
    assert_int_equal(reply->status, WEIR_OK);
    caller->told++;
}

static void caller_open(struct caller *caller, struct slow *slow, unsigned number)
{
    struct weir_error error;
    *caller = (struct caller){0};
    assert_int_equal(weir_rpc_create(slow->world.client_poller, NULL, &caller->rpc, &error),
                     WEIR_OK);
    assert_int_equal(weir_target_create(caller->rpc, weir_rpc_address(slow->world.server),
                                        &caller->target, &error),
                     WEIR_OK);
    struct weir_procedure *procedure = rpc_register(caller->rpc, "slow", NULL, NULL);
    struct weir_call_options options = {.timeout_ms = PATIENCE_MS};
    for (unsigned i = 0; i < CALLS; i++) {
        unsigned value = number * CALLS + i;
        struct weir_piece piece = {&value, sizeof(value)};
        assert_int_equal(
            weir_rpc_call(caller->target, procedure, &piece, 1, &options, count_told, caller, NULL),
            WEIR_OK);
    }
}

static bool have_all_asked(struct caller callers[CLIENTS])
{
    bool have_all = true;
    for (unsigned i = 0; i < CLIENTS; i++) {
        struct weir_target_statistics statistics;
        weir_target_statistics(callers[i].target, &statistics);
        have_all = have_all && statistics.calls.in_flight > 0;
    }
    return have_all;
}

static bool is_any_done(struct caller callers[CLIENTS])
{
    bool is_any = false;
    for (unsigned i = 0; i < CLIENTS; i++) {
        is_any = is_any || callers[i].told == CALLS;
    }
    return is_any;
}

/* Three who each want four times the room. */
static void test_all_are_served(void **state)
{
    static struct slow slow;
    struct caller callers[CLIENTS];
    struct weir_server_statistics served;
    slow_open(&slow, ROOM, NULL);
    for (unsigned i = 0; i < CLIENTS; i++) {
        caller_open(&callers[i], &slow, i);
    }
    while (!have_all_asked(callers)) {
        rpc_world_poll(&slow.world);
    }
    while (!is_any_done(callers)) {
        advance(&slow);
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        assert_in_range(callers[i].told, CALLS / 3, CALLS); /* nobody was starved meanwhile */
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        while (callers[i].told < CALLS) {
            advance(&slow);
        }
    }
    weir_rpc_server_statistics(slow.world.server, &served);
    assert_true(served.busy > 0);
    assert_int_equal(served.requests, 0);
    assert_int_equal(slow.came, CALLS * CLIENTS); /* none ran twice */
    for (unsigned i = 0; i < CLIENTS; i++) {
        struct weir_target_statistics statistics;
        weir_target_statistics(callers[i].target, &statistics);
        assert_true(statistics.calls.busy > 0);
        assert_int_equal(statistics.calls.replies, CALLS);
        assert_int_equal(statistics.calls.retries, 0);
        weir_rpc_destroy(callers[i].rpc);
    }
    rpc_world_close(&slow.world);
}

/* --- one by one --- */

/* A call that heard BUSY is the first again: with one in flight the order is the one made. */
static void test_order_under_busy(void **state)
{
    static struct slow slow;
    static struct outcome outcomes[20];
    struct outcome blocker;
    struct weir_rpc_options options = {.in_flight_max = 1, .timeout_ms = PATIENCE_MS};
    slow_open(&slow, 1, &options);
    struct caller other;
    struct weir_error error;
    assert_int_equal(weir_rpc_create(slow.world.client_poller, NULL, &other.rpc, &error), WEIR_OK);
    assert_int_equal(
        weir_target_create(other.rpc, weir_rpc_address(slow.world.server), &other.target, &error),
        WEIR_OK);
    unsigned number = 99;
    rpc_call(other.target, rpc_register(other.rpc, "slow", NULL, NULL), &number, sizeof(number),
             NULL, &blocker);
    rpc_world_run_until_count(&slow.world, &slow.came, 1);
    struct weir_procedure *procedure = rpc_register(slow.world.client, "slow", NULL, NULL);
    for (unsigned i = 0; i < 20; i++) {
        rpc_call(slow.world.target, procedure, &i, sizeof(i), NULL, &outcomes[i]);
    }
    struct weir_target_statistics statistics;
    do { /* it has heard BUSY again and again */
        rpc_world_poll(&slow.world);
        weir_target_statistics(slow.world.target, &statistics);
    } while (statistics.calls.busy < 3);
    assert_int_equal(slow.came, 1);
    assert_int_equal(statistics.window, 1);
    for (unsigned i = 0; i < 20; i++) {
        while (!outcomes[i].is_told) {
            advance(&slow);
        }
        rpc_expect(&outcomes[i], WEIR_OK, "");
        assert_int_equal(slow.order[1 + i], i);
    }
    weir_rpc_destroy(other.rpc);
    rpc_world_close(&slow.world);
}

static void test_busy_until_the_time_is_over(void **state)
{
    static struct slow slow;
    struct outcome first, second, third;
    struct weir_call_options options = {.timeout_ms = 100};
    struct weir_target_statistics statistics;
    slow_open(&slow, 1, NULL);
    struct weir_procedure *procedure = rpc_register(slow.world.client, "slow", NULL, NULL);
    unsigned number = 0;
    rpc_call(slow.world.target, procedure, &number, sizeof(number), NULL, &first);
    rpc_world_run_until_count(&slow.world, &slow.came, 1);
    rpc_call(slow.world.target, procedure, &number, sizeof(number), NULL, &second);
    do {
        rpc_world_poll(&slow.world);
        weir_target_statistics(slow.world.target, &statistics);
    } while (statistics.calls.busy == 0);
    rpc_call(slow.world.target, procedure, &number, sizeof(number), &options, &third);
    rpc_world_run_until(&slow.world, &third.is_told);
    rpc_expect(&third, WEIR_TIMED_OUT, "the server is busy");
    assert_false(first.is_told);
    while (!second.is_told) {
        advance(&slow);
    }
    rpc_expect(&first, WEIR_OK, "");
    rpc_expect(&second, WEIR_OK, "");
    rpc_world_close(&slow.world);
}

static void test_what_waits_is_bounded(void **state)
{
    static struct slow slow;
    struct weir_rpc_options options = {.in_flight_max = 2, .waiting_max = 3};
    static struct outcome outcomes[5];
    unsigned number = 0;
    struct weir_piece piece = {&number, sizeof(number)};
    slow_open(&slow, ROOM, &options);
    struct weir_procedure *procedure = rpc_register(slow.world.client, "slow", NULL, NULL);
    for (unsigned i = 0; i < 3; i++) {
        rpc_call(slow.world.target, procedure, &i, sizeof(i), NULL, &outcomes[i]);
    }
    assert_int_equal(
        weir_rpc_call(slow.world.target, procedure, &piece, 1, NULL, count_told, NULL, NULL),
        WEIR_NO_MEMORY);
    rpc_world_run_until_count(&slow.world, &slow.came, 2);
    for (unsigned i = 3; i < 5; i++) {
        rpc_call(slow.world.target, procedure, &i, sizeof(i), NULL, &outcomes[i]);
    }
    assert_int_equal(
        weir_rpc_call(slow.world.target, procedure, &piece, 1, NULL, count_told, NULL, NULL),
        WEIR_NO_MEMORY);
    for (unsigned i = 0; i < 5; i++) {
        while (!outcomes[i].is_told) {
            advance(&slow);
        }
        rpc_expect(&outcomes[i], WEIR_OK, "");
        assert_int_equal(slow.order[i], i);
    }
    rpc_world_close(&slow.world);
}

/* Clients beyond clients_max try again until there is room. */
static void test_too_many_clients(void **state)
{
    struct rpc_world world;
    struct weir_rpc_options options = {.clients_max = 1};
    struct outcome outcomes[2];
    struct weir_target *other;
    struct weir_error error;
    rpc_world_open(&world, &options, NULL);
    rpc_register(world.server, "echo", handle_echo, NULL);
    struct weir_procedure *echo = rpc_register(world.client, "echo", NULL, NULL);
    assert_int_equal(
        weir_target_create(world.client, weir_rpc_address(world.server), &other, &error), WEIR_OK);
    rpc_call(world.target, echo, NULL, 0, NULL, &outcomes[0]);
    rpc_world_run_until(&world, &outcomes[0].is_told);
    struct weir_call_options short_time = {.timeout_ms = 50};
    do { /* until it has time to hear of it */
        short_time.timeout_ms *= 2;
        rpc_call(other, echo, NULL, 0, &short_time, &outcomes[1]);
        rpc_world_run_until(&world, &outcomes[1].is_told);
        rpc_expect(&outcomes[1], WEIR_TIMED_OUT, "no connection");
    } while (strstr(outcomes[1].words, "no room for another client") == NULL);
    weir_target_destroy(world.target);
    rpc_call(other, echo, NULL, 0, NULL, &outcomes[1]);
    rpc_world_run_until(&world, &outcomes[1].is_told);
    rpc_expect(&outcomes[1], WEIR_OK, "");
    rpc_world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_are_served),
        cmocka_unit_test(test_order_under_busy),
        cmocka_unit_test(test_busy_until_the_time_is_over),
        cmocka_unit_test(test_what_waits_is_bounded),
        cmocka_unit_test(test_too_many_clients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
