#include "sim/host.h"

#include <string.h>

#include "rnic/base/check.h"
#include "rnic/base/container.h"

/* An engine that is told "more" comes back after this long. */
#define HOLD_NS  60000u /* below: within a host who polls goes on first, as io/loop has it */
#define AGAIN_NS 200u   /* where the configuration says nothing */
#define JOIN_NS  1500u  /* packets that come within this are received in a row */

static void wake_event(void *context, uint64_t life);

static void wake_at(struct host *host, struct instant when)
{
    if (instant_before(when, host->simulator->now)) {
        when = host->simulator->now; /* overdue: at once */
    }
    if (!host_is_alive(host) || !instant_before(when, host->wake_at)) {
        return;
    }
    host->wake_at = when;
    simulator_at(host->simulator, when, wake_event, host, host->life);
}

void host_wake(struct host *host, uint64_t delay_ns)
{
    wake_at(host, instant_after(host->simulator->now, delay_ns));
}

static void drain_cm(struct host *host)
{
    struct cm_event event;
    while (host->cm != NULL && cm_next_event(host->cm, &event)) {
        simulator_mix(host->simulator, UINT64_C(0xc000) + event.kind);
        if (host->application != NULL && host->application->cm_event != NULL) {
            host->application->cm_event(host->application, host, &event);
        }
    }
}

static uint64_t again_ns(const struct host *host)
{
    return host->config.again_ns != 0 ? host->config.again_ns : AGAIN_NS;
}

static void receive_row(struct host *host);

static struct instant tell_time(struct host *host)
{
    host->told = host->simulator->now;
    return host->told;
}

static void host_run(struct host *host)
{
    struct instant now = tell_time(host);
    receive_row(host); /* nothing leaves before what has come is received */
    host->wake_at = INSTANT_NEVER;
    host->storage.packets_flow = true;
    if (host->cm != NULL) {
        cm_advance(host->cm, now); /* first: what it sends leaves with the device's advance */
    }
    bool more = device_advance(host->device, now, host->config.budget);
    host->storage.packets_flow = false;
    drain_cm(host);
    struct instant next = device_next_deadline(host->device);
    if (host->cm != NULL) {
        next = instant_earlier(next, cm_next_deadline(host->cm));
    }
    more |= device_has_doorbell(host->device);
    if (more) {
        next = instant_earlier(next, instant_after(now, again_ns(host)));
    }
    if (!instant_is_never(next)) {
        wake_at(host, next);
    }
    if (host->application != NULL && host->application->ran != NULL) {
        host->application->ran(host->application, host);
    }
}

/* Who posts reads a clock only where the queue pair needs one. */
void host_kick(struct host *host, struct qp *qp)
{
    receive_row(host);
    host->storage.packets_flow = true;
    if (device_advance_alone(host->device, qp)) {
        host->storage.packets_flow = false;
        return;
    }
    if (device_post_short(host->device, host->told, qp)) {
        host->network->posted++;
    } else {
        bool is_vague = device_wants_time(qp) == DEVICE_TIME_VAGUE;
        struct instant now = is_vague ? host->told : tell_time(host);
        (void)device_advance_one(host->device, now, is_vague, qp);
    }
    host->storage.packets_flow = false;
}

static void wake_event(void *context, uint64_t life)
{
    struct host *host = context;
    if (life != host->life || !host_is_alive(host) || host->simulator->now.ns != host->wake_at.ns) {
        return;
    }
    host_run(host);
}

static void note_refusals(const struct host *host, const struct counters *before)
{
    const struct counters *after = device_counters(host->device);
    for (enum packet_refusal r = REFUSED_NOT; r < REFUSED_COUNT; r++) {
        if (after->refused[r] != before->refused[r]) {
            simulator_note(host->simulator, "%c drops %s", host->name, packet_refusal_name(r));
        }
    }
}

/* Who polls takes what is within a host without a look at the clock, as a rule. */
static struct instant begin_receiving(struct host *host, const struct arrival *arrival)
{
    bool looks = !arrival->is_near || host->simulator->now.ns % 4 == 0;
    return looks || !device_begin_vague(host->device) ? tell_time(host) : host->told;
}

