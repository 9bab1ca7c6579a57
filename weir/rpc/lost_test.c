/* Calls that end otherwise than by an answer: nobody there, servers that die and come back, time
 * that is over, cancel and destruction in every state.
 *
 * The servers that die are this program run again, with the argument "server". */
#include "weir/channel/timer.h"
#include "weir/rpc/rpc_world_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weir/rpc/rpc.h"

#define NEVER_MS 600000

static const struct weir_rpc_options short_silence = {.channel = {.silence_timeout_ms = 1000}};

/* --- a server that can be killed --- */

static void handle_mute(struct weir_request *request, const void *bytes, size_t length, void *user)
{
}

/* In the child. "mute" answers nothing there; "answering" echoes. */
static int serve(const char *address, const char *manner)
{
    struct weir_poller *poller;
    struct weir_rpc *rpc;
    struct weir_error error;
    if (weir_poller_create(world_fabric(), &poller, &error) != WEIR_OK ||
        weir_rpc_create(poller, NULL, &rpc, &error) != WEIR_OK) {
        return 1;
    }
    rpc_register(rpc, "echo", strcmp(manner, "mute") == 0 ? handle_mute : handle_echo, NULL);
    while (weir_rpc_listen(rpc, address, &error) != WEIR_OK) { /* the dead one is being buried */
        weir_poll(poller, 10);
    }
    printf("%s\n", weir_rpc_address(rpc));
    fflush(stdout);
    while (weir_poll(poller, -1) >= 0) {
    }
    return 1;
}

#define FLIGHT 20
#define BEHIND 30

static void test_server_killed(void **state)
{
    struct rpc_world world;
    struct killable server;
    struct weir_rpc_options options = short_silence;
    struct weir_target_statistics statistics;
    static struct outcome outcomes[FLIGHT + BEHIND];
    char address[96];
    snprintf(address, sizeof(address), "%s:0", world_host());
    killable_start(&server, address, "mute");
    options.in_flight_max = FLIGHT;
    options.timeout_ms = NEVER_MS;
    rpc_world_open_client(&world, &options, server.address);
    struct weir_procedure *echo = rpc_register(world.client, "echo", NULL, NULL);
    for (unsigned i = 0; i < FLIGHT + BEHIND; i++) {
        struct weir_call_options call = {.is_idempotent = i % 2 == 0};
        rpc_call(world.target, echo, &i, sizeof(i), &call, &outcomes[i]);
    }
    do {
        assert_true(weir_poll(world.client_poller, 100) >= 0);
        weir_target_statistics(world.target, &statistics);
    } while (statistics.calls.in_flight < FLIGHT);
    assert_int_equal(statistics.calls.waiting, BEHIND);
    killable_stop(&server);
    killable_start(&server, server.address, "answering");
    for (unsigned i = 0; i < FLIGHT + BEHIND; i++) {
        rpc_world_run_client_until(&world, &outcomes[i].is_told);
        if (i < FLIGHT && i % 2 == 1) {
            rpc_expect(&outcomes[i], WEIR_PEER_LOST, ": echo: lost after it was sent (");
        } else {
            rpc_expect(&outcomes[i], WEIR_OK, "");
            assert_memory_equal(outcomes[i].bytes, &i, sizeof(i));
        }
    }
    weir_target_statistics(world.target, &statistics);
    assert_int_equal(statistics.calls.retries, FLIGHT / 2);
    assert_int_equal(statistics.calls.lost, FLIGHT / 2);
    assert_int_equal(statistics.connections, 2);
    weir_rpc_destroy(world.client);
    weir_poller_destroy(world.client_poller);
    killable_stop(&server);
}

/* --- nobody there --- */

static void test_nobody_there(void **state)
{
    struct rpc_world world;
    struct outcome outcome;
    char address[96];
    rpc_world_open(&world, NULL, NULL);
    snprintf(address, sizeof(address), "%s", weir_rpc_address(world.server));
    weir_rpc_unlisten(world.server);
    assert_null(weir_rpc_address(world.server));
    struct weir_procedure *echo = rpc_register(world.client, "echo", NULL, NULL);
    struct weir_call_options options = {.timeout_ms = 200};
    uint64_t started_ns = clock_now_ns();
    rpc_call(world.target, echo, "1", 1, &options, &outcome);
    rpc_world_run_until(&world, &outcome.is_told);
    assert_true(clock_now_ns() - started_ns >= 200000000);
    rpc_expect(&outcome, WEIR_TIMED_OUT, ": echo: no connection for 0.");
    assert_non_null(strstr(outcome.words, address));
    /* It comes, and the call that waits meets it. */
    struct weir_error error;
    rpc_register(world.server, "echo", handle_echo, NULL);
    rpc_call(world.target, echo, "2", 1, NULL, &outcome);
    for (unsigned i = 0; i < 10; i++) {
        rpc_world_poll(&world);
    }
    assert_false(outcome.is_told);
    assert_int_equal(weir_rpc_listen(world.server, address, &error), WEIR_OK);
    assert_int_equal(weir_rpc_listen(world.server, address, &error), WEIR_STATE);
    rpc_world_run_until(&world, &outcome.is_told);
    rpc_expect(&outcome, WEIR_OK, "");
    rpc_world_close(&world);
}

