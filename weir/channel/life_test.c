/* Connections end to end, in one process: how they begin and how they end in order, both
 * bootstraps, and what runs them: timers, the poller's descriptor, threads. Not here: messages
 * (channel_test.c), bad ends (ending_test.c). */
#include "weir/channel/timer.h"
#include "weir/channel/world_test.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "weir/channel/connection.h"

static void check_number(struct end *end, const uint8_t *bytes, size_t length)
{
    uint32_t number;
    assert_true(length >= sizeof(number));
    memcpy(&number, bytes, sizeof(number));
    assert_int_equal(number, end->received - 1);
}

static void test_opens_and_closes(void **state)
{
    struct world world;
    struct end client = {0};
    world_open_pair(&world, *state, &client, false);
    assert_non_null(strchr(weir_peer_name(client.connection), ':'));
    assert_string_equal(weir_peer_name(client.connection), weir_listener_address(world.listener));
    assert_string_equal(weir_peer_name(world.servers[0].connection),
                        weir_local_name(client.connection));
    world_close_pair(&world, &client);
}

/* Each connection has its own, the same at both ends. */
static void test_parameters(void **state)
{
    struct world world;
    struct end clients[2] = {0};
    uint8_t here[2][WEIR_PARAMETERS_LENGTH], there[WEIR_PARAMETERS_LENGTH];
    world_open(&world, *state, 2, false);
    for (unsigned i = 0; i < 2; i++) {
        world_connect(&world, &clients[i]);
        world_run_until_open(&world, &clients[i]);
        world_run_until_open(&world, &world.servers[i]);
        weir_connection_parameters(clients[i].connection, here[i]);
        weir_connection_parameters(world.servers[i].connection, there);
        assert_memory_equal(here[i], there, sizeof(there));
    }
    assert_memory_not_equal(here[0], here[1], sizeof(there));
    world_close(&world);
}

/* --- connections --- */

#define MANY  100
#define CROWD 300

static void test_many_connections(void **state)
{
    struct weir_channel_options options = *(struct weir_channel_options *)*state;
    options.eager_buffers = 8;
    options.connect_timeout_ms = PATIENCE_MS; /* the last one waits for all, on a busy machine */
    struct world world;
    world_open(&world, &options, MANY, false);
    struct end *clients = calloc(MANY, sizeof(*clients));
    for (uint32_t i = 0; i < MANY; i++) {
        world_connect(&world, &clients[i]);
        assert_int_equal(weir_send(clients[i].connection, &i, sizeof(i), NULL, NULL), WEIR_OK);
    }
    for (uint32_t i = 0; i < MANY; i++) {
        world_run_until_open(&world, &clients[i]);
    }
    for (uint32_t i = 0; i < MANY; i++) {
        world_run_until_count(&world, &world.servers[i].received, 1);
        weir_close(clients[i].connection);
    }
    for (uint32_t i = 0; i < MANY; i++) {
        world_run_until(&world, &clients[i].is_closed);
        world_run_until(&world, &world.servers[i].is_closed);
        assert_int_equal(clients[i].reason.status, WEIR_OK);
    }
    world_close(&world);
    free(clients);
}

/* More than a listener holds of one host before they are up: they come up all the same. */
static void test_more_at_once_than_there_is_room(void **state)
{
    struct weir_channel_options options = *(struct weir_channel_options *)*state;
    options.eager_buffers = 1;
    options.connect_timeout_ms = PATIENCE_MS;
    struct world world;
    world_open(&world, &options, CROWD, true);
    struct end *clients = calloc(CROWD, sizeof(*clients));
    for (unsigned i = 0; i < CROWD; i++) {
        world_connect(&world, &clients[i]);
    }
    for (unsigned i = 0; i < CROWD; i++) {
        world_run_until_open(&world, &clients[i]);
    }
    for (unsigned i = 0; i < CROWD; i++) {
        world_run_until_open(&world, &world.servers[i]);
    }
    world_close(&world);
    free(clients);
}

static void test_refused(void **state)
{
    const struct weir_channel_options *options = *state;
    struct world world;
    struct end client = {0};
    world_open(&world, options, 1, false);
    world.refuses = true;
    world_connect(&world, &client);
    assert_int_equal(weir_send(client.connection, "x", 1, end_done, &client), WEIR_OK);
    world_run_until(&world, &client.is_closed);
    assert_int_equal(client.reason.status, WEIR_REFUSED);
    assert_int_equal(client.done, 1);
    assert_int_equal(client.last_status, WEIR_REFUSED);
    assert_non_null(strstr(client.reason.message, weir_listener_address(world.listener)));
    assert_non_null(strstr(client.reason.message, "(not today, but this is longe)"));
    char address[96];
    strcpy(address, weir_listener_address(world.listener));
    weir_listener_close(world.listener);
    struct end late = {0};
    struct weir_error error;
    assert_int_equal(weir_connect(world.client_poller, address, options, &end_handler, &late,
                                  &late.connection, &error),
                     WEIR_OK);
    world_run_until(&world, &late.is_closed);
    assert_int_equal(late.reason.status, WEIR_REFUSED);
    world_close(&world);
}

