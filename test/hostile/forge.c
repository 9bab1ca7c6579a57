#include "rnic/base/bytes.h"
#include "rnic/wire/psn.h"
#include "rnic/wire/report.h"
#include "rnic/wire/roce.h"
#include "test/hostile/forge_private.h"
#include "test/hostile/message.h"

#define FAR      (UINT32_C(1) << 20) /* outside every PSN window */
#define EARLY    512u                /* before its turn, and no such turn comes soon */
#define UDP_QKEY 0x01234567u         /* RDMA_UDP_QKEY */

static const char *const names[SHOT_KINDS] = {
    "replay",   "damaged",   "flipped",   "edited", "grammar",         "answer",
    "stranger", "off-path",  "cnp",       "mad",    "mad, blind",      "request",
    "stale",    "truncated", "oversized", "noise",  "rsocket address", "group",
};

/* How often each, of their sum. */
static const uint8_t weights[SHOT_KINDS] = {8, 6, 8, 10, 12, 8, 8, 12, 2,
                                            6, 4, 3, 1,  2,  2, 4, 1,  6};

const char *shot_kind_name(enum shot_kind kind)
{
    return names[kind];
}

uint32_t below(struct forger *forger, uint32_t bound)
{
    return (uint32_t)random_below(&forger->random, bound);
}

bool one_in(struct forger *forger, uint32_t count)
{
    return below(forger, count) == 0;
}

uint32_t any(struct forger *forger)
{
    return (uint32_t)random_u64(&forger->random);
}

static struct gid ipv4(uint8_t third, uint8_t fourth)
{
    return (struct gid){{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 78, third, fourth}};
}

static struct gid ipv6(uint8_t seventh, uint8_t last)
{
    return (struct gid){{0xfd, 0x78, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, seventh, 0, last}};
}

struct path from_anywhere(struct forger *forger)
{
    uint8_t third = (uint8_t)(1 + below(forger, 200)), fourth = (uint8_t)(4 + below(forger, 250));
    if (one_in(forger, 3)) {
        return (struct path){.local = ipv6(third, fourth), .remote = ipv6(0, 1)};
    }
    return (struct path){.local = ipv4(third, fourth), .remote = ipv4(0, 1)};
}

struct path from_peer(struct forger *forger, bool sheltered)
{
    uint8_t last = sheltered ? 3 : 2;
    if (one_in(forger, 2)) {
        return (struct path){.local = ipv6(0, last), .remote = ipv6(0, 1)};
    }
    return (struct path){.local = ipv4(0, last), .remote = ipv4(0, 1)};
}

/* A flow towards the server, of such a peer; NULL: none was heard. */
static const struct flow *pick_flow(struct forger *forger, bool sheltered)
{
    const struct scene *scene = forger->scene;
    if (scene->flow_count == 0) {
        return NULL;
    }
    uint32_t start = below(forger, scene->flow_count);
    for (uint32_t i = 0; i < scene->flow_count; i++) {
        const struct flow *flow = &scene->flows[(start + i) % scene->flow_count];
        if (flow->toward_server && flow->sheltered == sheltered) {
            return flow;
        }
    }
    return NULL;
}

static const struct sample *pick_sample(struct forger *forger)
{
    const struct scene *scene = forger->scene;
    return scene->sample_count == 0 ? NULL : &scene->samples[below(forger, scene->sample_count)];
}

/* A key, an address and a queue of XRC: as `near` has named them, or a sheltered peer's, or that
 * key as it was or will be when its window is bound anew. */
static void aim(struct forger *forger, const struct flow *near, struct packet *packet)
{
    const struct flow *other = one_in(forger, 4) ? pick_flow(forger, true) : NULL;
    const struct flow *flow = other != NULL && other->key != 0 ? other : near;
    uint32_t key = flow == NULL ? any(forger) : flow->key;
    uint64_t address = flow == NULL ? random_u64(&forger->random) : flow->address;
    if (one_in(forger, 4)) {
        key = (key & 0xffffff00u) | (uint8_t)(key + below(forger, 5) - 2);
    }
    packet->remote_address = address + (one_in(forger, 2) ? 0 : below(forger, 40000) - 20000);
    packet->remote_key.value = one_in(forger, 4) ? key ^ 1u << below(forger, 32) : key;
    packet->invalidate.value = key;
    if (flow != NULL && flow->xrc_srq != 0) {
        packet->xrc_srq = flow->xrc_srq ^ (one_in(forger, 4) ? 1u << below(forger, 24) : 0);
    }
}

