#include "sim/network.h"

#include <stdlib.h>
#include <string.h>

#include "rnic/base/check.h"
#include "sim/describe.h"
#include "sim/hold.h"
#include "sim/short_emit.h"

#define ECN_BITS   3u
#define ETHERNET   14u
#define BEFORE_BTH (ETHERNET + 20u + 8u) /* IPv4, UDP */
#define FRAME_MAX  (PACKET_HEADER_MAX + PACKET_PAYLOAD_MAX + 4u)

static bool is_cut(const struct network *network, const struct network_link *link)
{
    struct instant now = network->simulator->now;
    return !instant_before(now, link->cut_from) && instant_before(now, link->cut_until);
}

static enum fate choose_fate(struct network *network, struct network_link *link,
                             const struct frame *frame)
{
    if (network->script != NULL) {
        enum fate fate = network->script(network->script_context, frame->from, frame->to,
                                         frame->bytes, frame->length);
        if (fate != FATE_PASS) {
            return fate;
        }
    }
    const struct link_config *config = &link->config;
    if (config->burst_begin > 0) {
        if (dice_chance(&network->dice, link->in_burst ? config->burst_end : config->burst_begin)) {
            link->in_burst = !link->in_burst;
        }
        if (link->in_burst && dice_chance(&network->dice, config->burst_loss)) {
            return FATE_LOST;
        }
    }
    if (is_cut(network, link) || dice_chance(&network->dice, config->loss)) {
        return FATE_LOST;
    }
    if (dice_chance(&network->dice, config->corrupt)) {
        return FATE_CORRUPTED;
    }
    if (frame->referred > frame->carried && dice_chance(&network->dice, config->unreadable)) {
        return FATE_UNREADABLE;
    }
    if (dice_chance(&network->dice, config->duplicate)) {
        return FATE_DUPLICATED;
    }
    if (dice_chance(&network->dice, config->reorder)) {
        return FATE_DELAYED;
    }
    bool capable = (frame->path.traffic_class & ECN_BITS) != 0;
    bool full = config->mark_above > 0 && link->queued >= config->mark_above;
    if (capable && (full || dice_chance(&network->dice, config->mark))) {
        return FATE_MARKED;
    }
    return FATE_PASS;
}

static void corrupt(struct network *network, struct frame *frame)
{
    uint32_t flips = dice_range(&network->dice, 1, 3);
    while (flips-- > 0) {
        uint32_t bit = dice_below(&network->dice, (frame->length + ICRC_LENGTH) * 8);
        uint32_t byte = bit / 8;
        if (byte >= frame->length) {
            frame->icrc ^= UINT32_C(1) << (bit - frame->length * 8);
        } else {
            frame->bytes[byte] ^= (uint8_t)(1u << bit % 8);
        }
    }
}

/* The receiving end of the link: knows the IP header whole, as a network card does, so only the
 * one true identification counts. */
static bool icrc_is_right(const struct frame *frame)
{
    struct roce_ip found = frame->ip;
    if (!roce_icrc_verify(&frame->path, &frame->ip, frame->bytes, frame->length, frame->icrc,
                          &found)) {
        return false;
    }
    return !gid_is_ipv4(&frame->path.local) || (found.identification == frame->ip.identification &&
                                                found.dont_fragment == frame->ip.dont_fragment);
}

static uint32_t *withdrawals(struct network *network, unsigned to, struct qpn destination,
                             bool responses)
{
    return &network->ports[to].withdrawals[destination.value % NETWORK_NUMBERS][responses];
}

static uint32_t withdrawals_now(const struct frame *frame)
{
    struct qpn destination = packet_destination(frame->bytes);
    return *withdrawals(frame->network, frame->to, destination, frame->is_response);
}

struct frame_reader {
    struct payload_reader reader; /* first */
    const struct frame *frame;
};

