/* For tests: two devices and the wire between them, in one thread and with a made-up clock.
 *
 * Each device holds one region over a buffer of its own and one queue pair, connected to the
 * other's. Packets in flight lie in a queue per direction; a script decides what happens to each
 * packet sent. Header only: each test that includes it gets its own copy. */
#ifndef WEIR_DEVICE_PAIR_TEST_H
#define WEIR_DEVICE_PAIR_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/base/container.h"
#include "rnic/base/heap.h"
#include "rnic/base/random.h"
#include "rnic/device/device.h"
#include "rnic/queue/completion_queue.h"
#include "rnic/wire/psn.h"
#include "rnic/wire/report.h"

#define PAIR_BUFFER_LENGTH  (4u << 20)
#define PAIR_BUFFER_ADDRESS UINT64_C(0x7000000000)
#define PAIR_FLIGHT_MAX     4096u
#define PAIR_DELAY_NS       UINT64_C(5000)
#define PAIR_TRACE_MAX      65536u

enum fate {
    FATE_DELIVER,
    FATE_LOSE,
    FATE_DUPLICATE,
    FATE_DELAY, /* behind the packets of the next 50 us */
};

struct pair;
/* `side` sends; `number` counts its packets from 0. */
typedef enum fate pair_script(struct pair *pair, int side, uint32_t number,
                              const struct packet *packet);

struct pair_flight {
    struct instant due;
    uint64_t order;
    uint32_t referred; /* bytes of payload that are elsewhere */
    uint8_t segment_shift;
    struct fragment fragments[OUTGOING_FRAGMENT_MAX];
    uint32_t length;
    uint8_t bytes[PACKET_HEADER_MAX + PACKET_PAYLOAD_MAX + 4];
};

struct pair_side {
    struct pair *pair;
    int index;
    struct packet_sink sink;
    struct event_sink events;
    struct device *device;
    struct domain domain;
    struct memory_key key;
    struct completion_queue *sends, *receives;
    struct qp *qp;
    uint8_t *buffer;
    uint32_t sent;
    uint32_t reports, report_length; /* sent, none of which the script sees; of the latest */
    uint32_t sink_room; /* packets that emit takes before it says full; refilled by pair_step */
    uint32_t raised[EVENT_KIND_COUNT];
    struct pair_flight *flight; /* on the way to the other side */
    uint32_t flight_count;
    bool unreadable;       /* what is by reference */
    uint32_t withdrawn[2]; /* calls, of requests and of responses */
};

struct pair {
    struct pair_side sides[2];
    struct instant now;
    uint64_t order;
    pair_script *script;
    struct random random;
    uint32_t knob; /* the script's */
    bool apart;    /* what comes together is received packet by packet, not in a row */
    uint32_t followed;
    char trace[PAIR_TRACE_MAX];
    size_t trace_length;
};

struct pair_options {
    struct direct_link *direct[2]; /* of each side; NULL: none */
    enum service service;
    enum path_mtu mtu;
    uint32_t first_psn;
    unsigned access;
    uint8_t max_reads;
    uint8_t timeout, retry_count, rnr_retry_count, min_rnr_timer;
    uint32_t send_capacity, receive_capacity;
    uint32_t completion_capacity;
    bool signal_all;
    bool selective;
};

static const struct pair_options pair_defaults = {
    .service = SERVICE_RC,
    .mtu = PATH_MTU_1024,
    .first_psn = 0xfffff0,
    .access = ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_ATOMIC,
    .max_reads = 4,
    .timeout = 14,
    .retry_count = 7,
    .rnr_retry_count = 7,
    .min_rnr_timer = 12,
    .send_capacity = 64,
    .receive_capacity = 64,
    .completion_capacity = 256,
};

/* A line of the trace, as long as there is room. */
static inline void pair_note(struct pair_side *side, const struct packet *packet, enum fate fate)
{
    struct pair *pair = side->pair;
    if (pair->trace_length + 256 > sizeof pair->trace) {
        return;
    }
    char text[200];
    (void)packet_describe(packet, text, sizeof text);
    pair->trace_length +=
        (size_t)snprintf(pair->trace + pair->trace_length, 256, "%s %s%s\n",
                         side->index == 0 ? "A" : "B", text, fate == FATE_LOSE ? " lost" : "");
}

