/* Peers that do not keep the protocol, and limits that one side sets for the other. Each lie ends
 * its own connection, both sides hear PROTOCOL and what was wrong, and others are served on. */
#include "weir/rpc/rpc_world_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weir/rpc/procedure.h"
#include "weir/rpc/rpc_message.h"

static void send_message(struct weir_connection *connection, const struct rpc_message *message)
{
    uint8_t header[RPC_HEADER_MAX];
    struct weir_piece pieces[] = {{header, rpc_message_pack(message, header)},
                                  {message->bytes, message->length}};
    assert_int_equal(weir_send_pieces(connection, pieces, 2, NULL, NULL), WEIR_OK);
}

static void say(struct weir_connection *connection, enum rpc_kind kind, uint32_t value,
                unsigned place)
{
    struct rpc_message message = {.kind = kind, .value = value, .place = place};
    send_message(connection, &message);
}

/* --- a server that lies --- */

/* A plain channel's listener, with whom a client of rpc talks. */
struct liar {
    struct world world;
    struct weir_rpc *rpc;
    struct weir_target *target;
    struct weir_procedure *procedure;
    struct outcome outcome;
    enum rpc_kind lie;
};

static void welcome(struct weir_connection *connection, void *user)
{
    struct end *end = user;
    end->is_open = true;
    say(connection, RPC_WELCOME, 10, 0);
}

static void answer_with_a_lie(struct weir_connection *connection, const void *bytes, size_t length,
                              void *user)
{
    struct end *end = user;
    struct liar *liar = end->test;
    struct rpc_message request;
    assert_null(rpc_message_parse(bytes, length, &request));
    switch (liar->lie) {
    case RPC_REPLY: /* for a place that is free */
        say(connection, RPC_REPLY, 0, request.place + 1);
        break;
    case RPC_REFUSED: /* behind the last */
        say(connection, RPC_REFUSED, 0, 32);
        break;
    case RPC_UNKNOWN:
        say(connection, RPC_UNKNOWN, 0, 4095);
        break;
    case RPC_BUSY: /* twice */
        say(connection, RPC_REPLY, 0, request.place);
        say(connection, RPC_BUSY, 0, request.place);
        break;
    default:
        say(connection, liar->lie, liar->lie == RPC_WELCOME, request.place);
        break;
    }
}

static void end_closed(struct weir_connection *connection, const struct weir_error *reason,
                       void *user)
{
    struct end *end = user;
    end->is_closed = true;
    end->reason = *reason;
}

static bool lie_to(struct weir_connection *connection, void *listener_user,
                   struct weir_handler *ret_handler, void **ret_user)
{
    struct liar *liar = listener_user;
    if (liar->world.server_count == liar->world.server_max) {
        return false;
    }
    struct end *end = &liar->world.servers[liar->world.server_count++];
    end->test = liar;
    end->connection = connection;
    *ret_handler = (struct weir_handler){welcome, answer_with_a_lie, NULL, end_closed};
    *ret_user = end;
    return true;
}

static void liar_open(struct liar *liar, const struct weir_call_options *options)
{
    struct weir_error error;
    char address[96];
    world_open(&liar->world, &world_cm, 4, true);
    weir_listener_close(liar->world.listener);
    snprintf(address, sizeof(address), "%s:0", world_host());
    assert_int_equal(weir_listen(liar->world.server_poller, address, NULL, lie_to, liar,
                                 &liar->world.listener, &error),
                     WEIR_OK);
    assert_int_equal(weir_rpc_create(liar->world.client_poller, NULL, &liar->rpc, &error), WEIR_OK);
    assert_int_equal(weir_target_create(liar->rpc, weir_listener_address(liar->world.listener),
                                        &liar->target, &error),
                     WEIR_OK);
    liar->procedure = rpc_register(liar->rpc, "truth", NULL, NULL);
    rpc_call(liar->target, liar->procedure, "?", 1, options, &liar->outcome);
}

static void liar_close(struct liar *liar)
{
    weir_rpc_destroy(liar->rpc);
    world_close(&liar->world);
}