/* Copies what lies from `offset` on in the fragments, or behind the frame's bytes. */
static void read_fragments(const struct frame *frame, uint32_t offset,
                           const struct payload_place *place)
{
    uint32_t done = 0;
    if (frame->carried > 0) {
        CHECK(offset <= frame->carried && place->length <= frame->carried - offset);
        memcpy(place->bytes, frame->bytes + frame->length + offset, place->length);
        return;
    }
    for (uint32_t i = 0; i < frame->fragment_count && done < place->length; i++) {
        const struct fragment *fragment = &frame->fragments[i];
        if (offset >= fragment->length) {
            offset -= fragment->length;
            continue;
        }
        uint32_t part = fragment->length - offset;
        part = part < place->length - done ? part : place->length - done;
        memcpy(place->bytes + done, fragment->bytes + offset, part);
        done += part;
        offset = 0;
    }
    CHECK(done == place->length);
}

static bool read_payload(struct payload_reader *reader, uint32_t offset,
                         const struct payload_place *places, uint32_t count)
{
    const struct frame *frame = ((struct frame_reader *)reader)->frame;
    struct network *network = frame->network;
    const struct network_port *sender = &network->ports[frame->from];
    bool is_shown = sender->end != NULL && sender->life == frame->sender &&
                    withdrawals_now(frame) == frame->withdrawal && !frame->unreadable;
    if (frame->carried == 0 && !is_shown) {
        network->unread++;
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        read_fragments(frame, offset, &places[i]);
        offset += places[i].length;
    }
    return true;
}

enum packet_refusal network_parse(const struct frame *frame, struct packet *ret_packet)
{
    if (frame->referred == 0) {
        return packet_parse(frame->bytes, frame->length, ret_packet);
    }
    struct payload_reference reference = {.length = frame->referred,
                                          .segment_shift = frame->segment_shift};
    return packet_parse_reference(frame->bytes, frame->length, &reference, ret_packet);
}

static void hand_over(struct network_port *port, const struct arrival *arrival,
                      const struct frame *frame)
{
    if (frame->referred == 0) {
        port->end->deliver(port->end, arrival, frame->bytes, frame->length);
        return;
    }
    struct frame_reader reader = {{read_payload}, frame};
    struct payload_reference reference = {&reader.reader, frame->referred, frame->segment_shift};
    port->end->deliver_reference(port->end, arrival, frame->bytes, frame->length, &reference);
}

static void deliver(void *context, uint64_t unused)
{
    (void)unused;
    struct frame *frame = context;
    struct network *network = frame->network;
    struct network_port *port = &network->ports[frame->to];
    network->in_flight--;
    if (port->end == NULL || port->life != frame->receiver) {
        free(frame);
        return;
    }
    if (!icrc_is_right(frame)) {
        network->corrupted_delivered[frame->to] += frame->corrupted;
        if (!frame->corrupted) {
            simulator_violate(network->simulator, "icrc", "a sound frame was refused");
        }
        port->end->refuse(port->end, REFUSED_ICRC);
        free(frame);
        return;
    }
    if (network->observer != NULL) {
        network->observer->delivered(network->observer, frame);
    }
    struct arrival arrival = {
        .path = path_reverse(&frame->path),
        .congestion_experienced = (frame->path.traffic_class & ECN_BITS) == ECN_BITS,
        .is_near = frame->near,
        .acknowledges = frame->acknowledges,
        .acknowledged = frame->acknowledged,
    };
    hand_over(port, &arrival, frame);
    free(frame);
}

static void left_queue(void *context, uint64_t argument)
{
    struct network *network = context;
    unsigned from = (unsigned)(argument >> 32) / HOST_MAX;
    struct network_link *link = &network->links[from][(argument >> 32) % HOST_MAX];
    link->queued--;
    link->queued_bytes -= (uint32_t)argument;
    struct network_port *port = &network->ports[from];
    if (port->waits_for_room && port->end != NULL) {
        port->waits_for_room = false;
        port->end->room(port->end);
    }
}

static void give_room(void *context, uint64_t life)
{
    struct network_port *port = context;
    if (port->waits_for_room && port->end != NULL && port->life == life) {
        port->waits_for_room = false;
        port->end->room(port->end);
    }
}

/* Time on the wire, then the way to the other end. Returns when it arrives. */
static struct instant serialise(struct network *network, unsigned from, unsigned to,
                                uint32_t length)
{
    struct network_link *link = &network->links[from][to];
    struct instant start = instant_before(link->free_at, network->simulator->now)
                               ? network->simulator->now
                               : link->free_at;
    uint64_t ns = 0;
    if (link->config.bits_per_second > 0) {
        uint64_t bits = length * UINT64_C(8);
        ns = bits * UINT64_C(1000000000) / link->config.bits_per_second;
    }
    link->free_at = instant_after(start, ns);
    link->queued++;
    link->queued_bytes += length;
    simulator_at(network->simulator, link->free_at, left_queue, network,
                 (from * (uint64_t)HOST_MAX + to) << 32 | length);
    return instant_after(link->free_at, link->config.delay_ns);
}