static inline void pair_put(struct pair_side *side, struct instant due,
                            const struct outgoing *outgoing)
{
    assert_true(side->flight_count < PAIR_FLIGHT_MAX);
    struct pair_flight *flight = &side->flight[side->flight_count++];
    flight->due = due;
    flight->order = side->pair->order++;
    memcpy(flight->bytes, outgoing->header, outgoing->header_length);
    flight->length = outgoing->header_length;
    flight->segment_shift = outgoing->reference_shift;
    flight->referred = 0;
    if (outgoing->reference_shift != 0) {
        flight->referred = outgoing->payload_length;
        memcpy(flight->fragments, outgoing->fragments,
               outgoing->fragment_count * sizeof *outgoing->fragments);
        return;
    }
    uint32_t length = outgoing->header_length;
    for (uint32_t i = 0; i < outgoing->fragment_count; i++) {
        memcpy(flight->bytes + length, outgoing->fragments[i].bytes, outgoing->fragments[i].length);
        length += outgoing->fragments[i].length;
    }
    assert_int_equal(length, outgoing->header_length + outgoing->payload_length);
    memset(flight->bytes + length, 0, 3);
    flight->length = length + packet_pad(outgoing->payload_length);
}

struct pair_reader {
    struct payload_reader reader; /* first */
    const struct pair_side *from;
    const struct fragment *fragments;
};

static inline bool pair_read(struct payload_reader *reader, uint32_t offset,
                             const struct payload_place *places, uint32_t count)
{
    const struct pair_reader *own = (const struct pair_reader *)reader;
    const struct fragment *fragment = own->fragments;
    if (own->from->unreadable) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t done = 0; done < places[i].length; done++, offset++) {
            while (offset >= fragment->length) {
                offset -= (fragment++)->length;
            }
            places[i].bytes[done] = fragment->bytes[offset];
        }
    }
    return true;
}

static inline enum packet_refusal pair_parse(const struct pair_flight *flight,
                                             struct packet *ret_packet)
{
    struct payload_reference reference = {NULL, flight->referred, flight->segment_shift};
    return flight->referred == 0
               ? packet_parse(flight->bytes, flight->length, ret_packet)
               : packet_parse_reference(flight->bytes, flight->length, &reference, ret_packet);
}

static inline void pair_withdraw(struct packet_sink *sink, const struct path *path,
                                 struct qpn destination, bool responses)
{
    CONTAINER_OF(sink, struct pair_side, sink)->withdrawn[responses]++;
}

static inline bool pair_emit(struct packet_sink *sink, const struct outgoing *outgoing)
{
    struct pair_side *side = CONTAINER_OF(sink, struct pair_side, sink);
    struct pair *pair = side->pair;
    if (side->sink_room == 0) {
        return false;
    }
    side->sink_room--;
    struct instant due = instant_after(pair->now, PAIR_DELAY_NS);
    pair_put(side, due, outgoing);
    struct pair_flight *flight = &side->flight[side->flight_count - 1];
    struct packet packet;
    if (report_is_one(flight->bytes, flight->length)) {
        side->reports++;
        side->report_length = flight->length;
        return true;
    }
    assert_int_equal(pair_parse(flight, &packet), REFUSED_NOT);

    enum fate fate =
        pair->script != NULL ? pair->script(pair, side->index, side->sent, &packet) : FATE_DELIVER;
    side->sent++;
    pair_note(side, &packet, fate);
    if (fate == FATE_LOSE) {
        side->flight_count--;
    } else if (fate == FATE_DUPLICATE) {
        pair_put(side, instant_after(due, PAIR_DELAY_NS), outgoing);
    } else if (fate == FATE_DELAY) {
        flight->due = instant_after(due, 10 * PAIR_DELAY_NS);
    }
    return true;
}

static inline void pair_raise(struct event_sink *sink, const struct event *event)
{
    struct pair_side *side = CONTAINER_OF(sink, struct pair_side, events);
    side->raised[event->kind]++;
}

