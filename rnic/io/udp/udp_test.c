/* The link, sending to itself over loopback: what comes in is what went out, ICRC included. */
#include "rnic/io/udp/udp.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "rnic/io/udp/udp_self_test.h"

static void check_carries(const struct gid *gid)
{
    struct udp *udp = create(NULL);
    struct inbox inbox = {.receiver = {receive}};
    struct path path = path_to(gid);
    static const uint32_t sizes[] = {0, 1, 2, 3, 4, 255, 1024, 1023, 4096, 4096, 4096, 5, 4096};
    uint32_t count = sizeof sizes / sizeof sizes[0];
    for (uint32_t i = 0; i < count; i++) {
        assert_true(emit(udp, &path, i, sizes[i]));
    }
    assert_true(udp_flush(udp));
    assert_false(udp_has_waiting(udp));
    drain(udp, &inbox);
    assert_int_equal(inbox.count, count);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(inbox.numbers[i], i);
    }
    assert_int_equal(inbox.bad_icrc + inbox.wrong, 0);
    assert_int_equal(inbox.identification_hints, count);
    assert_true(gid_equal(&inbox.arrival.path.local, gid));
    assert_true(gid_equal(&inbox.arrival.path.remote, gid));
    assert_int_equal(inbox.arrival.path.traffic_class, 2);
    assert_int_equal(inbox.arrival.path.hop_limit, 64);
    assert_false(inbox.arrival.congestion_experienced);
    udp_destroy(udp);
}

static void ipv4_carries_packets_in_order(void **state)
{
    check_carries(&ipv4_loopback);
}

static void ipv6_carries_packets_in_order(void **state)
{
    struct udp *udp = create(NULL);
    bool has_ipv6 = udp_descriptor(udp, UDP_IPV6) >= 0;
    udp_destroy(udp);
    if (!has_ipv6) {
        skip();
    }
    check_carries(&ipv6_loopback);
}

static void equal_packets_leave_in_one_send(void **state)
{
    struct udp *udp = create(NULL);
    struct inbox inbox = {.receiver = {receive}};
    struct path path = path_to(&ipv4_loopback);
    for (uint32_t i = 0; i < 200; i++) {
        assert_true(emit(udp, &path, i, i == 99 ? 100 : 1024));
    }
    assert_in_range(udp_counters(udp)->packets_sent, 150, 199); /* what is full does not wait */
    assert_true(udp_flush(udp));
    drain(udp, &inbox);
    assert_int_equal(inbox.count, 200);
    assert_int_equal(inbox.bad_icrc + inbox.wrong, 0);
    for (uint32_t i = 0; i < 200; i++) {
        assert_int_equal(inbox.numbers[i], i);
    }
    assert_int_equal(udp_counters(udp)->packets_sent, 200);
    assert_int_equal(udp_counters(udp)->packets_received, 200);
    if (udp_counters(udp)->segmented_sends > 0) { /* else the kernel has no UDP_SEGMENT */
        assert_true(udp_counters(udp)->segmented_sends <= 5);
        assert_int_equal(udp_counters(udp)->send_calls, 3);
    }
    udp_destroy(udp);
}

/* Across the ends of runs; a shorter train closes the run that it follows, packet by packet. */
static void trains_are_their_packets(void **state)
{
    struct udp *udp = create(NULL);
    struct inbox inbox = {.receiver = {receive}};
    struct path path = path_to(&ipv4_loopback);
    emit_train(udp, &path, 0, 3, 1024);
    emit_train(udp, &path, 3, 150, 1024);
    emit_train(udp, &path, 153, 20, 512);
    emit_train(udp, &path, 173, 2, 1024);
    assert_true(udp_flush(udp));
    drain(udp, &inbox);
    assert_int_equal(inbox.count, 175);
    assert_int_equal(inbox.bad_icrc + inbox.wrong, 0);
    for (uint32_t i = 0; i < 175; i++) {
        assert_int_equal(inbox.numbers[i], i);
    }
    if (udp_counters(udp)->segmented_sends > 0) {
        assert_in_range(udp_counters(udp)->segmented_sends, 5, 6);
    }
    udp_destroy(udp);
}

