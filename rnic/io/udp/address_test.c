/* The GID table of this host, and routes from it. Loopback is assumed to be up. */
#include "rnic/io/udp/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct gid ipv4(uint8_t a, uint8_t b, uint8_t c, uint8_t d)
{
    return (struct gid){{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d}};
}

static int order_of(const struct address *address)
{
    if (address->loopback) {
        return 3;
    }
    if (gid_is_ipv4(&address->gid)) {
        return 0;
    }
    return address->link_local ? 2 : 1;
}

static void table_holds_loopback_last(void **state)
{
    struct address_table table;
    unsetenv("WEIR_ADDRESS");
    assert_int_equal(address_read(&table), STATUS_OK);
    struct gid localhost = ipv4(127, 0, 0, 1);
    const struct address *loopback = address_find(&table, &localhost);
    assert_non_null(loopback);
    assert_true(loopback->loopback);
    assert_int_equal(loopback->path_mtu, PATH_MTU_4096);
    for (uint32_t i = 1; i < table.count; i++) {
        assert_true(order_of(&table.entries[i - 1]) <= order_of(&table.entries[i]));
    }
}

static void environment_restricts_the_table(void **state)
{
    struct address_table table;
    setenv("WEIR_ADDRESS", "127.0.0.2,nonsense,127.0.0.1,127.0.0.2", 1);
    assert_int_equal(address_read(&table), STATUS_OK);
    assert_int_equal(table.count, 2);
    struct gid first = ipv4(127, 0, 0, 2), peer = ipv4(127, 0, 0, 9);
    assert_true(gid_equal(&table.entries[0].gid, &first));
    assert_int_equal(address_port_mtu(&table), PATH_MTU_4096);

    setenv("WEIR_ADDRESS", "127.0.0.2", 1);
    struct address_route route;
    assert_int_equal(address_route(&peer, NULL, 0, &route), STATUS_OK);
    assert_true(gid_equal(&route.local, &first));

    setenv("WEIR_ADDRESS", "203.0.113.77", 1);
    assert_int_equal(address_read(&table), STATUS_NOT_FOUND);
    assert_int_equal(table.count, 0);
    unsetenv("WEIR_ADDRESS");
}

static void routes_to_ourselves_stay_at_home(void **state)
{
    struct address_table table;
    assert_int_equal(address_read(&table), STATUS_OK);
    for (uint32_t i = 0; i < table.count; i++) {
        const struct address *address = &table.entries[i];
        struct address_route route;
        assert_int_equal(address_route(&address->gid, &address->gid, 0, &route), STATUS_OK);
        assert_true(gid_equal(&route.local, &address->gid));
        assert_int_equal(route.interface_index, address->interface_index);
    }
    struct gid localhost = ipv4(127, 0, 0, 1), foreign = ipv4(203, 0, 113, 77);
    struct gid ipv6 = {{[15] = 1}};
    struct address_route route;
    assert_int_equal(address_route(&localhost, NULL, 0, &route), STATUS_OK);
    assert_int_equal(route.path_mtu, PATH_MTU_4096);
    assert_int_equal(address_route(&localhost, &foreign, 0, &route), STATUS_NOT_FOUND);
    assert_int_equal(address_route(&localhost, &ipv6, 0, &route), STATUS_NOT_FOUND);
}

static void path_mtu_leaves_room_for_headers(void **state)
{
    assert_int_equal(address_path_mtu(1500), PATH_MTU_1024);
    assert_int_equal(address_path_mtu(4179), PATH_MTU_2048);
    assert_int_equal(address_path_mtu(4180), PATH_MTU_4096);
    assert_int_equal(address_path_mtu(65536), PATH_MTU_4096);
    assert_int_equal(address_path_mtu(68), PATH_MTU_256);
}

static void socket_addresses_go_round(void **state)
{
    struct sockaddr_storage name;
    struct gid gid = ipv4(10, 77, 0, 1), back;
    uint16_t port;
    assert_int_equal(address_to_socket(&gid, 4791, 0, &name), sizeof(struct sockaddr_in));
    assert_int_equal(address_from_socket((struct sockaddr *)&name, &back, &port), STATUS_OK);
    assert_true(gid_equal(&gid, &back));
    assert_int_equal(port, 4791);

    struct gid link_local = {{0xfe, 0x80, [15] = 7}};
    assert_int_equal(address_to_socket(&link_local, 1, 3, &name), sizeof(struct sockaddr_in6));
    assert_int_equal(((struct sockaddr_in6 *)&name)->sin6_scope_id, 3);
    assert_int_equal(address_from_socket((struct sockaddr *)&name, &back, &port), STATUS_OK);
    assert_true(gid_equal(&link_local, &back));
    name.ss_family = AF_UNIX;
    assert_int_equal(address_from_socket((struct sockaddr *)&name, &back, &port),
                     STATUS_UNSUPPORTED);
}

static void without_descriptors_no_route_is_denied(void **state)
{
    struct gid peer = ipv4(127, 0, 0, 9), local = ipv4(127, 0, 0, 1);
    struct address_route route;
    struct rlimit before, none;
    unsetenv("WEIR_ADDRESS");
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    enum status from_any = address_route(&peer, NULL, 0, &route);
    enum status from_one = address_route(&peer, &local, 0, &route);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(from_any, STATUS_NO_MEMORY);
    assert_int_equal(from_one, STATUS_NO_MEMORY);
    assert_int_equal(address_route(&peer, NULL, 0, &route), STATUS_OK);
}

/* In a network of its own, where loopback has so many. False: we may not. */
static bool add_addresses(uint8_t count)
{
    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
        return false;
    }
    int descriptor = socket(AF_INET, SOCK_DGRAM, 0);
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    bool done = ioctl(descriptor, SIOCSIFFLAGS, &request) == 0;
    for (uint8_t i = 1; i <= count && done; i++) {
        struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_addr.s_addr = htonl(0x0a630000u | i)};
        snprintf(request.ifr_name, sizeof request.ifr_name, "lo:%u", i);
        memcpy(&request.ifr_addr, &address, sizeof address);
        done = ioctl(descriptor, SIOCSIFADDR, &request) == 0;
    }
    close(descriptor);
    return done;
}

/* The last test: it leaves the host's network. */
static void who_is_named_is_found_among_many(void **state)
{
    (void)state;
    struct address_table table;
    unsetenv("WEIR_ADDRESS");
    if (!add_addresses(200)) {
        skip();
    }
    assert_int_equal(address_read(&table), STATUS_OK);
    assert_int_equal(table.count, ADDRESS_MAX);
    setenv("WEIR_ADDRESS", "10.99.0.190,10.99.0.3,127.0.0.5", 1);
    struct gid expected[] = {ipv4(10, 99, 0, 190), ipv4(10, 99, 0, 3), ipv4(127, 0, 0, 5)};
    assert_int_equal(address_read(&table), STATUS_OK);
    assert_int_equal(table.count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(gid_equal(&table.entries[i].gid, &expected[i]));
        assert_int_equal(table.entries[i].interface_index, if_nametoindex("lo"));
    }
    unsetenv("WEIR_ADDRESS");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_holds_loopback_last),
        cmocka_unit_test(environment_restricts_the_table),
        cmocka_unit_test(routes_to_ourselves_stay_at_home),
        cmocka_unit_test(path_mtu_leaves_room_for_headers),
        cmocka_unit_test(socket_addresses_go_round),
        cmocka_unit_test(without_descriptors_no_route_is_denied),
        cmocka_unit_test(who_is_named_is_found_among_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