/* Right for what stands in the shot now. */
void add_icrc(struct forger *forger)
{
    struct shot *shot = forger->shot;
    struct roce_ip ip = {shot->identification, true};
    shot->path.source_port = forger->source_port;
    if (shot->length >= BTH_LENGTH && shot->length + ICRC_LENGTH <= SHOT_BYTES_MAX) {
        roce_icrc_store(shot->bytes + shot->length,
                        roce_icrc(&shot->path, &ip, shot->bytes, shot->length));
        shot->length += ICRC_LENGTH;
    }
}

static void flip(struct forger *forger, uint32_t from, uint32_t length)
{
    for (uint32_t count = 1 + below(forger, 8); count > 0 && length > 0; count--) {
        forger->shot->bytes[from + below(forger, length)] ^= (uint8_t)(1u << below(forger, 8));
    }
}

/* Packets overheard, and what becomes of them */

static bool copy_sample(struct forger *forger)
{
    const struct sample *sample = pick_sample(forger);
    struct shot *shot = forger->shot;
    if (sample == NULL) {
        return false;
    }
    const struct flow *flow = &forger->scene->flows[sample->flow];
    shot->path =
        (struct path){.local = flow->from, .remote = flow->to, .source_port = flow->source_port};
    shot->identification = 0;
    shot->length = sample->length;
    memcpy(shot->bytes, sample->bytes, sample->length);
    return true;
}

static void shoot_replay(struct forger *forger)
{
    (void)copy_sample(forger);
}

static void shoot_damaged(struct forger *forger)
{
    if (copy_sample(forger)) {
        flip(forger, 0, forger->shot->length);
    }
}

static void shoot_flipped(struct forger *forger)
{
    if (copy_sample(forger)) {
        forger->shot->length -= ICRC_LENGTH;
        flip(forger, 0, forger->shot->length);
        add_icrc(forger);
    }
}

static void edit(struct forger *forger)
{
    struct shot *shot = forger->shot;
    uint32_t psn = bytes_load_u24(shot->bytes + 9);
    shot->identification = one_in(forger, 16) ? (uint16_t)any(forger) : 0;
    switch (below(forger, 6)) {
    case 0:
        shot->bytes[0] = (uint8_t)any(forger);
        break;
    case 1:
        bytes_store_u24(shot->bytes + 9, psn_make(psn + below(forger, 64) - 16).value);
        break;
    case 2: {
        const struct flow *flow = pick_flow(forger, false);
        bytes_store_u24(shot->bytes + 5, flow != NULL ? flow->qpn : any(forger) & PSN_MASK);
        break;
    }
    case 3: { /* shorter or longer than it says */
        uint32_t length = below(forger, SAMPLE_BYTES);
        for (uint32_t i = shot->length; i < length; i++) {
            shot->bytes[i] = (uint8_t)i;
        }
        shot->length = length;
        break;
    }
    case 4: /* pad count, flags, P_Key */
        shot->bytes[1 + below(forger, 3)] = (uint8_t)any(forger);
        break;
    default: /* fields of the extended headers */
        for (uint32_t i = BTH_LENGTH; i < shot->length && i < BTH_LENGTH + 16; i++) {
            shot->bytes[i] = one_in(forger, 4) ? (uint8_t)any(forger) : shot->bytes[i];
        }
        break;
    }
}

static void shoot_edited(struct forger *forger)
{
    if (copy_sample(forger)) {
        forger->shot->length -= ICRC_LENGTH;
        edit(forger);
        add_icrc(forger);
    }
}

/* Packets made up */

static void finish(struct forger *forger, const struct packet *packet)
{
    struct shot *shot = forger->shot;
    uint32_t header = packet_build(packet, shot->bytes);
    uint32_t rest = packet->payload_length + packet_pad(packet->payload_length);
    memset(shot->bytes + header, 0xee, rest);
    shot->length = header + rest;
    add_icrc(forger);
}

static uint8_t any_opcode(struct forger *forger, uint8_t service)
{
    for (;;) {
        uint8_t opcode = OPCODE(service, below(forger, 32));
        if (opcode_lookup(opcode) != NULL) {
            return opcode;
        }
    }
}

static struct packet make_up(struct forger *forger, uint8_t opcode, uint32_t qpn, uint32_t psn,
                             const struct flow *near)
{
    static const uint32_t lengths[] = {0, 1, 4, 8, 100, 1024, 1024, 4096, 4096, 4097, 5000};
    const struct opcode_info *info = opcode_lookup(opcode);
    struct packet packet = {
        .opcode = opcode,
        .pkey = PKEY_DEFAULT,
        .ack_request = one_in(forger, 2),
        .solicited = one_in(forger, 4),
        .destination = {qpn & PSN_MASK},
        .psn = psn_make(psn),
        .dma_length = lengths[below(forger, 11)] * (1 + below(forger, 5)),
        .swap_or_add = random_u64(&forger->random),
        .aeth = {.kind = (enum aeth_kind)below(forger, 4),
                 .value = (uint8_t)below(forger, 32),
                 .msn = any(forger) & PSN_MASK},
        .original = random_u64(&forger->random),
        .qkey = {one_in(forger, 4) ? any(forger) : UDP_QKEY},
        .source = {any(forger) & PSN_MASK},
        .xrc_srq = any(forger) & PSN_MASK,
        .payload_length = info->has_payload ? lengths[below(forger, 11)] : 0,
    };
    aim(forger, near, &packet);
    return packet;
}