static void test_no_such_address(void **state)
{
    struct rpc_world world;
    struct outcome outcome;
    rpc_world_open_client(&world, NULL, "no port");
    struct weir_procedure *echo = rpc_register(world.client, "echo", NULL, NULL);
    struct weir_call_options options = {.timeout_ms = 50};
    rpc_call(world.target, echo, NULL, 0, &options, &outcome);
    rpc_world_run_client_until(&world, &outcome.is_told);
    rpc_expect(&outcome, WEIR_TIMED_OUT, "no port: echo: no connection for 0.");
    weir_rpc_destroy(world.client);
    weir_poller_destroy(world.client_poller);
}

/* --- a handler that keeps what it gets --- */

#define KEPT_MAX 64

struct keeper {
    struct weir_request *requests[KEPT_MAX];
    unsigned count;
    unsigned gone;
    enum weir_status why;
};

static void gone(struct weir_request *request, enum weir_status why, void *argument)
{
    struct keeper *keeper = argument;
    keeper->gone++;
    keeper->why = why;
    assert_int_equal(weir_request_state(request), why);
}

static void handle_keep(struct weir_request *request, const void *bytes, size_t length, void *user)
{
    struct keeper *keeper = user;
    keeper->requests[keeper->count++] = request;
    weir_request_on_gone(request, gone, keeper);
}

static struct weir_procedure *open_with_keeper(struct rpc_world *world, struct keeper *keeper,
                                               const struct weir_rpc_options *client)
{
    *keeper = (struct keeper){0};
    rpc_world_open(world, NULL, client);
    rpc_register(world->server, "keep", handle_keep, keeper);
    rpc_register(world->server, "echo", handle_echo, NULL);
    return rpc_register(world->client, "keep", NULL, NULL);
}

static void refuse_all(struct keeper *keeper)
{
    for (unsigned i = 0; i < keeper->count; i++) {
        weir_request_refuse(keeper->requests[i], 0, NULL);
    }
}

/* --- time --- */

#define TIMED 40

/* Each is told when its time is up, and not before, in whatever state it is; the first first. */
static void test_timeouts_in_any_order(void **state)
{
    struct rpc_world world;
    struct keeper keeper;
    struct weir_target_statistics statistics;
    static struct outcome outcomes[TIMED];
    uint64_t due_ns[TIMED], due_at_most_ns[TIMED];
    struct weir_procedure *keep = open_with_keeper(&world, &keeper, NULL);
    for (unsigned i = 0; i < TIMED; i++) {
        struct weir_call_options options = {.timeout_ms = 20 + i * 37 % 100};
        due_ns[i] = clock_now_ns() + options.timeout_ms * UINT64_C(1000000);
        rpc_call(world.target, keep, &i, sizeof(i), &options, &outcomes[i]);
        due_at_most_ns[i] = clock_now_ns() + options.timeout_ms * UINT64_C(1000000);
    }
    for (unsigned i = 0; i < TIMED; i++) {
        rpc_world_run_until(&world, &outcomes[i].is_told);
        rpc_expect(&outcomes[i], WEIR_TIMED_OUT, ": keep: ");
        assert_true(outcomes[i].told_ns >= due_ns[i]);
    }
    for (unsigned i = 0; i < TIMED; i++) {
        for (unsigned j = 0; j < TIMED; j++) {
            assert_true(due_at_most_ns[j] >= due_ns[i] ||
                        outcomes[j].told_ns <= outcomes[i].told_ns);
        }
    }
    weir_target_statistics(world.target, &statistics);
    assert_int_equal(statistics.calls.timeouts, TIMED);
    rpc_world_run_until_count(&world, &keeper.gone, keeper.count);
    do { /* the server has said of each that it is over */
        rpc_world_poll(&world);
        weir_target_statistics(world.target, &statistics);
    } while (statistics.calls.in_flight > 0);
    assert_int_equal(statistics.calls.late, 0);
    refuse_all(&keeper);
    rpc_world_close(&world);
}

