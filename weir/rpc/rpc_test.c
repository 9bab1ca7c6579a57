/* Calls and their answers, end to end. Not here: bulk (bulk_test.c), bad ends (lost_test.c), too
 * much at once (busy_test.c), peers that lie (lying_test.c). */
#include "weir/rpc/rpc_world_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void test_call_and_reply(void **state)
{
    struct rpc_world world;
    struct outcome outcome;
    rpc_world_open(&world, NULL, NULL);
    rpc_register(world.server, "echo", handle_echo, NULL);
    struct weir_procedure *echo = rpc_register(world.client, "echo", NULL, NULL);
    rpc_call(world.target, echo, "12345678", 8, NULL, &outcome);
    assert_false(outcome.is_told);
    rpc_world_run_until(&world, &outcome.is_told);
    rpc_expect(&outcome, WEIR_OK, "");
    assert_int_equal(outcome.length, 8);
    assert_memory_equal(outcome.bytes, "12345678", 8);
    rpc_world_close(&world);
}

/* Lengths on both sides of what goes in one piece, and nothing. */
static void test_lengths(void **state)
{
    static const size_t lengths[] = {0, 1, 7, 64, 65, 8147, 8148, 8149, 8192, 8193, 100000};
    struct rpc_world world;
    static struct outcome outcome;
    uint8_t *bytes = malloc(100000);
    for (size_t i = 0; i < 100000; i++) {
        bytes[i] = (uint8_t)(i * 7 + (i >> 8));
    }
    rpc_world_open(&world, NULL, NULL);
    rpc_register(world.server, "echo", handle_echo, NULL);
    struct weir_procedure *echo = rpc_register(world.client, "echo", NULL, NULL);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
        rpc_call(world.target, echo, bytes, lengths[i], NULL, &outcome);
        rpc_world_run_until(&world, &outcome.is_told);
        rpc_expect(&outcome, WEIR_OK, "");
        assert_int_equal(outcome.length, lengths[i]);
        assert_memory_equal(outcome.bytes, bytes,
                            lengths[i] < BYTES_KEPT ? lengths[i] : BYTES_KEPT);
    }
    free(bytes);
    rpc_world_close(&world);
}

static void handle_pieces(struct weir_request *request, const void *bytes, size_t length,
                          void *user)
{
    assert_int_equal(length, 9);
    assert_memory_equal(bytes, "onetwosix", 9);
    struct weir_piece pieces[12];
    for (unsigned i = 0; i < 12; i++) {
        pieces[i] = (struct weir_piece){(const uint8_t *)bytes + i % 3, i % 2};
    }
    assert_int_equal(weir_request_reply(request, pieces, 12), WEIR_OK);
}

static void test_pieces(void **state)
{
    struct rpc_world world;
    struct outcome outcome = {0};
    struct weir_piece pieces[] = {{"one", 3}, {NULL, 0}, {"two", 3}, {"six", 3}};
    rpc_world_open(&world, NULL, NULL);
    rpc_register(world.server, "pieces", handle_pieces, NULL);
    struct weir_procedure *procedure = rpc_register(world.client, "pieces", NULL, NULL);
    assert_int_equal(
        weir_rpc_call(world.target, procedure, pieces, 4, NULL, outcome_replied, &outcome, NULL),
        WEIR_OK);
    rpc_world_run_until(&world, &outcome.is_told);
    rpc_expect(&outcome, WEIR_OK, "");
    assert_int_equal(outcome.length, 6);
    assert_memory_equal(outcome.bytes, "noenoe", 6);
    rpc_world_close(&world);
}

static void handle_refuse(struct weir_request *request, const void *bytes, size_t length,
                          void *user)
{
    weir_request_refuse(request, 42, "no such key\n");
}