static void shoot_grammar(struct forger *forger)
{
    const struct flow *flow = pick_flow(forger, false);
    uint8_t service = (uint8_t)(one_in(forger, 8) ? SERVICE_XRC : SERVICE_RC);
    if (flow == NULL) {
        return;
    }
    service = one_in(forger, 8) ? service : flow->service;
    forger->shot->path = (struct path){.local = flow->from, .remote = flow->to};
    uint32_t psn = flow->psn + (one_in(forger, 2) ? 1 : below(forger, 80) - 40);
    struct packet packet = make_up(forger, any_opcode(forger, service), flow->qpn, psn, flow);
    finish(forger, &packet);
}

static void shoot_answer(struct forger *forger)
{
    static const uint8_t forms[] = {FORM_ACKNOWLEDGE, FORM_ACKNOWLEDGE, FORM_ATOMIC_ACKNOWLEDGE,
                                    FORM_READ_RESPONSE_ONLY, FORM_READ_RESPONSE_MIDDLE};
    const struct flow *flow = pick_flow(forger, false);
    if (flow == NULL) {
        return;
    }
    forger->shot->path = (struct path){.local = flow->from, .remote = flow->to};
    struct packet packet = make_up(forger, OPCODE(SERVICE_RC, forms[below(forger, 5)]), flow->qpn,
                                   flow->psn + below(forger, 8) - 4, flow);
    finish(forger, &packet);
}

static void shoot_stranger(struct forger *forger)
{
    const struct flow *flow = pick_flow(forger, one_in(forger, 2));
    forger->shot->path = from_anywhere(forger);
    uint32_t qpn = flow == NULL || one_in(forger, 4) ? any(forger) : flow->qpn;
    uint8_t service = flow == NULL ? SERVICE_RC : flow->service;
    struct packet packet = make_up(forger, any_opcode(forger, service), qpn,
                                   flow == NULL ? any(forger) : flow->psn + 1, flow);
    finish(forger, &packet);
}

static void shoot_off_path(struct forger *forger)
{
    const struct flow *flow = pick_flow(forger, true);
    if (flow == NULL) {
        return;
    }
    forger->shot->path = (struct path){.local = flow->from, .remote = flow->to};
    uint32_t psn = flow->psn + (one_in(forger, 4) ? EARLY + below(forger, REPORT_SPAN - EARLY)
                                                  : FAR + below(forger, PSN_MASK + 1 - 2 * FAR));
    struct packet packet = make_up(forger, any_opcode(forger, flow->service), flow->qpn, psn, flow);
    finish(forger, &packet);
}

static void shoot_cnp(struct forger *forger)
{
    const struct flow *flow = pick_flow(forger, one_in(forger, 2));
    if (flow == NULL) {
        return;
    }
    forger->shot->path = (struct path){.local = flow->from, .remote = flow->to};
    struct packet packet = {
        .opcode = OPCODE_CNP, .pkey = PKEY_DEFAULT, .destination = {flow->qpn}, .becn = true};
    finish(forger, &packet);
}

/* To all: groups that the server is in or not, and broadcasts. What stands in them is mostly for a
 * group, else for a queue pair of one process. */
static void shoot_group(struct forger *forger)
{
    static const struct gid all_ipv4[] = {
        {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 78, 0, 1}}, /* GROUP_IPV4 */
        {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 78, 0, 1}},
        {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 224, 0, 0, 1}}, /* all hosts */
        {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 78, 0, 255}},
        {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 255, 255, 255, 255}},
    };
    static const struct gid all_ipv6[] = {
        {{0xff, 0x05, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x78, 0, 1}}, /* GROUP_IPV6 */
        {{0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}},    /* all nodes */
    };
    const struct flow *flow = pick_flow(forger, one_in(forger, 2));
    struct path *path = &forger->shot->path;
    *path = one_in(forger, 2) ? from_anywhere(forger) : from_peer(forger, one_in(forger, 2));
    path->remote =
        gid_is_ipv4(&path->local) ? all_ipv4[below(forger, 5)] : all_ipv6[below(forger, 2)];
    bool to_pair = flow != NULL && one_in(forger, 4);
    uint8_t service = to_pair && one_in(forger, 2) ? flow->service : SERVICE_UD;
    struct packet packet = make_up(
        forger, one_in(forger, 8) ? any_opcode(forger, SERVICE_RC) : any_opcode(forger, service),
        to_pair ? flow->qpn : QPN_MULTICAST.value, flow == NULL ? any(forger) : flow->psn + 1,
        flow);
    if (one_in(forger, 4)) {
        packet.destination = QPN_MANAGEMENT;
        packet.qkey = QKEY_MANAGEMENT;
    }
    finish(forger, &packet);
}

