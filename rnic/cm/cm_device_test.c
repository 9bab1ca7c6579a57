/* Two connection managers over two real devices: MADs as packets, to QP1 and back. */
#include "rnic/cm/cm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/base/container.h"
#include "rnic/base/heap.h"

#define WIRE_MAX 16

struct side {
    struct packet_sink sink;
    struct device *device;
    struct cm *cm;
    struct cm_connection *connection;
    bool established, disconnected;
    uint8_t wire[WIRE_MAX][PACKET_HEADER_MAX + MAD_LENGTH]; /* on the way to the other side */
    uint32_t lengths[WIRE_MAX];
    struct path paths[WIRE_MAX];
    uint32_t wire_count;
};

static bool emit(struct packet_sink *sink, const struct outgoing *outgoing)
{
    struct side *side = CONTAINER_OF(sink, struct side, sink);
    if (side->wire_count == WIRE_MAX) {
        return false;
    }
    uint8_t *bytes = side->wire[side->wire_count];
    assert_int_equal(outgoing->fragment_count, 1);
    assert_int_equal(outgoing->payload_length, MAD_LENGTH);
    memcpy(bytes, outgoing->header, outgoing->header_length);
    memcpy(bytes + outgoing->header_length, outgoing->fragments[0].bytes, MAD_LENGTH);
    side->lengths[side->wire_count] = outgoing->header_length + MAD_LENGTH;
    side->paths[side->wire_count++] = *outgoing->path;
    return true;
}

static void create(struct side *side, uint32_t number)
{
    *side = (struct side){.sink = {emit}};
    struct device_config device = {.allocator = heap_allocator(),
                                   .sink = &side->sink,
                                   .key = {{number}},
                                   .first_qpn = {100},
                                   .qpn_count = 10,
                                   .max_regions = 1,
                                   .max_reads_in = 1};
    assert_int_equal(device_create(&device, &side->device), STATUS_OK);
    struct cm_config cm = {.allocator = heap_allocator(),
                           .device = side->device,
                           .key = {{number}},
                           .max_connections = 4};
    assert_int_equal(cm_create(&cm, &side->cm), STATUS_OK);
}

static void deliver(struct side *from, struct side *to, struct instant now)
{
    for (uint32_t i = 0; i < from->wire_count; i++) {
        struct arrival arrival = {.path = from->paths[i]};
        arrival.path.local = from->paths[i].remote;
        arrival.path.remote = from->paths[i].local;
        device_receive(to->device, now, &arrival, from->wire[i], from->lengths[i]);
    }
    from->wire_count = 0;
}

static void answer(struct side *side, struct instant now)
{
    struct cm_event event;
    while (cm_next_event(side->cm, &event)) {
        struct cm_parameters parameters = {.qpn = {101}};
        switch (event.kind) {
        case CM_EVENT_REQUEST:
            side->connection = event.connection;
            assert_int_equal(cm_accept(event.connection, now, &parameters), STATUS_OK);
            break;
        case CM_EVENT_REPLY:
            assert_int_equal(cm_confirm(event.connection, now), STATUS_OK);
            side->established = true;
            break;
        case CM_EVENT_ESTABLISHED:
            side->established = true;
            break;
        case CM_EVENT_DISCONNECTED:
            side->disconnected = true;
            break;
        default:
            break;
        }
    }
}

static void run(struct side sides[2], struct instant now)
{
    for (int step = 0; step < 20; step++) {
        for (int i = 0; i < 2; i++) {
            cm_advance(sides[i].cm, now);
            device_advance(sides[i].device, now, 100);
            deliver(&sides[i], &sides[1 - i], now);
            answer(&sides[1 - i], now);
        }
    }
}

static void connect_over_packets(void **state)
{
    static struct side sides[2];
    struct instant now = {1000000000};
    create(&sides[0], 1);
    create(&sides[1], 2);
    struct cm_listener *listener;
    assert_int_equal(cm_listen(sides[1].cm, 7, NULL, 0, NULL, &listener), STATUS_OK);
    struct cm_connect_request request = {
        .path = {.local = {{1}}, .remote = {{2}}},
        .service_id = 7,
        .parameters = {.qpn = {100}, .path_mtu = PATH_MTU_1024, .ack_timeout = 14},
    };
    assert_int_equal(cm_connect(sides[0].cm, now, &request, &sides[0].connection), STATUS_OK);
    run(sides, now);
    assert_true(sides[0].established && sides[1].established);
    assert_int_equal(cm_disconnect(sides[1].connection, now), STATUS_OK);
    run(sides, now);
    assert_true(sides[0].disconnected && sides[1].disconnected);

    cm_unlisten(listener);
    for (int i = 0; i < 2; i++) {
        cm_release(sides[i].connection, now);
        cm_advance(sides[i].cm, cm_next_deadline(sides[i].cm));
        assert_int_equal(cm_connection_count(sides[i].cm), 0);
        assert_int_equal(device_counters(sides[i].device)->refused[REFUSED_MANAGEMENT], 0);
        cm_destroy(sides[i].cm);
        device_destroy(sides[i].device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(connect_over_packets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
