/* The link, sending to itself over loopback: what comes in is what went out, ICRC included. Uses a
 * port of its own. */
#include "rnic/io/udp.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rnic/base/bytes.h"
#include "rnic/io/fault.h"
#include "rnic/wire/packet.h"
#include "rnic/wire/roce.h"

#define HEADER      12u
#define PACKETS_MAX 512u

static const struct gid ipv4_loopback = {{[10] = 0xff, 0xff, 127, 0, 0, 1}};
static const struct gid ipv6_loopback = {{[15] = 1}};

/* Everything that came in, with the number that stood in each packet. */
struct inbox {
    struct udp_receiver receiver;
    uint32_t count;
    uint32_t bad_icrc;
    uint32_t broadcasts;           /* datagrams that say so */
    bool wants_class;              /* the number is the traffic class */
    uint32_t wrong;                /* content is not what was sent */
    uint32_t identification_hints; /* where the place in the read was the IPv4 identification */
    uint32_t numbers[PACKETS_MAX];
    struct arrival arrival;
};

static void fill(uint8_t *bytes, uint32_t length, uint32_t number)
{
    for (uint32_t i = 0; i < length; i++) {
        bytes[i] = (uint8_t)(number * 7 + i);
    }
}

static void take_packet(struct inbox *inbox, const struct udp_datagrams *datagrams,
                        const uint8_t *bytes, uint32_t length, uint32_t place)
{
    uint32_t body = length - ICRC_LENGTH, icrc = 0;
    for (uint32_t i = 0; i < ICRC_LENGTH; i++) {
        icrc |= (uint32_t)bytes[body + i] << 8 * i;
    }
    struct path path = path_reverse(&datagrams->arrival.path);
    struct roce_ip ip, hint = {.identification = (uint16_t)place, .dont_fragment = true};
    if (!roce_icrc_verify(&path, &hint, bytes, body, icrc, &ip)) {
        inbox->bad_icrc++;
        return;
    }
    inbox->identification_hints += ip.identification == place;
    uint32_t number = packet_psn(bytes).value;
    uint8_t expected[PACKET_PAYLOAD_MAX];
    uint32_t payload = body - HEADER - (bytes[1] >> 4 & 3);
    fill(expected, payload, number);
    inbox->wrong += memcmp(expected, bytes + HEADER, payload) != 0;
    inbox->wrong += inbox->wants_class && number != datagrams->arrival.path.traffic_class;
    assert_true(inbox->count < PACKETS_MAX);
    inbox->numbers[inbox->count++] = number;
    inbox->arrival = datagrams->arrival;
}

static void receive(struct udp_receiver *receiver, const struct udp_datagrams *datagrams)
{
    struct inbox *inbox = (struct inbox *)receiver;
    uint32_t place = 0;
    for (uint32_t at = 0; at < datagrams->length; at += datagrams->segment, place++) {
        uint32_t rest = datagrams->length - at;
        take_packet(inbox, datagrams, datagrams->bytes + at,
                    rest < datagrams->segment ? rest : datagrams->segment, place);
    }
}

static struct udp *create(const char *fault)
{
    struct udp *udp;
    const char *message = "";
    struct udp_config config = {.port = (uint16_t)(20000 + getpid() % 10000), .fault = fault};
    assert_int_equal(udp_create(&config, &udp, &message), STATUS_OK);
    return udp;
}

static struct path path_to(const struct gid *gid)
{
    return (struct path){.local = *gid, .remote = *gid, .traffic_class = 2};
}

static struct qpn destination; /* of what is emitted */

/* In two fragments, as a gather list would come. */
static bool emit(struct udp *udp, const struct path *path, uint32_t number, uint32_t payload)
{
    uint8_t header[HEADER] = {0x04, 0x40 | (uint8_t)(packet_pad(payload) << 4)};
    uint8_t bytes[PACKET_PAYLOAD_MAX];
    bytes_store_u24(header + 5, destination.value);
    packet_put_psn(header, (struct psn){number});
    fill(bytes, payload, number);
    struct fragment fragments[2] = {{bytes, payload / 3},
                                    {bytes + payload / 3, payload - payload / 3}};
    struct outgoing outgoing = {
        .path = path,
        .header = header,
        .header_length = HEADER,
        .fragments = fragments,
        .fragment_count = 2,
        .payload_length = payload,
    };
    return udp_sink(udp)->emit(udp_sink(udp), &outgoing);
}

