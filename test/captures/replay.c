#include "test/captures/replay.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/base/container.h"
#include "rnic/base/heap.h"
#include "rnic/device/device.h"
#include "rnic/wire/psn.h"
#include "rnic/wire/report.h"
#include "test/captures/replay_private.h"

void replay_open(const char *folder, const char *capture, struct replay_capture *ret_capture)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s.pcap", folder, capture);
    const char *wrong = pcap_read(path, &ret_capture->pcap);
    if (wrong != NULL) {
        fail_msg("%s: %s", path, wrong);
    }
    ret_capture->frames = calloc(ret_capture->pcap.count, sizeof *ret_capture->frames);
    assert_non_null(ret_capture->frames);
    for (uint32_t i = 0; i < ret_capture->pcap.count; i++) {
        const struct pcap_frame *frame = &ret_capture->pcap.frames[i];
        assert_null(frame_parse(frame->bytes, frame->length, &ret_capture->frames[i]));
    }
}

void replay_close(struct replay_capture *capture)
{
    free(capture->frames);
    pcap_free(&capture->pcap);
}

int frame_side(const struct frame *frame)
{
    return memcmp(frame->path.local.bytes, frame->path.remote.bytes, 16) < 0 ? 0 : 1;
}

static bool is_of_connection(const struct world *world, const struct frame *frame)
{
    int to = 1 - frame_side(frame);
    return !frame->is_management &&
           qpn_equal(frame->packet.destination, world->connection->qpns[to]);
}

bool is_ours(const struct world *world, const struct frame *frame)
{
    return is_of_connection(world, frame) && frame_side(frame) == world->side;
}

bool is_peers(const struct world *world, const struct frame *frame)
{
    return is_of_connection(world, frame) && frame_side(frame) != world->side;
}

/* Takes `length` bytes from the BTH on into the list. */
static void keep(struct replay_packets lists[2], const uint8_t *bytes, uint32_t length,
                 struct replay_packet *packet)
{
    packet->bytes = malloc(length);
    assert_non_null(packet->bytes);
    memcpy(packet->bytes, bytes, length);
    packet->length = length;
    assert_int_equal(packet_parse(packet->bytes, length, &packet->packet), REFUSED_NOT);
    struct replay_packets *list = &lists[packet->packet.info->is_request];
    list->packets = realloc(list->packets, (list->count + 1) * sizeof *list->packets);
    assert_non_null(list->packets);
    list->packets[list->count++] = *packet;
}

#define REPORTS_MAX 8u /* the logarithm of what is lost on a connection */

static bool emit(struct packet_sink *sink, const struct outgoing *outgoing)
{
    struct world *world = CONTAINER_OF(sink, struct world, sink);
    uint8_t bytes[PACKET_HEADER_MAX + PACKET_PAYLOAD_MAX + 4];
    uint32_t length = outgoing->header_length;
    memcpy(bytes, outgoing->header, length);
    for (uint32_t i = 0; i < outgoing->fragment_count; i++) {
        memcpy(bytes + length, outgoing->fragments[i].bytes, outgoing->fragments[i].length);
        length += outgoing->fragments[i].length;
    }
    uint32_t pad = packet_pad(outgoing->payload_length);
    memset(bytes + length, 0, pad);
    if (report_is_one(bytes, length)) {
        /* A question that rxe drops unread; for the rest it must be as if it had not been asked. */
        assert_true(++world->reports <= REPORTS_MAX);
        return true;
    }
    struct replay_packet packet = {.time_ns = world->now.ns, .path = *outgoing->path};
    keep(world->result->ours, bytes, length + pad, &packet);
    return true;
}

static void raise_event(struct event_sink *sink, const struct event *event)
{
    (void)sink;
    (void)event;
}

/* The first PSN that the side asks anything with; 0 if it does not. */
static struct psn first_psn(const struct world *world, bool ours)
{
    for (uint32_t i = 0; i < world->capture->pcap.count; i++) {
        const struct frame *frame = &world->capture->frames[i];
        if ((ours ? is_ours : is_peers)(world, frame) && frame->packet.info->is_request) {
            return frame->packet.psn;
        }
    }
    return (struct psn){0};
}

static void connect_qp(struct world *world, const struct path *path)
{
    bool datagram = world->connection->service == SERVICE_UD;
    bool reliable = world->connection->service == SERVICE_RC;
    struct qp_attributes attributes = {
        .path = *path,
        .path_mtu = world->connection->mtu,
        .destination = world->connection->qpns[1 - world->side],
        .receive_psn = first_psn(world, false),
        .send_psn = first_psn(world, true),
        .access = ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_ATOMIC,
        .max_reads_out = 16,
        .max_reads_in = 16,
        .min_rnr_timer = 12,
        .timeout = 14,
        .retry_count = 7,
        .rnr_retry_count = 7,
        .port = 1,
        .qkey = {0x11111111},
    };
    const unsigned masks[] = {
        QP_SET_STATE | QP_SET_PKEY_INDEX | QP_SET_PORT | (datagram ? QP_SET_QKEY : QP_SET_ACCESS),
        QP_SET_STATE |
            (datagram ? 0
                      : QP_SET_PATH | QP_SET_PATH_MTU | QP_SET_DESTINATION | QP_SET_RECEIVE_PSN) |
            (reliable ? QP_SET_MAX_READS_IN | QP_SET_MIN_RNR_TIMER : 0),
        QP_SET_STATE | QP_SET_SEND_PSN |
            (reliable ? QP_SET_TIMEOUT | QP_SET_RETRY_COUNT | QP_SET_RNR_RETRY_COUNT |
                            QP_SET_MAX_READS_OUT
                      : 0),
    };
    for (int i = 0; i < 3; i++) {
        attributes.state = (enum qp_state)(QP_INIT + i);
        assert_int_equal(
            device_modify_qp(world->device, world->now, world->qp, &attributes, masks[i], NULL),
            STATUS_OK);
    }
    world->expected = attributes.receive_psn;
}

