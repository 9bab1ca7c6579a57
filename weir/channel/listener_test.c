/* Listening addresses: all of a host, one that is closed while it accepts, and clients that give up
 * meanwhile. Strangers at one
 * made by TCP, and what the program or the system does meanwhile: descriptors that run out, many at
 * once, a child that holds what is closed here. */
#include "weir/channel/timer.h"
#include "weir/channel/world_test.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "weir/channel/connection.h"
#include "weir/channel/listener.h"

/* A socket connected to the listener, or -1. */
static int knock(const char *address)
{
    struct sockaddr_storage targets[ADDRESSES_MAX];
    unsigned count;
    struct weir_error error;
    assert_int_equal(address_resolve(address, false, targets, &count, &error), WEIR_OK);
    struct sockaddr *target = (struct sockaddr *)&targets[0];
    int fd = socket(target->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (connect(fd, target, address_length(target)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static unsigned count_strangers(const struct world *world)
{
    unsigned count = 0;
    for (const struct weir_connection *connection = world->server_poller->connections;
         connection != NULL; connection = connection->next) {
        count++;
    }
    return count;
}

/* It lies neither at the name nor at the way there. */
static void expect_nothing_to_connect_with(struct world *world)
{
    struct sockaddr_storage addresses[ADDRESSES_MAX];
    struct weir_channel_options by_cm = world_cm;
    struct weir_error error;
    unsigned count;
    assert_int_equal(address_resolve("localhost:1", false, addresses, &count, &error), WEIR_SYSTEM);
    assert_non_null(strstr(error.message, strerror(EMFILE)));
    if (weir_fabric_kind(world->fabric) == WEIR_FABRIC_SOFT) {
        assert_int_equal(weir_connect(world->client_poller, "127.0.0.1:1", &by_cm, &end_handler,
                                      NULL, NULL, &error),
                         WEIR_SYSTEM);
    }
    assert_int_equal(weir_connect(world->client_poller, "127.0.0.1:1", &world->options,
                                  &end_handler, NULL, NULL, &error),
                     WEIR_SYSTEM);
}

static void test_no_descriptor_left(void **state)
{
    struct world world;
    struct end client = {0};
    struct sockaddr_storage addresses[ADDRESSES_MAX];
    struct weir_error error;
    unsigned count;
    /* What cannot load its parts says that there is no such name. */
    assert_int_equal(address_resolve("localhost:1", false, addresses, &count, &error), WEIR_OK);
    world_open(&world, &world_tcp, 1, true);
    int stranger = knock(weir_listener_address(world.listener));
    assert_true(stranger >= 0);
    assert_true(weir_poller_fd(world.server_poller) >= 0);
    int free_fd = dup(stranger);
    struct rlimit before, narrow;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    narrow = before;
    narrow.rlim_cur = (rlim_t)free_fd;
    close(free_fd);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &narrow), 0);
    alarm(60); /* the poller does not return */
    while (weir_poll(world.server_poller, 0) > 0) {
    }
    alarm(0);
    assert_int_equal(count_strangers(&world), 0);
    expect_nothing_to_connect_with(&world);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    /* Who waited is taken in, as is who comes now. */
    world_connect(&world, &client);
    world_run_until_open(&world, &client);
    world_run_until_open(&world, &world.servers[0]);
    assert_int_equal(count_strangers(&world), 2);
    close(stranger);
    world_close(&world);
}

/* A port that there is not is none, not another. */
static void test_port_too_high(void **state)
{
    struct sockaddr_storage addresses[ADDRESSES_MAX];
    unsigned count;
    struct weir_error error;
    assert_int_equal(address_resolve("127.0.0.1:65535", false, addresses, &count, &error), WEIR_OK);
    assert_int_equal(address_resolve("127.0.0.1:65536", false, addresses, &count, &error),
                     WEIR_INVALID);
}

#define MANY 100

static void test_many_at_once(void **state)
{
    struct world world;
    int strangers[MANY];
    world_open(&world, &world_tcp, 1, false);
    for (unsigned i = 0; i < MANY; i++) {
        strangers[i] = knock(weir_listener_address(world.listener));
        assert_true(strangers[i] >= 0);
    }
    world.listener->tcp.ready(&world.listener->tcp, EPOLLIN);
    assert_in_range(count_strangers(&world), 1, MANY / 2);
    while (count_strangers(&world) < MANY) {
        world_poll(&world);
    }
    for (unsigned i = 0; i < MANY; i++) {
        close(strangers[i]);
    }
    world_close(&world);
}

static void test_forked_child_holds_nothing_open(void **state)
{
    struct world world;
    struct end client = {0};
    char address[ADDRESS_TEXT_MAX];
    world_open_pair(&world, &world_tcp, &client, true);
    strcpy(address, weir_listener_address(world.listener));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            pause();
        }
    }
    weir_listener_close(world.listener);
    assert_true(weir_poll(world.server_poller, 0) >= 0);
    assert_int_equal(knock(address), -1);
    weir_poller_destroy(world.server_poller);
    world.server_poller = world.client_poller;
    uint64_t started_ns = clock_now_ns();
    world_run_until(&world, &client.is_closed);
    assert_true(clock_now_ns() - started_ns < UINT64_C(2000000000));
    assert_int_equal(client.reason.status, WEIR_PEER_LOST);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    world_close(&world);
}