/* Each longer than the one before, so that none are joined. */
static void emit_apart(struct udp *udp, const struct path *path, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        assert_true(emit(udp, path, i, 100 + 4 * i));
    }
    assert_true(udp_flush(udp));
}

static void one_is_asked_for_and_more_as_more_come(void **state)
{
    struct udp *udp = create(NULL);
    struct inbox inbox = {.receiver = {receive}};
    struct path path = path_to(&ipv4_loopback);
    emit_apart(udp, &path, 8);
    assert_int_equal(udp_receive(udp, UDP_IPV4, &inbox.receiver), 1);
    assert_int_equal(udp_receive(udp, UDP_IPV4, &inbox.receiver), 2);
    assert_int_equal(udp_receive(udp, UDP_IPV4, &inbox.receiver), 4);
    assert_int_equal(udp_receive(udp, UDP_IPV4, &inbox.receiver), 1);
    assert_int_equal(udp_receive(udp, UDP_IPV4, &inbox.receiver), 0);
    udp_expect_many(udp);
    emit_apart(udp, &path, 8);
    assert_int_equal(udp_receive(udp, UDP_IPV4, &inbox.receiver), 8);
    assert_int_equal(inbox.count, 16);
    udp_destroy(udp);
}

static void no_more_are_asked_for_than_there_is_room(void **state)
{
    struct udp *udp = create(NULL);
    struct inbox inbox = {.receiver = {receive}};
    struct path path = path_to(&ipv4_loopback);
    udp_expect_many(udp);
    emit_apart(udp, &path, 9);
    assert_int_equal(udp_receive(udp, UDP_IPV4, &inbox.receiver), 9);
    emit_apart(udp, &path, 40);
    assert_int_equal(udp_receive(udp, UDP_IPV4, &inbox.receiver), 9);
    assert_int_equal(udp_receive(udp, UDP_IPV4, &inbox.receiver), 16);
    assert_int_equal(udp_receive(udp, UDP_IPV4, &inbox.receiver), 15);
    assert_int_equal(inbox.count + inbox.wrong, 49);
    udp_destroy(udp);
}

static void paths_that_alternate_still_gather(void **state)
{
    struct udp *udp = create(NULL);
    struct inbox inbox = {.receiver = {receive}};
    struct path here = path_to(&ipv4_loopback), there = here;
    there.remote.bytes[15] = 2;
    for (uint32_t i = 0; i < 64; i++) {
        assert_true(emit(udp, i % 2 ? &here : &there, i, 512));
    }
    assert_true(udp_flush(udp));
    drain(udp, &inbox);
    assert_int_equal(inbox.count, 64);
    assert_int_equal(inbox.bad_icrc + inbox.wrong, 0);
    assert_int_equal(udp_counters(udp)->send_calls, 1);
    udp_destroy(udp);
}

static void congestion_mark_is_seen(void **state)
{
    struct udp *udp = create(NULL);
    struct inbox inbox = {.receiver = {receive}};
    struct path path = path_to(&ipv4_loopback);
    path.traffic_class = 3;
    path.hop_limit = 7;
    assert_true(emit(udp, &path, 1, 16));
    assert_true(udp_flush(udp));
    drain(udp, &inbox);
    assert_int_equal(inbox.count, 1);
    assert_true(inbox.arrival.congestion_experienced);
    assert_int_equal(inbox.arrival.path.hop_limit, 7);
    udp_destroy(udp);
}

static void note_broadcast(struct udp_receiver *receiver, const struct udp_datagrams *datagrams)
{
    struct inbox *inbox = (struct inbox *)receiver;
    inbox->count++;
    inbox->broadcasts += datagrams->broadcast;
}

static void a_broadcast_is_told_apart(void **state)
{
    struct udp *udp = create(NULL);
    struct inbox inbox = {.receiver = {note_broadcast}};
    int sender = socket(AF_INET, SOCK_DGRAM, 0), yes = 1;
    assert_int_equal(setsockopt(sender, SOL_SOCKET, SO_BROADCAST, &yes, sizeof yes), 0);
    static const uint32_t destinations[] = {0x7f000001, 0x7f000002, 0x7fffffff};
    for (uint32_t i = 0; i < 3; i++) {
        struct sockaddr_in to = {.sin_family = AF_INET,
                                 .sin_port = htons(own_port()),
                                 .sin_addr.s_addr = htonl(destinations[i])};
        assert_int_equal(sendto(sender, "x", 1, 0, (struct sockaddr *)&to, sizeof to), 1);
        drain(udp, &inbox);
        assert_int_equal(inbox.count, i + 1);
        assert_int_equal(inbox.broadcasts, i == 2);
    }
    close(sender);
    udp_destroy(udp);
}

