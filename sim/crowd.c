#include "sim/crowd.h"

#include <stdlib.h>
#include <string.h>

#include "rnic/base/check.h"
#include "rnic/base/container.h"

#define MS UINT64_C(1000000)
/* What Ethernet carries beside RoCE of an MTU to 1024, and of a larger one. */
#define TCP_SEGMENT       1448u
#define TCP_SEGMENT_JUMBO 8948u
#define HOSTS             2u
#define END_MS            20000u
#define TIMEOUT           14 /* 67 ms */
#define READS             16
#define ACCESS_ALL        (ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ)

struct crowd {
    struct crowd_config config;
    struct simulator simulator;
    struct network network;
    struct host hosts[HOSTS];
    struct host_application application;
    struct domain domains[HOSTS];
    struct memory_key keys[HOSTS];
    struct completion_queue *completions[HOSTS];
    struct qp *qps[HOSTS][CROWD_FLOWS_MAX];
    struct tcp tcps[CROWD_TCP_MAX];
    uint64_t done[CROWD_FLOWS_MAX]; /* bytes, since the run began */
    uint64_t tcp_before[CROWD_TCP_MAX];
    uint32_t active; /* flows that still post */
    uint32_t queued_most;
    uint64_t failed;
    uint8_t bytes[HOSTS][CROWD_MESSAGE_MAX];
};

static void post(struct crowd *crowd, uint32_t flow)
{
    unsigned i = crowd->config.reads ? 1 : 0;
    struct sge sge = {0, crowd->config.message, crowd->keys[i]};
    struct send_request request = {.id = flow,
                                   .kind = crowd->config.reads ? WORK_READ : WORK_WRITE,
                                   .signaled = true,
                                   .sges = &sge,
                                   .sge_count = 1,
                                   .remote_key = crowd->keys[1 - i]};
    CHECK(qp_post_send(crowd->qps[i][flow], &request) == STATUS_OK);
    (void)device_ring(crowd->hosts[i].device, crowd->qps[i][flow]);
    host_wake(&crowd->hosts[i], 0);
}

static void ran(struct host_application *application, struct host *host)
{
    struct crowd *crowd = CONTAINER_OF(application, struct crowd, application);
    uint32_t queued = crowd->network.links[0][1].queued;
    crowd->queued_most = queued > crowd->queued_most ? queued : crowd->queued_most;
    struct completion completion;
    while (completion_queue_poll(crowd->completions[host->index], 1, &completion) == 1) {
        crowd->failed += completion.status != COMPLETION_SUCCESS;
        crowd->done[completion.id] += crowd->config.message;
        if (completion.id < crowd->active && completion.status == COMPLETION_SUCCESS) {
            post(crowd, (uint32_t)completion.id);
        }
    }
}

static void make_side(struct crowd *crowd, unsigned i)
{
    const struct crowd_config *config = &crowd->config;
    struct host *host = &crowd->hosts[i];
    struct host_config host_config = {.qpn_count = CROWD_FLOWS_MAX,
                                      .max_regions = 4,
                                      .max_reads_in = READS,
                                      .budget = 64,
                                      .window_max = config->window_max,
                                      .selective_qps = config->selective ? config->flows : 0,
                                      .selective_packets = 4096};
    host_init(host, &crowd->simulator, &crowd->network, i, &host_config);
    host->application = &crowd->application;
    host_start(host);
    struct memory *memory = device_memory(host->device);
    CHECK(memory_allocate_domain(memory, &crowd->domains[i]) == STATUS_OK);
    struct region_attributes region = {.domain = crowd->domains[i],
                                       .length = CROWD_MESSAGE_MAX,
                                       .bytes = crowd->bytes[i],
                                       .access = ACCESS_ALL};
    CHECK(memory_register(memory, &region, &crowd->keys[i]) == STATUS_OK);
    CHECK(completion_queue_create(&host->storage.allocator, config->flows * config->depth, NULL,
                                  &crowd->completions[i]) == STATUS_OK);
    for (uint32_t flow = 0; flow < config->flows; flow++) {
        struct qp_init init = {.service = SERVICE_RC,
                               .domain = crowd->domains[i],
                               .send_completions = crowd->completions[i],
                               .receive_completions = crowd->completions[i],
                               .send = {.capacity = config->depth, .max_sge = 1},
                               .max_receive = 1,
                               .max_receive_sge = 1};
        CHECK(device_create_qp(host->device, &init, &crowd->qps[i][flow]) == STATUS_OK);
    }
}

