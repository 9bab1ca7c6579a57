/* Headers of one packet, to and from struct packet.
 *
 * Runs once per packet in each direction: the length is checked once, against the opcode's row,
 * and then the headers are walked in the one order that all opcodes share. */
#include "rnic/wire/packet.h"

#include <string.h>

#include "rnic/base/bytes.h"
#include "rnic/base/check.h"
#include "rnic/base/text.h"

/* BTH byte 1. [IBA 9.2] */
#define BTH_SOLICITED         0x80u
#define BTH_MIGRATION_REQUEST 0x40u
#define BTH_PAD_SHIFT         4
#define BTH_PAD_MASK          3u
#define BTH_VERSION_MASK      0x0fu
/* BTH byte 4. [RoCEv2 annex A17.9] */
#define BTH_FECN 0x80u
#define BTH_BECN 0x40u
/* BTH byte 8 */
#define BTH_ACK_REQUEST 0x80u

/* Of path MTUs from 256 to 4096. */
#define SEGMENT_SHIFT_MIN 8u
#define SEGMENT_SHIFT_MAX 12u

static void parse_bth(const uint8_t *bytes, struct packet *ret_packet)
{
    ret_packet->opcode = opcode_of(ret_packet->info); /* whatever stands in the bytes by now */
    ret_packet->solicited = (bytes[1] & BTH_SOLICITED) != 0;
    ret_packet->migration_request = (bytes[1] & BTH_MIGRATION_REQUEST) != 0;
    ret_packet->pkey.value = bytes_load_u16(bytes + 2);
    ret_packet->fecn = (bytes[4] & BTH_FECN) != 0;
    ret_packet->becn = (bytes[4] & BTH_BECN) != 0;
    ret_packet->tag = (uint16_t)((bytes[4] & 0x3fu) << 7 | (bytes[8] & 0x7fu));
    ret_packet->destination = packet_destination(bytes);
    ret_packet->ack_request = (bytes[8] & BTH_ACK_REQUEST) != 0;
    ret_packet->psn.value = bytes_load_u24(bytes + 9);
}

static void parse_request_headers(const uint8_t *bytes, struct packet *packet)
{
    const struct opcode_info *info = packet->info;
    if (info->has_xrceth) {
        packet->xrc_srq = bytes_load_u24(bytes + 1);
        bytes += XRCETH_LENGTH;
    }
    if (info->has_deth) {
        packet->qkey.value = bytes_load_u32(bytes);
        packet->source.value = bytes_load_u24(bytes + 5);
        bytes += DETH_LENGTH;
    }
    if (info->has_reth) {
        packet->remote_address = bytes_load_u64(bytes);
        packet->remote_key.value = bytes_load_u32(bytes + 8);
        packet->dma_length = bytes_load_u32(bytes + 12);
        bytes += RETH_LENGTH;
    }
    if (info->has_atomic) {
        packet->remote_address = bytes_load_u64(bytes);
        packet->remote_key.value = bytes_load_u32(bytes + 8);
        packet->swap_or_add = bytes_load_u64(bytes + 12);
        packet->compare = bytes_load_u64(bytes + 20);
        bytes += ATOMIC_ETH_LENGTH;
    }
    if (info->has_immediate) {
        memcpy(&packet->immediate, bytes, IMMDT_LENGTH);
        bytes += IMMDT_LENGTH;
    }
    if (info->has_invalidate) {
        packet->invalidate.value = bytes_load_u32(bytes);
    }
}

static void parse_response_headers(const uint8_t *bytes, struct packet *packet)
{
    const struct opcode_info *info = packet->info;
    if (info->has_aeth) {
        packet->aeth.kind = (enum aeth_kind)(bytes[0] >> 5 & 3u);
        packet->aeth.value = bytes[0] & 0x1fu;
        packet->aeth.msn = bytes_load_u24(bytes + 1);
        bytes += AETH_LENGTH;
    }
    if (info->has_atomic_ack) {
        packet->original = bytes_load_u64(bytes);
    }
}

