/* Bad ends: peers that die, fall silent, lie, or try what they may not. Each ends its own
 * connection, with a reason that says so, in time, and nothing else.
 *
 * The dead and silent peers are this program run again, with the argument "peer". */
#include "weir/channel/timer.h"
#include "weir/channel/world_test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "weir/channel/connection.h"

/* Long enough for two cores that have much else to do. */
#define SILENCE_MS     1000
#define LOST_WITHIN_MS 10000

static struct weir_channel_options cm = {.bootstrap = WEIR_BOOTSTRAP_CM,
                                         .silence_timeout_ms = 2000};
static struct weir_channel_options tcp = {.bootstrap = WEIR_BOOTSTRAP_TCP,
                                          .silence_timeout_ms = 2000};
static struct weir_channel_options lanes = {
    .bootstrap = WEIR_BOOTSTRAP_CM, .silence_timeout_ms = 2000, .lanes = 2};

/* --- a peer that dies --- */

struct peer {
    pid_t pid;
    char address[96];
};

/* In the peer: serves until it is killed; prints its address. */
static int serve(const char *bootstrap)
{
    struct world world;
    struct weir_channel_options options = strcmp(bootstrap, "tcp") == 0 ? tcp : cm;
    options.lanes = strcmp(bootstrap, "lanes") == 0 ? 2 : 0;
    world_open(&world, &options, 4, false);
    printf("%s\n", weir_listener_address(world.listener));
    fflush(stdout);
    while (weir_poll(world.server_poller, -1) >= 0) {
    }
    return 1;
}

static const char *bootstrap_name(const struct weir_channel_options *options)
{
    return options->bootstrap == WEIR_BOOTSTRAP_TCP ? "tcp" : options->lanes > 0 ? "lanes" : "cm";
}