static void connect_side(struct crowd *crowd, unsigned i)
{
    for (uint32_t flow = 0; flow < crowd->config.flows; flow++) {
        struct qp_attributes attributes = {
            .path = network_path(i, 1 - i, false, 50000),
            .path_mtu = crowd->config.mtu,
            .destination = qp_number(crowd->qps[1 - i][flow]),
            .access = ACCESS_ALL,
            .max_reads_out = READS,
            .max_reads_in = READS,
            .timeout = TIMEOUT,
            .retry_count = 7,
            .port = 1,
        };
        attributes.path.traffic_class = crowd->config.traffic_class;
        host_connect(&crowd->hosts[i], crowd->qps[i][flow], attributes);
    }
}

struct crowd *crowd_make(const struct crowd_config *config)
{
    CHECK(config->flows <= CROWD_FLOWS_MAX && config->tcp_flows <= CROWD_TCP_MAX &&
          config->message <= CROWD_MESSAGE_MAX);
    struct crowd *crowd = calloc(1, sizeof *crowd);
    CHECK(crowd != NULL);
    crowd->config = *config;
    crowd->application = (struct host_application){.ran = ran};
    simulator_init(&crowd->simulator, config->seed, NULL);
    network_init(&crowd->network, &crowd->simulator, config->seed);
    struct link_config wide = {.delay_ns = config->link.delay_ns};
    network_set_links(&crowd->network, &wide);
    network_set_link(&crowd->network, 0, 1, &config->link);
    for (unsigned i = 0; i < HOSTS; i++) {
        make_side(crowd, i);
    }
    for (unsigned i = 0; i < HOSTS; i++) {
        connect_side(crowd, i);
    }
    crowd->active = config->flows;
    for (uint32_t flow = 0; flow < config->flows; flow++) {
        for (uint32_t i = 0; i < config->depth; i++) {
            post(crowd, flow);
        }
    }
    for (uint32_t flow = 0; flow < config->tcp_flows; flow++) {
        tcp_start(&crowd->tcps[flow], &crowd->network, 0, 1,
                  config->mtu <= PATH_MTU_1024 ? TCP_SEGMENT : TCP_SEGMENT_JUMBO);
    }
    return crowd;
}

uint64_t crowd_run(struct crowd *crowd, uint64_t ms)
{
    memset(crowd->done, 0, sizeof crowd->done);
    crowd->queued_most = 0;
    for (uint32_t flow = 0; flow < crowd->config.tcp_flows; flow++) {
        crowd->tcp_before[flow] = crowd->tcps[flow].arrived;
    }
    struct instant until = instant_after(crowd->simulator.now, ms * MS);
    (void)simulator_run(&crowd->simulator, until, UINT64_MAX);
    crowd->simulator.now = until;
    uint64_t sum = 0;
    for (uint32_t flow = 0; flow < crowd->config.flows; flow++) {
        sum += crowd->done[flow];
    }
    return sum / ms;
}

uint64_t crowd_done(const struct crowd *crowd, uint32_t flow)
{
    return crowd->done[flow];
}

uint64_t crowd_tcp_done(const struct crowd *crowd, uint32_t flow)
{
    return crowd->tcps[flow].arrived - crowd->tcp_before[flow];
}

uint64_t crowd_fairness(const struct crowd *crowd)
{
    double sum = 0, squares = 0;
    for (uint32_t flow = 0; flow < crowd->config.flows; flow++) {
        double mega = (double)crowd->done[flow] / 1e6;
        sum += mega;
        squares += mega * mega;
    }
    return (uint64_t)(100 * sum * sum / (crowd->config.flows * squares));
}

uint32_t crowd_queued_most(const struct crowd *crowd)
{
    return crowd->queued_most;
}

uint64_t crowd_counter(const struct crowd *crowd, unsigned host, enum counter counter)
{
    return device_counters(crowd->hosts[host].device)->values[counter];
}

struct link_config *crowd_link(struct crowd *crowd)
{
    return &crowd->network.links[0][1].config;
}

void crowd_keep(struct crowd *crowd, uint32_t flows)
{
    crowd->active = flows;
}

bool crowd_end(struct crowd *crowd)
{
    crowd_keep(crowd, 0);
    for (uint32_t flow = 0; flow < crowd->config.tcp_flows; flow++) {
        tcp_stop(&crowd->tcps[flow]);
    }
    (void)crowd_run(crowd, END_MS);
    for (unsigned i = 0; i < HOSTS; i++) {
        struct host *host = &crowd->hosts[i];
        for (uint32_t flow = 0; flow < crowd->config.flows; flow++) {
            device_destroy_qp(host->device, crowd->qps[i][flow]);
        }
        completion_queue_destroy(crowd->completions[i]);
        struct memory *memory = device_memory(host->device);
        CHECK(memory_deregister(memory, crowd->keys[i]) == STATUS_OK);
        CHECK(memory_free_domain(memory, crowd->domains[i]) == STATUS_OK);
        host_stop(host);
    }
    bool ok = !simulator_is_violated(&crowd->simulator) && crowd->failed == 0;
    simulator_fini(&crowd->simulator);
    free(crowd);
    return ok;
}