/* The answer comes when the caller has given up: counted, and nothing else. */
static void test_late_reply(void **state)
{
    struct rpc_world world;
    struct keeper keeper;
    struct outcome outcome, again;
    struct weir_target_statistics statistics;
    struct weir_procedure *keep = open_with_keeper(&world, &keeper, NULL);
    rpc_call(world.target, keep, NULL, 0, NULL, &outcome);
    rpc_world_run_until_count(&world, &keeper.count, 1);
    weir_call_cancel(outcome.call);
    rpc_world_run_client_until(&world, &outcome.is_told);
    weir_target_statistics(world.target, &statistics);
    assert_int_equal(statistics.calls.in_flight, 1);
    rpc_reply(keeper.requests[0], "late", 4); /* it has not heard yet */
    rpc_call(world.target, rpc_register(world.client, "echo", NULL, NULL), "1", 1, NULL, &again);
    rpc_world_run_until(&world, &again.is_told);
    rpc_expect(&again, WEIR_OK, "");
    weir_target_statistics(world.target, &statistics);
    assert_int_equal(statistics.calls.late, 1);
    assert_int_equal(statistics.calls.in_flight, 0);
    assert_int_equal(keeper.gone, 0);
    rpc_world_close(&world);
}

static void handle_time_left(struct weir_request *request, const void *bytes, size_t length,
                             void *user)
{
    *(unsigned *)user = weir_request_timeout_ms(request);
    rpc_reply(request, NULL, 0);
}

/* What waits behind a call that was given up is sent with the time that it has then. */
static void test_time_left_of_what_waited(void **state)
{
    struct rpc_world world;
    struct keeper keeper;
    struct outcome first, second;
    struct weir_rpc_options one = {.in_flight_max = 1};
    struct weir_procedure *keep = open_with_keeper(&world, &keeper, &one);
    unsigned left_ms;
    rpc_register(world.server, "left", handle_time_left, &left_ms);
    struct weir_procedure *left = rpc_register(world.client, "left", NULL, NULL);
    struct weir_call_options short_time = {.timeout_ms = 1}, long_time = {.timeout_ms = 5000};
    while (keeper.count == 0) { /* one that was sent before its time was over */
        rpc_call(world.target, keep, NULL, 0, &short_time, &first);
        rpc_world_run_until(&world, &first.is_told);
        short_time.timeout_ms *= 2;
    }
    rpc_call(world.target, keep, NULL, 0, &short_time, &first);
    uint64_t due_ns = clock_now_ns() + 5000 * UINT64_C(1000000);
    rpc_call(world.target, left, NULL, 0, &long_time, &second);
    while (clock_now_ns() < due_ns - 4000 * UINT64_C(1000000)) { /* the server does nothing */
        assert_true(weir_poll(world.client_poller, 1) >= 0);
    }
    assert_true(first.is_told);
    rpc_world_run_until(&world, &second.is_told);
    rpc_expect(&second, WEIR_OK, "");
    assert_in_range(left_ms, 1, 4000 + 1);
    refuse_all(&keeper);
    rpc_world_close(&world);
}

/* --- cancel --- */

static void test_cancel_in_every_state(void **state)
{
    struct rpc_world world;
    struct keeper keeper;
    struct outcome first, second, third;
    struct weir_rpc_options options = {.in_flight_max = 1};
    struct weir_procedure *keep = open_with_keeper(&world, &keeper, &options);
    /* Not connected yet; twice. */
    rpc_call(world.target, keep, NULL, 0, NULL, &first);
    weir_call_cancel(first.call);
    weir_call_cancel(first.call);
    assert_false(first.is_told);
    rpc_world_run_until(&world, &first.is_told);
    rpc_expect(&first, WEIR_CANCELED, ": keep: canceled");
    /* In flight, and behind that. */
    rpc_call(world.target, keep, NULL, 0, NULL, &first);
    rpc_call(world.target, keep, NULL, 0, NULL, &second);
    rpc_world_run_until_count(&world, &keeper.count, 1);
    weir_call_cancel(second.call);
    weir_call_cancel(first.call);
    weir_call_cancel(first.call);
    rpc_world_run_until(&world, &first.is_told);
    rpc_world_run_until(&world, &second.is_told);
    rpc_expect(&first, WEIR_CANCELED, "canceled");
    rpc_expect(&second, WEIR_CANCELED, "canceled");
    rpc_world_run_until_count(&world, &keeper.gone, 1);
    assert_int_equal(keeper.count, 1);
    refuse_all(&keeper);
    keeper.count = 0;
    /* Answered already, but not heard. */
    rpc_call(world.target, keep, NULL, 0, NULL, &third);
    while (keeper.count == 0) {
        weir_poll(world.client_poller, 0);
        weir_poll(world.server_poller, 0);
    }
    rpc_reply(keeper.requests[0], NULL, 0);
    weir_call_cancel(third.call);
    rpc_world_run_until(&world, &third.is_told);
    rpc_expect(&third, WEIR_CANCELED, "canceled");
    struct weir_target_statistics statistics;
    weir_target_statistics(world.target, &statistics);
    assert_int_equal(statistics.calls.canceled, 4);
    rpc_world_close(&world);
}