static void test_close_while_busy(void **state)
{
    struct world world;
    struct end client = {0};
    world_open_pair(&world, *state, &client, true);
    struct end *server = &world.servers[0];
    server->on_message = check_number;
    static uint8_t bytes[300000];
    for (uint32_t i = 0; i < 500; i++) {
        memcpy(bytes, &i, sizeof(i));
        size_t length = i % 50 == 49 ? sizeof(bytes) : 100;
        assert_int_equal(weir_send(client.connection, bytes, length, NULL, NULL), WEIR_OK);
    }
    weir_close(client.connection);
    assert_int_equal(weir_send(client.connection, bytes, 1, NULL, NULL), WEIR_STATE);
    world_run_until(&world, &client.is_closed);
    world_run_until(&world, &server->is_closed);
    assert_int_equal(client.reason.status, WEIR_OK);
    assert_int_equal(server->reason.status, WEIR_DISCONNECTED);
    assert_int_equal(server->received, 500);
    world_close(&world);
}

/* Both ends close with messages under way to each other: all of them arrive. */
static void test_both_close(void **state)
{
    struct world world;
    struct end client = {0};
    world_open_pair(&world, *state, &client, true);
    struct end *server = &world.servers[0];
    static uint8_t bytes[100000];
    for (int i = 0; i < 100; i++) {
        size_t length = i % 10 == 0 ? sizeof(bytes) : 50;
        assert_int_equal(weir_send(client.connection, bytes, length, NULL, NULL), WEIR_OK);
        assert_int_equal(weir_send(server->connection, bytes, length, NULL, NULL), WEIR_OK);
    }
    weir_close(client.connection);
    weir_close(server->connection);
    world_run_until(&world, &client.is_closed);
    world_run_until(&world, &server->is_closed);
    assert_int_equal(client.reason.status, WEIR_OK);
    assert_int_equal(server->reason.status, WEIR_OK);
    assert_int_equal(client.received, 100);
    assert_int_equal(server->received, 100);
    world_close(&world);
}

/* One end has said its last word while the other, closing too, still has much to send. */
static void test_one_closes_later(void **state)
{
    struct world world;
    struct end client = {0};
    world_open_pair(&world, *state, &client, true);
    struct end *server = &world.servers[0];
    static uint8_t bytes[100000];
    for (int i = 0; i < 300; i++) {
        size_t length = i % 5 == 0 ? sizeof(bytes) : 50;
        assert_int_equal(weir_send(server->connection, bytes, length, end_done, server), WEIR_OK);
    }
    weir_close(client.connection);
    weir_close(server->connection);
    world_run_until(&world, &client.is_closed);
    world_run_until(&world, &server->is_closed);
    assert_int_equal(client.reason.status, WEIR_OK);
    assert_int_equal(server->reason.status, WEIR_OK);
    assert_int_equal(client.received, 300);
    assert_int_equal(server->done, 300);
    assert_int_equal(server->done_bad, 0);
    world_close(&world);
}

/* The first to say goodbye is gone when it has the other's: over a bad wire the acknowledgement of
 * that one is lost now and then, and is no reason to call the peer lost. */
static void test_farewells(void **state)
{
    for (int i = 0; i < 30; i++) {
        struct world world;
        struct end client = {0};
        world_open_pair(&world, *state, &client, false);
        struct end *server = &world.servers[0];
        weir_close(client.connection);
        for (int sent = 0; sent < 200; sent++) {
            assert_int_equal(weir_send(server->connection, "late", 4, NULL, NULL), WEIR_OK);
        }
        weir_close(server->connection);
        world_run_until(&world, &client.is_closed);
        world_run_until(&world, &server->is_closed);
        assert_int_equal(client.received, 200);
        assert_int_equal(client.reason.status, WEIR_OK);
        assert_int_equal(server->reason.status, WEIR_OK);
        world_close(&world);
    }
}