static void test_refusal_and_unknown(void **state)
{
    struct rpc_world world;
    struct outcome outcome;
    rpc_world_open(&world, NULL, NULL);
    rpc_register(world.server, "get", handle_refuse, NULL);
    rpc_register(world.server, "only called here", NULL, NULL);
    struct weir_procedure *get = rpc_register(world.client, "get", NULL, NULL);
    struct weir_procedure *put = rpc_register(world.client, "put", NULL, NULL);
    struct weir_procedure *only = rpc_register(world.client, "only called here", NULL, NULL);
    rpc_call(world.target, get, "key", 3, NULL, &outcome);
    rpc_world_run_until(&world, &outcome.is_told);
    rpc_expect(&outcome, WEIR_REFUSED, ": get: no such key?");
    assert_int_equal(outcome.code, 42);
    rpc_call(world.target, put, "key", 3, NULL, &outcome);
    rpc_world_run_until(&world, &outcome.is_told);
    rpc_expect(&outcome, WEIR_UNSUPPORTED, ": put: the server has no such procedure");
    assert_non_null(strstr(outcome.words, weir_rpc_address(world.server)));
    rpc_call(world.target, only, NULL, 0, NULL, &outcome);
    rpc_world_run_until(&world, &outcome.is_told);
    rpc_expect(&outcome, WEIR_UNSUPPORTED, "only called here");
    rpc_world_close(&world);
}

/* --- answered later --- */

struct kept {
    struct weir_request *requests[8];
    const void *bytes[8];
    unsigned count;
    bool has_all;
    unsigned wanted;
};

static void handle_keep(struct weir_request *request, const void *bytes, size_t length, void *user)
{
    struct kept *kept = user;
    kept->requests[kept->count] = request;
    kept->bytes[kept->count] = weir_request_hold(request);
    assert_non_null(kept->bytes[kept->count]);
    assert_ptr_equal(weir_request_hold(request), kept->bytes[kept->count]);
    kept->count++;
    kept->has_all = kept->count == kept->wanted;
}

static void test_reply_later_in_another_order(void **state)
{
    struct rpc_world world;
    struct outcome outcomes[8];
    struct kept kept = {.wanted = 8};
    struct weir_server_statistics statistics;
    rpc_world_open(&world, NULL, NULL);
    rpc_register(world.server, "keep", handle_keep, &kept);
    struct weir_procedure *keep = rpc_register(world.client, "keep", NULL, NULL);
    for (unsigned i = 0; i < 8; i++) {
        rpc_call(world.target, keep, &i, sizeof(i), NULL, &outcomes[i]);
    }
    rpc_world_run_until(&world, &kept.has_all);
    weir_rpc_server_statistics(world.server, &statistics);
    assert_int_equal(statistics.requests, 8);
    assert_int_equal(statistics.held_length, 8 * sizeof(unsigned));
    for (unsigned i = 8; i-- > 0;) {
        unsigned number;
        memcpy(&number, kept.bytes[i], sizeof(number));
        assert_int_equal(number, i); /* in the order sent */
        assert_int_equal(weir_request_state(kept.requests[i]), WEIR_OK);
        rpc_reply(kept.requests[i], kept.bytes[i], sizeof(number));
    }
    for (unsigned i = 0; i < 8; i++) {
        rpc_world_run_until(&world, &outcomes[i].is_told);
        rpc_expect(&outcomes[i], WEIR_OK, "");
        assert_memory_equal(outcomes[i].bytes, &i, sizeof(i));
        assert_true(i == 0 || outcomes[i].told_ns <= outcomes[i - 1].told_ns);
    }
    weir_rpc_server_statistics(world.server, &statistics);
    assert_int_equal(statistics.requests, 0);
    assert_int_equal(statistics.held_length, 0);
    rpc_world_close(&world);
}

/* --- known and unknown --- */

/* What is registered, on either side, when they have met already. And a name whose number is too
 * like that of what is served there is not taken for it. */