/* --- destruction --- */

static void test_client_destroyed(void **state)
{
    struct rpc_world world;
    struct keeper keeper;
    struct outcome outcomes[4];
    struct weir_rpc_options options = {.in_flight_max = 2};
    struct weir_procedure *keep = open_with_keeper(&world, &keeper, &options);
    for (unsigned i = 0; i < 4; i++) {
        rpc_call(world.target, keep, NULL, 0, NULL, &outcomes[i]);
    }
    rpc_world_run_until_count(&world, &keeper.count, 2);
    weir_call_cancel(outcomes[1].call);
    weir_call_cancel(outcomes[3].call);
    weir_rpc_destroy(world.client);
    world.client = NULL;
    for (unsigned i = 0; i < 4; i++) {
        rpc_expect(&outcomes[i], WEIR_CANCELED, i % 2 == 1 ? "canceled" : "destroyed");
    }
    rpc_world_run_until_count(&world, &keeper.gone, 2);
    struct weir_piece none = {NULL, 0};
    enum weir_status lost = weir_request_state(keeper.requests[0]);
    assert_true(lost == WEIR_PEER_LOST || lost == WEIR_DISCONNECTED || lost == WEIR_CANCELED);
    assert_non_null(strchr(weir_request_peer(keeper.requests[0]), ':'));
    assert_int_equal(weir_request_reply(keeper.requests[0], &none, 1), lost);
    weir_request_refuse(keeper.requests[1], 0, "nobody hears it");
    rpc_world_close(&world);
}

struct elsewhere {
    struct weir_target *targets[2];
    struct weir_procedure *procedure;
    unsigned told;
};

static void try_elsewhere(const struct weir_reply *reply, void *argument)
{
    struct elsewhere *elsewhere = argument;
    elsewhere->told++;
    assert_int_equal(reply->status, WEIR_CANCELED);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(weir_rpc_call(elsewhere->targets[i], elsewhere->procedure, NULL, 0, NULL,
                                       try_elsewhere, elsewhere, NULL),
                         WEIR_STATE);
        if (elsewhere->told == 4) {
            weir_target_destroy(elsewhere->targets[i]);
        }
    }
}

/* Who is told while the rpc is destroyed tries each target again, also those that went before. */
static void test_tried_elsewhere_at_the_end(void **state)
{
    struct rpc_world world;
    struct keeper keeper;
    struct weir_error error;
    struct elsewhere elsewhere = {.procedure = open_with_keeper(&world, &keeper, NULL)};
    elsewhere.targets[0] = world.target;
    assert_int_equal(weir_target_create(world.client, weir_rpc_address(world.server),
                                        &elsewhere.targets[1], &error),
                     WEIR_OK);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(weir_rpc_call(elsewhere.targets[i % 2], elsewhere.procedure, NULL, 0, NULL,
                                       try_elsewhere, &elsewhere, NULL),
                         WEIR_OK);
    }
    rpc_world_run_until_count(&world, &keeper.count, 4);
    weir_rpc_destroy(world.client);
    world.client = NULL;
    assert_int_equal(elsewhere.told, 4);
    rpc_world_run_until_count(&world, &keeper.gone, 4);
    refuse_all(&keeper);
    rpc_world_close(&world);
}

/* Answers all that there are when the last has gone. */
static void answer_all_at_last(struct weir_request *request, enum weir_status why, void *argument)
{
    struct keeper *keeper = argument;
    keeper->gone++;
    if (keeper->gone == keeper->count) {
        refuse_all(keeper);
    }
}