static void test_server_that_lies(void **state)
{
    static const char *const words[RPC_KIND_END] = {
        [RPC_WELCOME] = "what a server does not say",
        [RPC_REPLY] = "an answer to what was not asked",
        [RPC_REFUSED] = "an answer to what was not asked",
        [RPC_UNKNOWN] = "an answer to what was not asked",
        [RPC_BUSY] = "an answer to what was not asked",
        [RPC_CANCELED] = "it gave up what was not canceled",
        [RPC_REQUEST] = "what a server does not say",
        [RPC_NAMED] = "what a server does not say",
        [RPC_CANCEL] = "what a server does not say",
    };
    for (unsigned lie = RPC_WELCOME; lie < RPC_KIND_END; lie++) {
        static struct liar liar;
        memset(&liar, 0, sizeof(liar));
        liar.lie = (enum rpc_kind)lie;
        liar_open(&liar, NULL);
        world_run_until(&liar.world, &liar.outcome.is_told);
        if (lie == RPC_BUSY) { /* the first answer was none */
            rpc_expect(&liar.outcome, WEIR_OK, "");
        } else {
            rpc_expect(&liar.outcome, WEIR_PEER_LOST, words[lie]);
        }
        world_run_until(&liar.world, &liar.world.servers[0].is_closed);
        assert_int_equal(liar.world.servers[0].reason.status, WEIR_PROTOCOL);
        assert_non_null(strstr(liar.world.servers[0].reason.message, words[lie]));
        liar_close(&liar);
    }
}

/* Not even a welcome: something else listens there. The call waits, for that may change. */
static void say_nonsense(struct weir_connection *connection, void *user)
{
    assert_int_equal(weir_send(connection, "220 mail.example ESMTP", 22, NULL, NULL), WEIR_OK);
}

static bool accept_nonsense(struct weir_connection *connection, void *listener_user,
                            struct weir_handler *ret_handler, void **ret_user)
{
    *ret_handler = (struct weir_handler){.opened = say_nonsense};
    return true;
}

static void test_something_else_listens(void **state)
{
    static struct liar liar;
    struct weir_error error;
    char address[96];
    struct weir_call_options options = {.timeout_ms = 100};
    memset(&liar, 0, sizeof(liar));
    liar_open(&liar, NULL);
    weir_target_destroy(liar.target);
    rpc_expect(&liar.outcome, WEIR_CANCELED, "the target was destroyed");
    struct weir_listener *listener;
    snprintf(address, sizeof(address), "%s:0", world_host());
    assert_int_equal(weir_listen(liar.world.server_poller, address, NULL, accept_nonsense, NULL,
                                 &listener, &error),
                     WEIR_OK);
    assert_int_equal(
        weir_target_create(liar.rpc, weir_listener_address(listener), &liar.target, &error),
        WEIR_OK);
    do { /* until it has time to hear of it */
        options.timeout_ms *= 2;
        rpc_call(liar.target, liar.procedure, "?", 1, &options, &liar.outcome);
        world_run_until(&liar.world, &liar.outcome.is_told);
        rpc_expect(&liar.outcome, WEIR_TIMED_OUT, "no connection");
    } while (strstr(liar.outcome.words, "another version of rpc, or none") == NULL);
    liar_close(&liar);
}

/* --- a client that lies --- */

/* An rpc's server; a plain channel that talks to it. */
struct strange {
    struct rpc_world world;
    struct end end;
    unsigned answers;
    enum rpc_kind last;
    struct weir_request *kept[16];
    unsigned kept_count;
    bool has_moved;
    enum weir_status moved_status;
    struct weir_memory *memory;
};

static void take_answer(struct end *end, const uint8_t *bytes, size_t length)
{
    struct strange *strange = end->test;
    struct rpc_message message;
    assert_null(rpc_message_parse(bytes, length, &message));
    strange->answers++;
    strange->last = message.kind;
}

static void handle_keep(struct weir_request *request, const void *bytes, size_t length, void *user)
{
    struct strange *strange = user;
    strange->kept[strange->kept_count++] = request;
}