static struct frame *frame_copy(const struct frame *frame)
{
    size_t size = sizeof *frame + frame->length + frame->carried;
    struct frame *copy = malloc(size);
    CHECK(copy != NULL);
    memcpy(copy, frame, size);
    return copy;
}

static void launch(struct network *network, struct network_link *link, struct frame *frame,
                   enum fate fate)
{
    network->sent++;
    simulator_mix(network->simulator, network->simulator->now.ns);
    simulator_mix(network->simulator, (uint64_t)frame->icrc << 32 | frame->length << 8 | fate);
    if (network->observer != NULL) {
        network->observer->sent(network->observer, frame, fate);
    }
    describe_frame(network->simulator, frame, fate);
    if (fate == FATE_OVERFLOWED) {
        network->lost++;
        free(frame);
        return;
    }
    struct instant arrives = serialise(network, frame->from, frame->to,
                                       frame->length + frame->carried + ICRC_LENGTH + BEFORE_BTH);
    switch (fate) {
    case FATE_LOST:
        network->lost++;
        free(frame);
        return;
    case FATE_CORRUPTED:
        network->corrupted++;
        frame->corrupted = true;
        corrupt(network, frame);
        break;
    case FATE_DUPLICATED:
        network->duplicated++;
        network->in_flight++;
        simulator_at(network->simulator, instant_after(arrives, dice_below(&network->dice, 2000)),
                     deliver, frame_copy(frame), 0);
        break;
    case FATE_DELAYED:
        network->delayed++;
        arrives = instant_after(
            arrives, 1 + dice_below(&network->dice, (uint32_t)link->config.reorder_ns + 1000));
        break;
    case FATE_MARKED:
        network->marked++;
        frame->path.traffic_class |= ECN_BITS;
        break;
    case FATE_UNREADABLE:
        frame->unreadable = true;
        break;
    case FATE_PASS:
    case FATE_OVERFLOWED:
    case FATE_REFUSED:
        break;
    }
    network->in_flight++;
    simulator_at(network->simulator, arrives, deliver, frame, 0);
}

static void refer(struct frame *frame, const struct outgoing *outgoing)
{
    struct network *network = frame->network;
    uint32_t length = 0;
    CHECK(outgoing->fragment_count <= OUTGOING_FRAGMENT_MAX);
    for (uint32_t i = 0; i < outgoing->fragment_count; i++) {
        CHECK(outgoing->fragments[i].bytes != NULL);
        frame->fragments[i] = outgoing->fragments[i];
        length += outgoing->fragments[i].length;
    }
    CHECK(length == outgoing->payload_length);
    frame->fragment_count = outgoing->fragment_count;
    frame->referred = length;
    frame->segment_shift = outgoing->reference_shift;
    frame->sender = network->ports[frame->from].life;
    frame->is_response = outgoing->is_response;
    frame->withdrawal = withdrawals_now(frame);
    network->referred++;
}

static uint32_t append_fragments(uint8_t *bytes, const struct outgoing *outgoing)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < outgoing->fragment_count; i++) {
        const struct fragment *fragment = &outgoing->fragments[i];
        CHECK(fragment->length <= outgoing->payload_length - at);
        if (fragment->length > 0) {
            memcpy(bytes + at, fragment->bytes, fragment->length);
        }
        at += fragment->length;
    }
    return at;
}

