/* For tests of an XRC domain that several processes share.
 *
 * A is the peer. B, C and D are processes of one host, each with a queue of the domain; targets are
 * in B and C, and A's requests name any queue. Every message says which it is, so that the judge
 * sees whether each came once, in order and whole. Header only: each test has its own copy. */
#ifndef WEIR_SIM_SCENARIOS_XRC_SHARED_H
#define WEIR_SIM_SCENARIOS_XRC_SHARED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "rnic/base/bytes.h"
#include "rnic/wire/psn.h"
#include "sim/dice.h"
#include "sim/neighbours.h"

#define NODES     4u
#define LINES     2u
#define OPS       40u
#define SLOT      16384u /* bytes: one message */
#define RECEIVES  16u
#define QUEUE     64u
#define COUNTER   (LINES * OPS * SLOT) /* where the atomics count */
#define SOURCE    (COUNTER + SLOT)     /* what READs bring */
#define LANDING   (SOURCE + SLOT)      /* receive buffers */
#define BYTES     (LANDING + RECEIVES * SLOT)
#define LENGTH    1200u
#define LONG      12000u    /* more than a target holds */
#define FIRST_PSN 0xfffff8u /* wraps on the way */
#define TIMEOUT   14u       /* 67 ms */
#define RUN_NS    UINT64_C(60000000000)
#define EVENT_MAX 4000000u
#define ACCESS                                                                                     \
    (ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_ATOMIC)

static const struct xrc_domain common = {.space = 17, .name = 4711};

struct op {
    enum work_kind kind;
    unsigned node; /* whose queue */
    uint32_t length;
    bool is_done, is_received;
    enum completion_status status;
};

struct node {
    struct host host;
    struct domain domain;
    struct memory_key key;
    uint8_t *bytes;
    struct completion_queue *completions;
    struct receive_queue *receives;
    struct xrc_queue shared;
    uint32_t posted, received;
    bool is_posted[RECEIVES]; /* one that a slow message has may be older than those of others */
    uint32_t last[LINES];     /* op received last of each line, and one */
    uint64_t added;
};

struct line {
    struct qp *initiator, *target;
    struct qpn target_number; /* also when its host is dead */
    unsigned target_node;
    struct op ops[OPS];
    uint32_t op_count, posted, done;
};

static struct {
    struct simulator simulator;
    struct network network;
    struct neighbours neighbours;
    struct host_application application;
    struct node nodes[NODES];
    struct line lines[LINES];
    struct dice dice;
    bool by_hand;    /* receives are posted by the test */
    uint8_t timeout; /* of the initiators */
    struct psn first_psn;
    uint32_t wrong;   /* messages that came out of order, or with other bytes */
    uint32_t flushed; /* receives */
    uint32_t access_errors;
    char *text;
    size_t text_length;
} w;

static inline uint8_t *slot_of(struct node *node, uint32_t line, uint32_t op)
{
    return node->bytes + (line * OPS + op) * SLOT;
}

static inline void post_receive(struct node *node)
{
    if (!host_is_alive(&node->host) || node->posted - node->received == RECEIVES) {
        return;
    }
    uint32_t free = node->posted % RECEIVES;
    while (node->is_posted[free]) {
        free = (free + 1) % RECEIVES;
    }
    node->is_posted[free] = true;
    uint32_t place = LANDING + free * SLOT;
    struct sge sge = {place, SLOT, node->key};
    struct receive_request request = {.id = place, .sges = &sge, .sge_count = 1};
    assert_int_equal(receive_queue_post(node->receives, &request), STATUS_OK);
    node->posted++;
}

static inline void post_later(void *context, uint64_t unused)
{
    (void)unused;
    post_receive(context);
}

/* A SEND says in its first bytes which it is, a WRITE in its immediate. */
static inline void check_received(struct node *node, const struct completion *completion)
{
    uint32_t name = completion->kind == COMPLETED_RECEIVE_WRITE_IMMEDIATE
                        ? completion->immediate
                        : bytes_load_u32(node->bytes + completion->id);
    uint32_t line = name >> 16, index = name & 0xffff;
    if (line >= LINES || index >= w.lines[line].op_count) {
        w.wrong++;
        return;
    }
    struct op *op = &w.lines[line].ops[index];
    const uint8_t *expected = slot_of(&w.nodes[0], line, index);
    const uint8_t *actual = completion->kind == COMPLETED_RECEIVE_WRITE_IMMEDIATE
                                ? slot_of(node, line, index)
                                : node->bytes + completion->id;
    bool right = &w.nodes[op->node] == node && !op->is_received && index >= node->last[line] &&
                 completion->byte_length == op->length &&
                 completion->qpn.value == w.lines[line].target_number.value &&
                 memcmp(actual, expected, op->length) == 0;
    op->is_received = true;
    node->last[line] = index + 1;
    w.wrong += !right;
}

