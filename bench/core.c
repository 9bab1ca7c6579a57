/* What a message costs the core alone: two devices, one thread, packets handed across in memory.
 *
 * No socket, no thread, no clock in the loop: what is counted is posting, building and parsing
 * packets, executing, acknowledging, completing and polling, on both sides together. Instructions
 * per message (bench/instructions.py runs this under callgrind) repeat exactly on a loaded machine;
 * the nanoseconds printed are a hint. Not here: the links, and the public libibverbs above. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rnic/base/check.h"
#include "rnic/base/container.h"
#include "rnic/base/heap.h"
#include "rnic/device/device.h"
#include "rnic/queue/completion_queue.h"

#define BUFFER_LENGTH  (1u << 20)
#define BUFFER_ADDRESS UINT64_C(0x7000000000)
#define WIRE_PACKETS   64u
#define SENDS          256u
#define RECEIVES       256u
#define READS          16u
#define POLL_MAX       32u
#define COUNT_DEFAULT  200000u
#define TURN_NS        1000u /* of made-up time, for each message of a batch */
#define MANY           10000u

struct wire_packet {
    uint32_t length;
    uint8_t bytes[PACKET_HEADER_MAX + PACKET_PAYLOAD_MAX];
};

struct end {
    struct packet_sink sink;
    struct wire_packet *wire; /* towards the other end: a ring */
    uint32_t wire_head, wire_tail;
    struct device *device;
    struct domain domain;
    struct memory_key key;
    struct completion_queue *sends, *receives;
    uint32_t qp_count;
    struct qp **qps;
    uint8_t *buffer;
    struct arrival arrival; /* of what comes here */
};

struct pair {
    struct end ends[2];
    struct instant now;
    uint64_t posted;
};

struct bench_case {
    const char *name;
    enum work_kind kind;
    uint32_t length, batch;
    uint32_t qps; /* another each time, far from the last */
};

static const struct bench_case cases[] = {
    {"send", WORK_SEND, 8, 1, 1},
    {"send_batch", WORK_SEND, 8, 16, 1},
    {"write", WORK_WRITE, 8, 1, 1},
    {"write_batch", WORK_WRITE, 8, 16, 1},
    {"read", WORK_READ, 8, 1, 1},
    {"read_batch", WORK_READ, 8, 16, 1},
    {"send_4k", WORK_SEND, 4096, 1, 1},
    {"send_4k_batch", WORK_SEND, 4096, 16, 1},
    {"write_4k", WORK_WRITE, 4096, 1, 1},
    {"write_4k_batch", WORK_WRITE, 4096, 16, 1},
    {"read_4k", WORK_READ, 4096, 1, 1},
    {"read_4k_batch", WORK_READ, 4096, 16, 1},
    {"write_one_qp", WORK_WRITE, 8, 64, 1},
    {"write_64_qps", WORK_WRITE, 8, 64, 64},
    {"write_many_qps", WORK_WRITE, 8, 64, MANY},
};

static void must(enum status status)
{
    CHECK(status == STATUS_OK);
}

static bool emit(struct packet_sink *sink, const struct outgoing *outgoing)
{
    struct end *end = CONTAINER_OF(sink, struct end, sink);
    if (end->wire_tail - end->wire_head == WIRE_PACKETS) {
        return false;
    }
    struct wire_packet *packet = &end->wire[end->wire_tail++ % WIRE_PACKETS];
    uint8_t *to = packet->bytes;
    memcpy(to, outgoing->header, outgoing->header_length);
    to += outgoing->header_length;
    for (uint32_t i = 0; i < outgoing->fragment_count; i++) {
        memcpy(to, outgoing->fragments[i].bytes, outgoing->fragments[i].length);
        to += outgoing->fragments[i].length;
    }
    packet->length = (uint32_t)(to - packet->bytes); /* all lengths here are multiples of 4 */
    return true;
}

static struct gid address_of(int index)
{
    return (struct gid){{[10] = 0xff, [11] = 0xff, [12] = 10, [15] = (uint8_t)(index + 1)}};
}