static void test_sent_before_open_then_closed(void **state)
{
    const struct weir_channel_options *options = *state;
    struct world world;
    struct end client = {0};
    world_open(&world, options, 1, false);
    world_connect(&world, &client);
    assert_int_equal(weir_send(client.connection, "abc", 3, NULL, NULL), WEIR_OK);
    weir_close(client.connection);
    world_run_until(&world, &client.is_closed);
    world_run_until(&world, &world.servers[0].is_closed);
    assert_int_equal(client.reason.status, WEIR_OK);
    assert_int_equal(world.servers[0].received, 1);
    assert_int_equal(world.servers[0].reason.status, WEIR_DISCONNECTED);
    world_close(&world);
}

static void test_abort_tells_why(void **state)
{
    struct world world;
    struct end client = {0};
    world_open_pair(&world, *state, &client, false);
    weir_abort(client.connection, "no such file");
    world_run_until(&world, &client.is_closed);
    world_run_until(&world, &world.servers[0].is_closed);
    assert_int_equal(client.reason.status, WEIR_CANCELED);
    assert_int_equal(world.servers[0].reason.status, WEIR_DISCONNECTED);
    assert_non_null(strstr(world.servers[0].reason.message, "no such file"));
    world_close(&world);
}

static void count_fire(void *argument)
{
    (*(unsigned *)argument)++;
}

static void test_timers(void **state)
{
    const struct weir_channel_options *options = *state;
    struct world world;
    world_open(&world, options, 1, false);
    unsigned fired = 0, canceled = 0;
    assert_int_equal(weir_timer(world.server_poller, 5, count_fire, &fired), WEIR_OK);
    assert_int_equal(weir_timer(world.server_poller, 1, count_fire, &fired), WEIR_OK);
    assert_int_equal(weir_timer(world.server_poller, 2, count_fire, &canceled), WEIR_OK);
    assert_int_equal(weir_timer(world.server_poller, 0, count_fire, &canceled), WEIR_OK);
    world_run_until_done(&world, &fired, 2);
    assert_int_equal(canceled, 0);
    world_close(&world);
}

/* A program's own event loop: it sleeps on the poller's descriptor only. */
static void test_descriptor_wakes(void **state)
{
    const struct weir_channel_options *options = *state;
    struct world world;
    struct end client = {0};
    world_open(&world, options, 1, false);
    world_connect(&world, &client);
    struct pollfd wait = {.fd = weir_poller_fd(world.server_poller), .events = POLLIN};
    for (unsigned sent = 0; world.server_count == 0 || world.servers[0].received < 200;) {
        while (weir_poll(world.server_poller, 0) > 0) {
        }
        if (client.is_open && sent < 200 && world.servers[0].received == sent) {
            assert_int_equal(weir_send(client.connection, &sent, sizeof(sent), NULL, NULL),
                             WEIR_OK);
            sent++;
        }
        if (world.server_count == 0 || world.servers[0].received < 200) {
            assert_int_equal(poll(&wait, 1, PATIENCE_MS), 1);
        }
    }
    world_close_pair(&world, &client);
}

static void ignore(struct source *source, uint32_t events)
{
}

/* Who sleeps on the descriptor comes back, even from something that always has to tell. */
static void test_does_not_hold_its_caller(void **state)
{
    struct world world;
    world_open(&world, *state, 1, false);
    struct source source = {eventfd(1, EFD_CLOEXEC), ignore};
    assert_true(poller_watch(world.server_poller, &source, EPOLLIN));
    assert_true(weir_poller_fd(world.server_poller) >= 0);
    alarm(60); /* it does not return */
    while (weir_poll(world.server_poller, 0) > 0) {
    }
    alarm(0);
    world_close(&world);
    close(source.fd);
}

static void *wake(void *argument)
{
    weir_wake(argument);
    return NULL;
}

/* Without that it would sleep for ever, for nothing else comes. */
static void test_is_woken(void **state)
{
    struct world world;
    world_open(&world, *state, 1, false);
    while (weir_poll(world.server_poller, 0) > 0) {
    }
    for (int i = 0; i < 100; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, wake, world.server_poller), 0);
        assert_int_equal(weir_poll(world.server_poller, -1), 1);
        pthread_join(thread, NULL);
        assert_int_equal(weir_poll(world.server_poller, 0), 0);
    }
    world_close(&world);
}

/* Two threads, each with its poller, on one fabric. */
struct thread_job {
    struct weir_fabric *fabric;
    struct weir_channel_options options;
    char address[96];
    unsigned echoes;
};

static void echo_back(struct weir_connection *connection, const void *bytes, size_t length,
                      void *user)
{
    struct thread_job *job = user;
    job->echoes++;
    if (job->echoes < 2000) {
        weir_send(connection, bytes, length, NULL, NULL);
    } else {
        weir_close(connection);
    }
}