/* Bytes */

static void fill(struct forger *forger, uint32_t length)
{
    for (uint32_t i = 0; i < length; i++) {
        forger->shot->bytes[i] = (uint8_t)any(forger);
    }
    forger->shot->length = length;
}

static void shoot_address(struct forger *forger)
{
    forger->shot->path = from_anywhere(forger);
    forger->shot->port = SOCKET_DATAGRAMS + (one_in(forger, 2) ? NEIGHBOUR : 0);
    forger->shot->path.source_port = forger->source_port;
    fill(forger, below(forger, 64));
    if (forger->shot->length >= 16 && !one_in(forger, 4)) { /* as rsockets begin */
        static const uint8_t head[] = {0x55, 0x55, 0x55, 0x55, 1};
        memcpy(forger->shot->bytes, head, sizeof head);
        forger->shot->bytes[5] = (uint8_t)(1 + below(forger, 2));
        forger->shot->bytes[6] = gid_is_ipv4(&forger->shot->path.local) ? 16 : 28;
        forger->shot->bytes[7] = 0;
    }
}

static void shoot_truncated(struct forger *forger)
{
    fill(forger, below(forger, BTH_LENGTH + ICRC_LENGTH));
}

static void shoot_oversized(struct forger *forger)
{
    fill(forger, 4200 + below(forger, SHOT_BYTES_MAX - 4300));
    forger->shot->bytes[0] = any_opcode(forger, SERVICE_RC);
    add_icrc(forger);
}

static void shoot_noise(struct forger *forger)
{
    fill(forger, below(forger, 200));
}

/* Each may leave an empty shot, when nothing was overheard that it needs. */
static void (*const shooters[SHOT_KINDS])(struct forger *) = {
    [SHOT_REPLAY] = shoot_replay,
    [SHOT_DAMAGED] = shoot_damaged,
    [SHOT_FLIPPED] = shoot_flipped,
    [SHOT_EDITED] = shoot_edited,
    [SHOT_GRAMMAR] = shoot_grammar,
    [SHOT_ANSWER] = shoot_answer,
    [SHOT_STRANGER] = shoot_stranger,
    [SHOT_OFF_PATH] = shoot_off_path,
    [SHOT_CNP] = shoot_cnp,
    [SHOT_MAD] = shoot_mad,
    [SHOT_MAD_BLIND] = shoot_mad_blind,
    [SHOT_REQUEST] = shoot_request,
    [SHOT_STALE] = shoot_stale,
    [SHOT_TRUNCATED] = shoot_truncated,
    [SHOT_OVERSIZED] = shoot_oversized,
    [SHOT_NOISE] = shoot_noise,
    [SHOT_ADDRESS] = shoot_address,
    [SHOT_GROUP] = shoot_group,
};

static struct forger begin(uint64_t seed, uint64_t number, const struct scene *scene,
                           struct shot *shot)
{
    struct forger forger = {.scene = scene, .shot = shot};
    random_seed(&forger.random, seed ^ (number + 1) * UINT64_C(0x9e3779b97f4a7c15));
    return forger;
}

static void shoot(struct forger *forger, enum shot_kind kind)
{
    struct shot *shot = forger->shot;
    shot->kind = kind;
    shot->port = ROCE_UDP_PORT;
    shot->identification = one_in(forger, 16) ? (uint16_t)any(forger) : 0;
    shot->length = 0;
    forger->source_port = (uint16_t)(49152 + below(forger, 16384));
    shot->path = from_anywhere(forger);
    shot->path.source_port = forger->source_port;
    shooters[kind](forger);
}

void forge(uint64_t seed, uint64_t number, const struct scene *scene, struct shot *ret_shot)
{
    struct forger forger = begin(seed, number, scene, ret_shot);
    uint32_t sum = 0, kind = 0;
    for (uint32_t i = 0; i < SHOT_KINDS; i++) {
        sum += weights[i];
    }
    for (uint32_t left = below(&forger, sum); left >= weights[kind]; kind++) {
        left -= weights[kind];
    }
    shoot(&forger, (enum shot_kind)kind);
}

void forge_kind(uint64_t seed, uint64_t number, const struct scene *scene, enum shot_kind kind,
                struct shot *ret_shot)
{
    struct forger forger = begin(seed, number, scene, ret_shot);
    shoot(&forger, kind);
}