/* A device whose only queue pair number is the captured one. */
static void create(struct world *world)
{
    struct device_config config = {
        .allocator = heap_allocator(),
        .sink = &world->sink,
        .events = &world->events,
        .key = {{1}},
        .first_qpn = world->connection->qpns[world->side],
        .qpn_count = 1,
        .max_regions = replay_key_numbers(world),
        .max_reads_in = 16,
        .selective_qps = 1,
        .selective_packets = 64,
    };
    world->sink.emit = emit;
    world->events.raise = raise_event;
    assert_int_equal(device_create(&config, &world->device), STATUS_OK);
    world->memory = device_memory(world->device);
    assert_int_equal(memory_allocate_domain(world->memory, &world->domain), STATUS_OK);
    assert_int_equal(
        completion_queue_create(config.allocator, COMPLETIONS_MAX, NULL, &world->completions),
        STATUS_OK);
    struct qp_init init = {
        .service = world->connection->service,
        .domain = world->domain,
        .send_completions = world->completions,
        .receive_completions = world->completions,
        .send = {.capacity = COMPLETIONS_MAX, .max_sge = 1},
        .max_receive = COMPLETIONS_MAX,
        .max_receive_sge = 1,
    };
    assert_int_equal(device_create_qp(world->device, &init, &world->qp), STATUS_OK);
    assert_int_equal(qp_number(world->qp).value, config.first_qpn.value);
    replay_place_keys(world);
}

static void destroy(struct world *world)
{
    device_destroy_qp(world->device, world->qp);
    completion_queue_destroy(world->completions);
    replay_remove_keys(world);
    assert_int_equal(memory_free_domain(world->memory, world->domain), STATUS_OK);
    device_destroy(world->device);
}

static void take_completions(struct world *world)
{
    struct completion completion;
    while (completion_queue_poll(world->completions, 1, &completion) == 1) {
        if (completion.id < RECEIVE_IDS) {
            world->result->completed++;
            world->result->failed += completion.status != COMPLETION_SUCCESS;
        }
        replay_check_bytes(world, &completion);
    }
}

static void advance(struct world *world)
{
    while (device_advance(world->device, world->now, UINT32_MAX)) {
    }
    take_completions(world);
}

/* Timers that expire on the way go off at their own time. */
static void advance_to(struct world *world, uint64_t time_ns)
{
    for (;;) {
        struct instant next = device_next_deadline(world->device);
        if (next.ns > time_ns) {
            break;
        }
        world->now.ns = next.ns > world->now.ns ? next.ns : world->now.ns;
        advance(world);
    }
    world->now.ns = time_ns;
}

static void keep_captured(struct world *world, uint32_t number)
{
    const struct pcap_frame *captured = &world->capture->pcap.frames[number];
    const struct frame *frame = &world->capture->frames[number];
    uint32_t bth = frame_bth_offset(captured->bytes);
    struct replay_packet packet = {
        .time_ns = captured->time_ns, .path = frame->path, .ip = frame->ip};
    keep(world->result->theirs, captured->bytes + bth, captured->length - bth - ICRC_LENGTH,
         &packet);
}

static void feed(struct world *world, uint32_t number)
{
    const struct pcap_frame *captured = &world->capture->pcap.frames[number];
    const struct frame *frame = &world->capture->frames[number];
    struct arrival arrival = {.path = path_reverse(&frame->path)};
    uint32_t bth = frame_bth_offset(captured->bytes);
    if (frame->packet.info->is_request) {
        replay_prepare(world, number);
    }
    device_receive(world->device, world->now, &arrival, captured->bytes + bth,
                   captured->length - bth - ICRC_LENGTH);
}

void replay_run(const struct replay_capture *capture, const struct replay_connection *connection,
                int side, struct replay_result *ret_result)
{
    *ret_result = (struct replay_result){.posted = 0};
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    world->capture = capture;
    world->connection = connection;
    world->side = side;
    world->result = ret_result;
    world->now.ns = capture->pcap.frames[0].time_ns;
    create(world);
    bool connected = false;
    for (uint32_t i = 0; i < capture->pcap.count; i++) {
        const struct frame *frame = &capture->frames[i];
        if (!is_of_connection(world, frame)) {
            continue;
        }
        advance_to(world, capture->pcap.frames[i].time_ns);
        if (!connected) {
            struct path path = is_ours(world, frame) ? frame->path : path_reverse(&frame->path);
            connect_qp(world, &path);
            connected = true;
        }
        if (is_ours(world, frame)) {
            keep_captured(world, i);
            replay_post(world, i);
        } else {
            feed(world, i);
        }
        advance(world);
    }
    destroy(world);
    free(world);
}

void replay_free(struct replay_result *result)
{
    for (int k = 0; k < 2; k++) {
        struct replay_packets *lists[] = {&result->theirs[k], &result->ours[k]};
        for (int l = 0; l < 2; l++) {
            for (uint32_t i = 0; i < lists[l]->count; i++) {
                free(lists[l]->packets[i].bytes);
            }
            free(lists[l]->packets);
        }
    }
}