static void strange_moved(struct weir_request *request, enum weir_status status, void *argument)
{
    struct strange *strange = argument;
    strange->has_moved = true;
    strange->moved_status = status;
    weir_request_refuse(request, 0, "did not work");
}

static void handle_pull(struct weir_request *request, const void *bytes, size_t length, void *user)
{
    struct strange *strange = user;
    struct weir_bulk_part part = {.memory = strange->memory, .length = 64};
    assert_int_equal(weir_request_pull(request, &part, strange_moved, strange), WEIR_OK);
}

static void strange_open(struct strange *strange, const struct weir_rpc_options *server,
                         const struct weir_channel_options *client)
{
    struct weir_error error;
    memset(strange, 0, sizeof(*strange));
    rpc_world_open(&strange->world, server, NULL);
    assert_int_equal(
        weir_memory_allocate(world_fabric(), 4096, WEIR_LOCAL, &strange->memory, &error), WEIR_OK);
    rpc_register(strange->world.server, "echo", handle_echo, NULL);
    rpc_register(strange->world.server, "keep", handle_keep, strange);
    rpc_register(strange->world.server, "pull", handle_pull, strange);
    strange->end.test = strange;
    strange->end.on_message = take_answer;
    assert_int_equal(weir_connect(strange->world.client_poller,
                                  weir_rpc_address(strange->world.server), client, &end_handler,
                                  &strange->end, NULL, &error),
                     WEIR_OK);
    rpc_world_run_until_count(&strange->world, &strange->answers, 1);
    assert_int_equal(strange->last, RPC_WELCOME);
}

/* Others are served as before. */
static void strange_close(struct strange *strange)
{
    struct outcome outcome;
    for (unsigned i = 0; i < strange->kept_count; i++) {
        weir_request_refuse(strange->kept[i], 0, NULL);
    }
    rpc_call(strange->world.target, rpc_register(strange->world.client, "echo", NULL, NULL), "1", 1,
             NULL, &outcome);
    rpc_world_run_until(&strange->world, &outcome.is_told);
    rpc_expect(&outcome, WEIR_OK, "");
    rpc_world_close(&strange->world);
    weir_memory_deregister(strange->memory);
}

static uint64_t number_of(struct strange *strange, const char *name)
{
    return rpc_register(strange->world.client, name, NULL, NULL)->number;
}

static void expect_end(struct strange *strange, const char *words)
{
    struct weir_server_statistics statistics;
    rpc_world_run_until(&strange->world, &strange->end.is_closed);
    assert_int_equal(strange->end.reason.status, WEIR_PROTOCOL);
    if (strstr(strange->end.reason.message, words) == NULL) {
        fail_msg("\"%s\" lacks \"%s\"", strange->end.reason.message, words);
    }
    weir_rpc_server_statistics(strange->world.server, &statistics);
    assert_int_equal(statistics.broken, 1);
    strange_close(strange);
}

static void test_client_that_says_what_servers_say(void **state)
{
    for (unsigned kind = RPC_WELCOME; kind < RPC_REQUEST; kind++) {
        static struct strange strange;
        strange_open(&strange, NULL, NULL);
        say(strange.end.connection, (enum rpc_kind)kind, kind == RPC_WELCOME, 0);
        expect_end(&strange, "what a client does not say");
    }
}

static void test_client_that_sends_nonsense(void **state)
{
    static struct strange strange;
    strange_open(&strange, NULL, NULL);
    assert_int_equal(weir_send(strange.end.connection, NULL, 0, NULL, NULL), WEIR_OK);
    expect_end(&strange, "a message that is none of rpc");
}

/* More than it was welcome for. */
static void test_client_that_asks_too_much(void **state)
{
    static struct strange strange;
    struct weir_rpc_options options = {.client_requests_max = 8};
    strange_open(&strange, &options, NULL);
    struct rpc_message message = {.kind = RPC_NAMED, .procedure = number_of(&strange, "keep")};
    for (unsigned i = 0; i < 9; i++) {
        send_message(strange.end.connection, &message); /* of one number: it is the client's */
    }
    expect_end(&strange, "more requests at once than agreed");
    assert_int_equal(strange.kept_count, 8);
}