static void peer_start(struct peer *peer, const struct weir_channel_options *options)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    peer->pid = fork();
    assert_true(peer->pid >= 0);
    if (peer->pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl("/proc/self/exe", "peer", "peer", bootstrap_name(options), (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    FILE *from = fdopen(ends[0], "r");
    assert_non_null(fgets(peer->address, sizeof(peer->address), from));
    peer->address[strcspn(peer->address, "\n")] = '\0';
    fclose(from);
}

static void peer_kill(struct peer *peer)
{
    kill(peer->pid, SIGKILL);
    assert_int_equal(waitpid(peer->pid, NULL, 0), peer->pid);
}

static void connect_to_peer(struct world *world, struct peer *peer, struct end *client,
                            const struct weir_channel_options *options)
{
    struct weir_error error;
    peer_start(peer, options);
    world_open(world, options, 1, false);
    assert_int_equal(weir_connect(world->client_poller, peer->address, options, &end_handler,
                                  client, &client->connection, &error),
                     WEIR_OK);
    world_run_until(world, &client->is_open);
}

static void expect_lost(struct world *world, struct peer *peer, struct end *client,
                        uint64_t limit_ms)
{
    uint64_t started_ns = clock_now_ns();
    world_run_until(world, &client->is_closed);
    uint64_t took_ms = (clock_now_ns() - started_ns) / 1000000u;
    assert_int_equal(client->reason.status, WEIR_PEER_LOST);
    assert_non_null(strstr(client->reason.message, peer->address));
    assert_true(took_ms <= limit_ms);
}

static void test_killed_while_idle(void **state)
{
    struct world world;
    struct peer peer;
    struct end client = {0};
    connect_to_peer(&world, &peer, &client, *state);
    peer_kill(&peer);
    expect_lost(&world, &peer, &client, LOST_WITHIN_MS);
    world_close(&world);
}

static void test_killed_while_busy(void **state)
{
    struct world world;
    struct peer peer;
    struct end client = {0};
    static uint8_t bytes[1 << 20];
    connect_to_peer(&world, &peer, &client, *state);
    for (int i = 0; i < 2000; i++) {
        size_t length = i % 100 == 0 ? sizeof(bytes) : 1000;
        assert_int_equal(weir_send(client.connection, bytes, length, end_done, &client), WEIR_OK);
    }
    for (int i = 0; i < 20 && client.done < 10; i++) {
        world_poll(&world);
    }
    peer_kill(&peer);
    expect_lost(&world, &peer, &client, LOST_WITHIN_MS);
    assert_int_equal(client.done, 2000);
    assert_true(client.done_bad > 0);
    assert_int_equal(client.last_status, WEIR_PEER_LOST);
    world_close(&world);
}

static void test_stopped(void **state)
{
    if (weir_fabric_kind(world_fabric()) == WEIR_FABRIC_RDMA) {
        skip(); /* a device of its own answers for a stopped process */
    }
    struct world world;
    struct peer peer;
    struct end client = {0};
    connect_to_peer(&world, &peer, &client, *state);
    kill(peer.pid, SIGSTOP);
    expect_lost(&world, &peer, &client, LOST_WITHIN_MS);
    peer_kill(&peer);
    world_close(&world);
}

/* A peer that is there but has nothing to say is not lost. */
static void test_silence_is_no_loss(void **state)
{
    struct weir_channel_options options = *(struct weir_channel_options *)*state;
    options.silence_timeout_ms = SILENCE_MS;
    struct world world;
    struct peer peer;
    struct end client = {0};
    connect_to_peer(&world, &peer, &client, &options);
    uint64_t started_ns = clock_now_ns();
    while (clock_now_ns() - started_ns < 3 * SILENCE_MS * 1000000u) {
        world_poll(&world);
        assert_false(client.is_closed);
    }
    peer_kill(&peer);
    world_close(&world);
}

/* iWARP's ways, over the software RNIC: no lanes, notices as messages, questions by READ. */
static void test_iwarp(void **state)
{
    struct weir_channel_options options = *(struct weir_channel_options *)*state;
    options.silence_timeout_ms = SILENCE_MS;
    struct world world;
    struct peer peer;
    struct end client = {0};
    world_fabric()->is_iwarp = true;
    connect_to_peer(&world, &peer, &client, &options);
    assert_int_equal(client.connection->lane_count, 0);
    uint64_t started_ns = clock_now_ns();
    while (clock_now_ns() - started_ns < 3 * SILENCE_MS * 1000000u) {
        world_poll(&world);
        assert_false(client.is_closed);
    }
    peer_kill(&peer);
    expect_lost(&world, &peer, &client, LOST_WITHIN_MS);
    world_close(&world);
}

/* Also when it has failed: the fabric is that of all tests. */
static int leave_iwarp(void **state)
{
    (void)state;
    world_fabric()->is_iwarp = false;
    return 0;
}

/* --- a peer that lies --- */

struct lie {
    struct world world;
    struct end client, other;
};

static void lie_begin(struct lie *lie, const struct weir_channel_options *options)
{
    memset(lie, 0, sizeof(*lie));
    world_open(&lie->world, options, 2, false);
    world_connect(&lie->world, &lie->client);
    world_run_until(&lie->world, &lie->client.is_open);
    world_connect(&lie->world, &lie->other);
    world_run_until(&lie->world, &lie->other.is_open);
    world_run_until(&lie->world, &lie->world.servers[0].is_open);
    world_run_until(&lie->world, &lie->world.servers[1].is_open);
}

/* The server has ended the liar's connection, and only that. */
static void lie_end(struct lie *lie, enum weir_status status, const char *words)
{
    world_run_until(&lie->world, &lie->world.servers[0].is_closed);
    world_run_until(&lie->world, &lie->client.is_closed);
    assert_int_equal(lie->world.servers[0].reason.status, status);
    if (strstr(lie->world.servers[0].reason.message, words) == NULL) {
        fail_msg("\"%s\" lacks \"%s\"", lie->world.servers[0].reason.message, words);
    }
    assert_int_equal(weir_send(lie->other.connection, "ok", 2, NULL, NULL), WEIR_OK);
    world_run_until_count(&lie->world, &lie->world.servers[1].received, 1);
    world_close(&lie->world);
}

static void ignore(struct weir_connection *connection, void *argument, enum weir_status status)
{
}

/* Sends `length` bytes as they are, past all bookkeeping. */
static void send_raw(struct weir_connection *connection, const void *bytes, size_t length)
{
    uint32_t buffer = buffers_take(&connection->buffers);
    memcpy(buffers_send(&connection->buffers, buffer), bytes, length);
    struct ibv_sge piece = {
        .addr = (uintptr_t)buffers_send(&connection->buffers, buffer),
        .length = (uint32_t)length,
        .lkey = memory_local_key(connection->buffers.memory),
    };
    struct ibv_send_wr request = {.opcode = IBV_WR_SEND, .sg_list = &piece, .num_sge = 1};
    struct posted posted = {ignore, NULL, "a lie"};
    assert_true(lane_post(&connection->lanes[0], &request, true, &posted));
}

static void send_message(struct weir_connection *connection, struct message message)
{
    uint8_t bytes[MESSAGE_ANNOUNCE_LENGTH];
    message.credit_limit = credit_tell(&connection->credit);
    send_raw(connection, bytes, message_pack(&message, bytes));
}

static void test_garbage(void **state)
{
    struct lie lie;
    lie_begin(&lie, *state);
    send_raw(lie.client.connection, "this is no message of ours", 26);
    lie_end(&lie, WEIR_PROTOCOL, "does not begin as one");
    assert_int_equal(lie.client.reason.status, WEIR_PROTOCOL);
    assert_non_null(strstr(lie.client.reason.message, "the peer ended the connection"));
}

static void test_false_credit(void **state)
{
    struct lie lie;
    lie_begin(&lie, *state);
    struct message message = {.kind = MESSAGE_CREDIT, .credit_limit = 1000000};
    uint8_t bytes[MESSAGE_ANNOUNCE_LENGTH];
    send_raw(lie.client.connection, bytes, message_pack(&message, bytes));
    lie_end(&lie, WEIR_PROTOCOL, "credit");
}

static void test_pulled_nothing(void **state)
{
    struct lie lie;
    lie_begin(&lie, *state);
    send_message(lie.client.connection, (struct message){.kind = MESSAGE_PULLED, .value = 3});
    lie_end(&lie, WEIR_PROTOCOL, "announced");
}

static void test_announces_too_long(void **state)
{
    struct lie lie;
    lie_begin(&lie, *state);
    send_message(lie.client.connection, (struct message){.kind = MESSAGE_ANNOUNCE,
                                                         .length = MESSAGE_LENGTH_MAX,
                                                         .address = 0x1000,
                                                         .key = 5});
    lie_end(&lie, WEIR_PROTOCOL, "longer than agreed");
}

static void test_announces_too_many(void **state)
{
    struct lie lie;
    lie_begin(&lie, *state);
    for (uint32_t i = 0; i <= CREDIT_PULLS_MAX; i++) {
        struct weir_remote remote = weir_memory_remote(lie.client.connection->buffers.memory);
        send_message(lie.client.connection, (struct message){.kind = MESSAGE_ANNOUNCE,
                                                             .length = 10,
                                                             .value = i,
                                                             .address = remote.address,
                                                             .key = remote.key});
    }
    world_run_until(&lie.world, &lie.world.servers[0].is_closed);
    /* Which is noticed first depends on the order of packets: both are its own fault. */
    assert_true(lie.world.servers[0].reason.status == WEIR_PROTOCOL ||
                lie.world.servers[0].reason.status == WEIR_ACCESS);
    world_close(&lie.world);
}

static void test_announces_what_is_not_there(void **state)
{
    struct lie lie;
    lie_begin(&lie, *state);
    send_message(lie.client.connection,
                 (struct message){
                     .kind = MESSAGE_ANNOUNCE, .length = 100, .address = 0x1000, .key = 0x12345});
    lie_end(&lie, WEIR_ACCESS, "a get failed");
}

static void test_more_than_granted(void **state)
{
    struct lie lie;
    lie_begin(&lie, *state);
    struct weir_connection *server = lie.world.servers[0].connection;
    server->credit.granted = server->credit.received; /* as if it had granted nothing */
    send_message(lie.client.connection, (struct message){.kind = MESSAGE_EAGER});
    lie_end(&lie, WEIR_PROTOCOL, "more messages than granted");
}

static void test_after_the_last(void **state)
{
    struct lie lie;
    lie_begin(&lie, *state);
    send_message(lie.client.connection, (struct message){.kind = MESSAGE_BYE});
    send_message(lie.client.connection, (struct message){.kind = MESSAGE_CREDIT});
    world_run_until(&lie.world, &lie.world.servers[0].is_closed);
    /* Its farewell may be answered before the rest is read. */
    assert_true(lie.world.servers[0].reason.status == WEIR_PROTOCOL ||
                lie.world.servers[0].reason.status == WEIR_DISCONNECTED);
    world_close(&lie.world);
}

/* --- a peer that takes nothing --- */

/* Its device is there and answers, but its program gives no credit. */
static void test_close_is_bounded(void **state)
{
    struct weir_channel_options options = *(struct weir_channel_options *)*state;
    options.silence_timeout_ms = 400;
    options.eager_buffers = 2;
    struct world world;
    struct end client = {0};
    world_open_pair(&world, &options, &client, true);
    struct end *server = &world.servers[0];
    for (int i = 0; i < 5; i++) {
        assert_int_equal(weir_send(server->connection, "x", 1, end_done, server), WEIR_OK);
    }
    weir_close(server->connection);
    uint64_t started_ns = clock_now_ns();
    while (!server->is_closed) {
        assert_true(weir_poll(world.server_poller, 10) >= 0);
        assert_true(clock_now_ns() - started_ns < UINT64_C(5000000000));
    }
    assert_int_equal(server->reason.status, WEIR_TIMED_OUT);
    assert_int_equal(server->done, 5);
    assert_true(server->done_bad >= 3);
    world_close(&world);
}

/* One that takes little, now and then, is waited for. */
static void test_close_waits_for_the_slow(void **state)
{
    struct weir_channel_options options = *(struct weir_channel_options *)*state;
    options.silence_timeout_ms = 1200;
    options.eager_buffers = 2;
    struct world world;
    struct end client = {0};
    world_open_pair(&world, &options, &client, true);
    struct end *server = &world.servers[0];
    for (int i = 0; i < 10; i++) {
        assert_int_equal(weir_send(server->connection, "x", 1, end_done, server), WEIR_OK);
    }
    weir_close(server->connection);
    uint64_t looked_ns = clock_now_ns();
    while (!server->is_closed) {
        assert_true(weir_poll(world.server_poller, 10) >= 0);
        if (clock_now_ns() - looked_ns > 300 * 1000000u) {
            assert_true(weir_poll(world.client_poller, 0) >= 0);
            looked_ns = clock_now_ns();
        }
    }
    assert_int_equal(server->reason.status, WEIR_OK);
    assert_int_equal(server->done_bad, 0);
    world_run_until(&world, &client.is_closed);
    assert_int_equal(client.received, 10);
    world_close(&world);
}

/* Our queue pair is gone, though why is not known yet: closing waits for no peer. */
static void test_close_of_what_is_flushed(void **state)
{
    struct world world;
    struct end client = {0};
    world_open_pair(&world, *state, &client, true);
    struct end *server = &world.servers[0];
    struct weir_transfer transfer = {
        .memory = client.connection->buffers.memory, .length = 8, .remote.length = 8};
    assert_int_equal(weir_put(client.connection, &transfer, NULL, NULL), WEIR_OK);
    while (!server->connection->is_flushed) {
        assert_true(weir_poll(world.server_poller, 1) >= 0);
    }
    weir_close(server->connection);
    uint64_t started_ns = clock_now_ns();
    while (!server->is_closed) {
        assert_true(weir_poll(world.server_poller, 10) >= 0);
    }
    assert_true(clock_now_ns() - started_ns < UINT64_C(1500000000));
    assert_int_equal(server->reason.status, WEIR_PROTOCOL);
    world_close(&world);
}

/* --- what is not granted --- */

struct access_case {
    const struct weir_channel_options *options;
    unsigned rights;
    bool is_put;
    uint32_t key_change;
    uint64_t address_change;
};

static void test_access(void **state)
{
    const struct access_case *wanted = *state;
    struct lie lie;
    struct weir_error error;
    struct weir_memory *here, *there;
    lie_begin(&lie, wanted->options);
    assert_int_equal(weir_memory_allocate(lie.world.fabric, 8192, WEIR_LOCAL, &here, &error),
                     WEIR_OK);
    assert_int_equal(weir_memory_allocate_for(lie.world.servers[0].connection, 8192, wanted->rights,
                                              &there, &error),
                     WEIR_OK);
    memset(weir_memory_bytes(here), 0x55, 8192);
    struct weir_transfer transfer = {
        .memory = here, .length = 4096, .remote = weir_memory_remote(there)};
    transfer.remote.key ^= wanted->key_change;
    transfer.remote.address += wanted->address_change;
    struct end *client = &lie.client;
    assert_int_equal(wanted->is_put ? weir_put(client->connection, &transfer, end_done, client)
                                    : weir_get(client->connection, &transfer, end_done, client),
                     WEIR_OK);
    world_run_until(&lie.world, &client->is_closed);
    assert_int_equal(client->done, 1);
    assert_int_equal(client->last_status, WEIR_ACCESS);
    assert_int_equal(client->reason.status, WEIR_ACCESS);
    assert_int_equal(((uint8_t *)weir_memory_bytes(there))[100], 0);
    world_run_until(&lie.world, &lie.world.servers[0].is_closed);
    assert_true(lie.world.servers[0].reason.status == WEIR_PROTOCOL ||
                lie.world.servers[0].reason.status == WEIR_PEER_LOST);
    assert_int_equal(weir_send(lie.other.connection, "ok", 2, NULL, NULL), WEIR_OK);
    world_run_until_count(&lie.world, &lie.world.servers[1].received, 1);
    world_close(&lie.world);
    weir_memory_deregister(here);
    weir_memory_deregister(there);
}

/* One client holds the key of another's memory, told or guessed: it opens nothing. */
static void test_key_of_another_connection(void **state)
{
    const struct access_case *wanted = *state;
    struct lie lie;
    struct weir_error error;
    struct weir_memory *here, *there;
    lie_begin(&lie, wanted->options);
    assert_int_equal(weir_memory_allocate(lie.world.fabric, 8192, WEIR_LOCAL, &here, &error),
                     WEIR_OK);
    assert_int_equal(weir_memory_allocate_for(lie.world.servers[1].connection, 8192, wanted->rights,
                                              &there, &error),
                     WEIR_OK);
    memset(weir_memory_bytes(here), 0x55, 8192);
    struct weir_transfer transfer = {
        .memory = here, .length = 4096, .remote = weir_memory_remote(there)};
    /* Its owner may use it, before and after. */
    assert_int_equal(weir_put(lie.other.connection, &transfer, end_done, &lie.other), WEIR_OK);
    world_run_until_done(&lie.world, &lie.other.done, 1);
    assert_int_equal(((uint8_t *)weir_memory_bytes(there))[100], 0x55);
    memset(weir_memory_bytes(there), 0, 8192);
    struct end *client = &lie.client;
    assert_int_equal(wanted->is_put ? weir_put(client->connection, &transfer, end_done, client)
                                    : weir_get(client->connection, &transfer, end_done, client),
                     WEIR_OK);
    world_run_until(&lie.world, &client->is_closed);
    assert_int_equal(client->last_status, WEIR_ACCESS);
    assert_int_equal(((uint8_t *)weir_memory_bytes(there))[100], 0);
    assert_int_equal(((uint8_t *)weir_memory_bytes(here))[100], 0x55);
    assert_int_equal(weir_put(lie.other.connection, &transfer, end_done, &lie.other), WEIR_OK);
    world_run_until_done(&lie.world, &lie.other.done, 2);
    assert_int_equal(lie.other.done_bad, 0);
    world_close(&lie.world);
    weir_memory_deregister(there); /* outlives its connection */
    weir_memory_deregister(here);
}

/* --- strangers --- */

static void test_stranger_on_the_control_port(void **state)
{
    struct world world;
    struct end client = {0};
    world_open(&world, &tcp, 1, false);
    const char *port = strrchr(weir_listener_address(world.listener), ':') + 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    assert_int_equal(inet_pton(AF_INET, world_host(), &address.sin_addr), 1);
    static uint8_t garbage[4096];
    memset(garbage, 0xab, sizeof(garbage));
    int sockets[10];
    for (int i = 0; i < 10; i++) {
        sockets[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(sockets[i], (struct sockaddr *)&address, sizeof(address)), 0);
        assert_true(send(sockets[i], garbage, (size_t)i * 40, MSG_NOSIGNAL) == i * 40);
    }
    world_connect(&world, &client);
    world_run_until(&world, &client.is_open);
    for (int i = 0; i < 10; i++) {
        close(sockets[i]);
    }
    weir_close(client.connection);
    world_run_until(&world, &client.is_closed);
    assert_int_equal(client.reason.status, WEIR_OK);
    world_close(&world);
}

static struct access_case bad_key_put = {&cm, WEIR_REMOTE_WRITE, true, 0x10101, 0};
static struct access_case bad_key_get = {&tcp, WEIR_REMOTE_READ, false, 0x10101, 0};
static struct access_case no_right_put = {&tcp, WEIR_REMOTE_READ, true, 0, 0};
static struct access_case no_right_get = {&lanes, WEIR_REMOTE_WRITE, false, 0, 0};
static struct access_case foreign_put = {&cm, WEIR_REMOTE_WRITE, true, 0, 0};
static struct access_case foreign_get = {&tcp, WEIR_REMOTE_WRITE | WEIR_REMOTE_READ, false, 0, 0};
static struct access_case foreign_lane_put = {&lanes, WEIR_REMOTE_WRITE, true, 0, 0};
static struct access_case out_of_range = {&lanes, WEIR_REMOTE_WRITE, true, 0, 4097};

#define WITH(function, options)                                                                    \
    {                                                                                              \
#function " (" #options ")", function, NULL, leave_iwarp, &options                         \
    }

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "peer") == 0) {
        return serve(argv[2]);
    }
    const struct CMUnitTest tests[] = {
        WITH(test_killed_while_idle, cm),
        WITH(test_killed_while_idle, tcp),
        WITH(test_killed_while_busy, cm),
        WITH(test_killed_while_busy, lanes),
        WITH(test_killed_while_busy, tcp),
        WITH(test_stopped, cm),
        WITH(test_stopped, tcp),
        WITH(test_silence_is_no_loss, cm),
        WITH(test_iwarp, lanes),
        WITH(test_iwarp, tcp),
        WITH(test_garbage, cm),
        WITH(test_garbage, tcp),
        WITH(test_false_credit, cm),
        WITH(test_pulled_nothing, cm),
        WITH(test_announces_too_long, cm),
        WITH(test_announces_too_many, cm),
        WITH(test_announces_what_is_not_there, cm),
        WITH(test_more_than_granted, tcp),
        WITH(test_after_the_last, cm),
        WITH(test_close_is_bounded, cm),
        WITH(test_close_is_bounded, tcp),
        WITH(test_close_waits_for_the_slow, cm),
        WITH(test_close_of_what_is_flushed, cm),
        WITH(test_access, bad_key_put),
        WITH(test_access, bad_key_get),
        WITH(test_access, no_right_put),
        WITH(test_access, no_right_get),
        WITH(test_access, out_of_range),
        WITH(test_key_of_another_connection, foreign_put),
        WITH(test_key_of_another_connection, foreign_get),
        WITH(test_key_of_another_connection, foreign_lane_put),
        WITH(test_stranger_on_the_control_port, tcp),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
