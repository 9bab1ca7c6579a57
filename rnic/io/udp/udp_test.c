/* The link, sending to itself over loopback: what comes in is what went out, ICRC included. */
#include "rnic/io/udp/udp.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "rnic/io/udp/address.h"
#include "rnic/io/udp/udp_self_test.h"

#ifndef IPV6_FLOWINFO
#define IPV6_FLOWINFO 11
#endif

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
    assert_true(emit(udp, &path, 0, 64)); /* its socket is the one to have room */
    assert_int_not_equal(udp_waiting_descriptor(udp), udp_descriptor(udp, UDP_IPV4));
    assert_int_not_equal(udp_waiting_descriptor(udp), udp_descriptor(udp, UDP_IPV6));
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

/* A plain socket at the link's port, which gets what is for `path.remote`: the link's own sockets
 * are for any address. */
struct peer {
    struct path path; /* to it */
    int descriptor;
};

static void ask_for(const struct peer *peer, int level, int option)
{
    int yes = 1;
    assert_int_equal(setsockopt(peer->descriptor, level, option, &yes, sizeof yes), 0);
}

/* An IPv6 path without a flow label would get one of the kernel's. */
static struct peer open_peer(const struct gid *gid)
{
    bool ipv4 = gid_is_ipv4(gid);
    struct peer peer = {.path = path_to(gid)};
    peer.path.local = ipv4 ? ipv4_loopback : ipv6_loopback;
    peer.path.flow_label = ipv4 ? 0 : 0x12345;
    struct sockaddr_storage name;
    socklen_t length = address_to_socket(gid, own_port(), 0, &name);
    struct timeval patience = {.tv_sec = 2};
    peer.descriptor = socket(name.ss_family, SOCK_DGRAM, 0);
    assert_int_equal(
        setsockopt(peer.descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    ask_for(&peer, SOL_SOCKET, SO_REUSEPORT);
    if (ipv4) {
        ask_for(&peer, IPPROTO_IP, IP_RECVTOS);
        ask_for(&peer, IPPROTO_IP, IP_RECVTTL);
    } else {
        ask_for(&peer, IPPROTO_IPV6, IPV6_RECVTCLASS);
        ask_for(&peer, IPPROTO_IPV6, IPV6_RECVHOPLIMIT);
        ask_for(&peer, IPPROTO_IPV6, IPV6_FLOWINFO);
    }
    assert_int_equal(bind(peer.descriptor, (struct sockaddr *)&name, length), 0);
    return peer;
}

/* Each test has addresses of its own, so that one that fails leaves nothing in another's way. */
static struct peer open_ipv4_peer(uint8_t last)
{
    struct gid gid = ipv4_loopback;
    gid.bytes[15] = last;
    return open_peer(&gid);
}

static uint32_t mark_of(struct msghdr *message, int level, int type)
{
    for (struct cmsghdr *control = CMSG_FIRSTHDR(message); control != NULL;
         control = CMSG_NXTHDR(message, control)) {
        uint32_t value;
        if (control->cmsg_level != level || control->cmsg_type != type) {
            continue;
        }
        if (control->cmsg_len < CMSG_LEN(sizeof value)) { /* IP_TOS comes as one byte */
            return *CMSG_DATA(control);
        }
        memcpy(&value, CMSG_DATA(control), sizeof value);
        return value;
    }
    fail();
    return 0;
}

static void check_marks(struct msghdr *message, const struct path *path)
{
    uint32_t hop_limit = path->hop_limit != 0 ? path->hop_limit : 64;
    if (gid_is_ipv4(&path->remote)) {
        assert_int_equal(mark_of(message, IPPROTO_IP, IP_TOS), path->traffic_class);
        assert_int_equal(mark_of(message, IPPROTO_IP, IP_TTL), hop_limit);
    } else {
        uint32_t flow = ntohl(mark_of(message, IPPROTO_IPV6, IPV6_FLOWINFO));
        assert_int_equal(mark_of(message, IPPROTO_IPV6, IPV6_TCLASS), path->traffic_class);
        assert_int_equal(mark_of(message, IPPROTO_IPV6, IPV6_HOPLIMIT), hop_limit);
        assert_int_equal(flow & 0xfffff, path->flow_label);
    }
}

static void check_arrives(const struct peer *peer, uint32_t number, uint32_t payload)
{
    uint8_t bytes[2 * PACKET_PAYLOAD_MAX];
    uint8_t control[256] __attribute__((aligned(__alignof__(struct cmsghdr))));
    struct sockaddr_storage name;
    struct iovec place = {bytes, sizeof bytes};
    struct msghdr message = {
        .msg_name = &name,
        .msg_namelen = sizeof name,
        .msg_iov = &place,
        .msg_iovlen = 1,
        .msg_control = control,
        .msg_controllen = sizeof control,
    };
    assert_int_equal(recvmsg(peer->descriptor, &message, 0), HEADER + payload + ICRC_LENGTH);
    assert_int_equal(packet_psn(bytes).value, number);
    struct gid source;
    uint16_t port;
    assert_int_equal(address_from_socket((struct sockaddr *)&name, &source, &port), STATUS_OK);
    assert_true(gid_equal(&source, &peer->path.local));
    assert_int_equal(port, peer->path.source_port != 0 ? peer->path.source_port : own_port());
    check_marks(&message, &peer->path);
}

/* As one run, with no other; it is all that arrives. */
static void check_run(struct udp *udp, const struct peer *peer, uint32_t count, uint32_t payload)
{
    for (uint32_t i = 0; i < count; i++) {
        assert_true(emit(udp, &peer->path, i, payload));
    }
    assert_true(udp_flush(udp));
    for (uint32_t i = 0; i < count; i++) {
        check_arrives(peer, i, payload);
    }
    uint8_t byte;
    assert_int_equal(recv(peer->descriptor, &byte, 1, MSG_DONTWAIT), -1);
}

static void check_both_ways(struct udp *udp, const struct peer *peer)
{
    check_run(udp, peer, 1, 64);
    check_run(udp, peer, 3, 1024);
}

static void a_run_goes_to_the_peer_of_its_path(void **state)
{
    struct udp *udp = create(NULL);
    struct peer one = open_ipv4_peer(2), other = open_ipv4_peer(3);
    check_both_ways(udp, &one);
    check_both_ways(udp, &other);
    check_both_ways(udp, &one);
    check_run(udp, &other, 3, 1024);
    check_run(udp, &one, 1, 64);
    one.path.local = other.path.remote;
    check_both_ways(udp, &one);
    if (udp_descriptor(udp, UDP_IPV6) >= 0) {
        struct peer third = open_peer(&ipv6_loopback);
        check_both_ways(udp, &third);
        check_both_ways(udp, &one);
        check_both_ways(udp, &third);
        close(third.descriptor);
    }
    close(one.descriptor);
    close(other.descriptor);
    udp_destroy(udp);
}

/* One after the other, so that none hides another. */
static void check_changes(struct udp *udp, struct peer *peer)
{
    check_both_ways(udp, peer);
    peer->path.traffic_class = 104;
    check_both_ways(udp, peer);
    peer->path.hop_limit = 7;
    check_both_ways(udp, peer);
    peer->path.flow_label = 0x54321;
    check_both_ways(udp, peer);
    peer->path.source_port = (uint16_t)(10000 + getpid() % 10000);
    check_both_ways(udp, peer);
    close(peer->descriptor);
}

static void a_run_has_the_marks_of_its_path(void **state)
{
    struct udp *udp = create(NULL);
    struct peer peer = open_ipv4_peer(4);
    check_changes(udp, &peer);
    if (udp_descriptor(udp, UDP_IPV6) >= 0) {
        peer = open_peer(&ipv6_loopback);
        check_changes(udp, &peer);
    }
    udp_destroy(udp);
}

static void a_run_is_cut_where_its_packets_end(void **state)
{
    struct udp *udp = create(NULL);
    struct peer peer = open_ipv4_peer(5);
    static const uint32_t sizes[] = {1024, 512, 4096, 512};
    for (uint32_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        check_run(udp, &peer, 3, sizes[i]);
    }
    close(peer.descriptor);
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
        cmocka_unit_test(a_run_goes_to_the_peer_of_its_path),
        cmocka_unit_test(a_run_has_the_marks_of_its_path),
        cmocka_unit_test(a_run_is_cut_where_its_packets_end),
        cmocka_unit_test(unreachable_peer_is_counted_and_named),
        cmocka_unit_test(granted_buffer_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