/* The server's end, with requests of several clients: each is there until all have heard. */
static void test_requests_of_several_at_the_end(void **state)
{
    struct rpc_world world;
    struct keeper keeper;
    struct weir_target *other;
    struct weir_error error;
    struct outcome outcomes[4];
    struct weir_procedure *keep = open_with_keeper(&world, &keeper, NULL);
    assert_int_equal(
        weir_target_create(world.client, weir_rpc_address(world.server), &other, &error), WEIR_OK);
    for (unsigned i = 0; i < 4; i++) {
        rpc_call(i % 2 == 0 ? world.target : other, keep, NULL, 0, NULL, &outcomes[i]);
    }
    rpc_world_run_until_count(&world, &keeper.count, 4);
    for (unsigned i = 0; i < 4; i++) {
        weir_request_on_gone(keeper.requests[i], answer_all_at_last, &keeper);
    }
    weir_rpc_destroy(world.server);
    world.server = NULL;
    assert_int_equal(keeper.gone, 4);
    rpc_world_close(&world);
}

/* Answered by `gone` itself. */
static void gone_and_answered(struct weir_request *request, enum weir_status why, void *argument)
{
    struct keeper *keeper = argument;
    for (unsigned i = 0; i < keeper->count; i++) {
        weir_request_refuse(keeper->requests[i], 0, NULL);
    }
    keeper->gone++;
    keeper->count = 0;
}

static void test_server_destroyed(void **state)
{
    for (unsigned is_answered = 0; is_answered < 2; is_answered++) {
        struct rpc_world world;
        struct keeper keeper;
        struct outcome outcomes[3];
        struct weir_procedure *keep = open_with_keeper(&world, &keeper, NULL);
        for (unsigned i = 0; i < 3; i++) {
            rpc_call(world.target, keep, NULL, 0, NULL, &outcomes[i]);
        }
        rpc_world_run_until_count(&world, &keeper.count, 3);
        for (unsigned i = 0; is_answered && i < 3; i++) {
            weir_request_on_gone(keeper.requests[i], gone_and_answered, &keeper);
        }
        weir_rpc_destroy(world.server);
        world.server = NULL;
        assert_int_equal(keeper.gone, is_answered ? 1 : 3);
        for (unsigned i = 0; i < 3; i++) {
            rpc_world_run_until(&world, &outcomes[i].is_told);
            rpc_expect(&outcomes[i], WEIR_PEER_LOST, "lost after it was sent");
        }
        rpc_world_close(&world);
    }
}

struct destroyer {
    struct rpc_world *world;
    unsigned told;
};

static void destroy_target(const struct weir_reply *reply, void *argument)
{
    struct destroyer *destroyer = argument;
    destroyer->told++;
    weir_target_destroy(destroyer->world->target);
    destroyer->world->target = NULL;
}

/* Whoever is told may destroy the target: on an answer, on a loss, on its destruction. */
static void test_target_destroyed_by_who_is_told(void **state)
{
    for (unsigned is_lost = 0; is_lost < 2; is_lost++) {
        struct rpc_world world;
        struct keeper keeper;
        struct destroyer destroyer = {&world, 0};
        struct weir_procedure *keep = open_with_keeper(&world, &keeper, NULL);
        for (unsigned i = 0; i < 3; i++) {
            assert_int_equal(
                weir_rpc_call(world.target, keep, NULL, 0, NULL, destroy_target, &destroyer, NULL),
                WEIR_OK);
        }
        rpc_world_run_until_count(&world, &keeper.count, 3);
        if (is_lost) {
            weir_rpc_destroy(world.server);
            world.server = NULL;
        } else {
            rpc_reply(keeper.requests[0], NULL, 0);
        }
        rpc_world_run_until_count(&world, &destroyer.told, 3);
        while (!is_lost && keeper.gone < 2) {
            rpc_world_poll(&world);
        }
        rpc_world_close(&world);
    }
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "server") == 0) {
        return serve(argv[2], argv[3]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_server_killed),
        cmocka_unit_test(test_nobody_there),
        cmocka_unit_test(test_no_such_address),
        cmocka_unit_test(test_timeouts_in_any_order),
        cmocka_unit_test(test_late_reply),
        cmocka_unit_test(test_time_left_of_what_waited),
        cmocka_unit_test(test_cancel_in_every_state),
        cmocka_unit_test(test_client_destroyed),
        cmocka_unit_test(test_tried_elsewhere_at_the_end),
        cmocka_unit_test(test_requests_of_several_at_the_end),
        cmocka_unit_test(test_server_destroyed),
        cmocka_unit_test(test_target_destroyed_by_who_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