static inline struct gid pair_gid(int side)
{
    struct gid gid = {{[10] = 0xff, [11] = 0xff, [12] = 10, [15] = (uint8_t)(side + 1)}};
    return gid;
}

static inline struct path pair_path(int side)
{
    return (struct path){
        .local = pair_gid(side), .remote = pair_gid(1 - side), .source_port = 50000};
}

static inline void pair_connect_side(struct pair *pair, int index,
                                     const struct pair_options *options)
{
    struct pair_side *side = &pair->sides[index];
    bool datagram = options->service == SERVICE_UD;
    bool reliable = options->service == SERVICE_RC;
    struct qp_attributes attributes = {
        .path = pair_path(index),
        .path_mtu = options->mtu,
        .destination = qp_number(pair->sides[1 - index].qp),
        .receive_psn = psn_make(options->first_psn + 1000u * (uint32_t)(1 - index)),
        .send_psn = psn_make(options->first_psn + 1000u * (uint32_t)index),
        .access = options->access,
        .max_reads_out = options->max_reads,
        .max_reads_in = options->max_reads,
        .min_rnr_timer = options->min_rnr_timer,
        .timeout = options->timeout,
        .retry_count = options->retry_count,
        .rnr_retry_count = options->rnr_retry_count,
        .port = 1,
        .qkey = {0x1234},
    };
    unsigned init = QP_SET_STATE | QP_SET_PKEY_INDEX | QP_SET_PORT;
    unsigned connected = QP_SET_PATH | QP_SET_PATH_MTU | QP_SET_DESTINATION | QP_SET_RECEIVE_PSN;
    unsigned receive = QP_SET_STATE | (datagram ? 0 : connected) |
                       (reliable ? QP_SET_MAX_READS_IN | QP_SET_MIN_RNR_TIMER : 0);
    unsigned send = QP_SET_STATE | QP_SET_SEND_PSN |
                    (reliable ? QP_SET_TIMEOUT | QP_SET_RETRY_COUNT | QP_SET_RNR_RETRY_COUNT |
                                    QP_SET_MAX_READS_OUT
                              : 0);
    attributes.state = QP_INIT;
    assert_int_equal(device_modify_qp(side->device, pair->now, side->qp, &attributes,
                                      init | (datagram ? QP_SET_QKEY : QP_SET_ACCESS), NULL),
                     STATUS_OK);
    attributes.state = QP_RTR;
    assert_int_equal(
        device_modify_qp(side->device, pair->now, side->qp, &attributes, receive, NULL), STATUS_OK);
    attributes.state = QP_RTS;
    assert_int_equal(device_modify_qp(side->device, pair->now, side->qp, &attributes, send, NULL),
                     STATUS_OK);
}

static inline void pair_create_side(struct pair *pair, int index,
                                    const struct pair_options *options)
{
    struct pair_side *side = &pair->sides[index];
    side->pair = pair;
    side->index = index;
    side->sink.emit = pair_emit;
    side->events.raise = pair_raise;
    struct allocator *heap = heap_allocator();
    side->buffer = heap->allocate(heap, PAIR_BUFFER_LENGTH);
    side->flight = heap->allocate(heap, PAIR_FLIGHT_MAX * sizeof *side->flight);
    side->sink_room = UINT32_MAX;
    assert_non_null(side->buffer);
    assert_non_null(side->flight);
    struct device_config config = {
        .allocator = heap_allocator(),
        .sink = &side->sink,
        .events = &side->events,
        .key = {{7 + (uint64_t)index}},
        .direct = options->direct[index],
        .first_qpn = {0x100},
        .qpn_count = 256,
        .max_regions = 16,
        .max_reads_in = 16,
        .selective_qps = options->selective ? 4 : 0,
        .selective_packets = options->selective ? 64 : 0,
    };
    assert_int_equal(device_create(&config, &side->device), STATUS_OK);
    struct memory *memory = device_memory(side->device);
    assert_int_equal(memory_allocate_domain(memory, &side->domain), STATUS_OK);
    struct region_attributes region = {
        .domain = side->domain,
        .address = PAIR_BUFFER_ADDRESS,
        .length = PAIR_BUFFER_LENGTH,
        .bytes = side->buffer,
        .access = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE |
                  ACCESS_REMOTE_ATOMIC | ACCESS_BIND_WINDOW,
    };
    assert_int_equal(memory_register(memory, &region, &side->key), STATUS_OK);
    assert_int_equal(
        completion_queue_create(config.allocator, options->completion_capacity, NULL, &side->sends),
        STATUS_OK);
    assert_int_equal(completion_queue_create(config.allocator, options->completion_capacity, NULL,
                                             &side->receives),
                     STATUS_OK);
    struct qp_init init = {
        .service = options->service,
        .domain = side->domain,
        .send_completions = side->sends,
        .receive_completions = side->receives,
        .send = {.capacity = options->send_capacity, .max_sge = 4, .max_inline = 256},
        .max_receive = options->receive_capacity,
        .max_receive_sge = 4,
        .signal_all = options->signal_all,
        .context = side,
    };
    assert_int_equal(device_create_qp(side->device, &init, &side->qp), STATUS_OK);
}