/* `rest`: payload and pad. */
static enum packet_refusal check_payload(const struct opcode_info *info, size_t rest, uint32_t pad)
{
    if (pad > rest || (rest & 3u) != 0) {
        return REFUSED_PAD;
    }
    size_t payload_max = info->has_payload ? PACKET_PAYLOAD_MAX : 0;
    return rest - pad > payload_max ? REFUSED_PAYLOAD_LENGTH : REFUSED_NOT;
}

/* What stands before the payload. */
static enum packet_refusal find_row(const uint8_t *bytes, size_t length,
                                    const struct opcode_info **ret_info)
{
    if (length < BTH_LENGTH) {
        return REFUSED_TRUNCATED;
    }
    if ((bytes[1] & BTH_VERSION_MASK) != 0) {
        return REFUSED_VERSION;
    }
    *ret_info = opcode_lookup(bytes[0]);
    if (*ret_info == NULL) {
        return REFUSED_OPCODE;
    }
    return length < (*ret_info)->header_length ? REFUSED_TRUNCATED : REFUSED_NOT;
}

static void parse_headers(const uint8_t *bytes, struct packet *packet)
{
    parse_bth(bytes, packet);
    if (packet->info->is_request) {
        parse_request_headers(bytes + BTH_LENGTH, packet);
    } else {
        parse_response_headers(bytes + BTH_LENGTH, packet);
    }
}

enum packet_refusal packet_parse(const uint8_t *bytes, size_t length, struct packet *ret_packet)
{
    const struct opcode_info *info;
    enum packet_refusal refusal = find_row(bytes, length, &info);
    if (refusal != REFUSED_NOT) {
        return refusal;
    }
    size_t rest = length - info->header_length;
    uint32_t pad = bytes[1] >> BTH_PAD_SHIFT & BTH_PAD_MASK;
    refusal = check_payload(info, rest, pad);
    if (refusal != REFUSED_NOT) {
        return refusal;
    }

    *ret_packet = (struct packet){
        .info = info,
        .payload = bytes + info->header_length,
        .payload_length = (uint32_t)(rest - pad),
    };
    parse_headers(bytes, ret_packet);
    return REFUSED_NOT;
}

enum packet_refusal packet_parse_reference(const uint8_t *bytes, size_t length,
                                           const struct payload_reference *reference,
                                           struct packet *ret_packet)
{
    const struct opcode_info *info;
    enum packet_refusal refusal = find_row(bytes, length, &info);
    if (refusal != REFUSED_NOT) {
        return refusal;
    }
    bool travels = info->service == SERVICE_RC &&
                   (info->operation == OPERATION_SEND || info->operation == OPERATION_WRITE ||
                    info->operation == OPERATION_READ_RESPONSE);
    if (!travels || length != info->header_length || reference->length == 0 ||
        reference->length > REFERENCE_MAX || reference->segment_shift < SEGMENT_SHIFT_MIN ||
        reference->segment_shift > SEGMENT_SHIFT_MAX) {
        return REFUSED_PAYLOAD_LENGTH;
    }
    *ret_packet = (struct packet){
        .info = info,
        .payload_length = reference->length,
        .reader = reference->reader,
        .segment_shift = reference->segment_shift,
    };
    parse_headers(bytes, ret_packet);
    return REFUSED_NOT;
}

static void build_bth(const struct packet *packet, uint8_t *bytes)
{
    uint32_t pad = packet_pad(packet->payload_length);
    bytes[0] = packet->opcode;
    bytes[1] =
        (uint8_t)((packet->solicited ? BTH_SOLICITED : 0) |
                  (packet->migration_request ? BTH_MIGRATION_REQUEST : 0) | pad << BTH_PAD_SHIFT);
    bytes_store_u16(bytes + 2, packet->pkey.value);
    bytes[4] = (uint8_t)((packet->fecn ? BTH_FECN : 0) | (packet->becn ? BTH_BECN : 0));
    bytes_store_u24(bytes + 5, packet->destination.value);
    bytes[8] = packet->ack_request ? BTH_ACK_REQUEST : 0;
    bytes_store_u24(bytes + 9, packet->psn.value);
    packet_put_tag(bytes, packet->tag);
}

