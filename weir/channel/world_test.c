/* The end-to-end tests' world. */
#include "weir/channel/world_test.h"
#include "weir/channel/timer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weir/channel/poller.h"

struct weir_channel_options world_cm = {.bootstrap = WEIR_BOOTSTRAP_CM};
struct weir_channel_options world_cm_lanes = {.bootstrap = WEIR_BOOTSTRAP_CM, .lanes = 3};
struct weir_channel_options world_tcp = {.bootstrap = WEIR_BOOTSTRAP_TCP};
struct weir_channel_options world_tcp_lanes = {.bootstrap = WEIR_BOOTSTRAP_TCP, .lanes = 3};

static void opened(struct weir_connection *connection, void *user)
{
    struct end *end = user;
    end->connection = connection;
    end->is_open = true;
}

static void received(struct weir_connection *connection, const void *bytes, size_t length,
                     void *user)
{
    struct end *end = user;
    assert_true(end->is_open);
    end->received++;
    end->received_bytes += length;
    end->last_length = length;
    if (end->on_message != NULL) {
        end->on_message(end, bytes, length);
    }
}

static void noticed(struct weir_connection *connection, uint32_t notice, size_t length, void *user)
{
    struct end *end = user;
    end->noticed++;
    end->last_notice = notice;
    end->last_length = length;
    if (end->on_notice != NULL) {
        end->on_notice(end, notice, length);
    }
}

static void closed(struct weir_connection *connection, const struct weir_error *reason, void *user)
{
    struct end *end = user;
    assert_false(end->is_closed);
    if (!end->is_open && getenv("WEIR_TEST_VERBOSE") != NULL) {
        print_message("never opened: %s\n", reason->message);
    }
    end->is_closed = true;
    end->reason = *reason;
    end->connection = NULL;
}

const struct weir_handler end_handler = {opened, received, noticed, closed};

void end_done(struct weir_connection *connection, enum weir_status status, void *argument)
{
    struct end *end = argument;
    end->done++;
    end->done_bad += status != WEIR_OK;
    end->last_status = status;
}

struct weir_fabric *world_fabric(void)
{
    static struct weir_fabric *fabric;
    if (fabric == NULL) {
        const char *kind = getenv("WEIR_TEST_FABRIC");
        struct weir_fabric_options options = {.kind = kind != NULL && strcmp(kind, "rdma") == 0
                                                          ? WEIR_FABRIC_RDMA
                                                          : WEIR_FABRIC_SOFT};
        struct weir_error error;
        if (weir_fabric_open(&options, &fabric, &error) != WEIR_OK) {
            fail_msg("fabric: %s", error.message);
        }
    }
    return fabric;
}

const char *world_host(void)
{
    const char *host = getenv("WEIR_TEST_ADDRESS");
    return host != NULL ? host : "127.0.0.1";
}

bool world_accepted(struct weir_connection *connection, void *listener_user,
                    struct weir_handler *ret_handler, void **ret_user)
{
    struct world *world = listener_user;
    if (world->refuses) {
        weir_refuse(connection, "not today, but this is longer than it may be");
        return false;
    }
    assert_true(world->server_count < world->server_max);
    struct end *end = &world->servers[world->server_count++];
    end->connection = connection;
    *ret_handler = end_handler;
    *ret_user = end;
    return true;
}

void world_open(struct world *world, const struct weir_channel_options *options, unsigned servers,
                bool has_two_pollers)
{
    struct weir_error error;
    char address[96];
    *world = (struct world){.fabric = world_fabric(), .options = *options, .server_max = servers};
    world->servers = calloc(servers, sizeof(*world->servers));
    assert_int_equal(weir_poller_create(world->fabric, &world->server_poller, &error), WEIR_OK);
    world->client_poller = world->server_poller;
    if (has_two_pollers) {
        assert_int_equal(weir_poller_create(world->fabric, &world->client_poller, &error), WEIR_OK);
    }
    snprintf(address, sizeof(address), "%s:0", world_host());
    if (weir_listen(world->server_poller, address, options, world_accepted, world, &world->listener,
                    &error) != WEIR_OK) {
        fail_msg("listen: %s", error.message);
    }
}

void world_close(struct world *world)
{
    weir_poller_destroy(world->server_poller);
    if (world->client_poller != world->server_poller) {
        weir_poller_destroy(world->client_poller);
    }
    free(world->servers);
}

void world_connect(struct world *world, struct end *client)
{
    struct weir_error error;
    if (weir_connect(world->client_poller, weir_listener_address(world->listener), &world->options,
                     &end_handler, client, &client->connection, &error) != WEIR_OK) {
        fail_msg("connect: %s", error.message);
    }
}

void world_poll(struct world *world)
{
    assert_true(weir_poll(world->server_poller, 1) >= 0);
    if (world->client_poller != world->server_poller) {
        assert_true(weir_poll(world->client_poller, 1) >= 0);
    }
}

static void check_patience(uint64_t started_ns)
{
    if (clock_now_ns() - started_ns > (uint64_t)PATIENCE_MS * 1000000u) {
        fail_msg("nothing happened for %d ms", PATIENCE_MS);
    }
}

void world_run_until(struct world *world, const bool *flag)
{
    uint64_t started_ns = clock_now_ns();
    while (!*flag) {
        world_poll(world);
        check_patience(started_ns);
    }
}

void world_run_until_count(struct world *world, const uint64_t *count, uint64_t wanted)
{
    uint64_t started_ns = clock_now_ns();
    while (*count < wanted) {
        world_poll(world);
        check_patience(started_ns);
    }
}

void world_run_until_done(struct world *world, const unsigned *count, unsigned wanted)
{
    uint64_t started_ns = clock_now_ns();
    while (*count < wanted) {
        world_poll(world);
        check_patience(started_ns);
    }
}

void world_run_until_open(struct world *world, const struct end *end)
{
    uint64_t started_ns = clock_now_ns();
    while (!end->is_open) {
        if (end->is_closed) {
            fail_msg("closed, not opened: %s", end->reason.message);
        }
        world_poll(world);
        check_patience(started_ns);
    }
}

void world_open_pair(struct world *world, const struct weir_channel_options *options,
                     struct end *client, bool has_two_pollers)
{
    world_open(world, options, 1, has_two_pollers);
    world_connect(world, client);
    world_run_until_open(world, client);
    world_run_until_open(world, &world->servers[0]);
}

void world_close_pair(struct world *world, struct end *client)
{
    weir_close(client->connection);
    world_run_until(world, &client->is_closed);
    world_run_until(world, &world->servers[0].is_closed);
    assert_int_equal(client->reason.status, WEIR_OK);
    assert_int_equal(world->servers[0].reason.status, WEIR_DISCONNECTED);
    world_close(world);
}