static inline struct pair *pair_create(const struct pair_options *options)
{
    struct pair *pair = calloc(1, sizeof *pair);
    assert_non_null(pair);
    pair->now.ns = 1000000;
    random_seed(&pair->random, 1);
    pair_create_side(pair, 0, options);
    pair_create_side(pair, 1, options);
    pair_connect_side(pair, 0, options);
    pair_connect_side(pair, 1, options);
    return pair;
}

static inline void pair_destroy(struct pair *pair)
{
    for (int i = 0; i < 2; i++) {
        struct pair_side *side = &pair->sides[i];
        if (side->qp != NULL) {
            device_destroy_qp(side->device, side->qp);
        }
        completion_queue_destroy(side->sends);
        completion_queue_destroy(side->receives);
        struct memory *memory = device_memory(side->device);
        assert_int_equal(memory_deregister(memory, side->key), STATUS_OK);
        assert_int_equal(memory_free_domain(memory, side->domain), STATUS_OK);
        device_destroy(side->device);
        heap_allocator()->release(heap_allocator(), side->buffer);
        heap_allocator()->release(heap_allocator(), side->flight);
    }
    free(pair);
}

/* The index of the packet that arrives next; -1 if none is on the way. */
static inline int pair_next_arrival(const struct pair_side *side)
{
    int best = -1;
    for (uint32_t i = 0; i < side->flight_count; i++) {
        const struct pair_flight *flight = &side->flight[i];
        if (best < 0 || instant_before(flight->due, side->flight[best].due) ||
            (flight->due.ns == side->flight[best].due.ns &&
             flight->order < side->flight[best].order)) {
            best = (int)i;
        }
    }
    return best;
}

static inline void pair_deliver(struct pair_side *from)
{
    struct pair *pair = from->pair;
    struct pair_side *to = &pair->sides[1 - from->index];
    struct follow follow = {.qp = NULL};
    for (int next; (next = pair_next_arrival(from)) >= 0;) {
        struct pair_flight *flight = &from->flight[next];
        if (instant_before(pair->now, flight->due)) {
            return;
        }
        struct arrival arrival = {.path = pair_path(to->index)};
        struct pair_reader reader = {{pair_read}, from, flight->fragments};
        struct payload_reference reference = {&reader.reader, flight->referred,
                                              flight->segment_shift};
        if (!pair->apart && follow_fits(&follow, flight->bytes, flight->length)) {
            follow_receive(&follow, flight->bytes);
            pair->followed++;
        } else if (flight->referred == 0) {
            device_receive_in_row(to->device, pair->now, &arrival, flight->bytes, flight->length,
                                  &follow);
        } else {
            follow.qp = NULL;
            device_receive_reference(to->device, pair->now, &arrival, flight->bytes, flight->length,
                                     &reference);
        }
        struct pair_flight *last = &from->flight[--from->flight_count];
        if (flight != last) {
            memcpy(flight, last, offsetof(struct pair_flight, bytes) + last->length);
        }
    }
}

static inline void pair_advance(struct pair *pair)
{
    for (int i = 0; i < 2; i++) {
        struct pair_side *side = &pair->sides[i];
        while (device_advance(side->device, pair->now, 64) && side->sink_room > 0) {
        }
    }
}

