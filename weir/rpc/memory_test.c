/* What libweir asks of malloc: nothing in the steady state, and each refusal in turn is survived.
 * The linker leads its calls here (--wrap); what the device's library asks is its own business. */
#include "weir/rpc/rpc_world_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);

static unsigned asked;
static unsigned refused_at; /* 0: never */
static bool is_all_refused;

static bool is_refused(void)
{
    asked++;
    return is_all_refused || asked == refused_at;
}

void *__wrap_malloc(size_t size)
{
    return is_refused() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return is_refused() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return is_refused() ? NULL : __real_realloc(old, size);
}

/* --- the steady state --- */

#define AT_ONCE 32
#define ROUNDS  100

static unsigned told;

static void count_told(const struct weir_reply *reply, void *argument)
{
    assert_int_equal(reply->status, WEIR_OK);
    assert_int_equal(reply->length, *(const size_t *)argument);
    told++;
}

static void run_rounds(struct rpc_world *world, struct weir_procedure *echo, size_t length)
{
    static const uint8_t bytes[8192];
    struct weir_piece piece = {bytes, length};
    for (unsigned round = 0; round < ROUNDS; round++) {
        told = 0;
        for (unsigned i = 0; i < AT_ONCE; i++) {
            assert_int_equal(
                weir_rpc_call(world->target, echo, &piece, 1, NULL, count_told, &length, NULL),
                WEIR_OK);
        }
        while (told < AT_ONCE) {
            assert_true(weir_poll(world->server_poller, 0) >= 0);
            assert_true(weir_poll(world->client_poller, 0) >= 0);
        }
    }
}

static void handle_held_echo(struct weir_request *request, const void *bytes, size_t length,
                             void *user)
{
    rpc_reply(request, weir_request_hold(request), length);
}

static void test_steady_state(void **state)
{
    static const size_t lengths[] = {8, 8000};
    struct rpc_world world;
    struct weir_rpc_options options = {.timeout_ms = PATIENCE_MS,
                                       .channel = {.silence_timeout_ms = PATIENCE_MS}};
    rpc_world_open(&world, &options, &options);
    rpc_register(world.server, "echo", handle_held_echo, NULL);
    struct weir_procedure *echo = rpc_register(world.client, "echo", NULL, NULL);
    for (unsigned i = 0; i < 2; i++) {
        run_rounds(&world, echo, lengths[i]);
        asked = 0;
        run_rounds(&world, echo, lengths[i]);
        /* What has to wait for a buffer of the device's is copied: none does, but on a busy
         * machine. */
        assert_in_range(asked, 0, AT_ONCE * ROUNDS / 100);
    }
    rpc_world_close(&world);
}

/* --- each refusal --- */

static struct weir_memory *service_memory;

static void reply_or_refuse(struct weir_request *request, const void *bytes, size_t length)
{
    struct weir_piece piece = {bytes, length};
    if (weir_request_reply(request, &piece, 1) == WEIR_NO_MEMORY) {
        weir_request_refuse(request, 1, "no memory here");
    }
}

static void pushed(struct weir_request *request, enum weir_status status, void *argument)
{
    if (status == WEIR_OK) {
        reply_or_refuse(request, "ok", 2);
    } else {
        weir_request_refuse(request, 1, "no memory here");
    }
}

static void handle_echo_or_refuse(struct weir_request *request, const void *bytes, size_t length,
                                  void *user)
{
    reply_or_refuse(request, bytes, length);
}

static void handle_push(struct weir_request *request, const void *bytes, size_t length, void *user)
{
    struct weir_bulk_part part = {.memory = service_memory, .length = 100};
    if (weir_request_push(request, &part, pushed, NULL) != WEIR_OK) {
        weir_request_refuse(request, 1, "no memory here");
    }
}

