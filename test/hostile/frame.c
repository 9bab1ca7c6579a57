/* Frames: what stands around a packet, and what can be learned from one that passes. */
#include "rnic/base/bytes.h"
#include "rnic/wire/roce.h"
#include "test/hostile/forge.h"

#define ETHERNET 14u
#define IPV4     20u
#define IPV6     40u
#define UDP      8u

static uint32_t add_up(const uint8_t *bytes, uint32_t length)
{
    uint32_t sum = length % 2 == 0 ? 0 : (uint32_t)bytes[length - 1] << 8;
    for (uint32_t i = 0; i + 1 < length; i += 2) {
        sum += bytes_load_u16(bytes + i);
    }
    return sum;
}

static uint16_t checksum(uint32_t sum)
{
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t) ~(sum + (sum >> 16));
}

static uint32_t build_ipv4(const struct shot *shot, uint32_t length, uint8_t *ip)
{
    memset(ip, 0, IPV4);
    ip[0] = 0x45;
    bytes_store_u16(ip + 2, (uint16_t)(IPV4 + length));
    bytes_store_u16(ip + 4, shot->identification);
    bytes_store_u16(ip + 6, 0x4000);
    ip[8] = 64;
    ip[9] = 17;
    memcpy(ip + 12, shot->path.local.bytes + 12, 4);
    memcpy(ip + 16, shot->path.remote.bytes + 12, 4);
    bytes_store_u16(ip + 10, checksum(add_up(ip, IPV4)));
    return IPV4;
}

static uint32_t build_ipv6(const struct shot *shot, uint32_t length, uint8_t *ip)
{
    memset(ip, 0, IPV6);
    ip[0] = 0x60;
    bytes_store_u16(ip + 4, (uint16_t)length);
    ip[6] = 17;
    ip[7] = 64;
    memcpy(ip + 8, shot->path.local.bytes, 16);
    memcpy(ip + 24, shot->path.remote.bytes, 16);
    return IPV6;
}

static bool is_broadcast(const struct gid *to)
{
    return gid_is_ipv4(to) && to->bytes[15] == 255;
}

enum audience shot_audience(const struct shot *shot)
{
    const struct gid *to = &shot->path.remote;
    if (is_broadcast(to)) {
        return AUDIENCE_BROADCAST;
    }
    if (!gid_is_multicast(to)) {
        return AUDIENCE_ONE;
    }
    if (gid_is_ipv4(to)) {
        return to->bytes[12] == 239 ? AUDIENCE_GROUP_IPV4 : AUDIENCE_OTHER;
    }
    return to->bytes[1] == 5 ? AUDIENCE_GROUP_IPV6 : AUDIENCE_OTHER;
}

/* The link's address for it: a group's, everybody's, or its one receiver's. */
static void address_frame(const struct gid *destination, const uint8_t to[6],
                          uint8_t ret_address[6])
{
    const uint8_t *bytes = destination->bytes;
    const uint8_t ipv4[6] = {0x01, 0x00, 0x5e, bytes[13] & 0x7f, bytes[14], bytes[15]};
    const uint8_t ipv6[6] = {0x33, 0x33, bytes[12], bytes[13], bytes[14], bytes[15]};
    memcpy(ret_address, to, 6);
    if (is_broadcast(destination)) {
        memset(ret_address, 0xff, 6);
    } else if (gid_is_multicast(destination)) {
        memcpy(ret_address, gid_is_ipv4(destination) ? ipv4 : ipv6, 6);
    }
}

uint32_t forge_frame(const struct shot *shot, const uint8_t from[6], const uint8_t to[6],
                     uint8_t ret_frame[FRAME_MAX])
{
    bool v4 = gid_is_ipv4(&shot->path.local);
    uint32_t length = UDP + shot->length;
    address_frame(&shot->path.remote, to, ret_frame);
    memcpy(ret_frame + 6, from, 6);
    bytes_store_u16(ret_frame + 12, v4 ? 0x0800 : 0x86dd);
    uint8_t *ip = ret_frame + ETHERNET;
    uint32_t at = v4 ? build_ipv4(shot, length, ip) : build_ipv6(shot, length, ip);
    uint8_t *udp = ip + at;
    bytes_store_u16(udp, shot->path.source_port);
    bytes_store_u16(udp + 2, shot->port);
    bytes_store_u16(udp + 4, (uint16_t)length);
    bytes_store_u16(udp + 6, 0); /* none, as the kernel's rxe sends */
    memcpy(udp + UDP, shot->bytes, shot->length);
    if (shot->port != ROCE_UDP_PORT && !v4) { /* only a RoCE socket takes that */
        uint32_t sum = add_up(ip + 8, 32) + add_up(udp, length) + length + 17;
        bytes_store_u16(udp + 6, checksum(sum) != 0 ? checksum(sum) : 0xffff); /* 0 is none */
    }
    return ETHERNET + at + length;
}