/* Header, fragments and pad in one piece, as they stand on the wire. */
static struct frame *frame_make(struct network_port *port, unsigned to,
                                const struct outgoing *outgoing)
{
    struct network *network = port->network;
    const struct link_config *config = &network->links[port->index][to].config;
    bool by_reference = outgoing->reference_shift != 0;
    uint32_t within = by_reference ? 0 : outgoing->payload_length;
    uint32_t behind = by_reference && config->carried ? outgoing->payload_length : 0;
    uint32_t pad = packet_pad(within);
    uint32_t length = outgoing->header_length + within + pad;
    CHECK(length <= FRAME_MAX);
    struct frame *frame = malloc(sizeof *frame + length + behind);
    CHECK(frame != NULL);
    *frame = (struct frame){
        .network = network,
        .from = port->index,
        .to = to,
        .path = *outgoing->path,
        .length = length,
        .carried = behind,
        .receiver = network->ports[to].life,
        .near = config->carries && !qpn_equal(packet_destination(outgoing->header), QPN_MANAGEMENT),
        .acknowledges = outgoing->acknowledges,
        .acknowledged = outgoing->acknowledged,
        .ip = {.identification = (uint16_t)dice_next(&network->dice), .dont_fragment = true},
    };
    if (!gid_is_ipv4(&outgoing->path->local)) {
        frame->ip = (struct roce_ip){0};
    }
    memcpy(frame->bytes, outgoing->header, outgoing->header_length);
    if (by_reference) {
        refer(frame, outgoing);
    }
    if (!by_reference || behind > 0) {
        CHECK(append_fragments(frame->bytes + outgoing->header_length, outgoing) ==
              within + behind);
    }
    memset(frame->bytes + outgoing->header_length + within, 0, pad);
    frame->icrc = roce_icrc(&frame->path, &frame->ip, frame->bytes, length);
    return frame;
}

static bool refuses(struct network *network, struct network_link *link)
{
    if (dice_chance(&network->dice, link->config.refuse)) {
        return true;
    }
    return link->config.queue_limit > 0 && link->queued >= link->config.queue_limit &&
           !link->config.drop_tail;
}

/* How full a queue of bytes is varies with what else comes and goes: else which of two flows in
 * step loses a packet would follow from their packets' lengths alone. [Floyd and Jacobson 1992,
 * phase effects] */
#define QUEUE_NOISE 9000u

static bool overflows(struct network *network, const struct network_link *link)
{
    const struct link_config *config = &link->config;
    return (config->queue_limit > 0 && link->queued >= config->queue_limit) ||
           (config->queue_bytes > 0 &&
            link->queued_bytes + dice_below(&network->dice, QUEUE_NOISE) > config->queue_bytes);
}

/* To every host that is up, the sender's own too, as IP_MULTICAST_LOOP has it. Whether somebody
 * there has joined the group is for its device to say. */
static void emit_to_all(struct network_port *port, const struct outgoing *outgoing)
{
    struct network *network = port->network;
    for (unsigned to = 0; to < HOST_MAX; to++) {
        if (network->ports[to].end != NULL) {
            struct network_link *link = &network->links[port->index][to];
            struct frame *frame = frame_make(port, to, outgoing);
            enum fate fate = choose_fate(network, link, frame);
            launch(network, link, frame, fate == FATE_REFUSED ? FATE_PASS : fate);
        }
    }
}

/* The sender's own interface is too narrow for it, and says so if asked. */
static bool is_too_long(const struct link_config *config, const struct outgoing *outgoing)
{
    uint32_t length = BEFORE_BTH - ETHERNET + outgoing->header_length + outgoing->payload_length +
                      packet_pad(outgoing->payload_length) + ICRC_LENGTH;
    bool refused = config->takes != 0 && length > config->takes && outgoing->reference_shift == 0;
    if (refused && outgoing->ret_takes != NULL) {
        *outgoing->ret_takes = config->takes;
    }
    return refused;
}

static bool emit(struct packet_sink *sink, const struct outgoing *outgoing)
{
    struct network_port *port = (struct network_port *)sink;
    struct network *network = port->network;
    unsigned to = network_host_of(&outgoing->path->remote);
    bool is_ours = network_is_here(sink, &outgoing->path->local);
    if (is_ours && gid_is_multicast(&outgoing->path->remote)) {
        emit_to_all(port, outgoing);
        return true;
    } else if (!is_ours || to == HOST_MAX) {
        network->unroutable++;
        return true;
    }
    struct network_link *link = &network->links[port->index][to];
    if (is_too_long(&link->config, outgoing)) {
        network->refused_too_long++;
        return true;
    }
    if (refuses(network, link)) {
        network->refusals++;
        port->waits_for_room = true;
        if (link->queued == 0) {
            simulator_after(network->simulator, 1 + dice_below(&network->dice, 3000), give_room,
                            port, port->life);
        }
        return false;
    }
    struct frame *frame = frame_make(port, to, outgoing);
    enum fate fate = choose_fate(network, link, frame);
    if (fate == FATE_REFUSED) {
        network->refusals++;
        port->waits_for_room = true;
        simulator_after(network->simulator, 1000, give_room, port, port->life);
        free(frame);
        return false;
    }
    if (overflows(network, link)) {
        fate = FATE_OVERFLOWED;
    }
    launch(network, link, frame, fate);
    return true;
}

