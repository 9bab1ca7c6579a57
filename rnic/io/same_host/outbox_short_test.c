/* Packets that are put and shown in one step, in a line of the ring. */
#include "rnic/io/same_host/outbox.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rnic/base/bytes.h"
#include "rnic/base/container.h"
#include "rnic/io/same_host/inbox.h"
#include "rnic/io/same_host/inbox_private.h"
#include "rnic/wire/packet.h"

#define OWNER  UINT64_C(0x1111)
#define SENDER UINT64_C(0x2222)

struct ends {
    struct inbox *inbox;
    struct outbox *outbox;
    uint8_t bytes[8192];
};

static struct path path_between(void)
{
    return (struct path){
        .local = {{[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1}},
        .remote = {{[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 2}},
        .source_port = 50000,
    };
}

static struct ends *start(void)
{
    struct ends *ends = calloc(1, sizeof *ends);
    assert_non_null(ends);
    for (uint32_t i = 0; i < sizeof ends->bytes; i++) {
        ends->bytes[i] = (uint8_t)(i * 2654435761u >> 13);
    }
    assert_int_equal(inbox_create(OWNER, false, &ends->inbox), STATUS_OK);
    assert_int_equal(outbox_open(getpid(), inbox_descriptor(ends->inbox), OWNER, SENDER, NULL,
                                 false, &ends->outbox),
                     STATUS_OK);
    return ends;
}

static void end(struct ends *ends)
{
    outbox_close(ends->outbox);
    inbox_destroy(ends->inbox);
    free(ends);
}

static void show(struct outbox *outbox)
{
    bool sleeps = outbox_flush(outbox);
    (void)sleeps;
}

struct taker {
    struct inbox_receiver receiver;
    struct arrival arrival;
    uint8_t bytes[256];
    uint32_t length, count;
};

static void take(struct inbox_receiver *receiver, const struct arrival *arrival,
                 const uint8_t *bytes, uint32_t length, const struct payload_reference *reference)
{
    struct taker *taker = CONTAINER_OF(receiver, struct taker, receiver);
    assert_null(reference);
    assert_true(length <= sizeof taker->bytes);
    taker->arrival = *arrival;
    memcpy(taker->bytes, bytes, length);
    taker->length = length;
    taker->count++;
}

#define SHORT_MOST 64u /* of payload; it fits into no line */

/* `variant` bit 0: with an immediate; bit 1: with an acknowledgement. */
static struct outgoing_short make_short(const struct path *path, const uint8_t *payload,
                                        uint32_t length, uint32_t variant)
{
    return (struct outgoing_short){
        .path = path,
        .bth = {0x04a1ffff | packet_pad(length) << 20, 77, 0x80abcdef},
        .has_immediate = (variant & 1) != 0,
        .immediate = 0x89674523,
        .payload = length > 0 ? payload : NULL,
        .length = length,
        .acknowledges = (variant & 2) != 0,
        .acknowledged = {(variant & 2) != 0 ? 0x123456 : 0},
    };
}

static void put_as_any(struct outbox *outbox, const struct outgoing_short *it)
{
    uint8_t header[BTH_LENGTH + IMMDT_LENGTH];
    for (uint32_t i = 0; i < 3; i++) {
        bytes_store_u32(header + i * 4, it->bth[i]);
    }
    memcpy(header + BTH_LENGTH, &it->immediate, IMMDT_LENGTH);
    struct fragment fragment = {it->payload, it->length};
    struct outgoing outgoing = {
        .path = it->path,
        .header = header,
        .header_length = BTH_LENGTH + (it->has_immediate ? IMMDT_LENGTH : 0),
        .fragments = &fragment,
        .fragment_count = it->length > 0,
        .payload_length = it->length,
        .acknowledges = it->acknowledges,
        .acknowledged = it->acknowledged,
    };
    assert_int_equal(outbox_put(outbox, &outgoing), STATUS_OK);
}

static void take_one(struct ends *ends, struct taker *taker)
{
    *taker = (struct taker){.receiver = {take}};
    assert_int_equal(inbox_receive(ends->inbox, &taker->receiver, 16), 1);
}

static void expect_alike(const struct taker *left, const struct taker *right)
{
    assert_int_equal(left->length, right->length);
    assert_memory_equal(left->bytes, right->bytes, left->length);
    assert_memory_equal(&left->arrival.path, &right->arrival.path, sizeof left->arrival.path);
    assert_int_equal(left->arrival.is_near, right->arrival.is_near);
    assert_int_equal(left->arrival.acknowledges, right->arrival.acknowledges);
    assert_int_equal(left->arrival.acknowledged.value, right->arrival.acknowledged.value);
}

/* Byte for byte, at each place of the ring. */
static void a_short_packet_arrives_as_any(void **state)
{
    struct ends *ends = start();
    struct path path = path_between();
    path.traffic_class = 0x5c;
    path.hop_limit = 9;
    path.flow_label = 0xfedcb;
    for (uint32_t i = 0; i < 6000; i++) {
        uint32_t length = i / 4 % (SHORT_MOST + 1), variant = i % 4;
        const uint8_t *payload = ends->bytes + i;
        struct outgoing_short outgoing = make_short(&path, payload, length, variant);
        uint32_t headers = BTH_LENGTH + (outgoing.has_immediate ? IMMDT_LENGTH : 0);
        uint32_t all = (uint32_t)sizeof(struct inbox_record) + headers + (length + 3) / 4 * 4;
        struct taker as_short, as_any;
        bool fits = all <= RING_LINE_MAX;
        assert_int_equal(outbox_put_short(ends->outbox, &outgoing), fits);
        if (fits) {
            assert_false(outbox_flush(ends->outbox));
            take_one(ends, &as_short);
        }
        put_as_any(ends->outbox, &outgoing);
        show(ends->outbox);
        take_one(ends, &as_any);
        assert_int_equal(as_any.arrival.acknowledges, outgoing.acknowledges);
        assert_int_equal(as_any.length, headers + (length + 3) / 4 * 4);
        if (fits) {
            expect_alike(&as_short, &as_any);
        }
    }
    end(ends);
}

static void a_short_packet_goes_past_none_that_is_not_shown(void **state)
{
    struct ends *ends = start();
    struct taker taker = {.receiver = {take}};
    struct path path = path_between();
    struct outgoing_short outgoing = make_short(&path, ends->bytes, 8, 0);
    for (uint32_t round = 0; round < 3000; round++) {
        put_as_any(ends->outbox, &outgoing);
        assert_false(outbox_put_short(ends->outbox, &outgoing));
        show(ends->outbox);
        assert_true(outbox_put_short(ends->outbox, &outgoing));
        put_as_any(ends->outbox, &outgoing);
        show(ends->outbox);
        taker.count = 0;
        assert_int_equal(inbox_receive(ends->inbox, &taker.receiver, 16), 3);
    }
    end(ends);
}

struct listener {
    struct inbox_room room;
    uint32_t told;
};

static void told(struct inbox_room *room, uint64_t sender)
{
    struct listener *listener = CONTAINER_OF(room, struct listener, room);
    listener->told++;
}

/* And whether one waits for room is for outbox_put to say. */
static void where_there_is_no_room_none_is_put(void **state)
{
    struct ends *ends = start();
    struct listener listener = {.room = {told}};
    struct taker taker = {.receiver = {take}};
    struct path path = path_between();
    struct outgoing_short outgoing = make_short(&path, ends->bytes, 8, 0);
    inbox_tell_of_room(ends->inbox, &listener.room);
    for (uint32_t round = 0; round < 2; round++) {
        uint32_t sent = 0;
        while (outbox_put_short(ends->outbox, &outgoing)) {
            sent++;
        }
        assert_true(sent > 1000);
        assert_false(outbox_put_short(ends->outbox, &outgoing));
        show(ends->outbox);
        taker.count = 0;
        while (inbox_receive(ends->inbox, &taker.receiver, 100) > 0) {
        }
        assert_int_equal(taker.count, sent);
    }
    assert_int_equal(listener.told, 0);
    end(ends);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_short_packet_arrives_as_any),
        cmocka_unit_test(a_short_packet_goes_past_none_that_is_not_shown),
        cmocka_unit_test(where_there_is_no_room_none_is_put),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