/* Has everything made, a few calls, and everything destroyed. False: something was not made. */
static bool use_all(struct weir_poller *poller, struct outcome outcomes[3], unsigned *ret_made)
{
    struct weir_rpc *server = NULL, *client = NULL;
    struct weir_target *target = NULL;
    struct weir_procedure *push, *echo;
    struct weir_error error;
    char address[96];
    snprintf(address, sizeof(address), "%s:0", world_host());
    bool is_made =
        weir_rpc_create(poller, NULL, &server, &error) == WEIR_OK &&
        weir_rpc_create(poller, NULL, &client, &error) == WEIR_OK &&
        weir_rpc_register(server, "push", handle_push, NULL, NULL, &error) == WEIR_OK &&
        weir_rpc_register(server, "echo", handle_echo_or_refuse, NULL, NULL, &error) == WEIR_OK &&
        weir_rpc_register(client, "push", NULL, NULL, &push, &error) == WEIR_OK &&
        weir_rpc_register(client, "echo", NULL, NULL, &echo, &error) == WEIR_OK &&
        weir_rpc_listen(server, address, &error) == WEIR_OK &&
        weir_target_create(client, weir_rpc_address(server), &target, &error) == WEIR_OK;
    *ret_made = 0;
    if (is_made) {
        static uint8_t bytes[20000];
        struct weir_bulk bulk = {bytes, 100, WEIR_REMOTE_WRITE};
        struct weir_call_options options[] = {
            {.timeout_ms = PATIENCE_MS, .bulk = &bulk, .bulk_count = 1},
            {.timeout_ms = PATIENCE_MS},
            {.timeout_ms = 3}};
        const struct weir_piece pieces[] = {{NULL, 0}, {bytes, sizeof(bytes)}, {bytes, 8}};
        for (unsigned i = 0; i < 3; i++) {
            outcomes[*ret_made] = (struct outcome){0};
            *ret_made += weir_rpc_call(target, i == 0 ? push : echo, &pieces[i], 1, &options[i],
                                       outcome_replied, &outcomes[*ret_made], NULL) == WEIR_OK;
        }
        for (unsigned i = 0; i < *ret_made; i++) {
            while (!outcomes[i].is_told) {
                assert_true(weir_poll(poller, 1) >= 0);
            }
        }
    }
    weir_rpc_destroy(client);
    weir_rpc_destroy(server);
    return is_made;
}

static void test_each_refusal(void **state)
{
    struct weir_poller *poller;
    struct weir_error error;
    static struct outcome outcomes[3];
    unsigned made, refusals = 0;
    assert_int_equal(
        weir_memory_allocate(world_fabric(), 4096, WEIR_LOCAL, &service_memory, &error), WEIR_OK);
    assert_int_equal(weir_poller_create(world_fabric(), &poller, &error), WEIR_OK);
    do {
        asked = 0;
        refused_at = refusals + 1;
        use_all(poller, outcomes, &made);
        refusals++;
    } while (asked >= refused_at);
    refused_at = 0;
    assert_in_range(refusals, 20, 1000);
    assert_true(use_all(poller, outcomes, &made)); /* nothing is spoilt */
    assert_int_equal(made, 3);
    rpc_expect(&outcomes[0], WEIR_OK, "");
    rpc_expect(&outcomes[1], WEIR_OK, "");
    weir_poller_destroy(poller);
    weir_memory_deregister(service_memory);
}

/* --- time --- */

static void handle_mute(struct weir_request *request, const void *bytes, size_t length, void *user)
{
}

static void call_mute(struct rpc_world *world, struct weir_procedure *mute, unsigned timeout_ms,
                      struct outcome *outcome)
{
    struct weir_call_options options = {.timeout_ms = timeout_ms};
    rpc_call(world->target, mute, NULL, 0, &options, outcome);
}

/* Two calls are told in time, though no third could be made, and nothing is to be had from then on.
 */
static void test_time_without_memory(void **state)
{
    struct rpc_world world;
    static struct outcome outcomes[3];
    struct weir_call_options soon = {.timeout_ms = 10};
    rpc_world_open(&world, NULL, NULL);
    rpc_register(world.server, "mute", handle_mute, NULL);
    struct weir_procedure *mute = rpc_register(world.client, "mute", NULL, NULL);
    for (unsigned i = 0; i < 3; i++) { /* what a call takes is there from then on */
        call_mute(&world, mute, 20, &outcomes[i]);
    }
    for (unsigned i = 0; i < 3; i++) {
        rpc_world_run_until(&world, &outcomes[i].is_told);
    }
    call_mute(&world, mute, 300, &outcomes[0]);
    call_mute(&world, mute, 200, &outcomes[1]);
    is_all_refused = true;
    outcomes[2] = (struct outcome){0};
    enum weir_status status =
        weir_rpc_call(world.target, mute, NULL, 0, &soon, outcome_replied, &outcomes[2], NULL);
    assert_true(status == WEIR_OK || status == WEIR_NO_MEMORY);
    for (unsigned i = 0; i < 2; i++) {
        rpc_world_run_client_until(&world, &outcomes[i].is_told);
        rpc_expect(&outcomes[i], WEIR_TIMED_OUT, "");
    }
    is_all_refused = false;
    rpc_world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steady_state),
        cmocka_unit_test(test_each_refusal),
        cmocka_unit_test(test_time_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
