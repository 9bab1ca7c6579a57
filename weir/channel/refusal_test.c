/* Clients that cannot be served are told why: another version of the protocol, a device to which no
 * path leads. Not here: those that the program refuses (life_test.c). */
#include "weir/channel/world_test.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "weir/channel/connection.h"

static struct verbs verbs;

static int begin(void **state)
{
    (void)state;
    verbs = world_fabric()->library.verbs;
    return 0;
}

static int end(void **state)
{
    (void)state;
    world_fabric()->library.verbs = verbs;
    return 0;
}

static void expect_refusal(struct world *world, struct end *client, enum weir_status status,
                           const char *words)
{
    world_connect(world, client);
    world_run_until(world, &client->is_closed);
    assert_int_equal(client->reason.status, status);
    if (strstr(client->reason.message, words) == NULL) {
        fail_msg("\"%s\" lacks \"%s\"", client->reason.message, words);
    }
    world_close(world);
}

/* --- another version --- */

static int reject_as_another(struct rdma_cm_id *id, const void *private_data, uint8_t length)
{
    uint8_t bytes[HELLO_LENGTH];
    assert_int_equal(length, sizeof(bytes));
    memcpy(bytes, private_data, sizeof(bytes));
    bytes[5]++;
    return verbs.cm_reject(id, bytes, sizeof(bytes));
}

static void test_server_of_another_version(void **state)
{
    struct world world;
    struct end client = {0};
    world_open(&world, *state, 1, false);
    world.refuses = true;
    world.fabric->library.verbs.cm_reject = reject_as_another;
    expect_refusal(&world, &client, WEIR_PROTOCOL,
                   "it speaks another version of the channel protocol");
}

static void test_client_of_another_version(void **state)
{
    struct world world;
    struct hello hello = {.purpose = HELLO_CONNECT, .eager_length = 64, .window = 1};
    struct sockaddr_storage targets[ADDRESSES_MAX];
    struct sockaddr *target = (struct sockaddr *)&targets[0];
    struct weir_error error;
    unsigned count;
    uint8_t frame[FRAME_LENGTH] = {0};
    size_t length = 0;
    world_open(&world, *state, 1, false);
    assert_int_equal(
        address_resolve(weir_listener_address(world.listener), false, targets, &count, &error),
        WEIR_OK);
    int fd = socket(target->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, target, address_length(target)), 0);
    hello_pack(&hello, frame);
    frame[5]++;
    assert_int_equal(send(fd, frame, sizeof(frame), 0), sizeof(frame));
    while (length < sizeof(frame)) {
        world_poll(&world);
        ssize_t more = recv(fd, frame + length, sizeof(frame) - length, MSG_DONTWAIT);
        assert_int_not_equal(more, 0);
        length += more > 0 ? (size_t)more : 0;
    }
    assert_null(hello_parse(frame, HELLO_LENGTH, &hello));
    assert_int_equal(hello.purpose, HELLO_REFUSE);
    assert_int_equal(hello.status, WEIR_PROTOCOL);
    close(fd);
    world_close(&world);
}

/* --- no path --- */

static int modify_but_not_to_rtr(struct ibv_qp *pair, struct ibv_qp_attr *attributes, int mask)
{
    return attributes->qp_state == IBV_QPS_RTR ? ENETUNREACH
                                               : verbs.modify_qp(pair, attributes, mask);
}

static void test_no_path_to_the_client(void **state)
{
    struct world world;
    struct end client = {0};
    world_open(&world, *state, 1, false);
    world.fabric->library.verbs.modify_qp = modify_but_not_to_rtr;
    expect_refusal(&world, &client, WEIR_REFUSED, "the peer refused the connection (no RDMA path");
}

/* Another address of the same name may be on a network from which there is one. */
static unsigned failures;

static int modify_but_once(struct ibv_qp *pair, struct ibv_qp_attr *attributes, int mask)
{
    return attributes->qp_state == IBV_QPS_RTR && failures++ == 0
               ? ENETUNREACH
               : verbs.modify_qp(pair, attributes, mask);
}

static void test_no_path_from_the_first_address(void **state)
{
    struct world world;
    struct end client = {0};
    struct sockaddr_storage targets[ADDRESSES_MAX];
    struct weir_channel_options options;
    struct weir_error error;
    unsigned count;
    world_open(&world, *state, 2, false); /* of which the first fails */
    failures = 0;
    world.fabric->library.verbs.modify_qp = modify_but_once;
    assert_int_equal(
        address_resolve(weir_listener_address(world.listener), false, targets, &count, &error),
        WEIR_OK);
    targets[1] = targets[0];
    assert_int_equal(connection_resolve_options(world.fabric, *state, &options, &error), WEIR_OK);
    options.connect_timeout_ms = PATIENCE_MS;
    assert_int_equal(
        connection_begin(world.client_poller, targets, 2, &options, &client.connection, &error),
        WEIR_OK);
    client.connection->handler = end_handler;
    client.connection->user = &client;
    world_run_until_open(&world, &client);
    world_run_until_open(&world, &world.servers[1]);
    assert_int_equal(world.servers[0].reason.status, WEIR_UNREACHABLE);
    weir_close(client.connection);
    world_run_until(&world, &client.is_closed);
    world_close(&world);
}

#define WITH(function, options)                                                                    \
    {                                                                                              \
#function " (" #options ")", function, begin, end, &world_##options                        \
    }

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        WITH(test_server_of_another_version, cm),       WITH(test_client_of_another_version, tcp),
        WITH(test_no_path_to_the_client, tcp),          WITH(test_no_path_to_the_client, tcp_lanes),
        WITH(test_no_path_from_the_first_address, tcp),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