static void test_registered_late(void **state)
{
    struct rpc_world world;
    struct outcome outcome;
    rpc_world_open(&world, NULL, NULL);
    rpc_register(world.server, "first", handle_echo, NULL);
    rpc_register(world.server, "procedure 39575", handle_echo, NULL);
    struct weir_procedure *first = rpc_register(world.client, "first", NULL, NULL);
    struct weir_procedure *second = rpc_register(world.client, "second", NULL, NULL);
    rpc_call(world.target, first, "1", 1, NULL, &outcome);
    rpc_world_run_until(&world, &outcome.is_told);
    rpc_expect(&outcome, WEIR_OK, "");
    rpc_call(world.target, second, "2", 1, NULL, &outcome);
    rpc_world_run_until(&world, &outcome.is_told);
    rpc_expect(&outcome, WEIR_UNSUPPORTED, ": second: ");
    rpc_register(world.server, "second", handle_echo, NULL);
    rpc_register(world.server, "third", handle_echo, NULL);
    struct weir_procedure *third = rpc_register(world.client, "third", NULL, NULL);
    struct weir_procedure *alike = rpc_register(world.client, "procedure 49265", NULL, NULL);
    rpc_call(world.target, second, "2", 1, NULL, &outcome);
    rpc_world_run_until(&world, &outcome.is_told);
    rpc_expect(&outcome, WEIR_OK, "");
    rpc_call(world.target, third, "3", 1, NULL, &outcome);
    rpc_world_run_until(&world, &outcome.is_told);
    rpc_expect(&outcome, WEIR_OK, "");
    rpc_call(world.target, alike, "4", 1, NULL, &outcome);
    rpc_world_run_until(&world, &outcome.is_told);
    rpc_expect(&outcome, WEIR_UNSUPPORTED, ": procedure 49265: ");
    rpc_world_close(&world);
}

/* --- what is counted --- */

static void check_calls(const struct weir_call_statistics *calls, unsigned waiting,
                        unsigned in_flight, unsigned replies)
{
    assert_int_equal(calls->waiting, waiting);
    assert_int_equal(calls->in_flight, in_flight);
    assert_int_equal(calls->calls, 3);
    assert_int_equal(calls->replies, replies);
    assert_int_equal(calls->bytes_sent, 4 * (in_flight + replies));
    assert_int_equal(calls->bytes_received, 2 * replies);
    assert_int_equal(calls->latency.count, replies);
    assert_true(calls->latency.least_ns <= calls->latency.mean_ns);
    assert_true(calls->latency.mean_ns <= calls->latency.greatest_ns);
}

static void test_statistics(void **state)
{
    struct rpc_world world;
    struct outcome outcomes[3];
    struct kept kept = {.wanted = 2};
    struct weir_rpc_options options = {.in_flight_max = 2};
    struct weir_target_statistics target;
    struct weir_procedure_statistics procedure;
    rpc_world_open(&world, NULL, &options);
    struct weir_procedure *here = rpc_register(world.server, "keep", handle_keep, &kept);
    struct weir_procedure *keep = rpc_register(world.client, "keep", NULL, NULL);
    rpc_register(world.client, "not called", NULL, NULL);
    for (unsigned i = 0; i < 3; i++) {
        rpc_call(world.target, keep, "four", 4, NULL, &outcomes[i]);
    }
    rpc_world_run_until(&world, &kept.has_all);
    weir_target_statistics(world.target, &target);
    weir_procedure_statistics(keep, &procedure);
    check_calls(&target.calls, 1, 2, 0);
    check_calls(&procedure.calls, 1, 2, 0);
    assert_int_equal(target.window, 2);
    assert_true(target.is_connected);
    kept.wanted = 3;
    rpc_reply(kept.requests[0], "ok", 2);
    rpc_reply(kept.requests[1], "ok", 2);
    rpc_world_run_until_count(&world, &kept.count, 3);
    rpc_reply(kept.requests[2], "ok", 2);
    rpc_world_run_until(&world, &outcomes[2].is_told);
    weir_target_statistics(world.target, &target);
    weir_procedure_statistics(keep, &procedure);
    check_calls(&target.calls, 0, 0, 3);
    check_calls(&procedure.calls, 0, 0, 3);
    weir_procedure_statistics(here, &procedure);
    assert_int_equal(procedure.requests, 3);
    assert_int_equal(procedure.replies, 3);
    assert_int_equal(procedure.calls.calls, 0);
    rpc_world_close(&world);
}

