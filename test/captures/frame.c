#include "test/captures/frame.h"

#include <string.h>

#include "rnic/base/bytes.h"

#define TYPE_IPV4   0x0800
#define TYPE_IPV6   0x86dd
#define PROTOCOL    17
#define IPV4_LENGTH 20u
#define IPV6_LENGTH 40u
#define UDP_LENGTH  8u
#define IPV4_DF     0x40
/* Service ids of rdma_cm: 0x0000000001pppppp. [IBA A11.2] */
#define RDMA_CM_SERVICE_PREFIX UINT64_C(1)

static bool is_ipv6(const uint8_t *bytes)
{
    return bytes_load_u16(bytes + 12) == TYPE_IPV6;
}

uint32_t frame_udp_offset(const uint8_t *bytes)
{
    return ETHERNET_LENGTH + (is_ipv6(bytes) ? IPV6_LENGTH : IPV4_LENGTH);
}

/* Sum of ones' complement. [RFC 1071] */
static uint32_t sum(uint32_t so_far, const uint8_t *bytes, uint32_t length)
{
    for (uint32_t i = 0; i + 1 < length; i += 2) {
        so_far += bytes_load_u16(bytes + i);
    }
    return (length & 1) != 0 ? so_far + ((uint32_t)bytes[length - 1] << 8) : so_far;
}

static uint16_t fold(uint32_t value)
{
    value = (value & 0xffff) + (value >> 16);
    return (uint16_t) ~((value & 0xffff) + (value >> 16));
}

/* [RFC 768; RFC 8200 8.1]: over addresses, protocol, length and the datagram. A 0 is sent as ones.
 */
static uint16_t udp_checksum(const uint8_t *bytes)
{
    const uint8_t *ip = bytes + ETHERNET_LENGTH, *udp = bytes + frame_udp_offset(bytes);
    uint32_t length = bytes_load_u16(udp + 4);
    uint32_t value = is_ipv6(bytes) ? sum(0, ip + 8, 32) : sum(0, ip + 12, 8);
    value = sum(value + PROTOCOL + length, udp, 6);
    uint16_t checksum = fold(sum(value, udp + UDP_LENGTH, length - UDP_LENGTH));
    return checksum == 0 ? 0xffff : checksum;
}

static const char *parse_ipv4(const uint8_t *ip, uint32_t length, struct frame *frame)
{
    if (length < IPV4_LENGTH || ip[0] != 0x45 || bytes_load_u16(ip + 2) != length) {
        return "IP length";
    }
    if (fold(sum(0, ip, IPV4_LENGTH)) != 0) {
        return "IP checksum";
    }
    if ((ip[6] & ~IPV4_DF) != 0 || ip[7] != 0) {
        return "IP fragment";
    }
    memset(frame->path.local.bytes + 10, 0xff, 2);
    memset(frame->path.remote.bytes + 10, 0xff, 2);
    memcpy(frame->path.local.bytes + 12, ip + 12, 4);
    memcpy(frame->path.remote.bytes + 12, ip + 16, 4);
    frame->path.traffic_class = ip[1];
    frame->path.hop_limit = ip[8];
    frame->ip.identification = bytes_load_u16(ip + 4);
    frame->ip.dont_fragment = ip[6] != 0;
    return ip[9] == PROTOCOL ? NULL : "not RoCEv2";
}

static const char *parse_ipv6(const uint8_t *ip, uint32_t length, struct frame *frame)
{
    if (length < IPV6_LENGTH || ip[0] >> 4 != 6 || bytes_load_u16(ip + 4) != length - IPV6_LENGTH) {
        return "IP length";
    }
    memcpy(frame->path.local.bytes, ip + 8, 16);
    memcpy(frame->path.remote.bytes, ip + 24, 16);
    if (gid_is_ipv4(&frame->path.local) || gid_is_ipv4(&frame->path.remote)) {
        return "IPv4 in IPv6"; /* never on a wire [RFC 4291 2.5.5.2]; a GID cannot tell it */
    }
    frame->path.traffic_class = (uint8_t)(bytes_load_u16(ip) >> 4);
    frame->path.flow_label = bytes_load_u32(ip) & 0xfffff;
    frame->path.hop_limit = ip[7];
    return ip[6] == PROTOCOL ? NULL : "not RoCEv2";
}