/* What has come by a link is received: `reference` NULL: the payload is among the bytes. `follow`
 * tells what has come right before it, the same way. */
static void take(struct host *host, const struct host_packet *packet, struct follow *follow)
{
    struct counters before;
    struct instant now = begin_receiving(host, &packet->arrival);
    if (host->simulator->trace != NULL) {
        before = *device_counters(host->device);
    }
    host->storage.packets_flow = true;
    if (follow_fits(follow, packet->bytes, packet->length)) {
        follow_receive(follow, packet->bytes);
    } else {
        device_receive_in_row(host->device, now, &packet->arrival, packet->bytes, packet->length,
                              follow);
    }
    device_end_vague(host->device);
    host->storage.packets_flow = false;
    if (host->simulator->trace != NULL) {
        note_refusals(host, &before);
    }
    host_wake(host, packet->arrival.is_near ? host->simulator->now.ns % HOLD_NS : 0);
}

static bool comes_as(const struct arrival *arrival, const struct arrival *before)
{
    return memcmp(&arrival->path, &before->path, sizeof arrival->path) == 0 &&
           arrival->congestion_experienced == before->congestion_experienced &&
           arrival->is_near == before->is_near && arrival->acknowledges == before->acknowledges;
}

static void receive_row(struct host *host)
{
    struct follow follow = {.qp = NULL};
    uint32_t count = host->row_count;
    host->row_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct host_packet *packet = &host->row[i];
        if (i > 0 && !comes_as(&packet->arrival, &packet[-1].arrival)) {
            follow.qp = NULL;
        }
        take(host, packet, &follow);
    }
}

static void row_event(void *context, uint64_t life)
{
    struct host *host = context;
    if (life == host->life && host_is_alive(host)) {
        receive_row(host);
    }
}

static void deliver(struct network_end *end, const struct arrival *arrival, const uint8_t *bytes,
                    uint32_t length)
{
    struct host *host = (struct host *)end;
    struct host_packet *packet = &host->row[host->row_count++];
    CHECK(length <= sizeof packet->bytes);
    packet->arrival = *arrival;
    packet->length = length;
    memcpy(packet->bytes, bytes, length);
    if (!host->config.joins || host->row_count == HOST_ROW) {
        receive_row(host);
    } else if (host->row_count == 1) {
        simulator_after(host->simulator, JOIN_NS, row_event, host, host->life);
    }
}

static void deliver_reference(struct network_end *end, const struct arrival *arrival,
                              const uint8_t *bytes, uint32_t length,
                              const struct payload_reference *reference)
{
    struct host *host = (struct host *)end;
    struct counters before;
    receive_row(host);
    struct instant now = begin_receiving(host, arrival);
    if (host->simulator->trace != NULL) {
        before = *device_counters(host->device);
    }
    host->storage.packets_flow = true;
    device_receive_reference(host->device, now, arrival, bytes, length, reference);
    device_end_vague(host->device);
    host->storage.packets_flow = false;
    if (host->simulator->trace != NULL) {
        note_refusals(host, &before);
    }
    host_wake(host, arrival->is_near ? host->simulator->now.ns % HOLD_NS : 0);
}

static void refuse(struct network_end *end, enum packet_refusal refusal)
{
    struct host *host = (struct host *)end;
    simulator_note(host->simulator, "%c drops %s", host->name, packet_refusal_name(refusal));
    device_refuse(host->device, refusal);
}

static void room(struct network_end *end)
{
    host_wake((struct host *)end, 0);
}

static void raise_event(struct event_sink *sink, const struct event *event)
{
    struct host *host = CONTAINER_OF(sink, struct host, events);
    simulator_mix(host->simulator, UINT64_C(0xe000) + event->kind);
    simulator_note(host->simulator, "%c event %s", host->name, event_kind_name(event->kind));
    if (host->application != NULL && host->application->event != NULL) {
        host->application->event(host->application, host, event);
    }
}

void host_init(struct host *host, struct simulator *simulator, struct network *network,
               unsigned index, const struct host_config *config)
{
    *host = (struct host){
        .end = {.deliver = deliver,
                .deliver_reference = deliver_reference,
                .refuse = refuse,
                .room = room},
        .events = {.raise = raise_event},
        .simulator = simulator,
        .network = network,
        .index = index,
        .name = (char)('A' + index),
        .config = *config,
        .wake_at = INSTANT_NEVER,
    };
    storage_init(&host->storage, simulator);
}