static inline void take_receive(struct node *node, const struct completion *completion)
{
    node->received++;
    node->is_posted[(completion->id - LANDING) / SLOT] = false;
    simulator_note(&w.simulator, "%c receive %s", node->host.name,
                   completion_status_name(completion->status));
    if (completion->status == COMPLETION_SUCCESS) {
        check_received(node, completion);
    } else {
        w.flushed += completion->status == COMPLETION_FLUSHED;
    }
    if (!w.by_hand) {
        simulator_after(&w.simulator, dice_below(&w.dice, 200000), post_later, node, 0);
    }
}

static inline void take_send(const struct completion *completion)
{
    struct line *line = &w.lines[completion->id >> 16];
    struct op *op = &line->ops[completion->id & 0xffff];
    w.wrong += op->is_done || (completion->id & 0xffff) != line->done;
    op->is_done = true;
    op->status = completion->status;
    line->done++;
    simulator_note(&w.simulator, "A send %s", completion_status_name(completion->status));
}

static inline void ran(struct host_application *application, struct host *host)
{
    (void)application;
    struct node *node = (struct node *)host;
    struct completion completion;
    while (completion_queue_poll(node->completions, 1, &completion) == 1) {
        if (node == &w.nodes[0]) {
            take_send(&completion);
        } else {
            take_receive(node, &completion);
        }
    }
}

static inline void raised(struct host_application *application, struct host *host,
                          const struct event *event)
{
    (void)application;
    (void)host;
    w.access_errors += event->kind == EVENT_QP_ACCESS_ERROR;
}

static inline void make_node(unsigned index)
{
    struct node *node = &w.nodes[index];
    struct host_config config = {
        .qpn_count = 16, .max_regions = 16, .max_reads_in = 8, .budget = 64};
    host_init(&node->host, &w.simulator, &w.network, index, &config);
    node->host.application = &w.application;
    if (index > 0) {
        neighbours_join(&w.neighbours, &node->host);
    }
    host_start(&node->host);
    struct allocator *allocator = &node->host.storage.allocator;
    struct memory *memory = device_memory(node->host.device);
    struct dice dice = dice_split(index, 3);
    node->bytes = malloc(BYTES);
    assert_non_null(node->bytes);
    dice_fill(&dice, node->bytes, BYTES);
    memset(node->bytes + COUNTER, 0, 8);
    assert_int_equal(memory_allocate_domain(memory, &node->domain), STATUS_OK);
    struct region_attributes region = {
        .domain = node->domain, .length = BYTES, .bytes = node->bytes, .access = ACCESS};
    assert_int_equal(memory_register(memory, &region, &node->key), STATUS_OK);
    assert_int_equal(completion_queue_create(allocator, 2 * LINES * OPS, NULL, &node->completions),
                     STATUS_OK);
    if (index == 0) {
        return;
    }
    assert_int_equal(receive_queue_create(allocator, RECEIVES, 2, &node->receives), STATUS_OK);
    node->shared = (struct xrc_queue){
        .domain = common,
        .memory_domain = node->domain,
        .receives = node->receives,
        .completions = node->completions,
    };
    assert_int_equal(device_add_xrc_queue(node->host.device, &node->shared), STATUS_OK);
}

static inline struct qp *make_qp(struct node *node, bool is_target)
{
    struct qp_init init = {
        .service = SERVICE_XRC,
        .xrc_domain = is_target ? common : (struct xrc_domain){0, 0},
        .domain = is_target ? (struct domain){0} : node->domain,
        .send_completions = is_target ? NULL : node->completions,
        .send = {.capacity = is_target ? 0 : QUEUE, .max_sge = is_target ? 0 : 2},
    };
    struct qp *qp;
    assert_int_equal(device_create_qp(node->host.device, &init, &qp), STATUS_OK);
    return qp;
}