static struct inbox carry(struct udp *udp, const struct path *path, uint32_t count)
{
    struct inbox inbox = {.receiver = {receive}};
    for (uint32_t i = 0; i < count; i++) {
        assert_true(emit(udp, path, i, 512));
    }
    assert_true(udp_flush(udp));
    drain(udp, &inbox);
    assert_int_equal(inbox.count, count);
    assert_int_equal(inbox.bad_icrc + inbox.wrong, 0);
    return inbox;
}

/* Without one they leave from the link's own. */
static void a_flow_label_has_a_source_port(void **state)
{
    struct udp *udp = create(NULL);
    struct path path = path_to(&ipv4_loopback);
    path.source_port = (uint16_t)(10000 + getpid() % 10000);
    uint16_t own = carry(udp, &path, 3).arrival.path.source_port;
    assert_int_not_equal(own, path.source_port);
    path.flow_label = 0x12345;
    assert_int_equal(carry(udp, &path, 30).arrival.path.source_port, path.source_port);
    if (udp_descriptor(udp, UDP_IPV6) >= 0) {
        path.local = path.remote = ipv6_loopback;
        assert_int_equal(carry(udp, &path, 30).arrival.path.source_port, path.source_port);
    }
    udp_destroy(udp);
}

static uint16_t port_of_one(struct udp *udp, const struct path *path)
{
    return carry(udp, path, 1).arrival.path.source_port;
}

/* A stranger's REQ is answered whatever flow label it has; no port is taken for that. */
static void management_takes_no_ports(void **state)
{
    struct udp *udp = create(NULL);
    struct path path = path_to(&ipv4_loopback);
    uint16_t own = port_of_one(udp, &path);
    path.flow_label = 1;
    path.source_port = (uint16_t)(10000 + getpid() % 10000);
    destination = QPN_MANAGEMENT;
    uint16_t used = port_of_one(udp, &path);
    destination = (struct qpn){0};
    assert_int_equal(used, own);
    assert_int_equal(port_of_one(udp, &path), path.source_port);
    udp_destroy(udp);
}

static uint32_t open_files(void)
{
    uint32_t count = 0;
    for (int i = 0; i < 1024; i++) {
        count += fcntl(i, F_GETFD) >= 0;
    }
    return count;
}

static void ports_are_given_back(void **state)
{
    struct udp *udp = create(NULL);
    uint32_t before = open_files();
    assert_true(instant_is_never(udp_next_tidy(udp)));
    uint16_t first = (uint16_t)(10000 + getpid() % 10000);
    struct path path = path_to(&ipv4_loopback);
    path.flow_label = 1;
    for (uint16_t i = 0; i < 100; i++) {
        path.source_port = first + i;
        (void)port_of_one(udp, &path);
    }
    assert_in_range(open_files(), before + 1, before + 64);
    path.source_port = first + 99;
    assert_int_not_equal(port_of_one(udp, &path), path.source_port);
    path.source_port = first; /* it goes on */
    assert_int_equal(port_of_one(udp, &path), path.source_port);
    struct instant now = udp_next_tidy(udp); /* the first was made for want of room */
    udp_tidy(udp, (struct instant){now.ns - 1});
    assert_in_range(open_files(), before + 2, before + 64);
    udp_tidy(udp, now);
    assert_int_equal(open_files(), before + 1);
    assert_int_equal(udp_next_tidy(udp).ns, instant_after(now, UDP_PORT_IDLE_NS).ns);
    path.source_port = first + 99;
    assert_int_equal(port_of_one(udp, &path), path.source_port);

    path.source_port = first + 50; /* waits to be sent all the while */
    assert_true(emit(udp, &path, 7, 16));
    for (int i = 0; i < 3; i++) {
        now = instant_after(now, UDP_PORT_IDLE_NS);
        udp_tidy(udp, now);
    }
    assert_int_equal(open_files(), before + 1);
    struct inbox inbox = {.receiver = {receive}};
    assert_true(udp_flush(udp));
    drain(udp, &inbox);
    assert_int_equal(inbox.count, 1);
    assert_int_equal(inbox.bad_icrc + inbox.wrong, 0);
    assert_int_equal(inbox.arrival.path.source_port, path.source_port);
    udp_destroy(udp);
}