static const char *parse_udp(const uint8_t *bytes, uint32_t length, struct frame *frame)
{
    const uint8_t *udp = bytes + frame_udp_offset(bytes);
    if (length < frame_bth_offset(bytes) + BTH_LENGTH + ICRC_LENGTH) {
        return "truncated";
    }
    if (bytes_load_u16(udp + 2) != ROCE_UDP_PORT) {
        return "not RoCEv2";
    }
    if (bytes_load_u16(udp + 4) != length - frame_udp_offset(bytes)) {
        return "UDP length";
    }
    frame->path.source_port = bytes_load_u16(udp);
    frame->has_udp_checksum = bytes_load_u16(udp + 6) != 0;
    return frame->has_udp_checksum && bytes_load_u16(udp + 6) != udp_checksum(bytes)
               ? "UDP checksum"
               : NULL;
}

static const char *parse_management(struct frame *frame)
{
    const struct packet *packet = &frame->packet;
    frame->is_management =
        packet->info->service == SERVICE_UD && qpn_equal(packet->destination, QPN_MANAGEMENT);
    if (!frame->is_management) {
        return NULL;
    }
    if (cm_message_parse(packet->payload, packet->payload_length, &frame->message) != STATUS_OK) {
        return "MAD";
    }
    frame->has_rdma_cm_header = frame->message.kind == CM_MESSAGE_REQ &&
                                frame->message.service_id >> 24 == RDMA_CM_SERVICE_PREFIX;
    return frame->has_rdma_cm_header &&
                   rdma_cm_header_parse(frame->message.private_data, &frame->rdma_cm) != STATUS_OK
               ? "rdma_cm header"
               : NULL;
}

const char *frame_parse(const uint8_t *bytes, uint32_t length, struct frame *ret_frame)
{
    if (length < ETHERNET_LENGTH ||
        (bytes_load_u16(bytes + 12) != TYPE_IPV4 && bytes_load_u16(bytes + 12) != TYPE_IPV6)) {
        return "not RoCEv2";
    }
    struct frame frame = {.is_management = false};
    memcpy(frame.ethernet_addresses, bytes, sizeof frame.ethernet_addresses);
    const uint8_t *ip = bytes + ETHERNET_LENGTH;
    const char *refused = is_ipv6(bytes) ? parse_ipv6(ip, length - ETHERNET_LENGTH, &frame)
                                         : parse_ipv4(ip, length - ETHERNET_LENGTH, &frame);
    refused = refused != NULL ? refused : parse_udp(bytes, length, &frame);
    if (refused != NULL) {
        return refused;
    }
    const uint8_t *bth = bytes + frame_bth_offset(bytes);
    uint32_t bth_length = length - frame_bth_offset(bytes) - ICRC_LENGTH;
    if (roce_icrc(&frame.path, &frame.ip, bth, bth_length) !=
        roce_icrc_load(bytes + length - ICRC_LENGTH)) {
        return packet_refusal_name(REFUSED_ICRC);
    }
    enum packet_refusal refusal = packet_parse(bth, bth_length, &frame.packet);
    refused = refusal != REFUSED_NOT ? packet_refusal_name(refusal) : parse_management(&frame);
    if (refused == NULL) {
        *ret_frame = frame;
    }
    return refused;
}

