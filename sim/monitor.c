#include "sim/monitor.h"

#include "rnic/wire/packet.h"
#include "rnic/wire/psn.h"
#include "rnic/wire/report.h"
#include "sim/world.h"

/* In units of 10 us, by code. [IBA table 45] */
static const uint32_t rnr_timers[32] = {
    65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,    32,
    48,    64,   96,   128,  192,  256,   384,   512,   768,   1024,  1536,
    2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
};

/* Below this the transport's own timers cannot be shorter than the attribute. */
#define EXACT_TIMEOUT_MAX 9u

static uint64_t timeout_ns(const struct end *end)
{
    return UINT64_C(4096) << end->attributes.timeout;
}

/* The last to be connected with that queue pair. */
static struct end *end_by_qpn(struct world *world, struct qpn qpn)
{
    for (uint32_t i = world->end_count; i > 0; i--) {
        struct end *end = world->ends[i - 1];
        if (end->qpn.value == qpn.value && end->peer != NULL) {
            return end;
        }
    }
    return NULL;
}

static struct flow *flow_of(struct monitor *monitor, const struct end *end)
{
    struct flow **flow = &monitor->flows[end->number];
    if (*flow == NULL) {
        *flow = scratch_take(&monitor->world->scratch, sizeof **flow);
    }
    return *flow;
}

static uint32_t packets(uint32_t length, enum path_mtu mtu)
{
    uint32_t bytes = path_mtu_bytes(mtu);
    return length == 0 ? 1 : (length + bytes - 1) / bytes;
}

/* PSNs that a request takes. */
static uint32_t op_psns(const struct end *end, const struct op *op)
{
    bool one = op->kind == WORK_COMPARE_SWAP || op->kind == WORK_FETCH_ADD;
    bool none = op->kind == WORK_LOCAL_INVALIDATE || op->kind == WORK_BIND_WINDOW;
    return none || op->took_no_psn ? 0 : one ? 1 : packets(op->length, end->mtu);
}

static bool is_orderly(const struct world *world)
{
    return world->profile.strict && !world->profile.rereads;
}

/* A READ by reference into a place that is not the requester's is asked for again, as bytes, and
 * with it all that came behind it. */
static bool is_healthy(const struct end *end)
{
    return (end->pair->causes & ~(unsigned)CAUSE_RECEIVES) == 0 && !end->peer->failed &&
           !end->peer->intake_failed && !end->peer->gone;
}

/* On a sound network with healthy ends only an RNR NAK makes anybody repeat himself. */
static void check_reason(struct monitor *monitor, const struct end *end, const struct flow *flow,
                         const struct packet *packet)
{
    if (is_orderly(monitor->world) && is_healthy(end) && flow->rnr_naks == 0) {
        simulator_violate(&monitor->world->simulator, "repeat",
                          "%c qp %u sent PSN %u again, and nothing was lost", end->host->name,
                          end->qpn.value, packet->psn.value);
    }
}

static void request_sent(struct monitor *monitor, struct end *end, const struct packet *packet)
{
    struct world *world = monitor->world;
    struct flow *flow = flow_of(monitor, end);
    struct instant now = world->simulator.now;
    if (!flow->seen) {
        flow->seen = true;
        flow->first = flow->next = end->attributes.send_psn;
        flow->last = psn_add(flow->first, PSN_MASK);
    }
    int32_t ahead = psn_distance(flow->next, packet->psn);
    bool read = packet->info->operation == OPERATION_READ_REQUEST;
    bool many = read || packet->segment_shift != 0;
    uint32_t length = read ? packet->dma_length : packet->payload_length;
    uint32_t count = many ? packets(length, end->mtu) : 1;
    if (ahead > 0) {
        simulator_violate(&world->simulator, "psn", "%c qp %u sent PSN %u, and %u was due",
                          end->host->name, end->qpn.value, packet->psn.value, flow->next.value);
        return;
    }
    if (ahead == 0) {
        uint32_t at = (uint32_t)psn_distance(flow->first, packet->psn);
        if (at < FLOW_TIMES) {
            flow->first_sent_ns[at] = now.ns;
        }
        flow->next = psn_add(packet->psn, count);
        flow->demands += read;
    } else {
        flow->rounds += !psn_before(flow->last, packet->psn);
        check_reason(monitor, end, flow, packet);
        /* By reference it may reach further than what was sent before. */
        struct psn behind = psn_add(packet->psn, count);
        flow->next = psn_before(flow->next, behind) ? behind : flow->next;
    }
    flow->last = packet->psn;
    flow->rnr_repeated |= psn_equal(packet->psn, flow->rnr_psn);
    if (is_orderly(world) && is_healthy(end) && instant_before(now, flow->rnr_until) &&
        !psn_before(packet->psn, flow->rnr_psn)) {
        simulator_violate(&world->simulator, "rnr", "%c qp %u sent PSN %u %lluns too early",
                          end->host->name, end->qpn.value, packet->psn.value,
                          (unsigned long long)(flow->rnr_until.ns - now.ns));
    }
}