static void a_port_that_is_taken_is_not_waited_for(void **state)
{
    struct sockaddr_in name = {.sin_family = AF_INET};
    socklen_t length = sizeof name;
    int other = socket(AF_INET, SOCK_DGRAM, 0);
    assert_int_equal(bind(other, (struct sockaddr *)&name, length), 0);
    assert_int_equal(getsockname(other, (struct sockaddr *)&name, &length), 0);
    struct udp *udp = create(NULL);
    struct path path = path_to(&ipv4_loopback);
    path.flow_label = 1;
    path.source_port = ntohs(name.sin_port);
    assert_int_not_equal(carry(udp, &path, 3).arrival.path.source_port, path.source_port);
    close(other);
    udp_destroy(udp);
}

/* One batch, but a class is not another's. */
static void classes_are_not_joined(void **state)
{
    struct udp *udp = create(NULL);
    struct inbox inbox = {.receiver = {receive}};
    for (uint32_t i = 0; i < 40; i++) {
        struct path path = path_to(&ipv4_loopback);
        path.traffic_class = i % 2 == 0 ? 104 : 32;
        assert_true(emit(udp, &path, path.traffic_class, 256));
    }
    assert_true(udp_flush(udp));
    inbox.wants_class = true;
    drain(udp, &inbox);
    assert_int_equal(inbox.count, 40);
    assert_int_equal(inbox.bad_icrc + inbox.wrong, 0);
    assert_int_equal(udp_counters(udp)->send_calls, 1);
    udp_destroy(udp);
}

static void unreachable_peer_is_counted_and_named(void **state)
{
    struct udp *udp = create(NULL);
    struct path path = path_to(&ipv4_loopback);
    path.local = (struct gid){{[10] = 0xff, 0xff, 203, 0, 113, 77}}; /* none of ours */
    assert_true(emit(udp, &path, 1, 16));
    assert_true(emit(udp, &path, 2, 16));
    assert_true(udp_flush(udp));
    assert_int_equal(udp_counters(udp)->dropped_unreachable, 2);
    assert_true(strlen(udp_message(udp)) > 0);
    udp_destroy(udp);
}

static void granted_buffer_is_told(void **state)
{
    struct udp *udp = create(NULL);
    int wanted = 32768, descriptor = udp_descriptor(udp, UDP_IPV4);
    assert_true(udp_receive_buffer(udp) > 2 * 32768);
    assert_int_equal(setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &wanted, sizeof wanted), 0);
    assert_int_equal(udp_receive_buffer(udp), 2 * 32768); /* [socket(7): the kernel doubles] */
    udp_destroy(udp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ipv4_carries_packets_in_order),
        cmocka_unit_test(ipv6_carries_packets_in_order),
        cmocka_unit_test(equal_packets_leave_in_one_send),
        cmocka_unit_test(trains_are_their_packets),
        cmocka_unit_test(one_is_asked_for_and_more_as_more_come),
        cmocka_unit_test(no_more_are_asked_for_than_there_is_room),
        cmocka_unit_test(paths_that_alternate_still_gather),
        cmocka_unit_test(congestion_mark_is_seen),
        cmocka_unit_test(a_broadcast_is_told_apart),
        cmocka_unit_test(a_flow_label_has_a_source_port),
        cmocka_unit_test(management_takes_no_ports),
        cmocka_unit_test(ports_are_given_back),
        cmocka_unit_test(a_port_that_is_taken_is_not_waited_for),
        cmocka_unit_test(classes_are_not_joined),
        cmocka_unit_test(unreachable_peer_is_counted_and_named),
        cmocka_unit_test(granted_buffer_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