/* A client of the listener's port at another of its addresses. */
static void connect_at(struct world *world, const char *host, struct end *client)
{
    char address[ADDRESS_TEXT_MAX];
    struct weir_error error;
    unsigned before = world->server_count;
    snprintf(address, sizeof(address), "%s%s", host,
             strrchr(weir_listener_address(world->listener), ':'));
    if (weir_connect(world->client_poller, address, &world->options, &end_handler, client,
                     &client->connection, &error) != WEIR_OK) {
        fail_msg("connect: %s", error.message);
    }
    world_run_until_open(world, client);
    world_run_until_open(world, &world->servers[before]);
    /* It is called by the name that it has, not by IPv6's form of it. */
    assert_int_equal(strncmp(weir_peer_name(world->servers[before].connection), host, strlen(host)),
                     0);
    weir_close(client->connection);
    world_run_until(world, &client->is_closed);
    world_run_until(world, &world->servers[before].is_closed);
}

static bool accept_the_last(struct weir_connection *connection, void *user,
                            struct weir_handler *ret_handler, void **ret_user)
{
    struct world *world = user;
    weir_listener_close(world->listener);
    return world_accepted(connection, user, ret_handler, ret_user);
}

/* A server for one: who was accepted comes up with all its lanes, nobody else is, and then the port
 * is free. */
static void test_closed_while_accepting(void **state)
{
    struct world world;
    struct weir_error error;
    struct weir_listener *next;
    struct end clients[2] = {0};
    char address[ADDRESS_TEXT_MAX];
    snprintf(address, sizeof(address), "%s:0", world_host());
    world_open(&world, *state, 1, true);
    weir_listener_close(world.listener);
    assert_int_equal(weir_listen(world.server_poller, address, &world.options, accept_the_last,
                                 &world, &world.listener, &error),
                     WEIR_OK);
    strcpy(address, weir_listener_address(world.listener));
    world_connect(&world, &clients[0]);
    while (world.server_count == 0) {
        world_poll(&world);
    }
    assert_int_equal(weir_connect(world.client_poller, address, &world.options, &end_handler,
                                  &clients[1], &clients[1].connection, &error),
                     WEIR_OK);
    world_run_until_open(&world, &clients[0]);
    world_run_until_open(&world, &world.servers[0]);
    assert_int_equal(clients[0].connection->lane_count, world.options.lanes);
    world_run_until(&world, &clients[1].is_closed);
    assert_int_equal(clients[1].reason.status, WEIR_REFUSED);
    assert_null(world.server_poller->listeners);
    if (weir_listen(world.server_poller, address, &world.options, world_accepted, &world, &next,
                    &error) != WEIR_OK) {
        fail_msg("the port: %s", error.message);
    }
    world_close_pair(&world, &clients[0]);
}

static bool accept_by_name(struct weir_connection *connection, void *user,
                           struct weir_handler *ret_handler, void **ret_user)
{
    struct world *world = user;
    assert_string_equal(weir_local_name(connection), weir_listener_address(world->listener));
    assert_non_null(strchr(weir_peer_name(connection), ':'));
    return world_accepted(connection, user, ret_handler, ret_user);
}