static void check_ride(struct monitor *monitor, const struct end *end, const struct frame *frame,
                       const struct packet *packet)
{
    if (frame->acknowledges && !frame->near) {
        simulator_violate(&monitor->world->simulator, "rides",
                          "%c qp %u lets PSN %u bring an acknowledgement", end->host->name,
                          end->qpn.value, packet->psn.value);
    }
}

static void check_tag(struct monitor *monitor, const struct end *end, const struct packet *packet)
{
    struct flow *flow = flow_of(monitor, end);
    if (flow->tag != 0 && packet->tag != flow->tag) {
        simulator_violate(&monitor->world->simulator, "tag", "%c qp %u sent PSN %u with tag %u",
                          end->host->name, end->qpn.value, packet->psn.value, packet->tag);
    }
    flow->tag = packet->tag;
}

static void harm(struct pair *pair, struct instant now)
{
    if (pair->harm_count < sizeof pair->harms / sizeof pair->harms[0]) {
        pair->harms[pair->harm_count] = now;
    }
    pair->harm_count++;
}

/* NULL: it is none, or nobody's. */
static struct end *reported_to(struct monitor *monitor, const struct frame *frame)
{
    return report_is_one(frame->bytes, frame->length)
               ? end_by_qpn(monitor->world, packet_destination(frame->bytes))
               : NULL;
}

static bool is_harm(enum fate fate)
{
    return fate == FATE_LOST || fate == FATE_OVERFLOWED || fate == FATE_CORRUPTED ||
           fate == FATE_DELAYED || fate == FATE_UNREADABLE;
}

/* An answer says how many messages have been completed: those up to its PSN at least, and none that
 * has not been sent whole. A READ is as many as it was demanded in. */
static void check_msn(struct monitor *monitor, const struct end *end, const struct packet *packet)
{
    const struct flow *flow = flow_of(monitor, end);
    uint32_t place = (uint32_t)psn_distance(flow->first, packet->psn);
    uint32_t sent = (uint32_t)psn_distance(flow->first, flow->next);
    uint32_t behind = 0, done = 0, whole = flow->demands;
    if (!flow->seen || flow->is_unclear || !packet->info->has_aeth ||
        packet->aeth.kind != AETH_ACK) {
        return;
    }
    for (uint32_t i = 0; i < end->posted; i++) {
        const struct op *op = &end->ops[i];
        uint32_t psns = op_psns(end, op);
        behind += psns;
        done += psns > 0 && behind <= place + 1;
        whole += psns > 0 && behind <= sent && op->kind != WORK_READ;
    }
    if (packet->aeth.msn < done || packet->aeth.msn > whole) {
        simulator_violate(&monitor->world->simulator, "msn",
                          "%c qp %u heard of %u messages at PSN %u, and %u to %u were done",
                          end->host->name, end->qpn.value, packet->aeth.msn, packet->psn.value,
                          done, whole);
    }
}

