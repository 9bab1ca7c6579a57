#include "test/hostile/forge.h"

#include "rnic/base/bytes.h"
#include "rnic/base/random.h"
#include "rnic/wire/psn.h"
#include "rnic/wire/report.h"
#include "rnic/wire/roce.h"
#include "test/hostile/message.h"

#define PORT_SPACE_TCP 0x0106u
#define PORT_SPACE_UDP 0x0111u
#define FAR            (UINT32_C(1) << 20) /* outside every PSN window */
#define EARLY          512u                /* before its turn, and no such turn comes soon */
#define UDP_QKEY       0x01234567u         /* RDMA_UDP_QKEY */

static const char *const names[SHOT_KINDS] = {
    "replay",   "damaged",   "flipped",   "edited", "grammar",         "answer",
    "stranger", "off-path",  "cnp",       "mad",    "mad, blind",      "request",
    "stale",    "truncated", "oversized", "noise",  "rsocket address",
};

/* How often each, of their sum. */
static const uint8_t weights[SHOT_KINDS] = {8, 6, 8, 10, 12, 8, 8, 12, 2, 6, 4, 3, 1, 2, 2, 4, 1};

const char *shot_kind_name(enum shot_kind kind)
{
    return names[kind];
}

struct forger {
    struct random random;
    const struct scene *scene;
    struct shot *shot;
    uint16_t source_port; /* of what is not a copy */
};

static uint32_t below(struct forger *forger, uint32_t bound)
{
    return (uint32_t)random_below(&forger->random, bound);
}

static bool one_in(struct forger *forger, uint32_t count)
{
    return below(forger, count) == 0;
}

static uint32_t any(struct forger *forger)
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

static struct path from_anywhere(struct forger *forger)
{
    uint8_t third = (uint8_t)(1 + below(forger, 200)), fourth = (uint8_t)(4 + below(forger, 250));
    if (one_in(forger, 3)) {
        return (struct path){.local = ipv6(third, fourth), .remote = ipv6(0, 1)};
    }
    return (struct path){.local = ipv4(third, fourth), .remote = ipv4(0, 1)};
}

static struct path from_peer(struct forger *forger, bool sheltered)
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

/* Right for what stands in the shot now. */
static void add_icrc(struct forger *forger)
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
    uint64_t address = near == NULL ? random_u64(&forger->random) : near->address;
    uint32_t key = near == NULL ? any(forger) : near->key;
    struct packet packet = {
        .opcode = opcode,
        .pkey = PKEY_DEFAULT,
        .ack_request = one_in(forger, 2),
        .solicited = one_in(forger, 4),
        .destination = {qpn & PSN_MASK},
        .psn = psn_make(psn),
        .remote_address = address + (one_in(forger, 2) ? 0 : below(forger, 40000) - 20000),
        .remote_key = {one_in(forger, 4) ? key ^ 1u << below(forger, 32) : key},
        .dma_length = lengths[below(forger, 11)] * (1 + below(forger, 5)),
        .swap_or_add = random_u64(&forger->random),
        .aeth = {.kind = (enum aeth_kind)below(forger, 4),
                 .value = (uint8_t)below(forger, 32),
                 .msn = any(forger) & PSN_MASK},
        .original = random_u64(&forger->random),
        .invalidate = {key},
        .qkey = {one_in(forger, 4) ? any(forger) : UDP_QKEY},
        .source = {any(forger) & PSN_MASK},
        .xrc_srq = any(forger) & PSN_MASK,
        .payload_length = info->has_payload ? lengths[below(forger, 11)] : 0,
    };
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

/* Management datagrams */

static void send_mad(struct forger *forger, const uint8_t mad[MAD_LENGTH])
{
    struct packet packet = {
        .opcode = OPCODE(SERVICE_UD, FORM_SEND_ONLY),
        .pkey = PKEY_DEFAULT,
        .destination = QPN_MANAGEMENT,
        .psn = psn_make(any(forger)),
        .qkey = QKEY_MANAGEMENT,
        .source = QPN_MANAGEMENT,
        .payload_length = MAD_LENGTH,
    };
    struct shot *shot = forger->shot;
    uint32_t header = packet_build(&packet, shot->bytes);
    memcpy(shot->bytes + header, mad, MAD_LENGTH);
    shot->length = header + MAD_LENGTH;
    add_icrc(forger);
}

