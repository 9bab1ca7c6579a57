/* Ends that do not wait for weir_poll, ends for a protocol of the program's own, and what waits for
 * a peer that takes nothing. */
#include "weir/channel/world_test.h"

#include <stdlib.h>
#include <string.h>

#define LENGTH ((size_t)4 << 20)

/* All that is under way completes, `closed` comes last, and nothing after it. */
static void test_destroy_with_all_under_way(void **state)
{
    struct world world;
    struct end client = {0};
    struct weir_error error;
    struct weir_memory *memory;
    uint8_t *bytes = malloc(LENGTH);
    memset(bytes, 1, LENGTH);
    world_open_pair(&world, *state, &client, true);
    assert_int_equal(weir_memory_allocate_for(world.servers[0].connection, LENGTH,
                                              WEIR_REMOTE_READ | WEIR_REMOTE_WRITE, &memory,
                                              &error),
                     WEIR_OK);
    struct weir_memory *local;
    assert_int_equal(weir_memory_register(world.fabric, bytes, LENGTH, WEIR_LOCAL, &local, &error),
                     WEIR_OK);
    struct weir_transfer transfer = {
        .memory = local, .length = LENGTH, .remote = weir_memory_remote(memory)};
    assert_int_equal(weir_get(client.connection, &transfer, end_done, &client), WEIR_OK);
    assert_int_equal(weir_put(client.connection, &transfer, end_done, &client), WEIR_OK);
    assert_int_equal(weir_send(client.connection, bytes, LENGTH, end_done, &client), WEIR_OK);
    weir_connection_destroy(client.connection);
    assert_true(client.is_closed);
    assert_int_equal(client.reason.status, WEIR_CANCELED);
    assert_int_equal(client.done, 3);
    weir_memory_deregister(local);
    free(bytes); /* the device does not touch it */
    world_run_until(&world, &world.servers[0].is_closed);
    assert_int_equal(client.done, 3);
    weir_memory_deregister(memory);
    world_close(&world);
}

/* In any state: while it connects, and when it has ended already. */
static void test_destroy_early_and_late(void **state)
{
    struct world world;
    struct end early = {0}, late = {0};
    world_open(&world, *state, 3, true);
    world_connect(&world, &early);
    weir_connection_destroy(early.connection);
    assert_true(early.is_closed);
    world_connect(&world, &late);
    world_run_until_open(&world, &late);
    weir_abort(late.connection, "in a moment");
    weir_connection_destroy(late.connection);
    assert_true(late.is_closed);
    assert_non_null(strstr(late.reason.message, "in a moment"));
    weir_poll(world.client_poller, 0);
    world_close(&world);
}

static void test_abort_for_the_protocol(void **state)
{
    struct world world;
    struct end client = {0};
    world_open_pair(&world, *state, &client, true);
    weir_abort_protocol(client.connection, "that is no request");
    world_run_until(&world, &client.is_closed);
    world_run_until(&world, &world.servers[0].is_closed);
    assert_int_equal(client.reason.status, WEIR_PROTOCOL);
    assert_int_equal(world.servers[0].reason.status, WEIR_PROTOCOL);
    assert_non_null(strstr(world.servers[0].reason.message, "that is no request"));
    world_close(&world);
}

static void test_what_waits(void **state)
{
    struct world world;
    struct end client = {0};
    world_open_pair(&world, *state, &client, true);
    assert_int_equal(weir_sends_waiting(client.connection), 0);
    unsigned sent = 0;
    while (weir_sends_waiting(client.connection) < 10) { /* nobody polls for the server */
        assert_int_equal(weir_send(client.connection, &sent, sizeof(sent), NULL, NULL), WEIR_OK);
        sent++;
    }
    assert_in_range(sent, 11, 200);
    world_run_until_count(&world, &world.servers[0].received, sent);
    assert_int_equal(weir_sends_waiting(client.connection), 0);
    world_close_pair(&world, &client);
}

#define OVER(options)                                                                              \
    {"all under way (" #options ")", test_destroy_with_all_under_way, NULL, NULL, &(options)},     \
        {"early and late (" #options ")", test_destroy_early_and_late, NULL, NULL, &(options)},    \
        {"for the protocol (" #options ")", test_abort_for_the_protocol, NULL, NULL, &(options)},  \
    {                                                                                              \
        "what waits (" #options ")", test_what_waits, NULL, NULL, &(options)                       \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {OVER(world_cm), OVER(world_cm_lanes), OVER(world_tcp),
                                       OVER(world_tcp_lanes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
