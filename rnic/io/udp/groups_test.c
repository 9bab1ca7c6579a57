/* Groups over loopback: who has joined hears, once for each socket, and nobody else does. */
#include "rnic/io/udp/groups.h"

#include <net/if.h>
#include <stdlib.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rnic/transport/port.h"
#include "rnic/wire/packet.h"

#define GROUP ((struct gid){{[10] = 0xff, [11] = 0xff, 239, 200, 1, 1}})

struct end {
    struct udp_receiver receiver;
    struct udp *udp;
    struct groups *groups;
    uint32_t received;
    struct path path; /* of the latest */
};

static struct end one, other;
static uint32_t loopback;

static void receive(struct udp_receiver *receiver, const struct udp_datagrams *datagrams)
{
    struct end *end = (struct end *)receiver;
    end->received += (datagrams->length + datagrams->segment - 1) / datagrams->segment;
    end->path = datagrams->arrival.path;
}

static void open_end(struct end *end)
{
    const char *message = "";
    struct udp_config config = {.port = (uint16_t)(20000 + getpid() % 10000)};
    *end = (struct end){.receiver = {receive}};
    assert_int_equal(udp_create(&config, &end->udp, &message), STATUS_OK);
    end->groups = groups_create(end->udp);
    assert_non_null(end->groups);
}

static int start(void **state)
{
    loopback = if_nametoindex("lo");
    open_end(&one);
    open_end(&other);
    return 0;
}

static int stop(void **state)
{
    groups_destroy(one.groups);
    groups_destroy(other.groups);
    udp_destroy(one.udp);
    udp_destroy(other.udp);
    return 0;
}

static void post_packets(const struct gid *group, uint32_t count)
{
    static const struct gid local = {{[10] = 0xff, [11] = 0xff, 127, 0, 0, 1}};
    struct path path = {.local = local, .remote = *group};
    uint8_t header[BTH_LENGTH] = {0x64, 0x40};
    struct outgoing outgoing = {.path = &path, .header = header, .header_length = sizeof header};
    while (count-- > 0) {
        assert_true(udp_sink(one.udp)->emit(udp_sink(one.udp), &outgoing));
    }
    assert_true(udp_flush(one.udp));
}

static uint32_t received(struct end *end)
{
    end->received = 0;
    while (udp_receive(end->udp, UDP_IPV4, &end->receiver) > 0) {
    }
    return end->received;
}

static void reaches_who_has_joined(void **state)
{
    struct gid group = GROUP;
    assert_int_equal(groups_join(other.groups, &group, loopback), STATUS_OK);
    post_packets(&group, 3);
    assert_int_equal(received(&other), 3);
    assert_int_equal(received(&one), 0);
    assert_true(gid_equal(&other.path.local, &group));
    assert_int_equal(other.path.hop_limit, 1);

    assert_int_equal(groups_join(one.groups, &group, loopback), STATUS_OK);
    post_packets(&group, 3);
    assert_int_equal(received(&other), 3);
    assert_int_equal(received(&one), 3);
}

static void leaves_with_the_last_user(void **state)
{
    struct gid group = GROUP;
    assert_int_equal(groups_join(other.groups, &group, loopback), STATUS_OK);
    assert_int_equal(groups_join(other.groups, &group, loopback), STATUS_OK);
    groups_leave(other.groups, &group, loopback);
    post_packets(&group, 1);
    assert_int_equal(received(&other), 1);
    groups_leave(other.groups, &group, loopback);
    groups_leave(other.groups, &group, loopback);
    post_packets(&group, 1);
    assert_int_equal(received(&other), 0);
}

/* More than the kernel lets one socket join; and when those are left, foreign groups are not heard
 * any more. */
static void many_groups(void **state)
{
    struct gid group = GROUP, foreign = GROUP;
    foreign.bytes[14] = 77;
    assert_int_equal(groups_join(one.groups, &foreign, loopback), STATUS_OK);
    for (uint32_t i = 0; i < 70; i++) {
        group.bytes[15] = (uint8_t)i;
        assert_int_equal(groups_join(other.groups, &group, loopback), STATUS_OK);
    }
    for (uint32_t i = 0; i < 70; i++) {
        group.bytes[15] = (uint8_t)i;
        post_packets(&group, 1);
        assert_int_equal(received(&other), 1);
    }
    assert_int_equal(received(&one), 0);
    for (uint32_t i = 10; i < 70; i++) {
        group.bytes[15] = (uint8_t)i;
        groups_leave(other.groups, &group, loopback);
    }
    post_packets(&foreign, 1);
    assert_int_equal(received(&other), 0);
    assert_int_equal(received(&one), 1);
    group.bytes[15] = 9;
    post_packets(&group, 1);
    assert_int_equal(received(&other), 1);
}

static void nowhere(void **state)
{
    struct gid group = GROUP;
    assert_int_equal(groups_join(one.groups, &group, 0x7fffffff), STATUS_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reaches_who_has_joined, start, stop),
        cmocka_unit_test_setup_teardown(leaves_with_the_last_user, start, stop),
        cmocka_unit_test_setup_teardown(many_groups, start, stop),
        cmocka_unit_test_setup_teardown(nowhere, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