/* Answers that it does not take are requests that it has not been answered. */
static void test_client_that_takes_no_answers(void **state)
{
    static struct strange strange;
    struct weir_rpc_options options = {.client_requests_max = 8};
    struct weir_channel_options one_buffer = {.eager_buffers = 1};
    strange_open(&strange, &options, &one_buffer);
    struct rpc_message message = {.kind = RPC_NAMED, .procedure = number_of(&strange, "echo")};
    for (unsigned i = 0; i < 20; i++) {
        send_message(strange.end.connection, &message);
    }
    struct weir_server_statistics statistics;
    do {
        assert_true(weir_poll(strange.world.server_poller, 1) >= 0);
        weir_rpc_server_statistics(strange.world.server, &statistics);
    } while (statistics.broken == 0);
    expect_end(&strange, "more requests at once than agreed");
    assert_in_range(strange.answers, 1, 1 + 10);
}

/* What it cancels stays with the handler, and counts: it hears BUSY. */
static void test_client_that_cancels_all(void **state)
{
    static struct strange strange;
    struct weir_rpc_options options = {.client_requests_max = 8};
    strange_open(&strange, &options, NULL);
    struct rpc_message message = {.kind = RPC_NAMED, .procedure = number_of(&strange, "keep")};
    for (unsigned i = 0; i < 8; i++) {
        message.place = i;
        send_message(strange.end.connection, &message);
        say(strange.end.connection, RPC_CANCEL, 0, i);
        rpc_world_run_until_count(&strange.world, &strange.answers, 2 + i);
        assert_int_equal(strange.last, RPC_CANCELED);
    }
    say(strange.end.connection, RPC_CANCEL, 0, 77); /* that may have crossed its answer */
    send_message(strange.end.connection, &message);
    rpc_world_run_until_count(&strange.world, &strange.answers, 10);
    assert_int_equal(strange.last, RPC_BUSY);
    assert_int_equal(strange.kept_count, 8);
    strange_close(&strange);
}

/* It shows memory by a key that it does not have: its own connection ends. */
static void test_client_with_a_wrong_key(void **state)
{
    static struct strange strange;
    strange_open(&strange, NULL, NULL);
    struct rpc_message message = {.kind = RPC_NAMED,
                                  .procedure = number_of(&strange, "pull"),
                                  .bulk_count = 1,
                                  .bulk = {{{0x1000, 64, 0x1234}, WEIR_REMOTE_READ}}};
    send_message(strange.end.connection, &message);
    rpc_world_run_until(&strange.world, &strange.has_moved);
    assert_int_not_equal(strange.moved_status, WEIR_OK);
    rpc_world_run_until(&strange.world, &strange.end.is_closed);
    strange_close(&strange);
}

/* --- limits --- */

static void handle_long(struct weir_request *request, const void *bytes, size_t length, void *user)
{
    static const uint8_t zeros[5000];
    struct weir_piece piece = {zeros, sizeof(zeros)};
    assert_int_equal(weir_request_reply(request, &piece, 1), WEIR_TOO_LONG);
    weir_request_refuse(request, 5, "5000 bytes are too long for you");
}

static void test_lengths_that_a_side_does_not_take(void **state)
{
    struct rpc_world world;
    struct outcome outcome;
    struct weir_rpc_options options = {.channel = {.message_length_max = 4096}};
    static const uint8_t zeros[5000];
    rpc_world_open(&world, &options, &options);
    rpc_register(world.server, "long", handle_long, NULL);
    struct weir_procedure *procedure = rpc_register(world.client, "long", NULL, NULL);
    rpc_call(world.target, procedure, NULL, 0, NULL, &outcome);
    rpc_world_run_until(&world, &outcome.is_told);
    rpc_expect(&outcome, WEIR_REFUSED, "5000 bytes are too long for you");
    rpc_call(world.target, procedure, zeros, sizeof(zeros), NULL, &outcome);
    assert_false(outcome.is_told);
    rpc_world_run_until(&world, &outcome.is_told);
    rpc_expect(&outcome, WEIR_TOO_LONG, ": long: the server takes no request so long");
    rpc_world_close(&world);
}