static void sent(struct network_observer *observer, const struct frame *frame, enum fate fate)
{
    struct monitor *monitor = (struct monitor *)observer;
    struct packet packet;
    struct end *reported = reported_to(monitor, frame);
    if (reported != NULL && reported->pair != NULL && is_harm(fate)) {
        harm(reported->pair, monitor->world->simulator.now);
    }
    if (network_parse(frame, &packet) != REFUSED_NOT ||
        !service_is_reliable(packet.info->service)) {
        return;
    }
    struct end *receiver = end_by_qpn(monitor->world, packet.destination);
    if (receiver == NULL || receiver->peer == NULL) {
        return;
    }
    /* Late is harm too, until it comes: the receiver drops what has overtaken it. */
    if (is_harm(fate)) {
        uint64_t late_ns = fate == FATE_DELAYED ? monitor->world->profile.link.reorder_ns : 0;
        harm(receiver->pair, instant_after(monitor->world->simulator.now, late_ns));
    }
    if (packet.info->is_request) {
        check_ride(monitor, receiver->peer, frame, &packet);
        check_tag(monitor, receiver->peer, &packet);
        request_sent(monitor, receiver->peer, &packet);
    } else {
        check_msn(monitor, receiver, &packet);
    }
}

static void answered(struct monitor *monitor, struct flow *flow)
{
    flow->rounds = 0;
    flow->answered = true;
    flow->last_response = monitor->world->simulator.now;
}

/* Each is to be waited for. Where the packet has not left since the last one came, this is of a
 * copy that had left before, and no retry has failed. Nothing leaves between what comes here and
 * the engine's turn to take it (host). */
static void rnr_nak_delivered(struct flow *flow, struct instant now, const struct packet *packet)
{
    bool again = flow->rnr_naks > 0 && psn_equal(flow->rnr_psn, packet->psn);
    bool waiting = instant_before(now, flow->rnr_until);
    flow->rnr_naks = again ? flow->rnr_naks + flow->rnr_repeated : 1;
    flow->rnr_repeated = false;
    flow->rnr_psn = packet->psn;
    struct instant until =
        instant_after(now, rnr_timers[packet->aeth.value & 31] * UINT64_C(10000));
    flow->rnr_until = waiting && instant_before(until, flow->rnr_until) ? flow->rnr_until : until;
}

/* Everything up to there: it may be that another copy has found a receive. */
static void acknowledged(struct monitor *monitor, struct flow *flow, struct psn psn)
{
    if (!psn_before(psn, flow->rnr_psn)) {
        flow->rnr_until = monitor->world->simulator.now;
    }
}

static void report_delivered(struct monitor *monitor, struct flow *flow, const struct frame *frame)
{
    struct report report;
    answered(monitor, flow);
    if (!frame->corrupted && report_parse(frame->bytes, frame->length, &report) == REFUSED_NOT) {
        acknowledged(monitor, flow, report.acknowledged);
    }
}

static void delivered(struct network_observer *observer, const struct frame *frame)
{
    struct monitor *monitor = (struct monitor *)observer;
    struct packet packet;
    struct end *reported = reported_to(monitor, frame);
    if (reported != NULL) {
        report_delivered(monitor, flow_of(monitor, reported), frame);
    }
    if (network_parse(frame, &packet) != REFUSED_NOT ||
        !service_is_reliable(packet.info->service) ||
        (packet.info->is_request && !frame->acknowledges)) {
        return;
    }
    struct end *end = end_by_qpn(monitor->world, packet.destination);
    if (end == NULL) {
        return;
    }
    struct flow *flow = flow_of(monitor, end);
    answered(monitor, flow);
    if (packet.info->operation == OPERATION_ACKNOWLEDGE && packet.aeth.kind == AETH_RNR_NAK) {
        rnr_nak_delivered(flow, monitor->world->simulator.now, &packet);
    } else if (!packet.info->is_request && packet.aeth.kind == AETH_ACK) {
        acknowledged(monitor, flow, packet.psn);
    }
}

void monitor_init(struct monitor *monitor, struct world *world)
{
    *monitor = (struct monitor){
        .observer = {.sent = sent, .delivered = delivered},
        .world = world,
    };
    world->network.observer = &monitor->observer;
}