/* Both ends' names are known when it is asked whether to accept. */
static void test_names_while_accepting(void **state)
{
    struct world world;
    struct weir_error error;
    struct end client = {0};
    char address[ADDRESS_TEXT_MAX];
    snprintf(address, sizeof(address), "%s:0", world_host());
    world_open(&world, *state, 1, true);
    weir_listener_close(world.listener);
    assert_int_equal(weir_listen(world.server_poller, address, &world.options, accept_by_name,
                                 &world, &world.listener, &error),
                     WEIR_OK);
    world_connect(&world, &client);
    world_run_until_open(&world, &client);
    world_run_until_open(&world, &world.servers[0]);
    world_close_pair(&world, &client);
}

static bool accept_and_abort(struct weir_connection *connection, void *user,
                             struct weir_handler *ret_handler, void **ret_user)
{
    weir_abort(connection, "on second thoughts");
    return world_accepted(connection, user, ret_handler, ret_user);
}

static bool accept_and_close(struct weir_connection *connection, void *user,
                             struct weir_handler *ret_handler, void **ret_user)
{
    weir_close(connection);
    return world_accepted(connection, user, ret_handler, ret_user);
}

static void expect_ended_at_once(const struct weir_channel_options *options,
                                 weir_accept_callback *accept, const char *words)
{
    struct world world;
    struct weir_error error;
    struct end client = {0};
    char address[ADDRESS_TEXT_MAX];
    snprintf(address, sizeof(address), "%s:0", world_host());
    world_open(&world, options, 1, true);
    weir_listener_close(world.listener);
    assert_int_equal(weir_listen(world.server_poller, address, &world.options, accept, &world,
                                 &world.listener, &error),
                     WEIR_OK);
    world_connect(&world, &client);
    world_run_until(&world, &client.is_closed);
    assert_int_equal(client.reason.status, WEIR_REFUSED);
    if (strstr(client.reason.message, words) == NULL) {
        fail_msg("\"%s\" lacks \"%s\"", client.reason.message, words);
    }
    world_run_until(&world, &world.servers[0].is_closed);
    world_close(&world);
}

/* Who is accepted and ended in the same breath is told so. */
static void test_ended_while_accepting(void **state)
{
    expect_ended_at_once(*state, accept_and_abort, "(on second thoughts)");
    expect_ended_at_once(*state, accept_and_close, "(closed at once)");
}

/* A client for whom there is no room, for those who came before it, tries again until its time is
 * over, and is told so. */
static void crowd(unsigned timeout_ms, bool they_leave)
{
    struct weir_channel_options options = world_tcp;
    struct world world;
    struct end client = {0};
    int strangers[LISTENER_STRANGERS_PER_HOST];
    options.connect_timeout_ms = PATIENCE_MS;
    world_open(&world, &options, 1, true);
    for (unsigned i = 0; i < LISTENER_STRANGERS_PER_HOST; i++) {
        strangers[i] = knock(weir_listener_address(world.listener));
        assert_true(strangers[i] >= 0);
        while (count_strangers(&world) <= i) {
            assert_true(weir_poll(world.server_poller, 1) >= 0);
        }
    }
    world.options.connect_timeout_ms = timeout_ms;
    world_connect(&world, &client);
    while (client.connection != NULL && client.connection->repetitions < 2) {
        world_poll(&world);
    }
    for (unsigned i = 0; they_leave && i < LISTENER_STRANGERS_PER_HOST; i++) {
        close(strangers[i]);
    }
    world_run_until(&world, they_leave ? &client.is_open : &client.is_closed);
    for (unsigned i = 0; !they_leave && i < LISTENER_STRANGERS_PER_HOST; i++) {
        assert_int_equal(client.reason.status, WEIR_REFUSED);
        assert_non_null(strstr(client.reason.message, "(" LISTENER_CROWDED ")"));
        close(strangers[i]);
    }
    world_close(&world);
}

static void test_crowded(void **state)
{
    crowd(300, false);
}

static void test_crowded_for_a_while(void **state)
{
    crowd(PATIENCE_MS, true);
}