static uint8_t *build_request_headers(const struct opcode_info *info, const struct packet *packet,
                                      uint8_t *bytes)
{
    if (info->has_xrceth) {
        bytes_store_u32(bytes, packet->xrc_srq & 0xffffffu);
        bytes += XRCETH_LENGTH;
    }
    if (info->has_deth) {
        bytes_store_u32(bytes, packet->qkey.value);
        bytes_store_u32(bytes + 4, packet->source.value & 0xffffffu);
        bytes += DETH_LENGTH;
    }
    if (info->has_reth) {
        bytes_store_u64(bytes, packet->remote_address);
        bytes_store_u32(bytes + 8, packet->remote_key.value);
        bytes_store_u32(bytes + 12, packet->dma_length);
        bytes += RETH_LENGTH;
    }
    if (info->has_atomic) {
        bytes_store_u64(bytes, packet->remote_address);
        bytes_store_u32(bytes + 8, packet->remote_key.value);
        bytes_store_u64(bytes + 12, packet->swap_or_add);
        bytes_store_u64(bytes + 20, packet->compare);
        bytes += ATOMIC_ETH_LENGTH;
    }
    if (info->has_immediate) {
        memcpy(bytes, &packet->immediate, IMMDT_LENGTH);
        bytes += IMMDT_LENGTH;
    }
    if (info->has_invalidate) {
        bytes_store_u32(bytes, packet->invalidate.value);
        bytes += IETH_LENGTH;
    }
    return bytes;
}

static uint8_t *build_response_headers(const struct opcode_info *info, const struct packet *packet,
                                       uint8_t *bytes)
{
    if (info->has_aeth) {
        bytes[0] = (uint8_t)((packet->aeth.kind & 3u) << 5 | (packet->aeth.value & 0x1fu));
        bytes_store_u24(bytes + 1, packet->aeth.msn);
        bytes += AETH_LENGTH;
    }
    if (info->has_atomic_ack) {
        bytes_store_u64(bytes, packet->original);
        bytes += ATOMIC_ACK_ETH_LENGTH;
    }
    if (info->operation == OPERATION_CONGESTION) {
        memset(bytes, 0, CNP_RESERVED_LENGTH);
        bytes += CNP_RESERVED_LENGTH;
    }
    return bytes;
}

uint32_t packet_build(const struct packet *packet, uint8_t ret_header[PACKET_HEADER_MAX])
{
    const struct opcode_info *info = opcode_lookup(packet->opcode);
    CHECK(info != NULL);
    CHECK(info->has_payload || packet->payload_length == 0);
    build_bth(packet, ret_header);
    uint8_t *end = info->is_request ? build_request_headers(info, packet, ret_header + BTH_LENGTH)
                                    : build_response_headers(info, packet, ret_header + BTH_LENGTH);
    CHECK(end == ret_header + info->header_length);
    return info->header_length;
}

const char *packet_refusal_name(enum packet_refusal refusal)
{
    static const char *const names[REFUSED_COUNT] = {
        [REFUSED_NOT] = "not_refused",
        [REFUSED_TRUNCATED] = "truncated",
        [REFUSED_VERSION] = "version",
        [REFUSED_OPCODE] = "opcode",
        [REFUSED_PAD] = "pad",
        [REFUSED_PAYLOAD_LENGTH] = "payload_length",
        [REFUSED_ICRC] = "icrc",
        [REFUSED_IDENTIFICATION] = "identification",
        [REFUSED_FRAMING] = "framing",
        [REFUSED_BROADCAST] = "broadcast",
        [REFUSED_PKEY] = "pkey",
        [REFUSED_QKEY] = "qkey",
        [REFUSED_NO_QP] = "no_qp",
        [REFUSED_NO_GROUP] = "no_group",
        [REFUSED_SERVICE] = "service",
        [REFUSED_STATE] = "state",
        [REFUSED_ADDRESS] = "address",
        [REFUSED_PSN] = "psn",
        [REFUSED_SEQUENCE] = "sequence",
        [REFUSED_NO_RECEIVE] = "no_receive",
        [REFUSED_TOO_LONG] = "too_long",
        [REFUSED_ACCESS] = "access",
        [REFUSED_MANAGEMENT] = "management",
    };
    return (unsigned)refusal < REFUSED_COUNT ? names[refusal] : "unknown";
}