static inline void modify(struct node *node, struct qp *qp, struct qp_attributes attributes,
                          enum qp_state state, unsigned mask)
{
    attributes.state = state;
    assert_int_equal(device_modify_qp(node->host.device, w.simulator.now, qp, &attributes,
                                      mask | QP_SET_STATE, NULL),
                     STATUS_OK);
}

static inline void connect_qp(unsigned from, unsigned to, struct qp *qp, struct qp *peer)
{
    struct node *node = &w.nodes[from];
    bool is_target = from != 0;
    struct qp_attributes attributes = {
        .path = network_path(from, to, false, 50000),
        .path_mtu = PATH_MTU_256,
        .destination = qp_number(peer),
        .receive_psn = w.first_psn,
        .send_psn = w.first_psn,
        .access = ACCESS,
        .max_reads_out = 4,
        .max_reads_in = 4,
        .min_rnr_timer = 8, /* 160 us */
        .timeout = w.timeout,
        .retry_count = 7,
        .rnr_retry_count = 7,
        .port = 1,
    };
    modify(node, qp, attributes, QP_INIT, QP_SET_PKEY_INDEX | QP_SET_PORT | QP_SET_ACCESS);
    modify(node, qp, attributes, QP_RTR,
           QP_SET_PATH | QP_SET_PATH_MTU | QP_SET_DESTINATION | QP_SET_RECEIVE_PSN |
               (is_target ? QP_SET_MAX_READS_IN | QP_SET_MIN_RNR_TIMER : 0));
    modify(
        node, qp, attributes, QP_RTS,
        QP_SET_SEND_PSN | QP_SET_TIMEOUT |
            (is_target ? 0 : QP_SET_RETRY_COUNT | QP_SET_RNR_RETRY_COUNT | QP_SET_MAX_READS_OUT));
}

static inline void make_line(uint32_t index)
{
    struct line *line = &w.lines[index];
    line->target_node = 1 + index;
    line->initiator = make_qp(&w.nodes[0], false);
    line->target = make_qp(&w.nodes[line->target_node], true);
    line->target_number = qp_number(line->target);
    connect_qp(0, line->target_node, line->initiator, line->target);
    connect_qp(line->target_node, 0, line->target, line->initiator);
}

static inline void start(uint64_t seed, const struct link_config *link, uint8_t timeout)
{
    memset(&w, 0, sizeof w);
    FILE *trace = open_memstream(&w.text, &w.text_length);
    assert_non_null(trace);
    simulator_init(&w.simulator, seed, trace);
    network_init(&w.network, &w.simulator, seed);
    network_set_links(&w.network, link);
    neighbours_init(&w.neighbours, &w.simulator, &w.network);
    w.application = (struct host_application){.ran = ran, .event = raised};
    w.dice = dice_split(seed, 20);
    w.timeout = timeout;
    w.first_psn = psn_make(FIRST_PSN);
    for (unsigned i = 0; i < NODES; i++) {
        make_node(i);
    }
    for (uint32_t i = 0; i < LINES; i++) {
        make_line(i);
    }
}

static inline void stop_node(struct node *node)
{
    if (host_is_alive(&node->host)) {
        struct memory *memory = device_memory(node->host.device);
        for (uint32_t i = 0; i < LINES; i++) {
            if (node == &w.nodes[0]) {
                device_destroy_qp(node->host.device, w.lines[i].initiator);
            } else if (node == &w.nodes[w.lines[i].target_node]) {
                device_destroy_qp(node->host.device, w.lines[i].target);
            }
        }
        if (node->receives != NULL) {
            device_remove_xrc_queue(node->host.device, &node->shared);
            receive_queue_destroy(node->receives);
        }
        completion_queue_destroy(node->completions);
        assert_int_equal(memory_deregister(memory, node->key), STATUS_OK);
        assert_int_equal(memory_free_domain(memory, node->domain), STATUS_OK);
        host_stop(&node->host);
    }
    free(node->bytes);
}

static inline void stop(void)
{
    for (unsigned i = 0; i < NODES; i++) {
        stop_node(&w.nodes[i]);
    }
    (void)simulator_run(&w.simulator, instant_after(w.simulator.now, RUN_NS), EVENT_MAX);
    fclose(w.simulator.trace);
    assert_string_equal(w.simulator.violation, "");
    free(w.text);
    simulator_fini(&w.simulator);
}