static void begin_echo(struct weir_connection *connection, void *user)
{
    weir_send(connection, "ping", 4, NULL, NULL);
}

static void end_echo(struct weir_connection *connection, const struct weir_error *reason,
                     void *user)
{
    struct thread_job *job = user;
    job->options.lanes = 99; /* over */
}

static void *run_client(void *argument)
{
    struct thread_job *job = argument;
    struct weir_poller *poller;
    struct weir_connection *connection;
    struct weir_error error;
    struct weir_handler handler = {begin_echo, echo_back, NULL, end_echo};
    if (weir_poller_create(job->fabric, &poller, &error) != WEIR_OK) {
        return NULL;
    }
    if (weir_connect(poller, job->address, &job->options, &handler, job, &connection, &error) ==
        WEIR_OK) {
        while (job->options.lanes != 99) {
            weir_poll(poller, 100);
        }
    }
    weir_poller_destroy(poller);
    return NULL;
}

/* A sender that is faster than its receiver, until that has seen enough, or for a while. */
struct stream {
    struct world *world;
    struct end *client;
    bool is_enough, is_over;
};

static void *run_stream(void *user)
{
    struct stream *stream = user;
    uint64_t started_ns = clock_now_ns();
    unsigned sent = 0;
    while (!__atomic_load_n(&stream->is_enough, __ATOMIC_ACQUIRE)) {
        if (clock_now_ns() - started_ns > UINT64_C(3000000000)) {
            __atomic_store_n(&stream->is_over, true, __ATOMIC_RELEASE);
            break;
        }
        while (sent - stream->client->done < 2000) {
            weir_send(stream->client->connection, "x", 1, end_done, stream->client);
            sent++;
        }
        weir_poll(stream->world->client_poller, 0);
    }
    return NULL;
}

static void take_long(struct end *end, const uint8_t *bytes, size_t length)
{
    uint64_t started_ns = clock_now_ns();
    while (clock_now_ns() - started_ns < 20000) {
    }
}

/* What has come before somebody leaves is looked at, what comes meanwhile is not. */
static void test_drain_ends(void **state)
{
    struct world world;
    struct end client = {0};
    struct weir_channel_options options = *(struct weir_channel_options *)*state;
    options.eager_buffers = 1024; /* there is always something to take */
    world_open_pair(&world, &options, &client, true);
    world.servers[0].on_message = take_long;
    struct stream stream = {.world = &world, .client = &client};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run_stream, &stream), 0);
    while (world.servers[0].received < 1000) {
        assert_true(weir_poll(world.server_poller, 1) >= 0);
    }
    poller_drain(world.server_poller, UINT32_MAX);
    bool is_over = __atomic_load_n(&stream.is_over, __ATOMIC_ACQUIRE);
    __atomic_store_n(&stream.is_enough, true, __ATOMIC_RELEASE);
    world.servers[0].on_message = NULL;
    pthread_join(thread, NULL);
    assert_false(is_over);
    world_close_pair(&world, &client);
}

static void send_back(struct end *end, const uint8_t *bytes, size_t length)
{
    assert_int_equal(weir_send(end->connection, bytes, length, NULL, NULL), WEIR_OK);
}

static void test_two_threads(void **state)
{
    const struct weir_channel_options *options = *state;
    struct world world;
    world_open(&world, options, 1, false);
    world.servers[0].on_message = send_back;
    struct thread_job job = {.fabric = world.fabric, .options = *options};
    strcpy(job.address, weir_listener_address(world.listener));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run_client, &job), 0);
    world_run_until(&world, &world.servers[0].is_closed);
    pthread_join(thread, NULL);
    assert_int_equal(job.echoes, 2000);
    assert_int_equal(world.servers[0].reason.status, WEIR_DISCONNECTED);
    world_close(&world);
}