/* A client that does not go on is not said to be asked for anything. */
static void test_left_half_open(void **state)
{
    struct weir_channel_options options = *(struct weir_channel_options *)*state;
    struct world world;
    struct end client = {0};
    options.connect_timeout_ms = 300;
    world_open(&world, &options, 1, true);
    world.options.connect_timeout_ms = PATIENCE_MS; /* the client's */
    world_connect(&world, &client);
    while (world.server_count == 0) {
        assert_true(weir_poll(world.client_poller, 1) >= 0);
        assert_true(weir_poll(world.server_poller, 1) >= 0);
    }
    while (!world.servers[0].is_closed) {
        assert_true(weir_poll(world.server_poller, 10) >= 0);
    }
    assert_int_equal(world.servers[0].reason.status, WEIR_TIMED_OUT);
    assert_non_null(strstr(world.servers[0].reason.message, "half-open"));
    world_close(&world);
}

/* A server that takes its yes back has answered. */
static void test_accepted_and_gone(void **state)
{
    struct world world;
    struct end client = {0};
    world_open(&world, &world_cm, 1, true);
    world_connect(&world, &client);
    while (world.server_count == 0) {
        assert_true(weir_poll(world.client_poller, 1) >= 0);
        assert_true(weir_poll(world.server_poller, 1) >= 0);
    }
    weir_abort(world.servers[0].connection, "gone");
    while (!world.servers[0].is_closed) {
        assert_true(weir_poll(world.server_poller, 1) >= 0);
    }
    world_run_until(&world, &client.is_closed);
    assert_null(strstr(client.reason.message, "no answer"));
    world_close(&world);
}

static bool is_broken(struct weir_connection *connection)
{
    int (*query)(struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *);
    struct ibv_qp_attr attributes;
    struct ibv_qp_init_attr initial;
    *(void **)&query = dlsym(connection->poller->fabric->library.ibverbs, "ibv_query_qp");
    assert_non_null(query);
    assert_int_equal(query(connection->lanes[0].pair, &attributes, IBV_QP_STATE, &initial), 0);
    return attributes.qp_state == IBV_QPS_ERR;
}

/* A client that tries what it may not before the server knows that the connection is up. */
static void test_broken_before_it_is_open(void **state)
{
    struct world world;
    struct end client = {0};
    world_open(&world, *state, 1, true);
    world_connect(&world, &client);
    while (world.server_count == 0) {
        assert_true(weir_poll(world.client_poller, 1) >= 0);
        assert_true(weir_poll(world.server_poller, 1) >= 0);
    }
    while (!client.is_open) {
        assert_true(weir_poll(world.client_poller, 1) >= 0);
    }
    struct end *server = &world.servers[0];
    struct weir_transfer transfer = {
        .memory = client.connection->buffers.memory, .length = 8, .remote.length = 8};
    assert_int_equal(weir_put(client.connection, &transfer, NULL, NULL), WEIR_OK);
    while (!is_broken(server->connection)) {
        sched_yield();
    }
    while (!server->is_closed) {
        assert_true(weir_poll(world.server_poller, 10) >= 0);
    }
    assert_int_equal(server->reason.status, WEIR_PROTOCOL);
    world_close(&world);
}

/* An event of rdma_cm waits for the poller. */
static bool is_told(const struct weir_poller *poller)
{
    struct pollfd wait = {.fd = poller->cm_channel->fd, .events = POLLIN};
    return poll(&wait, 1, 0) == 1;
}

/* A client that gives up, before it is accepted or before it knows that it is: to the server it is
 * lost, and the server's system has done nothing wrong. */
static void give_up(bool is_accepted)
{
    struct world world;
    struct end client = {0};
    world_open(&world, &world_cm, 1, true);
    world_connect(&world, &client);
    while (!is_told(world.server_poller)) {
        assert_true(weir_poll(world.client_poller, 1) >= 0);
    }
    while (is_accepted && world.server_count == 0) {
        assert_true(weir_poll(world.server_poller, 1) >= 0);
    }
    weir_abort(client.connection, "enough");
    while (!client.is_closed) {
        assert_true(weir_poll(world.client_poller, 1) >= 0);
    }
    while (world.server_count > 0 ? !world.servers[0].is_closed : is_told(world.server_poller)) {
        assert_true(weir_poll(world.server_poller, 1) >= 0);
    }
    if (world.server_count > 0) {
        assert_int_equal(world.servers[0].reason.status, WEIR_PEER_LOST);
        assert_true(world.servers[0].is_open ||
                    strstr(world.servers[0].reason.message, "before the connection") != NULL);
    }
    world_close(&world);
}