static void create(struct end *end, int index, const struct bench_case *bench)
{
    struct allocator *heap = heap_allocator();
    end->sink.emit = emit;
    end->wire = heap->allocate(heap, WIRE_PACKETS * sizeof *end->wire);
    end->buffer = heap->allocate(heap, BUFFER_LENGTH);
    CHECK(end->wire != NULL && end->buffer != NULL);
    end->arrival.path = (struct path){
        .local = address_of(index), .remote = address_of(1 - index), .source_port = 50000};
    must(device_create(&(struct device_config){.allocator = heap,
                                               .sink = &end->sink,
                                               .key = {{7 + (uint64_t)index}},
                                               .first_qpn = {0x100},
                                               .qpn_count = 2 * MANY,
                                               .max_regions = 16,
                                               .max_reads_in = READS},
                       &end->device));
    struct memory *memory = device_memory(end->device);
    must(memory_allocate_domain(memory, &end->domain));
    must(memory_register(memory,
                         &(struct region_attributes){.domain = end->domain,
                                                     .address = BUFFER_ADDRESS,
                                                     .length = BUFFER_LENGTH,
                                                     .bytes = end->buffer,
                                                     .access = ACCESS_LOCAL_WRITE |
                                                               ACCESS_REMOTE_READ |
                                                               ACCESS_REMOTE_WRITE},
                         &end->key));
    must(completion_queue_create(heap, SENDS, NULL, &end->sends));
    must(completion_queue_create(heap, RECEIVES, NULL, &end->receives));
    completion_queue_never_arm(end->sends); /* as libibverbs does where there is no channel */
    completion_queue_never_arm(end->receives);
    end->qp_count = bench->qps;
    end->qps = calloc(end->qp_count, sizeof(struct qp *));
    CHECK(end->qps != NULL);
    bool receives = bench->kind == WORK_SEND;
    for (uint32_t i = 0; i < end->qp_count; i++) {
        must(device_create_qp(
            end->device,
            &(struct qp_init){.service = SERVICE_RC,
                              .domain = end->domain,
                              .send_completions = end->sends,
                              .receive_completions = end->receives,
                              .send = {.capacity = bench->qps > 1 ? 1 : SENDS, .max_sge = 1},
                              .max_receive = receives ? RECEIVES : 0,
                              .max_receive_sge = 1},
            &end->qps[i]));
    }
}

static void connect_to(struct pair *pair, int index, uint32_t which)
{
    struct end *end = &pair->ends[index];
    struct qp *qp = end->qps[which];
    struct qp_attributes attributes = {
        .path = end->arrival.path,
        .path_mtu = PATH_MTU_4096,
        .destination = qp_number(pair->ends[1 - index].qps[which]),
        .access = ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE,
        .max_reads_out = READS,
        .max_reads_in = READS,
        .timeout = 14,
        .retry_count = 7,
        .rnr_retry_count = 7,
        .port = 1,
    };
    attributes.state = QP_INIT;
    must(device_modify_qp(end->device, pair->now, qp, &attributes,
                          QP_SET_STATE | QP_SET_PKEY_INDEX | QP_SET_PORT | QP_SET_ACCESS, NULL));
    attributes.state = QP_RTR;
    must(device_modify_qp(end->device, pair->now, qp, &attributes,
                          QP_SET_STATE | QP_SET_PATH | QP_SET_PATH_MTU | QP_SET_DESTINATION |
                              QP_SET_RECEIVE_PSN | QP_SET_MAX_READS_IN | QP_SET_MIN_RNR_TIMER,
                          NULL));
    attributes.state = QP_RTS;
    must(device_modify_qp(end->device, pair->now, qp, &attributes,
                          QP_SET_STATE | QP_SET_SEND_PSN | QP_SET_TIMEOUT | QP_SET_RETRY_COUNT |
                              QP_SET_RNR_RETRY_COUNT | QP_SET_MAX_READS_OUT,
                          NULL));
}

static void destroy(struct end *end)
{
    struct allocator *heap = heap_allocator();
    struct memory *memory = device_memory(end->device);
    for (uint32_t i = 0; i < end->qp_count; i++) {
        device_destroy_qp(end->device, end->qps[i]);
    }
    free(end->qps);
    completion_queue_destroy(end->sends);
    completion_queue_destroy(end->receives);
    must(memory_deregister(memory, end->key));
    must(memory_free_domain(memory, end->domain));
    device_destroy(end->device);
    heap->release(heap, end->buffer);
    heap->release(heap, end->wire);
}