/* At a name's first addresses nobody listens. */
static void test_next_address(void **state)
{
    struct world world;
    struct end client = {0};
    world_open(&world, *state, 1, false);
    struct sockaddr_storage targets[ADDRESSES_MAX], real[ADDRESSES_MAX];
    unsigned count;
    struct weir_channel_options options;
    struct weir_error error;
    assert_int_equal(
        address_resolve(weir_listener_address(world.listener), false, real, &count, &error),
        WEIR_OK);
    assert_int_equal(address_resolve("127.0.0.1:1", false, targets, &count, &error), WEIR_OK);
    targets[1] = targets[0];
    targets[2] = real[0];
    assert_int_equal(connection_resolve_options(world.fabric, *state, &options, &error), WEIR_OK);
    options.connect_timeout_ms = PATIENCE_MS; /* of which each address has its share */
    uint64_t started_ns = clock_now_ns();
    assert_int_equal(
        connection_begin(world.client_poller, targets, 3, &options, &client.connection, &error),
        WEIR_OK);
    client.connection->handler = end_handler;
    client.connection->user = &client;
    assert_int_equal(weir_send(client.connection, "early", 5, NULL, NULL), WEIR_OK);
    world_run_until(&world, &client.is_open);
    world_run_until_count(&world, &world.servers[0].received, 1);
    assert_true(clock_now_ns() - started_ns < PATIENCE_MS / 3 * UINT64_C(1000000));
    assert_string_equal(weir_peer_name(client.connection), weir_listener_address(world.listener));
    world_close_pair(&world, &client);
}

/* Two addresses of a name: 127.0.0.1:1, where nobody listens, and `last`. */
static void expect_nobody_there(const struct weir_channel_options *wanted, const char *last)
{
    struct world world;
    struct end client = {0};
    world_open(&world, wanted, 1, false);
    struct sockaddr_storage targets[ADDRESSES_MAX], others[ADDRESSES_MAX];
    unsigned count;
    struct weir_channel_options options;
    struct weir_error error;
    assert_int_equal(address_resolve("127.0.0.1:1", false, targets, &count, &error), WEIR_OK);
    assert_int_equal(address_resolve(last, false, others, &count, &error), WEIR_OK);
    targets[1] = others[0];
    assert_int_equal(connection_resolve_options(world.fabric, wanted, &options, &error), WEIR_OK);
    assert_int_equal(
        connection_begin(world.client_poller, targets, 2, &options, &client.connection, &error),
        WEIR_OK);
    client.connection->handler = end_handler;
    client.connection->user = &client;
    world_run_until(&world, &client.is_closed);
    assert_int_equal(client.reason.status, WEIR_REFUSED);
    assert_non_null(strstr(client.reason.message, "127.0.0.1:1: nobody listens there"));
    world_close(&world);
}

static void test_no_address_left(void **state)
{
    expect_nobody_there(*state, "127.0.0.1:1");
}

/* What is told is of the address that answered, not of the one that the system refuses to try. */
static void test_last_address_is_none(void **state)
{
    expect_nobody_there(*state, "255.255.255.255:1");
}

#define EACH(options)                                                                              \
    {"opens and closes (" #options ")", test_opens_and_closes, NULL, NULL, &world_##options},      \
        {"parameters (" #options ")", test_parameters, NULL, NULL, &world_##options},              \
        {"next address (" #options ")", test_next_address, NULL, NULL, &world_##options},          \
        {"no address left (" #options ")", test_no_address_left, NULL, NULL, &world_##options},    \
        {"many connections (" #options ")", test_many_connections, NULL, NULL, &world_##options},  \
        {"more at once (" #options ")", test_more_at_once_than_there_is_room, NULL, NULL,          \
         &world_##options},                                                                        \
        {"refused (" #options ")", test_refused, NULL, NULL, &world_##options},                    \
        {"close while busy (" #options ")", test_close_while_busy, NULL, NULL, &world_##options},  \
        {"one closes later (" #options ")", test_one_closes_later, NULL, NULL, &world_##options},  \
        {"both close (" #options ")", test_both_close, NULL, NULL, &world_##options},              \
        {"farewells (" #options ")", test_farewells, NULL, NULL, &world_##options},                \
        {"sent before open, then closed (" #options ")", test_sent_before_open_then_closed, NULL,  \
         NULL, &world_##options},                                                                  \
        {"abort tells why (" #options ")", test_abort_tells_why, NULL, NULL, &world_##options},    \
        {"its descriptor wakes (" #options ")", test_descriptor_wakes, NULL, NULL,                 \
         &world_##options},                                                                        \
        {"does not hold its caller (" #options ")", test_does_not_hold_its_caller, NULL, NULL,     \
         &world_##options},                                                                        \
        {"is woken (" #options ")", test_is_woken, NULL, NULL, &world_##options},                  \
        {"two threads (" #options ")", test_two_threads, NULL, NULL, &world_##options},            \
    {                                                                                              \
        "timers (" #options ")", test_timers, NULL, NULL, &world_##options                         \
    }

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        EACH(cm),
        EACH(cm_lanes),
        EACH(tcp),
        EACH(tcp_lanes),
        {"drain ends (cm)", test_drain_ends, NULL, NULL, &world_cm},
        {"last address is none (tcp)", test_last_address_is_none, NULL, NULL, &world_tcp},
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
