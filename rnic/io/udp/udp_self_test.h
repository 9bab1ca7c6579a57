/* A link that sends to itself over loopback, and what came in: for the tests of the link. Uses a
 * port of its own. */
#ifndef WEIR_IO_UDP_SELF_TEST_H
#define WEIR_IO_UDP_SELF_TEST_H

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rnic/base/bytes.h"
#include "rnic/io/udp/udp.h"
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

static inline void fill(uint8_t *bytes, uint32_t length, uint32_t number)
{
    for (uint32_t i = 0; i < length; i++) {
        bytes[i] = (uint8_t)(number * 7 + i);
    }
}

static inline void take_packet(struct inbox *inbox, const struct udp_datagrams *datagrams,
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

static inline void receive(struct udp_receiver *receiver, const struct udp_datagrams *datagrams)
{
    struct inbox *inbox = (struct inbox *)receiver;
    uint32_t place = 0;
    for (uint32_t at = 0; at < datagrams->length; at += datagrams->segment, place++) {
        uint32_t rest = datagrams->length - at;
        take_packet(inbox, datagrams, datagrams->bytes + at,
                    rest < datagrams->segment ? rest : datagrams->segment, place);
    }
}

static inline uint16_t own_port(void)
{
    return (uint16_t)(20000 + getpid() % 10000);
}

static inline struct udp *create(const char *fault)
{
    struct udp *udp;
    const char *message = "";
    struct udp_config config = {.port = own_port(), .fault = fault};
    assert_int_equal(udp_create(&config, &udp, &message), STATUS_OK);
    return udp;
}

/* At 127.0.0.`last` alone. */
static inline struct udp *create_at(uint8_t last, struct gid *ret_here)
{
    struct gid here = {{[10] = 0xff, 0xff, 127, 0, 0, last}};
    struct gid addresses[UDP_FAMILY_COUNT] = {[UDP_IPV4] = here};
    struct udp_config config = {.port = own_port(), .bind = addresses};
    const char *message;
    struct udp *udp;
    assert_int_equal(udp_create(&config, &udp, &message), STATUS_OK);
    *ret_here = here;
    return udp;
}

static inline struct path path_to(const struct gid *gid)
{
    return (struct path){.local = *gid, .remote = *gid, .traffic_class = 2};
}

static struct qpn destination; /* of what is emitted */

/* In two fragments, as a gather list would come. */
static inline bool emit(struct udp *udp, const struct path *path, uint32_t number, uint32_t payload)
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

static inline void drain(struct udp *udp, struct inbox *inbox)
{
    for (enum udp_family family = 0; family < UDP_FAMILY_COUNT; family++) {
        while (udp_receive(udp, family, &inbox->receiver) > 0) {
        }
    }
}

static inline void emit_train(struct udp *udp, const struct path *path, uint32_t first,
                              uint32_t count, uint32_t payload)
{
    static uint8_t bytes[PACKETS_MAX * 1024];
    uint8_t header[HEADER] = {0x07};
    for (uint32_t i = 0; i < count; i++) {
        fill(bytes + (size_t)i * payload, payload, first + i);
    }
    packet_put_psn(header, (struct psn){first});
    struct train train = {path, header, HEADER, bytes, payload, count, 0};
    assert_int_equal(udp_sink(udp)->emit_train(udp_sink(udp), &train), count);
}

#endif