static void post_receive(struct end *end, uint32_t length)
{
    struct sge sge = {BUFFER_ADDRESS, length, end->key};
    must(qp_post_receive(end->qps[0], &(struct receive_request){.sges = &sge, .sge_count = 1}));
}

static void post(struct pair *pair, const struct bench_case *bench)
{
    struct end *end = &pair->ends[0];
    struct qp *qp = end->qps[pair->posted++ * 7919 % end->qp_count];
    struct sge sge = {BUFFER_ADDRESS, bench->length, end->key};
    struct send_request request = {
        .kind = bench->kind,
        .signaled = true,
        .sges = &sge,
        .sge_count = 1,
        .remote_address = BUFFER_ADDRESS,
        .remote_key = pair->ends[1].key,
    };
    must(qp_post_send(qp, &request));
    (void)device_ring(end->device, qp);
}

static void deliver(struct pair *pair, int from)
{
    struct end *source = &pair->ends[from];
    struct end *target = &pair->ends[1 - from];
    while (source->wire_head != source->wire_tail) {
        const struct wire_packet *packet = &source->wire[source->wire_head++ % WIRE_PACKETS];
        if (source->wire_tail - source->wire_head > 1) {
            device_expect(target->device,
                          source->wire[(source->wire_head + 1) % WIRE_PACKETS].bytes);
        }
        device_receive(target->device, pair->now, &target->arrival, packet->bytes, packet->length);
    }
}

static uint32_t reap(struct completion_queue *queue)
{
    struct completion completions[POLL_MAX];
    uint32_t total = 0, count;
    while ((count = completion_queue_poll(queue, POLL_MAX, completions)) > 0) {
        for (uint32_t i = 0; i < count; i++) {
            CHECK(completions[i].status == COMPLETION_SUCCESS);
        }
        total += count;
    }
    return total;
}

/* One batch there, what it draws back, and all completions. */
static uint32_t turn(struct pair *pair, const struct bench_case *bench)
{
    struct end *ends = pair->ends;
    for (uint32_t i = 0; i < bench->batch; i++) {
        post(pair, bench);
    }
    pair->now.ns += (uint64_t)TURN_NS * bench->batch;
    (void)device_advance(ends[0].device, pair->now, WIRE_PACKETS);
    deliver(pair, 0);
    (void)device_advance(ends[1].device, pair->now, WIRE_PACKETS);
    for (uint32_t received = reap(ends[1].receives); received > 0; received--) {
        post_receive(&ends[1], bench->length);
    }
    deliver(pair, 1);
    return reap(ends[0].sends);
}

static void run(const struct bench_case *bench, uint32_t count)
{
    struct pair *pair = calloc(1, sizeof *pair);
    CHECK(pair != NULL);
    pair->now.ns = 1000000;
    create(&pair->ends[0], 0, bench);
    create(&pair->ends[1], 1, bench);
    for (uint32_t i = 0; i < pair->ends[0].qp_count; i++) {
        connect_to(pair, 0, i);
        connect_to(pair, 1, i);
    }
    for (uint32_t i = 0; bench->kind == WORK_SEND && i < RECEIVES; i++) {
        post_receive(&pair->ends[1], bench->length);
    }
    struct timespec start, end;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
    for (uint32_t done = 0, got; done < count; done += got) {
        got = turn(pair, bench);
        CHECK(got > 0);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    double ns = (double)(end.tv_sec - start.tv_sec) * 1e9 + (double)(end.tv_nsec - start.tv_nsec);
    printf("%-14s %6.1f ns per message, both sides\n", bench->name, ns / count);
    destroy(&pair->ends[0]);
    destroy(&pair->ends[1]);
    free(pair);
}

int main(int argc, char **argv)
{
    uint32_t count = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : COUNT_DEFAULT;
    bool found = false;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (argc < 2 || strcmp(argv[1], cases[i].name) == 0) {
            run(&cases[i], count);
            found = true;
        }
    }
    if (!found) {
        fprintf(stderr, "usage: core [CASE [MESSAGES]]; no case %s; cases:", argv[1]);
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            fprintf(stderr, " %s", cases[i].name);
        }
        fprintf(stderr, "\n");
    }
    return found ? 0 : 2;
}