static void test_given_up_before_it_is_accepted(void **state)
{
    give_up(false);
}

static void test_given_up_after_it_is_accepted(void **state)
{
    give_up(true);
}

static bool has_ipv6(void)
{
    const struct sockaddr_in6 own = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool has = fd >= 0 && bind(fd, (const struct sockaddr *)&own, sizeof(own)) == 0;
    close(fd);
    return has;
}

static void test_all_addresses(void **state)
{
    struct world world;
    struct weir_error error;
    struct end clients[2] = {0};
    if (weir_fabric_kind(world_fabric()) != WEIR_FABRIC_SOFT) {
        skip(); /* no device is at 127.0.0.1 and ::1 */
    }
    world_open(&world, *state, 4, true);
    weir_listener_close(world.listener);
    if (weir_listen(world.server_poller, ":0", &world.options, world_accepted, &world,
                    &world.listener, &error) != WEIR_OK) {
        fail_msg("listen: %s", error.message);
    }
    connect_at(&world, "127.0.0.1", &clients[0]);
    if (has_ipv6()) {
        connect_at(&world, "[::1]", &clients[1]);
    }
    world_close(&world);
}

/* An address of one link is written with the link, so that it can be connected to. */
static void test_address_of_a_link(void **state)
{
    static const struct {
        const char *host;
        unsigned scope;
        const char *text;
    } rows[] = {
        {"fe80::1", 1, "[fe80::1%lo]:7471"},
        {"fe80::1", 4000000000, "[fe80::1%4000000000]:7471"},
        {"fe80::1", 0, "[fe80::1]:7471"},
        {"fd80::1", 1, "[fd80::1]:7471"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct sockaddr_in6 address = {
            .sin6_family = AF_INET6, .sin6_port = htons(7471), .sin6_scope_id = rows[i].scope};
        struct sockaddr_storage back[ADDRESSES_MAX];
        struct weir_error error;
        char text[ADDRESS_TEXT_MAX];
        unsigned count;
        assert_int_equal(inet_pton(AF_INET6, rows[i].host, &address.sin6_addr), 1);
        address_format((struct sockaddr *)&address, text);
        assert_string_equal(text, rows[i].text);
        if (strchr(text, '%') != NULL) {
            assert_int_equal(address_resolve(text, false, back, &count, &error), WEIR_OK);
            assert_memory_equal(&back[0], &address, sizeof(address));
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_descriptor_left),
        cmocka_unit_test(test_port_too_high),
        cmocka_unit_test(test_address_of_a_link),
        cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_forked_child_holds_nothing_open),
        {"test_closed_while_accepting (cm)", test_closed_while_accepting, NULL, NULL,
         &world_cm_lanes},
        {"test_closed_while_accepting (tcp)", test_closed_while_accepting, NULL, NULL,
         &world_tcp_lanes},
        {"test_names_while_accepting (cm)", test_names_while_accepting, NULL, NULL, &world_cm},
        {"test_names_while_accepting (tcp)", test_names_while_accepting, NULL, NULL, &world_tcp},
        {"test_ended_while_accepting (cm)", test_ended_while_accepting, NULL, NULL, &world_cm},
        {"test_ended_while_accepting (tcp)", test_ended_while_accepting, NULL, NULL, &world_tcp},
        cmocka_unit_test(test_crowded),
        cmocka_unit_test(test_crowded_for_a_while),
        {"test_left_half_open (cm_lanes)", test_left_half_open, NULL, NULL, &world_cm_lanes},
        {"test_left_half_open (tcp)", test_left_half_open, NULL, NULL, &world_tcp},
        cmocka_unit_test(test_accepted_and_gone),
        {"test_broken_before_it_is_open (cm)", test_broken_before_it_is_open, NULL, NULL,
         &world_cm},
        cmocka_unit_test(test_given_up_before_it_is_accepted),
        cmocka_unit_test(test_given_up_after_it_is_accepted),
        {"test_all_addresses (tcp)", test_all_addresses, NULL, NULL, &world_tcp},
        {"test_all_addresses (cm)", test_all_addresses, NULL, NULL, &world_cm},
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