static void handle_hold(struct weir_request *request, const void *bytes, size_t length, void *user)
{
    struct weir_request **requests = user;
    requests[requests[0] != NULL] = request;
    assert_int_equal(weir_request_hold(request) != NULL, request == requests[0]);
}

/* A client to which the list of all procedures is too long, and a server of more than are listed.
 */
static void test_more_procedures_than_a_welcome_has(void **state)
{
    for (unsigned is_short = 0; is_short < 2; is_short++) {
        struct rpc_world world;
        struct outcome outcome;
        struct weir_rpc_options options = {.channel = {.message_length_max = is_short ? 256 : 0}};
        char name[32];
        rpc_world_open(&world, NULL, &options);
        for (unsigned i = 0; i < 600; i++) {
            snprintf(name, sizeof(name), "%u", i);
            rpc_register(world.server, name, handle_echo, NULL);
        }
        for (unsigned i = 0; i < 600; i += 7) {
            snprintf(name, sizeof(name), "%u", i);
            rpc_call(world.target, rpc_register(world.client, name, NULL, NULL), name, 1, NULL,
                     &outcome);
            rpc_world_run_until(&world, &outcome.is_told);
            rpc_expect(&outcome, WEIR_OK, "");
        }
        rpc_world_close(&world);
    }
}

static void test_held_bytes_are_bounded(void **state)
{
    struct rpc_world world;
    struct outcome outcomes[2];
    struct weir_rpc_options options = {.held_length_max = 150};
    struct weir_request *requests[2] = {NULL};
    uint8_t bytes[100] = {0};
    rpc_world_open(&world, &options, NULL);
    rpc_register(world.server, "hold", handle_hold, requests);
    struct weir_procedure *procedure = rpc_register(world.client, "hold", NULL, NULL);
    for (unsigned i = 0; i < 2; i++) {
        rpc_call(world.target, procedure, bytes, sizeof(bytes), NULL, &outcomes[i]);
    }
    while (requests[1] == NULL) {
        rpc_world_poll(&world);
    }
    assert_null(weir_request_hold(requests[1])); /* its bytes are gone */
    for (unsigned i = 0; i < 2; i++) {
        rpc_reply(requests[i], NULL, 0);
        rpc_world_run_until(&world, &outcomes[i].is_told);
    }
    rpc_world_close(&world);
}

static void test_options_that_there_are_not(void **state)
{
    struct weir_poller *poller;
    struct weir_rpc *rpc;
    struct weir_error error;
    const struct weir_rpc_options wrong[] = {{.in_flight_max = 4097},
                                             {.client_requests_max = 4097},
                                             {.channel = {.message_length_max = 100}}};
    assert_int_equal(weir_poller_create(world_fabric(), &poller, &error), WEIR_OK);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(weir_rpc_create(poller, &wrong[i], &rpc, &error), WEIR_INVALID);
    }
    weir_rpc_destroy(NULL);
    weir_poller_destroy(poller);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_server_that_lies),
        cmocka_unit_test(test_something_else_listens),
        cmocka_unit_test(test_client_that_says_what_servers_say),
        cmocka_unit_test(test_client_that_sends_nonsense),
        cmocka_unit_test(test_client_that_asks_too_much),
        cmocka_unit_test(test_client_that_takes_no_answers),
        cmocka_unit_test(test_client_that_cancels_all),
        cmocka_unit_test(test_client_with_a_wrong_key),
        cmocka_unit_test(test_lengths_that_a_side_does_not_take),
        cmocka_unit_test(test_more_procedures_than_a_welcome_has),
        cmocka_unit_test(test_held_bytes_are_bounded),
        cmocka_unit_test(test_options_that_there_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