/* The op's first PSN, counted from the flow's first. */
static uint32_t psn_place(const struct end *end, const struct op *op)
{
    uint32_t place = 0;
    for (const struct op *before = end->ops; before < op; before++) {
        place += op_psns(end, before);
    }
    return place;
}

static void check_silence(struct world *world, const struct end *end, const struct flow *flow,
                          uint64_t first_ns)
{
    uint32_t retries = end->attributes.retry_count;
    uint64_t waited_ns = world->simulator.now.ns - first_ns;
    bool exact = end->attributes.timeout <= EXACT_TIMEOUT_MAX;
    if (flow->rounds < retries || (exact && flow->rounds > retries)) {
        simulator_violate(&world->simulator, "retry",
                          "%c qp %u gave up after %u repetitions, retry count %u", end->host->name,
                          end->qpn.value, flow->rounds, retries);
    } else if (waited_ns < (retries + 1) * timeout_ns(end)) {
        simulator_violate(&world->simulator, "retry", "%c qp %u gave up after %lluns",
                          end->host->name, end->qpn.value, (unsigned long long)waited_ns);
    }
}

/* Which request it was follows from what it touched, unless two touch the same. */
void monitor_done_directly(struct monitor *monitor, struct end *end,
                           const struct direct_access *access)
{
    struct op *found = NULL;
    enum work_kind kind = access->write ? WORK_WRITE : WORK_READ;
    for (uint32_t i = 0; i < end->posted; i++) {
        struct op *op = &end->ops[i];
        if (op->kind == kind && op->remote_address == access->address &&
            op->remote_key.value == access->key.value && op->length == access->length &&
            !op->took_no_psn && op->phase == OP_POSTED) {
            flow_of(monitor, end)->is_unclear |= found != NULL;
            found = found == NULL ? op : found;
        }
    }
    if (found == NULL) {
        flow_of(monitor, end)->is_unclear = true;
    } else {
        found->took_no_psn = true;
    }
}

void monitor_retry_exceeded(struct monitor *monitor, const struct end *end, const struct op *op)
{
    struct world *world = monitor->world;
    const struct flow *flow = flow_of(monitor, end);
    uint32_t place = psn_place(end, op);
    if (place >= FLOW_TIMES || !flow->seen || flow->is_unclear) {
        return;
    }
    uint64_t first_ns = flow->first_sent_ns[place];
    if (!flow->answered || flow->last_response.ns < first_ns) {
        check_silence(world, end, flow, first_ns);
        return;
    }
    const struct pair *pair = end->pair;
    /* Who is slowed down may be slower than the timeout. */
    if (world->profile.impatient || world->profile.link.mark > 0 || pair->causes != CAUSE_LOSS ||
        end->peer->failed || end->peer->intake_failed) {
        return;
    }
    uint32_t harms = 0;
    uint32_t known = sizeof pair->harms / sizeof pair->harms[0];
    for (uint32_t i = 0; i < pair->harm_count && i < known; i++) {
        harms += pair->harms[i].ns >= op->posted_at.ns;
    }
    harms += pair->harm_count > known ? pair->harm_count - known : 0;
    if (harms < end->attributes.retry_count + 1u) {
        simulator_violate(&world->simulator, "retry",
                          "%c qp %u send %u gave up, but only %u packets were harmed (retry %u)",
                          end->host->name, end->qpn.value, (unsigned)(op - end->ops), harms,
                          end->attributes.retry_count);
    }
}

void monitor_rnr_exceeded(struct monitor *monitor, const struct end *end, const struct op *op)
{
    (void)op;
    const struct flow *flow = flow_of(monitor, end);
    uint32_t expected = end->attributes.rnr_retry_count + 1u;
    if (is_orderly(monitor->world) && flow->rnr_naks != expected) {
        simulator_violate(&monitor->world->simulator, "rnr",
                          "%c qp %u gave up after %u RNR NAKs, and %u are due", end->host->name,
                          end->qpn.value, flow->rnr_naks, expected);
    }
}