/* To the next thing that happens. False: nothing will. */
static inline bool pair_step(struct pair *pair)
{
    pair_advance(pair);
    struct instant next = INSTANT_NEVER;
    for (int i = 0; i < 2; i++) {
        struct pair_side *side = &pair->sides[i];
        int arrival = pair_next_arrival(side);
        if (arrival >= 0) {
            next = instant_earlier(next, side->flight[arrival].due);
        }
        next = instant_earlier(next, device_next_deadline(side->device));
    }
    if (instant_is_never(next)) {
        return false;
    }
    if (instant_before(pair->now, next)) {
        pair->now = next;
    }
    pair_deliver(&pair->sides[0]);
    pair_deliver(&pair->sides[1]);
    pair_advance(pair);
    return true;
}

/* Until nothing happens any more, or for `limit_ns` of made-up time. */
static inline void pair_run_for(struct pair *pair, uint64_t limit_ns)
{
    struct instant end = instant_after(pair->now, limit_ns);
    for (uint32_t steps = 0; !instant_before(end, pair->now) && pair_step(pair); steps++) {
        assert_true(steps < 2000000);
    }
}

static inline void pair_run(struct pair *pair)
{
    pair_run_for(pair, UINT64_C(100000000000));
}

static inline void pair_fill(struct pair_side *side, uint32_t offset, uint32_t length,
                             uint32_t seed)
{
    for (uint32_t i = 0; i < length; i++) {
        side->buffer[offset + i] = (uint8_t)((i * 2654435761u + seed * 40503u) >> 13);
    }
}

static inline struct sge pair_sge(const struct pair_side *side, uint32_t offset, uint32_t length)
{
    return (struct sge){PAIR_BUFFER_ADDRESS + offset, length, side->key};
}

static inline void pair_post(struct pair_side *side, const struct send_request *request)
{
    assert_int_equal(qp_post_send(side->qp, request), STATUS_OK);
    (void)device_ring(side->device, side->qp);
}

/* A request over the two buffers, signaled: `local` and `remote` are offsets. */
static inline struct send_request pair_request(struct pair_side *side, enum work_kind kind,
                                               uint64_t id, const struct sge *sge, uint32_t remote)
{
    const struct pair_side *peer = &side->pair->sides[1 - side->index];
    return (struct send_request){
        .id = id,
        .kind = kind,
        .signaled = true,
        .sges = sge,
        .sge_count = 1,
        .remote_address = PAIR_BUFFER_ADDRESS + remote,
        .remote_key = peer->key,
    };
}

static inline void pair_post_simple(struct pair_side *side, enum work_kind kind, uint64_t id,
                                    uint32_t local, uint32_t remote, uint32_t length)
{
    struct sge sge = pair_sge(side, local, length);
    struct send_request request = pair_request(side, kind, id, &sge, remote);
    pair_post(side, &request);
}

static inline void pair_post_receive(struct pair_side *side, uint64_t id, uint32_t local,
                                     uint32_t length)
{
    struct sge sge = pair_sge(side, local, length);
    struct receive_request request = {.id = id, .sges = &sge, .sge_count = 1};
    assert_int_equal(qp_post_receive(side->qp, &request), STATUS_OK);
    if (qp_current_state(side->qp) == QP_ERROR) {
        (void)device_ring(side->device, side->qp);
    }
}

/* Changes nothing but the state. */
static inline void pair_modify(struct pair_side *side, enum qp_state to)
{
    struct qp_attributes attributes = {.state = to};
    assert_int_equal(
        device_modify_qp(side->device, side->pair->now, side->qp, &attributes, QP_SET_STATE, NULL),
        STATUS_OK);
}

static inline struct completion pair_expect(struct completion_queue *queue, uint64_t id,
                                            enum completion_status status)
{
    struct completion completion = {.id = UINT64_MAX};
    assert_int_equal(completion_queue_poll(queue, 1, &completion), 1);
    assert_int_equal(completion.id, id);
    assert_int_equal(completion.status, status);
    return completion;
}

static inline void pair_expect_none(struct completion_queue *queue)
{
    struct completion completion;
    assert_int_equal(completion_queue_poll(queue, 1, &completion), 0);
}

#endif