static struct cm_message any_message(struct forger *forger)
{
    return (struct cm_message){
        .kind = (enum cm_message_kind)(CM_MESSAGE_REQ + below(forger, 9)),
        .transaction = random_u64(&forger->random),
        .local_id = any(forger),
        .remote_id = one_in(forger, 4) ? 0 : any(forger),
        .service_id =
            rdma_cm_service_id(PORT_SPACE_TCP, (uint16_t)(STREAM_PORT + below(forger, 4))),
        .local_qpn = {any(forger) & PSN_MASK},
        .starting_psn = psn_make(any(forger)),
        .responder_resources = (uint8_t)any(forger),
        .initiator_depth = (uint8_t)any(forger),
        .path_mtu = (enum path_mtu)below(forger, 8),
        .max_cm_retries = 15,
        .local_response_timeout = (uint8_t)below(forger, 32),
        .remote_response_timeout = (uint8_t)below(forger, 32),
        .ack_timeout = (uint8_t)below(forger, 32),
        .transport_service = (uint8_t)below(forger, 4),
        .pkey = PKEY_DEFAULT,
        .path = forger->shot->path,
        .service_timeout = (uint8_t)below(forger, 32),
        .answered = (uint8_t)below(forger, 4),
        .reject_reason = (uint16_t)below(forger, 40),
        .reject_info_length = (uint8_t)any(forger),
    };
}

static void know_ids(struct forger *forger, struct cm_message *message)
{
    const struct scene *scene = forger->scene;
    if (scene->id_count > 0) {
        const struct ids *ids = &scene->ids[below(forger, scene->id_count)];
        forger->shot->path = (struct path){.local = ids->from, .remote = ids->to};
        message->path = forger->shot->path;
        message->local_id = ids->local;
        message->remote_id = ids->remote;
        message->transaction = one_in(forger, 2) ? ids->transaction : message->transaction;
    }
}

static void shoot_mad(struct forger *forger)
{
    uint8_t mad[MAD_LENGTH];
    forger->shot->path = from_peer(forger, false);
    if (one_in(forger, 3)) {
        forger->shot->path = from_anywhere(forger);
    }
    struct cm_message message = any_message(forger);
    if (one_in(forger, 2)) {
        know_ids(forger, &message);
    }
    cm_message_build(&message, mad);
    while (one_in(forger, 2)) {
        mad[below(forger, MAD_LENGTH)] = (uint8_t)any(forger);
    }
    send_mad(forger, mad);
}

static void shoot_mad_blind(struct forger *forger)
{
    uint8_t mad[MAD_LENGTH];
    forger->shot->path = from_peer(forger, true);
    struct cm_message message = any_message(forger);
    cm_message_build(&message, mad);
    send_mad(forger, mad);
}

static void request(struct forger *forger, const struct path *path, uint32_t qpn)
{
    uint8_t mad[MAD_LENGTH];
    forger->shot->path = *path;
    struct cm_message message = any_message(forger);
    message.kind = one_in(forger, 4) ? CM_MESSAGE_SIDR_REQ : CM_MESSAGE_REQ;
    message.path_mtu = PATH_MTU_1024;
    message.transport_service = (uint8_t)below(forger, 2);
    message.local_qpn.value = qpn & PSN_MASK;
    if (message.kind == CM_MESSAGE_SIDR_REQ) {
        message.service_id = rdma_cm_service_id(PORT_SPACE_UDP, DATAGRAM_PORT);
    }
    struct rdma_cm_header header = {.ip_version = gid_is_ipv4(&path->local) ? 4 : 6,
                                    .port = (uint16_t)any(forger),
                                    .source = path->local,
                                    .destination = path->remote};
    rdma_cm_header_build(&header, message.private_data);
    cm_message_build(&message, mad);
    send_mad(forger, mad);
}

static void shoot_request(struct forger *forger)
{
    struct path path = from_anywhere(forger);
    request(forger, &path, any(forger));
}

/* The peer's queue pair is where the server's packets to it go. */
static void shoot_stale(struct forger *forger)
{
    const struct scene *scene = forger->scene;
    for (uint32_t i = 0; i < scene->flow_count; i++) {
        const struct flow *flow = &scene->flows[below(forger, scene->flow_count)];
        if (!flow->toward_server && flow->sheltered && flow->service == SERVICE_RC) {
            struct path path = {.local = flow->to, .remote = flow->from};
            request(forger, &path, flow->qpn);
            return;
        }
    }
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
    forger->shot->port = SOCKET_DATAGRAMS;
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