static void drain(struct udp *udp, struct inbox *inbox)
{
    for (enum udp_family family = 0; family < UDP_FAMILY_COUNT; family++) {
        while (udp_receive(udp, family, &inbox->receiver) > 0) {
        }
    }
}

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

static void emit_train(struct udp *udp, const struct path *path, uint32_t first, uint32_t count,
                       uint32_t payload)
{
    static uint8_t bytes[PACKETS_MAX * 1024];
    uint8_t header[HEADER] = {0x07};
    for (uint32_t i = 0; i < count; i++) {
        fill(bytes + (size_t)i * payload, payload, first + i);
    }
    packet_put_psn(header, (struct psn){first});
    struct train train = {path, header, HEADER, bytes, payload, count};
    assert_int_equal(udp_sink(udp)->emit_train(udp_sink(udp), &train), count);
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
                                 .sin_port = htons((uint16_t)(20000 + getpid() % 10000)),
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
    path.source_port = (uint16_t)(50000 + getpid() % 10000);
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
    path.source_port = (uint16_t)(50000 + getpid() % 10000);
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
    uint16_t first = (uint16_t)(40000 + getpid() % 10000);
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

static void faults_text_is_checked(void **state)
{
    struct fault fault;
    assert_int_equal(fault_parse("", &fault), STATUS_OK);
    assert_int_equal(fault_parse("loss=0.5,seed=9,corrupt=1", &fault), STATUS_OK);
    assert_int_equal(fault.loss, UINT64_C(1) << 31);
    struct random seeded;
    random_seed(&seeded, 9);
    assert_memory_equal(&fault.random, &seeded, sizeof seeded);
    static const char *const wrong[] = {"loss",    "loss=",  "loss=2",
                                        "loss=-1", "gain=1", "loss=0.1x"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(fault_parse(wrong[i], &fault), STATUS_INVALID);
    }
    struct udp *udp;
    const char *message = "";
    struct udp_config config = {.port = 20000, .fault = "nonsense"};
    assert_int_equal(udp_create(&config, &udp, &message), STATUS_INVALID);
    assert_true(strlen(message) > 0);
}

/* Sends 500 packets through a shim and returns what came. */
static struct inbox send_through(const char *fault, uint32_t *ret_faults)
{
    struct udp *udp = create(fault);
    struct inbox inbox = {.receiver = {receive}};
    struct path path = path_to(&ipv4_loopback);
    for (uint32_t i = 0; i < 400; i++) {
        assert_true(emit(udp, &path, i, 64));
        if (i % 20 == 19) {
            assert_true(udp_flush(udp));
            drain(udp, &inbox);
        }
    }
    while (udp_has_waiting(udp)) {
        assert_true(udp_flush(udp));
    }
    drain(udp, &inbox);
    *ret_faults = (uint32_t)udp_counters(udp)->faults;
    udp_destroy(udp);
    return inbox;
}

static uint32_t count_backward_steps(const struct inbox *inbox)
{
    uint32_t steps = 0;
    for (uint32_t i = 1; i < inbox->count; i++) {
        steps += inbox->numbers[i] < inbox->numbers[i - 1];
    }
    return steps;
}

static void shim_loses_duplicates_reorders_and_corrupts(void **state)
{
    uint32_t faults;
    struct inbox inbox = send_through("loss=0.1,seed=3", &faults);
    assert_true(faults > 10 && faults < 100);
    assert_int_equal(inbox.count, 400 - faults);

    inbox = send_through("duplicate=0.1,seed=3", &faults);
    assert_true(faults > 10 && faults < 100);
    assert_int_equal(inbox.count, 400 + faults);

    inbox = send_through("reorder=0.1,seed=3", &faults);
    assert_true(faults > 10 && faults < 100);
    assert_int_equal(inbox.count, 400);
    assert_true(count_backward_steps(&inbox) > 10);

    inbox = send_through("corrupt=0.1,seed=3", &faults);
    assert_true(faults > 10 && faults < 100);
    /* Some hits change bits that the ICRC leaves out, as a router might. */
    assert_true(inbox.bad_icrc > 10 && inbox.bad_icrc <= faults);
    assert_int_equal(inbox.count, 400 - inbox.bad_icrc);
    assert_int_equal(inbox.wrong, 0);
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
        cmocka_unit_test(faults_text_is_checked),
        cmocka_unit_test(shim_loses_duplicates_reorders_and_corrupts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