void host_start(struct host *host)
{
    CHECK(!host_is_alive(host));
    host->life++;
    host->wake_at = INSTANT_NEVER;
    (void)tell_time(host);
    host->row_count = 0;
    uint64_t seed = host->simulator->seed * 31 + host->index * 7 + host->life;
    direct_end_start(&host->direct, host);
    struct device_config config = {
        .allocator = &host->storage.allocator,
        .sink = network_sink(host->network, host->index),
        .events = &host->events,
        .relay_link = host->relay_link,
        .key = {{seed}},
        .direct = &host->direct.link,
        .first_qpn = {(host->index + 1) * HOST_NUMBERS + host->life * 0x100},
        .qpn_count = host->config.qpn_count,
        .max_regions = host->config.max_regions,
        .max_reads_in = host->config.max_reads_in,
        .window_max = host->config.window_max,
        .selective_qps = host->config.selective_qps,
        .selective_packets = host->config.selective_packets,
    };
    CHECK(device_create(&config, &host->device) == STATUS_OK);
    if (host->config.with_cm) {
        struct cm_config cm = {
            .allocator = &host->storage.allocator,
            .device = host->device,
            .key = {{seed + 1}},
            .max_connections = host->config.max_connections,
            .ca_guid = seed,
        };
        CHECK(cm_create(&cm, &host->cm) == STATUS_OK);
    }
    network_attach(host->network, host->index, &host->end);
}

void host_die(struct host *host)
{
    simulator_note(host->simulator, "%c dies", host->name);
    network_attach(host->network, host->index, NULL);
    direct_end_stop(&host->direct);
    storage_check(&host->storage);
    storage_forget(&host->storage);
    host->device = NULL;
    host->cm = NULL;
}

void host_stop(struct host *host)
{
    if (!host_is_alive(host)) {
        return;
    }
    struct simulator *simulator = host->simulator;
    if (host->cm != NULL) {
        if (cm_connection_count(host->cm) != 0 || cm_listener_count(host->cm) != 0) {
            simulator_violate(simulator, "leak", "%c: %u connections, %u listeners are left",
                              host->name, cm_connection_count(host->cm),
                              cm_listener_count(host->cm));
            return;
        }
        cm_destroy(host->cm);
        host->cm = NULL;
    }
    struct memory *memory = device_memory(host->device);
    if (memory_region_count(memory) != 0 || memory_domain_count(memory) != 0) {
        simulator_violate(simulator, "leak", "%c: %u regions, %u domains are left", host->name,
                          memory_region_count(memory), memory_domain_count(memory));
        return;
    }
    network_attach(host->network, host->index, NULL);
    device_destroy(host->device);
    host->device = NULL;
    if (host->storage.live_count != 0) {
        simulator_violate(simulator, "leak", "%c: %llu blocks, %llu bytes are left", host->name,
                          (unsigned long long)host->storage.live_count,
                          (unsigned long long)host->storage.live_bytes);
    }
    storage_check(&host->storage);
    storage_forget(&host->storage);
}

void host_connect(struct host *host, struct qp *qp, struct qp_attributes attributes)
{
    static const struct {
        enum qp_state state;
        unsigned mask;
    } steps[] = {
        {QP_INIT, QP_SET_PKEY_INDEX | QP_SET_PORT | QP_SET_ACCESS},
        {QP_RTR, QP_SET_PATH | QP_SET_PATH_MTU | QP_SET_DESTINATION | QP_SET_RECEIVE_PSN |
                     QP_SET_MAX_READS_IN | QP_SET_MIN_RNR_TIMER},
        {QP_RTS, QP_SET_SEND_PSN | QP_SET_TIMEOUT | QP_SET_RETRY_COUNT | QP_SET_RNR_RETRY_COUNT |
                     QP_SET_MAX_READS_OUT},
    };
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        attributes.state = steps[i].state;
        CHECK(device_modify_qp(host->device, host->simulator->now, qp, &attributes,
                               QP_SET_STATE | steps[i].mask, NULL) == STATUS_OK);
    }
}