static uint32_t reach(struct packet_sink *sink, const struct path *path, struct qpn destination)
{
    const struct network_port *port = (const struct network_port *)sink;
    unsigned to = network_host_of(&path->remote);
    return to == HOST_MAX ? 0 : port->network->links[port->index][to].config.reach;
}

static void withdraw(struct packet_sink *sink, const struct path *path, struct qpn destination,
                     bool responses)
{
    struct network_port *port = (struct network_port *)sink;
    unsigned to = network_host_of(&path->remote);
    if (to != HOST_MAX) {
        ++*withdrawals(port->network, to, destination, responses);
    }
}

struct network_end *network_neighbour(const struct network *network, unsigned from,
                                      const struct gid *gid)
{
    unsigned to = network_host_of(gid);
    if (to == HOST_MAX || !network->links[from][to].config.direct ||
        is_cut(network, &network->links[from][to])) {
        return NULL;
    }
    return network->ports[to].end;
}

bool network_breaks(struct network *network, unsigned from, unsigned to)
{
    return dice_chance(&network->dice, network->links[from][to].config.breaks);
}

void network_pass(struct network *network, unsigned from, unsigned to, uint32_t length,
                  void (*arrive)(void *context, uint64_t argument), void *context,
                  uint64_t argument)
{
    struct network_link *link = &network->links[from][to];
    if (overflows(network, link)) {
        return;
    }
    struct instant arrives = serialise(network, from, to, length);
    if (!dice_chance(&network->dice, link->config.loss)) {
        simulator_at(network->simulator, arrives, arrive, context, argument);
    }
}

void network_init(struct network *network, struct simulator *simulator, uint64_t seed)
{
    memset(network, 0, sizeof *network);
    network->simulator = simulator;
    network->dice = dice_split(seed, 1);
    network->holds = dice_split(seed, 21);
    network->ways = dice_split(seed, 18);
    network->short_full = 30;
    uint32_t run_packets = (dice_split(seed, 15).state >> 32) % 4 * 4; /* 0: none */
    for (unsigned i = 0; i < HOST_MAX; i++) {
        network->ports[i] = (struct network_port){
            .sink = {.emit = emit,
                     .emit_short = short_emit,
                     .carries_acknowledgements = true,
                     .hold_ns = network_hold_ns,
                     .reach = reach,
                     .withdraw = withdraw,
                     .emit_train = train_emit_singly,
                     .is_here = network_is_here,
                     .run_packets = run_packets,
                     .run_bytes = 16 * FRAME_MAX},
            .network = network,
            .index = i,
            .addresses = 1u << i,
        };
    }
}

void network_set_link(struct network *network, unsigned from, unsigned to,
                      const struct link_config *config)
{
    network->links[from][to].config = *config;
}

void network_set_links(struct network *network, const struct link_config *config)
{
    for (unsigned from = 0; from < HOST_MAX; from++) {
        for (unsigned to = 0; to < HOST_MAX; to++) {
            network_set_link(network, from, to, config);
        }
    }
}

void network_cut(struct network *network, unsigned a, unsigned b, struct instant from,
                 struct instant until)
{
    struct network_link *links[2] = {&network->links[a][b], &network->links[b][a]};
    for (unsigned i = 0; i < 2; i++) {
        links[i]->cut_from = from;
        links[i]->cut_until = until;
    }
}

void network_attach(struct network *network, unsigned host, struct network_end *end)
{
    struct network_port *port = &network->ports[host];
    port->end = end;
    port->waits_for_room = false;
    if (end != NULL) {
        port->life++;
    }
}

struct packet_sink *network_sink(struct network *network, unsigned host)
{
    return &network->ports[host].sink;
}