static void describe_field(struct text *text, const char *name, uint64_t value)
{
    text_put(text, name);
    text_put_decimal(text, value);
}

static void describe_hex(struct text *text, const char *name, uint64_t value)
{
    text_put(text, name);
    text_put_hex(text, value);
}

static void describe_aeth(struct text *text, const struct aeth *aeth)
{
    static const char *const naks[] = {
        [NAK_SEQUENCE] = "sequence",
        [NAK_INVALID_REQUEST] = "invalid_request",
        [NAK_REMOTE_ACCESS] = "remote_access",
        [NAK_REMOTE_OPERATION] = "remote_operation",
        [NAK_INVALID_RD_REQUEST] = "invalid_rd_request",
    };
    switch (aeth->kind) {
    case AETH_ACK:
        describe_field(text, " ack credits=", aeth->value);
        break;
    case AETH_RNR_NAK:
        describe_field(text, " rnr timer=", aeth->value);
        break;
    case AETH_NAK:
        text_put(text, " nak=");
        if (aeth->value < sizeof naks / sizeof naks[0]) {
            text_put(text, naks[aeth->value]);
        } else {
            text_put_decimal(text, aeth->value);
        }
        break;
    default:
        text_put(text, " reserved_aeth");
        break;
    }
    describe_field(text, " msn=", aeth->msn);
}

static void describe_headers(struct text *text, const struct opcode_info *info,
                             const struct packet *packet)
{
    if (info->has_xrceth) {
        describe_field(text, " srq=", packet->xrc_srq);
    }
    if (info->has_deth) {
        describe_field(text, " from=", packet->source.value);
        describe_hex(text, " qkey=", packet->qkey.value);
    }
    if (info->has_reth || info->has_atomic) {
        describe_hex(text, " va=", packet->remote_address);
        describe_hex(text, " rkey=", packet->remote_key.value);
    }
    if (info->has_reth) {
        describe_field(text, " dma=", packet->dma_length);
    }
    if (info->operation == OPERATION_COMPARE_SWAP) {
        describe_hex(text, " compare=", packet->compare);
        describe_hex(text, " swap=", packet->swap_or_add);
    }
    if (info->operation == OPERATION_FETCH_ADD) {
        describe_hex(text, " add=", packet->swap_or_add);
    }
    if (info->has_aeth) {
        describe_aeth(text, &packet->aeth);
    }
    if (info->has_atomic_ack) {
        describe_hex(text, " original=", packet->original);
    }
    if (info->has_immediate) {
        describe_hex(text, " imm=", bytes_load_u32((const uint8_t *)&packet->immediate));
    }
    if (info->has_invalidate) {
        describe_hex(text, " invalidate=", packet->invalidate.value);
    }
}

size_t packet_describe(const struct packet *packet, char *ret_text, size_t capacity)
{
    static const char *const prefixes[] = {
        [SERVICE_RC] = "",    [SERVICE_UC] = "UC ", [SERVICE_RD] = "RD ",
        [SERVICE_UD] = "UD ", [SERVICE_CNP] = "",   [SERVICE_XRC] = "XRC ",
    };
    struct text text = text_init(ret_text, capacity);
    const struct opcode_info *info = opcode_lookup(packet->opcode);
    if (info == NULL) {
        describe_hex(&text, "opcode=", packet->opcode);
        return text.length;
    }
    text_put(&text, prefixes[info->service]);
    text_put(&text, info->name);
    describe_field(&text, " qp=", packet->destination.value);
    describe_field(&text, " psn=", packet->psn.value);
    if (info->has_payload) {
        describe_field(&text, " len=", packet->payload_length);
    }
    describe_headers(&text, info, packet);
    text_put(&text, packet->ack_request ? " ackreq" : "");
    text_put(&text, packet->solicited ? " solicited" : "");
    return text.length;
}