static inline void post_op(uint32_t index, struct op op)
{
    struct line *line = &w.lines[index];
    uint32_t number = line->op_count++;
    uint32_t place = (index * OPS + number) * SLOT;
    struct node *a = &w.nodes[0], *node = &w.nodes[op.node];
    line->ops[number] = op;
    if (op.kind != WORK_READ) {
        bytes_store_u32(a->bytes + place, index << 16 | number);
    }
    struct sge sge = {place, op.length, a->key};
    struct send_request request = {
        .id = index << 16 | number,
        .kind = op.kind,
        .signaled = true,
        .sges = &sge,
        .sge_count = op.length > 0 ? 1 : 0,
        .immediate = index << 16 | number,
        .remote_address = op.kind == WORK_READ        ? SOURCE
                          : op.kind == WORK_FETCH_ADD ? COUNTER
                                                      : place,
        .remote_key = node->key,
        .swap_or_add = 1,
        .xrc_srq = node->shared.number,
    };
    assert_int_equal(qp_post_send(line->initiator, &request), STATUS_OK);
    (void)device_ring(a->host.device, line->initiator);
    host_wake(&a->host, 0);
}

static inline void run(uint64_t ns)
{
    enum simulator_end end =
        simulator_run(&w.simulator, instant_after(w.simulator.now, ns), EVENT_MAX);
    fflush(w.simulator.trace);
    if (end == SIMULATOR_VIOLATION) {
        fail_msg("%s", w.simulator.violation);
    }
}

/* What a request that succeeded has done. */
static inline void check_op(uint64_t seed, uint32_t index, uint32_t number)
{
    struct op *op = &w.lines[index].ops[number];
    struct node *node = &w.nodes[op->node];
    const uint8_t *ours = slot_of(&w.nodes[0], index, number);
    bool receives = op->kind == WORK_SEND || op->kind == WORK_SEND_IMMEDIATE ||
                    op->kind == WORK_WRITE_IMMEDIATE;
    bool right = !receives || op->is_received || !host_is_alive(&node->host);
    if (op->kind == WORK_WRITE || op->kind == WORK_WRITE_IMMEDIATE) {
        right &= memcmp(slot_of(node, index, number), ours, op->length) == 0;
    } else if (op->kind == WORK_READ) {
        right &= memcmp(node->bytes + SOURCE, ours, op->length) == 0;
    } else if (op->kind == WORK_FETCH_ADD) {
        node->added++;
    }
    if (!right) {
        fail_msg("seed %llu: line %u op %u (kind %d to %c) is wrong\n%s", (unsigned long long)seed,
                 index, number, op->kind, node->host.name, w.text);
    }
}

/* Everything has ended; what succeeded was done, once. `exact`: nothing else was. */
static inline void judge(uint64_t seed, bool exact)
{
    for (uint32_t i = 0; i < LINES; i++) {
        struct line *line = &w.lines[i];
        if (line->done != line->op_count) {
            fail_msg("seed %llu: line %u: %u of %u ended\n%s", (unsigned long long)seed, i,
                     line->done, line->op_count, w.text);
        }
        for (uint32_t n = 0; n < line->op_count; n++) {
            if (line->ops[n].status == COMPLETION_SUCCESS) {
                check_op(seed, i, n);
            } else if (exact) {
                fail_msg("seed %llu: line %u op %u: %s\n%s", (unsigned long long)seed, i, n,
                         completion_status_name(line->ops[n].status), w.text);
            }
        }
    }
    if (w.wrong != 0) {
        fail_msg("seed %llu: %u messages came wrong\n%s", (unsigned long long)seed, w.wrong,
                 w.text);
    }
    for (unsigned i = 1; i < NODES; i++) {
        uint64_t counted;
        memcpy(&counted, w.nodes[i].bytes + COUNTER, sizeof counted);
        if (exact ? counted != w.nodes[i].added : counted < w.nodes[i].added) {
            fail_msg("seed %llu: %llu atomics of %llu\n%s", (unsigned long long)seed,
                     (unsigned long long)counted, (unsigned long long)w.nodes[i].added, w.text);
        }
    }
}

static inline uint64_t counter(unsigned node, enum counter counter)
{
    return device_counters(w.nodes[node].host.device)->values[counter];
}

#endif
