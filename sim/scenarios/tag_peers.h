/* For tests of tag matching: hosts with memory, and queue pairs between peers and the one that
 * sorts what they send. Header only: each test has its own copy. */
#ifndef WEIR_SIM_SCENARIOS_TAG_PEERS_H
#define WEIR_SIM_SCENARIOS_TAG_PEERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/dice.h"
#include "sim/host.h"

#define PEERS    2u
#define MESSAGES 24u /* of each peer */
#define REQUESTS 40u /* buffers that the application asks for */
#define RECEIVES 8u
#define SLOT     1024u
#define BYTES    ((MESSAGES + REQUESTS + RECEIVES) * SLOT)
#define ACCESS   (ACCESS_LOCAL_WRITE | ACCESS_REMOTE_READ)

struct node {
    struct host host;
    struct domain domain;
    struct memory_key key;
    struct completion_queue *completions;
    struct qp *qps[PEERS]; /* of a peer only the first */
    uint8_t bytes[BYTES];
};

static inline struct qp *make_qp(struct node *node, struct tag_matcher *matcher,
                                 struct receive_queue *receives)
{
    struct send_queue_limits limits = {.capacity = MESSAGES, .max_sge = 1};
    struct qp_init init = {
        .service = SERVICE_RC,
        .domain = node->domain,
        .send_completions = node->completions,
        .receive_completions = node->completions,
        .shared_receives = receives,
        .matcher = matcher,
        .send = matcher != NULL ? tag_send_limits(matcher) : limits,
        .max_receive = MESSAGES,
        .max_receive_sge = 1,
    };
    struct qp *qp;
    assert_int_equal(device_create_qp(node->host.device, &init, &qp), STATUS_OK);
    return qp;
}

static inline void connect_qp(struct node *from, const struct node *to, struct qp *qp,
                              const struct qp *peer)
{
    struct qp_attributes attributes = {
        .path = network_path(from->host.index, to->host.index, false, 50000),
        .path_mtu = PATH_MTU_256,
        .destination = qp_number(peer),
        .receive_psn = {0xfffff8},
        .send_psn = {0xfffff8},
        .access = ACCESS,
        .max_reads_out = 2,
        .max_reads_in = 2,
        .min_rnr_timer = 4,
        .timeout = 14,
        .retry_count = 7,
        .rnr_retry_count = 7,
        .port = 1,
    };
    host_connect(&from->host, qp, attributes);
}

static inline void make_node(struct node *node, struct network *network, unsigned index,
                             struct host_application *application, bool selective)
{
    struct dice dice = dice_split(network->simulator->seed, 22 + index);
    struct host_config config = {.qpn_count = 8,
                                 .max_regions = 8,
                                 .max_reads_in = 2,
                                 .budget = 64,
                                 .selective_qps = selective ? 4 : 0,
                                 .selective_packets = 64};
    host_init(&node->host, network->simulator, network, index, &config);
    node->host.application = application;
    host_start(&node->host);
    struct memory *memory = device_memory(node->host.device);
    dice_fill(&dice, node->bytes, BYTES);
    assert_int_equal(memory_allocate_domain(memory, &node->domain), STATUS_OK);
    struct region_attributes region = {
        .domain = node->domain, .length = BYTES, .bytes = node->bytes, .access = ACCESS};
    assert_int_equal(memory_register(memory, &region, &node->key), STATUS_OK);
    assert_int_equal(
        completion_queue_create(&node->host.storage.allocator, 1024, NULL, &node->completions),
        STATUS_OK);
}

/* Its queue pairs, and what they used, are gone. */
static inline void stop_node(struct node *node)
{
    struct memory *memory = device_memory(node->host.device);
    completion_queue_destroy(node->completions);
    assert_int_equal(memory_deregister(memory, node->key), STATUS_OK);
    assert_int_equal(memory_free_domain(memory, node->domain), STATUS_OK);
    host_stop(&node->host);
}

#endif