/* What its handler has already it answers. */
static void test_unregister(void **state)
{
    struct rpc_world world;
    struct outcome kept_one, outcome;
    struct kept kept = {.wanted = 1};
    rpc_world_open(&world, NULL, NULL);
    assert_ptr_equal(weir_rpc_poller(world.server), world.server_poller);
    struct weir_procedure *served = rpc_register(world.server, "keep", handle_keep, &kept);
    struct weir_procedure *keep = rpc_register(world.client, "keep", NULL, NULL);
    rpc_call(world.target, keep, "1", 1, NULL, &kept_one);
    rpc_world_run_until(&world, &kept.has_all);
    weir_rpc_unregister(served);
    rpc_call(world.target, keep, "2", 1, NULL, &outcome);
    rpc_world_run_until(&world, &outcome.is_told);
    rpc_expect(&outcome, WEIR_UNSUPPORTED, "keep");
    assert_int_equal(kept.count, 1);
    rpc_reply(kept.requests[0], "yes", 3);
    rpc_world_run_until(&world, &kept_one.is_told);
    rpc_expect(&kept_one, WEIR_OK, "");
    rpc_register(world.server, "keep", handle_echo, NULL);
    rpc_call(world.target, keep, "3", 1, NULL, &outcome);
    rpc_world_run_until(&world, &outcome.is_told);
    rpc_expect(&outcome, WEIR_OK, "");
    rpc_world_close(&world);
}

/* --- names --- */

static void test_names(void **state)
{
    struct rpc_world world;
    struct weir_error error;
    struct weir_procedure *procedure, *same;
    char name[80];
    rpc_world_open(&world, NULL, NULL);
    procedure = rpc_register(world.server, "echo", NULL, NULL);
    assert_int_equal(weir_rpc_register(world.server, "echo", handle_echo, NULL, &same, &error),
                     WEIR_OK);
    assert_ptr_equal(same, procedure);
    assert_string_equal(weir_procedure_name(same), "echo");
    assert_int_equal(weir_rpc_register(world.server, "echo", handle_echo, NULL, &same, &error),
                     WEIR_INVALID);
    assert_int_equal(weir_rpc_register(world.server, "", handle_echo, NULL, &same, &error),
                     WEIR_INVALID);
    memset(name, 'n', sizeof(name));
    name[WEIR_PROCEDURE_NAME_MAX + 1] = '\0';
    assert_int_equal(weir_rpc_register(world.server, name, handle_echo, NULL, &same, &error),
                     WEIR_INVALID);
    name[WEIR_PROCEDURE_NAME_MAX] = '\0';
    assert_int_equal(weir_rpc_register(world.server, name, handle_echo, NULL, NULL, &error),
                     WEIR_OK);
    /* Two whose numbers have the same low half: found by trying 200,000. */
    rpc_register(world.server, "procedure 39575", NULL, NULL);
    assert_int_equal(
        weir_rpc_register(world.server, "procedure 49265", handle_echo, NULL, &same, &error),
        WEIR_INVALID);
    assert_string_equal(error.message,
                        "\"procedure 49265\": its number is too like that of \"procedure 39575\"");
    for (unsigned i = 0; i < 200; i++) { /* the table grows */
        snprintf(name, sizeof(name), "procedure %u", i);
        rpc_register(world.server, name, handle_echo, NULL);
    }
    rpc_world_close(&world);
}

#define OVER(options)                                                                              \
    {"call and reply (" #options ")", test_call_and_reply, rpc_world_over, NULL, &(options)},      \
        {"lengths (" #options ")", test_lengths, rpc_world_over, NULL, &(options)},                \
        {"pieces (" #options ")", test_pieces, rpc_world_over, NULL, &(options)},                  \
        {"refusal and unknown (" #options ")", test_refusal_and_unknown, rpc_world_over, NULL,     \
         &(options)},                                                                              \
        {"reply later in another order (" #options ")", test_reply_later_in_another_order,         \
         rpc_world_over, NULL, &(options)},                                                        \
        {"registered late (" #options ")", test_registered_late, rpc_world_over, NULL,             \
         &(options)},                                                                              \
        {"statistics (" #options ")", test_statistics, rpc_world_over, NULL, &(options)},          \
        {"unregister (" #options ")", test_unregister, rpc_world_over, NULL, &(options)},          \
    {                                                                                              \
        "names (" #options ")", test_names, rpc_world_over, NULL, &(options)                       \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {OVER(world_cm), OVER(world_cm_lanes), OVER(world_tcp),
                                       OVER(world_tcp_lanes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