/* What passes by */

/* The UDP payload of a RoCE frame; 0: it is none. */
static uint32_t open_frame(const uint8_t *frame, uint32_t length, struct path *ret_path,
                           const uint8_t **ret_bytes)
{
    uint32_t at = ETHERNET;
    if (length < ETHERNET + IPV6 + UDP) {
        return 0;
    }
    const uint8_t *ip = frame + ETHERNET;
    *ret_path = (struct path){0};
    if (bytes_load_u16(frame + 12) == 0x0800 && ip[0] == 0x45 && ip[9] == 17) {
        ret_path->local.bytes[10] = ret_path->local.bytes[11] = 0xff;
        ret_path->remote.bytes[10] = ret_path->remote.bytes[11] = 0xff;
        memcpy(ret_path->local.bytes + 12, ip + 12, 4);
        memcpy(ret_path->remote.bytes + 12, ip + 16, 4);
        at += IPV4;
    } else if (bytes_load_u16(frame + 12) == 0x86dd && ip[6] == 17) {
        memcpy(ret_path->local.bytes, ip + 8, 16);
        memcpy(ret_path->remote.bytes, ip + 24, 16);
        at += IPV6;
    } else {
        return 0;
    }
    if (bytes_load_u16(frame + at + 2) != ROCE_UDP_PORT) {
        return 0;
    }
    ret_path->source_port = bytes_load_u16(frame + at);
    *ret_bytes = frame + at + UDP;
    return length - at - UDP;
}

/* Whose packets the attacker does not read: 10.78.0.3, fd78::3, and 4 (client.c). */
static bool is_sheltered(const struct gid *gid)
{
    return gid->bytes[14] == 0 && (gid->bytes[15] == 3 || gid->bytes[15] == 4);
}

static struct flow *find_flow(struct scene *scene, const struct path *path, uint32_t qpn)
{
    for (uint32_t i = 0; i < scene->flow_count; i++) {
        struct flow *flow = &scene->flows[i];
        if (flow->qpn == qpn && gid_equal(&flow->from, &path->local) &&
            gid_equal(&flow->to, &path->remote)) {
            return flow;
        }
    }
    /* The newest push out the oldest. */
    if (scene->flow_count == FLOWS_MAX) {
        memmove(scene->flows, scene->flows + 1, (FLOWS_MAX - 1) * sizeof *scene->flows);
        scene->flow_count--;
        scene->sample_count = 0; /* they name flows by place */
    }
    struct flow *flow = &scene->flows[scene->flow_count++];
    *flow = (struct flow){.from = path->local,
                          .to = path->remote,
                          .qpn = qpn,
                          .toward_server = path->remote.bytes[15] == 1,
                          .sheltered = is_sheltered(&path->local) || is_sheltered(&path->remote)};
    return flow;
}

static void hear_ids(struct scene *scene, const struct path *path, const struct packet *packet)
{
    struct cm_message message;
    if (cm_message_parse(packet->payload, packet->payload_length, &message) != STATUS_OK ||
        path->local.bytes[15] != 2) {
        return;
    }
    uint32_t at = scene->id_count;
    if (at == IDS_MAX) {
        at = message.local_id % IDS_MAX;
    } else {
        scene->id_count++;
    }
    scene->ids[at] = (struct ids){path->local, path->remote, message.local_id, message.remote_id,
                                  message.transaction};
}

void scene_hear(struct scene *scene, const uint8_t *frame, uint32_t length)
{
    struct path path;
    struct packet packet;
    const uint8_t *bytes = NULL;
    uint32_t count = open_frame(frame, length, &path, &bytes);
    if (count < BTH_LENGTH + ICRC_LENGTH ||
        packet_parse(bytes, count - ICRC_LENGTH, &packet) != REFUSED_NOT) {
        return;
    }
    if (qpn_equal(packet.destination, QPN_MANAGEMENT)) {
        hear_ids(scene, &path, &packet);
        return;
    }
    struct flow *flow = find_flow(scene, &path, packet.destination.value);
    flow->psn = packet.psn.value;
    flow->source_port = path.source_port;
    flow->service = (uint8_t)packet.info->service;
    if (packet.info->has_reth || packet.info->has_atomic) {
        flow->address = packet.remote_address;
        flow->key = packet.remote_key.value;
    }
    if (packet.info->service == SERVICE_XRC) {
        flow->xrc_srq = packet.xrc_srq != 0 ? packet.xrc_srq : flow->xrc_srq;
    }
    if (flow->toward_server && !flow->sheltered && count <= SAMPLE_BYTES) {
        struct sample *sample = &scene->samples[packet.psn.value % SAMPLES_MAX];
        if (scene->sample_count < SAMPLES_MAX) {
            sample = &scene->samples[scene->sample_count++];
        }
        sample->flow = (uint32_t)(flow - scene->flows);
        sample->length = count;
        memcpy(sample->bytes, bytes, count);
    }
}