static uint8_t *build_ip(const struct frame *frame, uint32_t udp_length, uint8_t *ip)
{
    const struct path *path = &frame->path;
    if (!gid_is_ipv4(&path->local)) {
        bytes_store_u32(ip,
                        UINT32_C(6) << 28 | (uint32_t)path->traffic_class << 20 | path->flow_label);
        bytes_store_u16(ip + 4, (uint16_t)udp_length);
        ip[6] = PROTOCOL;
        ip[7] = path->hop_limit;
        memcpy(ip + 8, path->local.bytes, 16);
        memcpy(ip + 24, path->remote.bytes, 16);
        return ip + IPV6_LENGTH;
    }
    ip[0] = 0x45;
    ip[1] = path->traffic_class;
    bytes_store_u16(ip + 2, (uint16_t)(IPV4_LENGTH + udp_length));
    bytes_store_u16(ip + 4, frame->ip.identification);
    bytes_store_u16(ip + 6, frame->ip.dont_fragment ? IPV4_DF << 8 : 0);
    ip[8] = path->hop_limit;
    ip[9] = PROTOCOL;
    memcpy(ip + 12, path->local.bytes + 12, 4);
    memcpy(ip + 16, path->remote.bytes + 12, 4);
    bytes_store_u16(ip + 10, 0);
    bytes_store_u16(ip + 10, fold(sum(0, ip, IPV4_LENGTH)));
    return ip + IPV4_LENGTH;
}

static void build_payload(const struct frame *frame, uint8_t *payload)
{
    if (!frame->is_management) {
        memcpy(payload, frame->packet.payload, frame->packet.payload_length);
        return;
    }
    struct cm_message message = frame->message;
    if (frame->has_rdma_cm_header) {
        rdma_cm_header_build(&frame->rdma_cm, message.private_data);
    }
    cm_message_build(&message, payload);
}

uint32_t frame_build(const struct frame *frame, uint8_t ret_bytes[FRAME_MAX])
{
    uint8_t header[PACKET_HEADER_MAX];
    uint32_t header_length = packet_build(&frame->packet, header);
    uint32_t payload_length = frame->packet.payload_length, pad = packet_pad(payload_length);
    uint32_t bth_length = header_length + payload_length + pad;
    uint32_t udp_length = UDP_LENGTH + bth_length + ICRC_LENGTH;

    memcpy(ret_bytes, frame->ethernet_addresses, sizeof frame->ethernet_addresses);
    bytes_store_u16(ret_bytes + 12, gid_is_ipv4(&frame->path.local) ? TYPE_IPV4 : TYPE_IPV6);
    uint8_t *udp = build_ip(frame, udp_length, ret_bytes + ETHERNET_LENGTH);
    bytes_store_u16(udp, frame->path.source_port);
    bytes_store_u16(udp + 2, ROCE_UDP_PORT);
    bytes_store_u16(udp + 4, (uint16_t)udp_length);
    bytes_store_u16(udp + 6, 0);
    uint8_t *bth = udp + UDP_LENGTH;
    memcpy(bth, header, header_length);
    build_payload(frame, bth + header_length);
    memset(bth + header_length + payload_length, 0, pad);
    roce_icrc_store(bth + bth_length, roce_icrc(&frame->path, &frame->ip, bth, bth_length));
    if (frame->has_udp_checksum) {
        bytes_store_u16(udp + 6, udp_checksum(ret_bytes));
    }
    return (uint32_t)(bth + bth_length + ICRC_LENGTH - ret_bytes);
}

void frame_seal(uint8_t *bytes, uint32_t length)
{
    uint8_t *ip = bytes + ETHERNET_LENGTH;
    struct frame frame = {.is_management = false};
    if (!is_ipv6(bytes)) {
        bytes_store_u16(ip + 10, 0);
        bytes_store_u16(ip + 10, fold(sum(0, ip, IPV4_LENGTH)));
    }
    /* Only what the ICRC covers is asked of them; a header that makes no sense is refused later. */
    (void)(is_ipv6(bytes) ? parse_ipv6(ip, length - ETHERNET_LENGTH, &frame)
                          : parse_ipv4(ip, length - ETHERNET_LENGTH, &frame));
    frame.path.source_port = bytes_load_u16(bytes + frame_udp_offset(bytes));
    uint32_t bth = frame_bth_offset(bytes);
    roce_icrc_store(bytes + length - ICRC_LENGTH,
                    roce_icrc(&frame.path, &frame.ip, bytes + bth, length - bth - ICRC_LENGTH));
}
