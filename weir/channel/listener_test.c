/* Strangers at a listening address made by TCP, and what the program or the system does meanwhile:
 * descriptors that run out, many at once, a child that holds what is closed here. */
#include "weir/channel/world_test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
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

static void test_no_descriptor_left(void **state)
{
    struct world world;
    struct end client = {0};
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_descriptor_left),
        cmocka_unit_test(test_port_too_high),
        cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_forked_child_holds_nothing_open),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
